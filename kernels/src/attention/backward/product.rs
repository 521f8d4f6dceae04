//! The GEMM tile of the backward pass. It computes the same as that of the forward pass, but with plain loops: in
//! functions with so many tiles, some closures of `core::array` are not inlined. A call in the innermost loop stores
//! and loads every sum. On the diagonal of a causal mask each row of a tile has one step more or less than the previous
//! one: [`causal_diagonal`].

use crate::attention::kv_dtype::PanelView;
use crate::gemm::Operands;
use crate::prefetch::attention_steps;
use crate::simd::{MAX_MR, SimdF32};

/// `sums + A * B`, with `depth` steps.
///
/// # Safety
/// As [`multiply`](crate::gemm::multiply).
#[inline(always)]
pub(super) unsafe fn tile<S: SimdF32, const MR: usize, const G: usize>(
    s: S,
    sums: [[S::F32; G]; MR],
    depth: usize,
    operands: Operands,
) -> [[S::F32; G]; MR] {
    // SAFETY: the `# Safety` contract of `tile` holds.
    unsafe { steps(s, sums, depth, operands, None) }
}

/// As [`tile`]. Prefetches `B` ahead of its use and, at the end, the first steps of `next`, which may be an invalid
/// address.
///
/// # Safety
/// As [`tile`].
#[inline(always)]
pub(super) unsafe fn tile_prefetched<S: SimdF32, const MR: usize, const G: usize>(
    s: S,
    sums: [[S::F32; G]; MR],
    depth: usize,
    operands: Operands,
    next: PanelView<f32>,
) -> [[S::F32; G]; MR] {
    let Operands { a, a_step, b, b_step, b_vector, .. } = operands;
    let steps_ahead = attention_steps(MR);
    let main_depth = depth.saturating_sub(steps_ahead);
    let prefetch =
        PanelView { at: b.wrapping_add(steps_ahead * b_step), step: b_step, vector: b_vector };
    let rest = Operands {
        a: a.wrapping_add(main_depth * a_step),
        b: b.wrapping_add(main_depth * b_step),
        ..operands
    };
    // SAFETY: the `# Safety` contract of `tile_prefetched` holds; `main_depth <= depth`.
    unsafe {
        let sums = steps(s, sums, main_depth, operands, Some(prefetch));
        steps(s, sums, depth - main_depth, rest, Some(next))
    }
}

/// [`tile`] that also prefetches a line of each vector of `prefetch` at each step. Each caller passes a constant `Some`
/// or `None`.
///
/// # Safety
/// As [`tile`].
#[inline(always)]
unsafe fn steps<S: SimdF32, const MR: usize, const G: usize>(
    s: S,
    mut sums: [[S::F32; G]; MR],
    depth: usize,
    operands: Operands,
    prefetch: Option<PanelView<f32>>,
) -> [[S::F32; G]; MR] {
    let Operands { mut a, a_row, a_step, mut b, b_step, b_vector } = operands;
    let mut prefetch_at = prefetch.map_or(core::ptr::null(), |prefetch| prefetch.at);
    for _ in 0..depth {
        if let Some(PanelView { step, vector, .. }) = prefetch {
            for g in 0..G {
                s.prefetch(prefetch_at.wrapping_add(g * vector));
            }
            prefetch_at = prefetch_at.wrapping_add(step);
        }
        let mut row = [s.splat(0.0); G];
        for g in 0..G {
            // SAFETY: the `# Safety` contract of `steps` holds.
            row[g] = unsafe { s.load(b.wrapping_add(g * b_vector)) };
        }
        for i in 0..MR {
            // SAFETY: by the `# Safety` contract of `steps`, `a` has an element in each row for each of the `depth`
            // steps.
            let x = s.splat(unsafe { *a.wrapping_add(i * a_row) });
            for g in 0..G {
                sums[i][g] = s.mul_add(x, row[g], sums[i][g]);
            }
        }
        (a, b) = (a.wrapping_add(a_step), b.wrapping_add(b_step));
    }
    sums
}

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
    operands: Operands,
) -> [[S::F32; G]; MR] {
    const { assert!(MR <= MAX_TILE_ROWS) };
    let Operands { a, a_row, a_step, b, b_step, b_vector } = operands;
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
