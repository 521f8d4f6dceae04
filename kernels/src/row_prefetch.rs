//! Software prefetch in loops over rows, which are not tiles.

use crate::prefetch::{CacheLevel, SPARSE_DISTANCE, prefetch_rows, strong_hw_prefetcher};
use crate::simd::{CACHE_LINE_F32, SimdF32, simd_op};

/// The next panel, for loops over rows: each row that is multiplied by a panel prefetches a share of the panel after
/// it, into the L2 cache.
#[cfg(any(vectors = "x86_64", vectors = "aarch64", test))]
#[derive(Clone, Copy)]
pub(crate) struct PrefetchPanel {
    /// Address of the next line. Any address is valid.
    from: *const f32,
    /// Lines per row.
    lines: usize,
}

#[cfg(any(vectors = "x86_64", vectors = "aarch64", test))]
impl PrefetchPanel {
    /// The floats from `from` to `end`, divided among `rows` rows.
    #[inline(always)]
    pub(crate) fn new(from: *const f32, end: *const f32, rows: usize) -> Self {
        let lines = (end as usize - from as usize) / size_of::<[f32; CACHE_LINE_F32]>();
        Self { from, lines: lines.div_ceil(rows) }
    }

    /// Prefetches the share of `rows` rows.
    #[inline(always)]
    pub(crate) fn issue<S: SimdF32>(&mut self, s: S, rows: usize) {
        for _ in 0..rows * self.lines {
            s.prefetch_l2(self.from);
            self.from = self.from.wrapping_add(CACHE_LINE_F32);
        }
    }
}

/// The rows of `TENSORS` tensors that a later task reads or writes, prefetched in parts during an earlier one. The rows
/// of one head are too short for the hardware prefetcher.
pub(crate) struct PrefetchRows<const TENSORS: usize> {
    /// For each tensor, the address of its first row, which may be invalid, its stride and its number of rows.
    tensors: [(*const f32, usize, usize); TENSORS],
    elements: usize,
    cache: CacheLevel,
    /// Progress: the number of finished tensors, and of finished rows of the next one.
    tensor: usize,
    row: usize,
}

impl<const TENSORS: usize> PrefetchRows<TENSORS> {
    /// Rows per call of [`PrefetchRows::issue`].
    const ROWS_PER_CALL: usize = 16;

    /// No rows.
    #[cfg(feature = "train")]
    pub(crate) const NOTHING: Self =
        Self::new([(core::ptr::null(), 0, 0); TENSORS], 0, CacheLevel::L2);

    /// Rows of `elements` floats of each tensor, given as address, stride and number of rows.
    pub(crate) const fn new(
        tensors: [(*const f32, usize, usize); TENSORS],
        elements: usize,
        cache: CacheLevel,
    ) -> Self {
        Self { tensors, elements, cache, tensor: 0, row: 0 }
    }

    /// Prefetches the next rows of a tensor.
    #[inline(always)]
    pub(crate) fn issue<S: SimdF32>(&mut self, s: S) {
        let Some(&(at, stride, rows)) = self.tensors.get(self.tensor) else { return };
        let at = at.wrapping_add(self.row.wrapping_mul(stride));
        let count = (rows - self.row).min(Self::ROWS_PER_CALL);
        prefetch_rows(s, self.cache, (at, stride, count), self.elements);
        self.row += count;
        if self.row == rows {
            (self.tensor, self.row) = (self.tensor + 1, 0);
        }
    }

    /// Prefetches all remaining rows.
    #[inline(always)]
    pub(crate) fn issue_all<S: SimdF32>(&mut self, s: S) {
        while self.tensor < TENSORS {
            self.issue(s);
        }
    }
}

simd_op!(
    /// [`PrefetchRows::issue_all`].
    pub(crate) fn prefetch_all<S: SimdF32, const TENSORS: usize>(
        s: S,
        rows: PrefetchRows<TENSORS>,
    ) {
        let mut rows = rows;
        rows.issue_all(s);
    }
);

/// A row of a matrix, prefetched while the rows before it are read.
#[derive(Clone, Copy)]
pub(crate) struct PrefetchRow {
    /// Any address is valid.
    pub(crate) at: *const f32,
    /// Whether one line of every 512 bytes is enough.
    sparse: bool,
}

impl PrefetchRow {
    /// The row at `at` of a matrix that is too large for the caches if `large`: then a strong hardware
    /// prefetcher needs only a few lines.
    #[inline(always)]
    pub(crate) fn new<S: SimdF32>(s: S, at: *const f32, large: bool) -> Self {
        Self { at, sparse: large && strong_hw_prefetcher(s) }
    }

    /// Prefetches the cache lines of `VECTORS` vectors at element `i`.
    #[inline(always)]
    pub(crate) fn issue<S: SimdF32, const VECTORS: usize>(self, s: S, i: usize) {
        const INTERVAL: usize = 128;
        if self.sparse {
            if i.is_multiple_of(INTERVAL) {
                s.prefetch_l2(self.at.wrapping_add(i + SPARSE_DISTANCE));
            }
            return;
        }
        for line in 0..VECTORS * S::LANES / CACHE_LINE_F32 {
            s.prefetch(self.at.wrapping_add(i + line * CACHE_LINE_F32));
        }
    }
}
