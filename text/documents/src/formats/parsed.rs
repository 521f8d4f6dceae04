//! A text of some format and its segments.

use super::Format;
use super::inline::LONGEST;
use super::places::{Cue, Place, Places, Writing};
use super::xml::Vocabulary;
use super::{gettext, html, json_strings, markdown, plain, subtitles, xml};
use crate::error::Error;
use crate::marked_text::MarkedText;
use std::collections::HashSet;

/// What [`Places::into_parts`] expects, and finds.
const AFTER: &str = "a text after the one before it";
const INSIDE: &str = "one inside or before it";

/// What of a document is read.
#[derive(Clone, Debug)]
pub struct ReadOptions {
    /// Attributes of HTML that people read, and titles and alternative texts of Markdown, are segments (true).
    pub attributes: bool,
    /// The language of the translation. In TMX it says which target of a unit is written; without it that is the first other
    /// language of the file. In XLIFF it is written where the file names no language of its targets, which XLIFF 2 requires.
    pub target: Option<String>,
}

impl Default for ReadOptions {
    fn default() -> Self {
        Self { attributes: true, target: None }
    }
}

/// How a part of an archive is read.
#[derive(Clone, Copy, Debug)]
pub(crate) enum PartFormat {
    Xml(&'static Vocabulary),
    Xhtml,
}

/// A text of some [`Format`], divided into segments that are to be translated and what lies between them.
#[derive(Clone, Debug)]
pub struct Document {
    pub(super) source: String,
    pub(super) segments: Vec<MarkedText>,
    pub(super) places: Vec<Place>,
    /// What is written at a place before a changed segment, in order.
    pub(super) insertions: Vec<(usize, String)>,
    pub(super) newline: &'static str,
}

impl Document {
    /// Finds the segments of `source`.
    ///
    /// # Errors
    ///
    /// [`Error::InvalidInput`] if JSON or a message catalog cannot be read: a string without an end, half a surrogate pair
    /// in an escape, a line of a catalog that is neither a comment nor a keyword with a string; if TMX or XLIFF is not well-formed,
    /// defines entities, or needs the language of the translation; if Markdown has too many quotations and lists in each other; if the text has 4 GiB or more; if a text has no place of its own after the text before it. All other formats accept every other text.
    pub fn parse(source: &str, format: Format) -> Result<Self, Error> {
        Self::parse_with(source, format, &ReadOptions::default())
    }

    /// As [`parse`](Self::parse), with other options.
    ///
    /// # Errors
    ///
    /// As [`parse`](Self::parse).
    pub fn parse_with(source: &str, format: Format, options: &ReadOptions) -> Result<Self, Error> {
        let attributes = options.attributes;
        if source.len() >= LONGEST {
            let expected = "less than 4 GiB of text";
            return Err(format.error(1, expected, format_args!("{} bytes", source.len())));
        }
        // A byte order mark belongs to no segment, and a parser would not see a heading after it.
        let start = if source.starts_with('\u{feff}') { '\u{feff}'.len_utf8() } else { 0 };
        let mut places = Places::new(source);
        match format {
            Format::Plain => plain::parse(source, start, &mut places),
            Format::Markdown => markdown::parse(source, start, attributes, &mut places)?,
            Format::Html => {
                let xml = source[start..].starts_with("<?xml");
                let reading = html::Reading { attributes, xml };
                html::parse(source, start..source.len(), reading, &mut places);
            }
            Format::Srt => subtitles::parse(source, start, subtitles::Kind::Srt, &mut places),
            Format::WebVtt => subtitles::parse(source, start, subtitles::Kind::WebVtt, &mut places),
            Format::Json => json_strings::parse(source, start, &mut places)?,
            Format::Gettext => gettext::parse(source, start, &mut places)?,
            Format::Tmx | Format::Xliff => {
                let target = options.target.as_deref();
                xml::parse_pairs(source, start, format, target, &mut places)?;
            }
        }
        let insertions = std::mem::take(&mut places.insertions);
        let (segments, places) =
            places.into_parts().map_err(|line| format.error(line, AFTER, INSIDE))?;
        let newline = match source.find('\n') {
            Some(at) if source.as_bytes()[..at].ends_with(b"\r") => "\r\n",
            _ => "\n",
        };
        Ok(Self { source: source.to_string(), segments, places, insertions, newline })
    }

    /// As [`parse_with`](Self::parse_with), for the part `name` of an archive. Cells whose text is one of `names` stay.
    pub(crate) fn parse_part(
        source: String,
        name: &str,
        format: PartFormat,
        attributes: bool,
        names: &HashSet<String>,
    ) -> Result<Self, Error> {
        let start = if source.starts_with('\u{feff}') { '\u{feff}'.len_utf8() } else { 0 };
        let mut places = Places::new(&source);
        match format {
            PartFormat::Xml(vocabulary) => {
                xml::parse(&source, start, name, vocabulary, attributes, &mut places)?;
            }
            PartFormat::Xhtml => {
                let reading = html::Reading { attributes, xml: true };
                html::parse(&source, start..source.len(), reading, &mut places);
            }
        }
        let (segments, places) = places.into_parts().map_err(|line| {
            Error::invalid_input(format!("line {line} of {name}"), AFTER, INSIDE)
        })?;
        let has_names = matches!(format, PartFormat::Xml(vocabulary) if vocabulary.has_cells());
        let stays = |segment: &MarkedText| has_names && names.contains(&segment.text);
        let found = segments.into_iter().zip(places);
        let (segments, places) = found.filter(|(segment, _)| !stays(segment)).unzip();
        Ok(Self { source, segments, places, insertions: Vec::new(), newline: "\n" })
    }

    /// What was parsed.
    pub fn source(&self) -> &str {
        &self.source
    }

    /// What is to be translated, in the order of the text. Texts have no line breaks.
    pub fn segments(&self) -> &[MarkedText] {
        &self.segments
    }

    /// When segment `index` is shown, if the document has subtitles with times. A sentence may run over segments of several
    /// cues; `Translator` of `simdformer-text` translates it whole.
    pub fn cue(&self, index: usize) -> Option<Cue> {
        match &self.places.get(index)?.writing {
            Writing::Cue { cue, .. } => cue.as_deref().copied(),
            _ => None,
        }
    }
}
