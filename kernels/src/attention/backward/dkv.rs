//! A tile of keys against a block of queries. The weights contribute to the gradient of the values, the gradients of
//! the scores to that of the keys.

use super::product::add_edge;
use super::score_block::ScoreBlock;
use super::workspace::WEIGHTS_ROW;
use crate::attention::head_views::HeadRows;
use crate::gemm::{F32Operand, Panels, Rows, load_line, multiply};
use crate::simd::{SimdF32, array_of, simd_op, vector_groups};

/// Rows of a gradient in the caller's tensor, from the first key of a block.
#[derive(Clone, Copy)]
pub(super) struct Gradient {
    pub(super) at: *mut f32,
    pub(super) stride: usize,
    /// Factor of the sums when they are stored there.
    pub(super) factor: f32,
}

/// Keys `first..first + MR` of a block, and one of their two gradients: `sums += lines^T * rows`.
#[derive(Clone, Copy)]
struct DkvTile<'b, const MR: usize> {
    block: &'b ScoreBlock,
    first: usize,
    /// Whether no earlier block of queries has seen the first of these keys.
    first_write: bool,
    /// The lines and rows of the queries of the block.
    lines: *const f32,
    rows: HeadRows,
    sums: *mut f32,
    /// The gradient, which the last block of queries writes.
    last: Option<Gradient>,
}

simd_op!(
    /// A tile of keys `first..first + MR` of a block: adds their sums, or writes them to the gradients for the last block
    /// of queries.
    ///
    /// # Safety
    /// The operands of the block are valid, and no other code accesses the rows of these keys in its sums and in `last`.
    pub(super) unsafe fn dkv_tile<S: SimdF32, const MR: usize, const NV: usize>(
        s: S,
        block: &ScoreBlock,
        first: usize,
        first_write: bool,
        last: Option<(Gradient, Gradient)>,
    ) {
        let (key, value) = last.unzip();
        let (weights, d_scores) = (block.weights.cast_const(), block.d_scores.cast_const());
        let end = block.head.head_dim.div_ceil(S::LANES);
        for (lines, rows, sums, last) in [
            (weights, block.d_context, block.d_value, value),
            (d_scores, block.query_rows, block.d_key, key),
        ] {
            let tile = DkvTile::<MR> { block, first, first_write, lines, rows, sums, last };
            let mut v = 0;
            // SAFETY: the caller's contract.
            unsafe {
                vector_groups!(v, end, [NV, 2 if NV > 2, 1] => {
                    tile.columns::<S>(s, v * S::LANES)
                });
            }
        }
    }
);

impl<const MR: usize> DkvTile<'_, MR> {
    /// `G` vectors of columns: first the queries that see only the first keys of the tile, then those that see all
    /// keys.
    ///
    /// # Safety
    /// As [`dkv_tile`].
    #[inline(always)]
    unsafe fn columns<S: SimdF32, const G: usize>(self, s: S, column: usize) {
        let Self { block, first, first_write, lines, rows, sums: to, last } = self;
        let mut sums = [[s.splat(0.0); G]; MR];
        let to = to.wrapping_add(first * block.row + column);
        if !first_write {
            for i in 0..MR {
                // SAFETY: the row exists, and the block of queries that first saw a key of this tile wrote it.
                sums[i] = unsafe { load_line(s, to.wrapping_add(i * block.row)) };
            }
        }
        let starts = array_of!(i in MR => block.first_query(first + i));
        let all = starts[MR - 1];
        let lines = lines.wrapping_add(first);
        let (rows, row) = (rows.at.wrapping_add(column), rows.stride);
        let elements = Rows { at: lines, row: 1, step: WEIGHTS_ROW };
        let panel = Panels::from_ptr(rows, row, S::LANES);
        // SAFETY: there is a factor for each key that a query sees, and a row of the query.
        unsafe {
            add_edge::<S, MR, G, false>(s, &mut sums, starts[0]..all, elements, panel, &starts)
        };
        let (elements, panel, depth) = (elements.skip(all), panel.skip(all), block.queries - all);
        // SAFETY: each query from `all` sees all keys of the tile, because `starts` never decreases. So there is a
        // factor for each key, and there are `block.queries - all` rows of queries.
        let [sums] = unsafe { multiply(F32Operand(s), [sums], depth, elements, panel, ()) };
        for i in 0..MR {
            for g in 0..G {
                let x = sums[i][g];
                // SAFETY: the rows exist by the `# Safety` contract of `columns`. The count stops at `head_dim`.
                unsafe {
                    match last {
                        None => s.store(to.wrapping_add(i * block.row + g * S::LANES), x),
                        Some(Gradient { at, stride, factor }) => {
                            let column = column + g * S::LANES;
                            let at = at.wrapping_add((first + i) * stride + column);
                            let x = s.mul(x, s.splat(factor));
                            let count = (block.head.head_dim - column).min(S::LANES);
                            if count == S::LANES {
                                s.store(at, x);
                            } else {
                                s.store_prefix(at, x, count);
                            }
                        }
                    }
                }
            }
        }
    }
}
