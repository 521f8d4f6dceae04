//! The formats, and how to tell which one a text has.

use crate::error::Error;
use core::fmt;
use std::path::Path;

/// The format of a document.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum Format {
    /// Paragraphs, lists and quotations without markup.
    Plain,
    /// CommonMark with tables, footnotes, task lists, strikethrough, formulas, alerts, definition lists and front matter.
    Markdown,
    /// HTML and XHTML, whole pages or fragments.
    Html,
    /// SubRip subtitles.
    Srt,
    /// WebVTT subtitles.
    WebVtt,
    /// JSON whose values are texts, such as the message files of programs.
    Json,
    /// Message catalogs of gettext.
    Gettext,
    /// Translation memories.
    Tmx,
    /// Pairs of a source and a target, of versions 1.2 and 2.0.
    Xliff,
}

impl Format {
    /// All formats.
    pub const ALL: [Self; 9] = [
        Self::Plain,
        Self::Markdown,
        Self::Html,
        Self::Srt,
        Self::WebVtt,
        Self::Json,
        Self::Gettext,
        Self::Tmx,
        Self::Xliff,
    ];

    /// `text`, `markdown`, `html`, `srt`, `vtt`, `json`, `po`, `tmx` or `xliff`.
    pub fn name(self) -> &'static str {
        match self {
            Self::Plain => "text",
            Self::Markdown => "markdown",
            Self::Html => "html",
            Self::Srt => "srt",
            Self::WebVtt => "vtt",
            Self::Json => "json",
            Self::Gettext => "po",
            Self::Tmx => "tmx",
            Self::Xliff => "xliff",
        }
    }

    /// The format that the extension of a file stands for. `None` without a known extension.
    pub fn from_path(path: impl AsRef<Path>) -> Option<Self> {
        let extension = path.as_ref().extension()?.to_str()?.to_ascii_lowercase();
        Some(match extension.as_str() {
            "txt" | "text" => Self::Plain,
            "md" | "markdown" | "mdown" | "mkd" | "mkdn" => Self::Markdown,
            "html" | "htm" | "xhtml" | "xht" => Self::Html,
            "srt" => Self::Srt,
            "vtt" => Self::WebVtt,
            "json" | "arb" => Self::Json,
            "po" | "pot" => Self::Gettext,
            "tmx" => Self::Tmx,
            "xlf" | "xliff" => Self::Xliff,
            _ => return None,
        })
    }

    /// The format that the first 64 KiB of a text look like; [`Plain`](Self::Plain) if they look like no other.
    ///
    /// Markdown is guessed from front matter, headings (`# `), fences, targets of links, list items with a box and tables.
    pub fn guess(text: &str) -> Self {
        let text = text.strip_prefix('\u{feff}').unwrap_or(text);
        let mut end = text.len().min(64 * 1024);
        while !text.is_char_boundary(end) {
            end -= 1;
        }
        let text = &text[..end];
        let begin = text.trim_start();
        if text.starts_with("WEBVTT") && !text["WEBVTT".len()..].starts_with(char::is_alphanumeric)
        {
            return Self::WebVtt;
        }
        let mut lines = begin.lines();
        if let (Some(number), Some(times)) = (lines.next(), lines.next())
            && number.trim().bytes().all(|byte| byte.is_ascii_digit())
            && super::subtitles::is_timing(times)
        {
            return Self::Srt;
        }
        if text.lines().any(|line| line.starts_with("msgid \"")) {
            return Self::Gettext;
        }
        if begin.starts_with("<?xml") || begin.starts_with("<tmx") || begin.starts_with("<xliff") {
            let root = begin.split('<').find(|tag| tag.starts_with(char::is_alphabetic));
            let name = root.and_then(|tag| tag.split([' ', '\n', '\r', '\t', '>']).next());
            match name {
                Some("tmx") => return Self::Tmx,
                Some("xliff") => return Self::Xliff,
                _ => {}
            }
        }
        if looks_like_html(begin) {
            return Self::Html;
        }
        if let Some(inside) = begin.strip_prefix('{').or_else(|| begin.strip_prefix('['))
            && inside.trim_start().starts_with(['"', '{'])
            && begin.contains('"')
        {
            return Self::Json;
        }
        if looks_like_markdown(text) { Self::Markdown } else { Self::Plain }
    }
}

impl Format {
    /// The error of a text that is not of its format, at a line from 1.
    pub(super) fn error(self, line: usize, expected: &str, found: impl fmt::Display) -> Error {
        Error::invalid_input(format!("line {line} of the {self} document"), expected, found)
    }
}

impl fmt::Display for Format {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

fn looks_like_html(begin: &str) -> bool {
    let starts = |pattern: &str| {
        begin
            .as_bytes()
            .get(..pattern.len())
            .is_some_and(|b| b.eq_ignore_ascii_case(pattern.as_bytes()))
    };
    starts("<!doctype html")
        || starts("<?xml")
        || [
            "html", "head", "body", "div", "p", "table", "ul", "ol", "h1", "h2", "article",
            "section", "main",
        ]
        .iter()
        .any(|name| {
            starts(&format!("<{name}"))
                && begin
                    .as_bytes()
                    .get(name.len() + 1)
                    .is_some_and(|b| matches!(b, b'>' | b' ' | b'\n' | b'\r'))
        })
}

fn looks_like_markdown(text: &str) -> bool {
    let mut lines = text.lines().peekable();
    if matches!(lines.peek(), Some(&"---" | &"+++")) {
        return true;
    }
    lines.any(|line| {
        let line = line.trim_start();
        let heading = line.trim_start_matches('#');
        let level = line.len() - heading.len();
        (1..=6).contains(&level) && heading.starts_with(' ')
            || line.starts_with("```")
            || line.starts_with("~~~")
            || line.starts_with("- [ ] ")
            || line.starts_with("- [x] ")
            || line.contains("](")
            || line.contains("**")
            || line.starts_with('|') && line.contains("---") && line.trim_end().ends_with('|')
    })
}
