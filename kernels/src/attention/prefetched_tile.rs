//! The GEMM tile for an operand in the second-level cache. A block of keys or values is larger than the first-level
//! cache, so the tile prefetches each line some steps before it is used.

use super::kv_dtype::{KvFormat, PanelView, tile};
use crate::gemm::{Rows, Tile};
use crate::simd::SimdF32;

/// Steps between the prefetch of a line and its use: the latency of the second-level cache and a margin. A step of few
/// rows is short. A tile of one row waits for memory, so it prefetches as far ahead as a share of the first-level cache
/// can hold.
pub(super) const fn distance(rows: usize) -> usize {
    match rows {
        1 => SINGLE_ROW_DISTANCE,
        2..=4 => 16,
        _ => 8,
    }
}

/// [`distance`] of a single row: 32 steps of 4 lines are 8 KiB.
pub(super) const SINGLE_ROW_DISTANCE: usize = 32;

/// As [`multiply`](crate::gemm::multiply), with the same bits. Prefetches `view` ahead of its use and, at the end,
/// the first steps of `next`, which may be an invalid address.
///
/// # Safety
/// As [`multiply`](crate::gemm::multiply).
#[inline(always)]
pub(super) unsafe fn tile_prefetched<S: SimdF32, N: KvFormat, const MR: usize, const NV: usize>(
    s: S,
    acc: Tile<S, MR, NV>,
    depth: usize,
    rows: Rows<f32>,
    view: PanelView<N::KvElement>,
    next: PanelView<N::KvElement>,
) -> Tile<S, MR, NV> {
    let PanelView { at, step, .. } = view;
    let steps_ahead = distance(MR);
    let main_depth = depth.saturating_sub(steps_ahead);
    let prefetch =
        N::prefetch_panel::<S>(PanelView { at: at.wrapping_add(steps_ahead * step), ..view }, NV);
    let rest = PanelView { at: at.wrapping_add(main_depth * step), ..view };
    let rest_rows = Rows { at: rows.at.wrapping_add(main_depth * rows.step), ..rows };
    // SAFETY: the `# Safety` contract of `tile_prefetched` holds; `main_depth <= depth`.
    unsafe {
        let acc = tile::<S, N, _, MR, NV>(s, acc, main_depth, rows, view, prefetch);
        tile::<S, N, _, MR, NV>(
            s,
            acc,
            depth - main_depth,
            rest_rows,
            rest,
            N::prefetch_panel::<S>(next, NV),
        )
    }
}
