//! The GEMM tile over an operand that streams from the second-level cache: a block of keys or
//! values is larger than the first level, so each line is asked for some steps before it is
//! multiplied.

use super::kv_dtype::{KvFormat, PanelView, tile};
use crate::gemm::{Rows, Tile};
use crate::simd::SimdF32;

/// Steps between asking for a line and multiplying with it: the latency of the second-level cache
/// and some. A step of few rows is short; a row that is alone waits for memory, and asks for as much
/// as a share of the first-level cache holds.
pub(super) const fn distance(rows: usize) -> usize {
    match rows {
        1 => ALONE,
        2..=4 => 16,
        _ => 8,
    }
}

/// [`distance`] of a row that is alone: 64 steps of 4 lines are 16 KiB.
pub(super) const ALONE: usize = 32;

/// As [`multiply`](crate::gemm::multiply), the same bits; asks for `numbers` ahead of their use, and for the first steps
/// of `next`, any address, at the end.
///
/// # Safety
/// As [`multiply`](crate::gemm::multiply).
#[inline(always)]
pub(super) unsafe fn streamed<S: SimdF32, N: KvFormat, const MR: usize, const NV: usize>(
    s: S,
    acc: Tile<S, MR, NV>,
    depth: usize,
    rows: Rows<f32>,
    numbers: PanelView<N::KvElement>,
    next: PanelView<N::KvElement>,
) -> Tile<S, MR, NV> {
    let PanelView { at, step, .. } = numbers;
    let ahead = distance(MR);
    let before = depth.saturating_sub(ahead);
    let later = N::lines::<S>(PanelView { at: at.wrapping_add(ahead * step), ..numbers }, NV);
    let rest = PanelView { at: at.wrapping_add(before * step), ..numbers };
    let rest_rows = Rows { at: rows.at.wrapping_add(before * rows.step), ..rows };
    // SAFETY: the caller's contract; `before <= depth`.
    unsafe {
        let acc = tile::<S, N, _, MR, NV>(s, acc, before, rows, numbers, later);
        tile::<S, N, _, MR, NV>(s, acc, depth - before, rest_rows, rest, N::lines::<S>(next, NV))
    }
}
