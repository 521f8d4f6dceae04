//! Quantizes keys, values and queries into the words of [`layout`](super::layout).
//!
//! The loops are plain: the compiler vectorizes them for the set that they are inlined into. No operation depends on the
//! width of a vector, so the bits are the same on every set.

use super::super::head_views::HeadRows;
use super::super::panels::ROWS_AHEAD;
use super::layout::{BLOCK, KvLayout};
use crate::gemm::{LEVELS, Rounding, magnitude, round};
use crate::prefetch::{CacheLevel, prefetch_rows};
use crate::simd::int8::Int8Dot;
use crate::simd::int8_lanes::{MAX_KEYS, WordForm};
use crate::simd::{MAX_LANES, SimdF32, simd_op};

/// Keys from which on only a part of them is averaged for the center, which may be any vector.
const CENTER_KEYS: usize = 64;

/// The row `index` of `elements` floats.
///
/// # Safety
/// The row exists and is borrowed for reads during `'a`.
#[inline(always)]
unsafe fn row<'a>(rows: HeadRows, index: usize, elements: usize) -> &'a [f32] {
    // SAFETY: the caller's contract.
    unsafe { core::slice::from_raw_parts(rows.at.wrapping_add(index * rows.stride), elements) }
}

/// Prefetches the row some rows after `index`: the rows of a head are too short for the hardware prefetcher.
#[inline(always)]
fn prefetch<B: Int8Dot>(b: B, rows: HeadRows, index: usize, elements: usize) {
    let at = rows.at.wrapping_add((index + ROWS_AHEAD).wrapping_mul(rows.stride));
    prefetch_rows(b.lane_floats(), CacheLevel::L1, (at, rows.stride, 1), elements);
}

/// The scale of `largest`, 0 for a row with an element that is not finite, and the factor before rounding.
#[inline(always)]
fn scale_of(largest: i32) -> (f32, f32, bool) {
    let Rounding { scale, inverse } = Rounding::new(largest, LEVELS);
    let bad = scale.is_nan();
    (if bad { 0.0 } else { scale }, inverse.unwrap_or(0.0), bad)
}

/// Writes the words of `row` less `center` as a key.
#[inline(always)]
fn write_key<B: Int8Dot>(words: &mut [i32], row: &[f32], center: &[f32], inverse: f32) {
    let at = words.as_mut_ptr();
    match B::FORM {
        WordForm::Halves => {
            // SAFETY: the same words as halves.
            let halves =
                unsafe { core::slice::from_raw_parts_mut(at.cast::<u16>(), 2 * words.len()) };
            for ((to, x), center) in halves.iter_mut().zip(row).zip(center) {
                *to = i16::from(round(x - center, inverse) as i8).cast_unsigned();
            }
            halves[row.len()..].fill(0);
        }
        WordForm::Unsigned | WordForm::Signed => {
            let sign = if matches!(B::FORM, WordForm::Unsigned) { 0x80 } else { 0 };
            // SAFETY: the same words as bytes.
            let bytes =
                unsafe { core::slice::from_raw_parts_mut(at.cast::<u8>(), 4 * words.len()) };
            for ((to, x), center) in bytes.iter_mut().zip(row).zip(center) {
                *to = round(x - center, inverse) as u8 ^ sign;
            }
            bytes[row.len()..].fill(sign);
        }
    }
}

simd_op!(
    /// Quantizes the `keys` keys and values of one head into the words at `to`. Keys are less their mean if `center`.
    ///
    /// # Safety
    /// The rows of `key` and `value` can be read, and the words of `layout` at `to` can be written; no other code
    /// accesses these words.
    pub(super) unsafe fn quantize_head<B: Int8Dot, const NV: usize, const TV: usize>(
        b: B,
        layout: KvLayout,
        key: HeadRows,
        value: HeadRows,
        keys: usize,
        head_dim: usize,
        center: bool,
        to: *mut f32,
    ) {
        // SAFETY: the parts of `layout` are disjoint, and nothing else accesses them.
        let (words, scales, columns) = unsafe {
            let part = |at: usize, len| core::slice::from_raw_parts_mut(to.add(at), len);
            let words = core::slice::from_raw_parts_mut(to.cast::<i32>(), keys * layout.steps);
            (words, part(layout.key_scales, keys + MAX_KEYS), part(layout.columns, head_dim))
        };
        columns.fill(0.0);
        if center && keys > 0 {
            let step = (keys / CENTER_KEYS).max(1);
            let share = 1.0 / keys.div_ceil(step) as f32;
            let sampled = HeadRows { stride: key.stride.wrapping_mul(step), ..key };
            for index in (0..keys).step_by(step) {
                prefetch(b, sampled, index / step, head_dim);
                // SAFETY: the key exists, by the contract of this function.
                let row = unsafe { row(key, index, head_dim) };
                for (mean, x) in columns.iter_mut().zip(row) {
                    *mean += x * share;
                }
            }
        }
        let mut first_bad = usize::MAX;
        for index in 0..keys {
            prefetch(b, key, index, head_dim);
            // Ahead of the pass over the values.
            prefetch(b, value, index, head_dim);
            // SAFETY: as above.
            let row = unsafe { row(key, index, head_dim) };
            let largest =
                row.iter().zip(&*columns).map(|(x, mean)| magnitude(x - mean)).fold(0, i32::max);
            let (scale, inverse, bad) = scale_of(largest);
            scales[index] = scale;
            if bad && first_bad == usize::MAX {
                first_bad = index;
            }
            let words = &mut words[index * layout.steps..][..layout.steps];
            write_key::<B>(words, row, columns, inverse);
        }
        scales[keys..].fill(0.0);
        // SAFETY: the word exists, and it is not one of the slices.
        unsafe {
            let bad = first_bad.min(u32::MAX as usize) as u32;
            to.add(layout.first_bad).cast::<u32>().write(bad);
        }

        let elements = const { B::FORM.elements() };
        for (block, first) in (0..keys).step_by(BLOCK).enumerate() {
            let count = (keys - first).min(BLOCK);
            let place = block * head_dim;
            // SAFETY: the parts of `layout` for this block. The scales are first the largest magnitudes.
            let (largest, scales) = unsafe {
                let scales = to.add(layout.value_scales + place);
                (
                    core::slice::from_raw_parts_mut(columns.as_mut_ptr().cast::<i32>(), head_dim),
                    core::slice::from_raw_parts_mut(scales, head_dim),
                )
            };
            largest.fill(0);
            for index in first..first + count {
                // SAFETY: the value exists, by the contract of this function.
                let row = unsafe { row(value, index, head_dim) };
                for (largest, &x) in largest.iter_mut().zip(row) {
                    *largest = (*largest).max(magnitude(x));
                }
            }
            for (largest, scale) in largest.iter_mut().zip(scales) {
                let rounding = Rounding::new(*largest, LEVELS);
                *scale = rounding.scale;
                *largest = rounding.inverse.unwrap_or(0.0).to_bits().cast_signed();
            }
            let inverses = &*columns;
            let group_words = BLOCK / elements * head_dim;
            // SAFETY: as above.
            let words = unsafe {
                let at = to.add(layout.values).cast::<i32>().add(block * group_words);
                core::slice::from_raw_parts_mut(at, count.div_ceil(elements) * head_dim)
            };
            for (group, words) in words.chunks_exact_mut(head_dim).enumerate() {
                let start = first + group * elements;
                let mask = |i: usize| if start + i < first + count { -1 } else { 0 };
                // SAFETY: as above; a missing value is replaced by the last one, and then masked.
                let rows = [0, 1, 2, 3].map(|i: usize| unsafe {
                    row(value, (start + i).min(first + count - 1), head_dim)
                });
                write_values::<B>(words, rows, [mask(0), mask(1), mask(2), mask(3)], inverses);
            }
            if matches!(B::FORM, WordForm::Signed) {
                // SAFETY: as above.
                let starts = unsafe {
                    let starts = to.add(layout.value_starts + place).cast::<i32>();
                    core::slice::from_raw_parts_mut(starts, head_dim)
                };
                starts.fill(0);
                for words in words.chunks_exact(head_dim) {
                    for (start, word) in starts.iter_mut().zip(words) {
                        let [a, b, c, d] = word.to_le_bytes().map(|x| i32::from(x.cast_signed()));
                        *start += 128 * (a + b + c + d);
                    }
                }
            }
        }
    }
);

/// Writes the words of consecutive values, one for each column.
#[inline(always)]
fn write_values<B: Int8Dot>(
    words: &mut [i32],
    [a, b, c, d]: [&[f32]; 4],
    mask: [i32; 4],
    inverses: &[f32],
) {
    let n = words.len();
    let (a, b, c, d, inverses) = (&a[..n], &b[..n], &c[..n], &d[..n], &inverses[..n]);
    for i in 0..n {
        let inverse = inverses[i];
        let level = |x: f32, mask: i32| i32::from(round(x, inverse)) & mask;
        words[i] = match B::FORM {
            WordForm::Halves => {
                let half = |x, mask| level(x, mask) << 24 >> 24 & 0xffff;
                half(a[i], mask[0]) | half(b[i], mask[1]) << 16
            }
            WordForm::Unsigned | WordForm::Signed => {
                let byte = |x, mask| level(x, mask) & 0xff;
                byte(a[i], mask[0])
                    | byte(b[i], mask[1]) << 8
                    | byte(c[i], mask[2]) << 16
                    | byte(d[i], mask[3]) << 24
            }
        };
    }
}

/// The queries of a tile, in the scratch.
#[derive(Clone, Copy)]
pub(super) struct QueryTile {
    pub(super) words: *mut i32,
    pub(super) starts: *mut i32,
    pub(super) factors: *mut f32,
}

/// Words of a query that are quantized before they are written to their lanes.
const ROW_WORDS: usize = 64;

/// Quantizes `count` queries into the lanes of a tile of `lanes`; the other lanes are zeros. A factor is the scale of a
/// query times the magnitude of `scale`, NaN if the query is not
/// finite.
///
/// # Safety
/// The rows can be read, and the parts of the tile can be written: `lanes` words for each of the words of a query, starts
/// and factors; also `LANES * ROW_WORDS` floats at `buffer`, whose content is ignored.
#[inline(always)]
pub(super) unsafe fn quantize_queries<B: Int8Dot>(
    b: B,
    (query, count): (HeadRows, usize),
    (head_dim, scale): (usize, f32),
    to: QueryTile,
    lanes: usize,
    buffer: *mut f32,
) {
    let s = b.lane_floats();
    let vector = B::Floats::LANES;
    let elements = const { B::FORM.elements() };
    let steps = head_dim.div_ceil(elements);
    let words_of = |lane: usize| buffer.wrapping_add(lane * ROW_WORDS).cast::<i32>();
    for group in (0..lanes).step_by(vector) {
        let rows = count.saturating_sub(group).min(vector);
        let mut inverses = [0.0; MAX_LANES];
        let mut sums = [0i32; MAX_LANES];
        for lane in 0..vector {
            let mut factor = 0.0;
            if lane < rows {
                // SAFETY: the caller's contract.
                let row = unsafe { row(query, group + lane, head_dim) };
                let largest = row.iter().map(|&x| magnitude(x)).fold(0, i32::max);
                let rounding = Rounding::new(largest, LEVELS);
                // The factor is not negative, so that the largest score has the largest weight.
                inverses[lane] = rounding.inverse.unwrap_or(0.0).copysign(scale);
                factor = rounding.scale * scale.abs();
            }
            // SAFETY: the caller's contract.
            unsafe { *to.factors.add(group + lane) = factor };
        }
        for first in (0..steps).step_by(ROW_WORDS) {
            let width = (steps - first).min(ROW_WORDS);
            for lane in 0..vector {
                // SAFETY: the caller's contract.
                let words = unsafe { core::slice::from_raw_parts_mut(words_of(lane), width) };
                if lane < rows {
                    // SAFETY: as above.
                    let row = unsafe { row(query, group + lane, head_dim) };
                    let end = ((first + width) * elements).min(head_dim);
                    let sum = write_query::<B>(words, &row[first * elements..end], inverses[lane]);
                    sums[lane] = sums[lane].wrapping_add(sum);
                } else {
                    words.fill(0);
                }
            }
            for step in (0..width).step_by(vector) {
                let (from, to) = (buffer.wrapping_add(step), to.words.cast::<f32>());
                let to = to.wrapping_add((first + step) * lanes + group);
                if width - step >= vector {
                    // SAFETY: the caller's contract.
                    unsafe { s.transpose(from, ROW_WORDS, to, lanes) };
                    continue;
                }
                for step in 0..width - step {
                    for lane in 0..vector {
                        // SAFETY: as above.
                        unsafe {
                            *to.add(step * lanes + lane) = *from.add(lane * ROW_WORDS + step)
                        };
                    }
                }
            }
        }
        for (lane, sum) in sums.iter().enumerate().take(vector) {
            let unsigned = matches!(B::FORM, WordForm::Unsigned);
            let start = if unsigned { sum.wrapping_mul(-128) } else { 0 };
            // SAFETY: the caller's contract.
            unsafe { *to.starts.add(group + lane) = start };
        }
    }
}

/// Writes the words of a query, and returns the sum of its integers.
#[inline(always)]
fn write_query<B: Int8Dot>(words: &mut [i32], x: &[f32], inverse: f32) -> i32 {
    let at = words.as_mut_ptr();
    let mut sum = 0;
    if matches!(B::FORM, WordForm::Halves) {
        // SAFETY: the same words as halves.
        let halves = unsafe { core::slice::from_raw_parts_mut(at.cast::<u16>(), 2 * words.len()) };
        for (to, &x) in halves.iter_mut().zip(x) {
            *to = i16::from(round(x, inverse) as i8).cast_unsigned();
        }
        halves[x.len()..].fill(0);
    } else {
        // SAFETY: the same words as bytes.
        let bytes = unsafe { core::slice::from_raw_parts_mut(at.cast::<u8>(), 4 * words.len()) };
        for (to, &x) in bytes.iter_mut().zip(x) {
            let byte = round(x, inverse) as u8;
            sum += i32::from(byte.cast_signed());
            *to = byte;
        }
        bytes[x.len()..].fill(0);
    }
    sum
}
