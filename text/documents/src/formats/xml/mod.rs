//! Paragraphs with runs in XML: which elements they are is a table, [`Vocabulary`].

mod pairs;
mod paragraph;
mod reader;
mod runs;
mod segment;
mod styles;
mod vocabulary;

pub(super) use pairs::parse as parse_pairs;
pub(super) use reader::parse;
pub(super) use runs::{Pair, Runs, escape, write};
pub(crate) use vocabulary::{
    BOOK_CONTENTS, OPEN_DOCUMENT, PRESENTATION, SPREADSHEET, Vocabulary, WORD_PROCESSING,
};
