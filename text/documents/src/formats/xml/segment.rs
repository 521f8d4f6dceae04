//! The segment of a part of a paragraph: its text, and the marks for what stands in it.

use super::paragraph::{Item, Kind, Paragraph};
use super::runs::{Runs, Tags};
use crate::formats::inline::{Found, narrow};
use crate::formats::places::Aside;
use crate::marked_text::{Mark, MarkKind, MarkedText};
use std::cmp::Reverse;
use std::collections::HashMap;
use std::mem;
use std::ops::Range;
use std::sync::Arc;

impl Paragraph<'_> {
    /// The segments, in order, and the texts of paragraphs in this one. `nested`: it lies in another paragraph.
    pub(super) fn finish(mut self, nested: bool) -> (Vec<(Found, Runs)>, Vec<Aside>) {
        let items = self.end(nested);
        let tags = Arc::new(mem::take(&mut self.tags));
        let parts = items.split(|item| item.kind == Kind::Break);
        let segments = parts.filter_map(|items| Part { paragraph: &self, items }.segment(&tags));
        (segments.collect(), mem::take(&mut self.asides))
    }
}

/// The pieces of one text. Each wrap that begins in it ends in it.
struct Part<'p, 's> {
    paragraph: &'p Paragraph<'s>,
    items: &'p [Item],
}

impl Part<'_, '_> {
    fn blank(&self, range: Range<usize>) -> bool {
        self.paragraph.text[range].trim().is_empty()
    }

    /// The segment; `None` if nothing in it has a letter that may be translated. What lies at its ends and is no text does not
    /// belong to it.
    fn segment(&self, tags: &Arc<Tags>) -> Option<(Found, Runs)> {
        let (paragraph, items) = (self.paragraph, self.items);
        let has_letters = |item: &Item| {
            item.kind == Kind::Text && paragraph.text[item.text()].chars().any(char::is_alphabetic)
        };
        if !items.iter().any(has_letters) {
            return None;
        }
        let partners = partners(items);
        let (low, high) = self.between_edges(&partners)?;
        if !items[low..high].iter().any(has_letters) {
            return None;
        }
        let (first, last) = (items.get(low)?, items.get(high - 1)?);
        let untrimmed = &paragraph.text[first.text().start..last.text().end];
        let whole = untrimmed.trim();
        let from = untrimmed.len() - untrimmed.trim_start().len();
        let base = self.most_frequent_style(low..high);
        let mut marks = Marks {
            part: self,
            base,
            begin: first.text().start + from,
            length: whole.len(),
            tags,
            marks: Vec::new(),
            ordered: Vec::new(),
            markup: Vec::new(),
        };
        marks.add(low..high, &partners)?;
        let Marks { marks, ordered, markup, .. } = marks;
        let around = |inside: bool, style: u32| match inside {
            true => paragraph.style(style),
            false => None,
        };
        let runs = Runs {
            base: paragraph.style(base),
            around: [
                around(!first.whole[0], first.styles[0]),
                around(!last.whole[1], last.styles[1]),
            ],
            tags: tags.clone(),
            space: [&untrimmed[..from], &untrimmed[from + whole.len()..]].map(Box::from),
            ordered: ordered.into(),
        };
        let range = first.source().start..last.source().end;
        let segment = MarkedText { text: whole.to_owned(), marks };
        Some((Found { range, segment, markup }, runs))
    }

    /// The style of most of the text.
    fn most_frequent_style(&self, range: Range<usize>) -> u32 {
        let mut letters: HashMap<u32, usize> = HashMap::new();
        for item in &self.items[range] {
            if item.kind == Kind::Text {
                let text = self.paragraph.text[item.text()].chars();
                let count = text.filter(|c| !c.is_whitespace()).count();
                *letters.entry(item.styles[0]).or_default() += count;
            }
        }
        // Of two, the one that came first.
        let most = letters.into_iter().max_by_key(|&(style, count)| (count, Reverse(style)));
        most.map_or(0, |(style, _)| style)
    }

    /// Which of the pieces are the segment. Those at the edges that are no text are left out.
    fn between_edges(&self, partners: &[u32]) -> Option<(usize, usize)> {
        let items = self.items;
        // How many of the first pieces are not blank, so that each text is read once.
        let mut inked = vec![0u32];
        inked.extend(items.iter().scan(0, |count, item| {
            *count += u32::from(!self.blank(item.text()));
            Some(*count)
        }));
        let skipped = |index: usize| match items[index].kind {
            Kind::Text => inked[index] == inked[index + 1],
            Kind::Point | Kind::Ordered => true,
            _ => false,
        };
        let is_blank = |open: usize, close: usize| inked[open + 1] == inked[close];
        let (mut low, mut high) = (0, items.len());
        loop {
            let before = (low, high);
            while low < high && skipped(low) {
                low += 1;
            }
            while low < high && skipped(high - 1) {
                high -= 1;
            }
            if low == high {
                return None;
            }
            if items[low].kind.opens() {
                let close = partners[low] as usize;
                if is_blank(low, close) {
                    low = close + 1;
                } else if close + 1 == high {
                    low += 1;
                    high -= 1;
                }
            }
            if low < high && items[high - 1].kind.closes() {
                let open = partners[high - 1] as usize;
                if open >= low && is_blank(open, high - 1) {
                    high = open;
                }
            }
            if (low, high) == before {
                return Some((low, high));
            }
        }
    }
}

/// The other end of each wrap.
fn partners(items: &[Item]) -> Vec<u32> {
    let mut partners = vec![0; items.len()];
    let mut open = Vec::new();
    for (at, item) in items.iter().enumerate() {
        if item.kind.opens() {
            open.push(at);
        } else if item.kind.closes()
            && let Some(begin) = open.pop()
        {
            partners[begin] = narrow(at);
            partners[at] = narrow(begin);
        }
    }
    partners
}

/// The marks of a segment in the making.
struct Marks<'m, 'p, 's> {
    part: &'m Part<'p, 's>,
    base: u32,
    /// Where the segment begins in the text of the paragraph, and its length.
    begin: usize,
    length: usize,
    tags: &'m Tags,
    marks: Vec<Mark>,
    ordered: Vec<usize>,
    markup: Vec<Range<usize>>,
}

impl Marks<'_, '_, '_> {
    fn push(&mut self, range: Range<usize>, kind: MarkKind) {
        let place = |at: usize| at.saturating_sub(self.begin).min(self.length);
        let range = place(range.start)..place(range.end);
        self.marks.push(Mark { range, kind, id: self.marks.len() });
    }

    /// The runs or the tags of a piece, which may stand anywhere in the paragraph.
    fn markup(&mut self, item: &Item) -> Option<String> {
        let paragraph = self.part.paragraph;
        let raw = paragraph.source.get(item.source())?;
        if item.asides {
            self.markup.push(item.source());
        }
        let [begins, ends] = item.whole;
        if item.styles == [0; 2] || begins && ends {
            return Some(raw.to_owned());
        }
        let style = paragraph.style(item.styles[0]).filter(|_| !begins);
        let end = if ends { "" } else { &self.tags.run_end };
        Some([style.as_deref().unwrap_or_default(), raw, end].concat())
    }

    fn add(&mut self, range: Range<usize>, partners: &[u32]) -> Option<()> {
        let part = self.part;
        // The mark of the run that the last text is in.
        let mut run: Option<(u32, usize)> = None;
        let mut open: Vec<usize> = Vec::new();
        let mut index = range.start;
        while index < range.end {
            let item = part.items[index];
            let text = item.text();
            index += 1;
            match item.kind {
                Kind::Text if part.blank(text.clone()) => {}
                Kind::PlainOpen | Kind::PlainClose => {}
                Kind::Text => {
                    let style = item.styles[0];
                    match run {
                        Some((last, mark)) if last == style => {
                            let end = text.end.saturating_sub(self.begin).min(self.length);
                            self.marks[mark].range.end = end;
                        }
                        _ if style == self.base || style == 0 => run = None,
                        _ => {
                            run = Some((style, self.marks.len()));
                            let open = part.paragraph.style(style)?.to_string();
                            let close = self.tags.run_end.clone();
                            self.push(text, MarkKind::Wrap { open, close });
                        }
                    }
                }
                Kind::LineEnd => {
                    let style = part.paragraph.style(item.styles[0])?;
                    let [begin, end] = &self.tags.text;
                    let source = [&*style, begin, "\n", end, &self.tags.run_end].concat();
                    self.push(text.end..text.end, MarkKind::Point { source });
                }
                Kind::Keep => {
                    let source = Some(self.markup(&item)?);
                    self.push(text, MarkKind::Keep { source });
                }
                Kind::Open => {
                    run = None;
                    let at = partners[index - 1] as usize;
                    let close = part.items[at];
                    if text.end == close.text().start {
                        // Nothing that could be wrapped: one point, with all that is inside.
                        let asides = part.items[index..at].iter().any(|item| item.asides);
                        let source = self.markup(&item.through(&close, Kind::Point, asides))?;
                        let end = close.text().start;
                        self.push(end..end, MarkKind::Point { source });
                        index = at + 1;
                        continue;
                    }
                    open.push(self.marks.len());
                    let (open, close) = (self.markup(&item)?, self.markup(&close)?);
                    self.push(text, MarkKind::Wrap { open, close });
                }
                Kind::Close => {
                    run = None;
                    let end = text.end.saturating_sub(self.begin).min(self.length);
                    self.marks[open.pop()?].range.end = end;
                }
                kind => {
                    if kind == Kind::Ordered {
                        self.ordered.push(self.marks.len());
                    }
                    let source = self.markup(&item)?;
                    self.push(text, MarkKind::Point { source });
                }
            }
        }
        Some(())
    }
}
