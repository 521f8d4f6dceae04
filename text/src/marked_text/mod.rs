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
#[cfg(feature = "translate")]
mod conventions;
mod marks;
mod model_text;
#[cfg(feature = "translate")]
mod placeholders;
mod placement;
#[cfg(feature = "translate")]
mod scanners;
mod scripts;
mod slices;
mod tree;
mod units;
mod write;

pub use alignment::{Alignment, WordAlignment, WordLink};
pub use check::{Lost, check};
#[cfg(feature = "translate")]
pub use conventions::{Convention, conventions};
pub use marks::{Mark, MarkKind, MarkedText};
pub use model_text::StandIn;
#[cfg(feature = "translate")]
pub(crate) use model_text::{Edit, Rewritten};
#[cfg(feature = "translate")]
pub(crate) use placeholders::add_keeps;
#[cfg(feature = "translate")]
pub use placeholders::placeholders;
pub use placement::Placement;
#[cfg(feature = "translate")]
pub use regex::Regex;
#[cfg(any(feature = "transcribe", feature = "translate"))]
pub(crate) use scripts::words;
#[cfg(feature = "translate")]
pub(crate) use scripts::{is_combining, is_spaceless};
pub use slices::KeepSplit;
