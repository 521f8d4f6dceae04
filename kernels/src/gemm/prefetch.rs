//! The prefetch policy of a block of rows: each tile prefetches its share of the weights that are multiplied next.

use super::microkernel::MAX_MR;
use crate::dtype::Dtype;
use crate::parallel::share;
use crate::simd::{CACHE_LINE_F32, SimdF32};

/// The largest number of rows that counts as few: reading weights affects the time, and the part of `A` fits in an L1
/// cache together with two blocks of weights.
pub(super) const FEW_ROWS: usize = 6 * MAX_MR;

/// Lines of the next block that each of `tiles` tiles prefetches in two steps. Together the tiles prefetch as much as
/// each of them multiplies.
pub(super) const fn requests<S: SimdF32>(tiles: usize) -> usize {
    if S::PREFETCHES { (2 * S::PANEL).div_ceil(tiles * CACHE_LINE_F32) } else { 0 }
}

/// Prefetch policy: the next block into the L1 cache.
pub(super) const TO_L1: u8 = 0;

/// Prefetch policy on a CPU with a strong hardware prefetcher: the next block into the L2 cache. The hardware
/// prefetcher loads lines that several tiles read from L2 into L1 in time. A line that is in flight from memory to L1
/// would stop it from doing so.
pub(super) const TO_L2: u8 = 1;

/// Prefetch policy for a single tile on such a CPU: only [`SparsePrefetch`](super::microkernel::SparsePrefetch).
pub(super) const SPARSE: u8 = 2;

/// Prefetch policy for many rows: the next block into the L2 cache, and the current one from L2 into L1.
pub(super) const TO_BOTH: u8 = 3;

/// The number of tiles whose request rate is used for every larger number of tiles with [`TO_L2`]: with more rows a
/// request costs relatively less.
pub(super) const OUTER_TILES: usize = 2;

/// The fewest rows of a tile that prefetches `lines` lines with `policy`. Tiles are balanced: if there are several,
/// each has at least half of the rows of the tallest.
pub(super) const fn fewest_rows<S: SimdF32>(lines: usize, policy: u8) -> usize {
    match policy {
        // This policy has more than six tiles.
        TO_BOTH => return MAX_MR - 1,
        SPARSE => return 2,
        _ => {}
    }
    let mut tiles = 1;
    while tiles * MAX_MR < FEW_ROWS && requests::<S>(tiles) != lines {
        tiles += 1;
    }
    let rows = share((tiles - 1) * MAX_MR + 1, tiles, tiles - 1);
    // One row has its own function and is not a tile.
    if rows.end - rows.start > 2 { rows.end - rows.start } else { 2 }
}

/// The share of the next block that one tile prefetches while it multiplies.
#[derive(Clone, Copy)]
pub(super) struct NextBlock {
    /// Start of the share. Any address is valid.
    pub(super) from: *const f32,
    /// Floats between two requests.
    pub(super) apart: usize,
}

/// The prefetches of all tiles of a block of rows.
#[derive(Clone, Copy)]
pub(super) struct PrefetchPlan {
    /// The share of one tile, in floats for each two steps of `k`.
    part: usize,
    /// Lines that a tile prefetches in each two steps of `k`.
    pub(super) requests: usize,
    /// Floats between two requests.
    apart: usize,
}

impl PrefetchPlan {
    /// The plan for `tiles` tiles that issue as many requests per step as `sharing_tiles` tiles would need.
    #[inline(always)]
    pub(super) fn new<S: SimdF32>(dtype: Dtype, tiles: usize, sharing_tiles: usize) -> Self {
        let part = (dtype.words(2) * S::PANEL).div_ceil(tiles);
        let requests = requests::<S>(sharing_tiles);
        Self { part, requests, apart: part.div_ceil(requests.max(1)) }
    }

    /// The share of tile `index` in a block of `steps` steps that starts at `from`.
    #[inline(always)]
    pub(super) fn next(self, from: *const f32, index: usize, steps: usize) -> NextBlock {
        let from = from.wrapping_add(index * steps.div_ceil(2) * self.part);
        NextBlock { from, apart: self.apart }
    }
}
