//! One head of one sequence: the addresses of its data, and the visible keys of each query.

use super::bias::{BiasRows, hides};
use super::head_views::HeadRows;
use super::online_softmax::Factors;
use super::panels::{KvFormat, copy_rows, load};
#[cfg(feature = "train")]
use crate::dropout::HeadDrops;
use crate::simd::{SimdF32, simd_op};
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
/// [`KvFormat`](super::panels::KvFormat) of the kernel, or `()` where the format is not known.
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

impl<T> HeadKv<T> {
    pub(super) const fn value_rows(&self) -> ValueRows<'_, T> {
        ValueRows { at: self.values, row: self.value_row, slots: None }
    }
}

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

    /// `G` vectors of `MR` output rows from `row`, from `column`, times the factors before a block. `buffer` has space for
    /// them.
    ///
    /// # Safety
    /// The rows exist and were written. `column < head_dim`, and the group ends at most one vector after `head_dim`.
    #[inline(always)]
    pub(super) unsafe fn load_scaled<S: SimdF32, const MR: usize, const G: usize>(
        &self,
        s: S,
        (row, column): (usize, usize),
        factors: &[Factors; MR],
        buffer: *mut f32,
    ) -> [[S::F32; G]; MR] {
        let mut at = self.out.wrapping_add(row * self.out_row + column).cast_const();
        let mut stride = self.out_row;
        let mut sums = [[s.splat(0.0); G]; MR];
        // SAFETY: the `# Safety` contract of `load_scaled` holds.
        unsafe {
            if column + G * S::LANES > self.head_dim {
                let rows = HeadRows { at, stride };
                (at, stride) = (buffer, G * S::LANES);
                s.call_noinline(fill_rows(rows, (MR, self.head_dim - column), buffer, stride));
            }
            for i in 0..MR {
                let factor = s.splat(factors[i].before);
                for g in 0..G {
                    let x = s.load(at.wrapping_add(i * stride + g * S::LANES));
                    sums[i][g] = s.mul(factor, x);
                }
            }
        }
        sums
    }

    /// Stores `G` vectors of `MR` output rows from `row`, from `column`, times the factors after a block. `buffer` has
    /// space for them.
    ///
    /// # Safety
    /// As [`HeadQuery::load_scaled`], but the rows are only written.
    #[inline(always)]
    pub(super) unsafe fn store_scaled<S: SimdF32, const MR: usize, const G: usize>(
        &self,
        s: S,
        (row, column): (usize, usize),
        sums: &[[S::F32; G]; MR],
        factors: &[Factors; MR],
        buffer: *mut f32,
    ) {
        let out = self.out.wrapping_add(row * self.out_row + column);
        let whole = column + G * S::LANES <= self.head_dim;
        let (to, stride) = if whole { (out, self.out_row) } else { (buffer, G * S::LANES) };
        // SAFETY: the `# Safety` contract of `store_scaled` holds.
        unsafe {
            for i in 0..MR {
                let factor = s.splat(factors[i].after);
                for g in 0..G {
                    s.store(to.wrapping_add(i * stride + g * S::LANES), s.mul(sums[i][g], factor));
                }
            }
            if !whole {
                let rows = HeadRows { at: buffer, stride };
                let size = (MR, self.head_dim - column);
                s.call_noinline(store_rows(rows, size, out, self.out_row));
            }
        }
    }
}

simd_op!(
    /// Copies `size = (rows, elements)` floats to rows of whole vectors at `to`, with zeros after their elements.
    ///
    /// # Safety
    /// The rows are valid for reads, and those at `to`, `to_row` floats apart, for writes.
    pub(super) unsafe fn fill_rows<S: SimdF32>(
        s: S,
        from: HeadRows,
        size: (usize, usize),
        to: *mut f32,
        to_row: usize,
    ) {
        // SAFETY: the caller's contract.
        unsafe { copy_rows::<S, f32, 0>(s, from, size, to, to_row) }
    }
);

simd_op!(
    /// Copies `size = (rows, elements)` floats to `to`, `to_row` floats apart.
    ///
    /// # Safety
    /// The rows are valid for reads, those at `to` for writes.
    unsafe fn store_rows<S: SimdF32>(
        s: S,
        from: HeadRows,
        size: (usize, usize),
        to: *mut f32,
        to_row: usize,
    ) {
        let (rows, elements) = size;
        for row in 0..rows {
            for i in (0..elements).step_by(S::LANES) {
                let count = (elements - i).min(S::LANES);
                // SAFETY: the caller's contract.
                unsafe {
                    let x = s.load_prefix(from.at.add(row * from.stride + i), count);
                    s.store_prefix(to.add(row * to_row + i), x, count);
                }
            }
        }
    }
);

/// The value rows of a head: `row` elements apart, and that of each key in its slot of a cache, if there are several.
#[derive(Clone, Copy)]
pub(super) struct ValueRows<'a, T> {
    pub(super) at: *const T,
    pub(super) row: usize,
    /// The slot of each key, and the elements from one slot to the next.
    pub(super) slots: Option<(&'a [u32], usize)>,
}

impl<T> ValueRows<'_, T> {
    /// The address of the values of `key`.
    #[inline(always)]
    fn of_key(&self, key: usize) -> *const T {
        let slot = self.slots.map_or(0, |(slots, elements)| slots[key] as usize * elements);
        self.at.wrapping_add(slot + key * self.row)
    }
}

simd_op!(
    /// `out = (out * before + weights * values) * after` of a query, for some keys of `weights`, under a
    /// bias that may hide any key. `place` is the row and the first key. The values of hidden keys are not read. A visible key is multiplied even if its
    /// weight is 0.
    ///
    /// # Safety
    /// The output row exists, and the query sees the keys, which have biases and value rows.
    pub(super) unsafe fn add_unhidden<S: SimdF32, N: KvFormat>(
        s: S,
        head: &HeadQuery,
        place: (usize, usize),
        weights: &[f32],
        factors: Factors,
        bias: BiasRows,
        values: ValueRows<'_, N::KvElement>,
    ) {
        let (row, first) = place;
        for column in (0..head.head_dim).step_by(S::LANES) {
            // SAFETY: the caller's contract.
            unsafe {
                let mut acc = s.splat(0.0);
                if first > 0 {
                    acc = s.mul(s.splat(factors.before), head.load_out(s, row, column));
                }
                for (key, &weight) in (first..).zip(weights) {
                    if weight != 0.0 || !hides(*bias.at(row, key)) {
                        let value = load::<S, N>(s, values.of_key(key).add(column));
                        acc = s.mul_add(s.splat(weight), value, acc);
                    }
                }
                head.store_out(s, row, column, s.mul(acc, s.splat(factors.after)));
            }
        }
    }
);

simd_op!(
    /// Writes the output of query `row`, which is fully masked.
    ///
    /// # Safety
    /// Every pointer of the head is valid for the data that its field documents, value rows up to `padded_len`, for the
    /// instruction set of `S`. No other code accesses the output of this row.
    pub(super) unsafe fn fill_fully_masked<S: SimdF32, N: KvFormat>(
        s: S,
        head: &HeadQuery,
        row: usize,
        values: ValueRows<'_, N::KvElement>,
    ) {
        for column in (0..head.head_dim).step_by(S::LANES) {
            let mut x = s.splat(0.0);
            // SAFETY: the caller's contract.
            unsafe {
                if head.fully_masked == FullyMasked::Uniform {
                    for key in 0..head.padded_len {
                        x = s.add(x, load::<S, N>(s, values.of_key(key).add(column)));
                    }
                    x = s.div(x, s.splat(head.padded_len.max(1) as f32));
                }
                head.store_out(s, row, column, x);
            }
        }
    }
);
