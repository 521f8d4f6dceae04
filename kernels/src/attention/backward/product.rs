//! The steps of a tile on the diagonal of a causal mask, where each row of the tile has one step more or less than the
//! previous one.

use crate::gemm::{Panels, Rows};
use crate::simd::{MAX_MR, SimdF32};

/// Most rows of a tile.
const MAX_TILE_ROWS: usize = 8;

const _: () = assert!(MAX_TILE_ROWS >= MAX_MR);

/// `sums[i] += a[i][k] * b[k]` for the `MR - 1` steps `k`, in order, each for the rows `i > k` if `AFTER`, else for
/// `i <= k`. The steps are unrolled, so that there is no branch and every sum stays in its register.
///
/// # Safety
/// The operands that are multiplied are valid for reads.
#[inline(always)]
pub(super) unsafe fn causal_diagonal<
    S: SimdF32,
    const MR: usize,
    const G: usize,
    const AFTER: bool,
>(
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
