//! What the tiles of some rows ask memory for together: the weights that are multiplied next, each its share.

use super::dtype::Dtype;
use super::microkernel::MAX_MR;
use crate::parallel::share;
use crate::simd::{CACHE_LINE_F32, SimdF32};

/// Rows that are few: memory is felt in what they take, and their part of `A` fits in a first-level
/// cache beside two blocks of weights.
pub(super) const FEW_ROWS: usize = 6 * MAX_MR;

/// Lines of the next block that each of `tiles` tiles asks for in two steps, so that together they ask
/// for as much as each of them multiplies.
pub(super) const fn requests<S: SimdF32>(tiles: usize) -> usize {
    if S::PREFETCHES { (2 * S::PANEL).div_ceil(tiles * CACHE_LINE_F32) } else { 0 }
}

/// Where a tile asks memory to bring what comes next, and what that is. The next block into the first-level
/// cache.
pub(super) const TO_L1: u8 = 0;

/// Where the CPU follows streams: the next block into the second-level cache. It brings what several tiles read
/// from there in time, and a line that is on its way from memory to the first-level cache keeps it from that.
pub(super) const TO_L2: u8 = 1;

/// For a single tile there: no more than [pages](super::microkernel::SparsePrefetch).
pub(super) const SPARSE: u8 = 2;

/// For many rows: the next block into the second-level cache, and this one from there.
pub(super) const TO_BOTH: u8 = 3;

/// Tiles that ask as often as any more of them do with [`TO_L2`]: with more rows a request weighs less.
pub(super) const OUTER_TILES: usize = 2;

/// The fewest rows of a tile that asks for so many lines. Tiles are balanced: of several none has
/// less than half of the rows of the tallest.
pub(super) const fn fewest_rows<S: SimdF32>(lines: usize, place: u8) -> usize {
    match place {
        // There are more than six tiles.
        TO_BOTH => return MAX_MR - 1,
        SPARSE => return 2,
        _ => {}
    }
    let mut tiles = 1;
    while tiles * MAX_MR < FEW_ROWS && requests::<S>(tiles) != lines {
        tiles += 1;
    }
    let rows = share((tiles - 1) * MAX_MR + 1, tiles, tiles - 1);
    // One row is no tile.
    if rows.end - rows.start > 2 { rows.end - rows.start } else { 2 }
}

/// What a tile asks memory for while it multiplies, for whoever comes after it: its share of the block
/// that is multiplied next.
#[derive(Clone, Copy)]
pub(super) struct Next {
    /// Where its share starts, any address.
    pub(super) from: *const f32,
    /// Floats from one request to the next.
    pub(super) apart: usize,
}

/// What the tiles of a block of rows ask memory for together.
#[derive(Clone, Copy)]
pub(super) struct Asked {
    /// Floats for each two steps of `k` that are a tile's share.
    part: usize,
    /// Lines for each two steps of `k` that a tile asks for.
    pub(super) requests: usize,
    /// Floats from one to the next.
    apart: usize,
}

impl Asked {
    /// There are `tiles`, which ask as often as `like` of them would have to.
    #[inline(always)]
    pub(super) fn new<S: SimdF32>(storage: Dtype, tiles: usize, like: usize) -> Self {
        let part = (storage.words(2) * S::PANEL).div_ceil(tiles);
        let requests = requests::<S>(like);
        Self { part, requests, apart: part.div_ceil(requests.max(1)) }
    }

    /// The share of tile `index` in a block of `steps` that starts at `from`.
    #[inline(always)]
    pub(super) fn next(self, from: *const f32, index: usize, steps: usize) -> Next {
        let from = from.wrapping_add(index * steps.div_ceil(2) * self.part);
        Next { from, apart: self.apart }
    }
}
