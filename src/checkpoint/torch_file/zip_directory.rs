//! The directory of a zip archive: where each entry is. Entries must be stored as they are, without compression, and must
//! not share bytes. Sizes are those of the directory at the end of the file, which PyTorch also uses.

use rawzip::{CompressionMethod, ReaderAt, ZipLocator};
use std::io;
use std::sync::Arc;

use crate::checkpoint::byte_source::Source;
use crate::checkpoint::faults::{shared_bytes, wrong_state_dict};
use crate::error::Error;
use crate::printable_text::sanitized;

/// Maximum number of entries: a storage for each tensor of the largest file, and a few more.
const MAX_ENTRIES: usize = (1 << 15) + 64;

/// Bytes of the directory that are read at a time; an entry with its name and its comment must fit.
const BUFFER: usize = 1 << 16;

/// Bytes at the end of the file in which the directory's own record must begin: it may have a comment.
const END: u64 = (1 << 16) + 64;

/// An entry of an archive.
#[derive(Debug)]
pub(super) struct ZipEntry {
    pub(super) name: String,
    /// Its bytes in the file.
    pub(super) begin: u64,
    pub(super) end: u64,
    pub(super) crc: u32,
}

struct Bytes<'s, 'c>(&'s Source<'c>);

impl ReaderAt for Bytes<'_, '_> {
    fn read_at(&self, out: &mut [u8], offset: u64) -> io::Result<usize> {
        let available = self.0.len().saturating_sub(offset).min(out.len() as u64) as usize;
        let out = &mut out[..available];
        match self.0.read_at(offset, out) {
            Ok(()) => Ok(available),
            Err(Error::Io { error, .. }) => {
                let kind = error.kind();
                Err(Arc::into_inner(error).unwrap_or_else(|| kind.into()))
            }
            Err(_) => Err(io::ErrorKind::InvalidData.into()),
        }
    }
}

/// The entries of the archive in `source`, sorted by name.
pub(super) fn read_directory(source: &Source<'_>) -> Result<Vec<ZipEntry>, Error> {
    let wrong = |message: String| wrong_state_dict(source, format!("{message} (zip archive)"));
    let invalid = |error: rawzip::Error, what: &str| match error.into_kind() {
        rawzip::ErrorKind::IO(error) if error.kind() != io::ErrorKind::UnexpectedEof => {
            Error::unreadable(source.name(), error)
        }
        kind => wrong(format!("{what}: {kind}: truncated?")),
    };
    let mut buffer = vec![0; BUFFER];
    let archive = ZipLocator::new()
        .max_search_space(END)
        .locate_in_reader(Bytes(source), &mut buffer, source.len())
        .map_err(|(_, error)| invalid(error, "the directory"))?;
    // Where the record at the end says that the directory begins, in its 32-bit field.
    let mut stated = [0; 4];
    source.read_at(archive.eocd_offset() + 16, &mut stated)?;
    let (stated, found) = (u32::from_le_bytes(stated), archive.directory_offset());
    if stated != u32::MAX && u64::from(stated) != found {
        return Err(wrong(format!(
            "expected the directory at byte {stated}, found it at byte {found}"
        )));
    }
    let count = archive.entries_hint();
    if count > MAX_ENTRIES as u64 {
        return Err(wrong(format!("expected at most {MAX_ENTRIES} entries, found {count}")));
    }
    // An entry takes at least 76 bytes of the file, so a wrong count cannot make this larger than the file.
    let mut entries = Vec::with_capacity((count.min(source.len() / 76)) as usize);
    // Bytes of the file with the header of each entry, to detect entries that share bytes.
    let mut used = Vec::with_capacity(entries.capacity());
    let mut directory = archive.entries(&mut buffer);
    for index in 0..count {
        let Some(record) =
            directory.next_entry().map_err(|error| invalid(error, "the directory"))?
        else {
            return Err(wrong(format!("expected {count} entries, found {index}")));
        };
        let path = record.file_path();
        let shown = || sanitized(&String::from_utf8_lossy(path.as_bytes()), 400);
        let Ok(name) = String::from_utf8(path.as_bytes().to_vec()) else {
            return Err(wrong(format!(
                "expected the name of an entry in UTF-8, found {}",
                shown()
            )));
        };
        if record.flags().is_encrypted() {
            return Err(wrong(format!(
                "expected entries that are not encrypted, found {}",
                shown()
            )));
        }
        let method = record.compression_method();
        if method != CompressionMethod::STORE {
            return Err(wrong(format!(
                "expected entries that are stored without compression, found {} with method {method}",
                shown()
            )));
        }
        let (size, whole) = (record.compressed_size_hint(), record.uncompressed_size_hint());
        if size != whole {
            return Err(wrong(format!(
                "expected {whole} bytes for {}, which is not compressed, found {size}",
                shown()
            )));
        }
        let (header, crc) = (record.local_header_offset(), record.crc32());
        let (begin, end) = archive
            .get_entry(record.wayfinder())
            .map_err(|error| invalid(error, &shown()))?
            .compressed_data_range();
        if end > found {
            return Err(wrong(format!(
                "{} ends at byte {end}, behind the begin of the directory at byte {found}",
                shown()
            )));
        }
        used.push((header, end, entries.len()));
        entries.push(ZipEntry { name, begin, end, crc });
    }
    used.sort_unstable();
    let shown = |index: usize| {
        entries.get(index).map(|entry| sanitized(&entry.name, 400)).unwrap_or_default()
    };
    for pair in used.windows(2) {
        if let &[(_, end, first), (begin, _, second)] = pair
            && begin < end
        {
            return Err(shared_bytes(source, &shown(first), &shown(second)));
        }
    }
    entries.sort_unstable_by(|a, b| a.name.cmp(&b.name));
    if let Some(pair) = entries.windows(2).find(|pair| pair[0].name == pair[1].name) {
        return Err(wrong(format!("{} is there twice", sanitized(&pair[0].name, 400))));
    }
    Ok(entries)
}
