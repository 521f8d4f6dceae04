//! Computes all columns in int8: their upper bounds, and the columns whose upper bound reaches the best lower bound.
//!
//! With AVX-512 a tile is up to twelve rows and the two vectors of a panel, 24 sums in registers. A step of four `k`
//! loads two vectors, broadcasts twelve words and does 24 multiplications, so the loads are not the limit. With AVX2 a
//! tile is two rows and four vectors, eight sums.
//!
//! Panels, rows and the multiplication are those of int8 GEMM. Its tiles are not: they store results and never look at a
//! panel again, while here a tile must be a whole panel, whose bounds are computed once, in a function that serves
//! tiles of all heights.
//!
//! Bounds are compared with the best lower bound of the row in any part. After the first few panels almost no vector
//! has a candidate, so the code for candidates is scalar.

use super::build::ColumnStatistic;
use super::error_bound::BIAS_ROUNDING;
use super::product::{CANDIDATES, Candidate, PARTS, Product};
use super::row_bounds::BoundedRows;
use crate::gemm::{Integers, PANEL, Panels, Rows, Single, multiply};
use crate::parallel::share;
use crate::prefetch::PerStep;
use crate::simd::int8::{Int8Dot, MAX_MR, SimdI32};
use crate::simd::{CACHE_LINE_F32, MAX_LANES, SimdF32, array_of, simd_op, tile_heights};
use crate::sync_ptr::SharedMut;
use core::mem::MaybeUninit;
use core::ops::Range;

/// One call of [`super::argmax`].
pub(super) struct ScanTask<'a> {
    pub(super) product: &'a Product<'a>,
    pub(super) rows: BoundedRows<'a>,
    pub(super) banned: &'a (dyn Fn(usize, u32) -> bool + Sync),
    /// `[PARTS][rows]`: number of candidates in each list.
    pub(super) counts: SharedMut<'a, u32>,
    /// `[PARTS][rows][CANDIDATES]`.
    pub(super) lists: SharedMut<'a, Candidate>,
}

impl ScanTask<'_> {
    /// The count and the list of a row in one part.
    ///
    /// # Safety
    /// No other reference to them is used during the lifetime of the result.
    #[allow(clippy::mut_from_ref)]
    pub(super) unsafe fn list(&self, part: usize, row: usize) -> (&mut u32, &mut [Candidate]) {
        let rows = self.rows.quantized.rows();
        assert!(part < PARTS && row < rows);
        let at = part * rows + row;
        // SAFETY: both have PARTS parts of `rows` rows, and the assertion checks `part` and `row`. `# Safety` of
        // this function excludes other references.
        unsafe { (&mut self.counts.part(at, 1)[0], self.lists.part(at * CANDIDATES, CANDIDATES)) }
    }

    /// Records the columns of one vector of bounds that may be the largest.
    #[inline(never)]
    fn record(&self, part: usize, row: usize, first: usize, upper: &[f32], bound: &[f32]) {
        // SAFETY: one task computes this part, and it calls `record` for one vector at a time.
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
            // `bound` includes the roundings of this difference. NaN does not raise the bound.
            best.raise(upper - 2.0 * bound);
            let upper = if upper.is_nan() { f32::INFINITY } else { upper };
            if *count as usize == CANDIDATES {
                let lower_bound = best.get();
                let mut remaining = 0;
                for i in 0..CANDIDATES {
                    if !(list[i].upper < lower_bound) {
                        list[remaining] = list[i];
                        remaining += 1;
                    }
                }
                *count = remaining as u32;
                if remaining == CANDIDATES {
                    // Too many candidates: the row becomes undecided, in this part and in the others.
                    best.raise(f32::INFINITY);
                    return;
                }
            }
            list[*count as usize] = Candidate { column: column as u32, upper };
            *count += 1;
        }
    }
}

simd_op!(
    /// Scans the panels `panels` as part `part` of the columns.
    pub(super) fn scan<B: Int8Dot, const NV: usize, const TV: usize>(
        b: B,
        job: &ScanTask<'_>,
        part: usize,
        panels: Range<usize>,
    ) {
        const {
            assert!(NV * <B::Floats as SimdF32>::LANES == PANEL, "NV vectors are a panel");
            assert!(B::ROWS <= MAX_MR && MAX_MR == 12);
        }
        let (rows, tiles) = (job.rows.quantized.rows(), job.rows.quantized.tiles());
        let scan = Scan { job, part };
        for panel in panels {
            for tile in 0..tiles {
                let range = share(rows, tiles, tile);
                let next = scan.prefetch(panel + 1, tile, tiles);
                tile_heights!(range.len(), [1 2 3 4 5 6 7 8 9 10 11 12], MR if MR <= B::ROWS => {
                    scan.tile::<B, MR, NV>(b, panel, range, next)
                });
            }
        }
    }
);

/// One part of the columns.
struct Scan<'s, 'a> {
    job: &'s ScanTask<'a>,
    part: usize,
}

impl Scan<'_, '_> {
    /// Where tile `tile` of `tiles` begins to prefetch its share of panel `next`, and the floats for each step.
    #[inline(always)]
    fn prefetch(&self, next: usize, tile: usize, tiles: usize) -> (*const f32, usize) {
        let panels = self.job.product.pruning_table.panels();
        let (from, after) = (panels.address(next), panels.address(next + 1));
        let floats = (after as usize - from as usize) / size_of::<f32>() / tiles;
        (from.wrapping_add(tile * floats), floats.div_ceil(panels.steps().max(1)))
    }

    /// The integer products of `rows` with `panel`, and their bounds.
    #[inline(always)]
    fn tile<B: Int8Dot, const MR: usize, const NV: usize>(
        &self,
        b: B,
        panel: usize,
        rows: Range<usize>,
        (next, floats): (*const f32, usize),
    ) {
        let (s, first, lanes) = (b.sums().floats(), rows.start, <B::Floats as SimdF32>::LANES);
        let (weights, statistics) = self.job.product.pruning_table.panel(panel);
        let steps = weights.len() / PANEL;
        let offsets = statistics[ColumnStatistic::Offset as usize].as_ptr();
        // SAFETY: there are PANEL offsets, which are NV vectors.
        let sums =
            unsafe { [array_of!(v in NV => Single(b).start(offsets.add(v * lanes).cast())); MR] };
        let words = self.job.rows.quantized.words(rows);
        let row_words = const { <Single<B> as Integers>::WORDS };
        assert!(words.len() == MR * steps * row_words);
        let words = Rows { at: words.as_ptr().cast(), row: row_words, step: MR * row_words };
        let weights = Panels::from_ptr(weights.as_ptr().cast(), PANEL, lanes);
        // The condition is outside of the loop over steps only if it is here.
        let count = if floats > CACHE_LINE_F32 { 2 } else { 1 };
        let next = PerStep::new(next, floats, count, CACHE_LINE_F32);
        // SAFETY: the assertion above: the tile has `MR` elements for each step, and the panel has NV vectors for each.
        let [sums] = unsafe { multiply(Single(b), [sums], steps, words, weights, next) };
        let mut buffer = MaybeUninit::<[[f32; PANEL]; MR]>::uninit();
        for (i, line) in sums.into_iter().enumerate() {
            for (v, sum) in line.into_iter().enumerate() {
                let at = buffer.as_mut_ptr().cast::<f32>().wrapping_add(i * PANEL + v * lanes);
                // SAFETY: NV vectors are PANEL floats, so row `i < MR` fits `buffer`.
                unsafe { s.store(at, b.sums().to_f32(sum)) };
            }
        }
        // SAFETY: the loop above stored all of it.
        let products = unsafe { buffer.assume_init_ref() };
        s.call_noinline(bound_panel(self, panel, first, products));
    }
}

simd_op!(
    /// Bounds the elements of a panel in the rows from `first_row` on, and records the columns that may be the largest.
    /// `products` are the integer products. One function serves tiles of all heights.
    fn bound_panel<S: SimdF32>(
        s: S,
        scan: &Scan<'_, '_>,
        panel: usize,
        first_row: usize,
        products: &[[f32; PANEL]],
    ) {
        let job = scan.job;
        let Product { pruning_table, bias, .. } = *job.product;
        let (_, statistics) = pruning_table.panel(panel);
        for first in (0..PANEL).step_by(S::LANES) {
            let statistic =
                |which: ColumnStatistic| statistics[which as usize][first..][..S::LANES].as_ptr();
            // SAFETY: the slices of `statistic` have LANES floats. The bias is read only up to its length.
            let (scale, norm, error, bias) = unsafe {
                let bias = match bias {
                    Some(bias) => {
                        let valid = bias.get(panel * PANEL + first..).unwrap_or_default();
                        s.load_prefix(valid.as_ptr(), valid.len().min(S::LANES))
                    }
                    None => s.splat(0.0),
                };
                (
                    s.load(statistic(ColumnStatistic::Scale)),
                    s.load(statistic(ColumnStatistic::Norm)),
                    s.load(statistic(ColumnStatistic::Error)),
                    bias,
                )
            };
            // A bias of -inf means a column that is never chosen. Its bound stays finite.
            let bias_bound = s.mul(s.min(s.abs(bias), s.splat(f32::MAX)), s.splat(BIAS_ROUNDING));
            for (row, products) in (first_row..).zip(products) {
                let row_bound = job.rows.bound(row);
                // SAFETY: the slice has LANES floats.
                let product = unsafe { s.load(products[first..][..S::LANES].as_ptr()) };
                let product = s.mul(product, scale);
                let product = s.mul_add(product, s.splat(row_bound.scale), bias);
                // The int8 product may overflow where the f32 product does not. No bound is below the smallest f32.
                let product = s.max(s.splat(f32::MIN), product);
                let bound = s.mul_add(error, s.splat(row_bound.error_factor), bias_bound);
                let bound = s.mul_add(norm, s.splat(row_bound.norm_factor), bound);
                let upper = s.add(product, bound);
                let best = s.splat(job.rows.best(row).get());
                if s.any(s.not_less(upper, best)) {
                    let (mut uppers, mut bounds) = ([0.0; MAX_LANES], [0.0; MAX_LANES]);
                    // SAFETY: both arrays have MAX_LANES floats, at least one vector.
                    unsafe {
                        s.store(uppers.as_mut_ptr(), upper);
                        s.store(bounds.as_mut_ptr(), bound);
                    }
                    let column = panel * PANEL + first;
                    job.record(scan.part, row, column, &uppers[..S::LANES], &bounds[..S::LANES]);
                }
            }
        }
    }
);
