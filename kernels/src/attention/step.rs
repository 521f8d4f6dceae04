//! One query whose past lies in several slots of the cache: a beam's hypothesis.
//!
//! The ancestry table names, for each position, the slot that holds its key and value. Panels of
//! keys that come from one slot are used as they are; a panel whose positions come from several
//! slots is scored once for each of them and the lanes are put together, which gives each key the
//! very sum it has in its own slot. Values are walked in order of position, slot by slot. The bits
//! are those of a cache in which everything lies in one slot.

use super::bias::hides;
use super::cache::Cache;
use super::head::Head;
use super::online_softmax::{Block, Factors, KEY_BLOCK, Lines, Running, exponentials};
use super::panels::value_row;
use super::product::ALONE;
use crate::gemm::{Floats, Lines as LinesAhead, Operands, Panels, Rows, multiply, tile_ahead};
use crate::lanes::{LINE, Lanes};

/// Panels scored together, where they are narrow.
const WIDE: usize = 8;

/// One head of one query, with its past.
pub(super) struct Past<'a> {
    pub(super) head: Head,
    pub(super) cache: Cache<'a>,
    pub(super) kv_head: usize,
    /// The slot of each key.
    pub(super) slots: &'a [u32],
    /// What attends after this: asked for early.
    pub(super) next_kv_head: usize,
    pub(super) next_slots: &'a [u32],
}

impl Past<'_> {
    /// Attends with query row 0 of `head`. What `lines` holds does not matter.
    ///
    /// # Safety
    /// Every pointer of `head` but those to keys and values is valid for what its field says, for the
    /// instruction set of `S`, and nobody else touches its output; `slots` has `key_len` entries, all
    /// slots of the cache, whose positions have been written.
    #[inline(always)]
    pub(super) unsafe fn attend<S: Lanes, const NV: usize>(&self, s: S, lines: &mut Lines) {
        let mut running = [Running::START];
        let mut key = 0;
        while key < self.head.key_len {
            let block = Block { key, len: (self.head.key_len - key).min(KEY_BLOCK), next: key };
            // SAFETY: the caller's contract.
            unsafe {
                let highest = self.scores::<S>(s, block, &mut lines.0);
                let vectors = block.len.div_ceil(S::LANES);
                let [correction] = exponentials(s, lines, vectors, [highest], &mut running);
                let last = key + block.len == self.head.key_len;
                let after = if last { 1.0 / running[0].sum } else { 1.0 };
                let factors = Factors { before: correction, after };
                if self.head.bias_hides {
                    self.values_where_seen(s, block, &lines.0, factors);
                } else {
                    self.values::<S, NV>(s, block, &lines.0, factors);
                }
            }
            key += block.len;
        }
        // SAFETY: the caller's contract; the head has no weights to write.
        unsafe {
            self.head.finish(s, 0, running[0], |key| {
                let row = value_row(S::LANES, self.head.head_dim);
                self.cache.values(self.slots[key] as usize, self.kv_head).wrapping_add(key * row)
            });
        }
    }

    /// Scores of one block; returns the highest of each lane.
    ///
    /// # Safety
    /// As [`Past::attend`].
    #[inline(always)]
    unsafe fn scores<S: Lanes>(&self, s: S, block: Block, scores: &mut [f32]) -> S::F32 {
        let mut highest = s.splat(f32::NEG_INFINITY);
        let panels = block.len.div_ceil(S::LANES);
        let mut v = 0;
        while v < panels {
            // SAFETY: the caller's contract; `panels * LANES <= KEY_BLOCK`.
            unsafe {
                if S::LANES < 16 && panels - v >= WIDE {
                    highest = self.group::<S, WIDE>(s, block, v, highest, scores);
                    v += WIDE;
                } else if panels - v >= 4 {
                    highest = self.group::<S, 4>(s, block, v, highest, scores);
                    v += 4;
                } else if panels - v >= 2 {
                    highest = self.group::<S, 2>(s, block, v, highest, scores);
                    v += 2;
                } else {
                    highest = self.group::<S, 1>(s, block, v, highest, scores);
                    v += 1;
                }
            }
        }
        highest
    }

    /// Scores of `G` panels of a block from panel `v`, each of the slot of its first position, then
    /// put right where a panel has positions of several.
    ///
    /// # Safety
    /// As [`Past::attend`]; the panels exist.
    #[inline(always)]
    unsafe fn group<S: Lanes, const G: usize>(
        &self,
        s: S,
        block: Block,
        v: usize,
        mut highest: S::F32,
        scores: &mut [f32],
    ) -> S::F32 {
        let slots = &self.slots[block.key..block.key + block.len];
        let mut from = [core::ptr::null(); G];
        for (g, from) in from.iter_mut().enumerate() {
            let first = (v + g) * S::LANES;
            *from = self.panel::<S>(slots[first], block.key + first);
        }
        // While these keys are multiplied, what is next comes from memory: keys, or the first values.
        let next = (v + G) * S::LANES;
        let ahead = if next < block.len {
            self.panel::<S>(slots[next], block.key + next)
        } else {
            let row = value_row(S::LANES, self.head.head_dim);
            self.cache.values(slots[0] as usize, self.kv_head).wrapping_add(block.key * row)
        };
        // SAFETY: the panels have been written.
        let sums = unsafe { self.sums(s, from, ahead) };
        for (g, mut sum) in sums.into_iter().enumerate() {
            let first = (v + g) * S::LANES;
            let slots = &slots[first..slots.len().min(first + S::LANES)];
            if !same(slots) {
                for lane in 1..slots.len() {
                    let slot = slots[lane];
                    // Once for each slot, at its first position.
                    if slot == slots[lane - 1] || slots[..lane].contains(&slot) {
                        continue;
                    }
                    let from = [self.panel::<S>(slot, block.key + first)];
                    // SAFETY: the panel has been written.
                    let [other] = unsafe { self.sums(s, from, ahead) };
                    for (at, &found) in slots.iter().enumerate().skip(lane) {
                        if found == slot {
                            let before = s.select(s.first(at + 1), other, sum);
                            sum = s.select(s.first(at), sum, before);
                        }
                    }
                }
            }
            let mut x = s.mul(sum, s.splat(self.head.scale));
            if !self.head.bias.is_null() {
                // SAFETY: the query, number 0, sees all of its past.
                x = unsafe { self.head.add_bias(s, x, (0, block.key + first), slots.len()) };
            }
            let x = s.select(s.first(slots.len()), x, s.splat(f32::NEG_INFINITY));
            highest = s.max(x, highest);
            // SAFETY: `first + LANES <= KEY_BLOCK`.
            unsafe { s.store(scores.as_mut_ptr().add(first), x) };
        }
        highest
    }

    /// The panel of `position` in `slot`.
    #[inline(always)]
    fn panel<S: Lanes>(&self, slot: u32, position: usize) -> *const f32 {
        let panel = position / S::LANES * self.head.head_dim * S::LANES;
        self.cache.keys(slot as usize, self.kv_head).wrapping_add(panel)
    }

    /// One vector of sums for each panel in `from`; asks for as much from `ahead` on, any address.
    ///
    /// # Safety
    /// The panels exist.
    #[inline(always)]
    unsafe fn sums<S: Lanes, const G: usize>(
        &self,
        s: S,
        from: [*const f32; G],
        ahead: *const f32,
    ) -> [S::F32; G] {
        let query = Rows { at: self.head.query, row: 0, step: 1 };
        let keys = Panels { at: from, step: S::LANES, vector: S::LANES };
        let zero = [[[s.splat(0.0)]]; G];
        let ahead = LinesAhead::running(ahead, G, S::LANES);
        // SAFETY: the query row has `head_dim` elements, and each panel as many vectors.
        let sums = unsafe { multiply(Floats(s), zero, self.head.head_dim, query, keys, ahead) };
        sums.map(|[[sum]]| sum)
    }

    /// `out = (out * before + weights * values) * after` of one block.
    ///
    /// # Safety
    /// As [`Past::attend`].
    #[inline(always)]
    unsafe fn values<S: Lanes, const NV: usize>(
        &self,
        s: S,
        block: Block,
        weights: &[f32],
        factors: Factors,
    ) {
        let mut column = 0;
        while column < self.head.head_dim {
            let left = (self.head.head_dim - column).div_ceil(S::LANES);
            // SAFETY: the caller's contract.
            unsafe {
                if left >= NV {
                    self.columns::<S, NV>(s, block, column, weights, factors);
                    column += NV * S::LANES;
                } else {
                    self.columns::<S, 1>(s, block, column, weights, factors);
                    column += S::LANES;
                }
            }
        }
    }

    /// [`Past::values`] under a bias that may hide any key: the values of hidden keys are not read.
    ///
    /// # Safety
    /// As [`Past::attend`].
    #[inline(always)]
    unsafe fn values_where_seen<S: Lanes>(
        &self,
        s: S,
        block: Block,
        weights: &[f32],
        factors: Factors,
    ) {
        let row = value_row(S::LANES, self.head.head_dim);
        let slots = &self.slots[block.key..block.key + block.len];
        let mut column = 0;
        while column < self.head.head_dim {
            // SAFETY: the output row exists, and values and biases of the past.
            unsafe {
                let mut acc = s.splat(0.0);
                if block.key > 0 {
                    acc = s.mul(s.splat(factors.before), self.head.load_out(s, 0, column));
                }
                for (key, (&slot, &weight)) in (block.key..).zip(slots.iter().zip(weights)) {
                    if weight != 0.0 || !hides(*self.head.bias_at(0, key)) {
                        let values = self.cache.values(slot as usize, self.kv_head);
                        let value = s.load(values.wrapping_add(key * row + column));
                        acc = s.mul_add(s.splat(weight), value, acc);
                    }
                }
                self.head.store_out(s, 0, column, s.mul(acc, s.splat(factors.after)));
            }
            column += S::LANES;
        }
    }

    /// # Safety
    /// As [`Past::attend`].
    #[inline(always)]
    unsafe fn columns<S: Lanes, const G: usize>(
        &self,
        s: S,
        block: Block,
        column: usize,
        weights: &[f32],
        factors: Factors,
    ) {
        let row = value_row(S::LANES, self.head.head_dim);
        let slots = &self.slots[block.key..block.key + block.len];
        let mut acc = [[s.splat(0.0); G]; 1];
        if block.key > 0 {
            for (g, x) in acc[0].iter_mut().enumerate() {
                // SAFETY: the output row was written for an earlier block.
                let out = unsafe { self.head.load_out(s, 0, column + g * S::LANES) };
                *x = s.mul(s.splat(factors.before), out);
            }
        }
        // The next head's keys are asked for from here on.
        let near_end = block.len.saturating_sub(ALONE);
        let mut start = 0;
        while start < block.len {
            let slot = slots[start];
            let end = if start < near_end { near_end } else { block.len };
            let run = slots[start..end].iter().take_while(|&&other| other == slot).count();
            let position = block.key + start;
            let values = self.cache.values(slot as usize, self.kv_head);
            let operands = Operands {
                a: weights.as_ptr().wrapping_add(start),
                a_row: 0,
                a_step: 1,
                b: values.wrapping_add(position * row + column),
                b_step: row,
                b_vector: S::LANES,
            };
            let ahead = if start < near_end {
                operands.b.wrapping_add(ALONE * row)
            } else {
                let next = self.next_slots.first().map_or(slot, |&next| next);
                let keys = self.cache.keys(next as usize, self.next_kv_head);
                keys.wrapping_add((start - near_end) * G * S::LANES + column * ALONE)
            };
            // SAFETY: these positions of the slot have been written.
            acc = unsafe { tile_ahead(s, acc, run, operands, LinesAhead::running(ahead, G, LINE)) };
            start += run;
        }
        for (g, &x) in acc[0].iter().enumerate() {
            let x = s.mul(x, s.splat(factors.after));
            // SAFETY: the output row exists.
            unsafe { self.head.store_out(s, 0, column + g * S::LANES, x) };
        }
    }
}

/// Whether all of `slots`, of which there is one at least, are the same.
#[inline(always)]
fn same(slots: &[u32]) -> bool {
    slots.iter().fold(0, |difference, &slot| difference | (slot ^ slots[0])) == 0
}
