//! Weights of sixteen bits as floats, in one of two places. Both are exact, and the sums that follow are
//! those of floats, in their order: so are the bits.
//!
//! * Up to six rows, which wait for memory: in the tile, as a [`TileOperand`] of weights.
//! * More rows: a block of a panel at a time, on the stack, for the tiles of floats. What that takes is
//!   little beside what the tiles do with it, and no tile is compiled twice.

use super::dtype::Dtype;
use super::epilogue::Store;
use super::microkernel::{
    MAX_MR, Panels, PrefetchLines, Rows, SparsePrefetch, SpreadPrefetch, TileOperand, multiply,
};
use super::packing::PackedMatrix;
use crate::matrix::Matrix;
use crate::parallel::share;
use crate::simd::{CACHE_LINE_F32, MAX_LANES, SimdF32, SimdOp, TileOp};
use core::marker::PhantomData;
use core::ops::Range;

/// Chains of additions that keep the multipliers of a CPU busy.
const CHAINS: usize = 8;

/// Words that an outer cache may hold from one call to the next. From memory two panels come faster than
/// one or more, and neither additions nor conversions matter.
const CACHED_WORDS: usize = 4 << 20;

/// Words by which a tile asks for a panel early.
const AHEAD: usize = 512;

/// How a vector of such weights is read.
trait F16Load: Copy {
    /// Whether [`SimdF32::load_f16_half`] reads them.
    const HALVES: bool = false;
    /// [`TileOperand::load`] of vectors that hold two steps.
    ///
    /// # Safety
    /// `from` is valid for reads of a vector, and the CPU has what it takes.
    unsafe fn load<S: SimdF32>(s: S, from: *const f32, part: usize) -> S::F32;
    /// `load` with no register beside the result's, if it takes one.
    ///
    /// # Safety
    /// As `load`.
    #[inline(always)]
    unsafe fn load_alone<S: SimdF32>(s: S, from: *const f32, part: usize) -> S::F32 {
        // SAFETY: the caller's contract.
        unsafe { Self::load(s, from, part) }
    }
}

#[derive(Clone, Copy)]
struct Bf16;

#[derive(Clone, Copy)]
struct F16;

impl F16Load for Bf16 {
    #[inline(always)]
    unsafe fn load<S: SimdF32>(s: S, from: *const f32, part: usize) -> S::F32 {
        // SAFETY: the caller's contract.
        unsafe { s.load_bf16(from, part) }
    }
    #[inline(always)]
    unsafe fn load_alone<S: SimdF32>(s: S, from: *const f32, part: usize) -> S::F32 {
        // SAFETY: the caller's contract.
        unsafe { s.load_bf16_alone(from, part) }
    }
}

/// `L` in a tile that leaves no registers.
#[derive(Clone, Copy)]
struct LowRegister<L>(PhantomData<L>);

impl<L: F16Load> F16Load for LowRegister<L> {
    #[inline(always)]
    unsafe fn load<S: SimdF32>(s: S, from: *const f32, part: usize) -> S::F32 {
        // SAFETY: the caller's contract.
        unsafe { L::load_alone(s, from, part) }
    }
}

impl F16Load for F16 {
    const HALVES: bool = true;

    #[inline(always)]
    unsafe fn load<S: SimdF32>(s: S, from: *const f32, part: usize) -> S::F32 {
        // SAFETY: the caller's contract.
        unsafe { s.load_f16(from, part) }
    }
}

/// f32 times one of these.
#[derive(Clone, Copy)]
struct Widened<S, L>(S, PhantomData<L>);

impl<S: SimdF32, L: F16Load> TileOperand for Widened<S, L> {
    type SimdF32 = S;
    type Element = f32;
    type Weight = f32;
    type Vector = S::F32;
    type Sum = S::F32;
    const PARTS: usize = 2;

    #[inline(always)]
    fn lanes(self) -> S {
        self.0
    }
    #[inline(always)]
    unsafe fn load(self, from: *const f32, part: usize) -> S::F32 {
        // SAFETY: the caller's contract.
        unsafe { L::load(self.0, from, part % Self::PARTS) }
    }
    #[inline(always)]
    unsafe fn broadcast(self, from: *const f32) -> S::F32 {
        // SAFETY: the caller's contract.
        self.0.splat(unsafe { *from })
    }
    #[inline(always)]
    fn multiply_add(self, element: S::F32, weights: S::F32, sum: S::F32) -> S::F32 {
        self.0.mul_add(element, weights, sum)
    }
}

/// f32 times f16 in vectors of half the width.
#[derive(Clone, Copy)]
struct Halved<S>(S);

impl<S: SimdF32> TileOperand for Halved<S> {
    type SimdF32 = S;
    type Element = f32;
    type Weight = f32;
    type Vector = <S::Half as SimdF32>::F32;
    type Sum = <S::Half as SimdF32>::F32;
    const PARTS: usize = 2;

    #[inline(always)]
    fn lanes(self) -> S {
        self.0
    }
    #[inline(always)]
    unsafe fn load(self, from: *const f32, part: usize) -> Self::Vector {
        // SAFETY: the caller's contract.
        unsafe { self.0.load_f16_half(from, part % Self::PARTS) }
    }
    #[inline(always)]
    unsafe fn broadcast(self, from: *const f32) -> Self::Vector {
        // SAFETY: the caller's contract.
        self.0.half().splat(unsafe { *from })
    }
    #[inline(always)]
    fn multiply_add(
        self,
        element: Self::Vector,
        weights: Self::Vector,
        sum: Self::Sum,
    ) -> Self::Sum {
        self.0.half().mul_add(element, weights, sum)
    }
}

/// `steps` rows of a panel, the first of them an even one, as floats: `[steps][PANEL]`.
pub(super) struct Widen {
    pub(super) storage: Dtype,
    pub(super) from: *const f32,
    pub(super) steps: usize,
    pub(super) to: *mut f32,
}

impl Widen {
    /// # Safety
    /// `from` is valid for reads of `steps` rows, and of the one after them if they are odd, and `to` for
    /// writes of `steps` rows.
    #[inline(always)]
    pub(super) unsafe fn run<S: SimdF32>(self, s: S) {
        s.call_noinline(self);
    }

    #[inline(always)]
    fn rows<S: SimdF32, L: F16Load>(self, s: S) {
        let Self { from, steps, to, .. } = self;
        // SAFETY: the contract of `run`, for each row.
        unsafe {
            for pair in 0..steps / 2 {
                let (from, to) = (from.add(pair * S::PANEL), to.add(2 * pair * S::PANEL));
                row::<S, L>(s, from, 0, to);
                row::<S, L>(s, from, 1, to.add(S::PANEL));
            }
            if steps % 2 == 1 {
                let from = from.add(steps / 2 * S::PANEL);
                row::<S, L>(s, from, 0, to.add((steps - 1) * S::PANEL));
            }
        }
    }
}

/// One of the two rows at `from` as floats.
///
/// # Safety
/// They are there, and room for one at `to`.
#[inline(always)]
unsafe fn row<S: SimdF32, L: F16Load>(s: S, from: *const f32, part: usize, to: *mut f32) {
    for at in (0..S::PANEL).step_by(S::LANES) {
        // SAFETY: the caller's contract.
        unsafe { s.store(to.add(at), L::load(s, from.add(at), part)) };
    }
}

impl SimdOp for Widen {
    type Output = ();

    #[inline(always)]
    fn run<S: SimdF32>(self, s: S) {
        if !cfg!(feature = "f16") {
            unreachable!("`PackedMatrix::len_as` refuses 16-bit formats");
        }
        match self.storage {
            Dtype::F16 => self.rows::<S, F16>(s),
            Dtype::Bf16 | Dtype::F32 => self.rows::<S, Bf16>(s),
        }
    }
}

/// Rows that are few, with panels of 16-bit weights.
pub(super) struct FewRows<'a> {
    pub(super) a: Matrix<'a>,
    pub(super) weight: &'a PackedMatrix<'a>,
    pub(super) store: Store,
    pub(super) rows: Range<usize>,
    pub(super) panels: Range<usize>,
}

/// [`FewRows`] in one form: each a function of its own.
struct InDtype<'a, L>(FewRows<'a>, PhantomData<L>);

impl SimdOp for FewRows<'_> {
    type Output = ();

    #[inline(always)]
    fn run<S: SimdF32>(self, s: S) {
        if !cfg!(feature = "f16") {
            unreachable!("`PackedMatrix::len_as` refuses 16-bit formats");
        }
        match self.weight.storage() {
            Dtype::F16 => s.call_noinline(InDtype(self, PhantomData::<F16>)),
            Dtype::Bf16 | Dtype::F32 => s.call_noinline(InDtype(self, PhantomData::<Bf16>)),
        }
    }
}

impl<L: F16Load> SimdOp for InDtype<'_, L> {
    type Output = ();

    #[inline(always)]
    fn run<S: SimdF32>(self, s: S) {
        s.with_tile_width(self)
    }
}

impl<L: F16Load> TileOp for InDtype<'_, L> {
    type Output = ();

    /// All tiles pass over a panel, which stays in the second-level cache, before the next one.
    #[inline(always)]
    fn run<S: SimdF32, const NV: usize>(self, s: S) {
        const { assert!(MAX_MR == 6, "an arm for each height of a tile") };
        let Self(job, _) = self;
        let tiles = job.rows.len().div_ceil(tallest::<S>());
        let beside = if job.in_cache() { 3 } else { 2 };
        let mut panel = job.panels.start;
        while panel < job.panels.end {
            // Several of them at once are for one tile, or for tiles of three rows.
            let most = match tiles {
                1 => beside,
                _ if job.rows.len() == 3 * tiles => 2,
                _ => 1,
            };
            let most = most.min(job.panels.end - panel);
            let mut done = 1;
            for tile in 0..tiles {
                let local = share(job.rows.len(), tiles, tile);
                let row = job.rows.start + local.start;
                done = match local.len() {
                    1 => job.tile::<S, L, 1, NV>(s, row, panel, most),
                    2 => job.tile::<S, L, 2, NV>(s, row, panel, most),
                    3 => job.tile::<S, L, 3, NV>(s, row, panel, most),
                    4 => job.tile::<S, L, 4, NV>(s, row, panel, most),
                    5 => job.tile::<S, L, 5, NV>(s, row, panel, most),
                    6 if const { tallest::<S>() == 6 } => {
                        job.tile::<S, L, 6, NV>(s, row, panel, most)
                    }
                    rows => unreachable!("a tile of {rows} rows"),
                };
            }
            panel += done;
        }
    }
}

/// Rows of the tallest tile: where it would take all registers, none is left for what widens.
const fn tallest<S: SimdF32>() -> usize {
    if S::REGISTERS > 16 { MAX_MR } else { MAX_MR - 1 }
}

impl FewRows<'_> {
    /// Whether an outer cache may hold the weights from one call to the next.
    #[inline(always)]
    fn in_cache(&self) -> bool {
        let weight = self.weight;
        weight.storage().words(weight.depth()) * weight.columns() <= CACHED_WORDS
    }

    /// A tile of as many panels as it takes for enough chains of additions, but no more than `most`. Returns
    /// how many.
    #[inline(always)]
    fn tile<S: SimdF32, L: F16Load, const MR: usize, const NV: usize>(
        &self,
        s: S,
        row: usize,
        panel: usize,
        most: usize,
    ) -> usize {
        // On x86-64. Four panels would take all of sixteen registers: what they add to and as many vectors of
        // weights. Elsewhere a vector is two registers, or four of them are a panel.
        if const { S::MAY_PREFER_HW_PREFETCH && L::HALVES && MR == 1 }
            && s.prefers_hw_prefetch()
            && self.in_cache()
        {
            self.halved::<S, MR, NV>(s, row, panel);
            1
        } else if const { S::PREFETCHES && MR * NV <= CHAINS / 4 } && most >= 3 {
            self.panels::<S, L, 3, MR, NV>(s, row, panel);
            3
        } else if const { MR == 1 || S::PREFETCHES && MR * NV < CHAINS } && most >= 2 {
            // Sums, a panel's weights and an element.
            if const { 2 * MR * NV + NV + 1 >= S::REGISTERS - 1 } {
                self.panels::<S, LowRegister<L>, 2, MR, NV>(s, row, panel);
            } else {
                self.panels::<S, L, 2, MR, NV>(s, row, panel);
            }
            2
        } else {
            self.panels::<S, L, 1, MR, NV>(s, row, panel);
            1
        }
    }

    /// A tile of one panel in vectors of half the width, which make twice as many chains: to what multiplies, the
    /// halves of the vectors are two panels.
    #[inline(always)]
    fn halved<S: SimdF32, const MR: usize, const NV: usize>(&self, s: S, row: usize, panel: usize) {
        let Self { a, weight, store, .. } = self;
        let at = a.as_ptr().wrapping_add(row * a.row_stride());
        let rows = Rows { at, row: a.row_stride(), step: a.column_stride() };
        let at = weight.address(panel, 0);
        let ahead = SparsePrefetch::of(at, S::PANEL / 2);
        let at = [at, at.wrapping_add(S::Half::LANES / 2)];
        let panels = Panels { at, step: S::PANEL, vector: S::LANES };
        let half = s.half();
        let zero = [[[half.splat(0.0); NV]; MR]; 2];
        let mut acc = [[s.splat(0.0); NV]; MR];
        // SAFETY: rows `row..row + MR` are in the view `a` and the panel is in `weight`, because
        // `FewRows` has ranges of both; no other part stores this panel. `Half` vectors fit `room`,
        // which has `MAX_LANES` floats.
        unsafe {
            let [low, high] = multiply(Halved(s), zero, weight.depth(), rows, panels, ahead);
            for i in 0..MR {
                for v in 0..NV {
                    let mut room = [0.0; MAX_LANES];
                    let to = room.as_mut_ptr();
                    half.store(to, low[i][v]);
                    half.store(to.add(S::Half::LANES), high[i][v]);
                    acc[i][v] = s.load(to);
                }
            }
            let column = panel * S::PANEL;
            let valid = (weight.columns() - column).min(S::PANEL);
            store.finish::<S, MR, NV>(s, acc, row, column, valid);
        }
    }

    /// A tile of `P` panels.
    #[inline(always)]
    fn panels<S: SimdF32, L: F16Load, const P: usize, const MR: usize, const NV: usize>(
        &self,
        s: S,
        row: usize,
        panel: usize,
    ) {
        let Self { a, weight, store, .. } = self;
        let at = a.as_ptr().wrapping_add(row * a.row_stride());
        let rows = Rows { at, row: a.row_stride(), step: a.column_stride() };
        let mut at = [weight.address(panel, 0); P];
        for (p, at) in at.iter_mut().enumerate() {
            *at = weight.address(panel + p, 0);
        }
        // For each step of `k` half of the words of two.
        let words = S::PANEL / 2;
        let panels = Panels { at, step: S::PANEL, vector: S::LANES };
        let zero = [[[s.splat(0.0); NV]; MR]; P];
        // SAFETY: rows `row..row + MR` are in the view `a` and the panels `panel..panel + P` are in
        // `weight`, because `FewRows` has ranges of both and `tile` takes no more panels than are
        // left; no other part stores these panels.
        unsafe {
            let form = Widened(s, PhantomData::<L>);
            let sums = if const { S::MAY_PREFER_HW_PREFETCH && MR == 1 && P > 1 }
                && s.prefers_hw_prefetch()
            {
                let mut ahead = [SparsePrefetch::of(at[0], words); P];
                for (ahead, &at) in ahead.iter_mut().zip(&at) {
                    *ahead = SparsePrefetch::of(at, words);
                }
                multiply(form, zero, weight.depth(), rows, panels, ahead)
            } else if const { S::PREFETCHES && S::PANEL == CACHE_LINE_F32 } && self.in_cache() {
                // A line in two steps; from memory it comes no later if it is asked for twice.
                let mut ahead = [SpreadPrefetch::<1, true> { at: at[0], apart: CACHE_LINE_F32 }; P];
                for (ahead, at) in ahead.iter_mut().zip(at) {
                    ahead.at = at.wrapping_add(AHEAD);
                }
                multiply(form, zero, weight.depth(), rows, panels, ahead)
            } else {
                let count = if S::PREFETCHES { words.div_ceil(CACHE_LINE_F32) } else { 0 };
                let mut ahead =
                    [PrefetchLines { at: at[0], step: words, count, apart: CACHE_LINE_F32 }; P];
                for (ahead, at) in ahead.iter_mut().zip(at) {
                    ahead.at = at.wrapping_add(AHEAD);
                }
                multiply(form, zero, weight.depth(), rows, panels, ahead)
            };
            for (p, acc) in sums.into_iter().enumerate() {
                let column = (panel + p) * S::PANEL;
                let valid = (weight.columns() - column).min(S::PANEL);
                store.finish::<S, MR, NV>(s, acc, row, column, valid);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::isa::Isa;
    use std::vec;
    use std::vec::Vec;

    #[test]
    fn every_half_widens_alike_in_every_form() {
        let all: Vec<u16> = (0..=u16::MAX).collect();
        let from = all.as_ptr().cast::<f32>();
        for isa in Isa::available() {
            let (panel, lanes) = (isa.panel(), isa.lanes());
            let steps = all.len() / panel;
            for storage in [Dtype::Bf16, Dtype::F16] {
                let mut found = vec![0.0f32; all.len()];
                isa.dispatch(Widen { storage, from, steps, to: found.as_mut_ptr() });
                for (at, found) in found.into_iter().enumerate() {
                    let (k, column) = (at / panel, at % panel);
                    let place = match storage {
                        Dtype::F16 => column / lanes * 2 * lanes + k % 2 * lanes + column % lanes,
                        _ => 2 * column + k % 2,
                    };
                    let expected = storage.widen(all[k / 2 * 2 * panel + place]);
                    let same = found.to_bits() == expected.to_bits();
                    assert!(same || found.is_nan() && expected.is_nan(), "{isa}: {expected:e}");
                }
            }
        }
    }
}
