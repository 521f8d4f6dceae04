//! Dropout of the weights of a tile of queries: separate functions, so that calls without dropout do not contain their
//! code. Queries and keys are given as the first and their number. The weights of each query are in one line, with space
//! for whole vectors of keys and for a multiple of 8 weights.

use crate::dropout::{DropMask, HeadDrops};
use crate::simd::simd_op;
use core::ops::Range;

simd_op!(
    /// Computes the dropout mask of a tile.
    pub(super) fn decide<S: SimdF32>(
        _s: S,
        drops: HeadDrops,
        queries: Range<usize>,
        keys: (usize, usize),
        to: &mut DropMask,
    ) {
        drops.decide(queries, keys, to);
    }
);

simd_op!(
    /// Applies the mask of a tile of `size = (queries, keys)` to its weights in the lines at `lines`, `stride` floats apart.
    ///
    /// # Safety
    /// [`decide`] has computed `from` for this tile. Its lines are valid for reads and writes.
    pub(super) unsafe fn apply<S: SimdF32>(
        _s: S,
        drops: HeadDrops,
        from: &DropMask,
        size: (usize, usize),
        lines: *mut f32,
        stride: usize,
    ) {
        // SAFETY: the caller's contract.
        unsafe { drops.apply(from, size, lines, stride) }
    }
);

simd_op!(
    /// Computes and applies the mask of a tile, with little stack.
    ///
    /// # Safety
    /// The lines of the tile are valid for reads and writes.
    pub(super) unsafe fn drop_once<S: SimdF32>(
        _s: S,
        drops: HeadDrops,
        queries: (usize, usize),
        keys: (usize, usize),
        lines: *mut f32,
        stride: usize,
    ) {
        // SAFETY: the caller's contract.
        unsafe { drops.drop_from(queries, keys, lines, stride) }
    }
);
