//! Where the files of a directory of CTranslate2 are: in a folder, or where the caller reads them.

use crate::checkpoint::byte_source::{check_json, read_json, read_text, text_of};
use crate::error::Error;
use std::io;
use std::path::Path;

/// Where the files of a directory are.
pub(super) enum Files<'f> {
    Folder(&'f Path),
    /// Elsewhere: the name in errors, and the function that reads a whole file, `None` if there is no such file.
    Read(&'f str, &'f dyn Fn(&str) -> io::Result<Option<Vec<u8>>>),
}

impl Files<'_> {
    /// What errors call a file.
    pub(super) fn name(&self, file: &str) -> String {
        match self {
            Self::Folder(folder) => folder.join(file).display().to_string(),
            Self::Read(place, _) => format!("{place}/{file}"),
        }
    }

    /// The text of a file of at most `limit` bytes; `None` if there is no such file.
    pub(super) fn text(&self, file: &str, limit: u64) -> Result<Option<String>, Error> {
        match self {
            Self::Folder(folder) => read_text(&folder.join(file), limit),
            Self::Read(_, read) => {
                let bytes =
                    read(file).map_err(|error| Error::unreadable(self.name(file), error))?;
                bytes.map(|bytes| text_of(self.name(file), bytes, limit)).transpose()
            }
        }
    }

    /// As [`text`](Self::text), of a JSON file.
    pub(super) fn json(&self, file: &str, limit: u64) -> Result<Option<String>, Error> {
        match self {
            Self::Folder(folder) => read_json(&folder.join(file), limit),
            Self::Read(..) => {
                let text = self.text(file, limit)?;
                text.map(|text| check_json(&self.name(file), text)).transpose()
            }
        }
    }
}
