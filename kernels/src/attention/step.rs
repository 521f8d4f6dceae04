//! One query whose past lies in several slots of the cache: a beam's hypothesis.
//!
//! The ancestry table names, for each position, the slot that holds its key and value. Panels of
//! keys that come from one slot are used as they are; a panel whose positions come from several
//! slots is scored once for each of them and the lanes are put together, which gives each key the
//! very sum it has in its own slot. Values are walked in order of position, slot by slot. The bits
//! are those of a cache in which everything lies in one slot.

use super::cache::Cache;
use super::flash::{Block, Head, KEY_BLOCK, Scores, exponentials};
use super::panels::value_row;
use crate::gemm::{Operands, tile_ahead};
use crate::lanes::Lanes;

/// Panels scored together when they come from one slot.
const WIDE: usize = 8;

/// One head of one query, with its past.
pub(super) struct Past<'a> {
    pub(super) head: Head,
    pub(super) cache: Cache<'a>,
    pub(super) kv_head: usize,
    /// The slot of each key.
    pub(super) slots: &'a [u32],
}

impl Past<'_> {
    /// Attends with query row 0 of `head`.
    ///
    /// # Safety
    /// As [`Head::attend`]; `slots` has `key_len` entries, all slots of the cache, whose positions
    /// have been written.
    #[inline(always)]
    pub(super) unsafe fn attend<S: Lanes, const NV: usize>(&self, s: S, scores: &mut Scores) {
        let mut maximum = f32::NEG_INFINITY;
        let mut sum = 0.0;
        let mut key = 0;
        while key < self.head.key_len {
            let block = Block { key, len: (self.head.key_len - key).min(KEY_BLOCK) };
            // SAFETY: the caller's contract.
            unsafe {
                let highest = self.scores::<S>(s, block, &mut scores.0);
                let vectors = block.len.div_ceil(S::LANES);
                let line = &mut scores.0[..KEY_BLOCK];
                let correction = exponentials(s, line, vectors, highest, &mut maximum, &mut sum);
                self.values::<S, NV>(s, block, line, correction);
            }
            key += block.len;
        }
        // SAFETY: the caller's contract.
        unsafe { self.head.finish(s, 0, maximum, sum) };
    }

    /// Scores of one block; returns their maximum.
    ///
    /// # Safety
    /// As [`Past::attend`].
    #[inline(always)]
    unsafe fn scores<S: Lanes>(&self, s: S, block: Block, scores: &mut [f32]) -> f32 {
        let slots = &self.slots[block.key..block.key + block.len];
        let mut highest = s.splat(f32::NEG_INFINITY);
        let mut v = 0;
        while v * S::LANES < block.len {
            let first = v * S::LANES;
            let slot = slots[first];
            let wide = (first + WIDE * S::LANES).min(block.len);
            // SAFETY: the caller's contract; `first + LANES <= KEY_BLOCK`.
            unsafe {
                if wide == first + WIDE * S::LANES && same(slot, &slots[first..wide]) {
                    let acc = self.panels::<S, WIDE>(s, slot, block.key + first);
                    for (g, sum) in acc.into_iter().enumerate() {
                        let x = s.mul(sum, s.splat(self.head.scale));
                        highest = s.max(x, highest);
                        s.store(scores.as_mut_ptr().add(first + g * S::LANES), x);
                    }
                    v += WIDE;
                    continue;
                }
                let count = (block.len - first).min(S::LANES);
                let mut sum = self.panels::<S, 1>(s, slot, block.key + first)[0];
                let mut lane = 1;
                while lane < count {
                    // From here to the panel's end, take the lanes of the slot that holds `lane`;
                    // later runs overwrite what is not theirs.
                    if slots[first + lane] != slots[first + lane - 1] {
                        let other =
                            self.panels::<S, 1>(s, slots[first + lane], block.key + first)[0];
                        sum = s.select(s.first(lane), sum, other);
                    }
                    lane += 1;
                }
                let x = s.mul(sum, s.splat(self.head.scale));
                let x = s.select(s.first(count), x, s.splat(f32::NEG_INFINITY));
                highest = s.max(x, highest);
                s.store(scores.as_mut_ptr().add(first), x);
            }
            v += 1;
        }
        s.reduce_max(highest)
    }

    /// `G` vectors of sums from position `position` of `slot`.
    ///
    /// # Safety
    /// The panels exist.
    #[inline(always)]
    unsafe fn panels<S: Lanes, const G: usize>(
        &self,
        s: S,
        slot: u32,
        position: usize,
    ) -> [S::F32; G] {
        let panel = self.head.head_dim * S::LANES;
        let operands = Operands {
            a: self.head.query,
            a_row: 0,
            a_step: 1,
            b: self
                .cache
                .keys(slot as usize, self.kv_head)
                .wrapping_add(position / S::LANES * panel),
            b_step: S::LANES,
            b_vector: panel,
        };
        let zero = [[s.splat(0.0); G]; 1];
        let row = value_row(S::LANES, self.head.head_dim);
        let values = self.cache.values(slot as usize, self.kv_head);
        // The values come from memory while the keys are multiplied.
        let ahead = values.wrapping_add(position * row);
        // SAFETY: the caller's contract.
        unsafe { tile_ahead::<S, 1, G, G, true>(s, zero, self.head.head_dim, operands, ahead)[0] }
    }

    /// `out = out * correction + weights * values` of one block.
    ///
    /// # Safety
    /// As [`Past::attend`].
    #[inline(always)]
    unsafe fn values<S: Lanes, const NV: usize>(
        &self,
        s: S,
        block: Block,
        weights: &[f32],
        correction: f32,
    ) {
        let mut column = 0;
        while column < self.head.head_dim {
            let left = (self.head.head_dim - column).div_ceil(S::LANES);
            // SAFETY: the caller's contract.
            unsafe {
                if left >= NV {
                    self.columns::<S, NV>(s, block, column, weights, correction);
                    column += NV * S::LANES;
                } else {
                    self.columns::<S, 1>(s, block, column, weights, correction);
                    column += S::LANES;
                }
            }
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
        correction: f32,
    ) {
        let row = value_row(S::LANES, self.head.head_dim);
        let slots = &self.slots[block.key..block.key + block.len];
        let mut acc = [[s.splat(0.0); G]; 1];
        if block.key > 0 {
            for (g, x) in acc[0].iter_mut().enumerate() {
                // SAFETY: the output row was written for an earlier block.
                let out = unsafe { self.head.load_out(s, 0, column + g * S::LANES) };
                *x = s.mul(s.splat(correction), out);
            }
        }
        let mut start = 0;
        while start < block.len {
            let slot = slots[start];
            let run = slots[start..].iter().take_while(|&&other| other == slot).count();
            let operands = Operands {
                a: weights.as_ptr().wrapping_add(start),
                a_row: 0,
                a_step: 1,
                b: self
                    .cache
                    .values(slot as usize, self.kv_head)
                    .wrapping_add((block.key + start) * row + column),
                b_step: row,
                b_vector: S::LANES,
            };
            // And the next head's keys while the values are.
            let next = self.cache.keys(slot as usize, self.kv_head + 1);
            let ahead = next.wrapping_add((block.key + start) * self.head.head_dim);
            // SAFETY: these positions of the slot have been written.
            acc = unsafe { tile_ahead::<S, 1, G, G, true>(s, acc, run, operands, ahead) };
            start += run;
        }
        for (g, &x) in acc[0].iter().enumerate() {
            // SAFETY: the output row exists.
            unsafe { self.head.store_out(s, 0, column + g * S::LANES, x) };
        }
    }
}

/// Whether all of `slots` are `slot`.
#[inline(always)]
fn same(slot: u32, slots: &[u32]) -> bool {
    slots.iter().fold(0, |difference, &other| difference | (slot ^ other)) == 0
}
