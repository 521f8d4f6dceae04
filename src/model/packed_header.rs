//! The text at the beginning of a file of packed weights.

use super::load_options::{LoadOptions, Reason, select_isa};
use super::weight_dtypes::{WeightDtype, WeightDtypes};
use super::weights::{Parameter, Placement, ResolvedDtypes, Weights};
use crate::checkpoint::{Checkpoint, PackedFile, TensorId};
use crate::config::{Config, TiedWeights};
use crate::error::Error;
use crate::printable_text::quoted;
use simdformer_kernels::Isa;
use std::collections::HashMap;
use std::fs::File;
use std::io::{self, Read};
use std::path::Path;
use xxhash_rust::xxh3::xxh3_64;

/// The format that this version writes and reads. Format 1 had no checksums, format 2 no digest, format 3 other
/// checksums, format 4 another digest.
const FORMAT: u32 = 5;

/// The first bytes of a file, including the format number.
const MAGIC: &str = "simdformer packed 5 ";

/// Number of characters of a file that an error shows.
const SHOWN: usize = 120;

/// Digits of the header length.
const DIGITS: usize = 8;

/// Digits of a checksum, and of the digest of the weights.
const HEX: usize = 16;
const DIGEST: usize = 32;

/// Bytes of the first line.
const FIRST_LINE: usize = MAGIC.len() + DIGITS + 1 + HEX + 1;

/// Upper bound of the header length; the table of a model with a few hundred layers is much smaller.
const MAX_HEADER: usize = 1 << 24;

/// The weights begin at a multiple of this number of bytes.
pub(super) const ALIGNED: usize = 64;

/// Name of this part of a file, for errors.
const HEADER: &str = "header";

/// The name of a file, for errors.
pub(super) type FileName<'n> = &'n dyn Fn() -> String;

/// The header of a file, read and checked against its own checksum.
pub(super) struct Header {
    text: String,
}

/// What a header says, checked against a configuration.
pub(super) struct Described {
    /// The configuration, with the ties of the file.
    pub(super) config: Config,
    pub(super) placed: Placement,
    /// The checksum of the weights.
    pub(super) checksum: u64,
    /// The digest of the weights, a part of the fingerprint.
    pub(super) digest: u128,
    /// Bytes before the weights.
    pub(super) begin: usize,
}

impl Header {
    /// The bytes at the begin of a file with these weights. They end at a multiple of [`ALIGNED`].
    pub(super) fn bytes(
        config: &Config,
        weights: &Weights,
        checksum: u64,
        digest: u128,
    ) -> Vec<u8> {
        let ResolvedDtypes { requested, stored } = weights.dtypes();
        let mut sixteen: Vec<String> =
            stored.iter().map(|(role, dtype)| format!(" {role}={}", dtype.name())).collect();
        sixteen.sort_unstable();
        let TiedWeights { source_target, target_output } = config.ties;
        let mut lines = vec![
            format!("checksum {checksum:0HEX$x}"),
            format!("digest {digest:0DIGEST$x}"),
            format!("isa {}", weights.isa()),
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
        let checksum = xxh3_64(header.as_bytes());
        format!("{MAGIC}{:0DIGITS$} {checksum:0HEX$x}\n{header}", header.len()).into_bytes()
    }

    /// Reads the header of a file of `length` bytes, up to the first byte of the weights.
    pub(super) fn read_from(
        file: &mut impl Read,
        length: u64,
        name: FileName<'_>,
    ) -> Result<Self, Error> {
        let unreadable = |error| Error::unreadable(name(), error);
        let unsupported = |begins: &[u8]| {
            let found = quoted(&String::from_utf8_lossy(begins), SHOWN);
            Error::unsupported(name(), format!("a file that begins as {MAGIC:?}"), found)
        };
        let first = read_at_most(file, FIRST_LINE).map_err(unreadable)?;
        let (format, rest) = first_line(&first).ok_or_else(|| unsupported(&first))?;
        if format != FORMAT.to_string() {
            let found = format!("format {format}: save it again from the checkpoint");
            let expected = format!("packed weights of format {FORMAT}");
            return Err(Error::unsupported(name(), expected, found));
        }
        let (bytes, expected) = rest.ok_or_else(|| unsupported(&first))?;
        let header = read_at_most(file, bytes).map_err(unreadable)?;
        if header.len() < bytes {
            return Err(wrong_length(name, (FIRST_LINE + bytes) as u64, length));
        }
        let found = xxh3_64(&header);
        if found != expected {
            return Err(damaged(name, HEADER, expected, found));
        }
        let text = String::from_utf8(header).map_err(|error| unsupported(error.as_bytes()))?;
        Ok(Self { text })
    }

    /// Checks the header against `config`, the table of parameters that this crate computes for it, `length`, the bytes
    /// of the file, and the options. Any instruction set of this machine is accepted unless the caller or the environment
    /// names one, and any dtypes unless the caller names some.
    pub(super) fn described(
        &self,
        mut config: Config,
        length: u64,
        options: &LoadOptions<'_>,
        name: FileName<'_>,
    ) -> Result<(Described, Reason), Error> {
        let (selected, why) = select_isa(options.isa)?;
        let wanted = &options.dtypes;
        let mut lines = self.text.trim_end().lines();
        let differs = |expected: &str, found: &str| {
            let found = format!("{}: the file holds another model", quoted(found, SHOWN));
            Error::conflict(name(), quoted(expected, SHOWN), found)
        };
        let mut field = |key: &str| {
            let line = lines.next().unwrap_or("");
            line.strip_prefix(key).map(str::trim).ok_or_else(|| differs(key, line))
        };
        let checksum = field("checksum ")?;
        let checksum =
            hexadecimal(checksum, HEX).ok_or_else(|| differs("checksum", checksum))? as u64;
        let digest = field("digest ")?;
        let digest = hexadecimal(digest, DIGEST).ok_or_else(|| differs("digest", digest))?;
        let found = field("isa ")?;
        let isa = Isa::from_name(found).ok();
        let isa = isa.filter(|isa| why == Reason::Best || isa.name() == selected.name());
        let isa = isa.ok_or_else(|| other_isa(name(), selected, found))?;
        let packed: WeightDtypes = field("forms")?.parse()?;
        let requested = packed.with_attention_of(wanted).ok_or_else(|| {
            let [expected, found] =
                [wanted, &packed].map(|dtypes| quoted(&dtypes.to_string(), SHOWN));
            let expected = format!("weights packed in the dtypes {expected}");
            Error::conflict(name(), expected, format!("{found}: pack the checkpoint again"))
        })?;
        config.ties = TiedWeights {
            source_target: field("source_target ")? == "true",
            target_output: field("target_output ")? == "true",
        };
        config.validate().map_err(|error| error.in_file(&name()))?;
        let stored = stored(&config, field("stored")?);
        let placed = Placement::new(&config, isa, ResolvedDtypes { requested, stored })?;
        let expected = table(&placed.parameters);
        let found: Vec<&str> = lines.collect();
        for index in 0..expected.len().max(found.len()) {
            let expected = expected.get(index).map_or("nothing", String::as_str);
            let found = found.get(index).copied().unwrap_or("nothing");
            if expected != found {
                return Err(differs(expected, found));
            }
        }
        let begin = FIRST_LINE + self.text.len();
        let expected = begin as u64 + placed.bytes() as u64;
        if length != expected {
            return Err(wrong_length(name, expected, length));
        }
        Ok((Described { config, placed, checksum, digest, begin }, why))
    }
}

/// The file is shorter or longer than its header says.
fn wrong_length(name: FileName<'_>, expected: u64, found: u64) -> Error {
    Error::corrupt(name(), format!("{expected} bytes"), found.to_string())
}

/// The checksum of `part` does not match its contents.
pub(super) fn damaged(name: FileName<'_>, part: &str, expected: u64, found: u64) -> Error {
    let operand = format!("{}: the checksum of the {part}", name());
    Error::corrupt(
        operand,
        format!("{expected:016x}"),
        format!("{found:016x}: the file is damaged"),
    )
}

/// The file was packed for instruction sets that are not available, or not the one that is selected.
fn other_isa(file: String, expected: Isa, found: &str) -> Error {
    let found = format!(
        "{}: pack the checkpoint again (simdformer pack --model DIR OUT --isa {expected})",
        quoted(found, SHOWN)
    );
    Error::conflict(file, format!("weights packed for {expected}"), found)
}

/// Opens a regular file. Returns it with its length.
pub(super) fn open_file(path: &Path) -> io::Result<(File, u64)> {
    // Opening a pipe would block.
    if !std::fs::metadata(path)?.is_file() {
        return Err(io::Error::other("not a file"));
    }
    let file = File::open(path)?;
    let length = file.metadata()?.len();
    Ok((file, length))
}

/// The file of packed weights for `isa`, for the instruction set that the environment names, or for the best one of this
/// machine for which there is a file.
pub(super) fn select<'c>(
    checkpoint: &'c Checkpoint<'_>,
    isa: Option<Isa>,
) -> Result<&'c PackedFile, Error> {
    let (expected, why) = select_isa(isa)?;
    let files = checkpoint.packed();
    let mut wanted: Vec<Isa> = Isa::available().collect();
    wanted.retain(|isa| why == Reason::Best || isa.name() == expected.name());
    let file_of = |isa: &Isa| files.iter().find(|file| file.isa == isa.name());
    wanted.iter().rev().find_map(file_of).ok_or_else(|| {
        let names: Vec<&str> = files.iter().map(|file| file.isa.as_str()).collect();
        let file = files.first().map(|file| file.path.display().to_string());
        other_isa(file.unwrap_or_default(), expected, &names.join(", "))
    })
}

/// Reads the header of the file that [`select`] returns.
pub(super) fn describe_file(
    checkpoint: &Checkpoint<'_>,
    options: &LoadOptions<'_>,
) -> Result<Described, Error> {
    let path = &select(checkpoint, options.isa)?.path;
    let name = || path.display().to_string();
    let unreadable = |error| Error::unreadable(name(), error);
    let (mut file, length) = open_file(path).map_err(unreadable)?;
    let header = Header::read_from(&mut file, length, &name)?;
    Ok(header.described(checkpoint.config().clone(), length, options, &name)?.0)
}

/// Reads the next `bytes` bytes of a file, fewer at its end.
fn read_at_most(file: &mut impl Read, bytes: usize) -> io::Result<Vec<u8>> {
    let mut read = Vec::new();
    file.take(bytes as u64).read_to_end(&mut read)?;
    Ok(read)
}

/// The format number of the first line of a file, with any number of digits, and in this format the length of the header
/// and its checksum. `None` if the line does not belong to any format of packed weights.
fn first_line(line: &[u8]) -> Option<(&str, Option<(usize, u64)>)> {
    // All formats begin with this name.
    let named = MAGIC.trim_end_matches(|c: char| c == ' ' || c.is_ascii_digit());
    let valid = line.utf8_chunks().next()?.valid();
    let (format, rest) = valid.strip_prefix(named)?.strip_prefix(' ')?.split_once(' ')?;
    let is_number = |text: &str| !text.is_empty() && text.bytes().all(|b| b.is_ascii_digit());
    let rest = rest.strip_suffix('\n').and_then(|rest| rest.split_once(' '));
    let rest = rest.filter(|(length, _)| length.len() == DIGITS && is_number(length));
    let rest = rest.and_then(|(length, checksum)| {
        let length = length.parse().ok().filter(|&length| length <= MAX_HEADER)?;
        Some((length, hexadecimal(checksum, HEX)? as u64))
    });
    is_number(format).then_some((format, rest))
}

/// Parses a number with all its digits, in lower case.
fn hexadecimal(text: &str, count: usize) -> Option<u128> {
    let digit = |byte: u8| byte.is_ascii_digit() || (b'a'..=b'f').contains(&byte);
    let digits = text.len() == count && text.bytes().all(digit);
    u128::from_str_radix(text, 16).ok().filter(|_| digits)
}

fn table(parameters: &[Parameter]) -> Vec<String> {
    parameters.iter().map(Parameter::to_string).collect()
}

/// The dtypes in a line of `role=dtype` pairs. Names that are no role of `config` are skipped; the table then
/// differs.
fn stored(config: &Config, line: &str) -> HashMap<TensorId, WeightDtype> {
    let named: HashMap<&str, &str> =
        line.split_whitespace().filter_map(|part| part.split_once('=')).collect();
    let dtype = |role: &TensorId| named.get(role.to_string().as_str())?.parse().ok();
    TensorId::all(config).filter_map(|role| Some((role, dtype(&role)?))).collect()
}
