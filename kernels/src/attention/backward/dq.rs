//! A tile of queries against a block of keys: recomputes the weights, computes the gradients of the scores, and adds
//! their contribution to the gradient of the queries.

use super::product::add_edge;
use super::row_ops::add_weighted;
use super::score_block::ScoreBlock;
use super::workspace::WEIGHTS_ROW;
use crate::attention::head_views::HeadRows;
use crate::attention::online_softmax::KEY_BLOCK;
use crate::attention::panels::{F32Kv, tile_prefetched};
use crate::dropout::{DropMask, apply_drops, decide_drops};
use crate::gemm::{Panels, Rows, store_line};
use crate::math::exp_nonpositive;
use crate::simd::{MAX_LANES, MOST_PARTS, SimdF32, array_of, simd_op, sum_of_lanes, vector_groups};

/// Queries `first..first + MR` of a block.
#[derive(Clone, Copy)]
pub(super) struct DqTile<'b, const MR: usize, const NV: usize> {
    pub(super) block: &'b ScoreBlock,
    pub(super) first: usize,
}

simd_op!(
    /// [`DqTile::attend`] of queries `first..first + MR` of a block, as a separate function.
    ///
    /// # Safety
    /// As [`DqTile::attend`].
    pub(super) unsafe fn dq_tile<S: SimdF32, const MR: usize, const NV: usize>(
        s: S,
        block: &ScoreBlock,
        first: usize,
    ) {
        // SAFETY: the caller's contract.
        unsafe { DqTile::<MR, NV> { block, first }.attend(s) }
    }
);

impl<const MR: usize, const NV: usize> DqTile<'_, MR, NV> {
    /// # Safety
    /// The operands of the block are valid, and no other code accesses the outputs of these queries.
    #[inline(always)]
    unsafe fn attend<S: SimdF32>(self, s: S) {
        let Self { block, first, .. } = self;
        // Limits never decrease from row to row.
        let seen = array_of!(i in MR => block.seen(first + i));
        let max_seen = seen[MR - 1];
        if max_seen == 0 && block.key > 0 {
            return;
        }
        let vectors = max_seen.div_ceil(S::LANES);
        // SAFETY: the `# Safety` contract of `attend` holds. Panels and lines have space for whole vectors of keys.
        unsafe {
            // The block contains all keys that these queries see.
            let one_block = block.sees_all(first + MR - 1);
            let drops = block.head.drops;
            let defer_delta = one_block || drops.is_some();
            let few = one_block && block.head.bias.is_none();
            let mut centered = false;
            if const { Self::fits(S::REGISTERS, 1) } && few && vectors == 1 {
                self.fused_small::<S, 1>(s, &seen, drops.is_some());
                centered = true;
            } else if const { Self::fits(S::REGISTERS, 2) } && few && vectors == 2 {
                self.fused_small::<S, 2>(s, &seen, drops.is_some());
                centered = true;
            } else {
                self.separate_products(s, vectors, &seen, defer_delta);
            }
            if let Some(drops) = drops {
                // The gradients of the scores use all weights, those of the values only the weights that are not
                // dropped.
                let query = block.query + first;
                let mut decisions = DropMask::new();
                s.call_noinline(decide_drops(
                    drops,
                    query..query + MR,
                    (block.key, max_seen),
                    &mut decisions,
                ));
                let (from, size, stride) = (&decisions, (MR, max_seen), WEIGHTS_ROW);
                s.call_noinline(apply_drops(drops, from, size, block.d_scores_of(first), stride));
                self.subtract_delta(s, vectors, &seen, one_block);
                s.call_noinline(apply_drops(drops, from, size, block.weights_of(first), stride));
            } else if one_block && !centered {
                self.subtract_delta(s, vectors, &seen, one_block);
            }
            self.finish(s, vectors, &seen);
            if block.head.hiding_bias().is_some() {
                // `masked.rs` computes the product with the keys.
                return;
            }
            let mut v = 0;
            let end = block.head.head_dim.div_ceil(S::LANES);
            vector_groups!(v, end, [NV, 2 if NV > 2, 1] => {
                self.columns::<S>(s, v * S::LANES, &seen)
            });
        }
    }

    /// Computes the weights and the gradients of the scores of `vectors` vectors of keys. If `defer_delta`, computes
    /// the gradients of the weights instead of those of the scores.
    ///
    /// # Safety
    /// As [`DqTile::attend`].
    #[inline(always)]
    unsafe fn separate_products<S: SimdF32>(
        self,
        s: S,
        vectors: usize,
        seen: &[usize; MR],
        defer_delta: bool,
    ) {
        // SAFETY: the `# Safety` contract of `separate_products` holds.
        unsafe {
            let mut v = 0;
            vector_groups!(v, vectors, [NV, 2 if NV > 2, 1] => {
                self.scores::<S>(s, v, vectors)
            });
            self.recompute_p(s, vectors, seen);
            let mut v = 0;
            vector_groups!(v, vectors, [NV, 2 if NV > 2, 1] => {
                self.d_scores::<S>(s, (v, vectors), seen, defer_delta)
            });
        }
    }

    /// `rows * panels` for `G` vectors of keys from vector `v`. After the last of `vectors`, prefetches `next`.
    ///
    /// # Safety
    /// As [`DqTile::attend`].
    #[inline(always)]
    unsafe fn product<S: SimdF32, const G: usize>(
        self,
        s: S,
        (v, vectors): (usize, usize),
        rows: HeadRows,
        panels: *const f32,
        next: *const f32,
    ) -> [[S::F32; G]; MR] {
        let block = self.block;
        let panel = block.head.head_dim * S::LANES;
        let at = rows.at.wrapping_add(self.first * rows.stride);
        let rows = Rows { at, row: rows.stride, step: 1 };
        let from = panels.wrapping_add(v * panel);
        let at = if v + G < vectors { from.wrapping_add(G * panel) } else { next };
        let next = Panels::from_ptr(at, S::LANES, panel);
        let panels = Panels::from_ptr(from, S::LANES, panel);
        let (zero, depth) = ([[s.splat(0.0); G]; MR], block.head.head_dim);
        // SAFETY: the `# Safety` contract of `product` holds.
        unsafe { tile_prefetched::<S, F32Kv, MR, G>(s, zero, depth, rows, panels, next) }
    }

    /// Computes the scaled scores of `G` vectors of keys, in the lines of weights.
    ///
    /// # Safety
    /// As [`DqTile::attend`].
    #[inline(always)]
    unsafe fn scores<S: SimdF32, const G: usize>(self, s: S, v: usize, vectors: usize) {
        let block = self.block;
        // SAFETY: the `# Safety` contract of `scores` holds.
        unsafe {
            let (rows, panels) = (block.query_rows, block.key_panels);
            let sums = self.product::<S, G>(s, (v, vectors), rows, panels, block.value_panels);
            let scale = s.splat(block.head.scale);
            for i in 0..MR {
                let line = block.weights_of(self.first + i).wrapping_add(v * S::LANES);
                for g in 0..G {
                    s.store(line.wrapping_add(g * S::LANES), s.mul(sums[i][g], scale));
                }
            }
        }
    }

    /// Replaces scores with weights, as in the forward pass except for its sums over blocks. The weight of a key that a
    /// query does not see is 0.
    ///
    /// # Safety
    /// As [`DqTile::attend`].
    #[inline(always)]
    unsafe fn recompute_p<S: SimdF32>(self, s: S, vectors: usize, seen: &[usize; MR]) {
        let (block, zero) = (self.block, s.splat(0.0));
        // SAFETY: the `# Safety` contract of `recompute_p` holds.
        let sums = unsafe { array_of!(i in MR => block.row_sums(self.first + i)) };
        let base = array_of!(i in MR => s.splat(sums[i].base));
        let inverse = array_of!(i in MR => s.splat(sums[i].inverse));
        for v in 0..vectors.min(KEY_BLOCK / S::LANES) {
            let first = v * S::LANES;
            let masked = first + S::LANES > seen[0];
            for i in 0..MR {
                let at = block.weights_of(self.first + i).wrapping_add(first);
                // SAFETY: the vector is inside the line of the query. A bias has a value for every key that the query
                // sees, and the last query of the tile sees a key of each vector.
                unsafe {
                    let mut x = s.load(at);
                    if let Some(bias) = block.head.bias {
                        let count = seen[i].saturating_sub(first).min(S::LANES);
                        let row = block.query + self.first + i;
                        x = bias.add_to(s, x, (row, block.key + first), count);
                    }
                    // No score exceeds its maximum, unless the caller passes `sums` of other inputs.
                    let x = s.min(zero, s.sub(x, base[i]));
                    let mut weight = s.mul(exp_nonpositive(s, x), inverse[i]);
                    if masked {
                        let visible = s.first(seen[i].saturating_sub(first));
                        weight = s.select(visible, weight, zero);
                    }
                    s.store(at, weight);
                }
            }
        }
    }

    /// Computes the gradients of the scores of `G` vectors of keys. If `defer_delta`, computes those of the weights,
    /// and [`DqTile::subtract_delta`] follows.
    ///
    /// # Safety
    /// As [`DqTile::attend`].
    #[inline(always)]
    unsafe fn d_scores<S: SimdF32, const G: usize>(
        self,
        s: S,
        (v, vectors): (usize, usize),
        seen: &[usize; MR],
        defer_delta: bool,
    ) {
        let block = self.block;
        let masked = (v + G) * S::LANES > seen[0];
        // SAFETY: the `# Safety` contract of `d_scores` holds.
        unsafe {
            let (rows, panels) = (block.d_context, block.value_panels);
            let products = self.product::<S, G>(s, (v, vectors), rows, panels, block.key_rows.at);
            if defer_delta {
                for i in 0..MR {
                    let line = block.d_scores_of(self.first + i).wrapping_add(v * S::LANES);
                    store_line(s, line, products[i]);
                }
                return;
            }
            for i in 0..MR {
                let local = self.first + i;
                let dot = s.splat(block.row_sums(local).dot);
                for g in 0..G {
                    let first = (v + g) * S::LANES;
                    let weight = s.load(block.weights_of(local).wrapping_add(first));
                    let mut x = s.mul(weight, s.sub(products[i][g], dot));
                    if masked {
                        let visible = s.first(seen[i].saturating_sub(first));
                        x = s.select(visible, x, s.splat(0.0));
                    }
                    s.store(block.d_scores_of(local).wrapping_add(first), x);
                }
            }
        }
    }

    /// Replaces the gradients of the weights with those of the scores. If the block contains all keys of a query, `D`
    /// is the mean of the gradients of the weights, weighted with the weights. It equals the dot product of the context
    /// with its gradient, but without the rounding of the context, so it is consistent with the values that it is
    /// subtracted from.
    ///
    /// # Safety
    /// As [`DqTile::attend`].
    #[inline(always)]
    unsafe fn subtract_delta<S: SimdF32>(
        self,
        s: S,
        vectors: usize,
        seen: &[usize; MR],
        one_block: bool,
    ) {
        let (block, zero) = (self.block, s.splat(0.0));
        let vectors = vectors.min(KEY_BLOCK / S::LANES);
        for i in 0..MR {
            let local = self.first + i;
            let (weights, line) = (block.weights_of(local), block.d_scores_of(local));
            let mut sums = [zero; MOST_PARTS];
            for v in 0..if one_block { vectors } else { 0 } {
                let first = v * S::LANES;
                // SAFETY: `vectors` is at most `KEY_BLOCK / LANES`, so the vectors are inside the lines of the query.
                unsafe {
                    let mut x = s.load(line.wrapping_add(first));
                    if first + S::LANES > seen[i] {
                        // The gradient may be NaN for a key that the query does not see.
                        x = s.select(s.first(seen[i].saturating_sub(first)), x, zero);
                        s.store(line.wrapping_add(first), x);
                    }
                    let weight = s.load(weights.wrapping_add(first));
                    let sum = &mut sums[v % (MAX_LANES / S::LANES)];
                    *sum = add_weighted(s, *sum, weight, x);
                }
            }
            let mean = if one_block {
                sum_of_lanes::<S, MAX_LANES, _>(s, sums)
            } else {
                // SAFETY: the `# Safety` contract of `subtract_delta` holds.
                unsafe { block.row_sums(local).dot }
            };
            let mean = s.splat(mean);
            for v in 0..vectors {
                let at = line.wrapping_add(v * S::LANES);
                // SAFETY: `vectors` is at most `KEY_BLOCK / LANES`, and a query has `KEY_BLOCK` weights and as many
                // gradients of scores.
                unsafe {
                    let weight = s.load(weights.wrapping_add(v * S::LANES));
                    let mut x = s.mul(weight, s.sub(s.load(at), mean));
                    if (v + 1) * S::LANES > seen[i] {
                        let visible = s.first(seen[i].saturating_sub(v * S::LANES));
                        x = s.select(visible, x, zero);
                    }
                    s.store(at, x);
                }
            }
        }
    }

    /// Sets the weights and the gradients of the scores of fully masked queries to 0, and adds to the gradient of the
    /// bias.
    ///
    /// # Safety
    /// As [`DqTile::attend`].
    #[inline(always)]
    unsafe fn finish<S: SimdF32>(self, s: S, vectors: usize, seen: &[usize; MR]) {
        let block = self.block;
        for i in 0..MR {
            let local = self.first + i;
            // SAFETY: the `# Safety` contract of `finish` holds.
            unsafe {
                if block.row_sums(local).inverse == 0.0 {
                    for v in 0..vectors.min(KEY_BLOCK / S::LANES) {
                        let zero = s.splat(0.0);
                        s.store(block.weights_of(local).wrapping_add(v * S::LANES), zero);
                        s.store(block.d_scores_of(local).wrapping_add(v * S::LANES), zero);
                    }
                }
                if let Some(table) = block.table {
                    block.add_to_table(s, table, local, seen[i]);
                }
            }
        }
    }

    /// `G` vectors of columns of the gradient of the queries: first the keys that all queries of the tile see, then
    /// those that only later queries see.
    ///
    /// # Safety
    /// As [`DqTile::attend`].
    #[inline(always)]
    unsafe fn columns<S: SimdF32, const G: usize>(self, s: S, column: usize, seen: &[usize; MR]) {
        let block = self.block;
        let row = block.query + self.first;
        let mut sums = [[s.splat(0.0); G]; MR];
        if block.key > 0 {
            for i in 0..MR {
                for g in 0..G {
                    // SAFETY: the row of the gradient exists, and an earlier block wrote it.
                    sums[i][g] = unsafe { block.head.load_out(s, row + i, column + g * S::LANES) };
                }
            }
        }
        let rows =
            Rows { at: block.d_scores_of(self.first).cast_const(), row: WEIGHTS_ROW, step: 1 };
        let from = block.key_rows.at.wrapping_add(column);
        let keys = Panels::from_ptr(from, block.key_rows.stride, S::LANES);
        let (min_seen, max_seen) = (seen[0], seen[MR - 1]);
        let panel = block.head.head_dim * S::LANES;
        let next = Panels::from_ptr(block.key_panels, S::LANES, panel);
        // SAFETY: gradients of scores and key rows exist for every key that the queries see.
        let mut sums =
            unsafe { tile_prefetched::<S, F32Kv, MR, G>(s, sums, min_seen, rows, keys, next) };
        // SAFETY: the gradients of the scores and the key rows exist for every key that a query sees.
        unsafe { add_edge::<S, MR, G, true>(s, &mut sums, min_seen..max_seen, rows, keys, seen) };
        for i in 0..MR {
            let factor = s.splat(block.query_factor(self.first + i));
            for g in 0..G {
                let x = s.mul(sums[i][g], factor);
                // SAFETY: the row of the gradient exists, and these columns begin before `head_dim`.
                unsafe { block.head.store_out(s, row + i, column + g * S::LANES, x) };
            }
        }
    }
}
