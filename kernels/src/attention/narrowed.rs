//! Writing keys and values as numbers of sixteen bits: the layouts of `panels.rs`.
//!
//! They are rounded in integers, which compilers make vectors of on every instruction set; a step writes one
//! token of each hypothesis, an encoder what little it keeps of much work.

use super::heads::Heads;
use super::numbers::narrow;
use super::panels::value_row;
use crate::lanes::{Lanes, MAX_LANES};

/// Writes `count` floats from `from` as halves.
///
/// # Safety
/// `from` is valid for reads of `count` floats, and `to` for writes of as many halves.
#[inline(always)]
unsafe fn narrow_all(from: *const f32, count: usize, to: *mut u16) {
    for i in 0..count {
        // SAFETY: the caller's contract.
        unsafe { *to.add(i) = narrow(*from.add(i)) };
    }
}

/// As [`super::panels::write_keys`].
///
/// # Safety
/// As [`super::panels::write_keys`].
#[inline(always)]
pub(super) unsafe fn write_keys<S: Lanes>(
    s: S,
    key: &Heads<'_>,
    head: usize,
    tokens: core::ops::Range<usize>,
    position: usize,
    to: *mut u16,
) {
    let (head_dim, stride) = (key.head_dim(), key.token_stride());
    let mut token = tokens.start;
    while token < tokens.end {
        let at = position + (token - tokens.start);
        let panel = to.wrapping_add(at / S::LANES * head_dim * S::LANES);
        let from = key.at(token, head);
        // SAFETY: a whole panel's tokens exist, or one token's elements go to its own lane.
        unsafe {
            if at.is_multiple_of(S::LANES) && tokens.end - token >= S::LANES {
                let mut square = [0.0; MAX_LANES * MAX_LANES];
                let mut i = 0;
                while i + S::LANES <= head_dim {
                    s.transpose(from.add(i), stride, square.as_mut_ptr(), S::LANES);
                    narrow_all(square.as_ptr(), S::LANES * S::LANES, panel.add(i * S::LANES));
                    i += S::LANES;
                }
                for i in i..head_dim {
                    for lane in 0..S::LANES {
                        *panel.add(i * S::LANES + lane) =
                            narrow(*key.at(token + lane, head).add(i));
                    }
                }
                token += S::LANES;
            } else {
                let mut row = [0; MAX_LANES];
                let mut i = 0;
                while i < head_dim {
                    let count = (head_dim - i).min(S::LANES);
                    narrow_all(from.add(i), count, row.as_mut_ptr());
                    for (c, &half) in row.iter().enumerate().take(count) {
                        *panel.add((i + c) * S::LANES + at % S::LANES) = half;
                    }
                    i += S::LANES;
                }
                token += 1;
            }
        }
    }
}

/// As [`super::panels::write_values`].
///
/// # Safety
/// As [`super::panels::write_values`].
#[inline(always)]
pub(super) unsafe fn write_values<S: Lanes>(
    _: S,
    value: &Heads<'_>,
    head: usize,
    tokens: core::ops::Range<usize>,
    to: *mut u16,
) {
    let head_dim = value.head_dim();
    let row = value_row(S::LANES, head_dim);
    for (index, token) in tokens.enumerate() {
        let to = to.wrapping_add(index * row);
        // SAFETY: the token's elements, and the row, which has whole vectors.
        unsafe {
            narrow_all(value.at(token, head), head_dim, to);
            to.add(head_dim).write_bytes(0, row - head_dim);
        }
    }
}
