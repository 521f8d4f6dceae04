//! The last part of a row: the output of fully masked queries, and the weights if they are requested.

use super::flash::FlashHead;
use super::kv_dtype::KvFormat;
use super::one_head::{HeadQuery, RowsOut};
use super::online_softmax::Running;
use crate::gemm::{Panels, Rows, multiply_one};
use crate::math::{exp_nonpositive, exp_shift};
use crate::simd::SimdF32;
use crate::softmax::FullyMasked;

impl<N: KvFormat> FlashHead<N> {
    /// Recomputes the scores of `row` and writes its normalized weights. Heads whose weights are not requested never
    /// compute normalized weights.
    ///
    /// # Safety
    /// As [`FlashHead::attend`], for the weights of this row in `to`.
    #[inline(always)]
    pub(super) unsafe fn write_weights<S: SimdF32>(
        &self,
        s: S,
        row: usize,
        running: Running,
        to: RowsOut,
    ) {
        let HeadQuery { query, query_row, head_dim, scale, padded_len, fully_masked, .. } =
            self.query;
        let Running { maximum, sum } = running;
        let masked = running.is_fully_masked();
        let uniform = masked && fully_masked == FullyMasked::Uniform;
        let limit = self.query.limit(row);
        let panel = head_dim * S::LANES;
        for first in (0..to.len).step_by(S::LANES) {
            let count = (to.len - first).min(S::LANES);
            let mut x = s.splat(0.0);
            if uniform {
                let share = s.splat(1.0 / padded_len as f32);
                let visible = s.first(padded_len.saturating_sub(first));
                x = s.select(visible, share, x);
            } else if first < limit && !masked {
                let query = Rows { at: query.wrapping_add(row * query_row), row: 0, step: 1 };
                let at = self.kv.keys.wrapping_add(first / S::LANES * panel);
                let keys = Panels::one(at, S::LANES, 0);
                let zero = [[s.splat(0.0)]];
                // SAFETY: the query row and the panel of key `first` exist, by the contract of `write_weights`.
                let acc = unsafe { multiply_one(N::operand(s), zero, head_dim, query, keys, ()) };
                let mut score = s.mul(acc[0][0], s.splat(scale));
                let visible = limit - first;
                if let Some(bias) = self.query.bias {
                    let count = visible.min(S::LANES);
                    // SAFETY: the query sees these keys, because `first < limit`.
                    score = unsafe { bias.add_to(s, score, (row, first), count) };
                }
                let weight = exp_nonpositive(s, s.sub(score, s.splat(exp_shift(maximum))));
                x = s.select(s.first(visible), s.div(weight, s.splat(sum)), x);
            }
            // SAFETY: `first + count <= to.len`, so the store is inside the row of weights.
            unsafe { s.store_prefix(to.at.wrapping_add(row * to.row + first), x, count) };
        }
    }
}
