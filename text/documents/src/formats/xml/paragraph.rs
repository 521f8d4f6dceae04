//! A paragraph in the making: what is read of it, in order, and where its texts end.

use super::runs::Tags;
use super::styles::WrapKey;
use crate::formats::inline::narrow;
use crate::formats::places::Aside;
use std::collections::HashMap;
use std::mem;
use std::ops::Range;
use std::sync::Arc;

/// Wraps and fields that are open when a field may begin.
const DEEPEST_FIELD: usize = 64;

/// A piece of a paragraph.
#[derive(Clone, Copy, Debug)]
pub(super) struct Item {
    /// Bytes of the source.
    source: [u32; 2],
    /// Bytes of the text of the paragraph.
    text: [u32; 2],
    pub(super) kind: Kind,
    /// 1 + the numbers of the styles of the runs that it begins and ends in; 0 without a run.
    pub(super) styles: [u32; 2],
    /// Whether it begins with its run and ends with it.
    pub(super) whole: [bool; 2],
    /// There are paragraphs in it.
    pub(super) asides: bool,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Kind {
    Text,
    /// A line end in the text of a run.
    LineEnd,
    /// What is before it and after it are two texts.
    Break,
    Point,
    /// A point that stays in the order of its like.
    Ordered,
    /// Text that stays.
    Keep,
    Open,
    Close,
    /// The same of a wrap that says nothing about its text: no mark.
    PlainOpen,
    PlainClose,
    FieldBegin,
    FieldMiddle,
    FieldEnd,
    /// What a field shows; whether it is a link.
    Instruction(bool),
    /// The ends of a wrap that are elements of their own.
    PairBegin,
    PairEnd,
}

impl Kind {
    pub(super) fn opens(self) -> bool {
        matches!(self, Self::Open | Self::PlainOpen)
    }

    pub(super) fn closes(self) -> bool {
        matches!(self, Self::Close | Self::PlainClose)
    }
}

impl Item {
    pub(super) fn source(&self) -> Range<usize> {
        self.source[0] as usize..self.source[1] as usize
    }

    pub(super) fn text(&self) -> Range<usize> {
        self.text[0] as usize..self.text[1] as usize
    }

    fn is_whole(&self) -> bool {
        self.whole == [true; 2] || self.styles == [0; 2]
    }

    /// From the begin of this one to the end of another.
    pub(super) fn through(&self, end: &Self, kind: Kind, asides: bool) -> Self {
        Self {
            source: [self.source[0], end.source[1]],
            text: [self.text[0], end.text[1]],
            kind,
            styles: [self.styles[0], end.styles[1]],
            whole: [self.whole[0], end.whole[1]],
            asides,
        }
    }
}

/// A run that is open.
#[derive(Debug)]
struct Run {
    start: usize,
    /// The first item in it.
    first: usize,
    /// Its begin, with its properties.
    style: String,
    /// The number of `style`, if a piece was read since it changed.
    number: Option<u32>,
}

/// A paragraph in the making.
#[derive(Debug)]
pub(super) struct Paragraph<'s> {
    pub(super) source: &'s str,
    /// Whether text that is not in a run belongs to it.
    pub(super) bare: bool,
    pub(super) text: String,
    items: Vec<Item>,
    styles: Vec<Arc<str>>,
    numbers: HashMap<Arc<str>, u32>,
    run: Option<Run>,
    pub(super) tags: Tags,
    /// The items and keys of the wraps that are open.
    open: Vec<(usize, WrapKey)>,
    /// The last wrap, if nothing follows it.
    closed: Option<(usize, WrapKey)>,
    /// Whether collapsible white space is before the next text.
    after_space: bool,
    /// The names of pairs, in the order of their ends.
    pairs: Vec<String>,
    /// Texts of paragraphs in it.
    pub(super) asides: Vec<Aside>,
    /// Whether the object that is read has paragraphs in it.
    pub(super) has_asides: bool,
    /// Bytes of the begins of runs, for each piece of a run those of its own begin.
    copied: usize,
}

impl<'s> Paragraph<'s> {
    pub(super) fn new(source: &'s str, bare: bool) -> Self {
        Self {
            source,
            bare,
            text: String::new(),
            items: Vec::new(),
            styles: Vec::new(),
            numbers: HashMap::new(),
            run: None,
            tags: Tags::default(),
            open: Vec::new(),
            closed: None,
            after_space: true,
            pairs: Vec::new(),
            asides: Vec::new(),
            has_asides: false,
            copied: 0,
        }
    }

    /// Whether the pieces of runs, each with the properties of its run, take many times the bytes of the file.
    pub(super) fn is_beyond_memory(&self) -> bool {
        self.copied > self.source.len().saturating_mul(8).saturating_add(1 << 20)
    }

    /// A run whose begin is written as `style`, until its properties follow.
    pub(super) fn begin_run(&mut self, start: usize, style: String) {
        self.run = Some(Run { start, first: self.items.len(), style, number: None });
    }

    /// Whether the properties of the run may still follow: nothing of it is read.
    pub(super) fn is_run_empty(&self) -> bool {
        self.run.as_ref().is_some_and(|run| run.first == self.items.len())
    }

    /// Adds to what the run begins with.
    pub(super) fn add_properties(&mut self, markup: &str) {
        if let Some(run) = &mut self.run {
            run.style.push_str(markup);
            run.number = None;
        }
    }

    pub(super) fn end_run(&mut self, end: usize) {
        let Some(run) = self.run.take() else { return };
        if let Some(last) = self.items[run.first..].last_mut() {
            last.source[1] = narrow(end);
            last.whole[1] = true;
        }
    }

    /// A piece whose text is what came to the text since `text`.
    pub(super) fn push(&mut self, source: Range<usize>, text: usize, kind: Kind) {
        let mut source = [narrow(source.start), narrow(source.end)];
        let mut style = 0;
        let mut first = false;
        if let Some(run) = &mut self.run {
            first = run.first == self.items.len();
            if first {
                source[0] = narrow(run.start);
            }
            let known = run.number.or_else(|| self.numbers.get(run.style.as_str()).copied());
            style = known.unwrap_or_else(|| {
                let style: Arc<str> = run.style.as_str().into();
                self.styles.push(style.clone());
                let number = narrow(self.styles.len());
                self.numbers.insert(style, number);
                number
            });
            run.number = Some(style);
            self.copied = self.copied.saturating_add(run.style.len());
        }
        let text = [narrow(text), narrow(self.text.len())];
        let asides = mem::take(&mut self.has_asides);
        self.closed = None;
        if kind == Kind::Break {
            self.after_space = true;
        }
        // Pieces of one kind that touch are one, so that thousands of them take no more memory than text.
        if style == 0
            && let Some(last) = self.items.last_mut()
            && last.styles == [0; 2]
            && last.source[1] == source[0]
        {
            let joined = match (last.kind, kind) {
                (Kind::Text, Kind::Text) => Some(Kind::Text),
                (Kind::Break, Kind::Break) => Some(Kind::Break),
                (Kind::Point, Kind::Point) => Some(Kind::Point),
                (Kind::Point | Kind::Ordered, Kind::Point | Kind::Ordered) => Some(Kind::Ordered),
                _ => None,
            };
            if let Some(kind) = joined {
                *last = Item {
                    source: [last.source[0], source[1]],
                    text: [last.text[0], text[1]],
                    kind,
                    asides: last.asides || asides,
                    ..*last
                };
                return;
            }
        }
        let (styles, whole) = ([style; 2], [first, false]);
        self.items.push(Item { source, text, kind, styles, whole, asides });
    }

    /// Markup in place of which the model sees nothing; `visible` if readers see something.
    pub(super) fn point(&mut self, source: Range<usize>, kind: Kind, visible: bool) {
        self.push(source, self.text.len(), kind);
        self.after_space &= !visible;
    }

    /// An end of the wrap of this name.
    pub(super) fn pair(&mut self, source: Range<usize>, kind: Kind, name: String) {
        self.pairs.push(name);
        self.point(source, kind, false);
    }

    /// Text that stays.
    pub(super) fn keep(&mut self, source: Range<usize>, text: &str) {
        if text.trim().is_empty() {
            return self.point(source, Kind::Point, true);
        }
        let from = self.text.len();
        self.push_one_line(text);
        self.after_space = false;
        self.push(source, from, Kind::Keep);
    }

    /// The text of a run, or of an element that stands for a character.
    pub(super) fn text(&mut self, source: Range<usize>, text: &str) {
        let from = self.text.len();
        self.push_one_line(text);
        self.after_space = false;
        self.push(source, from, Kind::Text);
    }

    /// The text of a run that may have lines.
    pub(super) fn lines(&mut self, source: Range<usize>, text: &str) {
        for (number, line) in text.split('\n').enumerate() {
            if number > 0 {
                let from = self.text.len();
                self.text.push(' ');
                self.push(source.clone(), from, Kind::LineEnd);
            }
            if !line.is_empty() || number == 0 {
                self.text(source.clone(), line);
            }
        }
    }

    /// Bare text. White space is one space, or each line is a text.
    pub(super) fn bare_text(&mut self, source: Range<usize>, text: &str, collapse: bool) {
        let from = self.text.len();
        if collapse {
            for c in text.chars() {
                if !c.is_ascii_whitespace() {
                    self.text.push(c);
                    self.after_space = false;
                } else if !mem::replace(&mut self.after_space, true) {
                    self.text.push(' ');
                }
            }
            return self.push(source, from, Kind::Text);
        }
        if text.len() != source.len() {
            // A reference, or a section of characters.
            match text.trim_matches(['\n', '\r']) {
                "" => self.push(source, from, Kind::Break),
                _ => self.text(source, text),
            }
            return;
        }
        let mut at = source.start;
        for line in text.split_inclusive(['\n', '\r']) {
            let content = line.trim_end_matches(['\n', '\r']);
            if !content.is_empty() {
                self.text(at..at + content.len(), content);
            }
            at += line.len();
            if content.len() < line.len() {
                self.push(at - 1..at, self.text.len(), Kind::Break);
            }
        }
    }

    /// The begin of a wrap. Two wraps of one key that touch are one.
    pub(super) fn open_wrap(&mut self, source: Range<usize>, key: WrapKey) {
        let tag = |range: Range<usize>| self.source.get(range);
        if let Some((open, last)) = self.closed.take()
            && last == key
            && match key {
                WrapKey::Looks(_) => true,
                WrapKey::Tag => tag(self.items[open].source()) == tag(source.clone()),
                WrapKey::Alone => false,
            }
            && self.items.last().is_some_and(|close| close.source[1] == narrow(source.start))
        {
            self.items.pop();
            self.open.push((open, key));
            return;
        }
        self.open.push((self.items.len(), key));
        self.push(source, self.text.len(), Kind::Open);
    }

    pub(super) fn close_wrap(&mut self, source: Range<usize>) {
        let closed = self.open.pop();
        self.push(source, self.text.len(), Kind::Close);
        self.closed = closed;
    }

    /// A segment's text is one line.
    fn push_one_line(&mut self, text: &str) {
        self.text
            .extend(text.chars().map(|c| if matches!(c, '\n' | '\r' | '\t') { ' ' } else { c }));
    }

    /// Ends it: its pieces, in which breaks stand between two texts. `nested`: it lies in another paragraph.
    pub(super) fn end(&mut self, nested: bool) -> Vec<Item> {
        self.run = None;
        for item in &mut self.items {
            if item.asides && (nested || !item.is_whole()) {
                item.kind = Kind::Break;
            }
        }
        self.join_pairs();
        self.join_fields(nested);
        self.divide_wraps();
        mem::take(&mut self.items)
    }

    /// Makes wraps of pairs that are nested as wraps are; the ends of others are points in their order.
    fn join_pairs(&mut self) {
        let names = mem::take(&mut self.pairs);
        let mut names = names.into_iter();
        let mut open: Vec<(usize, String)> = Vec::new();
        for at in 0..self.items.len() {
            match self.items[at].kind {
                kind if kind.opens() => open.push((at, String::new())),
                kind if kind.closes() => {
                    // Pairs that begin in a wrap do not end in it.
                    while let Some((at, _)) = open.pop()
                        && self.items[at].kind == Kind::PairBegin
                    {
                        self.items[at].kind = Kind::Ordered;
                    }
                }
                Kind::PairBegin => open.push((at, names.next().unwrap_or_default())),
                Kind::PairEnd => {
                    let name = names.next().unwrap_or_default();
                    let begin = open.last().filter(|(at, begin)| {
                        *begin == name && self.items[*at].kind == Kind::PairBegin
                    });
                    if let Some(&(begin, _)) = begin {
                        (self.items[begin].kind, self.items[at].kind) = (Kind::Open, Kind::Close);
                        open.pop();
                    } else {
                        self.items[at].kind = Kind::Ordered;
                    }
                }
                _ => {}
            }
        }
        for (at, _) in open {
            if self.items[at].kind == Kind::PairBegin {
                self.items[at].kind = Kind::Ordered;
            }
        }
    }

    /// Makes one piece of each field: text that stays, or what is around the text of a link. Of a field that ends in another
    /// paragraph, the marks divide the text.
    fn join_fields(&mut self, nested: bool) {
        if !self.items.iter().any(|item| matches!(item.kind, Kind::FieldBegin | Kind::FieldEnd)) {
            return;
        }
        // For each wrap or field that is open, its place; of a field also its middle, and whether it is a link.
        let mut open: Vec<(usize, Option<usize>, bool)> = Vec::new();
        let mut new: Vec<Item> = Vec::with_capacity(self.items.len());
        for &item in &self.items {
            let begin = open.last().copied().filter(|&(at, ..)| new[at].kind == Kind::FieldBegin);
            let at = new.len();
            new.push(item);
            match item.kind {
                Kind::FieldBegin if open.len() >= DEEPEST_FIELD => new[at].kind = Kind::Break,
                kind if kind.opens() || kind == Kind::FieldBegin => open.push((at, None, false)),
                kind if kind.closes() => {
                    // Fields that began in the wrap do not end in it.
                    while let Some((at, ..)) = open.pop()
                        && new[at].kind == Kind::FieldBegin
                    {
                        new[at].kind = Kind::Break;
                    }
                }
                Kind::FieldMiddle => match open.last_mut() {
                    Some(last) if begin.is_some() && last.1.is_none() => last.1 = Some(at),
                    _ => new[at].kind = Kind::Break,
                },
                Kind::Instruction(link) => {
                    new[at].kind = Kind::Point;
                    if let (Some(_), Some(last)) = (begin, open.last_mut()) {
                        last.2 |= link;
                    }
                }
                Kind::FieldEnd => {
                    let Some((from, middle, link)) = begin else {
                        new[at].kind = Kind::Break;
                        continue;
                    };
                    open.pop();
                    let first = new[from];
                    let asides = |items: &[Item]| items.iter().any(|item| item.asides);
                    match middle {
                        Some(middle)
                            if link
                                && !(nested && asides(&new[from..=middle]))
                                && [first.whole[0], new[middle].whole[1], item.is_whole()]
                                    == [true; 3] =>
                        {
                            let begin = first.through(
                                &new[middle],
                                Kind::Open,
                                asides(&new[from..=middle]),
                            );
                            new[at].kind = Kind::Close;
                            new.splice(from..=middle, [begin]);
                        }
                        _ => {
                            let asides = asides(&new[from..]);
                            let text = &self.text[first.text().start..item.text().end];
                            let empty = text.trim().is_empty();
                            let kind = if empty { Kind::Point } else { Kind::Keep };
                            let mut whole = first.through(&item, kind, asides);
                            if asides && (nested || !whole.is_whole()) {
                                whole.kind = Kind::Break;
                            }
                            new.truncate(from);
                            new.push(whole);
                        }
                    }
                }
                _ => {}
            }
        }
        for (at, middle, _) in open {
            for at in [Some(at), middle].into_iter().flatten() {
                if matches!(new[at].kind, Kind::FieldBegin | Kind::FieldMiddle) {
                    new[at].kind = Kind::Break;
                }
            }
        }
        for item in &mut new {
            if matches!(item.kind, Kind::FieldBegin | Kind::FieldMiddle) {
                item.kind = Kind::Break;
            }
        }
        self.items = new;
    }

    /// A wrap in which the text is divided divides it itself: its begin and its end lie in two texts.
    fn divide_wraps(&mut self) {
        let mut open: Vec<(usize, bool)> = Vec::new();
        // The wraps before this one in `open` divide.
        let mut divided = 0;
        for at in 0..self.items.len() {
            match self.items[at].kind {
                kind if kind.opens() => open.push((at, false)),
                Kind::Break => {
                    for (at, divides) in &mut open[divided..] {
                        *divides = true;
                        self.items[*at].kind = Kind::Break;
                    }
                    divided = open.len();
                }
                kind if kind.closes() => {
                    if let Some((_, true)) = open.pop() {
                        self.items[at].kind = Kind::Break;
                    }
                    divided = divided.min(open.len());
                }
                _ => {}
            }
        }
    }

    pub(super) fn style(&self, number: u32) -> Option<Arc<str>> {
        self.styles.get((number as usize).checked_sub(1)?).cloned()
    }
}
