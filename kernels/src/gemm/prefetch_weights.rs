//! Which weights the tiles of a product prefetch: [`PrefetchTarget::select`] selects by CPU, rows and dtype, and
//! [`BlockPrefetch`] makes the policy of a tile that multiplies one block of `k` after the other.

use crate::dtype::Dtype;
use crate::parallel::share;
use crate::prefetch::{CacheLevel, PerPeriod, PerStep, Prefetch, Sparse, strong_hw_prefetcher};
use crate::simd::{CACHE_LINE_F32, MAX_MR, SimdF32};

/// The largest number of rows that counts as few: reading weights affects the time, and the part of `A` fits in an L1
/// cache together with two blocks of weights.
pub(super) const FEW_ROWS: usize = 6 * MAX_MR;

/// Largest number of sums per column of an int8 tile that is slow enough for a strong hardware prefetcher.
pub(super) const MAX_SPARSE_SUMS: usize = 4;

/// Which weights the tiles of a product prefetch.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum PrefetchTarget {
    /// Nothing.
    Nothing,
    /// Those of a later step: [`PerStep`].
    LaterStep,
    /// One line per interval: [`PerPeriod::sparse`].
    Sparse,
    /// The next panel, in eight streams: [`PerStep::in_streams`].
    Interleaved,
    /// The next block: [`PerPeriod`]. On a CPU with a strong hardware prefetcher into the L2 cache: it loads lines that
    /// several tiles read from L2 into L1 in time. A line that is in flight from memory to L1 would stop it from doing
    /// so.
    NextBlock(CacheLevel),
    /// The next block into the L2 cache, and the current one from L2 into L1. The hardware prefetcher stops at the end
    /// of each page and each row, which costs a fifth of the speed where caches are small (32 KiB and 1 MiB).
    NextBlockAndLaterStep,
}

/// How a product reads its weights.
#[derive(Clone, Copy)]
pub(super) struct WeightReads {
    /// Bytes of a weight: 4 for f32, 2 for bf16 and f16, 1 for int8.
    pub(super) bytes: usize,
    /// Rows of `A`. For one tile of int8 it is the number of sums per column.
    pub(super) rows: usize,
    /// Whether several tiles read each block of weights. Each of them then prefetches a share of the next block.
    pub(super) shared: bool,
    /// Whether an outer cache may hold the weights from one call to the next.
    pub(super) cached: bool,
}

impl PrefetchTarget {
    /// The target of a product on this CPU.
    #[inline(always)]
    pub(super) fn select<S: SimdF32>(s: S, reads: WeightReads) -> Self {
        if const { !S::PREFETCHES } {
            return Self::Nothing;
        }
        match reads {
            WeightReads { bytes, rows, shared: true, .. } if bytes == 1 || rows > FEW_ROWS => {
                Self::NextBlockAndLaterStep
            }
            WeightReads { bytes: 2, rows: 2.., shared: false, .. } => Self::LaterStep,
            _ if strong_hw_prefetcher(s) => match reads {
                WeightReads { shared: true, .. } => Self::NextBlock(CacheLevel::L2),
                WeightReads { bytes: 1, rows, .. } if rows > MAX_SPARSE_SUMS => Self::Interleaved,
                _ => Self::Sparse,
            },
            // Measured: prefetching is a fifth faster from the L3 cache, and a tenth slower from memory.
            WeightReads { bytes: 4, rows: 1, cached: false, .. } => Self::Nothing,
            WeightReads { shared: true, .. } => Self::NextBlock(CacheLevel::L1),
            _ => Self::LaterStep,
        }
    }
}

/// The policy of many rows: the next block into the L2 cache, and the current one from L2 into L1.
pub(super) type ManyRows = (PerPeriod<2>, PerStep);

/// A policy of tiles that multiply one block of `k` after the other.
pub(super) trait BlockPrefetch: Prefetch {
    /// The fewest tiles with this policy.
    const MIN_TILES: usize = 1;
    /// Lines of the next block that a tile requests in two steps, or 0.
    #[inline(always)]
    fn requests<S: SimdF32>() -> usize {
        0
    }
    /// The prefetches of a tile that reads its block from `current` on and prefetches `next`.
    fn of_block<S: SimdF32>(current: *const f32, next: NextBlock) -> Self;
}

/// The fewest rows of a tile with policy `Q`. Smaller tiles are not compiled. Tiles are balanced: if there are several,
/// each has at least half of the rows of the tallest.
pub(super) const fn fewest_rows<Q: BlockPrefetch>() -> usize {
    let tiles = Q::MIN_TILES;
    let rows = share((tiles - 1) * MAX_MR + 1, tiles, tiles - 1);
    // One row has its own function and is not a tile.
    if rows.end - rows.start > 2 { rows.end - rows.start } else { 2 }
}

/// No prefetches.
impl BlockPrefetch for () {
    #[inline(always)]
    fn of_block<S: SimdF32>(_: *const f32, _: NextBlock) -> Self {}
}

/// One tile on a CPU with a strong hardware prefetcher.
impl BlockPrefetch for Sparse {
    #[inline(always)]
    fn of_block<S: SimdF32>(current: *const f32, _: NextBlock) -> Self {
        Self::sparse(current, S::PANEL)
    }
}

/// One tile: each step prefetches as much as it reads.
impl BlockPrefetch for PerStep {
    #[inline(always)]
    fn of_block<S: SimdF32>(_: *const f32, next: NextBlock) -> Self {
        Self::running(next.from, S::PANEL.div_ceil(CACHE_LINE_F32), CACHE_LINE_F32)
    }
}

/// Several tiles of few rows. The requests are those of two tiles, also for more tiles: with more rows a request costs
/// relatively less.
impl BlockPrefetch for PerPeriod<2> {
    const MIN_TILES: usize = 2;

    #[inline(always)]
    fn requests<S: SimdF32>() -> usize {
        S::PANEL.div_ceil(CACHE_LINE_F32)
    }

    #[inline(always)]
    fn of_block<S: SimdF32>(_: *const f32, next: NextBlock) -> Self {
        let NextBlock { from: at, apart, cache } = next;
        let cache = if S::MAY_PREFER_HW_PREFETCH { cache } else { CacheLevel::L1 };
        Self { at, apart, count: Self::requests::<S>(), cache }
    }
}

/// Many rows.
impl BlockPrefetch for ManyRows {
    const MIN_TILES: usize = FEW_ROWS / MAX_MR + 1;

    #[inline(always)]
    fn requests<S: SimdF32>() -> usize {
        (S::PANEL / 2).div_ceil(CACHE_LINE_F32)
    }

    #[inline(always)]
    fn of_block<S: SimdF32>(current: *const f32, next: NextBlock) -> Self {
        let NextBlock { from: at, apart, .. } = next;
        let next = PerPeriod { at, apart, count: Self::requests::<S>(), cache: CacheLevel::L2 };
        (next, PerStep::of_panel::<S>(current, S::PANEL))
    }
}

/// The share of the next block that one tile prefetches while it multiplies.
#[derive(Clone, Copy)]
pub(super) struct NextBlock {
    /// Start of the share. Any address is valid.
    pub(super) from: *const f32,
    /// Floats between two requests.
    pub(super) apart: usize,
    pub(super) cache: CacheLevel,
}

/// The shares of all tiles that are multiplied by one block.
#[derive(Clone, Copy)]
pub(super) struct PrefetchPlan {
    /// The share of one tile, in floats for each two steps of `k`.
    part: usize,
    /// Floats between two requests.
    apart: usize,
    cache: CacheLevel,
}

impl PrefetchPlan {
    /// The plan for `tiles` tiles with `requests` requests in each two steps of `k`.
    #[inline(always)]
    pub(super) fn new<S: SimdF32>(
        dtype: Dtype,
        tiles: usize,
        requests: usize,
        cache: CacheLevel,
    ) -> Self {
        let part = (dtype.words(2) * S::PANEL).div_ceil(tiles);
        Self { part, apart: part.div_ceil(requests.max(1)), cache }
    }

    /// The share of tile `index` in a block of `steps` steps that starts at `from`.
    #[inline(always)]
    pub(super) fn next(self, from: *const f32, index: usize, steps: usize) -> NextBlock {
        let from = from.wrapping_add(index * steps.div_ceil(2) * self.part);
        NextBlock { from, apart: self.apart, cache: self.cache }
    }
}
