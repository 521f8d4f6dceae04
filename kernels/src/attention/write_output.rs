//! The last part of a row: the output of fully masked queries, and the weights if they are requested.

use super::kv_dtype::{KvFormat, PanelView, load, tile};
use super::one_head::HeadParams;
use super::online_softmax::{Running, base};
use crate::gemm::Rows;
use crate::math::exp_nonpositive;
use crate::simd::SimdF32;
use crate::softmax::FullyMasked;

impl HeadParams {
    /// Writes the output of a fully masked query, and then the weights if they are requested. `value(key)` is the
    /// address of the value row of a key.
    ///
    /// # Safety
    /// Every pointer of the head is valid for the data that its field documents, value rows up to `padded_len`, for the
    /// instruction set of `S`. No other code accesses the output and the weights of this row.
    #[inline(always)]
    pub(super) unsafe fn finish<S: SimdF32, N: KvFormat>(
        &self,
        s: S,
        row: usize,
        running: Running,
        value: impl Fn(usize) -> *const N::KvElement,
    ) {
        if running.is_fully_masked() {
            let mut column = 0;
            while column < self.head_dim {
                let mut x = s.splat(0.0);
                // SAFETY: the `# Safety` contract of `finish` holds.
                unsafe {
                    if self.fully_masked == FullyMasked::Uniform {
                        for key in 0..self.padded_len {
                            x = s.add(x, load::<S, N>(s, value(key).add(column)));
                        }
                        x = s.div(x, s.splat(self.padded_len.max(1) as f32));
                    }
                    self.store_out(s, row, column, x);
                }
                column += S::LANES;
            }
        }
        if !self.weights.is_null() {
            // SAFETY: the `# Safety` contract of `finish` holds.
            unsafe { self.write_weights::<S, N>(s, row, running) };
        }
    }

    /// Recomputes the scores of `row` and writes its normalized weights. Heads whose weights are not requested never
    /// compute normalized weights.
    ///
    /// # Safety
    /// As [`HeadParams::finish`].
    #[inline(always)]
    unsafe fn write_weights<S: SimdF32, N: KvFormat>(&self, s: S, row: usize, running: Running) {
        let Running { maximum, sum } = running;
        let to = self.weights.wrapping_add(row * self.weights_row);
        let masked = running.is_fully_masked();
        let uniform = masked && self.fully_masked == FullyMasked::Uniform;
        let limit = self.limit(row);
        let panel = self.head_dim * S::LANES;
        let mut first = 0;
        while first < self.weights_len {
            let count = (self.weights_len - first).min(S::LANES);
            let mut x = s.splat(0.0);
            if uniform {
                let share = s.splat(1.0 / self.padded_len as f32);
                let visible = s.first(self.padded_len.saturating_sub(first));
                x = s.select(visible, share, x);
            } else if first < limit && !masked {
                let query = self.query.wrapping_add(row * self.query_row);
                let query = Rows { at: query, row: 0, step: 1 };
                let keys = self.keys.cast::<N::KvElement>().wrapping_add(first / S::LANES * panel);
                let keys = PanelView { at: keys, step: S::LANES, vector: 0 };
                let zero = [[s.splat(0.0); 1]; 1];
                // SAFETY: the query row and the panel of key `first` exist, by the contract of `finish`.
                let acc = unsafe { tile::<S, N, _, 1, 1>(s, zero, self.head_dim, query, keys, ()) };
                let mut score = s.mul(acc[0][0], s.splat(self.scale));
                let visible = limit - first;
                if !self.bias.is_null() {
                    let count = visible.min(S::LANES);
                    // SAFETY: the query sees these keys, because `first < limit`.
                    score = unsafe { self.add_bias(s, score, (row, first), count) };
                }
                let weight = exp_nonpositive(s, s.sub(score, s.splat(base(maximum))));
                x = s.select(s.first(visible), s.div(weight, s.splat(sum)), x);
            }
            // SAFETY: `first + count <= weights_len`, so the store is inside the row of weights.
            unsafe { s.store_prefix(to.wrapping_add(first), x, count) };
            first += S::LANES;
        }
    }
}
