//! The steps of a tile on the diagonal of a causal mask, where each row of the tile has one step more or less than the
//! previous one.

use crate::attention::panels::{F32Kv, add_visible};
use crate::gemm::{Panels, Rows};
use crate::simd::{MAX_MR, SimdF32};
use core::ops::Range;

/// Most rows of a tile.
const MAX_TILE_ROWS: usize = 8;

const _: () = assert!(MAX_TILE_ROWS >= MAX_MR);

/// [`add_visible`] of f32. From row to row, the bound increases by one or not at all. If it always increases, the edge is
/// the diagonal of a causal mask.
///
/// # Safety
/// As [`add_visible`].
#[inline(always)]
pub(super) unsafe fn add_edge<S: SimdF32, const MR: usize, const G: usize, const BEFORE: bool>(
    s: S,
    sums: &mut [[S::F32; G]; MR],
    steps: Range<usize>,
    rows: Rows<f32>,
    panel: Panels<f32, 1>,
    bounds: &[usize; MR],
) {
    // SAFETY: the `# Safety` contract of `add_edge` holds. On the diagonal, row `i` is multiplied at step `steps.start + k`
    // if `i > k`, or without `BEFORE` if `i <= k`.
    unsafe {
        if MR > 1 && steps.len() + 1 == MR {
            let (rows, panel) = (rows.skip(steps.start), panel.skip(steps.start));
            *sums = causal_diagonal::<S, MR, G, BEFORE>(s, *sums, rows, panel);
        } else {
            add_visible::<S, F32Kv, MR, G, BEFORE>(s, sums, steps, rows, panel, bounds);
        }
    }
}

/// `sums[i] += a[i][k] * b[k]` for the `MR - 1` steps `k`, in order, each for the rows `i > k` if `AFTER`, else for
/// `i <= k`. The steps are unrolled, so that there is no branch and every sum stays in its register.
///
/// # Safety
/// The operands that are multiplied are valid for reads.
#[inline(always)]
unsafe fn causal_diagonal<S: SimdF32, const MR: usize, const G: usize, const AFTER: bool>(
    s: S,
    mut sums: [[S::F32; G]; MR],
    rows: Rows<f32>,
    panel: Panels<f32, 1>,
) -> [[S::F32; G]; MR] {
    const { assert!(MR <= MAX_TILE_ROWS) };
    let Rows { at: a, row: a_row, step: a_step } = rows;
    let Panels { at: [b], step: b_step, vector: b_vector } = panel;
    macro_rules! steps {
        ($($k:literal)*) => {$(
            if const { $k + 1 < MR } {
                let mut row = [s.splat(0.0); G];
                for g in 0..G {
                    // SAFETY: the `# Safety` contract of `causal_diagonal` holds.
                    row[g] = unsafe { s.load(b.wrapping_add($k * b_step + g * b_vector)) };
                }
                for i in 0..MR {
                    if (i > $k) == AFTER {
                        // SAFETY: by the `# Safety` contract of `causal_diagonal`, the operands that are multiplied are
                        // valid for reads, and row `i` is multiplied at step `k` exactly if the condition above holds.
                        let x = s.splat(unsafe { *a.wrapping_add(i * a_row + $k * a_step) });
                        for g in 0..G {
                            sums[i][g] = s.mul_add(x, row[g], sums[i][g]);
                        }
                    }
                }
            }
        )*};
    }
    steps!(0 1 2 3 4 5 6);
    sums
}
