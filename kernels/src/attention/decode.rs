//! Queries whose past lies in several slots of the cache: a beam's hypotheses.
//!
//! The ancestry table names, for each position, the slot that holds its key and value. Panels of
//! keys that come from one slot are used as they are; a panel whose positions come from several
//! slots is scored once for each of them and the lanes are put together, which gives each key the
//! very sum it has in its own slot. Values are walked in order of position, slot by slot. The bits
//! are those of a cache in which everything lies in one slot.
//!
//! Hypotheses that continue the same one have the beginning of their past in common, and nothing after it:
//! several rows pass over the former as a tile, which reads it once, and over the latter one by one.

use super::bias::hides;
use super::cache::Cache;
use super::decode_queries::{OwnScores, OwnValues, Part, Queries};
use super::head_params::HeadParams;
use super::kv_dtype::{KvFormat, load};
use super::online_softmax::{Block, Factors, KEY_BLOCK, Running, WeightLines, exponentials};
use super::panels::value_row;
use super::prefetched_tile::ALONE;
use crate::simd::{MAX_LANES, MAX_PANEL, SimdF32, SimdOp};
use core::marker::PhantomData;

/// Most rows that pass over what they have in common together.
pub(super) const MOST_ROWS: usize = 4;

/// One head of `R` consecutive queries, with their pasts of one length.
pub(super) struct KvView<'a, const R: usize> {
    pub(super) heads: [HeadParams; R],
    pub(super) cache: Cache<'a>,
    pub(super) kv_head: usize,
    /// The slot of each key of each query.
    pub(super) slots: [&'a [u32]; R],
    /// Keys whose slots all of them share: whole panels. Of a query that is alone, none.
    pub(super) shared: usize,
    /// What attends after this: asked for early.
    pub(super) next_kv_head: usize,
    pub(super) next_slots: &'a [u32],
}

/// [`KvView::attend`] as a function of its own.
pub(super) struct Attend<'t, 'a, N, const R: usize, const NV: usize> {
    pub(super) past: KvView<'a, R>,
    pub(super) lines: &'t mut WeightLines,
    pub(super) numbers: PhantomData<N>,
}

impl<N: KvFormat, const R: usize, const NV: usize> SimdOp for Attend<'_, '_, N, R, NV> {
    type Output = ();

    #[inline(always)]
    fn run<S: SimdF32>(self, s: S) {
        // SAFETY: `Steps::attend`, the only maker of this value, has what `KvView::attend` asks for:
        // `attention_decode` checked slots and lengths against the cache, and each task has rows and
        // heads of its own.
        unsafe { self.past.attend::<S, N, NV>(s, self.lines) }
    }
}

/// Keys whose slots all of `rows` share, in whole panels.
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
    /// Attends with query row 0 of each of `heads`. What `lines` holds does not matter.
    ///
    /// # Safety
    /// Every pointer of `heads` but those to keys and values is valid for what its field says, for the
    /// instruction set of `S`, and nobody else touches their outputs; their queries are those of
    /// consecutive rows. `slots` have `key_len` entries each, all slots of the cache, whose positions have
    /// been written, and are the same up to `shared`, a multiple of `LANES`.
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
            let block = Block { key, len: (key_len - key).min(KEY_BLOCK), next: key };
            // SAFETY: the caller's contract.
            unsafe {
                let highest = self.scores::<S, N, NV>(s, block, lines);
                let vectors = block.len.div_ceil(S::LANES);
                let corrections = exponentials(s, lines, vectors, highest, &mut running);
                let last = key + block.len == key_len;
                let mut factors = [Factors { before: 1.0, after: 1.0 }; R];
                for i in 0..R {
                    let after = if last { 1.0 / running[i].sum } else { 1.0 };
                    factors[i] = Factors { before: corrections[i], after };
                }
                if self.heads[0].bias_hides {
                    for i in 0..R {
                        self.values_where_seen::<S, N>(
                            s,
                            i,
                            block,
                            &lines.0[i * KEY_BLOCK..],
                            factors[i],
                        );
                    }
                } else {
                    self.values::<S, N, NV>(s, block, &lines.0, factors);
                }
            }
            key += block.len;
        }
        for i in 0..R {
            // SAFETY: the caller's contract; the heads have no weights to write.
            unsafe {
                self.heads[i].finish::<S, N>(s, 0, running[i], |key| {
                    let row = value_row(S::LANES, self.heads[i].head_dim);
                    self.queries(i, 1).values_of::<N>(self.slots[i][key]).wrapping_add(key * row)
                });
            }
        }
    }

    /// Keys of a block that all queries pass over together.
    #[inline(always)]
    fn together(&self, block: Block) -> usize {
        if R == 1 { 0 } else { self.shared.saturating_sub(block.key).min(block.len) }
    }

    /// `count` queries from number `first` on, with the slots of the first of them.
    #[inline(always)]
    fn queries(&self, first: usize, count: usize) -> Queries<'_> {
        let heads = &self.heads[first..first + count];
        Queries { heads, slots: self.slots[first], cache: self.cache, kv_head: self.kv_head }
    }

    /// Where query `i` finds the first key of a block that it does not share with the others, or where the values
    /// of the block begin if there is no such query or key.
    #[inline(always)]
    fn own_keys<S: SimdF32, N: KvFormat>(&self, block: Block, i: usize) -> *const N::KvElement {
        let together = self.together(block);
        if i < R && together < block.len {
            let at = block.key + together;
            return self.queries(i, 1).panel::<S, N>(self.slots[i][at], at);
        }
        let row = value_row(S::LANES, self.heads[0].head_dim);
        self.queries(0, 1).values_of::<N>(self.slots[0][block.key]).wrapping_add(block.key * row)
    }

    /// Scores of one block; returns the highest of each lane of each query.
    ///
    /// # Safety
    /// As [`KvView::attend`].
    #[inline(always)]
    unsafe fn scores<S: SimdF32, N: KvFormat, const NV: usize>(
        &self,
        s: S,
        block: Block,
        lines: &mut WeightLines,
    ) -> [S::F32; R] {
        let mut highest = [s.splat(f32::NEG_INFINITY); R];
        let lines = lines.0.as_mut_ptr();
        let together = self.together(block) / S::LANES;
        if const { R > 1 } {
            let (all, after) = (self.queries(0, R), self.own_keys::<S, N>(block, 0));
            let mut v = 0;
            while v < together {
                // SAFETY: the caller's contract.
                unsafe {
                    if together - v >= NV {
                        all.group::<S, N, R, NV>(s, block, v, after, &mut highest, lines);
                        v += NV;
                    } else {
                        all.group::<S, N, R, 1>(s, block, v, after, &mut highest, lines);
                        v += 1;
                    }
                }
            }
        }
        for i in 0..R {
            let (own, after) = (self.queries(i, 1), self.own_keys::<S, N>(block, i + 1));
            // SAFETY: the caller's contract; there is a line for each query.
            unsafe {
                let line = lines.add(i * KEY_BLOCK);
                if const { R == 1 } {
                    own.own_scores::<S, N>(s, block, 0, after, &mut highest[i], line);
                } else {
                    let mut lanes = [0.0; MAX_LANES];
                    s.store(lanes.as_mut_ptr(), highest[i]);
                    let first = together;
                    s.call_noinline(OwnScores::<N> {
                        own,
                        block,
                        first,
                        after,
                        highest: &mut lanes,
                        line,
                    });
                    highest[i] = s.load(lanes.as_ptr());
                }
            }
        }
        highest
    }

    /// `out = (out * before + weights * values) * after` of one block.
    ///
    /// # Safety
    /// As [`KvView::attend`].
    #[inline(always)]
    unsafe fn values<S: SimdF32, N: KvFormat, const NV: usize>(
        &self,
        s: S,
        block: Block,
        weights: &[f32],
        factors: [Factors; R],
    ) {
        let head_dim = self.heads[0].head_dim;
        let mut column = 0;
        while column < head_dim {
            let left = (head_dim - column).div_ceil(S::LANES);
            // SAFETY: the caller's contract.
            unsafe {
                if left >= NV {
                    self.columns::<S, N, NV>(s, block, column, weights, factors);
                    column += NV * S::LANES;
                } else {
                    self.columns::<S, N, 1>(s, block, column, weights, factors);
                    column += S::LANES;
                }
            }
        }
    }

    /// [`KvView::values`] of query `i` under a bias that may hide any key: the values of hidden keys are not read.
    ///
    /// # Safety
    /// As [`KvView::attend`].
    #[inline(always)]
    unsafe fn values_where_seen<S: SimdF32, N: KvFormat>(
        &self,
        s: S,
        i: usize,
        block: Block,
        weights: &[f32],
        factors: Factors,
    ) {
        let (head, own) = (&self.heads[i], self.queries(i, 1));
        let row = value_row(S::LANES, head.head_dim);
        let slots = &self.slots[i][block.key..block.key + block.len];
        let mut column = 0;
        while column < head.head_dim {
            // SAFETY: the output row exists, and values and biases of the past.
            unsafe {
                let mut acc = s.splat(0.0);
                if block.key > 0 {
                    acc = s.mul(s.splat(factors.before), head.load_out(s, 0, column));
                }
                for (key, (&slot, &weight)) in (block.key..).zip(slots.iter().zip(weights)) {
                    if weight != 0.0 || !hides(*head.bias_at(0, key)) {
                        let value = own.values_of::<N>(slot).wrapping_add(key * row + column);
                        let value = load::<S, N>(s, value);
                        acc = s.mul_add(s.splat(weight), value, acc);
                    }
                }
                head.store_out(s, 0, column, s.mul(acc, s.splat(factors.after)));
            }
            column += S::LANES;
        }
    }

    /// # Safety
    /// As [`KvView::attend`].
    #[inline(always)]
    unsafe fn columns<S: SimdF32, N: KvFormat, const G: usize>(
        &self,
        s: S,
        block: Block,
        column: usize,
        weights: &[f32],
        factors: [Factors; R],
    ) {
        let mut acc = [[s.splat(0.0); G]; R];
        if block.key > 0 {
            for i in 0..R {
                for (g, x) in acc[i].iter_mut().enumerate() {
                    // SAFETY: the output row was written for an earlier block.
                    let out = unsafe { self.heads[i].load_out(s, 0, column + g * S::LANES) };
                    *x = s.mul(s.splat(factors[i].before), out);
                }
            }
        }
        let together = self.together(block);
        let weights = weights.as_ptr();
        // SAFETY: the caller's contract; there is a line of weights for each query, and `G` vectors fit in a panel.
        unsafe {
            if const { R > 1 } && together > 0 {
                let after = self.own_values::<S, N>(block, column, 0);
                let part = Part { block, column, start: 0, end: together };
                acc = self.queries(0, R).runs::<S, N, R, G>(s, acc, part, weights, after);
            }
            for i in 0..R {
                let (own, after) =
                    (self.queries(i, 1), self.own_values::<S, N>(block, column, i + 1));
                let part = Part { block, column, start: together, end: block.len };
                let weights = weights.add(i * KEY_BLOCK);
                if const { R == 1 } {
                    [acc[i]] = own.runs::<S, N, 1, G>(s, [acc[i]], part, weights, after);
                } else if together < block.len {
                    let mut sums = [0.0; MAX_PANEL];
                    let acc = &mut acc[i];
                    for (g, &x) in acc.iter().enumerate() {
                        s.store(sums.as_mut_ptr().add(g * S::LANES), x);
                    }
                    s.call_noinline(OwnValues::<N, G> {
                        own,
                        part,
                        weights,
                        after,
                        sums: &mut sums,
                    });
                    for (g, x) in acc.iter_mut().enumerate() {
                        *x = s.load(sums.as_ptr().add(g * S::LANES));
                    }
                }
            }
        }
        for i in 0..R {
            for (g, &x) in acc[i].iter().enumerate() {
                let x = s.mul(x, s.splat(factors[i].after));
                // SAFETY: the output row exists.
                unsafe { self.heads[i].store_out(s, 0, column + g * S::LANES, x) };
            }
        }
    }

    /// Where query `i` finds the first value of a block that it does not share with the others, from `column` on. If
    /// there is no such query or value, the keys of the next head.
    #[inline(always)]
    fn own_values<S: SimdF32, N: KvFormat>(
        &self,
        block: Block,
        column: usize,
        i: usize,
    ) -> *const N::KvElement {
        let together = self.together(block);
        if i < R && together < block.len {
            let (at, row) = (block.key + together, value_row(S::LANES, self.heads[0].head_dim));
            let values = self.queries(i, 1).values_of::<N>(self.slots[i][at]);
            return values.wrapping_add(at * row + column);
        }
        let next = self.next_slots.first().map_or(self.slots[0][block.key], |&next| next);
        let keys = self.cache.keys(next as usize, self.next_kv_head).cast::<N::KvElement>();
        keys.wrapping_add(column * ALONE)
    }
}
