//! The products with a block of keys under a bias that may hide any key. They are computed key by key, because the rows
//! of a hidden key must not be multiplied, not even by 0.

use super::dkv::Gradient;
use super::score_block::ScoreBlock;
use crate::attention::bias::{BiasRows, hides};
use crate::attention::head_views::HeadRows;
use crate::simd::SimdF32;

impl ScoreBlock {
    /// Whether key `key` of the block contributes to query `local`, which sees it by its limit. A key whose weight
    /// underflows to 0 contributes as well.
    ///
    /// # Safety
    /// The query has a weight for the key, and a bias of the head.
    #[inline(always)]
    unsafe fn contributes(&self, bias: BiasRows, local: usize, key: usize) -> bool {
        // SAFETY: the `# Safety` contract of `contributes` holds.
        unsafe {
            *self.weights_of(local).wrapping_add(key) != 0.0
                || !hides(*bias.at(self.query + local, self.key + key))
        }
    }

    /// Computes the gradient of query `local`.
    ///
    /// # Safety
    /// The bias is that of the head, the operands of the block are valid, and no other code accesses the row of the gradient.
    #[inline(always)]
    pub(super) unsafe fn query_masked<S: SimdF32>(&self, s: S, bias: BiasRows, local: usize) {
        let (row, seen) = (self.query + local, self.seen(local));
        let factor = s.splat(self.query_factor(local));
        for column in (0..self.head.head_dim).step_by(S::LANES) {
            // SAFETY: the `# Safety` contract of `query_masked` holds.
            unsafe {
                let mut sum = s.splat(0.0);
                if self.key > 0 {
                    sum = self.head.load_out(s, row, column);
                }
                for key in 0..seen {
                    if self.contributes(bias, local, key) {
                        let x = s.splat(*self.d_scores_of(local).wrapping_add(key));
                        let at = self.key_rows.at.wrapping_add(key * self.key_rows.stride + column);
                        sum = s.mul_add(x, s.load(at), sum);
                    }
                }
                self.head.store_out(s, row, column, s.mul(sum, factor));
            }
        }
    }

    /// Adds the contributions of the queries of the block to the gradients of key `key` and its value.
    ///
    /// # Safety
    /// As [`ScoreBlock::query_masked`], for the rows of the sums.
    #[inline(always)]
    pub(super) unsafe fn key_masked<S: SimdF32>(&self, s: S, bias: BiasRows, key: usize) {
        for column in (0..self.row).step_by(S::LANES) {
            let at = key * self.row + column;
            let (to_key, to_value) = (self.d_key.wrapping_add(at), self.d_value.wrapping_add(at));
            // SAFETY: the `# Safety` contract of `key_masked` holds.
            unsafe {
                let (mut key_sum, mut value_sum) = (s.load(to_key), s.load(to_value));
                for local in self.first_query(key)..self.queries {
                    if !self.contributes(bias, local, key) {
                        continue;
                    }
                    let row = |rows: &HeadRows| rows.at.wrapping_add(local * rows.stride + column);
                    let weight = s.splat(*self.weights_of(local).wrapping_add(key));
                    let d_score = s.splat(*self.d_scores_of(local).wrapping_add(key));
                    let d_context = s.load(row(&self.d_context));
                    value_sum = s.mul_add(weight, d_context, value_sum);
                    let query = s.load(row(&self.query_rows));
                    key_sum = s.mul_add(d_score, query, key_sum);
                }
                s.store(to_key, key_sum);
                s.store(to_value, value_sum);
            }
        }
    }
}

/// Stores the sums of `keys` keys, `row` floats each, as their gradients.
///
/// # Safety
/// The sums are valid for reads, and the rows of the gradient, of `head_dim` elements, for writes.
#[inline(always)]
pub(super) unsafe fn store_sums<S: SimdF32>(
    s: S,
    sums: *const f32,
    (keys, row, head_dim): (usize, usize, usize),
    to: Gradient,
) {
    for key in 0..keys {
        for column in (0..head_dim).step_by(S::LANES) {
            let count = (head_dim - column).min(S::LANES);
            // SAFETY: the `# Safety` contract of `store_sums` holds.
            unsafe {
                let x = s.load(sums.add(key * row + column));
                let at = to.at.wrapping_add(key * to.stride + column);
                s.store_prefix(at, s.mul(x, s.splat(to.factor)), count);
            }
        }
    }
}
