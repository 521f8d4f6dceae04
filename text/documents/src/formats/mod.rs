//! The formats of documents: how each is read and written. What a segment is in each of them is in the documentation of the
//! crate.

mod blocks;
mod format;
mod gettext;
mod html;
mod icu;
mod inline;
mod json_escapes;
mod json_strings;
mod markdown;
mod markdown_titles;
mod markdown_writer;
mod parsed;
mod pieces;
mod places;
mod plain;
mod subtitles;
mod tags;
mod wrap;
mod writer;
mod writing;
mod xml;

pub use blocks::Blocks;
pub use format::Format;
pub(crate) use parsed::PartFormat;
pub use parsed::{Document, ReadOptions};
pub use places::Cue;
pub use writer::DocumentWriter;
pub(crate) use xml::{
    BOOK_CONTENTS, OPEN_DOCUMENT, PRESENTATION, SPREADSHEET, Vocabulary, WORD_PROCESSING,
};
