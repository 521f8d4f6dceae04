//! All columns in bytes: upper bounds, and the columns whose bound reaches the best so far.
//!
//! With AVX-512 a tile is up to twelve rows and the two vectors of a panel, 24 sums in registers: a
//! step of four `k` loads two vectors, broadcasts twelve words and multiplies 24 times, so that the
//! loads leave room. With AVX2 it is two rows and four vectors, eight sums. The sums start from the offsets of the columns, which makes the bytes of `x` signed.
//!
//! Bounds are compared with the best lower bound that any part has found for the row; after the first
//! few panels hardly a vector passes, so what happens to those that do is plain code.

use super::build::{ColumnStatistic, PANEL, start_of};
use super::candidates::{CANDIDATES, Candidate, PARTS};
use super::error_bound::BIAS_ROUNDING;
use super::product::Product;
use super::quantize_rows::{QuantizedRows, Tiles};
use crate::gemm::{Panels, PrefetchLines, Rows, TileOperand, multiply};
use crate::parallel::share;
use crate::simd::int8::{ActivationEncoding, Int8Dot, Int8Op, MAX_MR};
use crate::simd::{CACHE_LINE_F32, MAX_LANES, SimdF32};
use core::mem::MaybeUninit;
use core::ops::Range;

/// One call of [`super::argmax`].
pub(super) struct ScanTask<'a> {
    pub(super) product: &'a Product<'a>,
    pub(super) rows: QuantizedRows<'a>,
    pub(super) banned: &'a (dyn Fn(usize, u32) -> bool + Sync),
    /// `[PARTS][rows]`: candidates in each list.
    pub(super) counts: *mut u32,
    /// `[PARTS][rows][CANDIDATES]`.
    pub(super) lists: *mut Candidate,
}

// SAFETY: a part writes the lists and counts of its own only, and they are read when all are done.
unsafe impl Send for ScanTask<'_> {}
// SAFETY: through `&ScanTask` a part writes the lists and counts of its own only (`ScanTask::list`), and
// `largest` reads them after `for_each` has returned.
unsafe impl Sync for ScanTask<'_> {}

impl ScanTask<'_> {
    /// The count and the list of a row in one part.
    ///
    /// # Safety
    /// Nobody else uses them while the result lives.
    #[allow(clippy::mut_from_ref)]
    pub(super) unsafe fn list(
        &self,
        part: usize,
        row: usize,
    ) -> (&mut u32, &mut [Candidate; CANDIDATES]) {
        assert!(part < PARTS && row < self.rows.count);
        let at = part * self.rows.count + row;
        // SAFETY: both have room for PARTS parts of `rows.count` rows.
        unsafe { (&mut *self.counts.add(at), &mut *self.lists.add(at * CANDIDATES).cast()) }
    }

    /// Keeps the columns of one vector of bounds that may be the largest.
    #[inline(never)]
    fn keep(&self, part: usize, row: usize, first: usize, upper: &[f32], bound: &[f32]) {
        // SAFETY: `part` is at work on this part alone, one vector at a time.
        let (count, list) = unsafe { self.list(part, row) };
        let best = self.rows.best(row);
        for (lane, (&upper, &bound)) in upper.iter().zip(bound).enumerate() {
            let column = first + lane;
            if column >= self.product.weight.columns() {
                return;
            }
            if upper < best.get() || (self.banned)(row, column as u32) {
                continue;
            }
            // Rounding is part of the bound; NaN raises nothing.
            best.raise(upper - 2.0 * bound);
            let upper = if upper.is_nan() { f32::INFINITY } else { upper };
            if *count as usize == CANDIDATES {
                let least = best.get();
                let mut kept = 0;
                for i in 0..CANDIDATES {
                    if !(list[i].upper < least) {
                        list[kept] = list[i];
                        kept += 1;
                    }
                }
                *count = kept as u32;
                if kept == CANDIDATES {
                    // Too many: the row is given up, here and in the other parts.
                    best.raise(f32::INFINITY);
                    return;
                }
            }
            list[*count as usize] = Candidate { column: column as u32, upper };
            *count += 1;
        }
    }
}

/// One part of the columns.
pub(super) struct Scan<'s, 'a> {
    pub(super) job: &'s ScanTask<'a>,
    pub(super) part: usize,
    pub(super) panels: Range<usize>,
}

impl Int8Op for Scan<'_, '_> {
    type Output = ();

    #[inline(always)]
    fn run<B: Int8Dot, const NV: usize, const TV: usize>(self, b: B) {
        const {
            assert!(NV * <B::Floats as SimdF32>::LANES == PANEL, "NV vectors are a panel");
            assert!(B::ROWS <= MAX_MR && MAX_MR == 12);
        }
        let rows = self.job.rows.count;
        let tiles = Tiles(rows).run::<B, NV, TV>(b);
        for panel in self.panels.clone() {
            for tile in 0..tiles {
                let range = share(rows, tiles, tile);
                let ahead = Prefetch::of(&self, panel + 1, tile, tiles);
                macro_rules! tiles {
                    ($($height:literal)*) => {
                        match range.len() {
                            $($height if const { $height <= B::ROWS } => {
                                self.tile::<B, $height, NV>(b, panel, range.start, ahead)
                            })*
                            height => unreachable!("a tile of {height} rows"),
                        }
                    };
                }
                tiles!(1 2 3 4 5 6 7 8 9 10 11 12);
            }
        }
    }
}

/// Bytes times bytes, four at a time: unsigned ones of `x`, signed ones of the weights.
#[derive(Clone, Copy)]
struct Words<B>(B);

impl<B: Int8Dot> TileOperand for Words<B> {
    type SimdF32 = B::Floats;
    type Element = i32;
    type Weight = i32;
    type Vector = B::I8x4;
    type Sum = B::I32;
    const A_STATIONARY: bool = matches!(B::STORED, ActivationEncoding::Pairs);

    #[inline(always)]
    fn lanes(self) -> B::Floats {
        self.0.floats()
    }
    #[inline(always)]
    unsafe fn load(self, from: *const i32, _: usize) -> B::I8x4 {
        // SAFETY: the caller's contract.
        unsafe { self.0.load(from) }
    }
    #[inline(always)]
    unsafe fn broadcast(self, from: *const i32) -> B::I8x4 {
        // SAFETY: the caller's contract.
        self.0.splat(unsafe { *from })
    }
    #[inline(always)]
    fn multiply_add(self, element: B::I8x4, weights: B::I8x4, sum: B::I32) -> B::I32 {
        self.0.dot(sum, element, weights)
    }
}

/// What a tile asks memory for: its share of the next panel.
#[derive(Clone, Copy)]
struct Prefetch {
    from: *const f32,
    /// Floats for each step.
    part: usize,
}

impl Prefetch {
    #[inline(always)]
    fn of(sweep: &Scan<'_, '_>, next: usize, tile: usize, tiles: usize) -> Self {
        let screen = sweep.job.product.screen;
        let share =
            (screen.address(1) as usize - screen.address(0) as usize) / size_of::<f32>() / tiles;
        let from = screen.address(next).wrapping_add(tile * share);
        Self { from, part: share.div_ceil(screen.steps().max(1)) }
    }
}

impl Scan<'_, '_> {
    #[inline(always)]
    fn tile<B: Int8Dot, const MR: usize, const NV: usize>(
        &self,
        b: B,
        panel: usize,
        row: usize,
        ahead: Prefetch,
    ) {
        let (s, job) = (b.floats(), self.job);
        let lanes = <B::Floats as SimdF32>::LANES;
        let Product { screen, bias, .. } = *job.product;
        let steps = screen.steps();
        let data = screen.panel(panel);
        let statistics =
            |which: ColumnStatistic, v: usize| &data[start_of(which, steps) + v * lanes..][..lanes];
        let mut sums = [[b.zero(); NV]; MR];
        for v in 0..NV {
            // SAFETY: a slice of LANES words.
            let offset =
                unsafe { b.load_sums(statistics(ColumnStatistic::Offset, v).as_ptr().cast()) };
            let offset = b.start(offset);
            for line in &mut sums {
                line[v] = offset;
            }
        }
        let words = Rows { at: job.rows.words(row, MR, steps), row: 1, step: MR };
        let weights = data[..steps * PANEL].as_ptr().cast::<i32>();
        let weights = Panels { at: [weights], step: PANEL, vector: lanes };
        let count = if ahead.part > CACHE_LINE_F32 { 2 } else { 1 };
        let next = PrefetchLines { at: ahead.from, step: ahead.part, count, apart: CACHE_LINE_F32 };
        // SAFETY: the tile has `MR` words for each step, and the panel NV vectors.
        let [sums] = unsafe { multiply(Words(b), [sums], steps, words, weights, next) };
        // Aside, so that what follows is a loop: unrolled it would be most of the code here.
        let mut room = MaybeUninit::<[f32; MAX_MR * PANEL]>::uninit();
        let products = room.as_mut_ptr().cast::<f32>();
        for (i, line) in sums.into_iter().enumerate() {
            for (v, sum) in line.into_iter().enumerate() {
                // SAFETY: `MR <= MAX_MR`, and NV vectors are PANEL floats.
                unsafe { s.store(products.add(i * PANEL + v * lanes), b.to_f32(sum)) };
            }
        }
        for v in 0..NV {
            let first = panel * PANEL + v * lanes;
            // SAFETY: slices of LANES floats; of the bias, as many as there are columns.
            let (scale, norm, error, bias) = unsafe {
                (
                    s.load(statistics(ColumnStatistic::Scale, v).as_ptr()),
                    s.load(statistics(ColumnStatistic::Norm, v).as_ptr()),
                    s.load(statistics(ColumnStatistic::Error, v).as_ptr()),
                    match bias {
                        Some(bias) => {
                            let valid = bias.get(first..).unwrap_or_default();
                            s.load_prefix(valid.as_ptr(), valid.len().min(lanes))
                        }
                        None => s.splat(0.0),
                    },
                )
            };
            // A bias of -inf is a column that never comes: its bound stays finite.
            let of_bias = s.mul(s.min(s.abs(bias), s.splat(f32::MAX)), s.splat(BIAS_ROUNDING));
            for i in 0..MR {
                let row_bound = job.rows.bound(row + i);
                // SAFETY: the loop over `sums` above stored `MR` rows of PANEL floats to
                // `products`.
                let product = unsafe { s.load(products.add(i * PANEL + v * lanes)) };
                let product = s.mul(product, scale);
                let product = s.mul_add(product, s.splat(row_bound.scale), bias);
                // Bytes may overflow where floats do not: no bound is below the least number.
                let product = s.max(s.splat(f32::MIN), product);
                let bound = s.mul_add(error, s.splat(row_bound.error_factor), of_bias);
                let bound = s.mul_add(norm, s.splat(row_bound.norm_factor), bound);
                let upper = s.add(product, bound);
                let best = s.splat(job.rows.best(row + i).get());
                if s.any(s.not_less(upper, best)) {
                    let (mut uppers, mut bounds) = ([0.0; MAX_LANES], [0.0; MAX_LANES]);
                    // SAFETY: room for any vector.
                    unsafe {
                        s.store(uppers.as_mut_ptr(), upper);
                        s.store(bounds.as_mut_ptr(), bound);
                    }
                    job.keep(self.part, row + i, first, &uppers[..lanes], &bounds[..lanes]);
                }
            }
        }
    }
}
