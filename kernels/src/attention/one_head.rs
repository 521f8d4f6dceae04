//! One head of one sequence: the addresses of its data, and the visible keys of each query.

use super::bias::{BiasRows, hides};
use super::kv_dtype::{KvFormat, load};
use super::online_softmax::Factors;
#[cfg(feature = "train")]
use crate::dropout::HeadDrops;
use crate::simd::SimdF32;
use crate::softmax::FullyMasked;

/// Addresses, strides and masks of the queries of one head of one sequence. Strides are in elements.
#[derive(Clone, Copy)]
pub(super) struct HeadQuery {
    pub(super) query: *const f32,
    pub(super) query_row: usize,
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
    pub(super) bias: Option<BiasRows>,
    pub(super) fully_masked: FullyMasked,
    /// Receives the normalized weights of each query.
    pub(super) weights: Option<RowsOut>,
    /// Receives the maximum score and the reciprocal of the sum of the weights of each query.
    pub(super) sums: Option<RowsOut>,
    /// Which weights are dropped, if any.
    #[cfg(feature = "train")]
    pub(super) drops: Option<HeadDrops>,
}

/// Addresses of the keys and values of one head of one sequence. `T` is the element of the
/// [`KvFormat`](super::kv_dtype::KvFormat) of the kernel, or `()` where the format is not known.
#[derive(Clone, Copy)]
pub(super) struct HeadKv<T = ()> {
    /// `[ceil(keys / LANES)][head_dim][LANES]`. Lanes past the last key are never used.
    pub(super) keys: *const T,
    /// Keys that are probably needed after these. A single query prefetches them; they are never read.
    pub(super) next_keys: *const T,
    /// Rows of `head_dim` rounded up to whole vectors.
    pub(super) values: *const T,
    pub(super) value_row: usize,
}

// SAFETY: keys and values are borrowed for reading only.
unsafe impl<T> Sync for HeadKv<T> {}

impl HeadKv {
    /// The same addresses of elements of type `T`.
    #[inline(always)]
    pub(super) const fn cast<T>(self) -> HeadKv<T> {
        let Self { keys, next_keys, values, value_row } = self;
        HeadKv { keys: keys.cast(), next_keys: next_keys.cast(), values: values.cast(), value_row }
    }
}

/// Rows of `len` floats for each query, `row` floats apart.
#[derive(Clone, Copy)]
pub(super) struct RowsOut {
    pub(super) at: *mut f32,
    pub(super) row: usize,
    pub(super) len: usize,
}

impl HeadQuery {
    /// Number of visible keys of query `row`.
    #[inline(always)]
    pub(super) fn limit(&self, row: usize) -> usize {
        let limit = self.first_limit + self.limit_step * row as isize;
        (limit.max(0) as usize).min(self.key_len)
    }

    /// The bias, if it may hide keys.
    #[inline(always)]
    pub(super) fn hiding_bias(&self) -> Option<BiasRows> {
        self.bias.filter(|bias| bias.hides)
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
    /// As [`HeadQuery::load_out`].
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

    /// `out = (out * before + weights * values) * after` of query `row`, for the keys of `weights` from `first`, under a
    /// bias that may hide any key. The values of hidden keys are not read. A visible key is multiplied even if its
    /// weight is 0. `value(key)` is the address of the value row of a key.
    ///
    /// # Safety
    /// The output row exists, and the query sees the keys, which have biases and value rows.
    #[inline(always)]
    pub(super) unsafe fn values_masked<S: SimdF32, N: KvFormat>(
        &self,
        s: S,
        (row, first): (usize, usize),
        weights: &[f32],
        factors: Factors,
        bias: BiasRows,
        value: impl Fn(usize) -> *const N::KvElement,
    ) {
        for column in (0..self.head_dim).step_by(S::LANES) {
            // SAFETY: the `# Safety` contract of `values_masked` holds.
            unsafe {
                let mut acc = s.splat(0.0);
                if first > 0 {
                    acc = s.mul(s.splat(factors.before), self.load_out(s, row, column));
                }
                for (key, &weight) in (first..).zip(weights) {
                    if weight != 0.0 || !hides(*bias.at(row, key)) {
                        let value = load::<S, N>(s, value(key).add(column));
                        acc = s.mul_add(s.splat(weight), value, acc);
                    }
                }
                self.store_out(s, row, column, s.mul(acc, s.splat(factors.after)));
            }
        }
    }

    /// `G` vectors of an output row from `column`, times `factor`.
    ///
    /// # Safety
    /// As [`HeadQuery::load_out`]; `column` is before the last vector of the group. The row has been written.
    #[inline(always)]
    pub(super) unsafe fn load_scaled<S: SimdF32, const G: usize>(
        &self,
        s: S,
        (row, column): (usize, usize),
        factor: f32,
    ) -> [S::F32; G] {
        let factor = s.splat(factor);
        let mut sums = [s.splat(0.0); G];
        for (g, x) in sums.iter_mut().enumerate() {
            // SAFETY: the `# Safety` contract of `load_scaled` holds.
            *x = s.mul(factor, unsafe { self.load_out(s, row, column + g * S::LANES) });
        }
        sums
    }

    /// Stores `G` vectors, times `factor`, to an output row from `column`.
    ///
    /// # Safety
    /// As [`HeadQuery::load_out`].
    #[inline(always)]
    pub(super) unsafe fn store_scaled<S: SimdF32, const G: usize>(
        &self,
        s: S,
        (row, column): (usize, usize),
        sums: &[S::F32; G],
        factor: f32,
    ) {
        let factor = s.splat(factor);
        for (g, &x) in sums.iter().enumerate() {
            // SAFETY: the `# Safety` contract of `store_scaled` holds.
            unsafe { self.store_out(s, row, column + g * S::LANES, s.mul(x, factor)) };
        }
    }
}
