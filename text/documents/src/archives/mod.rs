//! Documents that are archives of parts: those of Office and of OpenDocument, and books.
//!
//! An [`Archive`] gives the parts that have text as [`Document`](crate::Document)s, one after the other, and writes the same
//! archive with their translations.
//!
//! ```
//! use simdformer_documents::archives::{Archive, ArchiveFormat};
//! use std::io::{Read, Seek, Write};
//!
//! # fn main() {}
//! fn shout(input: impl Read + Seek, output: &mut dyn Write) -> Result<(), simdformer_documents::Error> {
//!     let mut archive = Archive::open(input, ArchiveFormat::Docx)?;
//!     while let Some(document) = archive.next_document()? {
//!         let mut segments = document.segments().to_vec();
//!         for segment in &mut segments {
//!             segment.text = segment.text.to_uppercase(); // here it would be translated
//!         }
//!         archive.write_document(&document.render(&segments)?, output)?;
//!     }
//!     archive.finish(output)
//! }
//! ```
//!
//! | format | parts with text | a segment is | what stays besides |
//! |---|---|---|---|
//! | [docx](ArchiveFormat::Docx) | the document, headers, footers, footnotes, endnotes, comments; charts and diagrams | the text of a paragraph between tabs and line breaks | fields but links, formulas, images, bookmarks, text that was deleted under tracking, the choices of form fields, properties of the document |
//! | [pptx](ArchiveFormat::Pptx) | slides, notes, comments; charts and diagrams | the same | fields, formulas, masters and layouts |
//! | [xlsx](ArchiveFormat::Xlsx) | strings, shared or in a cell; comments, drawings, charts | a line of a cell; a cell with runs | formulas and their results until they are computed again, names of sheets, headers of printed pages, the headers of tables and of the data of pivot tables |
//! | [odt](ArchiveFormat::Odt), [odp](ArchiveFormat::Odp), [ods](ArchiveFormat::Ods) | the content; headers and footers; charts | the text of a paragraph between tabs, line breaks and several spaces | fields, images, bookmarks, tracked changes, forms |
//! | [epub](ArchiveFormat::Epub) | pages; the table of contents of EPUB 2 | as in [HTML](crate::Format::Html) | the metadata of the book |
//!
//! Runs of a paragraph that look alike are one: what a spelling checker, a language or a revision divides is joined. The runs
//! that look like most of the paragraph have no mark, all others [wrap](crate::marked_text::MarkKind::Wrap) their words, as
//! links do. Fields are [kept](crate::marked_text::MarkKind::Keep) with their text; images, notes and bookmarks are
//! [points](crate::marked_text::MarkKind::Point). A note, a comment or a text box in a paragraph has segments of its own,
//! and so has the description of a picture, a shape or a table, unless [`Archive::open_with`] leaves it out. Of a chart the
//! titles and the names of categories and series are translated; the workbook in it, from which Office makes them again when
//! its data are edited, stays.
//!
//! A part without a change, and every other entry of the archive, is copied as it is in the file: the compressed bytes, the
//! header, the time, and the place among the others. A part that changes is compressed again.
//!
//! # Hostile archives
//!
//! All of them give an error: an archive that is damaged or encrypted, with two entries of one name or that share bytes,
//! with names that lead out of a folder, of more than 65,534 entries or 4 GiB; a part whose size or checksum is another than
//! the directory says, or of more than 256 MiB (entries that are copied may be longer); XML that is not well-formed, has
//! entities of its own, or more than 256 elements in each other. Memory is that of one part, with a copy of its texts.

mod archive;
mod format;
mod parts;
mod zip;

pub use archive::Archive;
pub use format::ArchiveFormat;
pub use zip::{Entry, Zip};
