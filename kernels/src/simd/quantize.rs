//! Converts floats to the words that [`crate::simd::int8::Int8Dot`] multiplies, a vector of words at a time, for
//! instruction sets that can narrow four vectors to one.

use crate::simd::vector::SimdF32;

/// Quantizes floats to words in an [`ActivationEncoding`](crate::simd::u8_activations::ActivationEncoding).
///
/// The integers are the nearest to the elements, ties to even. The caller scales the elements so that they fit.
/// Elements `4 i..4 i + 4` are word [`word_of`]`(i)` of a vector: narrowing works within each 128 bits, and this order
/// saves a shuffle in the code that transposes rows afterwards.
pub(crate) trait Round: SimdF32 {
    /// One vector of the bits of magnitudes, compared as integers.
    type Magnitudes: Copy;

    /// All lanes 0.
    fn none(self) -> Self::Magnitudes;
    /// The larger magnitude in each lane; a NaN is larger than every number.
    fn larger(self, so_far: Self::Magnitudes, x: Self::F32) -> Self::Magnitudes;
    /// The largest lane of four vectors.
    fn largest(self, of: [Self::Magnitudes; 4]) -> i32;
    /// 8-bit elements plus [`U8_OFFSET`](crate::simd::u8_activations::U8_OFFSET).
    fn bytes(self, x: [Self::F32; 4]) -> Self::F32;
    /// 16-bit elements plus 32,768: the high bytes, and the low bytes.
    fn digits(self, x: [Self::F32; 4]) -> [Self::F32; 2];
    /// 16-bit elements: the first and the third of each four, and the second and the fourth.
    fn pairs(self, x: [Self::F32; 4]) -> [Self::F32; 2];
    /// Reorders a vector of words to the order of their elements.
    fn in_order(self, words: Self::F32) -> Self::F32;
    /// Writes word `i` of each line to `to + i * stride`, for all `i` in the order of the elements. Line 0 comes
    /// first.
    ///
    /// # Safety
    /// `to` is valid for writes of [`LINES`] words at each of `LANES` offsets.
    unsafe fn store_columns(self, lines: [Self::F32; LINES], to: *mut f32, stride: usize);
}

/// Rows of words that are transposed at once: the number of words in 128 bits.
pub(crate) const LINES: usize = 4;

/// The word of a vector of `lanes` words that belongs to step `step`.
#[inline(always)]
pub(crate) const fn word_of(step: usize, lanes: usize) -> usize {
    step % (lanes / 4) * 4 + step / (lanes / 4)
}
