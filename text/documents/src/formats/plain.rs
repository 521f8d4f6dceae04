//! Reads plain text: which lines are one paragraph, and what of a line is layout.

use super::inline::{Inline, WhiteSpace};
use super::places::{Lines, Places, Writing, lines};
use super::tags::is_template_line;
use crate::lines::{count_columns, is_wide};
use std::ops::Range;

/// Narrower lines are not wrapped paragraphs, but verse, addresses or menus.
const NARROWEST: usize = 40;
/// Of two lines, the second continues the first without a lower-case letter only if the first is this wide.
const WIDE: usize = 60;

/// A line and what of it is text.
struct Line {
    begin: usize,
    /// Without indentation, signs of quotations, marker, and white space at its end.
    text: Range<usize>,
    /// Columns with all that.
    width: usize,
    indentation: usize,
    quotations: usize,
    /// It begins an item of a list.
    item: bool,
    /// It has tabs or three spaces in the middle, or is a rule: it continues nothing and nothing continues it.
    cells: bool,
}

/// Finds the paragraphs.
pub(super) fn parse(source: &str, start: usize, places: &mut Places) {
    let lines = read_lines(source, start);
    let mut inline = Inline::new(source);
    for block in lines.split(|line| line.text.is_empty()) {
        let width = width(source, block);
        for paragraph in paragraphs(source, block, width) {
            let lines = &block[paragraph];
            let [first, rest @ ..] = lines else { continue };
            if first.cells {
                cells(source, &first.text, &mut inline, places);
                continue;
            }
            inline.raw(first.text.clone(), WhiteSpace::Preserve);
            let mut end = first.text.end;
            for line in rest {
                inline.line_break(end..line.text.start);
                inline.raw(line.text.clone(), WhiteSpace::Preserve);
                end = line.text.end;
            }
            let prefix = rest.first().map(|second| second.begin..second.text.start);
            if let Some(found) = inline.finish(false) {
                let lines = prefix.map(|prefix| Box::new(Lines { width, prefix }));
                places.push(found, Writing::Plain(lines));
            }
        }
    }
}

/// Whether lines, each but the first after `prefix`, are read as one paragraph among others of this width.
pub(super) fn is_one_paragraph(text: &str, prefix: &str, width: usize) -> bool {
    if !text.contains('\n') {
        return true;
    }
    let mut source = String::new();
    for line in text.split('\n') {
        source.extend([prefix, line, "\n"]);
    }
    let lines = read_lines(&source, 0);
    paragraphs(&source, &lines, width).len() == 1
}

/// The cells of a line, each a segment.
fn cells(source: &str, text: &Range<usize>, inline: &mut Inline, places: &mut Places) {
    let mut at = text.start;
    while at < text.end {
        let bytes = &source.as_bytes()[at..text.end];
        let gap = (0..bytes.len()).find(|&i| bytes[i] == b'\t' || bytes[i..].starts_with(b"   "));
        let end = gap.map_or(text.end, |gap| at + gap);
        inline.raw(at..end, WhiteSpace::Preserve);
        if let Some(found) = inline.finish(false) {
            places.push(found, Writing::Plain(None));
        }
        let after = &source[end..text.end];
        at = end + after.len() - after.trim_start().len();
    }
}

fn read_lines(source: &str, start: usize) -> Vec<Line> {
    let mut all: Vec<Line> = Vec::new();
    // The indentations of the items since the last empty line.
    let mut items: Vec<usize> = Vec::new();
    for range in lines(source, start) {
        let line = read_line(source, range, all.last(), &items);
        if line.text.is_empty() {
            items.clear();
        } else if line.item {
            items.push(line.indentation);
        }
        all.push(line);
    }
    all
}

/// Reads the line after `before`; `items` are the indentations of the list items that it may stand beside.
fn read_line(source: &str, range: Range<usize>, before: Option<&Line>, items: &[usize]) -> Line {
    let line = source[range.clone()].trim_end();
    let end = range.start + line.len();
    let (mut indentation, mut quotations) = (0, 0);
    let mut text = line;
    while let Some(first) = text.chars().next() {
        match first {
            '>' => quotations += 1,
            c if c.is_whitespace() => indentation += 1,
            _ => break,
        }
        text = &text[first.len_utf8()..];
    }
    if is_template_line(text) {
        // It stands between paragraphs, as an empty line.
        text = "";
    }
    let mut marker = marker(text);
    let wrapped = |before: &Line| before.quotations == quotations && may_be_wrapped(source, before);
    if begins_with_other_number(text)
        && before.is_some_and(wrapped)
        && !items.contains(&indentation)
    {
        marker = 0;
    }
    let text = &text[marker..];
    Line {
        begin: range.start,
        text: end - text.len()..end,
        width: count_columns(line),
        indentation,
        quotations,
        item: marker > 0,
        cells: text.contains('\t') || text.contains("   ") || !text.contains(char::is_alphanumeric),
    }
}

/// Whether a text begins as an item with another number than 1. Such a line does not begin a list in a paragraph
/// (CommonMark, "Lists"): the lines may be `am` and `12. Dezember`.
fn begins_with_other_number(text: &str) -> bool {
    text.starts_with(|c: char| c.is_ascii_digit())
        && !(text.starts_with("1.") || text.starts_with("1)"))
}

/// Whether the line after this one may continue it: it is wide enough and ends no sentence.
fn may_be_wrapped(source: &str, before: &Line) -> bool {
    !before.text.is_empty()
        && !before.cells
        && before.width >= NARROWEST
        && !ends_sentence(&source[before.text.clone()])
}

/// The bytes of the marker of a list item, with the white space after it: `- `, `12. `, `a) `, `(b) `.
fn marker(text: &str) -> usize {
    let mut rest = text.trim_start_matches(|c: char| c.is_ascii_digit());
    let digits = text.len() - rest.len();
    if (1..=3).contains(&digits) && rest.starts_with(['.', ')']) {
        rest = &rest[1..];
    } else if let Some(after) =
        text.strip_prefix(['-', '*', '+', '•', '·', '◦', '‣', '–', '—', '―'])
    {
        rest = after;
    } else {
        let open = text.strip_prefix('(').unwrap_or(text);
        match open.as_bytes() {
            [letter, b')', ..] if letter.is_ascii_alphanumeric() => rest = &open[2..],
            _ => return 0,
        }
    }
    let after = rest.trim_start();
    // A marker alone on its line is text.
    if after.len() == rest.len() || after.is_empty() { 0 } else { text.len() - after.len() }
}

/// Columns of the widest line. A long address alone on its line says nothing about the width.
fn width(source: &str, lines: &[Line]) -> usize {
    let words = lines.iter().filter(|line| {
        let text = &source[line.text.clone()];
        text.contains(' ') || text.starts_with(is_wide)
    });
    words.map(|line| line.width).max().unwrap_or(0)
}

/// Divides lines without an empty one among them into paragraphs. `width` is that of the widest line.
fn paragraphs(source: &str, lines: &[Line], width: usize) -> Vec<Range<usize>> {
    let text = |line: &Line| &source[line.text.clone()];
    let mut paragraphs = Vec::new();
    let mut begin = 0;
    while begin < lines.len() {
        let mut end = begin + 1;
        while end < lines.len() && may_continue(&lines[end - 1], &lines[end], end - 1 == begin) {
            end += 1;
        }
        let run = &lines[begin..end];
        let full: Vec<bool> = run
            .windows(2)
            .map(|pair| pair[0].width + 1 + first_word(text(&pair[1])) > width)
            .collect();
        let wrapped = full.iter().filter(|&&full| full).count();
        let prose = run.len() >= 3 && wrapped * 5 >= full.len() * 4;
        let verse = wrapped < full.len()
            && run.len() >= 4
            && run.iter().all(|line| starts_in(text(line), char::is_uppercase));
        let mut from = begin;
        for (index, &is_full) in full.iter().enumerate() {
            let line = &run[index];
            let lower = starts_in(text(&run[index + 1]), char::is_lowercase);
            let ends = ends_sentence(text(line));
            let joined = if is_full {
                let certain = lower || run.len() > 2 || line.width >= WIDE;
                certain && (lower || prose || !ends)
            } else {
                // A line that was edited after it was wrapped, in the middle of a sentence.
                let near = |part: usize| line.width * 4 >= width * part;
                !ends && (lower && near(2) && wrapped * 2 >= full.len() || prose && near(3))
            };
            if !joined || width < NARROWEST || verse {
                paragraphs.push(from..begin + index + 1);
                from = begin + index + 1;
            }
        }
        paragraphs.push(from..end);
        begin = end;
    }
    paragraphs
}

/// Whether the layout lets `line` continue the paragraph of `before`, which is its `first` line or not.
fn may_continue(before: &Line, line: &Line, first: bool) -> bool {
    !line.item
        && !before.cells
        && !line.cells
        && before.quotations == line.quotations
        && (first || before.indentation == line.indentation)
}

/// Columns of what would have stood on the line before. A script without spaces may break after any character but
/// punctuation.
fn first_word(text: &str) -> usize {
    if text.starts_with(is_wide) { 4 } else { text.split(' ').next().map_or(0, count_columns) }
}

fn starts_in(text: &str, case: fn(char) -> bool) -> bool {
    text.chars().find(|c| c.is_alphanumeric()).is_some_and(case)
}

fn ends_sentence(text: &str) -> bool {
    text.trim_end_matches(['"', '\'', '”', '’', '»', '“', ')', ']', '」', '』'])
        .ends_with(['.', '!', '?', '…', ':', ';', '。', '！', '？', '：', '；', '؟', '۔', '।'])
}
