//! The marks of a text as a tree: what lies inside what.

use super::alignment::Alignment;
use super::{MarkKind, MarkedText};
use std::ops::Range;

/// How many open tags are searched for the one that a closing tag belongs to.
const DEEPEST_TAG: usize = 64;

/// A tag as text: `<0>`, `</0>`, `<a href="x">`, `<x/>`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Tag<'t> {
    name: &'t str,
    closes: bool,
    /// `<x/>`
    empty: bool,
}

impl<'t> Tag<'t> {
    /// The tag, if the piece is one.
    pub(super) fn from_piece(piece: &'t str) -> Option<Self> {
        let inside = piece.strip_prefix('<')?.strip_suffix('>')?;
        let (inside, closes) =
            inside.strip_prefix('/').map_or((inside, false), |rest| (rest, true));
        let end = inside
            .find(|letter: char| letter.is_whitespace() || letter == '/')
            .unwrap_or(inside.len());
        let name = &inside[..end];
        let named = name.starts_with(|letter: char| letter.is_ascii_alphanumeric())
            && !inside.contains(['<', '>']);
        named.then_some(Self { name, closes, empty: inside.ends_with('/') })
    }
}

/// What a node is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum NodeKind {
    /// The whole text.
    Root,
    /// A wrap, by its index in the marks.
    Wrap(usize),
    /// Two kept pieces that are an opening and a closing tag: they stay around the words that they are around.
    Tags(usize, usize),
    /// A kept piece; not a tag of a pair.
    Keep(usize),
    /// A mark without text, of any kind.
    Point(usize),
}

/// A mark, or a pair of tags, in the tree.
#[derive(Clone, Debug)]
pub(super) struct Node {
    pub(super) kind: NodeKind,
    pub(super) parent: usize,
    /// What is inside, as bytes of the source text: of a pair of tags what is between them.
    pub(super) content: Range<usize>,
    /// For a kept piece, the marks inside of it, by index. They move with it.
    pub(super) inside: Vec<usize>,
}

/// The texts of a placement, and the tree of its marks.
pub(super) struct Texts<'a> {
    pub(super) source: &'a MarkedText,
    pub(super) given: &'a MarkedText,
    pub(super) target: &'a str,
    pub(super) alignment: Alignment<'a>,
    pub(super) nodes: &'a [Node],
}

impl Texts<'_> {
    /// The content of a node in the text that the model was given.
    pub(super) fn given_range(&self, node: &Node) -> Range<usize> {
        let range =
            |index: usize| self.given.marks.get(index).map_or(0..0, |mark| mark.range.clone());
        match node.kind {
            NodeKind::Root => 0..self.given.text.len(),
            NodeKind::Wrap(index) | NodeKind::Keep(index) | NodeKind::Point(index) => range(index),
            NodeKind::Tags(open, close) => {
                let (start, end) = (range(open).end, range(close).start);
                start..end.max(start)
            }
        }
    }
}

/// The nodes of a text, parents before children, in the order of the text. The first is the root.
pub(super) fn tree(source: &MarkedText) -> Vec<Node> {
    let closing = tag_pairs(source);
    let root =
        Node { kind: NodeKind::Root, parent: 0, content: 0..source.text.len(), inside: Vec::new() };
    let mut nodes = vec![root];
    // The nodes that are open, the innermost last. The root stays.
    let mut open: Vec<usize> = Vec::new();
    for (index, mark) in source.marks.iter().enumerate() {
        let Range { start, end } = mark.range.clone();
        while let Some(&last) = open.last()
            && nodes[last].content.end <= start
            && !matches!(nodes[last].kind, NodeKind::Tags(..))
        {
            open.pop();
        }
        if matches!(closing.get(index), Some(Some(Pair::Closes))) {
            // What is still open inside of the tags ends with them.
            while let Some(last) = open.pop()
                && !matches!(nodes[last].kind, NodeKind::Tags(_, closer) if closer == index)
            {
            }
            continue;
        }
        let parent = open.last().copied().unwrap_or(0);
        if matches!(nodes[parent].kind, NodeKind::Keep(_)) {
            nodes[parent].inside.push(index);
            continue;
        }
        let kind = match (&mark.kind, closing.get(index)) {
            (_, Some(&Some(Pair::Opens(closer)))) => NodeKind::Tags(index, closer),
            _ if start >= end => NodeKind::Point(index),
            (MarkKind::Keep { .. }, _) => NodeKind::Keep(index),
            (MarkKind::Wrap { .. }, _) => NodeKind::Wrap(index),
            (MarkKind::Point { .. }, _) => NodeKind::Point(index),
        };
        let content = match kind {
            NodeKind::Tags(_, closer) => end..source.marks[closer].range.start.max(end),
            _ => start..end,
        };
        let contains = start < end && !matches!(kind, NodeKind::Point(_));
        nodes.push(Node { kind, parent, content, inside: Vec::new() });
        if contains {
            open.push(nodes.len() - 1);
        }
    }
    nodes
}

/// The part of a kept piece in a pair of tags.
#[derive(Clone, Copy)]
enum Pair {
    /// The index of the closing tag.
    Opens(usize),
    Closes,
}

/// For each mark, whether it is a tag of a pair: a kept `<0>` and the next kept `</0>` in the same wrap.
fn tag_pairs(source: &MarkedText) -> Vec<Option<Pair>> {
    let mut pairs = vec![None; source.marks.len()];
    // Where each open mark ends, and the names of the tags that are open in it.
    let mut open: Vec<(usize, Vec<(&str, usize)>)> = vec![(usize::MAX, Vec::new())];
    for (index, mark) in source.marks.iter().enumerate() {
        while open.last().is_some_and(|(end, _)| *end <= mark.range.start) {
            open.pop();
        }
        let text = source.text.get(mark.range.clone()).unwrap_or_default();
        let kept = matches!(mark.kind, MarkKind::Keep { .. });
        match (Tag::from_piece(text).filter(|_| kept), open.last_mut()) {
            (Some(tag), Some((_, tags))) if tag.closes => {
                let mut last = tags.iter().enumerate().rev().take(DEEPEST_TAG);
                if let Some((place, &(_, opener))) = last.find(|(_, open)| open.0 == tag.name) {
                    tags.truncate(place);
                    pairs[opener] = Some(Pair::Opens(index));
                    pairs[index] = Some(Pair::Closes);
                }
            }
            (Some(tag), Some((_, tags))) if !tag.empty => tags.push((tag.name, index)),
            _ if !mark.range.is_empty() && !matches!(mark.kind, MarkKind::Point { .. }) => {
                open.push((mark.range.end, Vec::new()));
            }
            _ => (),
        }
    }
    pairs
}
