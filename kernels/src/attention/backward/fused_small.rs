//! A tile of queries against so few keys that both products of a tile, with the keys and with the values, stay in
//! registers together until the gradients of the scores are computed. Short sentences have only such tiles.

use super::dq::DqTile;
use super::row_ops::add_weighted;
use crate::math::exp_nonpositive;
use crate::simd::{MAX_LANES, MOST_PARTS, SimdF32, sum_of_lanes};

impl<const MR: usize, const NV: usize> DqTile<'_, MR, NV> {
    /// Whether both products with `vectors` vectors of keys fit in the registers, together with their operands.
    pub(super) const fn fits(registers: usize, vectors: usize) -> bool {
        2 * vectors * (MR + 1) < registers
    }

    /// Computes the results of `scores`, `recompute_p`, `d_scores` and, if not `defer_delta`, `subtract_delta`, with
    /// the same bits. `G` is the number of vectors of keys that the tile sees in total. There is no bias.
    ///
    /// # Safety
    /// As [`DqTile::attend`].
    #[inline(always)]
    pub(super) unsafe fn fused_small<S: SimdF32, const G: usize>(
        self,
        s: S,
        seen: &[usize; MR],
        defer_delta: bool,
    ) {
        let (block, zero) = (self.block, s.splat(0.0));
        let (query, d_context) = (block.query_rows, block.d_context);
        let mut from_query = query.at.wrapping_add(self.first * query.stride);
        let mut from_context = d_context.at.wrapping_add(self.first * d_context.stride);
        let (mut from_key, mut from_value) = (block.key_panels, block.value_panels);
        let panel = block.head.head_dim * S::LANES;
        let mut scores = [[zero; G]; MR];
        let mut products = [[zero; G]; MR];
        for _ in 0..block.head.head_dim {
            let mut key = [zero; G];
            let mut value = [zero; G];
            // SAFETY: the `# Safety` contract of `fused_small` holds. The pointers are not read after the last step.
            unsafe {
                for g in 0..G {
                    key[g] = s.load(from_key.wrapping_add(g * panel));
                    value[g] = s.load(from_value.wrapping_add(g * panel));
                }
                for i in 0..MR {
                    let x = s.splat(*from_query.wrapping_add(i * query.stride));
                    for g in 0..G {
                        scores[i][g] = s.mul_add(x, key[g], scores[i][g]);
                    }
                }
                for i in 0..MR {
                    let x = s.splat(*from_context.wrapping_add(i * d_context.stride));
                    for g in 0..G {
                        products[i][g] = s.mul_add(x, value[g], products[i][g]);
                    }
                }
            }
            (from_query, from_context) = (from_query.wrapping_add(1), from_context.wrapping_add(1));
            from_key = from_key.wrapping_add(S::LANES);
            from_value = from_value.wrapping_add(S::LANES);
        }
        let scale = s.splat(block.head.scale);
        for i in 0..MR {
            let local = self.first + i;
            let (weights, line) = (block.weights_of(local), block.d_scores_of(local));
            let mut weight = [zero; G];
            // SAFETY: the `# Safety` contract of `fused_small` holds.
            unsafe {
                let sums = block.row_sums(local);
                for g in 0..G {
                    let visible = s.first(seen[i].saturating_sub(g * S::LANES));
                    let x = s.sub(s.mul(scores[i][g], scale), s.splat(sums.base));
                    let x = exp_nonpositive(s, s.min(zero, x));
                    weight[g] = s.select(visible, s.mul(x, s.splat(sums.inverse)), zero);
                    s.store(weights.wrapping_add(g * S::LANES), weight[g]);
                    if defer_delta {
                        s.store(line.wrapping_add(g * S::LANES), products[i][g]);
                    } else {
                        products[i][g] = s.select(visible, products[i][g], zero);
                    }
                }
                if defer_delta {
                    continue;
                }
                let mean = s.splat(mean(s, &weight, &products[i]));
                for g in 0..G {
                    let visible = s.first(seen[i].saturating_sub(g * S::LANES));
                    let x = s.mul(weight[g], s.sub(products[i][g], mean));
                    s.store(line.wrapping_add(g * S::LANES), s.select(visible, x, zero));
                }
            }
        }
    }
}

/// The mean of `x`, weighted with `weight`, in the same virtual lanes as in `subtract_delta`.
#[inline(always)]
fn mean<S: SimdF32, const G: usize>(s: S, weight: &[S::F32; G], x: &[S::F32; G]) -> f32 {
    let mut sums = [s.splat(0.0); MOST_PARTS];
    for g in 0..G {
        let sum = &mut sums[g % (MAX_LANES / S::LANES)];
        *sum = add_weighted(s, *sum, weight[g], x[g]);
    }
    sum_of_lanes::<S, MAX_LANES, _>(s, sums)
}
