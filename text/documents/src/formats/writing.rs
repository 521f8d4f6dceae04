//! Writes a changed segment with the escapes of its format.

use super::markdown_writer;
use super::pieces::{Piece, pieces};
use super::places::Writing;
use super::{icu, plain, wrap, xml};
use crate::lines::count_columns;
use crate::marked_text::MarkedText;
use std::fmt::Write;

/// Appends `segment`. The error says what is wrong with its marks.
pub(super) fn write(
    segment: &MarkedText,
    writing: &Writing,
    newline: &str,
    prefix: &str,
    out: &mut String,
) -> Result<(), &'static str> {
    let MarkedText { text, marks } = segment;
    if let Writing::Json { ascii } = writing {
        for piece in pieces(text, marks)? {
            json(piece.as_str(), *ascii, out);
        }
        return Ok(());
    }
    // Lines are divided below. Both are one byte, so the marks stay where they are.
    let text: &str = &text.replace(['\n', '\r'], " ");
    match writing {
        Writing::Plain(Some(around)) => {
            let width = around.width;
            let inside = width.saturating_sub(count_columns(prefix));
            let mut lines = wrap::to_width(text, marks, inside);
            if !plain::is_one_paragraph(&lines, prefix, width) {
                lines = text.to_string();
            }
            for piece in pieces(&lines, marks)? {
                broken(piece.as_str(), newline, prefix, out);
            }
        }
        Writing::Plain(None) => {
            for piece in pieces(text, marks)? {
                out.push_str(piece.as_str());
            }
        }
        Writing::Markdown(context) => markdown_writer::write(text, marks, *context, out)?,
        Writing::Html { xml } => {
            for piece in pieces(text, marks)? {
                match piece {
                    Piece::Text(text) if *xml => xml::escape(text, out),
                    Piece::Text(text) => escape(text, out),
                    other => out.push_str(other.as_str()),
                }
            }
        }
        Writing::Attribute { quote, xml } => {
            let sign = quote.unwrap_or('"');
            out.extend(quote.xor(Some(sign)));
            for piece in pieces(text, marks)? {
                attribute(piece.as_str(), sign, *xml, out);
            }
            out.extend(quote.xor(Some(sign)));
        }
        Writing::Cue { lines, vtt, .. } => {
            if text.trim().is_empty() {
                // An empty line would end the cue.
                out.push('\u{200b}');
            }
            let lines = wrap::to_lines(text, marks, *lines as usize);
            for piece in pieces(&lines, marks)? {
                match piece {
                    Piece::Text(text) => {
                        for (index, line) in text.split('\n').enumerate() {
                            if index > 0 {
                                out.push_str(newline);
                            }
                            if *vtt {
                                escape(line, out);
                            } else {
                                // SRT has no escapes, and this would begin another cue.
                                out.push_str(&line.replace("-->", "→"));
                            }
                        }
                    }
                    other => out.push_str(other.as_str()),
                }
            }
        }
        Writing::Runs(runs) => xml::write(text, marks, runs, out)?,
        Writing::Pair(pair) => {
            let [before, after] = &pair.around;
            out.push_str(before);
            xml::write(text, marks, &pair.runs, out)?;
            out.push_str(after);
        }
        Writing::Gettext(around) => {
            let [before, after] = &**around;
            out.extend(["\"", before]);
            for piece in pieces(text, marks)? {
                match piece {
                    Piece::Text(text) => message(text, out),
                    other => {
                        // The space before a line end was put there for the model.
                        out.truncate(out.trim_end_matches(' ').len());
                        out.push_str(other.as_str());
                    }
                }
            }
            out.extend([after, "\""]);
        }
        Writing::Icu { ascii, doubled, plural } => {
            for piece in pieces(text, marks)? {
                match piece {
                    Piece::Text(text) => json(&icu::quote(text, *doubled, *plural), *ascii, out),
                    other => out.push_str(other.as_str()),
                }
            }
        }
        Writing::Json { .. } => {}
    }
    Ok(())
}

fn broken(text: &str, newline: &str, prefix: &str, out: &mut String) {
    for (index, line) in text.split('\n').enumerate() {
        if index > 0 {
            out.push_str(newline);
            out.push_str(prefix);
        }
        out.push_str(line);
    }
}

/// Text of HTML and WebVTT. A space that does not break is written by name, because it looks like any other space.
fn escape(text: &str, out: &mut String) {
    for c in text.chars() {
        match c {
            '&' => out.push_str("&amp;"),
            '<' => out.push_str("&lt;"),
            '>' => out.push_str("&gt;"),
            '\u{a0}' => out.push_str("&nbsp;"),
            other => out.push(other),
        }
    }
}

/// The value of an attribute between two of `quote`.
fn attribute(text: &str, quote: char, xml: bool, out: &mut String) {
    for c in text.chars() {
        match c {
            '&' => out.push_str("&amp;"),
            '<' => out.push_str("&lt;"),
            '\u{a0}' if !xml => out.push_str("&nbsp;"),
            '"' if quote == '"' => out.push_str("&quot;"),
            '\'' if quote == '\'' => out.push_str("&#39;"),
            c if xml => xml::escape(c.encode_utf8(&mut [0; 4]), out),
            other => out.push(other),
        }
    }
}

/// The inside of a string of gettext, which has the escapes of C.
fn message(text: &str, out: &mut String) {
    for c in text.chars() {
        match c {
            '"' => out.push_str("\\\""),
            '\\' => out.push_str("\\\\"),
            '\t' => out.push_str("\\t"),
            c if u32::from(c) < 0x20 => {
                // Writing to a string does not fail.
                let _ = write!(out, "\\{:03o}", u32::from(c));
            }
            other => out.push(other),
        }
    }
}

/// The inside of a string of JSON.
fn json(text: &str, ascii: bool, out: &mut String) {
    for c in text.chars() {
        match c {
            '"' => out.push_str("\\\""),
            '\\' => out.push_str("\\\\"),
            '\n' => out.push_str("\\n"),
            '\r' => out.push_str("\\r"),
            '\t' => out.push_str("\\t"),
            c if u32::from(c) < 0x20 || ascii && !c.is_ascii() => {
                for unit in c.encode_utf16(&mut [0; 2]) {
                    // Writing to a string does not fail.
                    let _ = write!(out, "\\u{unit:04x}");
                }
            }
            other => out.push(other),
        }
    }
}
