//! The header of a safetensors file, parsed as untrusted input.
//!
//! The file contains eight bytes of little-endian header length, the header in JSON, and the tensors. The
//! dtypes are those of version 0.8 of the `safetensors` crate ([`TYPES`]). Other dtypes, which a later version
//! may define, are accepted; only reading such a tensor is an error. All checks run here, against the length of
//! the file and before any addition, so that each error names the tensor and the file, and no sum can overflow.
//! This module does not need the `safetensors` crate, which has ten dependencies; only tests and the feature
//! `train` depend on it.

use std::borrow::Cow;
use std::collections::HashSet;
use std::fmt;

use serde_core::Deserialize;
use serde_core::de::{
    DeserializeSeed, Deserializer, Error as _, IgnoredAny, MapAccess, SeqAccess, Visitor,
};

use super::byte_source::{Source, check_format};
use super::faults::{duplicate_tensor, shared_bytes, too_many_tensors, wrong_dtype};
use super::lazy_tensor::{Accept, Elements, TensorView};
use crate::error::{Error, not_utf8};
use crate::json_object::object;
use crate::printable_text::sanitized;
use simdformer_kernels::Dtype;

/// The limit of the `safetensors` crate; the headers of real checkpoints have a thousandth of it.
pub(super) const MAX_HEADER: u64 = 100_000_000;

/// Bytes of the length field.
const LENGTH: u64 = 8;

/// Maximum characters of a name in an error: a malicious name may be as long as the header.
const SHOWN: usize = 400;

/// Maximum number of tensors in a header or an index: ten times those of a large model. Each needs more memory
/// than its text.
pub(super) const MAX_TENSORS: usize = 1 << 15;

/// Maximum number of dimensions of a tensor; weights of linear maps have two, those of image models four.
const MAX_DIMENSIONS: usize = 32;

/// The dtypes of the format, and the bits of an element.
const TYPES: [(&str, usize); 22] = [
    ("BOOL", 8),
    ("F4", 4),
    ("F6_E2M3", 6),
    ("F6_E3M2", 6),
    ("U8", 8),
    ("I8", 8),
    ("F8_E5M2", 8),
    ("F8_E4M3", 8),
    ("F8_E8M0", 8),
    ("F8_E4M3FNUZ", 8),
    ("F8_E5M2FNUZ", 8),
    ("I16", 16),
    ("U16", 16),
    ("F16", 16),
    ("BF16", 16),
    ("I32", 32),
    ("U32", 32),
    ("F32", 32),
    ("C64", 64),
    ("F64", 64),
    ("I64", 64),
    ("U64", 64),
];

/// A dtype as the file spells it.
#[derive(Clone, Debug)]
pub(super) struct Stored {
    /// One of [`TYPES`], or a shortened name.
    name: Cow<'static, str>,
    /// Bits of an element; `None` for an unknown dtype.
    pub(super) bits: Option<usize>,
}

impl Stored {
    /// The dtype, if weights can be read from it.
    pub(super) fn float(&self) -> Option<Dtype> {
        self.bits.and_then(|_| Dtype::from_name(&self.name))
    }

    pub(super) fn from_name(name: &str) -> Self {
        match TYPES.into_iter().find(|(known, _)| *known == name) {
            Some((name, bits)) => Self { name: name.into(), bits: Some(bits) },
            None => Self { name: sanitized(name, 24).into(), bits: None },
        }
    }
}

impl<'de> Deserialize<'de> for Stored {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct Name;
        impl Visitor<'_> for Name {
            type Value = Stored;

            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("the name of a type")
            }

            fn visit_str<E>(self, name: &str) -> Result<Stored, E> {
                Ok(Stored::from_name(name))
            }
        }
        deserializer.deserialize_str(Name)
    }
}

impl fmt::Display for Stored {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.name)
    }
}

object! {
    /// The header entry of a tensor.
    struct TensorInfo {
        dtype: Stored = "dtype",
        shape: Shape = "shape",
        data_offsets: (usize, usize) = "data_offsets",
    }
}

/// A shape; parsing stops at [`MAX_DIMENSIONS`].
struct Shape(Vec<usize>);

impl<'de> Deserialize<'de> for Shape {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct Dimensions;
        impl<'de> Visitor<'de> for Dimensions {
            type Value = Shape;

            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                write!(f, "a list of at most {MAX_DIMENSIONS} sizes")
            }

            fn visit_seq<A: SeqAccess<'de>>(self, mut list: A) -> Result<Shape, A::Error> {
                let mut shape = Vec::new();
                while let Some(size) = list.next_element()? {
                    if shape.len() == MAX_DIMENSIONS {
                        return Err(A::Error::invalid_length(MAX_DIMENSIONS + 1, &self));
                    }
                    shape.push(size);
                }
                Ok(Shape(shape))
            }
        }
        deserializer.deserialize_seq(Dimensions)
    }
}

/// A tensor of a file of weights. Its dtype and shape have been checked against its bytes.
#[derive(Debug)]
pub(super) struct Entry {
    pub(super) name: String,
    pub(super) dtype: Stored,
    pub(super) shape: Vec<usize>,
    /// Offset of the first element from the start of the file.
    pub(super) offset: u64,
    /// Distances of neighbors in each dimension, in elements. Empty if the elements are side by side in row-major order,
    /// as in every safetensors file.
    pub(super) strides: Vec<usize>,
    /// The scales of integers, which only files of CTranslate2 have.
    pub(super) scaled: Option<Elements>,
    /// Rows of zeros after those that are stored; only in directories of CTranslate2.
    pub(super) zero_rows: usize,
    #[cfg(feature = "train")]
    pub(super) bytes: u64,
}

impl Entry {
    /// The whole tensor as a view; reading it accepts any value.
    pub(super) fn view<'a>(
        &'a self,
        source: &'a Source<'a>,
        name: &'a str,
    ) -> Result<TensorView<'a>, Error> {
        let Some(elements) = self.scaled.or(self.dtype.float().map(Elements::Float)) else {
            return Err(wrong_dtype(name, &self.dtype.to_string()));
        };
        let rows = self.shape.first().copied().unwrap_or(0);
        Ok(TensorView {
            source,
            name,
            elements,
            shape: self.shape.clone(),
            stored_rows: rows.saturating_sub(self.zero_rows),
            offset: self.offset,
            strides: &self.strides,
            skipped: 0,
            accept: Accept::Anything,
        })
    }
}

pub(super) fn read_header(source: &Source<'_>) -> Result<Vec<Entry>, Error> {
    let file = || source.name().to_owned();
    let of_header = || format!("{}: the header", source.name());
    let sanitized = |name: &str| sanitized(name, SHOWN);
    let Some(available) = source.len().checked_sub(LENGTH) else {
        let expected = "8 bytes of length, with which a safetensors file begins";
        return Err(Error::corrupt(file(), expected, format!("{} bytes", source.len())));
    };
    let mut length = [0; LENGTH as usize];
    source.read_at(0, &mut length)?;
    let header = u64::from_le_bytes(length);
    if header > MAX_HEADER {
        // No safetensors file begins with such a length; files of other formats and text messages do.
        check_format(source)?;
        let (expected, found) = (format!("at most {MAX_HEADER} bytes"), format!("{header} bytes"));
        return Err(Error::corrupt(of_header(), expected, found));
    }
    let Some(data) = available.checked_sub(header) else {
        let found = format!("{available} in the file after the length: truncated?");
        return Err(Error::corrupt(of_header(), format!("{header} bytes"), found));
    };
    let text = read_text(source, header as usize)?;
    let text = String::from_utf8(text)
        .map_err(|error| Error::corrupt(of_header(), "UTF-8", not_utf8(&error.utf8_error())))?;
    let mut tensors = parse(&text, source)?;
    tensors.sort_by_key(|(_, info)| info.data_offsets);
    let mut previous: Option<(&str, usize)> = None;
    for (name, info) in &tensors {
        let (begin, end) = info.data_offsets;
        check_tensor(source, name, info, data)?;
        let (before, filled) = previous.unwrap_or(("", 0));
        if begin < filled {
            return Err(shared_bytes(source, &sanitized(before), &sanitized(name)));
        }
        if begin > filled {
            return Err(unused_bytes(source, filled as u64, begin as u64));
        }
        previous = Some((name, end));
    }
    let filled = previous.map_or(0, |(_, end)| end as u64);
    if filled != data {
        return Err(unused_bytes(source, filled, data));
    }
    let entry = |(name, info): (String, TensorInfo)| Entry {
        name,
        dtype: info.dtype,
        shape: info.shape.0,
        offset: LENGTH + header + info.data_offsets.0 as u64,
        strides: Vec::new(),
        scaled: None,
        zero_rows: 0,
        #[cfg(feature = "train")]
        bytes: (info.data_offsets.1 - info.data_offsets.0) as u64,
    };
    Ok(tensors.into_iter().map(entry).collect())
}

/// The `header` bytes after the length field. Stops in the block with the first zero byte, which is not valid
/// JSON.
fn read_text(source: &Source<'_>, header: usize) -> Result<Vec<u8>, Error> {
    const BLOCK: usize = 1 << 20;
    // The buffer grows while reading: the header length may be wrong, in a sparse file of that size.
    let mut text: Vec<u8> = Vec::new();
    while text.len() < header {
        let start = text.len();
        let end = header.min(start + BLOCK);
        if text.try_reserve(end - start).is_err() {
            return Err(Error::out_of_memory(source.name().to_owned(), end));
        }
        text.resize(end, 0);
        source.read_at(LENGTH + start as u64, &mut text[start..])?;
        if text[start..].contains(&0) {
            break;
        }
    }
    Ok(text)
}

/// The tensor that fills all of `source`.
pub(super) fn whole(
    source: &Source<'_>,
    name: &str,
    dtype: Stored,
    shape: Vec<usize>,
) -> Result<Entry, Error> {
    let len = source.len();
    let info = TensorInfo { dtype, shape: Shape(shape), data_offsets: (0, len as usize) };
    check_tensor(source, name, &info, len)?;
    let TensorInfo { dtype, shape: Shape(shape), .. } = info;
    Ok(Entry {
        name: name.to_owned(),
        dtype,
        shape,
        offset: 0,
        strides: Vec::new(),
        scaled: None,
        zero_rows: 0,
        #[cfg(feature = "train")]
        bytes: len,
    })
}

/// Checks that the tensor is inside the file, and that its size matches its shape if the dtype is known.
fn check_tensor(
    source: &Source<'_>,
    name: &str,
    info: &TensorInfo,
    available: u64,
) -> Result<(), Error> {
    let wrong = |expected: String, found: String| {
        let operand = format!("{}: {}", source.name(), sanitized(name, SHOWN));
        Err(Error::corrupt(operand, expected, found))
    };
    let (begin, end) = info.data_offsets;
    if end < begin {
        return wrong(format!("an end after its begin, byte {begin}"), format!("byte {end}"));
    }
    if end as u64 > available {
        let expected = format!("an end within the {available} bytes that follow the header");
        return wrong(expected, format!("byte {end}: truncated?"));
    }
    // Count a size of zero as one, so that the other sizes are still checked for overflow.
    let count = |dims: &[usize]| dims.iter().try_fold(1usize, |n, &dim| n.checked_mul(dim.max(1)));
    let fits = count(&info.shape.0).and_then(|n| n.checked_mul(info.dtype.bits.unwrap_or(1)));
    if fits.is_none() {
        let expected = "a size that fits the address space".to_owned();
        return wrong(expected, format!("shape {:?}, whose size overflows", info.shape.0));
    }
    let Some(bits) = info.dtype.bits else { return Ok(()) };
    let expected = (info.shape.0.iter().product::<usize>() * bits).div_ceil(8);
    if expected != end - begin {
        let expected = format!("{expected} bytes for its shape and type");
        return wrong(expected, (end - begin).to_string());
    }
    Ok(())
}

fn parse(text: &str, source: &Source<'_>) -> Result<Vec<(String, TensorInfo)>, Error> {
    let mut fault = None;
    let mut parser = serde_json::Deserializer::from_str(text);
    let parsed = Collect { fault: &mut fault }
        .deserialize(&mut parser)
        .and_then(|tensors| parser.end().map(|()| tensors));
    match (parsed, fault) {
        (_, Some(Fault::Repeated(tensor))) => Err(duplicate_tensor(source, &tensor)),
        (_, Some(Fault::TooMany)) => Err(too_many_tensors(source.name(), MAX_TENSORS)),
        (Ok(tensors), None) => Ok(tensors),
        (Err(error), None) => {
            let message = sanitized(&error.to_string(), SHOWN);
            let operand = format!("{}: the header", source.name());
            Err(Error::corrupt(operand, "a table of tensors", format!("something else: {message}")))
        }
    }
}

/// Bytes from `begin` to `end`, counted from the end of the header, are in no tensor.
fn unused_bytes(source: &Source<'_>, begin: u64, end: u64) -> Error {
    let found = format!("bytes {begin} to {end} after the header, which belong to no tensor");
    Error::corrupt(source.name(), "a tensor for each byte", found)
}

/// The errors of an object that is valid JSON.
enum Fault {
    Repeated(String),
    TooMany,
}

struct Collect<'a> {
    fault: &'a mut Option<Fault>,
}

impl<'de> Visitor<'de> for Collect<'_> {
    type Value = Vec<(String, TensorInfo)>;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("an object of tensors")
    }

    fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<Self::Value, A::Error> {
        let mut tensors = Vec::new();
        let mut seen = HashSet::new();
        while let Some(name) = map.next_key::<String>()? {
            if seen.len() == MAX_TENSORS {
                *self.fault = Some(Fault::TooMany);
                return Err(A::Error::custom("too many tensors"));
            }
            if !seen.insert(name.clone()) {
                *self.fault = Some(Fault::Repeated(sanitized(&name, SHOWN)));
                return Err(A::Error::custom("a tensor stands twice"));
            }
            if name == "__metadata__" {
                map.next_value::<IgnoredAny>()?;
                continue;
            }
            let info = map.next_value().map_err(|error| {
                A::Error::custom(format_args!("{}: {error}", sanitized(&name, SHOWN)))
            })?;
            tensors.push((name, info));
        }
        Ok(tensors)
    }
}

impl<'de> DeserializeSeed<'de> for Collect<'_> {
    type Value = Vec<(String, TensorInfo)>;

    fn deserialize<D: Deserializer<'de>>(self, deserializer: D) -> Result<Self::Value, D::Error> {
        deserializer.deserialize_map(self)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The table is that of the `safetensors` crate: all its dtypes are in the table, and with the same sizes.
    #[test]
    fn the_types_are_those_of_the_format() {
        for (name, bits) in TYPES {
            let quoted = format!("\"{name}\"");
            let known: safetensors::Dtype = serde_json::from_str(&quoted).expect("a type");
            assert_eq!((known.to_string().as_str(), known.bitsize()), (name, bits));
            assert_eq!(Stored::from_name(name).to_string(), name);
        }
        // The crate lists its dtypes in the error for an unknown one.
        let error = serde_json::from_str::<safetensors::Dtype>("\"F99\"").unwrap_err().to_string();
        assert_eq!(error.matches('`').count(), 2 * (TYPES.len() + 1), "{error}");
        for name in ["F99", "f32", "", "F32 "] {
            assert!(Stored::from_name(name).bits.is_none(), "{name}");
        }
    }
}
