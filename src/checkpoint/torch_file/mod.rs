//! The files of `torch.save`, parsed as untrusted input.
//!
//! Such a file has a pickled dictionary of tensors (a state dict), and the numbers in storages. A tensor is a view of a
//! storage: offset, sizes and strides. Several tensors may share one storage.
//!
//! | format | pickle | storages |
//! |---|---|---|
//! | zip archive, since PyTorch 1.6 | the entry `NAME/data.pkl` | the entries `NAME/data/KEY` |
//! | legacy stream | the fourth of five pickles at the beginning | after the pickles: for each key of the fifth its length and its elements |
//!
//! Only the pickle and the lengths of the storages are read when a file is opened. Everything that a pickle of a state
//! dict does not need is refused by name ([`pickle`]); nothing is executed or imported. As in PyTorch, the checksums of
//! storages are not compared, because that would read every number twice.

mod constructors;
mod pickle;
mod values;
mod zip_directory;

use core::ops::Range;
use std::collections::{HashMap, HashSet};

use super::byte_source::{Source, check_format};
use super::faults::{duplicate_tensor, too_many_tensors, wrong_state_dict};
use super::safetensors_file::{Entry, MAX_HEADER, MAX_TENSORS, Stored};
use crate::error::Error;
use crate::printable_text::{quoted, sanitized};
use pickle::Unpickler;
use values::{Span, Value};
use zip_directory::{ZipEntry, read_directory};

/// Maximum characters of a name in an error.
const SHOWN: usize = 400;

/// The first bytes of a zip archive.
const ZIP: &[u8] = b"PK\x03\x04";

/// The number that begins a legacy file, little-endian.
const MAGIC: [u8; 10] = *b"l\xfc\x9cF\xf9\x20j\xa8P\x19";

/// The version of the legacy format.
const LEGACY_VERSION: i64 = 1001;

/// Bytes of the length of a storage in a legacy file.
const LENGTH: u64 = 8;

/// Whether the first bytes are those of a file of `torch.save`.
fn begins(begin: &[u8]) -> bool {
    begin.starts_with(ZIP) || matches!(begin, [0x80, 2..=5, ..])
}

/// Whether `source`, of an unknown format, begins like a file of `torch.save` and not like a safetensors file, whose length
/// may have the first two bytes of a pickle.
pub(super) fn is_torch_file(source: &Source<'_>) -> Result<bool, Error> {
    let mut begin = [0; 8];
    if source.len() < begin.len() as u64 {
        return Ok(false);
    }
    source.read_at(0, &mut begin)?;
    let may_be_length = u64::from_le_bytes(begin) <= MAX_HEADER;
    Ok(begin.starts_with(ZIP) || begins(&begin) && !may_be_length)
}

/// The tensors of a file of `torch.save`.
pub(super) fn read_header(source: &Source<'_>) -> Result<Vec<Entry>, Error> {
    let mut begin = [0; 4];
    let begin = &mut begin[..source.len().min(4) as usize];
    source.read_at(0, begin)?;
    if begin.starts_with(ZIP) {
        return read_zip(source);
    }
    if begins(begin) {
        return read_legacy(source);
    }
    check_format(source)?;
    let expected = "expected a zip archive or a pickle";
    let message = match source.len() {
        len @ ..4 => format!("{expected}, found {len} bytes"),
        _ => format!("{expected}, found the first bytes {begin:02x?}"),
    };
    Err(wrong_state_dict(source, message))
}

fn read_zip(source: &Source<'_>) -> Result<Vec<Entry>, Error> {
    let wrong = |message: String| wrong_state_dict(source, message);
    let entries = read_directory(source)?;
    let folder = |entry: &ZipEntry| -> Option<String> {
        let folder = entry.name.strip_suffix("/data.pkl")?;
        (!folder.contains('/')).then(|| folder.to_owned())
    };
    let mut pickles = entries.iter().filter_map(|entry| Some((entry, folder(entry)?)));
    let (Some((pickle, folder)), None) = (pickles.next(), pickles.next()) else {
        let names: Vec<String> = entries.iter().take(8).map(|e| sanitized(&e.name, 40)).collect();
        return Err(wrong(format!(
            "expected one entry NAME/data.pkl in a zip archive, found {}",
            names.join(", ")
        )));
    };
    let find = |name: &str| {
        let name = format!("{folder}/{name}");
        let index = entries.binary_search_by(|entry| entry.name.as_str().cmp(&name)).ok()?;
        entries.get(index)
    };
    if find("constants.pkl").is_some() {
        let message = "expected a state dict, found a TorchScript program, which is not run";
        return Err(wrong(message.to_owned()));
    }
    if let Some(entry) = find("byteorder") {
        let mut order = [0; 8];
        let order = &mut order[..(entry.end - entry.begin).min(8) as usize];
        source.read_at(entry.begin, order)?;
        if order != b"little" {
            let found = quoted(&String::from_utf8_lossy(order), 8);
            return Err(wrong(format!("expected the byte order \"little\", found {found}")));
        }
    }
    let mut unpickler = Unpickler::new(source, pickle.begin..pickle.end)?;
    let state_dict = unpickler.load()?;
    if unpickler.position() != pickle.end {
        let more = pickle.end - unpickler.position();
        return Err(
            unpickler.wrong(format_args!("expected the end of data.pkl, found {more} more bytes"))
        );
    }
    let found = rawzip::crc32(unpickler.text());
    if found != pickle.crc {
        return Err(unpickler.wrong(format_args!(
            "expected the checksum {:08x} for data.pkl, found {found:08x}: damaged?",
            pickle.crc
        )));
    }
    let locate = |key: &[u8]| {
        let entry = find(&format!("data/{}", core::str::from_utf8(key).ok()?))?;
        Some(entry.begin..entry.end)
    };
    let tensors = checked(source, &mut unpickler, state_dict)?;
    located_entries(source, &unpickler, &tensors, &locate)
}

fn read_legacy(source: &Source<'_>) -> Result<Vec<Entry>, Error> {
    let mut unpickler = Unpickler::new(source, 0..source.len())?;
    let number = |value| if let Value::LongInt(span) = value { Some(span) } else { None };
    let magic = unpickler.load_content("the magic number of torch.save", number)?;
    if unpickler.string(magic) != MAGIC {
        return Err(unpickler.wrong("expected the magic number of torch.save, found an int"));
    }
    let number = |value| if let Value::Int(number) = value { Some(number) } else { None };
    let found = unpickler.load_content("the version of the legacy format", number)?;
    if found != LEGACY_VERSION {
        return Err(unpickler.wrong(format_args!(
            "expected version {LEGACY_VERSION} of the legacy format, found {found}"
        )));
    }
    let dict = |value| if let Value::Dict(dict) = value { Some(dict) } else { None };
    let system = unpickler.load_content("a dict with the byte order", dict)?;
    let is_order =
        |key: &Value| matches!(*key, Value::Text(key) if unpickler.string(key) == b"little_endian");
    let order = unpickler.values.dict(system).iter().rev().find(|(key, _)| is_order(key));
    match order {
        Some((_, Value::Bool(true))) => {}
        Some((_, Value::Bool(false))) => {
            return Err(unpickler.wrong("expected the byte order little_endian, found big_endian"));
        }
        _ => return Err(unpickler.wrong("expected the byte order little_endian, found none")),
    }
    let state_dict = unpickler.load()?;
    let tensors = checked(source, &mut unpickler, state_dict)?;
    let list = |value| if let Value::List(list) = value { Some(list) } else { None };
    let keys = unpickler.load_content("the list of storages", list)?;
    let located = legacy_storages(source, &unpickler, keys)?;
    located_entries(source, &unpickler, &tensors, &|key| located.get(key).cloned())
}

/// The bytes of each storage of a legacy file by its key. Reads the length of each, and that is all.
fn legacy_storages(
    source: &Source<'_>,
    unpickler: &Unpickler<'_, '_>,
    keys: u32,
) -> Result<HashMap<Vec<u8>, Range<u64>>, Error> {
    let wrong = |message: String| wrong_state_dict(source, message);
    let shown = |key: &[u8]| quoted(&String::from_utf8_lossy(key), SHOWN);
    // Lengths and bytes of an element. The first tensor of a storage decides its dtype.
    let mut expected: HashMap<&[u8], (u64, u64)> = HashMap::new();
    for storage in unpickler.values.storages() {
        let size = storage.of.map_or(1, |of| of.size() as u64);
        expected.entry(unpickler.string(storage.key)).or_insert((storage.len, size));
    }
    let mut located = HashMap::new();
    let mut offset = unpickler.position();
    for &key in unpickler.values.list(keys) {
        let Value::Text(key) = key else {
            return Err(unpickler
                .wrong(format_args!("expected the key of a storage, found {}", key.kind())));
        };
        let key = unpickler.string(key);
        let Some(&(len, size)) = expected.get(key) else {
            return Err(unpickler.wrong(format_args!(
                "expected the keys of storages of the state dict, found {}",
                shown(key)
            )));
        };
        let mut found = [0; LENGTH as usize];
        if source.len().saturating_sub(offset) < LENGTH {
            return Err(wrong(format!(
                "expected the length of storage {} at byte {offset}, found the end: truncated?",
                shown(key)
            )));
        }
        source.read_at(offset, &mut found)?;
        let found = u64::from_le_bytes(found);
        if found != len {
            return Err(wrong(format!(
                "storage {}: expected {len} elements, found {found}",
                shown(key)
            )));
        }
        offset += LENGTH;
        let end = len.checked_mul(size).and_then(|bytes| bytes.checked_add(offset));
        let Some(end) = end.filter(|&end| end <= source.len()) else {
            return Err(wrong(format!(
                "storage {}: expected {len} elements of {size} bytes at byte {offset}, found the end at byte {}: truncated?",
                shown(key),
                source.len()
            )));
        };
        if located.insert(key.to_vec(), offset..end).is_some() {
            return Err(wrong(format!("storage {} is there twice", shown(key))));
        }
        offset = end;
    }
    match source.len() - offset {
        0 => Ok(located),
        more => Err(wrong(format!(
            "expected the end of the file at byte {offset}, found {more} more bytes"
        ))),
    }
}

/// The names and the tensors of a state dict.
fn checked(
    source: &Source<'_>,
    unpickler: &mut Unpickler<'_, '_>,
    state_dict: Value,
) -> Result<Vec<(Span, u32)>, Error> {
    let wrong = |message: String| wrong_state_dict(source, message);
    let Value::Dict(state_dict) = state_dict else {
        let found = state_dict.kind();
        return Err(wrong(format!("expected a dict of tensors, found {found}")));
    };
    let count = unpickler.values.dict(state_dict).len();
    if count > MAX_TENSORS {
        return Err(too_many_tensors(source.name(), MAX_TENSORS));
    }
    let charged = unpickler.values.charge_entries(count);
    charged.map_err(|message| wrong_state_dict(source, message))?;
    let mut tensors = Vec::with_capacity(count);
    let mut names: HashSet<&[u8]> = HashSet::with_capacity(count);
    for &(key, value) in unpickler.values.dict(state_dict) {
        let Value::Text(name) = key else {
            let found = key.kind();
            return Err(wrong(format!("expected the name of a tensor, found {found}")));
        };
        let bytes = unpickler.string(name);
        let shown = || sanitized(&String::from_utf8_lossy(bytes), SHOWN);
        if core::str::from_utf8(bytes).is_err() {
            let found = shown();
            return Err(wrong(format!("expected the name of a tensor in UTF-8, found {found}")));
        }
        let Value::Tensor(tensor) = value else {
            let inside = match value {
                Value::Dict(_) => "; save only the dict of tensors that is inside",
                _ => "",
            };
            let (name, found) = (shown(), value.kind());
            let message = format!("expected a tensor for \"{name}\", found {found}{inside}");
            return Err(wrong(message));
        };
        if !names.insert(bytes) {
            return Err(duplicate_tensor(source, &shown()));
        }
        tensors.push((name, tensor));
    }
    Ok(tensors)
}

/// The entries of tensors, whose storages `locate` finds by their keys.
fn located_entries(
    source: &Source<'_>,
    unpickler: &Unpickler<'_, '_>,
    tensors: &[(Span, u32)],
    locate: &dyn Fn(&[u8]) -> Option<Range<u64>>,
) -> Result<Vec<Entry>, Error> {
    let entry = |&(name, tensor): &(Span, u32)| {
        let name = String::from_utf8_lossy(unpickler.string(name));
        entry(source, unpickler, &name, tensor, locate)
    };
    tensors.iter().map(entry).collect()
}

fn entry(
    source: &Source<'_>,
    unpickler: &Unpickler<'_, '_>,
    name: &str,
    tensor: u32,
    locate: &dyn Fn(&[u8]) -> Option<Range<u64>>,
) -> Result<Entry, Error> {
    let wrong = |message: String| wrong_state_dict(source, message);
    let values = &unpickler.values;
    let shown = || sanitized(name, SHOWN);
    let found =
        values.tensor(tensor).and_then(|tensor| Some((tensor, values.storage(tensor.storage)?)));
    let Some((tensor, storage)) = found else {
        return Err(wrong(format!("expected a tensor for {}", shown())));
    };
    let key = |span: Span| quoted(&String::from_utf8_lossy(unpickler.string(span)), SHOWN);
    let Some(bytes) = locate(unpickler.string(storage.key)) else {
        let key = key(storage.key);
        return Err(wrong(format!("expected a storage {key} of {}, found none", shown())));
    };
    let size = storage.of.map_or(1, |of| of.size() as u64);
    let found = bytes.end - bytes.start;
    if storage.len.checked_mul(size) != Some(found) {
        let (key, len) = (key(storage.key), storage.len);
        return Err(wrong(format!(
            "storage {key} of {}: expected {len} elements of {size} bytes, found {found} bytes",
            shown()
        )));
    }
    let shape = values.sizes(tensor.shape);
    let mut strides = values.sizes(tensor.strides);
    if is_contiguous(&shape, &strides) {
        strides = Vec::new();
    }
    Ok(Entry {
        name: name.to_owned(),
        dtype: Stored::from_name(tensor.of.stored()),
        #[cfg(feature = "train")]
        bytes: (shape.iter().product::<usize>() * tensor.of.size()) as u64,
        shape,
        offset: bytes.start + tensor.offset * tensor.of.size() as u64,
        strides,
        scaled: None,
        zero_rows: 0,
    })
}

/// Whether the elements are side by side in row-major order.
fn is_contiguous(shape: &[usize], strides: &[usize]) -> bool {
    let mut next = 1;
    shape.contains(&0)
        || shape.iter().zip(strides).rev().filter(|&(&len, _)| len > 1).all(|(&len, &stride)| {
            let here = stride == next;
            next *= len;
            here
        })
}
