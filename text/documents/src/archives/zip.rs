//! The entries of a zip archive: where each is, and the same archive with other bytes in some of them. What stays is copied
//! as it is in the file, with its header and its compressed bytes.

use crate::error::Error;
use miniz_oxide::deflate::compress_to_vec;
use miniz_oxide::inflate::{TINFLStatus, decompress_to_vec_with_limit};
use rawzip::extra_fields::ExtraFieldId;
use rawzip::{CompressionMethod, ReaderAt, ZipLocator};
use std::io::{self, Read, Seek, SeekFrom, Write};
use std::ops::Range;
use std::sync::{Mutex, PoisonError};

/// The most bytes of a part that is read.
pub(super) const LONGEST_PART: u64 = 256 << 20;
/// An archive has fewer bytes: all its places have 32 bits.
const LONGEST: u64 = u32::MAX as u64;
/// The most entries, and the most bytes of the directory.
const MOST_ENTRIES: u64 = 65_534;
const LONGEST_DIRECTORY: u64 = 32 << 20;
/// An entry of the directory with its name and its comment must fit.
const BUFFER: usize = rawzip::MAX_CENTRAL_DIRECTORY_RECORD_SIZE;
/// Bytes at the end of the file in which the directory's own record must begin: it may have a comment.
const END: u64 = (1 << 16) + 64;
/// The level of compression that most programs use.
const LEVEL: u8 = 6;

/// The fixed bytes of the header of an entry, of its record in the directory, and of the record at the end.
const HEADER: usize = 30;
const RECORD: usize = 46;
const END_RECORD: [u8; 4] = [b'P', b'K', 5, 6];

const STORED: u16 = 0;
const DEFLATED: u16 = 8;
/// The sizes follow the data.
const DESCRIPTOR: u16 = 1 << 3;

/// A file in a [`Zip`].
#[derive(Debug)]
pub struct Entry {
    pub(super) name: String,
    /// Bytes of the file, with the header and what follows the data.
    range: Range<u64>,
    data: Range<u64>,
    method: u16,
    crc: u32,
    /// Without compression.
    size: u64,
    /// Bytes of the directory.
    record: Range<usize>,
}

impl Entry {
    /// Its path in the archive.
    #[must_use]
    pub fn name(&self) -> &str {
        &self.name
    }

    /// Which bytes of the file it is, compressed.
    #[must_use]
    pub fn data(&self) -> Range<u64> {
        self.data.clone()
    }

    /// The bytes of its content, as the directory says. What is there may differ.
    #[must_use]
    pub fn size(&self) -> u64 {
        self.size
    }

    /// The checksum of its content.
    #[must_use]
    pub fn crc(&self) -> u32 {
        self.crc
    }

    /// Whether it is compressed with DEFLATE; `None` for another compression.
    #[must_use]
    pub fn is_deflated(&self) -> Option<bool> {
        match self.method {
            STORED => Some(false),
            DEFLATED => Some(true),
            _ => None,
        }
    }
}

/// What was written of an entry.
#[derive(Debug)]
struct Written {
    offset: u32,
    /// Method, checksum, and the sizes with and without compression, if the entry is new.
    new: Option<(u16, u32, u32, u32)>,
}

/// An archive that is read, and by [`Archive`](super::Archive) written again.
#[derive(Debug)]
pub struct Zip<R> {
    reader: R,
    /// In the order of the file.
    pub(super) entries: Vec<Entry>,
    directory: Vec<u8>,
    comment: Vec<u8>,
    written: Vec<Written>,
    /// Bytes that are written.
    at: u64,
}

/// Bytes of a file at a place. The lock is never contended.
struct Bytes<'r, R>(Mutex<&'r mut R>);

impl<R: Read + Seek> ReaderAt for Bytes<'_, R> {
    fn read_at(&self, out: &mut [u8], offset: u64) -> io::Result<usize> {
        let mut reader = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        reader.seek(SeekFrom::Start(offset))?;
        reader.read(out)
    }
}

const OPERAND: &str = "the archive";

fn corrupt(expected: impl Into<Box<str>>, found: impl core::fmt::Display) -> Error {
    Error::corrupt(OPERAND, expected, found)
}

fn unsupported(expected: impl Into<Box<str>>, found: impl core::fmt::Display) -> Error {
    Error::unsupported(OPERAND, expected, found)
}

fn unreadable(error: io::Error) -> Error {
    Error::of_stream("read", OPERAND)(error)
}

/// An error of the output.
pub(super) fn unwritable(error: io::Error) -> Error {
    Error::of_stream("written", "the output")(error)
}

impl<R: Read + Seek> Zip<R> {
    /// Reads the directory of an archive.
    ///
    /// # Errors
    /// It is no archive, has two entries of one name, entries that share bytes, a name that leads out of a folder, an
    /// entry that is encrypted, or more entries and bytes than there may be.
    pub fn open(mut reader: R) -> Result<Self, Error> {
        let length = reader.seek(SeekFrom::End(0)).map_err(unreadable)?;
        let mut begin = [0; 4];
        reader.rewind().map_err(unreadable)?;
        let read = read_up_to(&mut reader, &mut begin).map_err(unreadable)?;
        if begin[..read] == *b"\xd0\xcf\x11\xe0" {
            let found = "an OLE file: the document is encrypted, or of an Office before 2007";
            return Err(unsupported("a zip archive", found));
        }
        if length >= LONGEST {
            return Err(unsupported("less than 4 GiB", format_args!("{length} bytes")));
        }
        let (entries, directory, comment) = read_directory(&mut reader, length)?;
        Ok(Self { reader, entries, directory, comment, written: Vec::new(), at: 0 })
    }

    /// The place of an entry in [`Self::entries`].
    pub(super) fn find(&self, name: &str) -> Option<usize> {
        self.entries.iter().position(|entry| entry.name == name)
    }

    /// The entries, in the order of the file.
    #[must_use]
    pub fn entries(&self) -> &[Entry] {
        &self.entries
    }

    /// The content of an entry.
    ///
    /// # Errors
    /// It is damaged, longer than 256 MiB, or its compression is not DEFLATE.
    pub fn read_entry(&mut self, index: usize) -> Result<Vec<u8>, Error> {
        let Some(entry) = self.entries.get(index) else { return Ok(Vec::new()) };
        let name = entry.name.as_str();
        if entry.size > LONGEST_PART {
            let expected = format!("at most {LONGEST_PART} bytes");
            return Err(Error::unsupported(name, expected, format_args!("{} bytes", entry.size)));
        }
        let compressed = entry.data.end - entry.data.start;
        if compressed > LONGEST_PART {
            let expected = format!("at most {LONGEST_PART} compressed bytes");
            return Err(Error::unsupported(name, expected, format_args!("{compressed} bytes")));
        }
        let size = entry.size as usize;
        let mut data = vec![0; compressed as usize];
        self.reader.seek(SeekFrom::Start(entry.data.start)).map_err(unreadable)?;
        self.reader.read_exact(&mut data).map_err(unreadable)?;
        let content = match entry.method {
            STORED => data,
            DEFLATED => decompress_to_vec_with_limit(&data, size).map_err(|error| {
                let expected = format!("{size} bytes of DEFLATE");
                match error.status {
                    TINFLStatus::HasMoreOutput => Error::corrupt(name, expected, "more bytes"),
                    status => Error::corrupt(name, expected, format_args!("{status:?}")),
                }
            })?,
            other => {
                let found = CompressionMethod::new(other);
                return Err(Error::unsupported(name, "DEFLATE or no compression", found));
            }
        };
        if content.len() != size {
            let found = format_args!("{} bytes", content.len());
            return Err(Error::corrupt(name, format!("{size} bytes"), found));
        }
        let crc = rawzip::crc32(&content);
        if crc != entry.crc {
            let expected = format!("the checksum {:08x}", entry.crc);
            return Err(Error::corrupt(name, expected, format_args!("{crc:08x}")));
        }
        Ok(content)
    }

    /// Writes the entries before `index` that are not yet written, as they are.
    pub(super) fn copy_until(&mut self, index: usize, out: &mut dyn Write) -> Result<(), Error> {
        while self.written.len() < index.min(self.entries.len()) {
            let entry = &self.entries[self.written.len()];
            // Before the first one there may be bytes of another kind, such as a program that unpacks the archive.
            let begin = if self.written.is_empty() { 0 } else { entry.range.start };
            let offset = self.at + entry.range.start - begin;
            self.written.push(Written { offset: narrow(offset)?, new: None });
            self.reader.seek(SeekFrom::Start(begin)).map_err(unreadable)?;
            let length = entry.range.end - begin;
            copy(&mut self.reader, length, out)?;
            self.at += length;
        }
        Ok(())
    }

    /// Writes the next entry with another content, after [`Self::copy_until`] its place.
    pub(super) fn replace(&mut self, content: &[u8], out: &mut dyn Write) -> Result<(), Error> {
        let index = self.written.len();
        let Some(entry) = self.entries.get(index) else { return Ok(()) };
        let crc = rawzip::crc32(content);
        if crc == entry.crc && content.len() as u64 == entry.size {
            return self.copy_until(index + 1, out);
        }
        let mut header = vec![0; (entry.data.start - entry.range.start) as usize];
        self.reader.seek(SeekFrom::Start(entry.range.start)).map_err(unreadable)?;
        self.reader.read_exact(&mut header).map_err(unreadable)?;
        let compressed;
        let (method, data) = if entry.method == STORED {
            (STORED, content)
        } else {
            compressed = compress_to_vec(content, LEVEL);
            (DEFLATED, &*compressed)
        };
        let new = (method, crc, narrow(data.len() as u64)?, narrow(content.len() as u64)?);
        set_sizes(&mut header, 6, new);
        remove_large_sizes(&mut header, 26, HEADER);
        if index == 0 && entry.range.start > 0 {
            self.reader.rewind().map_err(unreadable)?;
            copy(&mut self.reader, entry.range.start, out)?;
            self.at = entry.range.start;
        }
        self.written.push(Written { offset: narrow(self.at)?, new: Some(new) });
        out.write_all(&header).and_then(|()| out.write_all(data)).map_err(unwritable)?;
        self.at += (header.len() + data.len()) as u64;
        Ok(())
    }

    /// Writes what is left of the archive, and its directory.
    pub(super) fn finish(mut self, out: &mut dyn Write) -> Result<(), Error> {
        self.copy_until(self.entries.len(), out)?;
        let mut order: Vec<usize> = (0..self.entries.len()).collect();
        order.sort_unstable_by_key(|&index| self.entries[index].record.start);
        let mut directory = Vec::with_capacity(self.directory.len());
        for index in order {
            let (entry, written) = (&self.entries[index], &self.written[index]);
            let mut record = self.directory[entry.record.clone()].to_vec();
            record[42..46].copy_from_slice(&written.offset.to_le_bytes());
            if let Some(new) = written.new {
                set_sizes(&mut record, 8, new);
                remove_large_sizes(&mut record, 28, RECORD);
            }
            directory.extend(record);
        }
        let count = (self.entries.len() as u16).to_le_bytes();
        let mut end = END_RECORD.to_vec();
        end.extend([0; 4]);
        end.extend(count);
        end.extend(count);
        end.extend(narrow(directory.len() as u64)?.to_le_bytes());
        end.extend(narrow(self.at)?.to_le_bytes());
        end.extend((self.comment.len() as u16).to_le_bytes());
        end.extend(&self.comment);
        out.write_all(&directory).and_then(|()| out.write_all(&end)).map_err(unwritable)
    }
}

/// The entries in the order of the file, the directory, and the comment of the archive.
type Directory = (Vec<Entry>, Vec<u8>, Vec<u8>);

fn read_directory<R: Read + Seek>(reader: &mut R, length: u64) -> Result<Directory, Error> {
    let invalid = |error: rawzip::Error| match error.into_kind() {
        rawzip::ErrorKind::IO(error) if error.kind() != io::ErrorKind::UnexpectedEof => {
            unreadable(error)
        }
        kind => corrupt("a whole zip archive", kind),
    };
    let bytes = Bytes(Mutex::new(reader));
    let mut buffer = vec![0; BUFFER];
    let archive = ZipLocator::new()
        .max_search_space(END)
        .locate_in_reader(&bytes, &mut buffer, length)
        .map_err(|(_, error)| invalid(error))?;
    let (begin, end) = (archive.directory_offset(), archive.eocd_offset());
    let stated = bytes.take(end + 16, 4)?;
    let stated = u32::from_le_bytes([stated[0], stated[1], stated[2], stated[3]]);
    if stated != u32::MAX && u64::from(stated) != begin {
        let expected = format!("the directory at byte {stated}");
        return Err(corrupt(expected, format_args!("it at byte {begin}")));
    }
    let count = archive.entries_hint();
    if count > MOST_ENTRIES {
        return Err(unsupported(format!("at most {MOST_ENTRIES} entries"), count));
    }
    if end.saturating_sub(begin) > LONGEST_DIRECTORY {
        let expected = format!("at most {LONGEST_DIRECTORY} bytes of directory");
        return Err(unsupported(expected, end - begin));
    }
    let directory = bytes.take(begin, end.saturating_sub(begin) as usize)?;
    let mut comment = bytes.take(end + 20, 2)?;
    let comment_length = usize::from(u16_at(&comment, 0));
    comment = bytes.take(end + 22, comment_length)?;
    let mut entries: Vec<Entry> = Vec::with_capacity((count.min(length / 76)) as usize);
    let mut records = archive.entries(&mut buffer);
    let mut local = vec![0; BUFFER];
    while let Some(record) = records.next_entry().map_err(invalid)? {
        let name = String::from_utf8(record.file_path().as_bytes().to_vec());
        let name = name.map_err(|error| {
            let found = format!("{:?}", String::from_utf8_lossy(error.as_bytes()));
            unsupported("names of entries in UTF-8", found)
        })?;
        check_name(&name)?;
        if record.flags().is_encrypted() {
            let found = format_args!("{name:?} is encrypted");
            return Err(unsupported("entries that are not encrypted", found));
        }
        let at = (record.central_directory_offset() - begin) as usize;
        let raw = directory.get(at..).unwrap_or_default();
        let fixed = |at: usize| usize::from(u16_at(raw, at));
        let record_length = RECORD + fixed(28) + fixed(30) + fixed(32);
        if raw.len() < record_length || raw[42..46] == [0xff; 4] {
            return Err(unsupported("a directory with 32 bits for each place", "one with 64"));
        }
        let entry = archive.get_entry(record.wayfinder()).map_err(invalid)?;
        let (data, data_end) = entry.compressed_data_range();
        if data_end > begin {
            let found = format_args!("{name:?} ends at byte {data_end}");
            return Err(corrupt(format!("entries before the directory at byte {begin}"), found));
        }
        let header = entry.local_header(&mut local).map_err(invalid)?;
        if header.file_path().as_bytes() != name.as_bytes() {
            let found = String::from_utf8_lossy(header.file_path().as_bytes()).into_owned();
            return Err(corrupt(format!("{name:?} in the header, too"), format!("{found:?}")));
        }
        entries.push(Entry {
            range: record.local_header_offset()..data_end,
            data: data..data_end,
            method: record.compression_method().as_u16(),
            crc: record.crc32(),
            size: record.uncompressed_size_hint(),
            record: at..at + record_length,
            name,
        });
    }
    if entries.len() as u64 != count {
        return Err(corrupt(format!("{count} entries"), entries.len()));
    }
    entries.sort_by_key(|entry| entry.range.start);
    for index in 0..entries.len() {
        // What follows the data up to the next entry belongs to it: its sizes may stand there.
        let next = entries.get(index + 1).map_or(begin, |next| next.range.start);
        let entry = &mut entries[index];
        if next < entry.range.end {
            let found = format_args!("{:?} and the one after it", entry.name);
            return Err(corrupt("entries that share no bytes", found));
        }
        entry.range.end = next;
    }
    let mut names: Vec<&str> = entries.iter().map(|entry| entry.name.as_str()).collect();
    names.sort_unstable();
    if let Some(pair) = names.windows(2).find(|pair| pair[0] == pair[1]) {
        return Err(corrupt("one entry of a name", format_args!("{:?} twice", pair[0])));
    }
    Ok((entries, directory, comment))
}

impl<R: Read + Seek> Bytes<'_, R> {
    fn take(&self, at: u64, length: usize) -> Result<Vec<u8>, Error> {
        let mut bytes = vec![0; length];
        let mut reader = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        reader.seek(SeekFrom::Start(at)).map_err(unreadable)?;
        reader.read_exact(&mut bytes).map_err(unreadable)?;
        Ok(bytes)
    }
}

/// Returns an error for a name that, as a path, leads out of the folder that the archive is unpacked into.
fn check_name(name: &str) -> Result<(), Error> {
    let drive = name.as_bytes().get(1) == Some(&b':');
    let leaves = name.split(['/', '\\']).any(|part| part == "..");
    if name.is_empty() || name.starts_with(['/', '\\']) || drive || leaves || name.contains('\0') {
        return Err(corrupt("names of entries that are paths in it", format!("{name:?}")));
    }
    Ok(())
}

fn read_up_to(reader: &mut impl Read, out: &mut [u8]) -> io::Result<usize> {
    let mut length = 0;
    while length < out.len() {
        match reader.read(&mut out[length..]) {
            Ok(0) => break,
            Ok(read) => length += read,
            Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
            Err(error) => return Err(error),
        }
    }
    Ok(length)
}

fn copy(reader: &mut impl Read, mut length: u64, out: &mut dyn Write) -> Result<(), Error> {
    let mut buffer = vec![0; length.min(1 << 16) as usize];
    while length > 0 {
        let part = length.min(buffer.len() as u64) as usize;
        reader.read_exact(&mut buffer[..part]).map_err(unreadable)?;
        out.write_all(&buffer[..part]).map_err(unwritable)?;
        length -= part as u64;
    }
    Ok(())
}

fn narrow(number: u64) -> Result<u32, Error> {
    let fits = u32::try_from(number).ok().filter(|&fits| fits < u32::MAX);
    fits.ok_or_else(|| unsupported("less than 4 GiB of output", format_args!("{number} bytes")))
}

fn u16_at(bytes: &[u8], at: usize) -> u16 {
    bytes.get(at..at + 2).map_or(0, |two| u16::from_le_bytes([two[0], two[1]]))
}

/// Sets method, checksum and sizes of a header or a record, whose flags are at byte `flags`.
fn set_sizes(
    header: &mut [u8],
    flags: usize,
    (method, crc, compressed, size): (u16, u32, u32, u32),
) {
    let cleared = u16_at(header, flags) & !DESCRIPTOR;
    header[flags..flags + 2].copy_from_slice(&cleared.to_le_bytes());
    header[flags + 2..flags + 4].copy_from_slice(&method.to_le_bytes());
    for (place, number) in [crc, compressed, size].into_iter().enumerate() {
        let at = flags + 8 + 4 * place;
        header[at..at + 4].copy_from_slice(&number.to_le_bytes());
    }
}

/// Removes the sizes of 64 bits from the extra fields of a header, which follow the name. The lengths of both are at byte
/// `lengths`, and the name is at byte `name`.
fn remove_large_sizes(header: &mut Vec<u8>, lengths: usize, name: usize) {
    let begin = name + usize::from(u16_at(header, lengths));
    let extra = begin..begin + usize::from(u16_at(header, lengths + 2));
    let Some(fields) = header.get(extra.clone()) else { return };
    let mut kept = Vec::with_capacity(fields.len());
    let mut rest = fields;
    while rest.len() >= 4 {
        let end = (4 + usize::from(u16_at(rest, 2))).min(rest.len());
        if u16_at(rest, 0) != ExtraFieldId::ZIP64.as_u16() {
            kept.extend(&rest[..end]);
        }
        rest = &rest[end..];
    }
    kept.extend(rest);
    header[lengths + 2..lengths + 4].copy_from_slice(&(kept.len() as u16).to_le_bytes());
    header.splice(extra, kept);
}
