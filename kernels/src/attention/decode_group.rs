//! A decode step of a group of rows with common keys and values, for one head: the shared part as a tile, then the part
//! of each row.
//!
//! The keys and values that only one query reads are processed in separate functions, which groups of all sizes call.

use super::cache::CacheHead;
use super::one_head::{HeadQuery, ValueRows, add_unhidden, fill_fully_masked};
use super::online_softmax::{
    Factors, KEY_BLOCK, KeyBlock, Running, WeightLines, exponentials, mask_scores,
};
use super::panels::{KvFormat, ONE_QUERY_STEPS};
use crate::gemm::{Panels, Rows, Tile, load_line, multiply, store_line};
use crate::prefetch::Prefetch;
use crate::simd::{CACHE_LINE_F32, MAX_PANEL, SimdF32, SimdOp, array_of, simd_op, vector_groups};
use core::ops::Range;

/// Most rows that share one pass over their common keys and values.
pub(super) const MAX_SHARED_ROWS: usize = 4;

/// Panels that are scored at once, where vectors have fewer than 16 lanes.
const WIDE: usize = 8;

/// One head of `R` consecutive queries that have equally many keys.
#[derive(Clone, Copy)]
pub(super) struct RowGroup<'a, N: KvFormat, const R: usize> {
    heads: &'a [HeadQuery; R],
    /// The slot of each key of each query.
    slots: &'a [&'a [u32]; MAX_SHARED_ROWS],
    kv: CacheHead<N::KvElement>,
    /// Keys that have the same slot in all queries, in whole panels. 0 for a single query.
    shared: usize,
    /// Keys that are computed next: prefetched early.
    next_keys: *const N::KvElement,
}

simd_op!(
    /// Computes attention for query row 0 of each of the heads of a group. The previous content of `lines` is ignored.
    ///
    /// # Safety
    /// Every pointer of `heads`, except those to keys and values, is valid for the data that its field documents, for
    /// the instruction set of `S`. No other code accesses their outputs. The queries are those of consecutive rows.
    /// Each element of `slots` has `key_len` entries. All of them are slots of the cache, their positions have been
    /// written, and they are equal in all queries up to `shared`, a multiple of `LANES`.
    pub(super) unsafe fn attend<S: SimdF32, N: KvFormat, const R: usize, const NV: usize>(
        s: S,
        group: RowGroup<'_, N, R>,
        lines: &mut WeightLines,
    ) {
        let mut running = [Running::START; R];
        let key_len = group.heads[0].key_len;
        let mut key = 0;
        while key < key_len {
            let block = KeyBlock { key, len: (key_len - key).min(KEY_BLOCK), next: key };
            // SAFETY: the `# Safety` contract of `attend` holds.
            unsafe {
                group.scores::<S, NV>(s, block, lines);
                let vectors = block.len.div_ceil(S::LANES);
                let last = key + block.len == key_len;
                let factors = exponentials::<R>(lines, vectors, &mut running, last).run_with(s);
                for i in 0..R {
                    let (head, weights) = (&group.heads[i], &lines.0[i * KEY_BLOCK..][..block.len]);
                    let Some(bias) = head.hiding_bias() else { break };
                    let (place, factors, values) = ((0, key), factors[i], group.values(i));
                    s.call_noinline(add_unhidden::<N>(head, place, weights, factors, bias, values));
                }
                if group.heads[0].hiding_bias().is_none() {
                    let mut v = 0;
                    let end = group.heads[0].head_dim.div_ceil(S::LANES);
                    vector_groups!(v, end, [NV, 1] => {
                        group.columns::<S>(s, block, v * S::LANES, &lines.0, factors)
                    });
                }
            }
            key += block.len;
        }
        for i in 0..R {
            if running[i].is_fully_masked() {
                let (head, values) = (&group.heads[i], group.values(i));
                // SAFETY: the `# Safety` contract of `attend` holds.
                unsafe { s.call_noinline(fill_fully_masked::<N>(head, 0, values)) };
            }
        }
    }
);

/// Rows that share one pass over their common keys and values: 1, 2 or 4.
pub(super) struct SharedRows<'a> {
    pub(super) rows: usize,
    /// The KV slots of each row.
    pub(super) slots: [&'a [u32]; MAX_SHARED_ROWS],
    /// Keys that have the same slot in all rows, in whole panels.
    pub(super) shared: usize,
}

impl<'a, N: KvFormat, const R: usize> RowGroup<'a, N, R> {
    /// The group of the first `R` of `heads`.
    #[inline(always)]
    pub(super) fn new(
        heads: &'a [HeadQuery; MAX_SHARED_ROWS],
        rows: &'a SharedRows<'a>,
        kv: CacheHead<N::KvElement>,
        next_keys: *const N::KvElement,
    ) -> Self {
        let Some(heads) = heads.first_chunk() else { unreachable!("groups are smaller") };
        Self { heads, slots: &rows.slots, kv, shared: rows.shared, next_keys }
    }

    /// Keys of a block that all queries process in one tile.
    #[inline(always)]
    fn shared_len(&self, block: KeyBlock) -> usize {
        if R == 1 { 0 } else { self.shared.saturating_sub(block.key).min(block.len) }
    }

    /// All queries, with the slots of the first.
    #[inline(always)]
    fn all(&self) -> Queries<'_, N, R> {
        Queries { heads: self.heads, slots: self.slots[0], kv: self.kv }
    }

    /// Query `i`.
    #[inline(always)]
    fn own(&self, i: usize) -> Queries<'_, N, 1> {
        let heads = core::array::from_ref(&self.heads[i]);
        Queries { heads, slots: self.slots[i], kv: self.kv }
    }

    /// The value rows of query `i`.
    #[inline(always)]
    fn values(&self, i: usize) -> ValueRows<'_, N::KvElement> {
        self.kv.value_rows(self.slots[i])
    }

    /// Address of the first key of a block that query `i` does not share. If there is no such query or key, the address
    /// of the first values of the block.
    #[inline(always)]
    fn own_keys<S: SimdF32>(&self, block: KeyBlock, i: usize) -> *const N::KvElement {
        let shared_len = self.shared_len(block);
        if i < R && shared_len < block.len {
            let at = block.key + shared_len;
            return self.own(i).panel::<S>(self.slots[i][at], at);
        }
        self.kv.value(self.slots[0][block.key], block.key)
    }

    /// Scores of one block.
    ///
    /// # Safety
    /// As [`attend`].
    #[inline(always)]
    unsafe fn scores<S: SimdF32, const NV: usize>(
        &self,
        s: S,
        block: KeyBlock,
        lines: &mut WeightLines,
    ) {
        let lines = lines.0.as_mut_ptr();
        let shared_panels = self.shared_len(block) / S::LANES;
        // SAFETY: the `# Safety` contract of `scores` holds. `lines` has a line for each query.
        unsafe {
            if const { R > 1 } {
                let (all, after) = (self.all(), self.own_keys::<S>(block, 0));
                let mut v = 0;
                vector_groups!(v, shared_panels, [NV, 1] => {
                    all.scores::<S>(s, block, v, after, lines)
                });
                s.call_noinline(score_other_slots::<N, R>(all, block, 0..shared_panels, lines));
            }
            for i in 0..R {
                let (own, after) = (self.own(i), self.own_keys::<S>(block, i + 1));
                let line = lines.add(i * KEY_BLOCK);
                if const { R == 1 } {
                    own_scores::<N>(own, block, 0, after, line).run_with(s);
                } else {
                    s.call_noinline(own_scores::<N>(own, block, shared_panels, after, line));
                }
            }
        }
    }

    /// `out = (out * before + weights * values) * after` of one block, for `G` vectors of output columns.
    ///
    /// # Safety
    /// As [`attend`].
    #[inline(always)]
    unsafe fn columns<S: SimdF32, const G: usize>(
        &self,
        s: S,
        block: KeyBlock,
        column: usize,
        weights: &[f32],
        factors: [Factors; R],
    ) {
        const { assert!(G * S::LANES <= MAX_PANEL) };
        let mut buffer = [0.0; MAX_PANEL];
        let buffer = buffer.as_mut_ptr();
        let mut acc = [[s.splat(0.0); G]; R];
        if block.key > 0 {
            for i in 0..R {
                let (head, factors) = (&self.heads[i], &[factors[i]]);
                // SAFETY: an earlier block wrote the output row.
                [acc[i]] = unsafe { head.load_scaled(s, (0, column), factors, buffer) };
            }
        }
        let shared_len = self.shared_len(block);
        let weights = weights.as_ptr();
        // SAFETY: the `# Safety` contract of `columns` holds. There is a line of weights for each query, and `G`
        // vectors fit in a panel.
        unsafe {
            if const { R > 1 } && shared_len > 0 {
                let after = self.own_values(block, column, 0);
                let keys = BlockKeys { block, column, start: 0, end: shared_len };
                acc = self.all().runs::<S, G>(s, acc, keys, weights, after);
            }
            for i in 0..R {
                let (own, after) = (self.own(i), self.own_values(block, column, i + 1));
                let keys = BlockKeys { block, column, start: shared_len, end: block.len };
                let weights = weights.add(i * KEY_BLOCK);
                if const { R == 1 } {
                    [acc[i]] = own.runs::<S, G>(s, [acc[i]], keys, weights, after);
                } else if shared_len < block.len {
                    store_line(s, buffer, acc[i]);
                    s.call_noinline(own_values::<N, G>(own, keys, weights, after, buffer));
                    acc[i] = load_line(s, buffer);
                }
            }
        }
        for i in 0..R {
            // SAFETY: the output row exists by the contract of `attend`.
            unsafe { self.heads[i].store_scaled(s, (0, column), &[acc[i]], &[factors[i]], buffer) };
        }
    }

    /// Address of the first value of a block that query `i` does not share, from `column`. If there is no such query or
    /// value, an address in the keys of the next head.
    #[inline(always)]
    fn own_values(&self, block: KeyBlock, column: usize, i: usize) -> *const N::KvElement {
        let shared_len = self.shared_len(block);
        if i < R && shared_len < block.len {
            let key = block.key + shared_len;
            return self.kv.value(self.slots[i][key], key).wrapping_add(column);
        }
        self.next_keys.wrapping_add(column * ONE_QUERY_STEPS)
    }
}

/// Consecutive queries of one head that read the same slots.
#[derive(Clone, Copy)]
struct Queries<'a, N: KvFormat, const MR: usize> {
    heads: &'a [HeadQuery; MR],
    /// The slot of each key.
    slots: &'a [u32],
    kv: CacheHead<N::KvElement>,
}

impl<N: KvFormat, const MR: usize> Queries<'_, N, MR> {
    #[inline(always)]
    fn first(&self) -> &HeadQuery {
        const { assert!(MR > 0) };
        &self.heads[0]
    }

    /// The panel of `position` in `slot`.
    #[inline(always)]
    fn panel<S: SimdF32>(&self, slot: u32, position: usize) -> *const N::KvElement {
        let panel = position / S::LANES * self.first().head_dim * S::LANES;
        self.kv.keys(slot).wrapping_add(panel)
    }

    /// Scaled scores of `G` panels of a block, from panel `v`, for `MR` queries. Each panel is scored in the slot of its
    /// first position. `after` is the address of the next read after the last panel of the block, for prefetch.
    ///
    /// # Safety
    /// As [`attend`]; the panels exist, and `lines` is valid for writes of a block of scores of each query.
    #[inline(always)]
    unsafe fn scores<S: SimdF32, const G: usize>(
        &self,
        s: S,
        block: KeyBlock,
        v: usize,
        after: *const N::KvElement,
        lines: *mut f32,
    ) {
        let slots = &self.slots[block.key..block.key + block.len];
        let from = array_of!(g in G => {
            let first = (v + g) * S::LANES;
            self.panel::<S>(slots[first], block.key + first)
        });
        let next = match slots.get((v + G) * S::LANES) {
            Some(&slot) => self.panel::<S>(slot, block.key + (v + G) * S::LANES),
            None => after,
        };
        let prefetch = N::prefetch_lines(next, G, S::LANES);
        // SAFETY: the panels have been written, by the contract of `attend`.
        let sums = unsafe { self.products::<S, _, G>(s, from, prefetch) };
        for (g, sums) in sums.into_iter().enumerate() {
            for i in 0..MR {
                let score = s.mul(sums[i][0], s.splat(self.heads[i].scale));
                let at = i * KEY_BLOCK + (v + g) * S::LANES;
                // SAFETY: the vector is one of the block, and `lines` has a line for each query.
                unsafe { s.store(lines.add(at), score) };
            }
        }
    }

    /// The products of each of `MR` queries with each panel in `from`.
    ///
    /// # Safety
    /// The panels exist.
    #[inline(always)]
    unsafe fn products<S: SimdF32, Q: Prefetch, const G: usize>(
        &self,
        s: S,
        from: [*const N::KvElement; G],
        prefetch: Q,
    ) -> [Tile<S, MR, 1>; G] {
        let head = self.first();
        let queries = Rows { at: head.query, row: head.query_row, step: 1 };
        let keys = Panels { at: from, step: S::LANES, vector: S::LANES };
        let zero = [[[s.splat(0.0)]; MR]; G];
        // SAFETY: the query rows have `head_dim` elements, and each panel has as many vectors.
        unsafe { multiply(N::operand(s), zero, head.head_dim, queries, keys, prefetch) }
    }

    /// Adds weights times values of some keys of a block to `acc`, slot by slot. `after` is the address of the next
    /// read, for prefetch.
    ///
    /// # Safety
    /// As [`attend`]; `weights` are those of the block, a line for each query.
    #[inline(always)]
    unsafe fn runs<S: SimdF32, const G: usize>(
        &self,
        s: S,
        mut acc: [[S::F32; G]; MR],
        keys: BlockKeys,
        weights: *const f32,
        after: *const N::KvElement,
    ) -> [[S::F32; G]; MR] {
        let BlockKeys { block, column, mut start, end } = keys;
        let slots = &self.slots[block.key..block.key + end];
        let row = self.kv.value_rows(self.slots).row;
        while start < end {
            let at =
                |slot: u32, key: usize| self.kv.value(slot, block.key + key).wrapping_add(column);
            let mut run = run_of(&slots[start..]);
            let from = at(slots[start], start);
            // Prefetch the value `ONE_QUERY_STEPS` positions ahead, in its own slot. After the last value, prefetch
            // `after`.
            let prefetch = if let Some(&later) = slots.get(start + ONE_QUERY_STEPS) {
                run = run.min(run_of(&slots[start + ONE_QUERY_STEPS..]));
                at(later, start + ONE_QUERY_STEPS)
            } else {
                let near_end = end.saturating_sub(ONE_QUERY_STEPS).max(keys.start);
                after.wrapping_add((start - near_end) * G * S::LANES)
            };
            let weights = Rows { at: weights.wrapping_add(start), row: KEY_BLOCK, step: 1 };
            let values = Panels::from_ptr(from, row, S::LANES);
            let prefetch = N::prefetch_lines(prefetch, G, CACHE_LINE_F32);
            // SAFETY: these positions of the slot have been written, by the contract of `attend`.
            [acc] = unsafe { multiply(N::operand(s), [acc], run, weights, values, prefetch) };
            start += run;
        }
        acc
    }
}

simd_op!(
    /// Scores of a single query with the panels of a block, from panel `first`, masked and with their biases. `after` is
    /// the address of the next read, for prefetch.
    ///
    /// # Safety
    /// As [`attend`]; `line` is valid for writes of a block of scores.
    unsafe fn own_scores<S: SimdF32, N: KvFormat>(
        s: S,
        own: Queries<'_, N, 1>,
        block: KeyBlock,
        first: usize,
        after: *const N::KvElement,
        line: *mut f32,
    ) {
        let panels = block.len.div_ceil(S::LANES);
        let mut v = first;
        // SAFETY: the `# Safety` contract of `own_scores` holds; `panels * LANES <= KEY_BLOCK`.
        unsafe {
            vector_groups!(v, panels, [WIDE if S::LANES < 16, 4, 2, 1] => {
                own.scores::<S>(s, block, v, after, line)
            });
            score_other_slots::<N, 1>(own, block, first..panels, line).run_with(s);
            let bias = own.first().bias;
            if bias.is_some() || block.len < panels * S::LANES {
                let (place, seen) = ((0, block.key), &[block.len]);
                s.call_noinline(mask_scores(bias, place, seen, panels, line));
            }
        }
    }
);

simd_op!(
    /// Replaces the scores of `MR` queries with the positions of some panels of a block that are not in the slot of the
    /// first position of their panel.
    ///
    /// # Safety
    /// As [`attend`]; the panels exist, and `lines` has the scores of the block for each query.
    unsafe fn score_other_slots<S: SimdF32, N: KvFormat, const MR: usize>(
        s: S,
        queries: Queries<'_, N, MR>,
        block: KeyBlock,
        panels: Range<usize>,
        lines: *mut f32,
    ) {
        let all = &queries.slots[block.key..block.key + block.len];
        for first in panels.map(|v| v * S::LANES) {
            let slots = &all[first..all.len().min(first + S::LANES)];
            if all_equal(slots) {
                continue;
            }
            for lane in 1..slots.len() {
                let slot = slots[lane];
                // Score each slot once, at its first position.
                if slot == slots[lane - 1] || slots[..lane].contains(&slot) {
                    continue;
                }
                let from = [queries.panel::<S>(slot, block.key + first)];
                // SAFETY: the caller's contract.
                let [others] = unsafe { queries.products::<S, _, 1>(s, from, ()) };
                for i in 0..MR {
                    let line = lines.wrapping_add(i * KEY_BLOCK + first);
                    let other = s.mul(others[i][0], s.splat(queries.heads[i].scale));
                    // SAFETY: the panel is one of the block.
                    let mut scores = unsafe { s.load(line) };
                    for (at, &found) in slots.iter().enumerate().skip(lane) {
                        if found == slot {
                            let up_to = s.select(s.first(at + 1), other, scores);
                            scores = s.select(s.first(at), scores, up_to);
                        }
                    }
                    // SAFETY: as above.
                    unsafe { s.store(line, scores) };
                }
            }
        }
    }
);

simd_op!(
    /// [`Queries::runs`] of one query as a separate function, for the queries of a group. Adds the products to the `G`
    /// vectors at `sums`.
    ///
    /// # Safety
    /// As [`Queries::runs`]; `sums` is valid for reads and writes of `G` vectors.
    unsafe fn own_values<S: SimdF32, N: KvFormat, const G: usize>(
        s: S,
        own: Queries<'_, N, 1>,
        keys: BlockKeys,
        weights: *const f32,
        after: *const N::KvElement,
        sums: *mut f32,
    ) {
        // SAFETY: the caller's contract.
        unsafe {
            let [acc] = own.runs::<S, G>(s, [load_line(s, sums)], keys, weights, after);
            store_line(s, sums, acc);
        }
    }
);

/// Keys `start..end` of a block, and one group of output columns.
#[derive(Clone, Copy)]
struct BlockKeys {
    block: KeyBlock,
    column: usize,
    start: usize,
    end: usize,
}

/// Whether all `slots` are equal. There is at least one.
#[inline(always)]
fn all_equal(slots: &[u32]) -> bool {
    slots.iter().fold(0, |difference, &slot| difference | (slot ^ slots[0])) == 0
}

/// How many `slots`, from the first, are equal.
#[inline(always)]
fn run_of(slots: &[u32]) -> usize {
    let Some(&slot) = slots.first() else { return 0 };
    let (chunks, _) = slots.as_chunks::<16>();
    let differs = |chunk: &[u32; 16]| chunk.iter().fold(0, |all, &other| all | (slot ^ other)) != 0;
    let whole = 16 * chunks.iter().take_while(|&chunk| !differs(chunk)).count();
    whole + slots[whole..].iter().take_while(|&&other| other == slot).count()
}
