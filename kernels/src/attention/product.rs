//! The GEMM tile over an operand that streams from the second-level cache: a block of keys or
//! values is larger than the first level, so each line is asked for some steps before it is
//! multiplied.

use crate::gemm::{Lines, Operands, tile_ahead};
use crate::lanes::Lanes;

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

/// An operand in memory: `NV` vectors `vector` elements apart, at steps `step` elements apart.
#[derive(Clone, Copy)]
pub(super) struct Stream {
    pub(super) at: *const f32,
    pub(super) step: usize,
    pub(super) vector: usize,
}

impl Stream {
    /// Vectors one after the other, `NV` for each step.
    #[inline(always)]
    pub(super) fn line_by_line<S: Lanes, const NV: usize>(at: *const f32) -> Self {
        Self { at, step: NV * S::LANES, vector: S::LANES }
    }

    /// What asks for `count` vectors at each step.
    #[inline(always)]
    fn lines(self, count: usize) -> Lines {
        Lines { at: self.at, step: self.step, count, apart: self.vector }
    }
}

/// As [`crate::gemm::tile`], the same bits; asks for `B` ahead of its use, and for the first steps
/// of `next`, any address, at the end.
///
/// # Safety
/// As [`crate::gemm::tile`].
#[inline(always)]
pub(super) unsafe fn streamed<S: Lanes, const MR: usize, const NV: usize>(
    s: S,
    acc: [[S::F32; NV]; MR],
    depth: usize,
    operands: Operands,
    next: Stream,
) -> [[S::F32; NV]; MR] {
    let Operands { a, a_step, b, b_step, b_vector, .. } = operands;
    let ahead = distance(MR);
    let before = depth.saturating_sub(ahead);
    let later = Stream { at: b.wrapping_add(ahead * b_step), step: b_step, vector: b_vector };
    let rest = Operands {
        a: a.wrapping_add(before * a_step),
        b: b.wrapping_add(before * b_step),
        ..operands
    };
    // SAFETY: the caller's contract; `before <= depth`.
    unsafe {
        let acc = tile_ahead(s, acc, before, operands, later.lines(NV));
        tile_ahead(s, acc, depth - before, rest, next.lines(NV))
    }
}
