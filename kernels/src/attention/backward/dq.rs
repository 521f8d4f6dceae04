//! A tile of queries against a block of keys: the weights once more, the gradients of the scores, and what
//! they add to the queries' own gradient.

use super::block::{Block, Rows};
use super::causal_diagonal::causal_diagonal;
use super::product::streamed;
use super::workspace::WEIGHTS_ROW;
use crate::attention::dropout::{Apply, Decide, Tile};
use crate::attention::kv_dtype::PanelView;
use crate::attention::online_softmax::KEY_BLOCK;
use crate::dropout::DropMask;
use crate::gemm::Operands;
use crate::math::exp_nonpositive;
use crate::simd::{CACHE_LINE_F32, SimdF32, SimdOp};

/// Queries `first..first + MR` of a block.
#[derive(Clone, Copy)]
pub(super) struct Queries<'b, const MR: usize, const NV: usize> {
    pub(super) block: &'b Block,
    pub(super) first: usize,
    /// Whether the product with the keys is left to those who look at each key.
    pub(super) hides: bool,
}

impl<const MR: usize, const NV: usize> SimdOp for Queries<'_, MR, NV> {
    type Output = ();

    #[inline(always)]
    fn run<S: SimdF32>(self, s: S) {
        // SAFETY: who makes one has a block whose operands are there.
        unsafe { self.attend(s) }
    }
}

impl<const MR: usize, const NV: usize> Queries<'_, MR, NV> {
    /// # Safety
    /// The operands of the block are valid, and the outputs of these queries are nobody else's.
    #[inline(always)]
    unsafe fn attend<S: SimdF32>(self, s: S) {
        let Self { block, first, .. } = self;
        // Limits never decrease from row to row.
        let mut seen = [0; MR];
        for i in 0..MR {
            seen[i] = block.seen(first + i);
        }
        let most = seen[MR - 1];
        if most == 0 && block.key > 0 {
            return;
        }
        let vectors = most.div_ceil(S::LANES);
        // SAFETY: the caller's contract; panels and lines have room for whole vectors of keys.
        unsafe {
            // All that these queries see is in this block.
            let alone = block.sees_all(first + MR - 1);
            let drops = block.head.drops;
            let bare = alone || drops.is_some();
            let few = alone && block.head.bias.is_null();
            let mut centered = false;
            if const { Self::fits(S::REGISTERS, 1) } && few && vectors == 1 {
                self.fused_small::<S, 1>(s, &seen, drops.is_some());
                centered = true;
            } else if const { Self::fits(S::REGISTERS, 2) } && few && vectors == 2 {
                self.fused_small::<S, 2>(s, &seen, drops.is_some());
                centered = true;
            } else {
                self.one_by_one(s, vectors, &seen, bare);
            }
            if let Some(drops) = drops {
                // The gradients of scores are made of all weights, those of values of the ones that are left.
                let query = block.query + first;
                let tile = Tile { drops, query, queries: MR, key: block.key, keys: most };
                let mut decisions = DropMask::new();
                s.call_noinline(Decide { tile, to: &mut decisions });
                let (from, stride) = (&decisions, WEIGHTS_ROW);
                s.call_noinline(Apply { tile, from, lines: block.d_scores_of(first), stride });
                self.subtract_delta(s, vectors, &seen, alone);
                s.call_noinline(Apply { tile, from, lines: block.weights_of(first), stride });
            } else if alone && !centered {
                self.subtract_delta(s, vectors, &seen, alone);
            }
            self.finish(s, vectors, &seen);
            if self.hides {
                return;
            }
            let mut column = 0;
            while column < block.head.head_dim {
                let left = (block.head.head_dim - column).div_ceil(S::LANES);
                if left >= NV {
                    self.columns::<S, NV>(s, column, &seen);
                    column += NV * S::LANES;
                } else if NV > 2 && left >= 2 {
                    self.columns::<S, 2>(s, column, &seen);
                    column += 2 * S::LANES;
                } else {
                    self.columns::<S, 1>(s, column, &seen);
                    column += S::LANES;
                }
            }
        }
    }

    /// Weights, and the gradients of scores, or only those of weights if `bare`, of `vectors` vectors of keys.
    ///
    /// # Safety
    /// As [`Queries::attend`].
    #[inline(always)]
    unsafe fn one_by_one<S: SimdF32>(self, s: S, vectors: usize, seen: &[usize; MR], bare: bool) {
        // SAFETY: the caller's contract.
        unsafe {
            let mut v = 0;
            while v < vectors {
                if vectors - v >= NV {
                    self.scores::<S, NV>(s, v, vectors);
                    v += NV;
                } else if NV > 2 && vectors - v >= 2 {
                    self.scores::<S, 2>(s, v, vectors);
                    v += 2;
                } else {
                    self.scores::<S, 1>(s, v, vectors);
                    v += 1;
                }
            }
            self.recompute_p(s, vectors, seen);
            let mut v = 0;
            while v < vectors {
                if vectors - v >= NV {
                    self.d_scores::<S, NV>(s, (v, vectors), seen, bare);
                    v += NV;
                } else if NV > 2 && vectors - v >= 2 {
                    self.d_scores::<S, 2>(s, (v, vectors), seen, bare);
                    v += 2;
                } else {
                    self.d_scores::<S, 1>(s, (v, vectors), seen, bare);
                    v += 1;
                }
            }
        }
    }

    /// `rows * panels` for `G` vectors of keys from vector `v`; `next` is multiplied after the last of
    /// `vectors`.
    ///
    /// # Safety
    /// As [`Queries::attend`].
    #[inline(always)]
    unsafe fn product<S: SimdF32, const G: usize>(
        self,
        s: S,
        (v, vectors): (usize, usize),
        rows: Rows,
        panels: *const f32,
        next: *const f32,
    ) -> [[S::F32; G]; MR] {
        let block = self.block;
        let panel = block.row * S::LANES;
        let operands = Operands {
            a: rows.at.wrapping_add(self.first * rows.stride),
            a_row: rows.stride,
            a_step: 1,
            b: panels.wrapping_add(v * panel),
            b_step: S::LANES,
            b_vector: panel,
        };
        let at = if v + G < vectors { operands.b.wrapping_add(G * panel) } else { next };
        let next = PanelView { at, step: S::LANES, vector: panel };
        let zero = [[s.splat(0.0); G]; MR];
        // SAFETY: the caller's contract.
        unsafe { streamed::<S, MR, G>(s, zero, block.head.head_dim, operands, next) }
    }

    /// The scaled scores of `G` vectors of keys, into the lines of weights.
    ///
    /// # Safety
    /// As [`Queries::attend`].
    #[inline(always)]
    unsafe fn scores<S: SimdF32, const G: usize>(self, s: S, v: usize, vectors: usize) {
        let block = self.block;
        // SAFETY: the caller's contract.
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

    /// From scores to weights: the forward's, but for its sums over blocks. The weight of a key that a query
    /// does not see is 0.
    ///
    /// # Safety
    /// As [`Queries::attend`].
    #[inline(always)]
    unsafe fn recompute_p<S: SimdF32>(self, s: S, vectors: usize, seen: &[usize; MR]) {
        let (block, zero) = (self.block, s.splat(0.0));
        let mut base = [zero; MR];
        let mut inverse = [zero; MR];
        for i in 0..MR {
            // SAFETY: the caller's contract.
            let sums = unsafe { block.row_sums(self.first + i) };
            base[i] = s.splat(sums.base);
            inverse[i] = s.splat(sums.inverse);
        }
        let biased = !block.head.bias.is_null();
        for v in 0..vectors.min(KEY_BLOCK / S::LANES) {
            let first = v * S::LANES;
            let masked = first + S::LANES > seen[0];
            for i in 0..MR {
                let at = block.weights_of(self.first + i).wrapping_add(first);
                // SAFETY: inside the query's line; where there is a bias, it has a value for every key that the
                // query sees, and of each vector the last query of the tile sees a key.
                unsafe {
                    let mut x = s.load(at);
                    if biased {
                        let count = seen[i].saturating_sub(first).min(S::LANES);
                        let row = block.query + self.first + i;
                        x = block.head.add_bias(s, x, (row, block.key + first), count);
                    }
                    // No score is above its maximum. Sums of something else are the caller's mistake.
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

    /// The gradients of the scores of `G` vectors of keys; `bare`: only those of the weights, as [`Queries::subtract_delta`]
    /// comes after.
    ///
    /// # Safety
    /// As [`Queries::attend`].
    #[inline(always)]
    unsafe fn d_scores<S: SimdF32, const G: usize>(
        self,
        s: S,
        (v, vectors): (usize, usize),
        seen: &[usize; MR],
        bare: bool,
    ) {
        let block = self.block;
        let masked = (v + G) * S::LANES > seen[0];
        // SAFETY: the caller's contract.
        unsafe {
            let (rows, panels) = (block.d_context, block.value_panels);
            let products = self.product::<S, G>(s, (v, vectors), rows, panels, block.key_rows.at);
            if bare {
                for i in 0..MR {
                    let line = block.d_scores_of(self.first + i).wrapping_add(v * S::LANES);
                    for g in 0..G {
                        s.store(line.wrapping_add(g * S::LANES), products[i][g]);
                    }
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

    /// From the gradients of the weights to those of the scores. Where all keys of a query are in the block, `D` is
    /// the mean of the former under the weights themselves. That is the product of the context with its gradient, but
    /// without the context's rounding: what is subtracted fits what it is subtracted from.
    ///
    /// # Safety
    /// As [`Queries::attend`].
    #[inline(always)]
    unsafe fn subtract_delta<S: SimdF32>(
        self,
        s: S,
        vectors: usize,
        seen: &[usize; MR],
        alone: bool,
    ) {
        /// Vectors of the narrowest set in 16 virtual lanes.
        const MOST: usize = 4;
        let (block, zero) = (self.block, s.splat(0.0));
        let lanes = (CACHE_LINE_F32 / S::LANES).clamp(1, MOST);
        let vectors = vectors.min(KEY_BLOCK / S::LANES);
        for i in 0..MR {
            let local = self.first + i;
            let (weights, line) = (block.weights_of(local), block.d_scores_of(local));
            let mut sums = [zero; MOST];
            for v in 0..if alone { vectors } else { 0 } {
                let first = v * S::LANES;
                // SAFETY: inside the query's lines.
                unsafe {
                    let mut x = s.load(line.wrapping_add(first));
                    if first + S::LANES > seen[i] {
                        // What is not seen may be NaN.
                        x = s.select(s.first(seen[i].saturating_sub(first)), x, zero);
                        s.store(line.wrapping_add(first), x);
                    }
                    // Neither is a key that the bias hides: it has no weight.
                    let weight = s.load(weights.wrapping_add(first));
                    x = s.select(s.less(zero, weight), x, zero);
                    sums[v % lanes] = s.mul_add(weight, x, sums[v % lanes]);
                }
            }
            let mut count = lanes;
            while count > 1 {
                count /= 2;
                for lane in 0..count {
                    sums[lane] = s.add(sums[lane], sums[lane + count]);
                }
            }
            let mean = if alone {
                s.reduce_add(sums[0])
            } else {
                // SAFETY: the caller's contract.
                unsafe { block.row_sums(local).dot }
            };
            let mean = s.splat(mean);
            for v in 0..vectors {
                let at = line.wrapping_add(v * S::LANES);
                // SAFETY: `vectors` is at most `KEY_BLOCK / LANES`, and a query has `KEY_BLOCK`
                // weights and as many gradients of scores.
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

    /// Takes back what a query that weighed nothing has got, and gives the bias its gradient.
    ///
    /// # Safety
    /// As [`Queries::attend`].
    #[inline(always)]
    unsafe fn finish<S: SimdF32>(self, s: S, vectors: usize, seen: &[usize; MR]) {
        let block = self.block;
        for i in 0..MR {
            let local = self.first + i;
            // SAFETY: the caller's contract.
            unsafe {
                if block.row_sums(local).inverse == 0.0 {
                    for v in 0..vectors.min(KEY_BLOCK / S::LANES) {
                        let zero = s.splat(0.0);
                        s.store(block.weights_of(local).wrapping_add(v * S::LANES), zero);
                        s.store(block.d_scores_of(local).wrapping_add(v * S::LANES), zero);
                    }
                }
                if !block.table.is_null() {
                    block.add_to_table(s, local, seen[i]);
                }
            }
        }
    }

    /// `G` vectors of columns of the queries' gradient: the keys that all queries of the tile see together,
    /// then those that only the later ones see.
    ///
    /// # Safety
    /// As [`Queries::attend`].
    #[inline(always)]
    unsafe fn columns<S: SimdF32, const G: usize>(self, s: S, column: usize, seen: &[usize; MR]) {
        let block = self.block;
        let row = block.query + self.first;
        let mut sums = [[s.splat(0.0); G]; MR];
        if block.key > 0 {
            for i in 0..MR {
                for g in 0..G {
                    // SAFETY: the gradient's row exists and was written for an earlier block.
                    sums[i][g] = unsafe { block.head.load_out(s, row + i, column + g * S::LANES) };
                }
            }
        }
        let operands = Operands {
            a: block.d_scores_of(self.first),
            a_row: WEIGHTS_ROW,
            a_step: 1,
            b: block.key_rows.at.wrapping_add(column),
            b_step: block.key_rows.stride,
            b_vector: S::LANES,
        };
        let (fewest, most) = (seen[0], seen[MR - 1]);
        let next = PanelView { at: block.key_panels, step: S::LANES, vector: block.row * S::LANES };
        // SAFETY: gradients of scores and key rows exist for every key that is seen.
        let mut sums = unsafe { streamed::<S, MR, G>(s, sums, fewest, operands, next) };
        // Limits grow by one or not at all.
        let diagonal = MR > 1 && most - fewest + 1 == MR;
        if diagonal {
            let operands = Operands {
                a: operands.a.wrapping_add(fewest),
                b: operands.b.wrapping_add(fewest * operands.b_step),
                ..operands
            };
            // SAFETY: query `i` of the diagonal sees the keys `fewest..fewest + i`, because `seen`
            // grows by one from row to row: their gradients of scores and their key rows exist.
            sums = unsafe { causal_diagonal::<S, MR, G, true>(s, sums, operands) };
        }
        for key in if diagonal { most..most } else { fewest..most } {
            for i in 0..MR {
                if key >= seen[i] {
                    continue;
                }
                // SAFETY: `key < seen[i]`: the gradient of the score and the key row exist.
                unsafe {
                    let x = s.splat(*block.d_scores_of(self.first + i).wrapping_add(key));
                    for g in 0..G {
                        let at = operands.b.wrapping_add(key * operands.b_step + g * S::LANES);
                        sums[i][g] = s.mul_add(x, s.load(at), sums[i][g]);
                    }
                }
            }
        }
        for i in 0..MR {
            let factor = s.splat(block.query_factor(self.first + i));
            for g in 0..G {
                let x = s.mul(sums[i][g], factor);
                // SAFETY: the gradient's row exists; these columns begin before `head_dim`.
                unsafe { block.head.store_out(s, row + i, column + g * S::LANES, x) };
            }
        }
    }
}
