//! Writes a translation with its marks.

use super::tree::{NodeKind, Texts};
use super::units::Units;
use super::{Mark, MarkedText};
use crate::scripts::is_spaceless;
use std::ops::Range;

/// What stands beside a kept piece in the source, where it is inserted into the translation.
#[derive(Clone, Copy, Debug)]
struct Sides {
    before: Option<char>,
    after: Option<char>,
}

fn is_space(letter: Option<char>) -> bool {
    letter.is_none_or(char::is_whitespace)
}

/// Whether a letter would run together with a letter beside it.
fn is_letter(letter: Option<char>) -> bool {
    letter.is_some_and(|letter| letter.is_alphanumeric() && !is_spaceless(letter))
}

/// Whether a space is needed between `last` and `first`, of which at least one belongs to an inserted piece.
/// `spaced` is whether the translation has a space there.
fn needs_space(
    last: char,
    left: Option<Sides>,
    first: char,
    right: Option<Sides>,
    spaced: bool,
) -> bool {
    if last.is_whitespace() || first.is_whitespace() {
        return false;
    }
    let opens =
        matches!(last, '(' | '[' | '{' | '\u{ab}' | '\u{2018}' | '\u{201c}' | '\u{bf}' | '\u{a1}');
    let closes = matches!(
        first,
        ')' | ']' | '}' | '\u{bb}' | '\u{2019}' | '\u{201d}' | ',' | '.' | ';' | ':' | '!' | '?'
    );
    match (left, right) {
        (Some(left), Some(right)) => is_space(left.after) || is_space(right.before),
        (None, Some(right)) if is_space(right.before) => !opens && (spaced || !is_spaceless(last)),
        (None, Some(right)) => is_letter(Some(last)) && !is_letter(right.before),
        (Some(left), _) if is_space(left.after) => !closes && (spaced || !is_spaceless(first)),
        (Some(left), _) => is_letter(Some(first)) && !is_letter(left.after),
        (None, None) => false,
    }
}

/// The translation so far.
struct Output<'a> {
    target: &'a str,
    text: String,
    marks: Vec<Mark>,
    /// The marks that begin with the next part.
    pending: Vec<usize>,
    /// How much of the translation is written, and the white space before the next part of it.
    read: usize,
    gap: &'a str,
    /// Whether that white space was there, before a piece took it.
    spaced: bool,
    /// What was beside the last part, if that was inserted.
    last: Option<Sides>,
    /// Whether a piece was inserted since the last part of the translation.
    inserted: bool,
}

impl<'a> Output<'a> {
    /// Writes a part: bytes of the translation, or a piece in their place; or a piece that is inserted, with its `sides`.
    /// Returns its range.
    fn part(
        &mut self,
        raw: Option<Range<usize>>,
        text: &str,
        sides: Option<Sides>,
    ) -> Range<usize> {
        let Some(first) = text.chars().next() else {
            return self.text.len()..self.text.len();
        };
        let needed = self
            .text
            .chars()
            .next_back()
            .is_some_and(|last| needs_space(last, self.last, first, sides, self.spaced));
        let between = raw.is_some() && !self.inserted;
        if between || needed || (raw.is_some() && !self.gap.is_empty()) {
            let space = if self.gap.is_empty() && !between { " " } else { self.gap };
            self.text.push_str(space);
            self.gap = "";
        }
        let start = self.text.len();
        self.settle();
        self.text.push_str(text);
        self.last = sides;
        self.inserted = raw.is_none();
        if let Some(raw) = raw {
            self.pass(raw.end);
        }
        start..self.text.len()
    }

    /// The translation is written up to `end`: its white space comes before what follows.
    fn pass(&mut self, end: usize) {
        self.read = self.read.max(end);
        let rest = self.target.get(self.read..).unwrap_or_default();
        self.gap = &rest[..rest.len() - rest.trim_start().len()];
        self.spaced = !self.gap.is_empty();
    }

    /// Writes a space where the translation has one between two parts, so that there is one on both sides of what comes
    /// here. Returns whether it did.
    fn space(&mut self) -> bool {
        let between = !self.gap.is_empty()
            && !self.text.is_empty()
            && !self.text.ends_with(char::is_whitespace)
            && self.pending.is_empty();
        if between {
            self.text.push(' ');
        }
        between
    }

    /// Begins a mark: where the next part begins, or here if `here`.
    fn begin(&mut self, mark: Mark, here: bool) -> usize {
        let at = self.text.len();
        if !(here && self.pending.is_empty()) {
            self.pending.push(self.marks.len());
        }
        self.marks.push(Mark { range: at..at, ..mark });
        self.marks.len() - 1
    }

    /// Ends a wrap here. If nothing is in it, it is empty. What has begun in it begins here too.
    fn end(&mut self, index: usize) {
        // If a wrap around it has not begun either, both begin with the next part.
        if self.pending.iter().position(|&pending| pending == index).is_some_and(|place| place > 0)
        {
            return;
        }
        self.settle();
        if let Some(mark) = self.marks.get_mut(index) {
            mark.range.end = self.text.len();
        }
    }

    /// The marks that have not begun begin here.
    fn settle(&mut self) {
        let at = self.text.len();
        for index in self.pending.drain(..) {
            if let Some(mark) = self.marks.get_mut(index) {
                mark.range = at..at;
            }
        }
    }
}

/// A node that is open.
struct Open {
    node: usize,
    /// The next of its children.
    next: usize,
    mark: Option<usize>,
}

/// The translation of `texts` with the marks of its source, for the units and the intervals of all nodes.
pub(super) fn write(
    texts: &Texts<'_>,
    units: &Units,
    intervals: &[Option<Range<usize>>],
) -> MarkedText {
    let (nodes, source) = (texts.nodes, &texts.source.text);
    let interval = |node: usize| intervals.get(node).cloned().flatten();
    let children = children(texts, intervals);
    let text_of =
        |index: usize| source.get(texts.source.marks[index].range.clone()).unwrap_or_default();
    let sides = |index: usize| {
        let range = &texts.source.marks[index].range;
        Sides {
            before: source.get(..range.start).and_then(|before| before.chars().next_back()),
            after: source.get(range.end..).and_then(|after| after.chars().next()),
        }
    };
    let mut output = Output {
        target: texts.target,
        text: String::with_capacity(texts.target.len() + 16),
        marks: Vec::with_capacity(texts.source.marks.len()),
        pending: Vec::new(),
        read: 0,
        gap: "",
        spaced: false,
        last: None,
        inserted: false,
    };
    output.pass(0);
    output.text.push_str(output.gap);
    output.pass(output.gap.len());
    let piece = |output: &mut Output<'_>, index: usize, raw: Option<Range<usize>>| {
        let mark = &texts.source.marks[index];
        let inserted = raw.is_none().then(|| sides(index));
        let range = output.part(raw, text_of(index), inserted);
        output.marks.push(Mark { range: range.clone(), ..mark.clone() });
        range.start
    };
    let mut at = 0;
    let mut open = vec![Open { node: 0, next: 0, mark: None }];
    while let Some(top) = open.last_mut() {
        let node = top.node;
        if let Some(&child) = children[node].get(top.next)
            && interval(child).is_some_and(|range| range.start <= at)
        {
            top.next += 1;
            let mark = match nodes[child].kind {
                NodeKind::Tags(opener, _) => {
                    piece(&mut output, opener, None);
                    None
                }
                NodeKind::Point(index) => {
                    let beside = sides(index);
                    let here = match beside.before.map(char::is_whitespace) {
                        // A space stays on both sides.
                        Some(true) if beside.after.is_some_and(char::is_whitespace) => {
                            output.space()
                        }
                        before => before == Some(false),
                    };
                    output.begin(texts.source.marks[index].clone(), here);
                    None
                }
                NodeKind::Wrap(index) => {
                    Some(output.begin(texts.source.marks[index].clone(), false))
                }
                NodeKind::Root | NodeKind::Keep(_) => None,
            };
            if !matches!(nodes[child].kind, NodeKind::Point(_)) {
                open.push(Open { node: child, next: 0, mark });
            }
        } else if at < interval(node).map_or(0, |range| range.end) {
            let unit = &units.list[at];
            at += 1;
            let raw = (unit.row.is_some() || unit.gone).then(|| unit.range.clone());
            match unit.piece.map(|node| &nodes[node]) {
                _ if unit.gone => {
                    let gap = output.gap;
                    output.pass(unit.range.end);
                    // Of the white space around it, one part stays; none at the start of the text.
                    output.gap = if output.text.trim().is_empty() {
                        ""
                    } else if gap.is_empty() {
                        output.gap
                    } else {
                        gap
                    };
                }
                Some(node) => {
                    let NodeKind::Keep(index) = node.kind else { continue };
                    let start = piece(&mut output, index, raw);
                    for mark in
                        node.inside.iter().filter_map(|&index| texts.source.marks.get(index))
                    {
                        let moved = |place: usize| start + place.saturating_sub(node.content.start);
                        let range = moved(mark.range.start)..moved(mark.range.end);
                        output.marks.push(Mark { range, ..mark.clone() });
                    }
                }
                None => {
                    let text = texts.target.get(unit.range.clone()).unwrap_or_default();
                    output.part(raw, text, None);
                }
            }
        } else {
            if let Some(mark) = top.mark {
                output.end(mark);
            }
            if let NodeKind::Tags(_, closer) = nodes[node].kind {
                piece(&mut output, closer, None);
            }
            open.pop();
        }
    }
    if !output.gap.is_empty() {
        // The white space at the end, not that before a copy of a piece.
        output.pass(output.read);
        output.text.push_str(output.gap);
    }
    output.settle();
    MarkedText { text: output.text, marks: output.marks }
}

/// The nodes in each node, in the order of the translation; at one place those without a unit first. What is in a wrap that
/// is omitted belongs to the next one around it.
fn children(texts: &Texts<'_>, intervals: &[Option<Range<usize>>]) -> Vec<Vec<usize>> {
    let nodes = texts.nodes;
    let mut owner: Vec<usize> = vec![0; nodes.len()];
    let mut children: Vec<Vec<usize>> = vec![Vec::new(); nodes.len()];
    for (index, node) in nodes.iter().enumerate().skip(1) {
        let parent = node.parent;
        owner[index] = if intervals[parent].is_some() { parent } else { owner[parent] };
        if intervals[index].is_some() {
            children[owner[index]].push(index);
        }
    }
    for nodes in &mut children {
        nodes.sort_by_key(|&node| {
            let range = intervals[node].clone().unwrap_or(0..0);
            (range.start, !range.is_empty(), node)
        });
    }
    children
}
