//! Writes the text of a paragraph in runs.

use crate::formats::pieces::{Piece, pieces};
use crate::marked_text::{Mark, MarkKind};
use std::sync::Arc;

/// How a changed segment is written: in the runs of its paragraph, or bare.
#[derive(Clone, Debug)]
pub(crate) struct Runs {
    /// The begin of a run of the most frequent properties: those of the text that no mark is around. Without it the text is
    /// bare.
    pub(super) base: Option<Arc<str>>,
    /// The begins of the runs that are open before the segment and after it.
    pub(super) around: [Option<Arc<str>>; 2],
    pub(super) tags: Arc<Tags>,
    /// White space at both ends.
    pub(super) space: [Box<str>; 2],
    /// The numbers of the points that stay in their order.
    pub(super) ordered: Box<[usize]>,
}

/// How the target of a pair is written: what stands around its text.
#[derive(Clone, Debug)]
pub(crate) struct Pair {
    pub(crate) runs: Runs,
    pub(crate) around: [String; 2],
}

/// What is written around texts in runs.
#[derive(Debug, Default)]
pub(crate) struct Tags {
    /// `</w:r>`
    pub(super) run_end: String,
    /// `<w:t xml:space="preserve">`, `</w:t>`
    pub(super) text: [String; 2],
}

/// Appends `text`, which has no line ends.
pub(crate) fn write(
    text: &str,
    marks: &[Mark],
    runs: &Runs,
    out: &mut String,
) -> Result<(), &'static str> {
    let ordered = in_order(marks, &runs.ordered);
    let marks = ordered.as_deref().unwrap_or(marks);
    let is_run = |mark: usize| match marks.get(mark).map(|mark| &mark.kind) {
        Some(MarkKind::Wrap { close, .. }) => !close.is_empty() && *close == runs.tags.run_end,
        _ => false,
    };
    let base = runs.base.as_deref();
    let mut writer =
        Writer { tags: &runs.tags, open: runs.around[0].as_deref(), text: String::new(), out };
    writer.text(base, &runs.space[0]);
    // The begins of the runs that the next text is in, and that of the last text.
    let mut styles: Vec<Option<&str>> = vec![base];
    let mut last = base;
    for piece in pieces(text, marks)? {
        match piece {
            Piece::Open(mark, open) if is_run(mark) => styles.push(Some(open)),
            Piece::Close(mark, _) if is_run(mark) => {
                styles.pop();
            }
            Piece::Text(text) => {
                last = styles.last().copied().flatten();
                writer.text(last, text);
            }
            other => writer.markup(other.as_str()),
        }
    }
    writer.text(last, &runs.space[1]);
    writer.end(runs.around[1].as_deref());
    Ok(())
}

/// The marks, with those points whose number is in `ordered` in the order of their numbers. `None` if they are.
fn in_order(marks: &[Mark], ordered: &[usize]) -> Option<Vec<Mark>> {
    let is_ordered = |mark: &Mark| {
        matches!(mark.kind, MarkKind::Point { .. }) && ordered.binary_search(&mark.id).is_ok()
    };
    let places: Vec<usize> = (0..marks.len()).filter(|&place| is_ordered(&marks[place])).collect();
    if places.is_sorted_by_key(|&place| marks[place].id) {
        return None;
    }
    let mut sorted = places.clone();
    sorted.sort_by_key(|&place| marks[place].id);
    let mut new = marks.to_vec();
    for (&to, from) in places.iter().zip(sorted) {
        new[to] = Mark { range: marks[to].range.clone(), ..marks[from].clone() };
    }
    Some(new)
}

struct Writer<'r, 'o> {
    tags: &'r Tags,
    /// The begin of the run that is open.
    open: Option<&'r str>,
    /// What is still to be written in it.
    text: String,
    out: &'o mut String,
}

impl<'r> Writer<'r, '_> {
    /// Text in a run that begins with `style`, or bare.
    fn text(&mut self, style: Option<&'r str>, text: &str) {
        if text.is_empty() {
            return;
        }
        if self.open != style {
            self.end(style);
        }
        self.text.push_str(text);
    }

    /// A tag, or runs that stay.
    fn markup(&mut self, markup: &str) {
        let [open, close] = &self.tags.text;
        let rest =
            markup.strip_suffix(&*self.tags.run_end).and_then(|rest| rest.strip_suffix(&**close));
        if rest.and_then(|rest| rest.strip_suffix('\n')).is_some_and(|rest| rest.ends_with(&**open))
            && self.text.ends_with(' ')
        {
            // The space before a line end was put there for the model.
            self.text.pop();
        }
        self.end(None);
        self.out.push_str(markup);
    }

    /// Ends the run, and begins another.
    fn end(&mut self, next: Option<&'r str>) {
        let text = std::mem::take(&mut self.text);
        match self.open {
            Some(_) if !text.is_empty() => {
                let [open, close] = &self.tags.text;
                self.out.push_str(open);
                escape(&text, self.out);
                self.out.push_str(close);
            }
            _ => escape(&text, self.out),
        }
        if self.open == next {
            return;
        }
        if self.open.is_some() {
            self.out.push_str(&self.tags.run_end);
        }
        self.out.extend(next);
        self.open = next;
    }
}

/// Text of XML. A character that XML does not have is written as the replacement character.
pub(crate) fn escape(text: &str, out: &mut String) {
    for c in text.chars() {
        match c {
            '&' => out.push_str("&amp;"),
            '<' => out.push_str("&lt;"),
            '>' => out.push_str("&gt;"),
            '\0'..='\u{8}' | '\u{b}' | '\u{c}' | '\u{e}'..='\u{1f}' | '\u{fffe}' | '\u{ffff}' => {
                out.push('\u{fffd}');
            }
            other => out.push(other),
        }
    }
}
