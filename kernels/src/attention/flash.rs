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

use super::bias::hides;
#[cfg(feature = "train")]
use super::dropout::{Tile, drop_once};
use super::kv_dtype::{KvFormat, PanelView, load, tile_prefetched};
use super::one_head::HeadParams;
use super::online_softmax::{Block, Factors, KEY_BLOCK, Running, WeightLines, exponentials};
use crate::gemm::Rows;
use crate::parallel::share;
use crate::prefetch::{ONE_QUERY_STEPS, prefetch_rows};
use crate::simd::{MAX_MR, SimdF32, simd_op};
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
    /// share cache sets), and the innermost loop has no register for a variable stride.
    queries: [MaybeUninit<f32>; MAX_MR * QUERY_ROW],
}

impl Scores {
    pub(super) const fn new() -> Self {
        Self { lines: WeightLines::new(), queries: [MaybeUninit::uninit(); MAX_MR * QUERY_ROW] }
    }
}

simd_op!(
    /// [`HeadParams::tile`] as a separate function.
    ///
    /// # Safety
    /// As [`HeadParams::tile`].
    unsafe fn tile_call<S: SimdF32, N: KvFormat, const MR: usize, const NV: usize>(
        s: S,
        head: &HeadParams,
        block: Block,
        row: usize,
        running: &mut [Running],
        scores: &mut Scores,
    ) {
        // SAFETY: the caller's contract.
        unsafe { head.tile::<S, N, MR, NV>(s, block, row, running, scores) }
    }
);

/// Most rows of a tile of queries. The code of a tile is compiled once for each number of rows.
const fn max_tile_rows<S: SimdF32, N: KvFormat>() -> usize {
    if S::SOFT_FMA { 2 } else { N::MAX_MR }
}

impl HeadParams {
    /// Computes attention for queries `start..start + count`, `count <= QUERY_BLOCK`. The previous content of `scores`
    /// is ignored.
    ///
    /// # Safety
    /// Every pointer is valid for the data that its field documents, in the layout for the instruction set of `S`. No
    /// other code accesses the outputs and weights of these queries.
    #[inline(always)]
    pub(super) unsafe fn attend<S: SimdF32, N: KvFormat, const NV: usize>(
        &self,
        s: S,
        start: usize,
        count: usize,
        scores: &mut Scores,
    ) {
        let mut running = [Running::START; QUERY_BLOCK];
        let end = self.limit(start + count - 1);
        let tallest = if self.head_dim <= QUERY_ROW { max_tile_rows::<S, N>() } else { 1 };
        let tiles = count.div_ceil(tallest);
        let mut key = 0;
        while key < end {
            let mut block = Block { key, len: (end - key).min(KEY_BLOCK), next: key };
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
                let rows = local.len();
                // SAFETY: the `# Safety` contract of `attend` holds.
                unsafe {
                    if const { max_tile_rows::<S, N>() >= 2 } && rows == 2 {
                        s.call_noinline(tile_call::<N, 2, NV>(self, block, row, running, scores));
                    } else if const { max_tile_rows::<S, N>() >= 3 } && rows == 3 {
                        s.call_noinline(tile_call::<N, 3, NV>(self, block, row, running, scores));
                    } else if const { max_tile_rows::<S, N>() >= 4 } && rows == 4 {
                        s.call_noinline(tile_call::<N, 4, NV>(self, block, row, running, scores));
                    } else if const { max_tile_rows::<S, N>() >= 5 } && rows == 5 {
                        if cfg!(debug_assertions) {
                            s.call_noinline(tile_call::<N, 5, NV>(
                                self, block, row, running, scores,
                            ));
                        } else {
                            self.tile::<S, N, 5, NV>(s, block, row, running, scores);
                        }
                    } else if const { max_tile_rows::<S, N>() >= 6 } && rows == 6 {
                        const { assert!(MAX_MR == 6, "an arm for each height of a tile") };
                        if cfg!(debug_assertions) {
                            s.call_noinline(tile_call::<N, 6, NV>(
                                self, block, row, running, scores,
                            ));
                        } else {
                            self.tile::<S, N, 6, NV>(s, block, row, running, scores);
                        }
                    } else {
                        debug_assert_eq!(rows, 1);
                        s.call_noinline(tile_call::<N, 1, NV>(self, block, row, running, scores));
                    }
                }
            }
            key += block.len;
        }
        for i in 0..count {
            // SAFETY: the `# Safety` contract of `attend` holds.
            unsafe {
                self.finish::<S, N>(s, start + i, running[i], |key| {
                    self.values.cast::<N::KvElement>().wrapping_add(key * self.value_row)
                });
                if !self.sums.is_null() {
                    let saved = running[i].saved();
                    let to = self.sums.add((start + i) * self.sums_row);
                    to.write(saved.0);
                    to.add(1).write(saved.1);
                }
            }
        }
    }

    /// One tile of `MR` queries from `row`, with one element of `running` per query, against one block of keys.
    ///
    /// # Safety
    /// As [`HeadParams::attend`].
    #[inline(always)]
    unsafe fn tile<S: SimdF32, N: KvFormat, const MR: usize, const NV: usize>(
        &self,
        s: S,
        block: Block,
        row: usize,
        running: &mut [Running],
        scores: &mut Scores,
    ) {
        // Visible keys of this block for each query. Limits never decrease from row to row.
        let mut seen = [0; MR];
        for (i, n) in seen.iter_mut().enumerate() {
            *n = self.limit(row + i).saturating_sub(block.key).min(block.len);
        }
        let max_seen = seen[MR - 1];
        if max_seen == 0 && block.key > 0 {
            return;
        }
        let vectors = max_seen.div_ceil(S::LANES);
        let mut highest = [s.splat(f32::NEG_INFINITY); MR];
        if MR > 1 {
            // SAFETY: the query rows exist by the contract of `tile`, and `attend` makes tiles of several rows only if
            // `head_dim <= QUERY_ROW`.
            unsafe { self.copy_queries::<S, MR>(s, row, scores) };
        }
        let mut v = 0;
        while v < vectors {
            let place = ScoreTile { row, vector: v, end: vectors };
            // SAFETY: panels up to `vectors` exist by the contract of `tile`, and `scores` has space for a whole block.
            unsafe {
                if MR == 1 && NV < 4 && vectors - v >= WIDE {
                    self.scores::<S, N, MR, WIDE>(s, block, place, &seen, &mut highest, scores);
                    v += WIDE;
                } else if vectors - v >= NV {
                    self.scores::<S, N, MR, NV>(s, block, place, &seen, &mut highest, scores);
                    v += NV;
                } else if NV > 2 && vectors - v >= 2 {
                    self.scores::<S, N, MR, 2>(s, block, place, &seen, &mut highest, scores);
                    v += 2;
                } else {
                    self.scores::<S, N, MR, 1>(s, block, place, &seen, &mut highest, scores);
                    v += 1;
                }
            }
        }
        if !self.bias.is_null() {
            let place = (block.key, row);
            // SAFETY: the `# Safety` contract of `tile` holds.
            highest = unsafe { self.add_biases(s, place, &seen, vectors, &mut scores.lines) };
        }
        if MR > 1 {
            // Prefetch the next query rows and the output rows while the exponentials are computed, which use no outer
            // cache.
            let queries = self.query.wrapping_add((row + MR).wrapping_mul(self.query_row));
            prefetch_rows::<S, true>(s, queries, self.query_row, MR, self.head_dim);
            let out = self.out.wrapping_add(row.wrapping_mul(self.out_row));
            prefetch_rows::<S, true>(s, out, self.out_row, MR, self.head_dim);
        }
        let correction = exponentials(s, &mut scores.lines, vectors, highest, running);
        #[cfg(feature = "train")]
        if let Some(drops) = self.drops {
            let tile = Tile { drops, query: row, queries: MR, key: block.key, keys: max_seen };
            // SAFETY: there is a line of `KEY_BLOCK` floats for each query of the tile.
            unsafe { s.call_noinline(drop_once(tile, scores.lines.0.as_mut_ptr(), KEY_BLOCK)) };
        }
        let last = block.key + block.len >= self.limit(row + MR - 1);
        // Not `array::from_fn`: it may not be inlined, and then it is not compiled for this instruction set.
        let mut factors = [Factors { before: 1.0, after: 1.0 }; MR];
        for (i, (factor, running)) in factors.iter_mut().zip(&*running).enumerate() {
            factor.before = correction[i];
            factor.after = if last { 1.0 / running.sum } else { 1.0 };
        }
        // SAFETY: the `# Safety` contract of `tile` holds.
        unsafe {
            if !self.bias_hides {
                let rows = ValueTile { block, first: row, seen: &seen, factors: &factors };
                self.values::<S, N, MR, NV>(s, rows, &scores.lines);
            } else {
                for i in 0..MR {
                    self.values_masked::<S, N>(s, block, row + i, seen[i], factors[i], {
                        &scores.lines.0[i * KEY_BLOCK..][..KEY_BLOCK]
                    });
                }
            }
        }
    }

    /// # Safety
    /// The query rows exist; `head_dim <= QUERY_ROW`.
    #[inline(always)]
    unsafe fn copy_queries<S: SimdF32, const MR: usize>(
        &self,
        s: S,
        row: usize,
        scores: &mut Scores,
    ) {
        for i in 0..MR {
            let from = self.query.wrapping_add((row + i) * self.query_row);
            let to: *mut f32 = scores.queries.as_mut_ptr().wrapping_add(i * QUERY_ROW).cast();
            let mut column = 0;
            // SAFETY: the `# Safety` contract of `copy_queries` holds.
            unsafe {
                while column + S::LANES <= self.head_dim {
                    s.store(to.wrapping_add(column), s.load(from.wrapping_add(column)));
                    column += S::LANES;
                }
                let rest = self.head_dim - column;
                let x = s.load_prefix(from.wrapping_add(column), rest);
                s.store_prefix(to.wrapping_add(column), x, rest);
            }
        }
    }

    /// Scores of `G` vectors of keys at `place`, scaled and masked.
    ///
    /// # Safety
    /// As [`HeadParams::attend`]; the panels exist.
    #[inline(always)]
    unsafe fn scores<S: SimdF32, N: KvFormat, const MR: usize, const G: usize>(
        &self,
        s: S,
        block: Block,
        place: ScoreTile,
        seen: &[usize; MR],
        highest: &mut [S::F32; MR],
        scores: &mut Scores,
    ) {
        let ScoreTile { row, vector: v, end } = place;
        let panel = self.head_dim * S::LANES;
        let (a, a_row) = if MR == 1 {
            (self.query.wrapping_add(row * self.query_row), 0)
        } else {
            (scores.queries.as_ptr().cast(), QUERY_ROW)
        };
        let queries = Rows { at: a, row: a_row, step: 1 };
        let first_keys = self.keys.cast::<N::KvElement>();
        let at = first_keys.wrapping_add((block.key / S::LANES + v) * panel);
        let view = PanelView { at, step: S::LANES, vector: panel };
        let zero = [[s.splat(0.0); G]; MR];
        // The prefetch target: the next key panels, or the values after the last panel.
        let keys = at.wrapping_add(G * panel);
        let values = self.values.cast::<N::KvElement>().wrapping_add(block.key * self.value_row);
        let next = match (v + G < end, MR) {
            (true, 1) => PanelView::line_by_line::<S, G>(keys),
            (false, 1) => PanelView::line_by_line::<S, G>(values),
            (true, _) => PanelView { at: keys, step: S::LANES, vector: panel },
            (false, _) => PanelView { at: values, step: self.value_row, vector: S::LANES },
        };
        // SAFETY: the query rows and the panels exist by the contract of `scores`.
        let acc =
            unsafe { tile_prefetched::<S, N, MR, G>(s, zero, self.head_dim, queries, view, next) };
        let scale = s.splat(self.scale);
        let masked = (v + G) * S::LANES > seen[0];
        for i in 0..MR {
            for (g, &sum) in acc[i].iter().enumerate() {
                let first = (v + g) * S::LANES;
                let mut x = s.mul(sum, scale);
                if masked {
                    let visible = s.first(seen[i].saturating_sub(first));
                    x = s.select(visible, x, s.splat(f32::NEG_INFINITY));
                }
                highest[i] = s.max(x, highest[i]);
                // SAFETY: `first + LANES <= KEY_BLOCK`, so the store is inside line `i`.
                unsafe { s.store(scores.lines.0.as_mut_ptr().add(i * KEY_BLOCK + first), x) };
            }
        }
    }

    /// Adds the biases to `vectors` vectors of scores of the tile of queries from `row`. Returns the maximum of each
    /// query in each lane. This is a separate pass over data in the first-level cache: inside [`HeadParams::scores`] it
    /// would take registers from calls without a bias.
    ///
    /// # Safety
    /// There is a bias, and `seen` keys of the block are visible to each query.
    #[inline(always)]
    unsafe fn add_biases<S: SimdF32, const MR: usize>(
        &self,
        s: S,
        (key, row): (usize, usize),
        seen: &[usize; MR],
        vectors: usize,
        lines: &mut WeightLines,
    ) -> [S::F32; MR] {
        let mut highest = [s.splat(f32::NEG_INFINITY); MR];
        let vectors = vectors.min(KEY_BLOCK / S::LANES);
        // Vectors that are completely visible to every query of the tile need no lane count.
        let whole = if self.bias_whole { vectors.min(seen[0] / S::LANES) } else { 0 };
        for i in 0..MR {
            let line = lines.0.as_mut_ptr().wrapping_add(i * KEY_BLOCK);
            let bias = self.bias_at(row + i, key);
            for v in 0..whole {
                let first = v * S::LANES;
                // SAFETY: the address is inside line `i`. The query sees these keys, and each has a bias.
                unsafe {
                    let x = s.add(s.load(line.add(first)), s.load(bias.add(first)));
                    highest[i] = s.max(x, highest[i]);
                    s.store(line.add(first), x);
                }
            }
        }
        for v in whole..vectors {
            let first = v * S::LANES;
            for i in 0..MR {
                let count = seen[i].saturating_sub(first).min(S::LANES);
                // SAFETY: the address is inside line `i`. The bias has a value for every visible key, and whole vectors
                // are only read where the last query of the tile sees a key of them (`bias_whole`).
                unsafe {
                    let at = lines.0.as_mut_ptr().add(i * KEY_BLOCK + first);
                    let mut x = self.add_bias(s, s.load(at), (row + i, key + first), count);
                    if count < S::LANES {
                        // The bias may hold any value past the visible keys.
                        x = s.select(s.first(count), x, s.splat(f32::NEG_INFINITY));
                    }
                    highest[i] = s.max(x, highest[i]);
                    s.store(at, x);
                }
            }
        }
        highest
    }

    /// `out = (out * before + weights * values) * after`, where no bias hides a key.
    ///
    /// # Safety
    /// As [`HeadParams::attend`].
    #[inline(always)]
    unsafe fn values<S: SimdF32, N: KvFormat, const MR: usize, const NV: usize>(
        &self,
        s: S,
        rows: ValueTile<'_, MR>,
        weights: &WeightLines,
    ) {
        let mut column = 0;
        while column < self.head_dim {
            let left = (self.head_dim - column).div_ceil(S::LANES);
            // SAFETY: the `# Safety` contract of `values` holds.
            unsafe {
                if left >= NV {
                    self.columns::<S, N, MR, NV>(s, rows, column, weights);
                    column += NV * S::LANES;
                } else if NV > 2 && left >= 2 {
                    self.columns::<S, N, MR, 2>(s, rows, column, weights);
                    column += 2 * S::LANES;
                } else {
                    self.columns::<S, N, MR, 1>(s, rows, column, weights);
                    column += S::LANES;
                }
            }
        }
    }

    /// `G` vectors of output columns: first the keys that are visible to all queries of the tile, then those that only
    /// later queries see.
    ///
    /// # Safety
    /// As [`HeadParams::attend`].
    #[inline(always)]
    unsafe fn columns<S: SimdF32, N: KvFormat, const MR: usize, const G: usize>(
        &self,
        s: S,
        rows: ValueTile<'_, MR>,
        column: usize,
        weights: &WeightLines,
    ) {
        let ValueTile { block, first: row, seen, factors } = rows;
        let mut acc = [[s.splat(0.0); G]; MR];
        if block.key > 0 {
            for i in 0..MR {
                let factor = s.splat(factors[i].before);
                for (g, x) in acc[i].iter_mut().enumerate() {
                    // SAFETY: the output row exists by the contract of `attend`, and an earlier block wrote it.
                    *x = s.mul(factor, unsafe { self.load_out(s, row + i, column + g * S::LANES) });
                }
            }
        }
        let weights = Rows { at: weights.0.as_ptr(), row: KEY_BLOCK, step: 1 };
        let values = self.values.cast::<N::KvElement>();
        let values = PanelView {
            at: values.wrapping_add(block.key * self.value_row + column),
            step: self.value_row,
            vector: S::LANES,
        };
        let (min_seen, max_seen) = (seen[0], seen[MR - 1]);
        // The prefetch target after these values: keys of this head, or, for a single query after the last block, of
        // the next head.
        let panel = self.head_dim * S::LANES;
        let keys = self.keys.cast::<N::KvElement>().wrapping_add(block.next / S::LANES * panel);
        let next_keys = self.next_keys.cast::<N::KvElement>();
        let next = match (MR, block.next >= self.key_len) {
            (1, true) => {
                PanelView::line_by_line::<S, G>(next_keys.wrapping_add(column * ONE_QUERY_STEPS))
            }
            (1, false) => PanelView::line_by_line::<S, G>(keys),
            _ => PanelView { at: keys, step: S::LANES, vector: panel },
        };
        // SAFETY: weights and value rows exist for every visible key, by the contract of `attend`.
        let mut acc =
            unsafe { tile_prefetched::<S, N, MR, G>(s, acc, min_seen, weights, values, next) };
        for key in min_seen..max_seen {
            for (i, line) in acc.iter_mut().enumerate() {
                if key >= seen[i] {
                    continue;
                }
                // SAFETY: `key < seen[i]`: `scores` stored a weight for each key that query `i` sees, and the value row
                // exists.
                unsafe {
                    let weight = s.splat(*weights.at.add(i * KEY_BLOCK + key));
                    for (g, x) in line.iter_mut().enumerate() {
                        let at = values.at.add(key * self.value_row + g * S::LANES);
                        *x = s.mul_add(weight, load::<S, N>(s, at), *x);
                    }
                }
            }
        }
        for (i, line) in acc.iter().enumerate() {
            let factor = s.splat(factors[i].after);
            for (g, &x) in line.iter().enumerate() {
                // SAFETY: the output row exists by the contract of `attend`.
                unsafe { self.store_out(s, row + i, column + g * S::LANES, s.mul(x, factor)) };
            }
        }
    }

    /// One query under a bias that may hide any key. The values of hidden keys are not read. A visible key is
    /// multiplied even if its weight is 0.
    ///
    /// # Safety
    /// As [`HeadParams::attend`].
    #[inline(always)]
    unsafe fn values_masked<S: SimdF32, N: KvFormat>(
        &self,
        s: S,
        block: Block,
        row: usize,
        seen: usize,
        factors: Factors,
        weights: &[f32],
    ) {
        let bias = self.bias_at(row, block.key);
        let mut column = 0;
        while column < self.head_dim {
            // SAFETY: the output row, and the value rows and biases of all visible keys exist, by the contract of
            // `attend`.
            unsafe {
                let mut acc = s.splat(0.0);
                if block.key > 0 {
                    acc = s.mul(s.splat(factors.before), self.load_out(s, row, column));
                }
                for (key, &weight) in weights.iter().enumerate().take(seen) {
                    if weight != 0.0 || !hides(*bias.add(key)) {
                        let at = (block.key + key) * self.value_row + column;
                        let value = load::<S, N>(s, self.values.cast::<N::KvElement>().add(at));
                        acc = s.mul_add(s.splat(weight), value, acc);
                    }
                }
                self.store_out(s, row, column, s.mul(acc, s.splat(factors.after)));
            }
            column += S::LANES;
        }
    }
}

/// A tile of queries from `first`, whose weights are multiplied with a block of values.
#[derive(Clone, Copy)]
struct ValueTile<'a, const MR: usize> {
    block: Block,
    first: usize,
    /// Visible keys of the block for each query.
    seen: &'a [usize; MR],
    factors: &'a [Factors; MR],
}

/// Position of a tile of scores: its first query, its first vector of keys in the block, and the end of the vectors for
/// these queries.
#[derive(Clone, Copy)]
struct ScoreTile {
    row: usize,
    vector: usize,
    end: usize,
}
