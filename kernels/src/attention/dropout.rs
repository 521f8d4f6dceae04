//! Dropout of the weights of a tile of queries. These are separate functions, so that calls without dropout do not
//! contain their code.

use crate::dropout::{DropMask, HeadDrops};
use crate::simd::{SimdF32, SimdOp};

/// Weights of `queries` queries from `query` for `keys` keys from `key`. The weights of each query are in one line,
/// with space for whole vectors of keys and for a multiple of 8 weights.
#[derive(Clone, Copy)]
pub(super) struct Tile {
    pub(super) drops: HeadDrops,
    pub(super) query: usize,
    pub(super) queries: usize,
    pub(super) key: usize,
    pub(super) keys: usize,
}

/// Computes the dropout mask of a tile.
pub(super) struct Decide<'d> {
    pub(super) tile: Tile,
    pub(super) to: &'d mut DropMask,
}

impl SimdOp for Decide<'_> {
    type Output = ();

    #[inline(always)]
    fn run<S: SimdF32>(self, _: S) {
        let Tile { drops, query, queries, key, keys } = self.tile;
        drops.decide(query..query + queries, (key, keys), self.to);
    }
}

/// Applies the mask of a tile to its weights in the lines at `lines`, `stride` floats apart.
pub(super) struct Apply<'d> {
    pub(super) tile: Tile,
    pub(super) from: &'d DropMask,
    pub(super) lines: *mut f32,
    pub(super) stride: usize,
}

impl SimdOp for Apply<'_> {
    type Output = ();

    #[inline(always)]
    fn run<S: SimdF32>(self, _: S) {
        let Tile { drops, queries, keys, .. } = self.tile;
        // SAFETY: the creator of this value has computed the mask of this tile, and `lines` has the lines of the tile.
        unsafe { drops.apply(self.from, (queries, keys), self.lines, self.stride) }
    }
}

/// Computes and applies the mask of a tile, with little stack.
pub(super) struct DropOnce {
    pub(super) tile: Tile,
    pub(super) lines: *mut f32,
    pub(super) stride: usize,
}

impl SimdOp for DropOnce {
    type Output = ();

    #[inline(always)]
    fn run<S: SimdF32>(self, _: S) {
        let Self { tile: Tile { drops, query, queries, key, keys }, lines, stride } = self;
        // SAFETY: the creator of this value ensures that `lines` has the lines of the tile.
        unsafe { drops.drop_from((query, queries), (key, keys), lines, stride) }
    }
}
