//! `model.bin` of CTranslate2, parsed as untrusted input: its variables by name, and where their numbers are.
//!
//! | field | content |
//! |---|---|
//! | version | u32 |
//! | specification, its revision | text, u32 |
//! | number of variables | u32 |
//! | each variable | name, number of dimensions (u8), dimensions (u32 each), dtype (u8), bytes (u32), numbers |
//! | number of aliases | u32 |
//! | each alias | name, name of the variable |
//!
//! A text is its length with a zero byte at the end (u16), and these bytes. All numbers are little-endian. Only what is
//! between the numbers of the variables is read when a file is opened.

use crate::checkpoint::byte_source::{Source, check_format};
use crate::checkpoint::faults::{duplicate_tensor, too_many_tensors};
use crate::checkpoint::lazy_tensor::Elements;
use crate::checkpoint::safetensors_file::{Entry, MAX_TENSORS, Stored};
use crate::error::Error;
use crate::printable_text::{quoted, sanitized};
use std::collections::{BTreeMap, HashSet};

/// The versions of the format that are read.
const VERSIONS: core::ops::RangeInclusive<u32> = 4..=6;

/// Maximum length of a text; names of real models have less than a hundred characters.
const MAX_TEXT: usize = 512;

/// Maximum number of dimensions; a convolution has three.
const MAX_DIMENSIONS: usize = 8;

/// Maximum characters of a name in an error.
const SHOWN: usize = 400;

/// Divisor of int16 weights in files that do not have one.
const INT16_DIVISOR: f32 = 1000.0;

/// The dtypes by their numbers in a file, in safetensors spelling.
const TYPES: [&str; 6] = ["F32", "I8", "I16", "I32", "F16", "BF16"];

/// A variable: its dtype and shape, which have been checked against its bytes, and the offset of its first element.
#[derive(Clone, Debug)]
pub(super) struct Variable {
    pub(super) dtype: Stored,
    pub(super) shape: Vec<usize>,
    pub(super) offset: u64,
}

impl Variable {
    fn elements(&self) -> usize {
        self.shape.iter().product()
    }

    fn bytes(&self) -> usize {
        // A product that does not fit is no size of a file.
        self.elements().saturating_mul(self.dtype.bits.unwrap_or(0)) / 8
    }
}

/// The variables of a file, and which of them a reader has used.
pub(super) struct ModelFile {
    pub(super) source: Source<'static>,
    pub(super) version: u32,
    pub(super) specification: String,
    pub(super) revision: u32,
    variables: BTreeMap<String, Variable>,
    used: HashSet<String>,
}

/// Whether `begin`, the first bytes of a file, are a version and the name of a specification.
pub(super) fn is_model_file(begin: &[u8]) -> bool {
    let Some((&[version, 0, 0, 0, length, 0], rest)) = begin.split_first_chunk() else {
        return false;
    };
    let name = rest.get(..usize::from(length)).and_then(|text| text.split_last());
    (1..64).contains(&version)
        && name.is_some_and(|(&end, name)| end == 0 && name.iter().all(u8::is_ascii_alphanumeric))
}

impl ModelFile {
    pub(super) fn open(source: Source<'static>) -> Result<Self, Error> {
        let mut begin = [0; 64];
        let begin = &mut begin[..source.len().min(64) as usize];
        source.read_at(0, begin)?;
        if !is_model_file(begin) {
            check_format(&source)?;
        }
        let mut header = Header { source: &source, at: 0, window: Vec::new(), window_at: 0 };
        let version = header.u32("the version of the format")?;
        if !VERSIONS.contains(&version) {
            let expected = "a file of CTranslate2 in version 4, 5 or 6";
            return Err(Error::unsupported(source.name(), expected, format!("version {version}")));
        }
        let specification = header.text("the specification")?;
        let revision = header.u32("the revision of the specification")?;
        let count = header.count("variables")?;
        let mut variables = BTreeMap::new();
        for _ in 0..count {
            let name = header.text("the name of a variable")?;
            let variable = header.variable(&name)?;
            if variables.insert(name.clone(), variable).is_some() {
                return Err(duplicate_tensor(&source, &sanitized(&name, SHOWN)));
            }
        }
        let count = header.count("aliases")?;
        for _ in 0..count {
            let alias = header.text("the name of an alias")?;
            let of = header.text("the variable of an alias")?;
            let Some(variable) = variables.get(&of).cloned() else {
                let operand = format!("{}: {}", source.name(), sanitized(&alias, SHOWN));
                let found = quoted(&of, SHOWN);
                return Err(Error::corrupt(operand, "an alias of a variable of this file", found));
            };
            // The scale of a matrix has its name and an ending, and belongs to the alias, too.
            if let Some(scale) = variables.get(&scale_of(&of)).cloned() {
                variables.entry(scale_of(&alias)).or_insert(scale);
            }
            if variables.insert(alias.clone(), variable).is_some() {
                return Err(duplicate_tensor(&source, &sanitized(&alias, SHOWN)));
            }
        }
        let end = header.at;
        if end != source.len() {
            let found = format!("{} more bytes", source.len() - end);
            return Err(Error::corrupt(source.name(), "the end after the last alias", found));
        }
        let used = HashSet::new();
        Ok(Self { source, version, specification, revision, variables, used })
    }

    pub(super) fn name(&self) -> &str {
        self.source.name()
    }

    pub(super) fn has(&self, name: &str) -> bool {
        self.variables.contains_key(name)
    }

    /// The variable `name`, if there is one, which is then used.
    pub(super) fn find(&mut self, name: &str) -> Option<&Variable> {
        let (name, variable) = self.variables.get_key_value(name)?;
        self.used.insert(name.clone());
        Some(variable)
    }

    /// As [`find`](Self::find); a missing variable is an error.
    pub(super) fn required(&mut self, name: &str) -> Result<&Variable, Error> {
        if !self.has(name) {
            let operand = format!("{}: {}", self.name(), sanitized(name, SHOWN));
            return Err(Error::corrupt(operand, "a variable of this name", "none"));
        }
        // The line above returns if there is none.
        self.find(name).ok_or_else(|| Error::corrupt(name.to_owned(), "a variable", "none"))
    }

    /// As [`required`](Self::required), for a matrix: its shape.
    pub(super) fn matrix(&mut self, name: &str) -> Result<[usize; 2], Error> {
        let shape = self.required(name)?.shape.clone();
        match shape[..] {
            [rows, columns] if rows > 0 && columns > 0 => Ok([rows, columns]),
            _ => Err(self.wrong(name, "a matrix", format!("shape {shape:?}"))),
        }
    }

    /// The value of a variable with one element; `None` if there is no such variable.
    pub(super) fn scalar(&mut self, name: &str) -> Result<Option<f32>, Error> {
        let Some(variable) = self.find(name).cloned() else { return Ok(None) };
        if variable.elements() != 1 {
            let found = format!("shape {:?}", variable.shape);
            return Err(self.wrong(name, "one number", found));
        }
        let mut bytes = [0; 4];
        let size = variable.bytes().min(bytes.len());
        self.source.read_at(variable.offset, &mut bytes[..size])?;
        let [low, high, ..] = bytes;
        // Integers that are settings are small, so that f32 holds them.
        Ok(Some(match variable.dtype.to_string().as_str() {
            "I8" => f32::from(low.cast_signed()),
            "I16" => f32::from(i16::from_le_bytes([low, high])),
            "I32" => i32::from_le_bytes(bytes) as f32,
            "F32" => f32::from_le_bytes(bytes),
            _ => match variable.dtype.float() {
                Some(dtype) => dtype.widen(u16::from_le_bytes([low, high])),
                None => f32::NAN,
            },
        }))
    }

    /// As [`scalar`](Self::scalar), for a number that counts something.
    pub(super) fn size(&mut self, name: &str) -> Result<Option<usize>, Error> {
        match self.scalar(name)? {
            None => Ok(None),
            Some(x) if x >= 0.0 && x.fract() == 0.0 && x < 1e9 => Ok(Some(x as usize)),
            Some(x) => Err(self.wrong(name, "a count", x.to_string())),
        }
    }

    /// As [`scalar`](Self::scalar), for a flag; `absent` if there is no such variable.
    pub(super) fn flag(&mut self, name: &str, absent: bool) -> Result<bool, Error> {
        Ok(self.scalar(name)?.map_or(absent, |x| x != 0.0))
    }

    /// The bytes of a variable of int8 as a text, as in versions before 6.
    pub(super) fn text(&mut self, name: &str) -> Result<Option<String>, Error> {
        let Some(variable) = self.find(name).cloned() else { return Ok(None) };
        if variable.bytes() > MAX_TEXT {
            let found = format!("{} bytes", variable.bytes());
            return Err(self.wrong(name, &format!("a text of at most {MAX_TEXT} bytes"), found));
        }
        let mut bytes = vec![0; variable.bytes()];
        self.source.read_at(variable.offset, &mut bytes)?;
        let text = String::from_utf8(bytes);
        text.map(Some).map_err(|_| self.wrong(name, "a text in UTF-8", "other bytes".to_owned()))
    }

    /// Block `index` of `blocks` equal blocks of the rows of a variable as an entry of a checkpoint, with `zero_rows` rows
    /// of zeros after them. `name` is that of the entry.
    pub(super) fn entry(
        &mut self,
        variable: &str,
        (index, blocks): (usize, usize),
        zero_rows: usize,
        name: String,
    ) -> Result<Entry, Error> {
        let Variable { dtype, mut shape, offset } = self.required(variable)?.clone();
        let Some(rows) = shape.first_mut().filter(|rows| rows.is_multiple_of(blocks)) else {
            let expected = format!("a multiple of {blocks} rows");
            return Err(self.wrong(variable, &expected, format!("shape {shape:?}")));
        };
        *rows /= blocks;
        let first = *rows * index;
        #[cfg(feature = "train")]
        let stored_rows = *rows;
        let Some(padded) = rows.checked_add(zero_rows) else {
            return Err(Error::too_large("rows"));
        };
        *rows = padded;
        let row_bytes = shape.iter().skip(1).product::<usize>() * dtype.bits.unwrap_or(0) / 8;
        let scaled = self.divisors(variable, &dtype, first)?;
        Ok(Entry {
            name,
            dtype,
            shape,
            offset: offset + (first * row_bytes) as u64,
            strides: Vec::new(),
            scaled,
            zero_rows,
            #[cfg(feature = "train")]
            bytes: (stored_rows * row_bytes) as u64,
        })
    }

    /// The divisors of the integers of a variable from row `first` on; `None` for floats.
    fn divisors(
        &mut self,
        variable: &str,
        dtype: &Stored,
        first: usize,
    ) -> Result<Option<Elements>, Error> {
        let name = scale_of(variable);
        match dtype.to_string().as_str() {
            "I8" => {
                let rows = self.required(variable)?.shape.first().copied().unwrap_or(0);
                let Variable { dtype, shape, offset } = self.required(&name)?.clone();
                if dtype.to_string() != "F32" || shape != [rows] {
                    let expected = format!("F32 of shape [{rows}], one for each row");
                    return Err(self.wrong(
                        &name,
                        &expected,
                        format!("{dtype} of shape {shape:?}"),
                    ));
                }
                Ok(Some(Elements::Int8(offset + 4 * first as u64)))
            }
            "I16" => Ok(Some(Elements::Int16(self.scalar(&name)?.unwrap_or(INT16_DIVISOR)))),
            _ => Ok(None),
        }
    }

    /// The variables that no reader has used, sorted.
    pub(super) fn unused(&self) -> Vec<String> {
        let names = self.variables.keys().filter(|name| !self.used.contains(*name));
        names.cloned().collect()
    }

    /// A variable is not as expected.
    pub(super) fn wrong(&self, variable: &str, expected: &str, found: String) -> Error {
        let operand = format!("{}: {}", self.name(), sanitized(variable, SHOWN));
        Error::corrupt(operand, expected.to_owned(), found)
    }

    /// A variable asks for what this crate does not compute.
    pub(super) fn unsupported(&self, variable: &str, expected: &str, found: String) -> Error {
        let operand = format!("{}: {}", self.name(), sanitized(variable, SHOWN));
        Error::unsupported(operand, expected.to_owned(), found)
    }
}

/// The name of the scale of a variable.
fn scale_of(variable: &str) -> String {
    format!("{variable}_scale")
}

/// Reads the parts of a file that are not numbers of variables, a window at a time.
struct Header<'s> {
    source: &'s Source<'static>,
    /// The next byte.
    at: u64,
    window: Vec<u8>,
    window_at: u64,
}

impl Header<'_> {
    /// The next `count` bytes, which are `what`; at most [`MAX_TEXT`].
    fn take(&mut self, count: usize, what: &str) -> Result<&[u8], Error> {
        const WINDOW: usize = 4096;
        let left = self.source.len() - self.at;
        if left < count as u64 {
            let expected = format!("{count} bytes of {what} at byte {}", self.at);
            let found = format!("{left}: truncated?");
            return Err(Error::corrupt(self.source.name(), expected, found));
        }
        let end = self.at + count as u64;
        if self.at < self.window_at || end > self.window_at + self.window.len() as u64 {
            let length = left.min(WINDOW as u64) as usize;
            self.window.resize(length, 0);
            self.window_at = self.at;
            self.source.read_at(self.at, &mut self.window)?;
        }
        let first = (self.at - self.window_at) as usize;
        self.at = end;
        Ok(&self.window[first..first + count])
    }

    fn array<const N: usize>(&mut self, what: &str) -> Result<[u8; N], Error> {
        let mut array = [0; N];
        array.copy_from_slice(self.take(N, what)?);
        Ok(array)
    }

    fn u32(&mut self, what: &str) -> Result<u32, Error> {
        Ok(u32::from_le_bytes(self.array(what)?))
    }

    /// The number of `what`.
    fn count(&mut self, what: &str) -> Result<usize, Error> {
        let count = self.u32(&format!("the number of {what}"))? as usize;
        if count > MAX_TENSORS {
            return Err(too_many_tensors(self.source.name(), MAX_TENSORS));
        }
        Ok(count)
    }

    fn text(&mut self, what: &str) -> Result<String, Error> {
        let length = usize::from(u16::from_le_bytes(self.array(what)?));
        let operand = format!("{}: {what} at byte {}", self.source.name(), self.at);
        if !(1..=MAX_TEXT).contains(&length) {
            let expected = format!("a text of 1 to {MAX_TEXT} bytes with a zero byte at the end");
            return Err(Error::corrupt(operand, expected, format!("{length} bytes")));
        }
        let text = match self.take(length, what)? {
            [text @ .., 0] if !text.contains(&0) => core::str::from_utf8(text).ok(),
            _ => None,
        };
        let expected = "a text in UTF-8 with a zero byte at the end";
        text.map(str::to_owned).ok_or_else(|| Error::corrupt(operand, expected, "other bytes"))
    }

    fn variable(&mut self, name: &str) -> Result<Variable, Error> {
        let operand = format!("{}: {}", self.source.name(), sanitized(name, SHOWN));
        let wrong =
            |expected: String, found: String| Err(Error::corrupt(&*operand, expected, found));
        let [rank] = self.array("the number of dimensions")?;
        if usize::from(rank) > MAX_DIMENSIONS {
            return wrong(format!("at most {MAX_DIMENSIONS} dimensions"), rank.to_string());
        }
        let shape = (0..rank).map(|_| Ok(self.u32("a dimension")? as usize));
        let shape: Vec<usize> = shape.collect::<Result<_, Error>>()?;
        let [dtype] = self.array("a dtype")?;
        let Some(&dtype) = TYPES.get(usize::from(dtype)) else {
            return wrong(format!("a dtype below {}", TYPES.len()), dtype.to_string());
        };
        let dtype = Stored::from_name(dtype);
        let bytes = self.u32("the number of bytes")?;
        // A dimension of zero counts as one, so that the others are still checked for overflow.
        let fits = shape.iter().try_fold(8usize, |n, &dim| n.checked_mul(dim.max(1)));
        let variable = Variable { dtype, shape, offset: self.at };
        if fits.is_none() || variable.bytes() as u64 != u64::from(bytes) {
            let Variable { dtype, shape, .. } = variable;
            let expected = format!("the bytes of {dtype} of shape {shape:?}");
            return wrong(expected, format!("{bytes} bytes"));
        }
        let left = self.source.len() - self.at;
        if left < u64::from(bytes) {
            let found = format!("{left} in the rest of the file: truncated?");
            return wrong(format!("{bytes} bytes at byte {}", self.at), found);
        }
        self.at += u64::from(bytes);
        Ok(variable)
    }
}
