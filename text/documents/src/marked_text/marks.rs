//! A text with marks, and what a mark stands for.

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

impl MarkedText {
    /// A text without marks.
    #[must_use]
    pub fn plain(text: impl Into<String>) -> Self {
        Self { text: text.into(), marks: Vec::new() }
    }
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
