//! An archive whose parts are translated one after the other.

use super::format::ArchiveFormat;
use super::parts::{Parts, text_of, text_parts};
use super::zip::Zip;
use crate::error::Error;
use crate::formats::Document;
use std::collections::VecDeque;
use std::io::{Read, Seek, Write};

/// A document that is an archive of parts.
///
/// Parts may be read before those before them are written, so that sentences of several are translated together.
#[derive(Debug)]
pub struct Archive<R> {
    zip: Zip<R>,
    parts: Parts,
    attributes: bool,
    /// The entry that is read next.
    next: usize,
    /// The entries that are read and not yet written.
    open: VecDeque<usize>,
}

impl<R: Read + Seek> Archive<R> {
    /// Reads the directory of an archive, which begins where `reader` does.
    ///
    /// # Errors
    ///
    /// [`Error::Corrupt`] if it is damaged or of another format, [`Error::Unsupported`] if it is encrypted or larger than it
    /// may be (see the [module](super)), and errors of the reader.
    pub fn open(reader: R, format: ArchiveFormat) -> Result<Self, Error> {
        Self::open_with(reader, format, true)
    }

    /// As [`open`](Self::open), with the caller's choice whether attributes of books that people read, and descriptions of
    /// pictures, are segments (they are for `open`).
    ///
    /// # Errors
    ///
    /// As [`open`](Self::open).
    pub fn open_with(reader: R, format: ArchiveFormat, attributes: bool) -> Result<Self, Error> {
        let mut zip = Zip::open(reader)?;
        let parts = text_parts(&mut zip, format)?;
        Ok(Self { zip, parts, attributes, next: 0, open: VecDeque::new() })
    }

    /// The next part that has text; `None` after the last one.
    ///
    /// # Errors
    ///
    /// The part is damaged, longer than 256 MiB, or not of its format; errors of the reader.
    pub fn next_document(&mut self) -> Result<Option<Document>, Error> {
        while let Some(part) = self.parts.formats.get(self.next) {
            let index = self.next;
            self.next += 1;
            let Some(format) = *part else { continue };
            let text = text_of(&mut self.zip, index)?;
            let name = self.zip.entries.get(index).map_or("", |entry| &entry.name);
            let document =
                Document::parse_part(text, name, format, self.attributes, &self.parts.names)?;
            if !document.segments().is_empty() {
                self.open.push_back(index);
                return Ok(Some(document));
            }
        }
        Ok(None)
    }

    /// Writes the first part that was read and is not yet written, and what stands before it in the archive.
    ///
    /// # Errors
    ///
    /// [`Error::InvalidInput`] if no part was read; errors of the reader and of `out`.
    pub fn write_document(&mut self, text: &str, out: &mut dyn Write) -> Result<(), Error> {
        let Some(index) = self.open.pop_front() else {
            return Err(Error::invalid_input("part", "one that was read", "no further one"));
        };
        self.zip.copy_until(index, out)?;
        self.zip.replace(text.as_bytes(), out)
    }

    /// Writes the rest of the archive. Parts that were not read are copied.
    ///
    /// # Errors
    ///
    /// [`Error::InvalidInput`] if a part was read and not written; errors of the reader and of `out`.
    pub fn finish(self, out: &mut dyn Write) -> Result<(), Error> {
        if let Some(&index) = self.open.front() {
            let name = self.zip.entries.get(index).map_or("", |entry| &entry.name);
            let expected = "every part that was read to be written";
            return Err(Error::invalid_input(name, expected, "this one is not"));
        }
        self.zip.finish(out)
    }
}
