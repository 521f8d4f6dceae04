//! Dropout of the weights of a tile of queries, in functions of their own: those who drop nothing do not
//! carry it.

use crate::dropout::{DropMask, HeadDrops};
use crate::simd::{SimdF32, SimdOp};

/// Weights of `queries` queries from `query` on for `keys` keys from `key` on, of which those of each query lie in
/// a line with room for whole vectors of keys and for a multiple of 8.
#[derive(Clone, Copy)]
pub(super) struct Tile {
    pub(super) drops: HeadDrops,
    pub(super) query: usize,
    pub(super) queries: usize,
    pub(super) key: usize,
    pub(super) keys: usize,
}

/// Decides about a tile.
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

/// Drops from the lines at `lines`, `stride` floats apart, what was decided about their tile.
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
        // SAFETY: who makes one has decided about the tile, and has its lines.
        unsafe { drops.apply(self.from, (queries, keys), self.lines, self.stride) }
    }
}

/// Decides about a tile and drops from its lines, with little stack.
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
        // SAFETY: who makes one has the lines.
        unsafe { drops.drop_from((query, queries), (key, keys), lines, stride) }
    }
}
