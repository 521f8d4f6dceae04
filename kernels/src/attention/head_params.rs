//! One head of one sequence: where its data is, and which keys each of its queries sees.

use super::online_softmax::biased;
#[cfg(feature = "train")]
use crate::dropout::HeadDrops;
use crate::mask::FullyMasked;
use crate::simd::SimdF32;

/// Where the data of one head of one sequence is, in elements.
#[derive(Clone, Copy)]
pub(super) struct HeadParams {
    pub(super) query: *const f32,
    pub(super) query_row: usize,
    /// `[ceil(keys / LANES)][head_dim][LANES]` of [`KvFormat`](super::kv_dtype::KvFormat) in a form that whoever
    /// attends knows, as all keys and values here; what the lanes past the last key hold is never used.
    pub(super) keys: *const (),
    /// Probably the keys that are needed after these: a query that is alone asks memory for them.
    pub(super) next_keys: *const (),
    /// Rows of `head_dim` rounded up to whole vectors.
    pub(super) values: *const (),
    pub(super) value_row: usize,
    pub(super) out: *mut f32,
    pub(super) out_row: usize,
    pub(super) head_dim: usize,
    pub(super) scale: f32,
    /// Valid keys.
    pub(super) key_len: usize,
    /// Key rows that exist, valid or padding.
    pub(super) padded_len: usize,
    /// Keys that query 0 sees, before clamping to `0..=key_len`.
    pub(super) first_limit: isize,
    /// Keys that each further query sees more: 1 under a causal mask, else 0.
    pub(super) limit_step: isize,
    /// Added to the scores: query `i` and key `j` have `bias[i * bias_row + j]`; null when there is none.
    pub(super) bias: *const f32,
    pub(super) bias_row: isize,
    /// Whether there is a bias that may hide keys.
    pub(super) bias_hides: bool,
    /// Whether there is one that hides none, and of which whole vectors may be read wherever a query of a
    /// tile sees a key of them.
    pub(super) bias_whole: bool,
    pub(super) fully_masked: FullyMasked,
    /// Receives the normalized weights, `[queries][weights_row]`; null when nobody asked.
    pub(super) weights: *mut f32,
    pub(super) weights_row: usize,
    pub(super) weights_len: usize,
    /// Receives the maximum of the scores and one over the sum of the weights of each query; null when nobody
    /// keeps them.
    pub(super) sums: *mut f32,
    pub(super) sums_row: usize,
    /// Which weights are dropped, if any.
    #[cfg(feature = "train")]
    pub(super) drops: Option<HeadDrops>,
}

impl HeadParams {
    /// Keys that query `row` sees.
    #[inline(always)]
    pub(super) fn limit(&self, row: usize) -> usize {
        let limit = self.first_limit + self.limit_step * row as isize;
        (limit.max(0) as usize).min(self.key_len)
    }

    /// Where the bias of query `row` and key `key` is, if there is a bias.
    #[inline(always)]
    pub(super) fn bias_at(&self, row: usize, key: usize) -> *const f32 {
        self.bias.wrapping_offset(row as isize * self.bias_row).wrapping_add(key)
    }

    /// The scores of query `row` and the `count` keys from `key` on, with their biases, and with anything
    /// in the lanes behind.
    ///
    /// # Safety
    /// There is a bias, and query `row` sees these keys, or a query of its tile the first of them.
    #[inline(always)]
    pub(super) unsafe fn add_bias<S: SimdF32>(
        &self,
        s: S,
        scores: S::F32,
        (row, key): (usize, usize),
        count: usize,
    ) -> S::F32 {
        let at = self.bias_at(row, key);
        if self.bias_whole {
            // SAFETY: whole vectors may be read; those who call hide what the query does not see.
            return s.add(scores, unsafe { s.load(at) });
        }
        // SAFETY: the bias has a value for every key that the query sees.
        let bias = unsafe { s.load_prefix(at, count) };
        if self.bias_hides { biased(s, scores, bias) } else { s.add(scores, bias) }
    }

    /// # Safety
    /// Output row `row` exists; `column < head_dim`.
    #[inline(always)]
    pub(super) unsafe fn load_out<S: SimdF32>(&self, s: S, row: usize, column: usize) -> S::F32 {
        let at = self.out.wrapping_add(row * self.out_row + column);
        // SAFETY: the caller's contract, and the count stops at `head_dim`.
        unsafe {
            if column + S::LANES <= self.head_dim {
                s.load(at)
            } else {
                s.load_prefix(at, self.head_dim - column)
            }
        }
    }

    /// # Safety
    /// As [`HeadParams::load_out`].
    #[inline(always)]
    pub(super) unsafe fn store_out<S: SimdF32>(&self, s: S, row: usize, column: usize, x: S::F32) {
        let at = self.out.wrapping_add(row * self.out_row + column);
        // SAFETY: the caller's contract, and the count stops at `head_dim`.
        unsafe {
            if column + S::LANES <= self.head_dim {
                s.store(at, x);
            } else {
                s.store_prefix(at, x, self.head_dim - column);
            }
        }
    }
}
