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
use super::head::Head;
use super::numbers::{Numbers, Stream, load, tile};
use super::online_softmax::{Block, Factors, KEY_BLOCK, Lines, Running, exponentials};
use super::panels::value_row;
use super::product::ALONE;
use crate::gemm::{Panels, Rows, Tile, multiply};
use crate::lanes::{Kernel, LINE, Lanes, MAX_LANES, MAX_PANEL};
use core::marker::PhantomData;

/// Panels scored together, where they are narrow.
const WIDE: usize = 8;

/// Most rows that pass over what they have in common together.
pub(super) const MOST_ROWS: usize = 4;

/// One head of `R` consecutive queries, with their pasts of one length.
pub(super) struct Past<'a, const R: usize> {
    pub(super) heads: [Head; R],
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

/// [`Past::attend`] as a function of its own.
pub(super) struct Attend<'t, 'a, N, const R: usize, const NV: usize> {
    pub(super) past: Past<'a, R>,
    pub(super) lines: &'t mut Lines,
    pub(super) numbers: PhantomData<N>,
}

impl<N: Numbers, const R: usize, const NV: usize> Kernel for Attend<'_, '_, N, R, NV> {
    type Output = ();

    #[inline(always)]
    fn run<S: Lanes>(self, s: S) {
        // SAFETY: `Steps::attend`, the only maker of this value, has what `Past::attend` asks for:
        // `attention_step` checked slots and lengths against the cache, and each task has rows and
        // heads of its own.
        unsafe { self.past.attend::<S, N, NV>(s, self.lines) }
    }
}

/// Keys whose slots all of `rows` share, in whole panels.
#[inline(always)]
pub(super) fn shared<S: Lanes>(rows: &[&[u32]]) -> usize {
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

impl<const R: usize> Past<'_, R> {
    /// Attends with query row 0 of each of `heads`. What `lines` holds does not matter.
    ///
    /// # Safety
    /// Every pointer of `heads` but those to keys and values is valid for what its field says, for the
    /// instruction set of `S`, and nobody else touches their outputs; their queries are those of
    /// consecutive rows. `slots` have `key_len` entries each, all slots of the cache, whose positions have
    /// been written, and are the same up to `shared`, a multiple of `LANES`.
    #[inline(always)]
    pub(super) unsafe fn attend<S: Lanes, N: Numbers, const NV: usize>(
        &self,
        s: S,
        lines: &mut Lines,
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
    fn own_keys<S: Lanes, N: Numbers>(&self, block: Block, i: usize) -> *const N::Number {
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
    /// As [`Past::attend`].
    #[inline(always)]
    unsafe fn scores<S: Lanes, N: Numbers, const NV: usize>(
        &self,
        s: S,
        block: Block,
        lines: &mut Lines,
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
                    s.outlined(OwnScores::<N> {
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
    /// As [`Past::attend`].
    #[inline(always)]
    unsafe fn values<S: Lanes, N: Numbers, const NV: usize>(
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

    /// [`Past::values`] of query `i` under a bias that may hide any key: the values of hidden keys are not read.
    ///
    /// # Safety
    /// As [`Past::attend`].
    #[inline(always)]
    unsafe fn values_where_seen<S: Lanes, N: Numbers>(
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
    /// As [`Past::attend`].
    #[inline(always)]
    unsafe fn columns<S: Lanes, N: Numbers, const G: usize>(
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
                    s.outlined(OwnValues::<N, G> { own, part, weights, after, sums: &mut sums });
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
    fn own_values<S: Lanes, N: Numbers>(
        &self,
        block: Block,
        column: usize,
        i: usize,
    ) -> *const N::Number {
        let together = self.together(block);
        if i < R && together < block.len {
            let (at, row) = (block.key + together, value_row(S::LANES, self.heads[0].head_dim));
            let values = self.queries(i, 1).values_of::<N>(self.slots[i][at]);
            return values.wrapping_add(at * row + column);
        }
        let next = self.next_slots.first().map_or(self.slots[0][block.key], |&next| next);
        let keys = self.cache.keys(next as usize, self.next_kv_head).cast::<N::Number>();
        keys.wrapping_add(column * ALONE)
    }
}

/// Consecutive queries of one head that read the same slots.
#[derive(Clone, Copy)]
struct Queries<'a> {
    heads: &'a [Head],
    /// The slot of each key.
    slots: &'a [u32],
    cache: Cache<'a>,
    kv_head: usize,
}

impl Queries<'_> {
    /// The panel of `position` in `slot`.
    #[inline(always)]
    fn panel<S: Lanes, N: Numbers>(&self, slot: u32, position: usize) -> *const N::Number {
        let panel = position / S::LANES * self.heads[0].head_dim * S::LANES;
        self.cache.keys(slot as usize, self.kv_head).cast::<N::Number>().wrapping_add(panel)
    }

    /// The values in `slot`.
    #[inline(always)]
    fn values_of<N: Numbers>(&self, slot: u32) -> *const N::Number {
        self.cache.values(slot as usize, self.kv_head).cast()
    }

    /// Scores of a query that is alone with the panels of a block from number `first` on. `after` is what it reads
    /// next.
    ///
    /// # Safety
    /// As [`Past::attend`]; `line` has room for the scores of a block.
    #[inline(always)]
    unsafe fn own_scores<S: Lanes, N: Numbers>(
        &self,
        s: S,
        block: Block,
        first: usize,
        after: *const N::Number,
        highest: &mut S::F32,
        line: *mut f32,
    ) {
        let highest = core::array::from_mut(highest);
        let panels = block.len.div_ceil(S::LANES);
        let mut v = first;
        while v < panels {
            // SAFETY: the caller's contract; `panels * LANES <= KEY_BLOCK`.
            unsafe {
                if S::LANES < 16 && panels - v >= WIDE {
                    self.group::<S, N, 1, WIDE>(s, block, v, after, highest, line);
                    v += WIDE;
                } else if panels - v >= 4 {
                    self.group::<S, N, 1, 4>(s, block, v, after, highest, line);
                    v += 4;
                } else if panels - v >= 2 {
                    self.group::<S, N, 1, 2>(s, block, v, after, highest, line);
                    v += 2;
                } else {
                    self.group::<S, N, 1, 1>(s, block, v, after, highest, line);
                    v += 1;
                }
            }
        }
    }

    /// Scores of `G` panels of a block from panel `v` for the `MR` queries, each of the slot of its first position,
    /// then put right where a panel has positions of several. `after` is what is read after the block's last panel.
    ///
    /// # Safety
    /// As [`Past::attend`]; the panels exist, and `lines` has room for a block of scores of each query.
    #[inline(always)]
    unsafe fn group<S: Lanes, N: Numbers, const MR: usize, const G: usize>(
        &self,
        s: S,
        block: Block,
        v: usize,
        after: *const N::Number,
        highest: &mut [S::F32; MR],
        lines: *mut f32,
    ) {
        let slots = &self.slots[block.key..block.key + block.len];
        let mut from = [core::ptr::null(); G];
        for (g, from) in from.iter_mut().enumerate() {
            let first = (v + g) * S::LANES;
            *from = self.panel::<S, N>(slots[first], block.key + first);
        }
        let ahead = match slots.get((v + G) * S::LANES) {
            Some(&slot) => self.panel::<S, N>(slot, block.key + (v + G) * S::LANES),
            None => after,
        };
        // SAFETY: the panels have been written.
        let sums = unsafe { self.sums::<S, N, MR, G>(s, from, ahead) };
        for (g, mut sums) in sums.into_iter().enumerate() {
            let first = (v + g) * S::LANES;
            let slots = &slots[first..slots.len().min(first + S::LANES)];
            if !same(slots) {
                for lane in 1..slots.len() {
                    let slot = slots[lane];
                    // Once for each slot, at its first position.
                    if slot == slots[lane - 1] || slots[..lane].contains(&slot) {
                        continue;
                    }
                    let from = [self.panel::<S, N>(slot, block.key + first)];
                    // SAFETY: the panel has been written.
                    let [others] = unsafe { self.sums::<S, N, MR, 1>(s, from, ahead) };
                    for (at, &found) in slots.iter().enumerate().skip(lane) {
                        if found == slot {
                            for i in 0..MR {
                                let before = s.select(s.first(at + 1), others[i][0], sums[i][0]);
                                sums[i][0] = s.select(s.first(at), sums[i][0], before);
                            }
                        }
                    }
                }
            }
            for i in 0..MR {
                let head = &self.heads[i];
                let mut x = s.mul(sums[i][0], s.splat(head.scale));
                if !head.bias.is_null() {
                    // SAFETY: the query, number 0, sees all of its past.
                    x = unsafe { head.add_bias(s, x, (0, block.key + first), slots.len()) };
                }
                let x = s.select(s.first(slots.len()), x, s.splat(f32::NEG_INFINITY));
                highest[i] = s.max(x, highest[i]);
                // SAFETY: `first + LANES <= KEY_BLOCK`, and there is a line for each query.
                unsafe { s.store(lines.add(i * KEY_BLOCK + first), x) };
            }
        }
    }

    /// One vector of sums for each panel in `from` and each of `MR` queries; prefetches as much from `ahead` on, any
    /// address.
    ///
    /// # Safety
    /// The panels exist.
    #[inline(always)]
    unsafe fn sums<S: Lanes, N: Numbers, const MR: usize, const G: usize>(
        &self,
        s: S,
        from: [*const N::Number; G],
        ahead: *const N::Number,
    ) -> [Tile<S, MR, 1>; G] {
        let head = &self.heads[0];
        let queries = Rows { at: head.query, row: head.query_row, step: 1 };
        let keys = Panels { at: from, step: S::LANES, vector: S::LANES };
        let zero = [[[s.splat(0.0)]; MR]; G];
        let ahead = N::running(ahead, G, S::LANES);
        // SAFETY: the query rows have `head_dim` elements, and each panel as many vectors.
        unsafe { multiply(N::form(s), zero, head.head_dim, queries, keys, ahead) }
    }

    /// Adds weights times values of a part of a block to `acc`, slot by slot. `after` is what is read next.
    ///
    /// # Safety
    /// As [`Past::attend`]; `weights` are those of the block, a line for each query.
    #[inline(always)]
    unsafe fn runs<S: Lanes, N: Numbers, const MR: usize, const G: usize>(
        &self,
        s: S,
        mut acc: [[S::F32; G]; MR],
        part: Part,
        weights: *const f32,
        after: *const N::Number,
    ) -> [[S::F32; G]; MR] {
        let Part { block, column, mut start, end } = part;
        let row = value_row(S::LANES, self.heads[0].head_dim);
        let slots = &self.slots[block.key..block.key + end];
        while start < end {
            let slot = slots[start];
            let at = |slot: u32, key: usize| {
                self.values_of::<N>(slot).wrapping_add((block.key + key) * row + column)
            };
            let mut run = run_of(&slots[start..]);
            // Values are prefetched as far ahead, of the slot that they are in; behind the last ones, what
            // comes next.
            let ahead = if let Some(&later) = slots.get(start + ALONE) {
                run = run.min(run_of(&slots[start + ALONE..]));
                at(later, start + ALONE)
            } else {
                let near_end = end.saturating_sub(ALONE).max(part.start);
                after.wrapping_add((start - near_end) * G * S::LANES)
            };
            let weights = Rows { at: weights.wrapping_add(start), row: KEY_BLOCK, step: 1 };
            let values = Stream { at: at(slot, start), step: row, vector: S::LANES };
            let ahead = N::running(ahead, G, LINE);
            // SAFETY: these positions of the slot have been written.
            acc = unsafe { tile::<S, N, _, MR, G>(s, acc, run, weights, values, ahead) };
            start += run;
        }
        acc
    }
}

/// [`Queries::own_scores`] as a function of its own, for the queries of a group.
struct OwnScores<'t, N: Numbers> {
    own: Queries<'t>,
    block: Block,
    first: usize,
    after: *const N::Number,
    /// The highest score in each lane so far.
    highest: &'t mut [f32; MAX_LANES],
    line: *mut f32,
}

impl<N: Numbers> Kernel for OwnScores<'_, N> {
    type Output = ();

    #[inline(always)]
    fn run<S: Lanes>(self, s: S) {
        let Self { own, block, first, after, highest, line } = self;
        // SAFETY: `Past::scores` makes it under the same contract; any vector fits in `highest`.
        unsafe {
            let mut lanes = s.load(highest.as_ptr());
            own.own_scores::<S, N>(s, block, first, after, &mut lanes, line);
            s.store(highest.as_mut_ptr(), lanes);
        }
    }
}

/// [`Queries::runs`] of one query as a function of its own, for the queries of a group.
struct OwnValues<'t, N: Numbers, const G: usize> {
    own: Queries<'t>,
    part: Part,
    weights: *const f32,
    after: *const N::Number,
    /// `G` vectors, which it adds to.
    sums: &'t mut [f32; MAX_PANEL],
}

impl<N: Numbers, const G: usize> Kernel for OwnValues<'_, N, G> {
    type Output = ();

    #[inline(always)]
    fn run<S: Lanes>(self, s: S) {
        const { assert!(G * S::LANES <= MAX_PANEL) };
        let Self { own, part, weights, after, sums } = self;
        let mut acc = [[s.splat(0.0); G]; 1];
        // SAFETY: `Past::columns` makes it under the same contract; `G` vectors fit in `sums`.
        unsafe {
            for (g, x) in acc[0].iter_mut().enumerate() {
                *x = s.load(sums.as_ptr().add(g * S::LANES));
            }
            let acc = own.runs::<S, N, 1, G>(s, acc, part, weights, after);
            for (g, &x) in acc[0].iter().enumerate() {
                s.store(sums.as_mut_ptr().add(g * S::LANES), x);
            }
        }
    }
}

/// Keys `start..end` of a block, and one group of output columns.
#[derive(Clone, Copy)]
struct Part {
    block: Block,
    column: usize,
    start: usize,
    end: usize,
}

/// Whether all of `slots`, of which there is one at least, are the same.
#[inline(always)]
fn same(slots: &[u32]) -> bool {
    slots.iter().fold(0, |difference, &slot| difference | (slot ^ slots[0])) == 0
}

/// How many of `slots`, from the first on, are the same.
#[inline(always)]
fn run_of(slots: &[u32]) -> usize {
    let Some(&slot) = slots.first() else { return 0 };
    let (chunks, _) = slots.as_chunks::<16>();
    let differs = |chunk: &[u32; 16]| chunk.iter().fold(0, |all, &other| all | (slot ^ other)) != 0;
    let whole = 16 * chunks.iter().take_while(|&chunk| !differs(chunk)).count();
    whole + slots[whole..].iter().take_while(|&&other| other == slot).count()
}
