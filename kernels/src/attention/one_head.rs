//! One head of one sequence: the addresses of its data, and the visible keys of each query.

use super::online_softmax::biased;
#[cfg(feature = "train")]
use crate::dropout::HeadDrops;
use crate::simd::SimdF32;
use crate::softmax::FullyMasked;

/// Addresses, strides and masks of one head of one sequence. Strides are in elements.
#[derive(Clone, Copy)]
pub(super) struct HeadParams {
    pub(super) query: *const f32,
    pub(super) query_row: usize,
    /// `[ceil(keys / LANES)][head_dim][LANES]`. As for the other pointers to keys and values, the dtype is that of the
    /// [`KvFormat`](super::kv_dtype::KvFormat) of the kernel. Lanes past the last key are never used.
    pub(super) keys: *const (),
    /// Keys that are probably needed after these. A single query prefetches them.
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
    /// Key rows in total, valid or padding.
    pub(super) padded_len: usize,
    /// Visible keys of query 0, before clamping to `0..=key_len`.
    pub(super) first_limit: isize,
    /// Additional visible keys of each further query: 1 under a causal mask, else 0.
    pub(super) limit_step: isize,
    /// Added to the scores: the bias of query `i` and key `j` is `bias[i * bias_row + j]`. Null if there is no bias.
    pub(super) bias: *const f32,
    pub(super) bias_row: isize,
    /// Whether there is a bias that may hide keys.
    pub(super) bias_hides: bool,
    /// Whether there is a bias that hides no key, and of which whole vectors may be read if a query of a tile sees one
    /// of their keys.
    pub(super) bias_whole: bool,
    pub(super) fully_masked: FullyMasked,
    /// Receives the normalized weights, `[queries][weights_row]`. Null if they are not requested.
    pub(super) weights: *mut f32,
    pub(super) weights_row: usize,
    pub(super) weights_len: usize,
    /// Receives the maximum score and the reciprocal of the sum of the weights of each query. Null if they are not
    /// saved.
    pub(super) sums: *mut f32,
    pub(super) sums_row: usize,
    /// Which weights are dropped, if any.
    #[cfg(feature = "train")]
    pub(super) drops: Option<HeadDrops>,
}

impl HeadParams {
    /// Number of visible keys of query `row`.
    #[inline(always)]
    pub(super) fn limit(&self, row: usize) -> usize {
        let limit = self.first_limit + self.limit_step * row as isize;
        (limit.max(0) as usize).min(self.key_len)
    }

    /// Address of the bias of query `row` and key `key`, if there is a bias.
    #[inline(always)]
    pub(super) fn bias_at(&self, row: usize, key: usize) -> *const f32 {
        self.bias.wrapping_offset(row as isize * self.bias_row).wrapping_add(key)
    }

    /// The scores of query `row` and the `count` keys from `key`, plus their biases. The other lanes may have any
    /// value.
    ///
    /// # Safety
    /// There is a bias. Query `row` sees these keys, or a query of its tile sees the first of them.
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
            // SAFETY: `bias_whole` allows whole vectors to be read here. Callers mask the lanes of keys that the query
            // does not see.
            return s.add(scores, unsafe { s.load(at) });
        }
        // SAFETY: `CheckedBias` ensures a value for every key that the query sees.
        let bias = unsafe { s.load_prefix(at, count) };
        if self.bias_hides { biased(s, scores, bias) } else { s.add(scores, bias) }
    }

    /// # Safety
    /// Output row `row` exists; `column < head_dim`.
    #[inline(always)]
    pub(super) unsafe fn load_out<S: SimdF32>(&self, s: S, row: usize, column: usize) -> S::F32 {
        let at = self.out.wrapping_add(row * self.out_row + column);
        // SAFETY: the `# Safety` contract of `load_out` holds, and the count stops at `head_dim`.
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
        // SAFETY: the `# Safety` contract of `store_out` holds, and the count stops at `head_dim`.
        unsafe {
            if column + S::LANES <= self.head_dim {
                s.store(at, x);
            } else {
                s.store_prefix(at, x, self.head_dim - column);
            }
        }
    }
}
