//! The GEMM tile of the gradients. As that of the forward, but for the loops: some closures of `core::array` stay
//! calls in functions of so many tiles, and a call in the innermost loop takes every sum to memory and back.

use crate::attention::kv_dtype::PanelView;
use crate::attention::prefetched_tile::distance;
use crate::gemm::Operands;
use crate::simd::SimdF32;

/// `sums + A * B` of `depth` steps.
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
    // SAFETY: the caller's contract.
    unsafe { steps(s, sums, depth, operands, None) }
}

/// As [`tile`]; asks for `B` ahead of its use, and for the first steps of `next`, any address, at the end.
///
/// # Safety
/// As [`tile`].
#[inline(always)]
pub(super) unsafe fn streamed<S: SimdF32, const MR: usize, const G: usize>(
    s: S,
    sums: [[S::F32; G]; MR],
    depth: usize,
    operands: Operands,
    next: PanelView<f32>,
) -> [[S::F32; G]; MR] {
    let Operands { a, a_step, b, b_step, b_vector, .. } = operands;
    let ahead = distance(MR);
    let before = depth.saturating_sub(ahead);
    let later = PanelView { at: b.wrapping_add(ahead * b_step), step: b_step, vector: b_vector };
    let rest = Operands {
        a: a.wrapping_add(before * a_step),
        b: b.wrapping_add(before * b_step),
        ..operands
    };
    // SAFETY: the caller's contract; `before <= depth`.
    unsafe {
        let sums = steps(s, sums, before, operands, Some(later));
        steps(s, sums, depth - before, rest, Some(next))
    }
}

/// [`tile`], and asks for a line of `ahead` with each step. Whether there is one is known where this is called.
///
/// # Safety
/// As [`tile`].
#[inline(always)]
unsafe fn steps<S: SimdF32, const MR: usize, const G: usize>(
    s: S,
    mut sums: [[S::F32; G]; MR],
    depth: usize,
    operands: Operands,
    ahead: Option<PanelView<f32>>,
) -> [[S::F32; G]; MR] {
    let Operands { mut a, a_row, a_step, mut b, b_step, b_vector } = operands;
    let mut asked = ahead.map_or(core::ptr::null(), |ahead| ahead.at);
    for _ in 0..depth {
        if let Some(PanelView { step, vector, .. }) = ahead {
            for g in 0..G {
                s.prefetch(asked.wrapping_add(g * vector));
            }
            asked = asked.wrapping_add(step);
        }
        let mut row = [s.splat(0.0); G];
        for g in 0..G {
            // SAFETY: the caller's contract.
            row[g] = unsafe { s.load(b.wrapping_add(g * b_vector)) };
        }
        for i in 0..MR {
            // SAFETY: `# Safety` of `steps`: `a` has an element in each row for each of the `depth`
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
