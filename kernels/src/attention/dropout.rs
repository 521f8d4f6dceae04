//! Dropout of the weights of a tile of queries. These are separate functions, so that calls without dropout do not
//! contain their code.

use crate::dropout::{DropMask, HeadDrops};
use crate::simd::simd_op;

/// Weights of `queries` queries from `query` for `keys` keys from `key`. The weights of each query are in one line,
/// with space for whole vectors of keys and for a multiple of 8 weights.
#[derive(Clone, Copy)]
pub(super) struct WeightTile {
    pub(super) drops: HeadDrops,
    pub(super) query: usize,
    pub(super) queries: usize,
    pub(super) key: usize,
    pub(super) keys: usize,
}

simd_op!(
    /// Computes the dropout mask of a tile.
    pub(super) fn decide<S: SimdF32>(_s: S, tile: WeightTile, to: &mut DropMask) {
        let WeightTile { drops, query, queries, key, keys } = tile;
        drops.decide(query..query + queries, (key, keys), to);
    }
);

simd_op!(
    /// Applies the mask of a tile to its weights in the lines at `lines`, `stride` floats apart.
    ///
    /// # Safety
    /// [`decide`] has computed `from` for this tile. Its lines are valid for reads and writes.
    pub(super) unsafe fn apply<S: SimdF32>(
        _s: S,
        tile: WeightTile,
        from: &DropMask,
        lines: *mut f32,
        stride: usize,
    ) {
        let WeightTile { drops, queries, keys, .. } = tile;
        // SAFETY: the caller's contract.
        unsafe { drops.apply(from, (queries, keys), lines, stride) }
    }
);

simd_op!(
    /// Computes and applies the mask of a tile, with little stack.
    ///
    /// # Safety
    /// The lines of the tile are valid for reads and writes.
    pub(super) unsafe fn drop_once<S: SimdF32>(
        _s: S,
        tile: WeightTile,
        lines: *mut f32,
        stride: usize,
    ) {
        let WeightTile { drops, query, queries, key, keys } = tile;
        // SAFETY: the caller's contract.
        unsafe { drops.drop_from((query, queries), (key, keys), lines, stride) }
    }
);
