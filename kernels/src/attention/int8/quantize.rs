//! Quantizes keys, values and queries into the words of [`layout`](super::layout).
//!
//! Lanes are rows for queries and keys, and columns for values. So no maximum crosses lanes, and four vectors of consecutive
//! elements make a vector of words. No operation depends on the width of a vector: the bits are the same on every set.

use super::super::head_views::HeadRows;
use super::super::panels::ROWS_AHEAD;
use super::layout::{BLOCK, KvBlock, KvLayout};
use crate::gemm::{LEVELS, MIN_AMAX};
use crate::prefetch::{CacheLevel, prefetch_rows};
use crate::rows::{RowVector, map_row};
use crate::simd::int8::{BYTE, FloatVector, Int8Dot, SimdI32, WordForm};
use crate::simd::{MAX_LANES, SimdF32, array_of, simd_op};
use core::mem::MaybeUninit;

/// Keys from which on only a part of them is averaged for the center, which may be any vector.
const CENTER_KEYS: usize = 64;

/// Columns of rows that are transposed at once.
const COLUMNS: usize = 128;

/// Space for the transposed columns.
pub(super) type Columns = [MaybeUninit<f32>; COLUMNS * MAX_LANES];

/// The largest magnitude of the elements that were seen in each lane, in two independent parts.
#[derive(Clone, Copy)]
struct Largest<B: Int8Dot> {
    magnitude: [FloatVector<B>; 2],
    /// NaN if an element is not finite, otherwise 0.
    poison: [FloatVector<B>; 2],
}

impl<B: Int8Dot> Largest<B> {
    #[inline(always)]
    fn new(b: B) -> Self {
        let zeros = [b.sums().floats().splat(0.0); 2];
        Self { magnitude: zeros, poison: zeros }
    }

    /// Counts an element in part `i`, which is a constant of the loop.
    #[inline(always)]
    fn add(&mut self, b: B, i: usize, x: FloatVector<B>) {
        let s = b.sums().floats();
        self.magnitude[i] = s.max(self.magnitude[i], s.abs(x));
        self.poison[i] = s.mul_add(x, s.splat(0.0), self.poison[i]);
    }

    /// The scale, NaN if an element is not finite, and the factor before rounding, as
    /// [`Rounding`](crate::gemm::Rounding) has them.
    #[inline(always)]
    fn rounding(self, b: B) -> [FloatVector<B>; 2] {
        let (s, levels) = (b.sums().floats(), b.sums().floats().splat(LEVELS as f32));
        let largest = s.max(self.magnitude[0], self.magnitude[1]);
        let zeros = s.less(largest, s.splat(MIN_AMAX));
        let scale = s.select(zeros, s.splat(0.0), s.div(largest, levels));
        let inverse = s.select(zeros, s.splat(0.0), s.div(levels, largest));
        [s.add(scale, s.add(self.poison[0], self.poison[1])), inverse]
    }
}

/// The words of four elements, rounded, as [`Int8Dot::pack`] returns them.
#[inline(always)]
fn round<B: Int8Dot>(b: B, x: [FloatVector<B>; 4], inverse: FloatVector<B>) -> [B::Words; 2] {
    let s = b.sums().floats();
    let mut rounded = x;
    for x in &mut rounded {
        *x = s.add(s.mul(*x, inverse), s.splat(BYTE + 128.0));
    }
    b.pack(rounded)
}

/// Stores `factor` times the sums, as words. They are so small that the result is exact.
///
/// # Safety
/// `to` is valid for writes of a vector.
#[inline(always)]
unsafe fn store_starts<B: Int8Dot>(b: B, sums: B::I32, factor: f32, to: *mut i32) {
    let s = b.sums().floats();
    let product = s.mul(b.sums().to_f32(sums), s.splat(factor));
    // SAFETY: the caller's contract.
    unsafe { s.store(to.cast(), b.float_of_bits(product)[0]) };
}

/// A word of ones.
pub(super) const fn ones(form: WordForm) -> i32 {
    if matches!(form, WordForm::Halves) { 0x0001_0001 } else { 0x0101_0101 }
}

/// Rows of elements, which become the lanes of words.
#[derive(Clone, Copy)]
pub(super) struct LaneRows {
    pub(super) rows: HeadRows,
    /// Rows that exist. The others are zeros.
    pub(super) count: usize,
    pub(super) head_dim: usize,
    /// What is subtracted from column `i` is at `i * center.1`.
    pub(super) center: (*const f32, usize),
    /// The scale is multiplied with the magnitude of this number, and the integers with its sign.
    pub(super) factor: f32,
}

/// Where the words of a vector of rows are written.
#[derive(Clone, Copy)]
pub(super) struct LaneWords {
    /// Words of a row are `stride` words apart.
    pub(super) words: *mut i32,
    pub(super) stride: usize,
    pub(super) scales: *mut f32,
    /// For queries, whose words are signed: where scores start.
    pub(super) starts: Option<*mut i32>,
}

simd_op!(
    /// Quantizes a vector of rows. A scale is NaN if an element of the row is not finite.
    ///
    /// # Safety
    /// `count` rows and the center can be read. The words and a vector of scales and of starts can be written.
    pub(super) unsafe fn quantize_lanes<B: Int8Dot, const NV: usize, const TV: usize>(
        b: B,
        from: LaneRows,
        to: LaneWords,
        buffer: &mut Columns,
    ) {
        let (s, lanes) = (b.sums().floats(), B::Floats::LANES);
        let LaneRows { rows, count, head_dim, center, factor } = from;
        let buffer = buffer.as_mut_ptr().cast::<f32>();
        let mut block = [0.0; MAX_LANES * MAX_LANES];
        let elements = const { B::FORM.elements() };
        let per_group = const { 4 / B::FORM.elements() };
        let ones = b.splat_word(ones(B::FORM));
        let mut largest = Largest::new(b);
        let (mut inverse, zero) = (s.splat(0.0), s.splat(0.0));
        let mut finite = s.less(zero, zero);
        let mut sums = b.sums().splat_i32(0);
        // SAFETY: the contract of this function; `buffer` has `COLUMNS` vectors and `block` one for each lane.
        unsafe {
            for rounds in [false, true] {
                for first in (0..head_dim).step_by(COLUMNS) {
                    let columns = (head_dim - first).min(COLUMNS);
                    if !rounds || head_dim > COLUMNS {
                        for column in (0..columns).step_by(lanes) {
                            let width = (columns - column).min(lanes);
                            let mut at = (rows.at.wrapping_add(first + column), rows.stride);
                            if width < lanes || count < lanes {
                                for (lane, to) in
                                    block.chunks_exact_mut(lanes).enumerate().take(lanes)
                                {
                                    let row = at.0.wrapping_add(lane * at.1);
                                    let exists = lane < count;
                                    let x = if exists { s.load_prefix(row, width) } else { zero };
                                    s.store(to.as_mut_ptr(), x);
                                }
                                at = (block.as_ptr(), lanes);
                            }
                            s.transpose(at.0, at.1, buffer.add(column * lanes), lanes);
                        }
                        for i in (0..columns).step_by(2) {
                            for part in 0..2 {
                                let i = i + part;
                                if i < columns {
                                    let center = s.splat(*center.0.add((first + i) * center.1));
                                    let x = s.sub(s.load(buffer.add(i * lanes)), center);
                                    s.store(buffer.add(i * lanes), x);
                                    largest.add(b, part, x);
                                }
                            }
                        }
                    }
                    if !rounds {
                        continue;
                    }
                    for i in (0..columns).step_by(4) {
                        // Columns after the last one are zeros, because `transpose` writes whole vectors.
                        // The scores of a row that is not finite are 0, so that they hide no key.
                        let x = array_of!(j in 4 => {
                            s.select(finite, s.load(buffer.add((i + j) * lanes)), zero)
                        });
                        let words = round(b, x, inverse);
                        let step = (first + i) / elements;
                        for (j, &word) in words.iter().enumerate().take(per_group) {
                            if per_group > 1 && i + j * elements >= columns {
                                break;
                            }
                            let word = if to.starts.is_some() { b.signed(word) } else { word };
                            b.store_words(to.words.add((step + j) * to.stride), word);
                            sums = b.add_products(sums, ones, word);
                        }
                    }
                }
                if !rounds {
                    let [scale, unsigned] = largest.rounding(b);
                    finite = s.less(scale, s.splat(f32::MAX));
                    s.store(to.scales, s.mul(scale, s.splat(factor.abs())));
                    // The factor is not negative, so that the largest score has the largest weight.
                    let unsigned = s.select(finite, unsigned, zero);
                    inverse = s.copy_sign(unsigned, s.splat(factor));
                }
            }
            if let Some(starts) = to.starts
                && !matches!(B::FORM, WordForm::Signed)
            {
                store_starts(b, sums, -128.0, starts);
            }
        }
    }
);

simd_op!(
    /// Writes the mean of the keys, or of a part of them.
    ///
    /// # Safety
    /// The keys, at least one, can be read, and a row of floats written.
    unsafe fn average_keys<S: SimdF32>(s: S, key: HeadRows, size: [usize; 2], mean: *mut f32) {
        let [keys, head_dim] = size;
        let step = (keys / CENTER_KEYS).max(1);
        let share = s.splat(1.0 / keys.div_ceil(step) as f32);
        for index in (0..keys).step_by(step) {
            let row = key.at.wrapping_add(index * key.stride);
            let next = row.wrapping_add((ROWS_AHEAD * step).wrapping_mul(key.stride));
            prefetch_rows(s, CacheLevel::L1, (next, 0, 1), head_dim);
            // SAFETY: the contract of this function.
            unsafe {
                map_row::<S, 1, 1>(
                    s,
                    head_dim,
                    [mean],
                    &[],
                    #[inline(always)]
                    |at| [s.add(at.load(s, mean), s.mul(at.load(s, row), share))],
                );
            }
        }
    }
);

simd_op!(
    /// Quantizes the keys and values of one head, `operands` of `size`, into the words at `to`. Keys are less their mean if
    /// `center`.
    ///
    /// # Safety
    /// The rows of the operands can be read, and the words of `layout` at `to` can be written; no other code
    /// accesses these words.
    pub(super) unsafe fn quantize_head<B: Int8Dot, const NV: usize, const TV: usize>(
        b: B,
        layout: KvLayout,
        operands: [HeadRows; 2],
        size: [usize; 2],
        center: bool,
        to: *mut f32,
    ) {
        let ([key, value], [keys, head_dim]) = (operands, size);
        let (s, lanes) = (b.sums().floats(), B::Floats::LANES);
        let mean = to.wrapping_add(layout.center);
        let mut buffer = [MaybeUninit::uninit(); COLUMNS * MAX_LANES];
        let mut first_bad = u32::MAX;
        let rows = |rows: HeadRows, index: usize| HeadRows {
            at: rows.at.wrapping_add(index * rows.stride),
            ..rows
        };
        // SAFETY: the contract of this function. The parts of a layout are disjoint.
        unsafe {
            mean.write_bytes(0, head_dim);
            if center && keys > 0 {
                s.call_noinline(average_keys(key, size, mean));
            }
            for first in (0..keys).step_by(BLOCK) {
                let (block, end) = (layout.block(to, first), keys.min(first + BLOCK));
                for index in (first..end).step_by(lanes) {
                    let count = (end - index).min(lanes);
                    for next in [rows(key, index + lanes), rows(value, index)] {
                        prefetch_rows(s, CacheLevel::L1, (next.at, next.stride, count), head_dim);
                    }
                    let from = LaneRows {
                        rows: rows(key, index),
                        count,
                        head_dim,
                        center: (mean, 1),
                        factor: 1.0,
                    };
                    let place = index - first;
                    let scales = block.key_scales.add(place);
                    let to = LaneWords {
                        words: block.keys.add(place),
                        stride: BLOCK,
                        scales,
                        starts: None,
                    };
                    b.call_noinline(quantize_lanes(from, to, &mut buffer));
                    if s.any(s.not_less(s.load(scales), s.splat(f32::MAX))) {
                        let scales = core::slice::from_raw_parts_mut(scales, count);
                        first_bad = first_bad.min(index as u32 + clear_bad_scales(scales));
                    }
                }
                let (value, size) = (rows(value, first), (end - first, head_dim));
                quantize_values(b, block, layout.columns, value, size, buffer.as_mut_ptr().cast());
            }
            *layout.first_bad(to) = first_bad;
        }
    }
);

/// Replaces scales that are NaN by 0, and returns the number of the first one.
#[inline(never)]
fn clear_bad_scales(scales: &mut [f32]) -> u32 {
    let first = scales.iter().position(|scale| scale.is_nan()).unwrap_or(scales.len());
    for scale in scales {
        *scale = if scale.is_nan() { 0.0 } else { *scale };
    }
    first as u32
}

/// Quantizes a block of `count` values. A vector of columns is copied to `buffer`, because the rows of a head often are at the
/// same place of a cache, which holds few of them.
///
/// # Safety
/// That of [`quantize_head`], for these values and for `to`; `buffer` is valid for writes of `BLOCK` vectors.
#[inline(always)]
unsafe fn quantize_values<B: Int8Dot>(
    b: B,
    to: KvBlock,
    stride: usize,
    value: HeadRows,
    (count, head_dim): (usize, usize),
    buffer: *mut f32,
) {
    let (s, lanes) = (b.sums().floats(), B::Floats::LANES);
    let per_group = const { 4 / B::FORM.elements() };
    let ones = b.splat_word(ones(B::FORM));
    for column in (0..head_dim).step_by(lanes) {
        let at = RowVector::rest::<B::Floats>(column, head_dim);
        // SAFETY: the caller's contract.
        unsafe {
            let mut largest = Largest::new(b);
            for i in (0..count).step_by(2) {
                for part in 0..2 {
                    let row = (i + part).min(count - 1);
                    let x = at.load(s, value.at.wrapping_add(row * value.stride));
                    largest.add(b, part, x);
                    s.store(buffer.add((i + part) * lanes), x);
                }
            }
            for missing in count..count.next_multiple_of(4) {
                s.store(buffer.add(missing * lanes), s.splat(0.0));
            }
            let [scale, inverse] = largest.rounding(b);
            s.store(to.value_scales.add(column), scale);
            let mut sums = b.sums().splat_i32(0);
            for group in 0..count.div_ceil(4) {
                let x = array_of!(i in 4 => s.load(buffer.add((group * 4 + i) * lanes)));
                for (i, &word) in round(b, x, inverse).iter().enumerate().take(per_group) {
                    let word = b.signed(word);
                    b.store_words(to.values.add((group * per_group + i) * stride + column), word);
                    sums = b.add_products(sums, word, ones);
                }
            }
            if matches!(B::FORM, WordForm::Signed) {
                store_starts(b, sums, 128.0, to.value_starts.add(column));
            }
        }
    }
}
