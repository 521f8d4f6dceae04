//! Which bytes of a text are those of a token.

use super::stream::DecodeStream;
use std::ops::Range;

/// Removes white space at the ends of spans, moves ends inside a character outwards, and puts empty spans behind those
/// before them, so that starts and ends do not decrease.
pub(crate) fn in_order(text: &str, spans: &mut [Range<usize>]) {
    let (mut start, mut end) = (0, 0);
    for span in spans {
        let whole = text.floor_char_boundary(span.start)..text.ceil_char_boundary(span.end);
        let part = text.get(whole.clone()).unwrap_or_default();
        let from = whole.start + (part.len() - part.trim_start().len());
        let part = part.trim();
        if part.is_empty() {
            *span = end..end;
            start = end;
            continue;
        }
        start = from.max(start);
        end = (from + part.len()).max(end);
        *span = start..end;
    }
}

/// The text of `ids`, and the bytes of each.
pub(crate) fn decode_with_spans(
    mut stream: DecodeStream<'_>,
    ids: &[u32],
) -> (String, Vec<Range<usize>>) {
    let mut text = String::new();
    let mut spans: Vec<Range<usize>> = Vec::with_capacity(ids.len());
    // From here on, the tokens end with bytes of a character that is not complete.
    let mut held: Option<usize> = None;
    for &id in ids {
        let start = text.len();
        text.extend(stream.push(id));
        spans.push(start..text.len());
        if text.len() > start || !stream.holds_bytes() {
            complete(&text, start, held.take(), &mut spans);
        }
        if stream.holds_bytes() {
            held = held.or(Some(spans.len() - 1));
        }
    }
    let start = text.len();
    text.push_str(stream.finish());
    complete(&text, start, held, &mut spans);
    in_order(&text, &mut spans);
    (text, spans)
}

/// Gives the first character after `start` to the tokens from `held` on that have bytes of it.
fn complete(text: &str, start: usize, held: Option<usize>, spans: &mut [Range<usize>]) {
    let Some(held) = held else { return };
    let new = text.get(start..).unwrap_or_default();
    let spaces = new.len() - new.trim_start().len();
    let end = start + spaces + new.trim_start().chars().next().map_or(0, char::len_utf8);
    for span in spans.iter_mut().skip(held) {
        span.end = span.end.max(end);
    }
}
