//! From the tokens of a window to segments with times, and to the start of the next window.

use super::prompt::{FRAMES_PER_TIMESTAMP, Prompt, TIMESTAMP};
use core::ops::Range;

/// Seconds between two frames.
pub(super) const FRAME: f64 = 0.01;

/// The time of a frame, in seconds. A quotient: the product with [`FRAME`] may be later than the end of a recording that ends
/// with this frame.
pub(super) fn seconds_of(frame: usize) -> f64 {
    const FRAMES_PER_SECOND: f64 = 100.0;
    frame as f64 / FRAMES_PER_SECOND
}

/// A segment of a window.
pub(super) struct Part {
    /// Its tokens.
    pub(super) tokens: Range<usize>,
    /// Its first frame in the recording, and the one after it.
    pub(super) span: (usize, usize),
}

/// The segments of a window of `frames` frames from `first` on, and the frames to go on by: `_retrieve_segment` of
/// transformers 5.23.
///
/// A segment ends where two timestamps follow each other. Tokens after the last such pair are dropped, and the next window
/// begins there; but if the text ends in a single timestamp, there is no speech after it, and the next window begins after
/// this one, as it does if there is no pair.
///
/// Two rules are ours. A window whose last pair is at its first frame would be decoded again and again; here the next one
/// begins after it. And no time is later than the start of the next window, nor earlier than the end of the segment before: a
/// short window is filled up with zeros, and the model may write timestamps into them.
pub(super) fn split(
    tokens: &[u32],
    prompt: &Prompt,
    first: usize,
    frames: usize,
) -> (Vec<Part>, usize) {
    // A model that is not asked for timestamps may write one.
    let asked = prompt.timestamps.is_some();
    let at = |i: usize| tokens.get(i).filter(|_| asked).and_then(|&id| prompt.timestamp(id));
    let count = tokens.len();
    let is_time = |i: usize| at(i).is_some();
    let single_ending = count >= 2 && !is_time(count - 2) && is_time(count - 1);
    let mut ends: Vec<usize> = (1..count).filter(|&i| is_time(i - 1) && is_time(i)).collect();
    let Some(last) = ends.last_mut() else {
        let latest = (0..count).rev().find_map(at).filter(|&index| index != 0);
        // In f32, as the reference: for some numbers of frames one timestamp less than half of them.
        let all = (frames as f32 * 0.01 / TIMESTAMP as f32) as usize;
        let end = (latest.unwrap_or(all) * FRAMES_PER_TIMESTAMP).min(frames);
        let part = Part { tokens: 0..count, span: (first, first + end) };
        return (vec![part], frames);
    };
    // The second timestamp of the last pair is part of its segment.
    if single_ending {
        ends.push(count);
    } else {
        *last += 1;
    }
    let next = match at(ends.last().map_or(0, |end| end.saturating_sub(2))) {
        Some(index) if !single_ending && index > 0 => (index * FRAMES_PER_TIMESTAMP).min(frames),
        _ => frames,
    };
    let mut parts = Vec::with_capacity(ends.len());
    let (mut from, mut before) = (0, 0);
    for (i, &end) in ends.iter().enumerate() {
        let is_last = i + 1 == ends.len();
        let closing = if is_last && !single_ending { end.saturating_sub(2) } else { end - 1 };
        // A segment without a first timestamp cannot come from the rule of timestamps.
        let start = at(from).unwrap_or(0);
        let time = |index: usize, least: usize| (index * FRAMES_PER_TIMESTAMP).clamp(least, next);
        let begin = time(start, before);
        before = time(at(closing).unwrap_or(start), begin);
        parts.push(Part { tokens: from..end, span: (first + begin, first + before) });
        from = end;
    }
    (parts, next)
}

/// The segments of a window whose text is complete: as [`split`], but tokens after the last pair are a segment, too.
pub(super) fn split_all(tokens: &[u32], prompt: &Prompt, first: usize, frames: usize) -> Vec<Part> {
    let (mut parts, _) = split(tokens, prompt, first, frames);
    let end = first + frames;
    let (done, before) = parts.last().map_or((0, first), |part| (part.tokens.end, part.span.1));
    if done < tokens.len() {
        let opening = tokens.get(done.saturating_sub(1)).and_then(|&id| prompt.timestamp(id));
        let start = first + opening.unwrap_or(0) * FRAMES_PER_TIMESTAMP;
        parts.push(Part { tokens: done..tokens.len(), span: (start.clamp(before, end), end) });
    }
    parts
}

/// The number of bytes divided by their number after DEFLATE in zlib's container; 0 of nothing.
pub(super) fn compression_ratio(bytes: &[u8]) -> f32 {
    const LEVEL: u8 = 6; // the default of zlib
    let packed = miniz_oxide::deflate::compress_to_vec_zlib(bytes, LEVEL);
    bytes.len() as f32 / packed.len().max(1) as f32
}

/// The bytes of ids as transformers compresses them: little-endian, in as many bytes as the largest id needs.
pub(super) fn id_bytes(ids: &[u32], vocabulary: usize) -> Vec<u8> {
    let length = (vocabulary.max(1).ilog2() / 8 + 1).min(4) as usize;
    ids.iter().flat_map(|id| id.to_le_bytes().into_iter().take(length)).collect()
}
