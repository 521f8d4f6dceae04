//! Online-softmax attention of one head of one sequence.
//!
//! Keys are processed in blocks that are counted from key 0. A query therefore uses the same blocks in a prefill of a
//! thousand queries and as the only query of a decode step, and its result has the same bits. For each block, the
//! kernel computes the scores with the GEMM tile over key panels, then the running maximum, then the exponentials, then
//! the GEMM tile over value rows. When the maximum has grown, the output of earlier blocks is rescaled.
//!
//! Masks are loop bounds. Each query has a *limit*: keys `0..limit` are visible to it. A tile of queries with different
//! limits (on the causal diagonal) masks the scores past each limit. Past the smallest limit it multiplies values row
//! by row. So the value of a hidden key is never read for a query, and `0 * NaN` cannot occur.

use super::head_views::HeadRows;
use super::one_head::{HeadKv, HeadQuery, RowsOut, add_unhidden, fill_fully_masked, fill_rows};
use super::online_softmax::{
    Factors, KEY_BLOCK, KeyBlock, Running, WeightLines, exponentials, mask_scores,
};
use super::panels::{KvFormat, ONE_QUERY_STEPS, add_visible, line_by_line, tile_prefetched};
#[cfg(feature = "train")]
use crate::dropout::drop_weights;
use crate::gemm::{Panels, Rows, multiply};
use crate::math::{exp_nonpositive, exp_shift};
use crate::parallel::share;
use crate::prefetch::{CacheLevel, prefetch_rows};
use crate::simd::{MAX_MR, SimdF32, SimdOp, array_of, simd_op, tile_heights, vector_groups};
use crate::softmax::FullyMasked;
use core::mem::MaybeUninit;

/// Queries that share one pass over a block of keys. The pass reads keys and values from the outer caches once for all
/// of them.
pub(super) const QUERY_BLOCK: usize = 168;

/// Smallest block of queries that a call is split into.
pub(super) const MIN_QUERY_BLOCK: usize = 42;

/// Vectors of scores computed at once for a single query, where `NV` is less than 4.
const WIDE: usize = 8;

/// Elements per row of the query copy in [`Scores`]. Wider heads compute one query at a time. The row is an odd number
/// of cache lines, so that the rows do not map to the same cache sets.
const QUERY_ROW: usize = 528;

/// Scratch of one tile of queries for one block of keys.
#[repr(align(64))]
pub(super) struct Scores {
    lines: WeightLines,
    /// Copy of the query rows, at a constant stride. In the caller's tensor the stride may be a power of two (the rows
    /// share cache sets), and the innermost loop has no register for a variable stride. After the scores: incomplete
    /// vectors of output rows.
    rows: [MaybeUninit<f32>; MAX_MR * QUERY_ROW],
}

impl Scores {
    pub(super) const fn new() -> Self {
        Self { lines: WeightLines::new(), rows: [MaybeUninit::uninit(); MAX_MR * QUERY_ROW] }
    }

    fn rows_mut(&mut self) -> *mut f32 {
        self.rows.as_mut_ptr().cast()
    }
}

/// Most rows of a tile of queries. The code of a tile is compiled once for each number of rows.
const fn max_tile_rows<S: SimdF32, N: KvFormat>() -> usize {
    if S::SOFT_FMA { 2 } else { N::MAX_MR }
}

/// One head of one sequence.
pub(super) struct FlashHead<N: KvFormat> {
    pub(super) query: HeadQuery,
    pub(super) kv: HeadKv<N::KvElement>,
}

impl<N: KvFormat> FlashHead<N> {
    /// Computes attention for queries `start..start + count`, `count <= QUERY_BLOCK`. The previous content of `scores`
    /// is ignored.
    ///
    /// # Safety
    /// Every pointer is valid for the data that its field documents, in the layout for the instruction set of `S`. No
    /// other code accesses the outputs and weights of these queries.
    #[inline(always)]
    pub(super) unsafe fn attend<S: SimdF32, const NV: usize>(
        &self,
        s: S,
        start: usize,
        count: usize,
        scores: &mut Scores,
    ) {
        let mut running = [Running::START; QUERY_BLOCK];
        let end = self.query.limit(start + count - 1);
        let tallest = if self.query.head_dim <= QUERY_ROW { max_tile_rows::<S, N>() } else { 1 };
        let tiles = count.div_ceil(tallest);
        let mut key = 0;
        while key < end {
            let mut block = KeyBlock { key, len: (end - key).min(KEY_BLOCK), next: key };
            for index in 0..tiles {
                let local = share(count, tiles, index);
                if index + 1 == tiles {
                    block.next = key + block.len;
                }
                let row = start + local.start;
                let running = &mut running[local.clone()];
                // Tiles of 5 and 6 rows are inlined here: most queries of a long sequence are in such tiles, and a call
                // costs one hundredth of their time. Smaller tiles are called: inlined, they would take several times
                // as long to compile. With debug assertions all tiles are called, because two inlined ones would take
                // more stack than attention promises.
                const { assert!(MAX_MR == 6, "all heights of a tile") };
                // SAFETY: the `# Safety` contract of `attend` holds.
                unsafe {
                    tile_heights!(local.len(), [1 2 3 4 5 6], MR if MR <= max_tile_rows::<S, N>() => {
                        // `const`, so that only one of the branches is compiled.
                        if const { MR < 5 || cfg!(debug_assertions) } {
                            s.call_noinline(tile::<N, MR, NV>(self, block, row, running, scores));
                        } else {
                            tile::<N, MR, NV>(self, block, row, running, scores).run_with(s);
                        }
                    });
                }
            }
            key += block.len;
        }
        for (row, &running) in (start..start + count).zip(&running) {
            // SAFETY: the `# Safety` contract of `attend` holds.
            unsafe {
                if running.is_fully_masked() {
                    let (query, values) = (&self.query, self.kv.value_rows());
                    s.call_noinline(fill_fully_masked::<N>(query, row, values));
                }
                if let Some(to) = self.query.weights {
                    self.write_weights(s, row, running, to);
                }
                if let Some(to) = self.query.sums {
                    let saved = running.saved();
                    let at = to.at.add(row * to.row);
                    at.write(saved.0);
                    at.add(1).write(saved.1);
                }
            }
        }
    }

    /// Recomputes the scores of `row` and writes its normalized weights. Heads whose weights are not requested never
    /// compute normalized weights.
    ///
    /// # Safety
    /// As [`FlashHead::attend`], for the weights of this row in `to`.
    #[inline(always)]
    pub(super) unsafe fn write_weights<S: SimdF32>(
        &self,
        s: S,
        row: usize,
        running: Running,
        to: RowsOut,
    ) {
        let HeadQuery { query, query_row, head_dim, scale, padded_len, fully_masked, .. } =
            self.query;
        let Running { maximum, sum } = running;
        let masked = running.is_fully_masked();
        let uniform = masked && fully_masked == FullyMasked::Uniform;
        let limit = self.query.limit(row);
        let panel = head_dim * S::LANES;
        for first in (0..to.len).step_by(S::LANES) {
            let count = (to.len - first).min(S::LANES);
            let mut x = s.splat(0.0);
            if uniform {
                let share = s.splat(1.0 / padded_len as f32);
                let visible = s.first(padded_len.saturating_sub(first));
                x = s.select(visible, share, x);
            } else if first < limit && !masked {
                let query = Rows { at: query.wrapping_add(row * query_row), row: 0, step: 1 };
                let at = self.kv.keys.wrapping_add(first / S::LANES * panel);
                let keys = Panels::from_ptr(at, S::LANES, 0);
                let zero = [[s.splat(0.0)]];
                // SAFETY: the query row and the panel of key `first` exist, by the contract of `write_weights`.
                let [acc] = unsafe { multiply(N::operand(s), [zero], head_dim, query, keys, ()) };
                let mut score = s.mul(acc[0][0], s.splat(scale));
                let visible = limit - first;
                if let Some(bias) = self.query.bias {
                    let count = visible.min(S::LANES);
                    // SAFETY: the query sees these keys, because `first < limit`.
                    score = unsafe { bias.add_to(s, score, (row, first), count) };
                }
                let weight = exp_nonpositive(s, s.sub(score, s.splat(exp_shift(maximum))));
                x = s.select(s.first(visible), s.div(weight, s.splat(sum)), x);
            }
            // SAFETY: `first + count <= to.len`, so the store is inside the row of weights.
            unsafe { s.store_prefix(to.at.wrapping_add(row * to.row + first), x, count) };
        }
    }

    /// Scaled scores of `G` vectors of keys: of the queries from `row`, and of the vectors of the block from `v`. These
    /// queries have vectors up to `end`.
    ///
    /// # Safety
    /// As [`FlashHead::attend`]; the panels exist.
    #[inline(always)]
    unsafe fn scores<S: SimdF32, const MR: usize, const G: usize>(
        &self,
        s: S,
        block: KeyBlock,
        (row, v, end): (usize, usize, usize),
        scores: &mut Scores,
    ) {
        let HeadQuery { query, query_row, head_dim, .. } = self.query;
        let HeadKv { keys, values, value_row, .. } = self.kv;
        let panel = head_dim * S::LANES;
        let (a, a_row) = if MR == 1 {
            (query.wrapping_add(row * query_row), 0)
        } else {
            (scores.rows.as_ptr().cast(), QUERY_ROW)
        };
        let queries = Rows { at: a, row: a_row, step: 1 };
        let at = keys.wrapping_add((block.key / S::LANES + v) * panel);
        let view = Panels::from_ptr(at, S::LANES, panel);
        let zero = [[s.splat(0.0); G]; MR];
        // The prefetch target: the next key panels, or the values after the last panel.
        let keys = at.wrapping_add(G * panel);
        let values = values.wrapping_add(block.key * value_row);
        let next = match (v + G < end, MR) {
            (true, 1) => line_by_line::<_, S, G>(keys),
            (false, 1) => line_by_line::<_, S, G>(values),
            (true, _) => Panels::from_ptr(keys, S::LANES, panel),
            (false, _) => Panels::from_ptr(values, value_row, S::LANES),
        };
        // SAFETY: the query rows and the panels exist by the contract of `scores`.
        let acc = unsafe { tile_prefetched::<S, N, MR, G>(s, zero, head_dim, queries, view, next) };
        let scale = s.splat(self.query.scale);
        for i in 0..MR {
            for (g, &sum) in acc[i].iter().enumerate() {
                let at = i * KEY_BLOCK + (v + g) * S::LANES;
                // SAFETY: the vector is one of the block, so it is inside line `i`.
                unsafe { s.store(scores.lines.0.as_mut_ptr().add(at), s.mul(sum, scale)) };
            }
        }
    }

    /// `out = (out * before + weights * values) * after` for `G` vectors of output columns, where no bias hides a key:
    /// first the keys that are visible to all queries of the tile, then those that only later queries see.
    ///
    /// # Safety
    /// As [`FlashHead::attend`].
    #[inline(always)]
    unsafe fn columns<S: SimdF32, const MR: usize, const G: usize>(
        &self,
        s: S,
        tile: ValueTile<'_, MR>,
        column: usize,
        scores: &mut Scores,
    ) {
        let ValueTile { block, first: row, seen, factors } = tile;
        let HeadKv { keys, next_keys, values, value_row } = self.kv;
        let mut acc = [[s.splat(0.0); G]; MR];
        // The copies of the queries are not used any more.
        let buffer = scores.rows_mut();
        if block.key > 0 {
            // SAFETY: the output rows exist by the contract of `attend`, and an earlier block wrote them.
            acc = unsafe { self.query.load_scaled(s, (row, column), factors, buffer) };
        }
        let weights = Rows { at: scores.lines.0.as_ptr(), row: KEY_BLOCK, step: 1 };
        let first = values.wrapping_add(block.key * value_row + column);
        let values = Panels::from_ptr(first, value_row, S::LANES);
        let (min_seen, max_seen) = (seen[0], seen[MR - 1]);
        // The prefetch target after these values: keys of this head, or, for a single query after the last block, of
        // the next head.
        let panel = self.query.head_dim * S::LANES;
        let keys = keys.wrapping_add(block.next / S::LANES * panel);
        let next = match (MR, block.next >= self.query.key_len) {
            (1, true) => line_by_line::<_, S, G>(next_keys.wrapping_add(column * ONE_QUERY_STEPS)),
            (1, false) => line_by_line::<_, S, G>(keys),
            _ => Panels::from_ptr(keys, S::LANES, panel),
        };
        // SAFETY: weights and value rows exist for every visible key, by the contract of `attend`.
        let mut acc =
            unsafe { tile_prefetched::<S, N, MR, G>(s, acc, min_seen, weights, values, next) };
        // SAFETY: `scores` stored a weight for each key that a query sees, and the value row exists.
        unsafe {
            add_visible::<S, N, MR, G, true>(
                s,
                &mut acc,
                min_seen..max_seen,
                weights,
                values,
                seen,
            );
        }
        // SAFETY: the output rows exist by the contract of `attend`.
        unsafe { self.query.store_scaled(s, (row, column), &acc, factors, buffer) };
    }
}

simd_op!(
    /// One tile of `MR` queries from `row`, with one element of `running` per query, against one block of keys.
    ///
    /// # Safety
    /// As [`FlashHead::attend`].
    unsafe fn tile<S: SimdF32, N: KvFormat, const MR: usize, const NV: usize>(
        s: S,
        head: &FlashHead<N>,
        block: KeyBlock,
        row: usize,
        running: &mut [Running],
        scores: &mut Scores,
    ) {
        // Visible keys of this block for each query. Limits never decrease from row to row.
        let seen = array_of!(i in MR => {
            head.query.limit(row + i).saturating_sub(block.key).min(block.len)
        });
        let max_seen = seen[MR - 1];
        if max_seen == 0 && block.key > 0 {
            return;
        }
        let vectors = max_seen.div_ceil(S::LANES);
        if MR > 1 {
            let HeadQuery { query, query_row: stride, head_dim, .. } = head.query;
            let rows = HeadRows { at: query.wrapping_add(row * stride), stride };
            const { assert!(QUERY_ROW.is_multiple_of(S::LANES)) };
            // SAFETY: the query rows exist by the contract of `tile`, and `attend` makes tiles of several rows only if
            // `head_dim <= QUERY_ROW`.
            unsafe {
                s.call_noinline(fill_rows(rows, (MR, head_dim), scores.rows_mut(), QUERY_ROW));
            }
        }
        let mut v = 0;
        // SAFETY: panels up to `vectors` exist by the contract of `tile`, and `scores` has space for a whole block.
        unsafe {
            vector_groups!(v, vectors, [WIDE if MR == 1 && NV < 4, NV, 2 if NV > 2, 1] => {
                head.scores::<S, MR>(s, block, (row, v, vectors), scores)
            });
        }
        let bias = head.query.bias;
        if bias.is_some() || seen[0] < vectors * S::LANES {
            let (place, lines) = ((row, block.key), scores.lines.0.as_mut_ptr());
            // SAFETY: the `# Safety` contract of `tile` holds.
            unsafe { s.call_noinline(mask_scores(bias, place, &seen, vectors, lines)) };
        }
        if MR > 1 {
            // The exponentials use no outer cache.
            s.call_noinline(prefetch_tile(&head.query, row, MR));
        }
        let last = block.key + block.len >= head.query.limit(row + MR - 1);
        let lines = &mut scores.lines;
        let factors = exponentials::<MR>(lines, vectors, running, last).run_with(s);
        #[cfg(feature = "train")]
        if let Some(drops) = head.query.drops {
            let (queries, keys) = ((row, MR), (block.key, max_seen));
            let lines = scores.lines.0.as_mut_ptr();
            // SAFETY: there is a line of `KEY_BLOCK` floats for each query of the tile.
            unsafe { s.call_noinline(drop_weights(drops, queries, keys, lines, KEY_BLOCK)) };
        }
        let Some(bias) = head.query.hiding_bias() else {
            let mut v = 0;
            let end = head.query.head_dim.div_ceil(S::LANES);
            let tile = ValueTile { block, first: row, seen: &seen, factors: &factors };
            // SAFETY: the `# Safety` contract of `tile` holds.
            unsafe {
                vector_groups!(v, end, [NV, 2 if NV > 2, 1] => {
                    head.columns::<S, MR>(s, tile, v * S::LANES, scores)
                });
            }
            return;
        };
        for i in 0..MR {
            let weights = &scores.lines.0[i * KEY_BLOCK..][..seen[i]];
            let place = (row + i, block.key);
            let (query, values) = (&head.query, head.kv.value_rows());
            // SAFETY: the `# Safety` contract of `tile` holds.
            unsafe {
                s.call_noinline(add_unhidden::<N>(query, place, weights, factors[i], bias, values));
            }
        }
    }
);

simd_op!(
    /// Prefetches the rows of the queries after a tile of `rows` queries from `row`, and the output rows of the tile.
    fn prefetch_tile<S: SimdF32>(s: S, query: &HeadQuery, row: usize, rows: usize) {
        let &HeadQuery { query, query_row, out, out_row, head_dim, .. } = query;
        let queries = query.wrapping_add((row + rows).wrapping_mul(query_row));
        prefetch_rows(s, CacheLevel::L1, (queries, query_row, rows), head_dim);
        let out = out.wrapping_add(row.wrapping_mul(out_row));
        prefetch_rows(s, CacheLevel::L1, (out, out_row, rows), head_dim);
    }
);

/// A tile of queries from `first`, whose weights are multiplied with a block of values.
#[derive(Clone, Copy)]
struct ValueTile<'a, const MR: usize> {
    block: KeyBlock,
    first: usize,
    /// Visible keys of the block for each query.
    seen: &'a [usize; MR],
    factors: &'a [Factors; MR],
}
