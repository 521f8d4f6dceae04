//! Online-softmax attention of one head of one sequence.
//!
//! Keys go by in blocks counted from key 0, so that a query meets the same blocks whether it is one
//! of a thousand in a prefill or alone in a decode step, and gets the same bits. Within a block:
//! scores by the GEMM tile over key panels, the running maximum, exponentials, then the GEMM tile
//! over value rows; the output of earlier blocks is rescaled when the maximum has grown.
//!
//! Masks are loop bounds. Each query has a *limit*: it sees keys `0..limit`. A tile of queries with
//! different limits (on the causal diagonal) masks the scores past each limit, and multiplies
//! values row by row past the smallest one, so that the value of a hidden key is never read for a
//! query that may not see it: zero times NaN does not happen.

use super::bias::hides;
#[cfg(feature = "train")]
use super::dropout::{DropOnce, Tile};
use super::head_params::HeadParams;
use super::kv_dtype::{KvFormat, PanelView, load};
use super::online_softmax::{Block, Factors, KEY_BLOCK, Running, WeightLines, exponentials};
use super::prefetched_tile::{ALONE, streamed};
use crate::gemm::{MAX_MR, Rows};
use crate::parallel::share;
use crate::simd::{CACHE_LINE_F32, SimdF32, SimdOp};
use core::marker::PhantomData;
use core::mem::MaybeUninit;

/// Queries that pass over one block of keys before the next: they divide the traffic of keys and
/// values from outer caches.
pub(super) const QUERY_BLOCK: usize = 168;

/// Fewest queries that are worth a pass of their own.
pub(super) const MIN_QUERY_BLOCK: usize = 42;

/// Vectors of scores in flight for a query that is alone, where a panel is narrow.
const WIDE: usize = 8;

/// Elements of a query row that a tile copies: wider heads attend with one query at a time. An odd
/// number of lines, so that the rows do not meet in the same sets of a cache.
const QUERY_ROW: usize = 528;

/// What one tile of queries needs for one block of keys.
#[repr(align(64))]
pub(super) struct Scores {
    lines: WeightLines,
    /// The queries side by side. In place their rows may lie a power of two apart, and at a stride
    /// that the innermost loop has no register for.
    queries: [MaybeUninit<f32>; MAX_MR * QUERY_ROW],
}

impl Scores {
    pub(super) const fn new() -> Self {
        Self { lines: WeightLines::new(), queries: [MaybeUninit::uninit(); MAX_MR * QUERY_ROW] }
    }
}

/// What [`HeadParams::tile`] works on.
struct TileRow<'t> {
    head: &'t HeadParams,
    block: Block,
    row: usize,
    running: &'t mut [Running],
    scores: &'t mut Scores,
}

impl<'t> TileRow<'t> {
    #[inline(always)]
    fn of<N, const MR: usize, const NV: usize>(self) -> TileOf<'t, N, MR, NV> {
        TileOf { tile: self, numbers: PhantomData }
    }
}

/// [`HeadParams::tile`] as a function of its own, made where that may be called.
struct TileOf<'t, N, const MR: usize, const NV: usize> {
    tile: TileRow<'t>,
    numbers: PhantomData<N>,
}

impl<N: KvFormat, const MR: usize, const NV: usize> SimdOp for TileOf<'_, N, MR, NV> {
    type Output = ();

    #[inline(always)]
    fn run<S: SimdF32>(self, s: S) {
        let TileRow { head, block, row, running, scores } = self.tile;
        // SAFETY: `HeadParams::attend` makes it under the same contract.
        unsafe { head.tile::<S, N, MR, NV>(s, block, row, running, scores) }
    }
}

/// Rows of the tallest tile of queries. Where a multiply-add is a call, taller tiles are not faster.
const fn most_rows<S: SimdF32, N: KvFormat>() -> usize {
    if S::SOFT_FMA { 2 } else { N::MAX_MR }
}

impl HeadParams {
    /// Attends with queries `start..start + count`, `count <= QUERY_BLOCK`. What `scores` holds does not
    /// matter.
    ///
    /// # Safety
    /// Every pointer is valid for what its field says, for the instruction set of `S`; nobody else
    /// touches the outputs and weights of these queries.
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
        let tallest = if self.head_dim <= QUERY_ROW { most_rows::<S, N>() } else { 1 };
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
                // The tallest two, which many queries are cut into, are parts of this function: a call is
                // a hundredth of their time. The others are not: they would take several times as long
                // to compile.
                let rows = local.len();
                let tile = TileRow { head: self, block, row, running, scores };
                if const { most_rows::<S, N>() >= 2 } && rows == 2 {
                    s.call_noinline(tile.of::<N, 2, NV>());
                } else if const { most_rows::<S, N>() >= 3 } && rows == 3 {
                    s.call_noinline(tile.of::<N, 3, NV>());
                } else if const { most_rows::<S, N>() >= 4 } && rows == 4 {
                    s.call_noinline(tile.of::<N, 4, NV>());
                } else if const { most_rows::<S, N>() >= 5 } && rows == 5 {
                    // SAFETY: the caller's contract.
                    unsafe { self.tile::<S, N, 5, NV>(s, block, row, tile.running, tile.scores) };
                } else if const { most_rows::<S, N>() >= 6 } && rows == 6 {
                    const { assert!(MAX_MR == 6, "an arm for each height of a tile") };
                    // SAFETY: the caller's contract.
                    unsafe { self.tile::<S, N, 6, NV>(s, block, row, tile.running, tile.scores) };
                } else {
                    debug_assert_eq!(rows, 1);
                    s.call_noinline(tile.of::<N, 1, NV>());
                }
            }
            key += block.len;
        }
        for i in 0..count {
            // SAFETY: the caller's contract.
            unsafe {
                self.finish::<S, N>(s, start + i, running[i], |key| {
                    self.values.cast::<N::KvElement>().wrapping_add(key * self.value_row)
                });
                if !self.sums.is_null() {
                    let kept = running[i].kept();
                    let to = self.sums.add((start + i) * self.sums_row);
                    to.write(kept.0);
                    to.add(1).write(kept.1);
                }
            }
        }
    }

    /// One tile of `MR` queries from `row`, with as many of `running`, against one block of keys.
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
        // Keys of this block that each query sees; limits never decrease from row to row.
        let mut seen = [0; MR];
        for (i, n) in seen.iter_mut().enumerate() {
            *n = self.limit(row + i).saturating_sub(block.key).min(block.len);
        }
        let most = seen[MR - 1];
        if most == 0 && block.key > 0 {
            return;
        }
        let vectors = most.div_ceil(S::LANES);
        let mut highest = [s.splat(f32::NEG_INFINITY); MR];
        if MR > 1 {
            // SAFETY: the query rows exist, and `head_dim <= QUERY_ROW` for tiles of several.
            unsafe { self.copy_queries::<S, MR>(s, row, scores) };
        }
        let mut v = 0;
        while v < vectors {
            let place = Place { row, vector: v, end: vectors };
            // SAFETY: panels up to `vectors` exist, and the scores have room for a whole block.
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
            // SAFETY: the caller's contract.
            highest = unsafe { self.add_biases(s, place, &seen, vectors, &mut scores.lines) };
        }
        if MR > 1 {
            // These rows come from outer caches while the exponentials need none.
            self.ask_for_rows::<S>(s, self.query, self.query_row, row + MR, MR);
            self.ask_for_rows::<S>(s, self.out, self.out_row, row, MR);
        }
        let correction = exponentials(s, &mut scores.lines, vectors, highest, running);
        #[cfg(feature = "train")]
        if let Some(drops) = self.drops {
            let tile = Tile { drops, query: row, queries: MR, key: block.key, keys: most };
            s.call_noinline(DropOnce {
                tile,
                lines: scores.lines.0.as_mut_ptr(),
                stride: KEY_BLOCK,
            });
        }
        let last = block.key + block.len >= self.limit(row + MR - 1);
        // No `from_fn`: it need not be inlined, and is not compiled for this instruction set.
        let mut factors = [Factors { before: 1.0, after: 1.0 }; MR];
        for (i, (factor, running)) in factors.iter_mut().zip(&*running).enumerate() {
            factor.before = correction[i];
            factor.after = if last { 1.0 / running.sum } else { 1.0 };
        }
        // SAFETY: the caller's contract.
        unsafe {
            if !self.bias_hides {
                let rows = Weighed { block, first: row, seen: &seen, factors: &factors };
                self.values::<S, N, MR, NV>(s, rows, &scores.lines);
            } else {
                for i in 0..MR {
                    self.values_where_seen::<S, N>(s, block, row + i, seen[i], factors[i], {
                        &scores.lines.0[i * KEY_BLOCK..][..KEY_BLOCK]
                    });
                }
            }
        }
    }

    /// Asks for `count` rows from row `row`, any address.
    #[inline(always)]
    fn ask_for_rows<S: SimdF32>(
        &self,
        s: S,
        at: *const f32,
        stride: usize,
        row: usize,
        count: usize,
    ) {
        for i in row..row + count {
            let mut column = 0;
            while column < self.head_dim {
                s.prefetch(at.wrapping_add(i.wrapping_mul(stride).wrapping_add(column)));
                column += CACHE_LINE_F32;
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
            // SAFETY: the caller's contract.
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
        place: Place,
        seen: &[usize; MR],
        highest: &mut [S::F32; MR],
        scores: &mut Scores,
    ) {
        let Place { row, vector: v, end } = place;
        let panel = self.head_dim * S::LANES;
        let (a, a_row) = if MR == 1 {
            (self.query.wrapping_add(row * self.query_row), 0)
        } else {
            (scores.queries.as_ptr().cast(), QUERY_ROW)
        };
        let queries = Rows { at: a, row: a_row, step: 1 };
        let first_keys = self.keys.cast::<N::KvElement>();
        let at = first_keys.wrapping_add((block.key / S::LANES + v) * panel);
        let numbers = PanelView { at, step: S::LANES, vector: panel };
        let zero = [[s.splat(0.0); G]; MR];
        // What is multiplied after these keys: more of them, or values.
        let keys = at.wrapping_add(G * panel);
        let values = self.values.cast::<N::KvElement>().wrapping_add(block.key * self.value_row);
        let next = match (v + G < end, MR) {
            (true, 1) => PanelView::line_by_line::<S, G>(keys),
            (false, 1) => PanelView::line_by_line::<S, G>(values),
            (true, _) => PanelView { at: keys, step: S::LANES, vector: panel },
            (false, _) => PanelView { at: values, step: self.value_row, vector: S::LANES },
        };
        // SAFETY: rows and panels exist.
        let acc =
            unsafe { streamed::<S, N, MR, G>(s, zero, self.head_dim, queries, numbers, next) };
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
                // SAFETY: `first + LANES <= KEY_BLOCK`.
                unsafe { s.store(scores.lines.0.as_mut_ptr().add(i * KEY_BLOCK + first), x) };
            }
        }
    }

    /// Adds the biases to `vectors` vectors of scores of the tile of queries from `row`, and returns the
    /// largest of each query in each lane. A pass of its own, over what is in the first-level cache: in
    /// [`HeadParams::scores`] it would take registers from those who have no bias.
    ///
    /// # Safety
    /// There is a bias, and the queries see `seen` keys of the block.
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
        // Vectors that every query of the tile sees whole need no counting.
        let whole = if self.bias_whole { vectors.min(seen[0] / S::LANES) } else { 0 };
        for i in 0..MR {
            let line = lines.0.as_mut_ptr().wrapping_add(i * KEY_BLOCK);
            let bias = self.bias_at(row + i, key);
            for v in 0..whole {
                let first = v * S::LANES;
                // SAFETY: inside line `i`; the query sees these keys, which have a bias.
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
                // SAFETY: inside line `i`; the bias has a value for every key that the query sees, and of
                // whole vectors the last query of the tile sees a key.
                unsafe {
                    let at = lines.0.as_mut_ptr().add(i * KEY_BLOCK + first);
                    let mut x = self.add_bias(s, s.load(at), (row + i, key + first), count);
                    if count < S::LANES {
                        // Behind them the bias may hold anything.
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
        rows: Weighed<'_, MR>,
        weights: &WeightLines,
    ) {
        let mut column = 0;
        while column < self.head_dim {
            let left = (self.head_dim - column).div_ceil(S::LANES);
            // SAFETY: the caller's contract.
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

    /// `G` vectors of output columns: the keys that all queries of the tile see together, then those
    /// that only the later ones see.
    ///
    /// # Safety
    /// As [`HeadParams::attend`].
    #[inline(always)]
    unsafe fn columns<S: SimdF32, N: KvFormat, const MR: usize, const G: usize>(
        &self,
        s: S,
        rows: Weighed<'_, MR>,
        column: usize,
        weights: &WeightLines,
    ) {
        let Weighed { block, first: row, seen, factors } = rows;
        let mut acc = [[s.splat(0.0); G]; MR];
        if block.key > 0 {
            for i in 0..MR {
                let factor = s.splat(factors[i].before);
                for (g, x) in acc[i].iter_mut().enumerate() {
                    // SAFETY: the output row exists and was written for an earlier block.
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
        let (fewest, most) = (seen[0], seen[MR - 1]);
        // After these values come keys: of this head, or of the next for a query that is alone.
        let panel = self.head_dim * S::LANES;
        let keys = self.keys.cast::<N::KvElement>().wrapping_add(block.next / S::LANES * panel);
        let next_keys = self.next_keys.cast::<N::KvElement>();
        let next = match (MR, block.next >= self.key_len) {
            (1, true) => PanelView::line_by_line::<S, G>(next_keys.wrapping_add(column * ALONE)),
            (1, false) => PanelView::line_by_line::<S, G>(keys),
            _ => PanelView { at: keys, step: S::LANES, vector: panel },
        };
        // SAFETY: weights and value rows exist for every key that is seen.
        let mut acc = unsafe { streamed::<S, N, MR, G>(s, acc, fewest, weights, values, next) };
        for key in fewest..most {
            for (i, line) in acc.iter_mut().enumerate() {
                if key >= seen[i] {
                    continue;
                }
                // SAFETY: `key < seen[i]`: the weight was stored for each key that query `i` sees,
                // and the value row exists.
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
                // SAFETY: the output row exists.
                unsafe { self.store_out(s, row + i, column + g * S::LANES, s.mul(x, factor)) };
            }
        }
    }

    /// One query under a bias that may hide any key: the values of hidden keys are not
    /// read. A key that is only far off is multiplied like any other, even by 0.
    ///
    /// # Safety
    /// As [`HeadParams::attend`].
    #[inline(always)]
    unsafe fn values_where_seen<S: SimdF32, N: KvFormat>(
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
            // SAFETY: the output row exists, and value rows and bias of keys that the query sees.
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

/// A tile of queries from `first` on, whose weights are to be multiplied with a block of values.
#[derive(Clone, Copy)]
struct Weighed<'a, const MR: usize> {
    block: Block,
    first: usize,
    /// Keys of the block that each query sees.
    seen: &'a [usize; MR],
    factors: &'a [Factors; MR],
}

/// Where a tile of scores lies: its first query, its first vector of the block's keys, and the
/// vector at which this tile of queries ends.
#[derive(Clone, Copy)]
struct Place {
    row: usize,
    vector: usize,
    end: usize,
}
