//! The tile: up to six rows of `A` times one panel of `B`, in registers.
//!
//! Per step of `k` a tile of `MR` rows and `NV` vectors loads `NV` vectors of `B`, broadcasts `MR`
//! elements of `A` and does `MR * NV` fused multiply-adds. On AVX-512, 6 x 4 vectors use 24 of 32
//! registers as accumulators with 10 loads per 24 FMAs, against two loads and two FMAs per cycle;
//! on AVX2, 6 x 2 use 12 of 16 with 8 loads per 12 FMAs.

use crate::lanes::{LINE, Lanes};

/// Rows of the tallest tile.
pub(crate) const MAX_ROWS: usize = 6;

/// The accumulators of a tile.
pub(crate) type Tile<S, const MR: usize, const NV: usize> = [[<S as Lanes>::F32; NV]; MR];

/// Where the operands of a tile are, in elements.
#[derive(Clone, Copy)]
pub(crate) struct Operands {
    /// Row 0 of `A`.
    pub(crate) a: *const f32,
    /// From one row of `A` to the next.
    pub(crate) a_row: usize,
    /// From one `k` of `A` to the next.
    pub(crate) a_step: usize,
    /// Vector 0 of `B`.
    pub(crate) b: *const f32,
    /// From one `k` of `B` to the next.
    pub(crate) b_step: usize,
    /// From one vector of `B` to the next.
    pub(crate) b_vector: usize,
}

/// `acc[i][v] += sum over k of A[i, k] * B[k, v]`, `k` from 0 to `depth - 1` in order.
///
/// # Safety
/// Rows `0..MR` and steps `0..depth` of `A`, and vectors `0..NV` of full width at steps `0..depth`
/// of `B`, are valid for reads.
#[inline(always)]
pub(crate) unsafe fn tile<S: Lanes, const MR: usize, const NV: usize>(
    s: S,
    acc: Tile<S, MR, NV>,
    depth: usize,
    operands: Operands,
) -> Tile<S, MR, NV> {
    // SAFETY: the caller's contract.
    unsafe { tile_ahead::<S, MR, NV, 0>(s, acc, depth, operands, core::ptr::null()) }
}

/// [`tile`], which meanwhile asks for `AHEAD * depth` cache lines from `ahead` on, any address, to be
/// brought into the first-level cache.
///
/// # Safety
/// As [`tile`].
#[inline(always)]
pub(crate) unsafe fn tile_ahead<S: Lanes, const MR: usize, const NV: usize, const AHEAD: usize>(
    s: S,
    mut acc: Tile<S, MR, NV>,
    depth: usize,
    operands: Operands,
    mut ahead: *const f32,
) -> Tile<S, MR, NV> {
    let Operands { mut a, a_row, a_step, mut b, b_step, b_vector } = operands;
    for _ in 0..depth {
        for line in 0..AHEAD {
            s.prefetch(ahead.wrapping_add(line * LINE));
        }
        ahead = ahead.wrapping_add(AHEAD * LINE);
        let mut vectors = [s.splat(0.0); NV];
        for (v, vector) in vectors.iter_mut().enumerate() {
            // SAFETY: the caller's contract.
            *vector = unsafe { s.load(b.add(v * b_vector)) };
        }
        for (i, line) in acc.iter_mut().enumerate() {
            // SAFETY: the caller's contract.
            let element = s.splat(unsafe { *a.add(i * a_row) });
            for (x, vector) in line.iter_mut().zip(vectors) {
                *x = s.mul_add(element, vector, *x);
            }
        }
        // Past the last step these pointers are not read; they may lie outside the operands.
        a = a.wrapping_add(a_step);
        b = b.wrapping_add(b_step);
    }
    acc
}

/// Steps by which a panel is asked for before it is multiplied: from the second-level cache to the
/// first takes about one step of six rows, and more when others wait for the bus.
const PANEL_AHEAD: usize = 8;

/// What a tile asks memory for while it multiplies, for whoever comes after it.
#[derive(Clone, Copy)]
pub(super) struct Ahead {
    /// Where it starts, any address.
    pub(super) from: *const f32,
    /// Floats for each two steps of `k`.
    pub(super) part: usize,
}

/// [`tile`], which meanwhile asks memory for its part of what will be multiplied next: as much as it
/// multiplies itself, shared by `TILES` tiles that multiply the same block.
///
/// The requests are spread evenly over the steps: a burst of them would fill the queue to memory and
/// hold up the loads behind it. Several requests for one line cost next to nothing.
///
/// * `NEAR`: what is multiplied is in the first-level cache, and what is next is asked for there.
/// * Otherwise both are in the second-level cache, and each line is brought nearer
///   [`PANEL_AHEAD`] steps before it is multiplied. `TILES` may be fewer than there are.
///
/// # Safety
/// As [`tile`].
#[inline(always)]
pub(super) unsafe fn tile_streamed<
    S: Lanes,
    const MR: usize,
    const NV: usize,
    const TILES: usize,
    const NEAR: bool,
>(
    s: S,
    mut acc: Tile<S, MR, NV>,
    depth: usize,
    operands: Operands,
    ahead: Ahead,
) -> Tile<S, MR, NV> {
    let Operands { mut a, a_row, a_step, mut b, b_step, b_vector } = operands;
    let requests = (2 * S::PANEL).div_ceil(TILES * LINE);
    let mut at = ahead.from;
    // A constant where it can be: there are no instructions to spare between few rows.
    let part = if NEAR { (2 * S::PANEL).div_ceil(TILES) } else { ahead.part };
    let apart = part.div_ceil(requests);
    for _ in 0..depth / 2 {
        for half in 0..2 {
            let now = match (requests % 2, half) {
                (0, _) => requests / 2,
                (_, 0) => requests,
                _ => 0,
            };
            for _ in 0..now {
                if NEAR {
                    s.prefetch(at)
                } else {
                    s.prefetch_outer(at)
                }
                at = at.wrapping_add(apart);
            }
            for v in (0..if NEAR { 0 } else { NV }).step_by((LINE / S::LANES).max(1)) {
                s.prefetch(b.wrapping_add(PANEL_AHEAD * b_step + v * b_vector));
            }
            let mut vectors = [s.splat(0.0); NV];
            for (v, vector) in vectors.iter_mut().enumerate() {
                // SAFETY: the caller's contract.
                *vector = unsafe { s.load(b.add(v * b_vector)) };
            }
            for (i, line) in acc.iter_mut().enumerate() {
                // SAFETY: the caller's contract.
                let element = s.splat(unsafe { *a.add(i * a_row) });
                for (x, vector) in line.iter_mut().zip(vectors) {
                    *x = s.mul_add(element, vector, *x);
                }
            }
            // Past the last step these pointers are not read; they may lie outside the operands.
            a = a.wrapping_add(a_step);
            b = b.wrapping_add(b_step);
        }
    }
    // SAFETY: the caller's contract, for the step that is left of an odd number.
    unsafe { tile(s, acc, depth % 2, Operands { a, b, ..operands }) }
}

/// `depth` steps of one row against `PANELS` adjacent panels: more chains of additions than one
/// panel has, for the row that is alone. Asks for each panel `AHEAD` steps early, if `AHEAD` is not 0.
///
/// # Safety
/// As [`tile`], for one row and `PANELS` panels `b_panel` elements apart.
#[inline(always)]
pub(super) unsafe fn row<S: Lanes, const PANELS: usize, const NV: usize, const AHEAD: usize>(
    s: S,
    mut acc: [[S::F32; NV]; PANELS],
    depth: usize,
    operands: Operands,
    b_panel: usize,
) -> [[S::F32; NV]; PANELS] {
    let Operands { mut a, a_step, mut b, b_step, b_vector, .. } = operands;
    for _ in 0..depth {
        // SAFETY: the caller's contract.
        let element = s.splat(unsafe { *a });
        for line in 0..if AHEAD > 0 { PANELS * NV } else { 0 } {
            let (panel, v) = (line / NV, line % NV);
            s.prefetch(b.wrapping_add(panel * b_panel + v * b_vector + AHEAD * b_step));
        }
        for (panel, line) in acc.iter_mut().enumerate() {
            for (v, x) in line.iter_mut().enumerate() {
                // SAFETY: the caller's contract.
                let vector = unsafe { s.load(b.add(panel * b_panel + v * b_vector)) };
                *x = s.mul_add(element, vector, *x);
            }
        }
        a = a.wrapping_add(a_step);
        b = b.wrapping_add(b_step);
    }
    acc
}
