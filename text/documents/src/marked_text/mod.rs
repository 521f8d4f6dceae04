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
//! 1. [`placeholders`] adds a mark for each placeholder, address and piece of code.
//! 2. [`MarkedText::whole_keeps`] and [`MarkedText::slice`] cut the paragraph into sentences and what is between them.
//! 3. [`MarkedText::for_model`] makes the text of a sentence that the model translates.
//! 4. [`Placement`] puts the marks into the translation, by the attention of the model.
//! 5. [`check`] says which marks are lost. Then another [`StandIn`] may help. The last way cannot lose a piece: the parts of
//!    [`MarkedText::split_at_keeps`] are translated alone.
//! 6. [`MarkedText::join`] makes a paragraph of the sentences.

mod alignment;
mod check;
mod conventions;
mod marks;
mod model_text;
mod placeholders;
mod placement;
mod scanners;
mod slices;
mod tree;
mod units;
mod write;

pub use alignment::{Alignment, WordAlignment, WordLink};
pub use check::{Lost, check};
pub use conventions::{Convention, conventions};
pub use marks::{Mark, MarkKind, MarkedText};
pub use model_text::{Edit, Rewritten, StandIn};
pub use placeholders::{add_keeps, placeholders};
pub use placement::Placement;
pub use slices::KeepSplit;
