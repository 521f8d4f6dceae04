//! Documents: what of a text is to be translated, and the same text with the translation in its place.
//!
//! ```
//! use simdformer_text::document::{Document, Format};
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
//! | format | a segment is | marks in a segment | what stays besides |
//! |---|---|---|---|
//! | [plain text](Format::Plain) | a paragraph whose lines are wrapped, otherwise a line; a cell where a line has tabs or three spaces | none | indentation, `>` of quotations, markers of lists, lines of template tags (`{% if x %}`) |
//! | [Markdown](Format::Markdown) | the text of a paragraph, heading, list item or table cell, up to a hard line break | emphasis, links and inline HTML wrap; code, formulas and `<https://...>` are kept; images and footnote references are points | front matter, code blocks, link targets and definitions, alternative texts, attributes of headings, lines of template tags |
//! | [HTML](Format::Html) | the text between two block elements or `<br>` | inline elements wrap; `<code>`, `<kbd>`, `<samp>`, `<var>`, `<tt>`, `translate="no"` and `class="notranslate"` are kept; `<img>`, comments and other elements without text are points | `<script>`, `<style>`, `<pre>`, `<textarea>`, `<svg>`, `<math>`, comments, all attributes |
//! | [SRT](Format::Srt) | the text of a cue; a line of it that begins with a dash | `<i>` and other tags wrap; `{\an8}` is a point | numbers, times |
//! | [WebVTT](Format::WebVtt) | the same | the same; times inside a cue are points | header, identifiers, times, settings, `<v Name>`, blocks of notes, styles and regions |
//! | [JSON](Format::Json) | a line of a string that is a value | none | keys, numbers, layout |
//! | [gettext](Format::Gettext) | the `msgid` of a message whose `msgstr` is empty, where its translation is written | a line end is a point | header, contexts, comments, messages with a translation |
//!
//! How a changed segment is written:
//!
//! - Plain text: a paragraph of several lines is wrapped again at the width it had, at spaces.
//! - Markdown and HTML: on one line. An emphasis that Markdown could not read in its new place (`*a*b` is read, `* a*` and
//!   `«*a*»b` are not) becomes `<em>`, `<strong>` or `<del>`. A link by a label that is its own text, `[label]`, becomes
//!   `[new text][label]`.
//! - Subtitles: on at most as many lines as before, of similar lengths.
//!
//! Lines of a plain paragraph are wrapped if the first word of most would not have fit at the end of the line before. So a
//! file with one sentence per line, verse or an address keeps its lines.
//!
//! Everything takes time and memory proportional to the text, whatever it contains.
//! [`Blocks`] reads a long text in parts that are documents themselves.

mod blocks;
mod error;
mod format;
mod gettext;
mod html;
mod inline;
mod json_strings;
mod markdown;
mod markdown_writer;
mod pieces;
mod places;
mod plain;
mod subtitles;
mod tags;
mod wrap;
mod writing;

pub use blocks::Blocks;
pub use error::DocumentError;
pub use format::Format;

use crate::marked_text::{Mark, MarkKind, MarkedText};
use places::{Place, Places};

/// A text of some [`Format`], divided into segments that are to be translated and what lies between them.
#[derive(Clone, Debug)]
pub struct Document {
    source: String,
    segments: Vec<MarkedText>,
    places: Vec<Place>,
    newline: &'static str,
}

impl Document {
    /// Finds the segments of `source`.
    ///
    /// # Errors
    ///
    /// [`DocumentError::Syntax`] if JSON or a message catalog has a string without an end. All other formats accept every
    /// text.
    pub fn parse(source: &str, format: Format) -> Result<Self, DocumentError> {
        // A byte order mark belongs to no segment, and a parser would not see a heading after it.
        let start = if source.starts_with('\u{feff}') { '\u{feff}'.len_utf8() } else { 0 };
        let mut places = Places::new(source);
        match format {
            Format::Plain => plain::parse(source, start, &mut places),
            Format::Markdown => markdown::parse(source, start, &mut places),
            Format::Html => html::parse(source, start..source.len(), &mut places),
            Format::Srt => subtitles::parse(source, start, subtitles::Kind::Srt, &mut places),
            Format::WebVtt => subtitles::parse(source, start, subtitles::Kind::WebVtt, &mut places),
            Format::Json => json_strings::parse(source, start, &mut places)?,
            Format::Gettext => gettext::parse(source, start, &mut places)?,
        }
        let (segments, places) = places.into_parts();
        let newline = match source.find('\n') {
            Some(at) if source.as_bytes()[..at].ends_with(b"\r") => "\r\n",
            _ => "\n",
        };
        Ok(Self { source: source.to_string(), segments, places, newline })
    }

    /// What is to be translated, in the order of the text. Texts have no line breaks.
    pub fn segments(&self) -> &[MarkedText] {
        &self.segments
    }

    /// The document with other segments, one for each of [`segments`](Self::segments).
    ///
    /// # Errors
    ///
    /// [`DocumentError::Segments`] if there are more or fewer; [`DocumentError::Marks`] if the ranges of a segment's marks
    /// are not in its text, or wraps are neither nested nor disjoint.
    pub fn render(&self, translated: &[MarkedText]) -> Result<String, DocumentError> {
        if translated.len() != self.segments.len() {
            return Err(DocumentError::Segments {
                expected: self.segments.len(),
                found: translated.len(),
            });
        }
        let mut out = String::with_capacity(self.source.len());
        for (index, segment) in translated.iter().enumerate() {
            self.write_segment(index, segment, &mut out)?;
        }
        self.write_end(&mut out);
        Ok(out)
    }

    /// Appends what stands between segment `index - 1` (or the begin) and segment `index`, then `translated` in place of
    /// segment `index`. Calls for 0, 1, 2, ... and [`write_end`](Self::write_end) together give
    /// [`render`](Self::render), so that a document is written while later segments are still translated.
    ///
    /// # Errors
    ///
    /// [`DocumentError::Segments`] if there is no segment `index`; [`DocumentError::Marks`] as in `render`.
    pub fn write_segment(
        &self,
        index: usize,
        translated: &MarkedText,
        out: &mut String,
    ) -> Result<(), DocumentError> {
        let (Some(place), Some(segment)) = (self.places.get(index), self.segments.get(index))
        else {
            return Err(DocumentError::Segments {
                expected: self.segments.len(),
                found: index + 1,
            });
        };
        out.push_str(&self.source[self.end_of(index)..place.range.start]);
        if same(segment, translated) {
            out.push_str(&self.source[place.range.clone()]);
            return Ok(());
        }
        let prefix = place.writing.prefix(&self.source);
        writing::write(translated, &place.writing, self.newline, prefix, out)
            .map_err(|reason| DocumentError::Marks { segment: index, reason })
    }

    /// Appends what stands after the last segment.
    pub fn write_end(&self, out: &mut String) {
        out.push_str(&self.source[self.end_of(self.places.len())..]);
    }

    /// Where the segment before segment `index` ends.
    fn end_of(&self, index: usize) -> usize {
        match index.checked_sub(1).and_then(|before| self.places.get(before)) {
            Some(place) => place.range.end,
            None => 0,
        }
    }
}

/// Whether a translation is the source. Marks that only protect text are not compared: a placeholder is a mark of the
/// translator's, not of the document's.
fn same(source: &MarkedText, translated: &MarkedText) -> bool {
    fn written(text: &MarkedText) -> impl Iterator<Item = &Mark> {
        text.marks.iter().filter(|mark| !matches!(mark.kind, MarkKind::Keep { source: None }))
    }
    source.text == translated.text
        && written(source)
            .map(|mark| (&mark.range, &mark.kind))
            .eq(written(translated).map(|mark| (&mark.range, &mark.kind)))
}
