//! The formats of archives.

use core::fmt;
use std::path::Path;

/// The format of an archive.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum ArchiveFormat {
    /// Text documents of Office.
    Docx,
    /// Presentations of Office.
    Pptx,
    /// Workbooks of Office.
    Xlsx,
    /// Text documents of OpenDocument.
    Odt,
    /// Presentations of OpenDocument.
    Odp,
    /// Workbooks of OpenDocument.
    Ods,
    /// Books.
    Epub,
}

impl ArchiveFormat {
    /// All formats.
    pub const ALL: [Self; 7] =
        [Self::Docx, Self::Pptx, Self::Xlsx, Self::Odt, Self::Odp, Self::Ods, Self::Epub];

    /// `docx`, `pptx`, `xlsx`, `odt`, `odp`, `ods` or `epub`, which are also the extensions of files.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Self::Docx => "docx",
            Self::Pptx => "pptx",
            Self::Xlsx => "xlsx",
            Self::Odt => "odt",
            Self::Odp => "odp",
            Self::Ods => "ods",
            Self::Epub => "epub",
        }
    }

    /// The format that the extension of a file stands for. `None` without a known extension.
    pub fn from_path(path: impl AsRef<Path>) -> Option<Self> {
        let extension = path.as_ref().extension()?.to_str()?;
        Self::ALL.into_iter().find(|format| extension.eq_ignore_ascii_case(format.name()))
    }
}

impl fmt::Display for ArchiveFormat {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}
