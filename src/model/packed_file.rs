//! Packed weights in a file. A model is packed once and read back at the speed of the disk.
//!
//! A file of format 2 contains:
//!
//! 1. a line of fixed length: the format number, the length of the header in bytes, and the checksum of the
//!    header;
//! 2. the header, lines of text: the checksum of the weights, the instruction set and the dtypes for which they
//!    were packed, and the table of parameters. A file is accepted only if this crate computes the same table
//!    for the given configuration;
//! 3. the memory of the model, in little-endian words.
//!
//! A reader verifies the weights piece by piece while each piece is still in the cache after the copy by the
//! operating system. The verification takes less time than the copy.

use super::Model;
use super::error::ModelError;
use super::load_options::{Reason, select_isa};
use super::packed_file_error::{FORMAT, MAGIC, PackedError};
use super::weights::{FiniteCheck, NotFinite, Parameter, Placement, ResolvedDtypes, Weights};
use crate::atomic_file;
use crate::checkpoint::TensorId;
use crate::checksum::Checksum;
use crate::config::{Config, TiedWeights};
use crate::memory::{bytes, bytes_mut};
use simdformer_kernels::{Dtype, Isa};
use std::collections::HashMap;
use std::fs::File;
use std::io::{self, Read, Write};
use std::path::Path;

/// Digits of the header length.
const DIGITS: usize = 8;

/// Digits of a checksum.
const HEX: usize = 16;

/// Bytes of the first line.
const FIRST_LINE: usize = MAGIC.len() + DIGITS + 1 + HEX + 1;

/// Upper bound of the header length; the table of a model with a few hundred layers is much smaller.
const MAX_HEADER: usize = 1 << 24;

/// The end of the header is padded to a multiple of this.
const ALIGNED: usize = 64;

/// Words that are read and verified at a time: 256 KiB, which stays in the cache of a core between the two.
const PIECE: usize = 1 << 16;

impl Model {
    /// Writes the packed weights to a file. A process that opens `path` at any time finds the old file or the
    /// complete new one: the weights are written to a temporary file in the same directory, flushed to the disk and
    /// renamed. Several processes may save to one path; the last one wins. A killed process leaves a file
    /// `.simdformer-*.part` there, which may be deleted.
    ///
    /// The file is for this instruction set and this version of the crate, and does not contain the [`Config`]. It
    /// replaces the weights of the checkpoint; `config.json` is still needed.
    ///
    /// # Errors
    /// The file cannot be [written](PackedError::File); a weight is [not finite](PackedError::NotFinite), for
    /// example after training that diverged: [`Model::open_packed`] would reject such a file.
    pub fn save_packed(&self, path: impl AsRef<Path>) -> Result<(), ModelError> {
        let path = path.as_ref();
        let name = || path.display().to_string();
        let mut inspection = Inspection::of(self.weights.parameters(), self.weights.bytes());
        // This closure never fails; `inspection` reports a bad number after the last piece.
        let _ = each_piece(self.weights.memory(), |piece, bytes| {
            inspection.piece(piece, bytes);
            Ok(())
        });
        let (checksum, not_finite) = inspection.finish();
        if let Some(NotFinite { role, found }) = not_finite.or_else(|| self.weights.bad_scale()) {
            return Err(PackedError::NotFinite { file: name(), role, found }.into());
        }
        let header = header(self.isa(), &self.weights, &self.config, checksum);
        atomic_file::replace(path, |file| {
            let checksum = Checksum::of(header.as_bytes());
            writeln!(file, "{MAGIC}{:0DIGITS$} {checksum:0HEX$x}", header.len())?;
            file.write_all(header.as_bytes())?;
            each_piece(self.weights.memory(), |_, bytes| file.write_all(bytes))
        })
        .map_err(|error| PackedError::File { file: name(), error }.into())
    }

    /// Reads a file of [`Model::save_packed`] for a model of `config`: that of
    /// [`Checkpoint::config`](crate::checkpoint::Checkpoint::config), or of
    /// [`Config::from_hugging_face`](crate::config::Config::from_hugging_face) if the checkpoint's weights are not
    /// available.
    ///
    /// Checksums detect files that were damaged or truncated by accident. They are no signature: a file from an
    /// untrusted writer can contain other weights, but none that [`Model::load`] would reject as not finite.
    ///
    /// # Errors
    /// The file [cannot be read](PackedError::File), is [not a packed file](PackedError::UnsupportedFormat) or of
    /// [another format version](PackedError::Format), is for [another instruction set](PackedError::Isa), of
    /// [another model](PackedError::Model), [truncated](PackedError::Length) or [damaged](PackedError::Checksum),
    /// or contains a weight that is [not finite](PackedError::NotFinite); the memory [cannot be
    /// allocated](ModelError::OutOfMemory); the environment names an instruction set that is [not
    /// available](ModelError::Isa).
    ///
    /// ```
    /// use simdformer::{Model, Quantization, WeightDtypes};
    /// # if !std::path::Path::new("models/fr-en").exists() { return Ok(()) } // not in the published package
    ///
    /// let model = Model::open_with("models/fr-en", WeightDtypes::all(Quantization::W8A8))?;
    /// let file = std::env::temp_dir().join(format!("fr-en-{}.packed", std::process::id()));
    /// model.save_packed(&file)?;
    ///
    /// let again = Model::open_packed(model.config().clone(), &file)?;
    /// assert_eq!(again.bytes(), model.bytes());
    /// # std::fs::remove_file(&file)?;
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    pub fn open_packed(config: Config, path: impl AsRef<Path>) -> Result<Self, ModelError> {
        let path = path.as_ref();
        let name = || path.display().to_string();
        let (selected, why) = select_isa(None)?;
        let (mut file, header, length) = open(path, &name)?;
        let mut lines = header.trim_end().lines();
        let differs = |expected: &str, found: &str| PackedError::Model {
            file: name(),
            expected: expected.to_owned(),
            found: found.to_owned(),
        };
        let mut field = |key: &str| {
            let line = lines.next().unwrap_or("");
            line.strip_prefix(key).map(str::trim).ok_or_else(|| differs(key, line))
        };
        let checksum = field("checksum ")?;
        let checksum = hexadecimal(checksum).ok_or_else(|| differs("checksum", checksum))?;
        let found = field("isa ")?;
        let isa = match Isa::from_name(found) {
            Ok(isa) if why != Reason::Environment || isa == selected => isa,
            _ => {
                let found = found.to_owned();
                return Err(PackedError::Isa { file: name(), found, expected: selected }.into());
            }
        };
        let requested = field("forms")?.parse().map_err(ModelError::WeightDtypes)?;
        let mut config = config;
        config.ties = TiedWeights {
            source_target: field("source_target ")? == "true",
            target_output: field("target_output ")? == "true",
        };
        config.validate().map_err(ModelError::Config)?;
        let stored = stored(&config, field("stored")?);
        let placed = Placement::new(&config, isa, ResolvedDtypes { requested, stored })?;
        let expected = table(&placed.parameters);
        let found: Vec<&str> = lines.collect();
        for index in 0..expected.len().max(found.len()) {
            let expected = expected.get(index).map_or("nothing", String::as_str);
            let found = found.get(index).copied().unwrap_or("nothing");
            if expected != found {
                return Err(differs(expected, found).into());
            }
        }
        // Check the file size before allocating memory for the weights.
        let expected = (FIRST_LINE + header.len()) as u64 + placed.bytes() as u64;
        if length != expected {
            return Err(PackedError::Length { file: name(), expected, found: length }.into());
        }
        let (mut weights, network) = placed.allocate()?;
        let not_finite = read_weights(&mut file, &mut weights, checksum, &name)?;
        if let Some(NotFinite { role, found }) = not_finite.or_else(|| weights.bad_scale()) {
            return Err(PackedError::NotFinite { file: name(), role, found }.into());
        }
        Ok(Self::of(config, weights, network).logged(why))
    }
}

/// The checks of the weights of a file, computed while they are in the cache.
struct Inspection<'p> {
    checksum: Checksum,
    finite: FiniteCheck<'p>,
    not_finite: Option<NotFinite>,
}

impl<'p> Inspection<'p> {
    /// Creates the checks for `bytes` bytes of weights.
    fn of(parameters: &'p [Parameter], bytes: usize) -> Self {
        let finite = FiniteCheck::new(parameters, bytes / size_of::<f32>());
        Self { checksum: Checksum::new(), finite, not_finite: None }
    }

    /// Adds the next words, and their bytes in the file.
    fn piece(&mut self, piece: &[f32], bytes: &[u8]) {
        self.checksum.update(bytes);
        let found = self.finite.piece(piece);
        self.not_finite = self.not_finite.take().or(found);
    }

    fn finish(self) -> (u64, Option<NotFinite>) {
        (self.checksum.value(), self.not_finite)
    }
}

/// Calls `each` for one piece of words after the other, with their bytes in the file.
fn each_piece(
    memory: &[f32],
    mut each: impl FnMut(&[f32], &[u8]) -> io::Result<()>,
) -> io::Result<()> {
    let mut swapped = Vec::new();
    for piece in memory.chunks(PIECE) {
        if cfg!(target_endian = "big") {
            swapped.clear();
            swapped.extend(piece.iter().flat_map(|word| word.to_le_bytes()));
            each(piece, &swapped)?;
        } else {
            each(piece, bytes(piece))?;
        }
    }
    Ok(())
}

/// Fills the memory of `weights` with the rest of `file`. Verifies the checksum, then returns the first number
/// that is not finite.
fn read_weights(
    file: &mut File,
    weights: &mut Weights,
    expected: u64,
    name: &dyn Fn() -> String,
) -> Result<Option<NotFinite>, PackedError> {
    let bytes = weights.bytes();
    let (parameters, memory) = weights.parts_mut();
    let mut inspection = Inspection::of(parameters, bytes);
    for piece in memory.chunks_mut(PIECE) {
        file.read_exact(bytes_mut(piece))
            .map_err(|error| PackedError::File { file: name(), error })?;
        if cfg!(target_endian = "big") {
            let stored: Vec<u8> = bytes_mut(piece).to_vec();
            for word in &mut *piece {
                *word = f32::from_bits(word.to_bits().swap_bytes());
            }
            inspection.piece(piece, &stored);
        } else {
            inspection.piece(piece, crate::memory::bytes(piece));
        }
    }
    match inspection.finish() {
        (found, not_finite) if found == expected => Ok(not_finite),
        (found, _) => Err(PackedError::Checksum { file: name(), part: WEIGHTS, expected, found }),
    }
}

/// Names of the two parts of a file that have a checksum, for errors.
const HEADER: &str = "header";
const WEIGHTS: &str = "weights";

/// Opens a file of packed weights. Returns the file at the position after the header, the header, and the size
/// of the file.
fn open(path: &Path, name: &dyn Fn() -> String) -> Result<(File, String, u64), PackedError> {
    let unreadable = |error| PackedError::File { file: name(), error };
    let unsupported = |begins: &[u8]| PackedError::UnsupportedFormat {
        file: name(),
        begins: String::from_utf8_lossy(begins).into_owned(),
    };
    // Opening a pipe would block.
    if !std::fs::metadata(path).map_err(unreadable)?.is_file() {
        return Err(unreadable(io::Error::other("not a file")));
    }
    let mut file = File::open(path).map_err(unreadable)?;
    let bytes = file.metadata().map_err(unreadable)?.len();
    let first = read_at_most(&mut file, FIRST_LINE).map_err(unreadable)?;
    let FirstLine { format, rest } = FirstLine::of(&first).ok_or_else(|| unsupported(&first))?;
    if format != FORMAT.to_string() {
        let found = format.to_owned();
        return Err(PackedError::Format { file: name(), expected: FORMAT, found });
    }
    let (length, expected) = rest.ok_or_else(|| unsupported(&first))?;
    let header = read_at_most(&mut file, length).map_err(unreadable)?;
    if header.len() < length {
        let expected = (FIRST_LINE + length) as u64;
        return Err(PackedError::Length { file: name(), expected, found: bytes });
    }
    let found = Checksum::of(&header);
    if found != expected {
        return Err(PackedError::Checksum { file: name(), part: HEADER, expected, found });
    }
    let header = String::from_utf8(header).map_err(|error| unsupported(error.as_bytes()))?;
    Ok((file, header, bytes))
}

/// Reads the next `bytes` bytes of a file, fewer at its end.
fn read_at_most(file: &mut File, bytes: usize) -> io::Result<Vec<u8>> {
    let mut read = Vec::new();
    file.take(bytes as u64).read_to_end(&mut read)?;
    Ok(read)
}

/// The content of the first line of a file of packed weights.
struct FirstLine<'f> {
    /// The format number, with any number of digits.
    format: &'f str,
    /// In this format: the length of the header and its checksum.
    rest: Option<(usize, u64)>,
}

impl<'f> FirstLine<'f> {
    /// `None` if the line does not belong to any format of packed weights.
    fn of(line: &'f [u8]) -> Option<Self> {
        // All formats begin with this name.
        let named = MAGIC.trim_end_matches(|c: char| c == ' ' || c.is_ascii_digit());
        let valid = line.utf8_chunks().next()?.valid();
        let (format, rest) = valid.strip_prefix(named)?.strip_prefix(' ')?.split_once(' ')?;
        let number = !format.is_empty() && format.bytes().all(|byte| byte.is_ascii_digit());
        let rest = rest.strip_suffix('\n').and_then(|rest| rest.split_once(' '));
        let rest = rest.and_then(|(length, checksum)| {
            let digits = length.len() == DIGITS && length.bytes().all(|byte| byte.is_ascii_digit());
            let length = length.parse().ok().filter(|&length| digits && length <= MAX_HEADER)?;
            Some((length, hexadecimal(checksum)?))
        });
        number.then_some(Self { format, rest })
    }
}

/// Parses a checksum with all its digits, in lower case.
fn hexadecimal(text: &str) -> Option<u64> {
    let digit = |byte: u8| byte.is_ascii_digit() || (b'a'..=b'f').contains(&byte);
    let digits = text.len() == HEX && text.bytes().all(digit);
    u64::from_str_radix(text, 16).ok().filter(|_| digits)
}

/// All settings that determine the memory of a model. Padded so that the weights begin at a multiple of
/// [`ALIGNED`].
fn header(isa: Isa, weights: &Weights, config: &Config, checksum: u64) -> String {
    let ResolvedDtypes { requested, stored } = weights.dtypes();
    let mut sixteen: Vec<String> =
        stored.iter().map(|(role, dtype)| format!(" {role}={}", dtype.name())).collect();
    sixteen.sort_unstable();
    let TiedWeights { source_target, target_output } = config.ties;
    let mut lines = vec![
        format!("checksum {checksum:0HEX$x}"),
        format!("isa {isa}"),
        format!("forms {requested}"),
        format!("source_target {source_target}"),
        format!("target_output {target_output}"),
        format!("stored{}", sixteen.concat()),
    ];
    lines.extend(table(weights.parameters()));
    let mut header = lines.join("\n");
    let end = (FIRST_LINE + header.len() + 1).next_multiple_of(ALIGNED);
    header.extend(core::iter::repeat_n(' ', end - 1 - FIRST_LINE - header.len()));
    header.push('\n');
    header
}

fn table(parameters: &[Parameter]) -> Vec<String> {
    parameters.iter().map(Parameter::to_string).collect()
}

/// The dtypes in a line of `role=dtype` pairs. Names that are no role of `config` are skipped; the table then
/// differs.
fn stored(config: &Config, line: &str) -> HashMap<TensorId, Dtype> {
    let named: HashMap<&str, &str> =
        line.split_whitespace().filter_map(|part| part.split_once('=')).collect();
    let dtype = |role: &TensorId| Dtype::from_name(named.get(role.to_string().as_str())?);
    TensorId::all(config).filter_map(|role| Some((role, dtype(&role)?))).collect()
}
