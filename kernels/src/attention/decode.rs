//! Decode steps of queries whose keys and values are in several slots of the cache, such as the hypotheses of a beam.
//!
//! The slot table contains, for each position, the slot of its key and value. A panel of keys from one slot is used
//! directly. A panel whose positions are in several slots is scored once per slot, and the lanes are merged, which
//! gives each key the same sum as in its own slot. Values are added in order of position, slot by slot. The bits are
//! those of a cache in which all positions are in one slot.
//!
//! Hypotheses with a common ancestor share the first part of their slots, and nothing after it. Several rows process
//! the shared part as a tile, which reads it once. Then they process their own parts one by one.

use super::cache::Cache;
use super::decode_query_group::{BlockPart, Queries, own_scores, own_values};
use super::kv_dtype::KvFormat;
use super::one_head::HeadQuery;
use super::online_softmax::{Factors, KEY_BLOCK, KeyBlock, Running, WeightLines, exponentials};
use crate::prefetch::ONE_QUERY_STEPS;
use crate::simd::{MAX_LANES, MAX_PANEL, SimdF32, simd_op, vector_groups};

/// Most rows that share one pass over their common keys and values.
pub(super) const MAX_SHARED_ROWS: usize = 4;

/// One head of `R` consecutive queries that have equally many keys.
pub(super) struct KvView<'a, const R: usize> {
    pub(super) heads: [HeadQuery; R],
    pub(super) cache: Cache<'a>,
    pub(super) kv_head: usize,
    /// The slot of each key of each query.
    pub(super) slots: [&'a [u32]; R],
    /// Keys that have the same slot in all queries, in whole panels. 0 for a single query.
    pub(super) shared: usize,
    /// The head and the slots that are computed next: prefetched early.
    pub(super) next_kv_head: usize,
    pub(super) next_slots: &'a [u32],
}

simd_op!(
    /// [`KvView::attend`] as a separate function.
    ///
    /// # Safety
    /// As [`KvView::attend`].
    pub(super) unsafe fn attend<S: SimdF32, N: KvFormat, const R: usize, const NV: usize>(
        s: S,
        view: KvView<'_, R>,
        lines: &mut WeightLines,
    ) {
        // SAFETY: the caller's contract.
        unsafe { view.attend::<S, N, NV>(s, lines) }
    }
);

/// Keys that have the same slot in all `rows`, in whole panels.
#[inline(always)]
pub(super) fn shared<S: SimdF32>(rows: &[&[u32]]) -> usize {
    let Some((first, others)) = rows.split_first() else { return 0 };
    let mut key = 0;
    while key + S::LANES <= first.len() {
        let panel = &first[key..key + S::LANES];
        for other in others {
            let Some(other) = other.get(key..key + S::LANES) else { return key };
            let pairs = panel.iter().zip(other);
            if pairs.fold(0, |difference, (a, b)| difference | (a ^ b)) != 0 {
                return key;
            }
        }
        key += S::LANES;
    }
    key
}

impl<const R: usize> KvView<'_, R> {
    /// Computes attention for query row 0 of each of `heads`. The previous content of `lines` is ignored.
    ///
    /// # Safety
    /// Every pointer of `heads`, except those to keys and values, is valid for the data that its field documents, for
    /// the instruction set of `S`. No other code accesses their outputs. The queries are those of consecutive rows.
    /// Each element of `slots` has `key_len` entries. All of them are slots of the cache, their positions have been
    /// written, and they are equal in all queries up to `shared`, a multiple of `LANES`.
    #[inline(always)]
    pub(super) unsafe fn attend<S: SimdF32, N: KvFormat, const NV: usize>(
        &self,
        s: S,
        lines: &mut WeightLines,
    ) {
        let mut running = [Running::START; R];
        let key_len = self.heads[0].key_len;
        let mut key = 0;
        while key < key_len {
            let block = KeyBlock { key, len: (key_len - key).min(KEY_BLOCK), next: key };
            // SAFETY: the `# Safety` contract of `attend` holds.
            unsafe {
                let highest = self.scores::<S, N, NV>(s, block, lines);
                let vectors = block.len.div_ceil(S::LANES);
                let corrections = exponentials(s, lines, vectors, highest, &mut running);
                let last = key + block.len == key_len;
                let factors = Factors::of(corrections, &running, last);
                let lines = &lines.0;
                for i in 0..R {
                    let Some(bias) = self.heads[i].hiding_bias() else { break };
                    let (head, weights) = (&self.heads[i], &lines[i * KEY_BLOCK..][..block.len]);
                    let value = |key| self.value::<S, N>(i, key);
                    head.values_masked::<S, N>(s, (0, key), weights, factors[i], bias, value);
                }
                if self.heads[0].hiding_bias().is_none() {
                    let mut v = 0;
                    let end = self.heads[0].head_dim.div_ceil(S::LANES);
                    vector_groups!(v, end, [NV, 1] => {
                        self.columns::<S, N>(s, block, v * S::LANES, lines, factors)
                    });
                }
            }
            key += block.len;
        }
        for i in 0..R {
            let value = |key| self.value::<S, N>(i, key);
            // SAFETY: the `# Safety` contract of `attend` holds.
            unsafe { self.heads[i].finish_masked::<S, N>(s, 0, running[i], value) };
        }
    }

    /// Keys of a block that all queries process in one tile.
    #[inline(always)]
    fn shared_len(&self, block: KeyBlock) -> usize {
        if R == 1 { 0 } else { self.shared.saturating_sub(block.key).min(block.len) }
    }

    /// `count` queries from index `first`, with the slots of the first of them.
    #[inline(always)]
    fn queries(&self, first: usize, count: usize) -> Queries<'_> {
        let heads = &self.heads[first..first + count];
        Queries { heads, slots: self.slots[first], cache: self.cache, kv_head: self.kv_head }
    }

    /// The value row of key `key` of query `i`.
    #[inline(always)]
    fn value<S: SimdF32, N: KvFormat>(&self, i: usize, key: usize) -> *const N::KvElement {
        self.queries(i, 1).value::<S, N>(self.slots[i][key], key)
    }

    /// Address of the first key of a block that query `i` does not share. If there is no such query or key, the address
    /// of the first values of the block.
    #[inline(always)]
    fn own_keys<S: SimdF32, N: KvFormat>(&self, block: KeyBlock, i: usize) -> *const N::KvElement {
        let shared_len = self.shared_len(block);
        if i < R && shared_len < block.len {
            let at = block.key + shared_len;
            return self.queries(i, 1).panel::<S, N>(self.slots[i][at], at);
        }
        self.value::<S, N>(0, block.key)
    }

    /// Scores of one block. Returns the maximum of each lane of each query.
    ///
    /// # Safety
    /// As [`KvView::attend`].
    #[inline(always)]
    unsafe fn scores<S: SimdF32, N: KvFormat, const NV: usize>(
        &self,
        s: S,
        block: KeyBlock,
        lines: &mut WeightLines,
    ) -> [S::F32; R] {
        let mut highest = [s.splat(f32::NEG_INFINITY); R];
        let lines = lines.0.as_mut_ptr();
        let shared_panels = self.shared_len(block) / S::LANES;
        if const { R > 1 } {
            let (all, after) = (self.queries(0, R), self.own_keys::<S, N>(block, 0));
            let mut v = 0;
            // SAFETY: the `# Safety` contract of `scores` holds.
            unsafe {
                vector_groups!(v, shared_panels, [NV, 1] => {
                    all.group::<S, N, R>(s, block, v, after, &mut highest, lines)
                });
            }
        }
        for i in 0..R {
            let (own, after) = (self.queries(i, 1), self.own_keys::<S, N>(block, i + 1));
            // SAFETY: the `# Safety` contract of `scores` holds. `lines` has a line for each query.
            unsafe {
                let line = lines.add(i * KEY_BLOCK);
                if const { R == 1 } {
                    own.own_scores::<S, N>(s, block, 0, after, &mut highest[i], line);
                } else {
                    let mut lanes = [0.0; MAX_LANES];
                    s.store(lanes.as_mut_ptr(), highest[i]);
                    let first = shared_panels;
                    s.call_noinline(own_scores::<N>(own, block, first, after, &mut lanes, line));
                    highest[i] = s.load(lanes.as_ptr());
                }
            }
        }
        highest
    }

    /// `out = (out * before + weights * values) * after` of one block, for `G` vectors of output columns.
    ///
    /// # Safety
    /// As [`KvView::attend`].
    #[inline(always)]
    unsafe fn columns<S: SimdF32, N: KvFormat, const G: usize>(
        &self,
        s: S,
        block: KeyBlock,
        column: usize,
        weights: &[f32],
        factors: [Factors; R],
    ) {
        let mut acc = [[s.splat(0.0); G]; R];
        if block.key > 0 {
            for i in 0..R {
                // SAFETY: an earlier block wrote the output row.
                acc[i] = unsafe { self.heads[i].load_scaled(s, (0, column), factors[i].before) };
            }
        }
        let shared_len = self.shared_len(block);
        let weights = weights.as_ptr();
        // SAFETY: the `# Safety` contract of `columns` holds. There is a line of weights for each query, and `G`
        // vectors fit in a panel.
        unsafe {
            if const { R > 1 } && shared_len > 0 {
                let after = self.own_values::<S, N>(block, column, 0);
                let part = BlockPart { block, column, start: 0, end: shared_len };
                acc = self.queries(0, R).runs::<S, N, R, G>(s, acc, part, weights, after);
            }
            for i in 0..R {
                let (own, after) =
                    (self.queries(i, 1), self.own_values::<S, N>(block, column, i + 1));
                let part = BlockPart { block, column, start: shared_len, end: block.len };
                let weights = weights.add(i * KEY_BLOCK);
                if const { R == 1 } {
                    [acc[i]] = own.runs::<S, N, 1, G>(s, [acc[i]], part, weights, after);
                } else if shared_len < block.len {
                    let mut sums = [0.0; MAX_PANEL];
                    let acc = &mut acc[i];
                    for (g, &x) in acc.iter().enumerate() {
                        s.store(sums.as_mut_ptr().add(g * S::LANES), x);
                    }
                    s.call_noinline(own_values::<N, G>(own, part, weights, after, &mut sums));
                    for (g, x) in acc.iter_mut().enumerate() {
                        *x = s.load(sums.as_ptr().add(g * S::LANES));
                    }
                }
            }
        }
        for i in 0..R {
            // SAFETY: the output row exists by the contract of `attend`.
            unsafe { self.heads[i].store_scaled(s, (0, column), &acc[i], factors[i].after) };
        }
    }

    /// Address of the first value of a block that query `i` does not share, from `column`. If there is no such query or
    /// value, an address in the keys of the next head.
    #[inline(always)]
    fn own_values<S: SimdF32, N: KvFormat>(
        &self,
        block: KeyBlock,
        column: usize,
        i: usize,
    ) -> *const N::KvElement {
        let shared_len = self.shared_len(block);
        if i < R && shared_len < block.len {
            return self.value::<S, N>(i, block.key + shared_len).wrapping_add(column);
        }
        let next = self.next_slots.first().map_or(self.slots[0][block.key], |&next| next);
        let keys = self.cache.keys(next as usize, self.next_kv_head).cast::<N::KvElement>();
        keys.wrapping_add(column * ONE_QUERY_STEPS)
    }
}
