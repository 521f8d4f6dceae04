//! A marked text as a sequence: text, markup, text.

use crate::marked_text::{Mark, MarkKind};

/// A part of what is written for a segment.
#[derive(Clone, Copy, Debug)]
pub(super) enum Piece<'m> {
    /// Text that is written with escapes.
    Text(&'m str),
    /// The begin of the wrap that is this mark.
    Open(usize, &'m str),
    /// Its end.
    Close(usize, &'m str),
    /// Source of the document.
    Raw(&'m str),
}

impl Piece<'_> {
    pub(super) fn as_str(&self) -> &str {
        match self {
            Self::Text(text) | Self::Open(_, text) | Self::Close(_, text) | Self::Raw(text) => text,
        }
    }
}

/// The pieces of a text with marks. Where a wrap ends and a point stands at the same byte, the wrap ends first. White space
/// at the ends of the text is left out. A mark that keeps text as it is, such as a placeholder, is text.
///
/// The error says what is wrong with the marks.
pub(super) fn pieces<'m>(text: &'m str, marks: &'m [Mark]) -> Result<Vec<Piece<'m>>, &'static str> {
    let mut order: Vec<usize> = (0..marks.len()).collect();
    order.sort_by_key(|&index| marks[index].range.start);
    let mut pieces = Vec::with_capacity(2 * marks.len() + 1);
    let mut open: Vec<(usize, usize, &str)> = Vec::new();
    let mut at = 0;
    for index in order {
        let Mark { range, kind, .. } = &marks[index];
        if text.get(range.clone()).is_none() {
            return Err("a mark that is not in the text or splits a character");
        }
        if matches!(kind, MarkKind::Keep { source: None }) {
            continue;
        }
        while let Some(&(end, wrap, close)) = open.last()
            && end <= range.start
        {
            push_text(text, at, end, &mut pieces)?;
            at = end;
            pieces.push(Piece::Close(wrap, close));
            open.pop();
        }
        push_text(text, at, range.start, &mut pieces)?;
        at = range.start;
        if open.last().is_some_and(|&(end, _, _)| range.end > end) {
            return Err("a mark that begins inside another and ends after it");
        }
        match kind {
            MarkKind::Wrap { open: begin, close } => {
                pieces.push(Piece::Open(index, begin));
                open.push((range.end, index, close));
            }
            MarkKind::Keep { source } => {
                if let Some(source) = source {
                    pieces.push(Piece::Raw(source));
                    at = range.end;
                }
            }
            MarkKind::Point { source } => pieces.push(Piece::Raw(source)),
        }
    }
    while let Some((end, wrap, close)) = open.pop() {
        push_text(text, at, end, &mut pieces)?;
        at = end;
        pieces.push(Piece::Close(wrap, close));
    }
    push_text(text, at, text.len(), &mut pieces)?;
    if let Some(Piece::Text(text)) = pieces.first_mut() {
        *text = text.trim_start();
    }
    if let Some(Piece::Text(text)) = pieces.last_mut() {
        *text = text.trim_end();
    }
    Ok(pieces)
}

fn push_text<'m>(
    text: &'m str,
    from: usize,
    to: usize,
    pieces: &mut Vec<Piece<'m>>,
) -> Result<(), &'static str> {
    match text.get(from..to) {
        Some("") => {}
        Some(part) => pieces.push(Piece::Text(part)),
        None => return Err("a mark that begins inside a kept piece"),
    }
    Ok(())
}
