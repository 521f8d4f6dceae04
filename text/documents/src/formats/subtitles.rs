//! Reads SubRip and WebVTT subtitles.
//!
//! A cue is a segment. Its line breaks are layout: the model sees one line. A line that begins with a dash or with the name of
//! a voice (`<v Ann>`) is another speaker's, so it begins a segment of its own. A line of tags alone stays a line.

use super::inline::{Becomes, Inline, WhiteSpace};
use super::places::{Cue, Places, Writing, lines};
use super::tags;
use std::ops::Range;
use std::time::Duration;

#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum Kind {
    Srt,
    WebVtt,
}

/// Whether a line has the times of a cue: `00:00:01,000 --> 00:00:02,500`.
pub(super) fn is_timing(line: &str) -> bool {
    let Some((from, to)) = line.split_once("-->") else { return false };
    let from = from.trim();
    from.contains(':')
        && from.bytes().all(|byte| byte.is_ascii_digit() || b":.,".contains(&byte))
        && to.trim_start().starts_with(|c: char| c.is_ascii_digit())
}

/// The times of a cue, if the line has both, in order.
fn times(line: &str) -> Option<Range<Duration>> {
    let (from, to) = line.split_once("-->")?;
    let begin = time(from.trim())?;
    // In WebVTT, settings follow.
    let end = time(to.split_whitespace().next()?)?;
    (begin <= end).then_some(begin..end)
}

/// `01:02:03,456`, `02:03.456`
fn time(text: &str) -> Option<Duration> {
    let (whole, fraction) = text.split_once([',', '.']).unwrap_or((text, ""));
    let mut seconds = 0_u64;
    for part in whole.split(':') {
        seconds = seconds.checked_mul(60)?.checked_add(part.trim().parse().ok()?)?;
    }
    let digits = fraction.get(..fraction.len().min(3))?;
    let scale = 10_u64.pow(3 - digits.len() as u32);
    let millis = if digits.is_empty() { 0 } else { digits.parse::<u64>().ok()? * scale };
    Some(Duration::from_secs(seconds).saturating_add(Duration::from_millis(millis)))
}

/// Finds the cues.
pub(super) fn parse(source: &str, start: usize, kind: Kind, places: &mut Places) {
    let lines = lines(source, start);
    let text = |index: usize| lines.get(index).map_or("", |range| source[range.clone()].trim());
    let inline = Inline::new(source);
    let mut reader = Reader { source, kind, inline, times: None, new_speaker: true, places };
    let mut index = 0;
    let mut after_blank = true;
    if kind == Kind::WebVtt && text(0).starts_with("WEBVTT") {
        index = skip_block(&lines, 0, &text);
    }
    while index < lines.len() {
        let line = text(index);
        let first = after_blank;
        after_blank = line.is_empty();
        if line.is_empty()
            || is_timing(line)
            || is_number(line, kind, first) && is_timing(text(index + 1))
        {
            if is_timing(line) {
                reader.times = times(line);
            }
            index += 1;
        } else if kind == Kind::WebVtt && first && is_other_block(line) {
            index = skip_block(&lines, index, &text);
        } else {
            let begin = index;
            index += 1;
            while index < lines.len() {
                let line = text(index);
                let ends = line.is_empty() || is_timing(line);
                if ends || is_number(line, kind, false) && is_timing(text(index + 1)) {
                    break;
                }
                index += 1;
            }
            reader.cue(&lines[begin..index]);
        }
    }
}

/// Whether a line before the times names the cue: a number, in WebVTT any text after an empty line.
fn is_number(line: &str, kind: Kind, after_blank: bool) -> bool {
    kind == Kind::WebVtt && after_blank || line.bytes().all(|byte| byte.is_ascii_digit())
}

fn is_other_block(line: &str) -> bool {
    ["NOTE", "STYLE", "REGION"].into_iter().any(|name| {
        line.strip_prefix(name)
            .is_some_and(|rest| rest.chars().next().is_none_or(char::is_whitespace))
    })
}

fn skip_block<'s>(lines: &[Range<usize>], from: usize, text: &impl Fn(usize) -> &'s str) -> usize {
    (from..lines.len()).find(|&index| text(index).is_empty()).unwrap_or(lines.len())
}

/// The dash that a line begins with, also after tags, and the white space after it.
fn dash(line: &str) -> Option<Range<usize>> {
    let mut rest = line;
    while let Some(tag) = rest.strip_prefix('<') {
        let end = tag.find(['<', '>']).filter(|&end| tag[end..].starts_with('>'))?;
        rest = tag[end + 1..].trim_start();
    }
    let said = rest.strip_prefix(['-', '‐', '–', '—'])?.trim_start();
    Some(line.len() - rest.len()..line.len() - said.len())
}

struct Reader<'s, 'p, 'q> {
    source: &'s str,
    kind: Kind,
    inline: Inline<'s>,
    /// The times of the cue.
    times: Option<Range<Duration>>,
    /// The next segment is another speaker's.
    new_speaker: bool,
    places: &'p mut Places<'q>,
}

impl Reader<'_, '_, '_> {
    fn cue(&mut self, lines: &[Range<usize>]) {
        let mut count = 0;
        let mut end = 0;
        for line in lines {
            let text = &self.source[line.clone()];
            let trimmed = text.trim_start();
            let begin = line.start + text.len() - trimmed.len();
            let dash = dash(trimmed);
            let voice = trimmed.starts_with("<v ") || trimmed.starts_with("<v.");
            let tags_alone = self.is_tags(begin..line.end);
            if dash.is_some() || voice || tags_alone {
                self.end_segment(count);
                count = 0;
            }
            self.new_speaker |= dash.is_some() || voice;
            if tags_alone {
                continue;
            }
            if count > 0 {
                self.inline.line_break(end..begin);
            }
            count += 1;
            end = line.end;
            let mut from = begin;
            if let Some(dash) = dash {
                self.line(begin..begin + dash.start);
                self.inline.hidden(begin + dash.start..begin + dash.end);
                from = begin + dash.end;
            }
            self.line(from..line.end);
        }
        self.end_segment(count);
    }

    fn end_segment(&mut self, lines: u32) {
        let Some(found) = self.inline.finish(false) else {
            // A line without letters, such as a note of music, stands between two sentences.
            self.new_speaker |= lines > 0;
            return;
        };
        let new_speaker = self.new_speaker;
        let cue = self.times.clone();
        let cue = cue.map(|Range { start: begin, end }| Box::new(Cue { begin, end, new_speaker }));
        let vtt = self.kind == Kind::WebVtt;
        self.places.push(found, Writing::Cue { lines, vtt, cue });
        self.new_speaker = false;
    }

    /// Whether a line has tags and no text.
    fn is_tags(&self, range: Range<usize>) -> bool {
        let mut at = range.start;
        loop {
            let rest = self.source[at..range.end].trim_start();
            if rest.is_empty() {
                return at > range.start;
            }
            let begin = range.end - rest.len();
            let end = match rest.as_bytes().first() {
                Some(b'<') => self.tag_end(begin..range.end),
                Some(b'{') if self.kind == Kind::Srt => self.override_end(begin..range.end),
                _ => None,
            };
            let Some(end) = end else { return false };
            at = end;
        }
    }

    /// The text and tags of a line.
    fn line(&mut self, range: Range<usize>) {
        let bytes = self.source.as_bytes();
        let mut from = range.start;
        let mut at = range.start;
        while at < range.end {
            let end = match (bytes[at], self.kind) {
                (b'<', _) => self.tag_end(at..range.end),
                (b'{', Kind::Srt) => self.override_end(at..range.end),
                (b'&', Kind::WebVtt) => tags::decode_reference(&self.source[at..range.end])
                    .map(|(_, length)| at + length),
                _ => None,
            };
            let Some(end) = end else {
                at += 1;
                continue;
            };
            self.inline.raw(from..at, WhiteSpace::Preserve);
            if bytes[at] == b'&' {
                if let Some((characters, _)) = tags::decode_reference(&self.source[at..end]) {
                    self.inline.decoded(at..end, &characters);
                }
            } else {
                self.markup(at..end);
            }
            at = end;
            from = end;
        }
        self.inline.raw(from..range.end, WhiteSpace::Preserve);
    }

    fn tag_end(&self, range: Range<usize>) -> Option<usize> {
        let bytes = self.source.as_bytes();
        let first = *bytes.get(range.start + 1)?;
        let is_tag = first.is_ascii_alphabetic()
            || first == b'/'
            || first.is_ascii_digit() && self.kind == Kind::WebVtt;
        // Not beyond another `<`: so each byte is looked at twice at most.
        let end = bytes[range.start + 1..range.end]
            .iter()
            .position(|byte| matches!(byte, b'<' | b'>'))?;
        let end = range.start + 1 + end;
        (is_tag && bytes[end] == b'>').then_some(end + 1)
    }

    /// `{\an8}`
    fn override_end(&self, range: Range<usize>) -> Option<usize> {
        let inside = self.source[range.start + 1..range.end].strip_prefix('\\')?;
        let end = inside.find(['{', '}'])?;
        inside[end..].starts_with('}').then_some(range.start + 2 + end + 1)
    }

    fn markup(&mut self, range: Range<usize>) {
        let tag = &self.source[range.start + 1..range.end - 1];
        let (tag, closing) = match tag.strip_prefix('/') {
            Some(tag) => (tag, true),
            None => (tag, false),
        };
        let name = tag
            .split(|c: char| c.is_ascii_whitespace() || matches!(c, '.' | '/'))
            .next()
            .unwrap_or("");
        if closing {
            self.inline.close(range, name, None);
        } else if !name.starts_with(|c: char| c.is_ascii_alphabetic()) || tag.ends_with('/') {
            self.inline.hidden(range);
        } else {
            let becomes =
                if name.eq_ignore_ascii_case("rt") { Becomes::Point } else { Becomes::Wrap };
            self.inline.open(range, name, becomes);
        }
    }
}
