//! Converts 16-bit weights to f32, in one of two places. Both conversions are exact, and the sums are those of f32
//! weights in the same order, so the bits are the same.
//!
//! * Few rows, which are limited by memory bandwidth: in the tile, as a [`TileOperand`].
//! * Many rows: one block of a panel at a time, on the stack, for the f32 tiles. The conversion takes little time
//!   compared with the tiles, and no tile is compiled twice.

use super::microkernel::{Panels, Rows, TileOperand, f32_elements, multiply};
use super::prefetch_weights::{PrefetchTarget, WeightReads};
use super::store_tile::GemmRange;
use crate::dtype::Dtype;
use crate::parallel::share;
use crate::prefetch::{CacheLevel, PerPeriod, PerStep, Sparse, strong_hw_prefetcher};
use crate::simd::half::{Bf16, F16, F16Load, LowRegister};
use crate::simd::{
    CACHE_LINE_F32, MAX_LANES, MAX_MR, SimdF32, SimdOp, array_of, simd_op, tile_heights,
};
use core::marker::PhantomData;

/// Independent chains of additions that use the full FMA throughput of a CPU.
const CHAINS: usize = 8;

/// Words of weights that an outer cache may hold from one call to the next. When weights come from memory, two panels
/// at a time are faster than any other number, and additions and conversions do not affect the time.
const CACHED_WORDS: usize = 4 << 20;

/// Words between the prefetch of a panel's line and its use.
const PREFETCH_WORDS: usize = 512;

/// f32 times bf16 or f16, of which `PARTS` steps share a vector of memory.
#[derive(Clone, Copy)]
pub(crate) struct F16Operand<S, L, const PARTS: usize>(S, PhantomData<L>);

impl<S, L, const PARTS: usize> F16Operand<S, L, PARTS> {
    #[inline(always)]
    pub(crate) fn new(s: S) -> Self {
        Self(s, PhantomData)
    }
}

impl<S: SimdF32, L: F16Load, const PARTS: usize> TileOperand for F16Operand<S, L, PARTS> {
    f32_elements!();
    type Weight = u16;
    const PARTS: usize = PARTS;

    #[inline(always)]
    unsafe fn load(self, from: *const u16, part: usize) -> S::F32 {
        // SAFETY: `# Safety` of this function.
        unsafe { L::load(self.0, from.cast(), part % PARTS) }
    }
}

/// f32 elements times f16 weights, in vectors of half the width.
#[derive(Clone, Copy)]
struct HalfWidth<S>(S);

impl<S: SimdF32> TileOperand for HalfWidth<S> {
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
        // SAFETY: `# Safety` of this function.
        unsafe { self.0.load_f16_half(from, part % Self::PARTS) }
    }
    #[inline(always)]
    unsafe fn broadcast(self, from: *const f32) -> Self::Vector {
        // SAFETY: `# Safety` of this function.
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

simd_op!(
    /// Widens `steps` rows of a panel at `from` to f32, `[steps][PANEL]`. The first row has an even index.
    ///
    /// # Safety
    /// `from` is valid for reads of `steps` rows, and of one more if `steps` is odd; `to` is valid for writes of
    /// `steps` rows.
    pub(super) unsafe fn widen<S: SimdF32>(
        s: S,
        dtype: Dtype,
        from: *const f32,
        steps: usize,
        to: *mut f32,
    ) {
        if !cfg!(feature = "f16") {
            unreachable!("`PackOptions::buffer_len` rejects 16-bit dtypes");
        }
        // SAFETY: the contract of this function.
        unsafe {
            match dtype {
                Dtype::F16 => widen_rows::<S, F16>(s, from, steps, to),
                Dtype::Bf16 | Dtype::F32 => widen_rows::<S, Bf16>(s, from, steps, to),
            }
        }
    }
);

/// [`widen`] for one dtype.
///
/// # Safety
/// As [`widen`].
#[inline(always)]
unsafe fn widen_rows<S: SimdF32, L: F16Load>(s: S, from: *const f32, steps: usize, to: *mut f32) {
    // SAFETY: `# Safety` of this function: all rows below `steps` are read and written.
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

/// Widens one of the two rows at `from` to f32.
///
/// # Safety
/// `from` is valid for reads of two rows, and `to` for writes of one row.
#[inline(always)]
unsafe fn row<S: SimdF32, L: F16Load>(s: S, from: *const f32, part: usize, to: *mut f32) {
    for at in (0..S::PANEL).step_by(S::LANES) {
        // SAFETY: `# Safety` of this function.
        unsafe { s.store(to.add(at), L::load(s, from.add(at), part)) };
    }
}

simd_op!(
    /// Few rows, with panels of 16-bit weights.
    pub(super) fn few_rows<S: SimdF32>(s: S, range: GemmRange<'_>) {
        if !cfg!(feature = "f16") {
            unreachable!("`PackOptions::buffer_len` rejects 16-bit dtypes");
        }
        match range.weight.dtype() {
            Dtype::F16 => s.call_noinline(few_rows_of::<F16>(range)),
            Dtype::Bf16 | Dtype::F32 => s.call_noinline(few_rows_of::<Bf16>(range)),
        }
    }
);

simd_op!(
    /// [`few_rows`] for one dtype, as a separate function. All tiles are multiplied by a panel, which stays in the L2
    /// cache, before the next panel.
    fn few_rows_of<S: SimdF32, L: F16Load, const NV: usize = { S::PANEL / S::LANES }>(
        s: S,
        range: GemmRange<'_>,
    ) {
        const { assert!(MAX_MR == 6, "all heights of a tile") };
        let tiles = range.rows.len().div_ceil(max_rows::<S>());
        let max_panels = if range.in_cache() { 3 } else { 2 };
        let mut panel = range.panels.start;
        while panel < range.panels.end {
            // Several panels at once are used for one tile, or for tiles of three rows.
            let most = match tiles {
                1 => max_panels,
                _ if range.rows.len() == 3 * tiles => 2,
                _ => 1,
            };
            let most = most.min(range.panels.end - panel);
            let mut done = 1;
            for tile in 0..tiles {
                let local = share(range.rows.len(), tiles, tile);
                let row = range.rows.start + local.start;
                done = tile_heights!(local.len(), [1 2 3 4 5 6], MR if MR <= max_rows::<S>() => {
                    let tile = f16_tile::<L, MR, NV>(&range, (row, panel), most);
                    // One function with all tiles would take several times as long to compile.
                    if const { MR > 1 } { s.call_noinline(tile) } else { tile.run_with(s) }
                });
            }
            panel += done;
        }
    }
);

/// Rows of the tallest tile. With 16 registers, a tile of six rows would leave none for the conversion.
const fn max_rows<S: SimdF32>() -> usize {
    if S::REGISTERS > 16 { MAX_MR } else { MAX_MR - 1 }
}

simd_op!(
    /// Computes a tile of as many panels as are needed for enough chains of additions, but at most `most`. Returns the
    /// number of panels.
    fn f16_tile<S: SimdF32, L: F16Load, const MR: usize, const NV: usize>(
        s: S,
        range: &GemmRange<'_>,
        at: (usize, usize),
        most: usize,
    ) -> usize {
        // This is for x86-64. Four panels would take all of the 16 registers: the sums and as many vectors of weights.
        // On other CPUs a vector is two registers, or a panel is four vectors.
        if const { S::MAY_PREFER_HW_PREFETCH && L::HALF_VECTORS && MR == 1 }
            && strong_hw_prefetcher(s)
            && range.in_cache()
        {
            range.half_width::<S, MR, NV>(s, at);
            1
        } else if const { S::PREFETCHES && MR * NV <= CHAINS / 4 } && most >= 3 {
            range.panels::<S, L, 3, MR, NV>(s, at);
            3
        } else if const { MR == 1 || S::PREFETCHES && MR * NV < CHAINS } && most >= 2 {
            // Registers: the sums, the weights of a panel and an element.
            if const { 2 * MR * NV + NV + 1 >= S::REGISTERS - 1 } {
                range.panels::<S, LowRegister<L>, 2, MR, NV>(s, at);
            } else {
                range.panels::<S, L, 2, MR, NV>(s, at);
            }
            2
        } else {
            range.panels::<S, L, 1, MR, NV>(s, at);
            1
        }
    }
);

impl GemmRange<'_> {
    /// Whether an outer cache may hold the weights from one call to the next.
    #[inline(always)]
    fn in_cache(&self) -> bool {
        let weight = self.weight;
        weight.dtype().words(weight.depth()) * weight.columns() <= CACHED_WORDS
    }

    /// Computes a tile of one panel in vectors of half the width, which doubles the number of chains. `multiply` treats
    /// the two halves of each vector as two panels.
    #[inline(always)]
    fn half_width<S: SimdF32, const MR: usize, const NV: usize>(
        &self,
        s: S,
        (row, panel): (usize, usize),
    ) {
        let Self { a, weight, store, .. } = self;
        let rows = Rows::from_matrix(a, row, 0);
        let at = weight.address(panel, 0);
        let prefetch = Sparse::sparse(at, S::PANEL / 2);
        let at = [at, at.wrapping_add(S::Half::LANES / 2)];
        let panels = Panels { at, step: S::PANEL, vector: S::LANES };
        let half = s.half();
        let zero = [[[half.splat(0.0); NV]; MR]; 2];
        let mut acc = [[s.splat(0.0); NV]; MR];
        // SAFETY: rows `row..row + MR` are in the view `a` and the panel is in `weight`, because `GemmRange` has ranges
        // of both; no other part stores this panel. `buffer` has `MAX_LANES` floats, at least two `Half` vectors.
        unsafe {
            let [low, high] = multiply(HalfWidth(s), zero, weight.depth(), rows, panels, prefetch);
            for i in 0..MR {
                for v in 0..NV {
                    let mut buffer = [0.0; MAX_LANES];
                    let to = buffer.as_mut_ptr();
                    half.store(to, low[i][v]);
                    half.store(to.add(S::Half::LANES), high[i][v]);
                    acc[i][v] = s.load(to);
                }
            }
            store.store_panels(s, [acc], self.output::<S>((row, MR), (panel, 1)));
        }
    }

    /// Computes a tile of `P` panels.
    #[inline(always)]
    fn panels<S: SimdF32, L: F16Load, const P: usize, const MR: usize, const NV: usize>(
        &self,
        s: S,
        (row, panel): (usize, usize),
    ) {
        let Self { a, weight, store, .. } = self;
        let rows = Rows::from_matrix(a, row, 0);
        let at = array_of!(p in P => weight.address(panel + p, 0));
        // One step of `k` is half of the words of two rows.
        let words = S::PANEL / 2;
        let weights = array_of!(p in P => at[p].cast());
        let panels = Panels { at: weights, step: 2 * S::PANEL, vector: 2 * S::LANES };
        let operand = F16Operand::<S, L, 2>::new(s);
        let zero = [[[s.splat(0.0); NV]; MR]; P];
        // SAFETY: rows `row..row + MR` are in the view `a` and the panels `panel..panel + P` are in `weight`, because
        // `GemmRange` has ranges of both and `f16_tile` takes no more panels than remain; no other part stores these panels.
        unsafe {
            let cached = self.in_cache();
            let reads = WeightReads { bytes: 2, rows: MR, shared: false, cached };
            let sums = match PrefetchTarget::select(s, reads) {
                PrefetchTarget::Sparse if const { S::MAY_PREFER_HW_PREFETCH && MR == 1 && P > 1 } =>
                {
                    let prefetch = array_of!(p in P => Sparse::sparse(at[p], words));
                    multiply(operand, zero, weight.depth(), rows, panels, prefetch)
                }
                // One line in two steps. When weights come from memory, requesting a line twice would not make it
                // arrive later.
                _ if const { S::PREFETCHES && S::PANEL == CACHE_LINE_F32 } && cached => {
                    let (apart, cache) = (CACHE_LINE_F32, CacheLevel::L1);
                    let prefetch = array_of!(p in P => {
                        let at = at[p].wrapping_add(PREFETCH_WORDS);
                        PerPeriod::<2> { at, apart, count: 1, cache }
                    });
                    multiply(operand, zero, weight.depth(), rows, panels, prefetch)
                }
                _ => {
                    let count = if S::PREFETCHES { words.div_ceil(CACHE_LINE_F32) } else { 0 };
                    let prefetch = array_of!(p in P => {
                        let at = at[p].wrapping_add(PREFETCH_WORDS);
                        PerStep::new(at, words, count, CACHE_LINE_F32)
                    });
                    multiply(operand, zero, weight.depth(), rows, panels, prefetch)
                }
            };
            store.store_panels(s, sums, self.output::<S>((row, MR), (panel, P)));
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
    fn every_16_bit_value_widens_exactly_on_every_isa() {
        let all: Vec<u16> = (0..=u16::MAX).collect();
        let from = all.as_ptr().cast::<f32>();
        for isa in Isa::available() {
            let (panel, lanes) = (isa.panel(), isa.lanes());
            let steps = all.len() / panel;
            for dtype in [Dtype::Bf16, Dtype::F16] {
                let mut found = vec![0.0f32; all.len()];
                // SAFETY: both have all rows.
                isa.dispatch(unsafe { widen(dtype, from, steps, found.as_mut_ptr()) });
                for (at, found) in found.into_iter().enumerate() {
                    let (k, column) = (at / panel, at % panel);
                    let position = match dtype {
                        Dtype::F16 => column / lanes * 2 * lanes + k % 2 * lanes + column % lanes,
                        _ => 2 * column + k % 2,
                    };
                    let expected = dtype.widen(all[k / 2 * 2 * panel + position]);
                    let same = found.to_bits() == expected.to_bits();
                    assert!(same || found.is_nan() && expected.is_nan(), "{isa}: {expected:e}");
                }
            }
        }
    }
}
