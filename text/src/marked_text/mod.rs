//! Text with marks: inline tags that wrap words, and pieces that a translation must keep.
//!
//! A document gives its paragraphs in this form, and takes their translations in this form. The text is plain: no
//! markup, and the characters themselves in place of `&eacute;` or `\*`. Everything else is a mark.
//!
//! | source | text | marks |
//! |---|---|---|
//! | `a <b>white</b> house` | `a white house` | [`Wrap`](MarkKind::Wrap) around `white` |
//! | `run <code>ls</code> now` | `run ls now` | [`Keep`](MarkKind::Keep) over `ls` |
//! | `one<br/>two` | `onetwo` | [`Point`](MarkKind::Point) after `one` |
//!
//! # From a paragraph to its translation
//!
//! 1. `placeholders` adds a mark for each placeholder, address and piece of code (feature `translate`).
//! 2. [`MarkedText::whole_keeps`] and [`MarkedText::slice`] cut the paragraph into sentences and what is between them.
//! 3. [`MarkedText::for_model`] makes the text of a sentence that the model translates.
//! 4. [`Placement`] puts the marks into the translation, by the attention of the model.
//! 5. [`check`] says which marks are lost. Then another [`StandIn`] may help. The last way cannot lose a piece: the parts of
//!    [`MarkedText::split_at_keeps`] are translated alone.
//! 6. [`MarkedText::join`] makes a paragraph of the sentences.

mod alignment;
mod check;
mod model_text;
#[cfg(feature = "translate")]
mod placeholders;
mod placement;
mod scripts;
mod slices;
mod tree;
mod units;
mod write;

pub use alignment::{Alignment, WordAlignment, WordLink};
pub use check::{Lost, check};
pub use model_text::StandIn;
#[cfg(feature = "translate")]
pub use placeholders::placeholders;
pub use placement::Placement;
#[cfg(feature = "translate")]
pub use regex::Regex;
pub use slices::KeepSplit;

use std::ops::Range;

/// A text and its marks.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct MarkedText {
    /// The plain text, as a model reads it.
    pub text: String,
    /// The marks, in the order in which they begin; of two that begin at one place, the outer one first. Ranges are
    /// bytes of `text` and lie at boundaries of characters. The ranges of two wraps are disjoint or nested. A kept
    /// piece overlaps no other mark partially.
    pub marks: Vec<Mark>,
}

/// A part of a [`MarkedText`] that is more than text.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Mark {
    /// Bytes of the text; empty for a [`Point`](MarkKind::Point).
    pub range: Range<usize>,
    /// What stands there.
    pub kind: MarkKind,
    /// Which mark of the source this is. A translation has each mark of its source once, with the same number, unless
    /// the mark is a wrap around words that have no counterpart.
    pub id: usize,
}

/// What a [`Mark`] stands for.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum MarkKind {
    /// Inline markup around words, such as bold or a link: the source of its begin and of its end.
    Wrap {
        /// `<b>`, `**`, `[`
        open: String,
        /// `</b>`, `**`, `](https://example.org)`
        close: String,
    },
    /// A piece that stands in the text and must appear once in the translation, unchanged: a placeholder, an address, code.
    Keep {
        /// What the document has in its place, if that differs from the text: `<code>ls</code>` for `ls`.
        source: Option<String>,
    },
    /// Markup without text, such as `<br/>` or an image: its source.
    Point {
        /// `<br/>`
        source: String,
    },
}
