//! What of a text is to be translated, and the same text with the translation in its place. For programs that translate by any
//! means: there is no model and no tokenizer here.
//!
//! - [`Document`]: the segments of plain text, Markdown, HTML, subtitles, JSON, message catalogs, and pairs for translators.
//! - [`archives`]: the segments of documents of Office and OpenDocument, and of books.
//! - [`sentences`]: the sentences of a segment, and its language.
//! - [`marked_text`]: inline tags and placeholders in a sentence, and their places in its translation.
//! - [`tables`]: a column of CSV, TSV or JSON lines from another one, by any function, also after an interruption.
//! - [`scripts`], [`lines`]: words of any script, and the columns of lines.
//!
//! # Documents
//!
//! ```
//! use simdformer_documents::{Document, Format};
//!
//! # fn main() -> Result<(), Box<dyn std::error::Error>> {
//! let document = Document::parse("# Title\n\n- one *blue*\n  car\n", Format::Markdown)?;
//! let segments = document.segments();
//! assert_eq!(segments[0].text, "Title");
//! assert_eq!(segments[1].text, "one blue car");
//! // Segments that come back unchanged give the input, byte for byte.
//! assert_eq!(document.render(segments)?, "# Title\n\n- one *blue*\n  car\n");
//! let mut translated = segments.to_vec();
//! translated[0].text = "1 * 2 [a]".to_string();
//! assert_eq!(document.render(&translated)?, "# 1 * 2 \\[a\\]\n\n- one *blue*\n  car\n");
//! # Ok(()) }
//! ```
//!
//! A [`Document`] is the source and a list of places in it. What lies between the places is never changed: blank lines,
//! indentation, markers of lists and quotations, code, tags, line ends, a byte order mark. A place whose segment returns
//! unchanged is written as it was. Otherwise the new text is written with the escapes of the format.
//!
//! A text without a letter, such as a number or a rule, is no segment.
//!
//! Attributes that people read are `alt`, `title`, `placeholder`, `aria-label`, `aria-description`, `aria-placeholder`,
//! `aria-roledescription`, `aria-valuetext`, `label` of options and tracks, `value` of buttons that are an `<input>`, and
//! `content` of a `<meta>` that is a description or a title. [`ReadOptions::attributes`] leaves them, and titles and
//! alternative texts of Markdown. One in the middle of a paragraph is a segment before the paragraph.
//!
//! | format | a segment is | marks in a segment | what stays besides |
//! |---|---|---|---|
//! | [plain text](Format::Plain) | a paragraph whose lines are wrapped, otherwise a line; a cell where a line has tabs or three spaces | none | indentation, `>` of quotations, markers of lists, lines of template tags (`{% if x %}`) |
//! | [Markdown](Format::Markdown) | the text of a paragraph, heading, list item or table cell, up to a hard line break; the alternative text of an image, the title of a link or image | emphasis, links and inline HTML wrap; code, formulas and `<https://...>` are kept; images and footnote references are points | front matter, code blocks, link targets, attributes of headings, blocks of HTML in quotations, lines of template tags |
//! | [HTML](Format::Html) | the text between two block elements or `<br>`; an attribute that people read | inline elements wrap; `<code>`, `<kbd>`, `<samp>`, `<var>`, `<tt>`, `translate="no"` and `class="notranslate"` are kept; `<img>`, comments and other elements without text are points | `<script>`, `<style>`, `<pre>`, `<textarea>`, `<svg>`, `<math>`, comments, other attributes |
//! | [SRT](Format::Srt) | the text of a cue; a line of it that begins with a dash; not a line of tags alone | `<i>` and other tags wrap; `{\an8}` is a point | numbers, times |
//! | [WebVTT](Format::WebVtt) | the same | the same; times inside a cue are points | header, identifiers, times, settings, `<v Name>`, blocks of notes, styles and regions |
//! | [JSON](Format::Json) | a line of a string that is a value; in an ICU message with cases, the texts of the cases and those between the arguments with cases | in an ICU message `#` and other arguments are kept | keys, numbers, layout, the syntax of ICU messages |
//! | [gettext](Format::Gettext) | the `msgid` of a message whose `msgstr` is empty, where its translation is written; of a message with plural forms, each form | a line end is a point | white space at both ends, header, contexts, comments, messages with a translation |
//! | [TMX](Format::Tmx) | the source of a unit whose target in the other language is missing or empty, where its translation is written | `hi`, pairs of `bpt` and `ept` wrap; `ph`, `it`, `ut` are points | every other unit and variant |
//! | [XLIFF](Format::Xliff) | the source of a unit whose target is missing, empty or in the state `new`, `needs-translation` or `initial` | `g`, `pc`, `mrk`, pairs of `bpt` and `ept`, `bx` and `ex`, `sc` and `ec` wrap; `x` and `ph` are points; protected text is kept | units that are translated, approved or not to be translated, alternatives, notes |
//!
//! How a changed segment is written:
//!
//! - Plain text: a paragraph of several lines is wrapped again at the width it had, at spaces.
//! - Markdown and HTML: on one line. An emphasis that Markdown could not read in its new place (`*a*b` is read, `* a*` and
//!   `«*a*»b` are not) becomes `<em>`, `<strong>` or `<del>`. A link by a label that is its own text, `[label]`, becomes
//!   `[new text][label]`.
//! - Subtitles: on at most as many lines as before, of similar lengths. [`Document::cue`] tells when a segment is shown.
//! - ICU messages: braces and `#` of a translation are in apostrophes.
//! - XLIFF: the state of a target that is written is `needs-review-translation`, that of a segment of XLIFF 2 `translated`.
//!
//! Lines of a plain paragraph are wrapped if the first word of most would not have fit at the end of the line before. So a
//! file with one sentence per line, verse or an address keeps its lines.
//!
//! Everything takes time and memory proportional to the text, whatever it contains. So a message of a catalog has at most 16
//! plural forms, an ICU message at most 64 arguments in each other, and Markdown at most 100 quotations and lists in each other.
//! [`Blocks`] reads a long text in parts that are documents themselves. Markdown is read whole: beside the text, 5 to 11 bytes for
//! each byte of the pages of this project (64 KiB to 1 MiB alike), and at most 144, for a text of delimiters alone; the parser
//! has them.

pub mod archives;
mod error;
mod formats;
pub mod lines;
pub mod marked_text;
pub mod scripts;
pub mod sentences;
pub mod tables;

pub use error::Error;
pub use formats::{Blocks, Cue, Document, DocumentWriter, Format, ReadOptions};

/// The program of the README, compiled and run by the tests.
#[cfg(doctest)]
#[doc = include_str!("../README.md")]
struct Package;
