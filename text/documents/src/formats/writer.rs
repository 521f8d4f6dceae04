//! Writes a document step by step.

use super::places::Place;
use super::{Document, writing};
use crate::error::Error;
use crate::marked_text::{Mark, MarkKind, MarkedText};
use std::collections::HashMap;
use std::ops::Range;

/// Writes a document while later segments are still translated.
///
/// ```
/// use simdformer_documents::{Document, DocumentWriter, Format};
///
/// # fn main() -> Result<(), Box<dyn std::error::Error>> {
/// let mut writer = DocumentWriter::new(Document::parse("# Title\n\ntext\n", Format::Markdown)?);
/// let mut out = String::new();
/// while let Some(segment) = writer.next_segment().cloned() {
///     // Here it would be translated.
///     writer.write(&segment, &mut out)?;
/// }
/// writer.finish(&mut out)?;
/// assert_eq!(out, "# Title\n\ntext\n");
/// # Ok(()) }
/// ```
#[derive(Clone, Debug)]
pub struct DocumentWriter {
    document: Document,
    state: State,
}

impl DocumentWriter {
    /// Begins before the first segment.
    #[must_use]
    pub fn new(document: Document) -> Self {
        Self { document, state: State::default() }
    }

    /// The document.
    #[must_use]
    pub fn document(&self) -> &Document {
        &self.document
    }

    /// The segment that is to be written next; `None` after the last one.
    #[must_use]
    pub fn next_segment(&self) -> Option<&MarkedText> {
        self.document.segments.get(self.state.next)
    }

    /// Appends what stands before the next segment, then `translated` in its place. A segment in the markup of a paragraph is
    /// written with the paragraph.
    ///
    /// # Errors
    ///
    /// [`Error::InvalidInput`] after the last segment, and as in [`render`](Document::render).
    pub fn write(&mut self, translated: &MarkedText, out: &mut String) -> Result<(), Error> {
        self.state.write(&self.document, translated, out)
    }

    /// Appends what stands after the last segment.
    ///
    /// # Errors
    ///
    /// [`Error::InvalidInput`] if segments were not written.
    pub fn finish(self, out: &mut String) -> Result<(), Error> {
        self.state.finish(&self.document, out)
    }
}

impl Document {
    /// The document with other segments, one for each of [`segments`](Self::segments).
    ///
    /// # Errors
    ///
    /// [`Error::InvalidInput`] if there are more or fewer; with the index of a segment if the ranges of its marks are not in
    /// its text, or wraps are neither nested nor disjoint.
    pub fn render(&self, translated: &[MarkedText]) -> Result<String, Error> {
        if translated.len() != self.segments.len() {
            return Err(other_segments(self, translated.len()));
        }
        let mut out = String::with_capacity(self.source.len());
        let mut state = State::default();
        for segment in translated {
            state.write(self, segment, &mut out)?;
        }
        state.finish(self, &mut out)?;
        Ok(out)
    }
}

/// The error of `found` segments for those of a document.
fn other_segments(document: &Document, found: usize) -> Error {
    let expected = format!("{}, as the document has", document.segments.len());
    Error::invalid_input("segments", expected, found)
}

/// How much of a document is written.
#[derive(Clone, Debug, Default)]
pub(super) struct State {
    /// The next segment.
    next: usize,
    /// The bytes of the source that are written.
    done: usize,
    /// How many insertions are written.
    inserted: usize,
    /// Changed segments in the markup of the next paragraph: their bytes of the source, and what is written there.
    nested: Vec<(Range<usize>, String)>,
}

impl State {
    pub(super) fn write(
        &mut self,
        document: &Document,
        translated: &MarkedText,
        out: &mut String,
    ) -> Result<(), Error> {
        let source = document.source.as_str();
        let index = self.next;
        let (Some(place), Some(segment)) =
            (document.places.get(index), document.segments.get(index))
        else {
            return Err(other_segments(document, index + 1));
        };
        let unchanged = same(segment, translated);
        let prefix = place.writing.prefix(source);
        let write = |text: &MarkedText, out: &mut String| {
            writing::write(text, &place.writing, document.newline, prefix, out).map_err(|found| {
                Error::InvalidInput {
                    index: Some(index),
                    operand: format!("segment {index}").into(),
                    expected: "marks that fit its text".into(),
                    found: found.into(),
                }
            })
        };
        if place.nested {
            if !unchanged {
                let mut written = String::new();
                write(translated, &mut written)?;
                self.nested.push((place.range(), written));
            }
            self.next += 1;
            return Ok(());
        }
        if unchanged && self.nested.is_empty() && !document.insertions.is_empty() {
            // Whether the text before it stays depends on the segments after it.
            self.next += 1;
            return Ok(());
        }
        let range = place.range();
        // The last one before the segment is that of its file. Files before it have no translation if theirs is not written.
        let before = document.insertions[self.inserted..].iter();
        let before = before.take_while(|(at, _)| *at < range.start).count();
        self.inserted += before;
        if before > 0
            && let (at, insertion) = &document.insertions[self.inserted - 1]
            && *at >= self.done
        {
            out.extend([&source[self.done..*at], insertion]);
            self.done = *at;
        }
        out.push_str(&source[self.done..range.start]);
        if unchanged {
            self.with_nested(source, &range, out);
        } else if self.nested.is_empty() {
            write(translated, out)?;
        } else {
            write(&self.with_markup(source, place, translated), out)?;
        }
        self.nested.clear();
        self.done = range.end;
        self.next += 1;
        Ok(())
    }

    pub(super) fn finish(self, document: &Document, out: &mut String) -> Result<(), Error> {
        if self.next < document.segments.len() {
            return Err(other_segments(document, self.next));
        }
        out.push_str(&document.source[self.done..]);
        Ok(())
    }

    /// Appends a part of the source with the nested segments in their places.
    fn with_nested(&self, source: &str, range: &Range<usize>, out: &mut String) {
        let mut at = range.start;
        let first = self.nested.partition_point(|(place, _)| place.start < range.start);
        for (place, written) in &self.nested[first..] {
            if place.end > range.end {
                break;
            }
            out.push_str(&source[at..place.start]);
            out.push_str(written);
            at = place.end;
        }
        out.push_str(&source[at..range.end]);
    }

    /// The text with the nested segments in the markup of its marks. Equal pieces of markup have equal nested segments.
    fn with_markup(&self, source: &str, place: &Place, translated: &MarkedText) -> MarkedText {
        let new = |range: &Range<usize>| {
            let mut new = String::new();
            self.with_nested(source, range, &mut new);
            (&source[range.clone()], new)
        };
        let written: HashMap<&str, String> = place.markup.iter().map(new).collect();
        let mut text = translated.clone();
        let replace = |markup: &mut String| {
            if let Some(new) = written.get(markup.as_str()) {
                markup.clone_from(new);
            }
        };
        for Mark { kind, .. } in &mut text.marks {
            match kind {
                MarkKind::Wrap { open, close } => {
                    replace(open);
                    replace(close);
                }
                MarkKind::Keep { source: Some(markup) } | MarkKind::Point { source: markup } => {
                    replace(markup);
                }
                MarkKind::Keep { source: None } => {}
            }
        }
        text
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
