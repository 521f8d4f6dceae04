//! Int8 products whose lanes are rows, as int8 attention needs them: a vector holds a word of each of `LANES` queries, and
//! is multiplied with one word of a key or of a column of values, which all queries share. Of the two, weights and keys are
//! integers in `0..=255`, those of keys with an offset of 128; queries and values are signed.
//!
//! All sums are exact modulo `2^32`, so all sets return the same results, whatever a word is on them.

use crate::simd::vector::SimdF32;

/// What a word holds.
#[derive(Clone, Copy, PartialEq, Eq)]
#[allow(dead_code, reason = "each architecture has some of them")]
pub(crate) enum WordForm {
    /// Four bytes: u8 times i8. A score starts at -128 times the sum of its query.
    Unsigned,
    /// Four signed bytes on both sides: unsigned elements less 128. A weighted sum starts at 128 times the sum of its
    /// values.
    Signed,
    /// Two signed 16-bit halves on both sides. A score starts as with [`WordForm::Unsigned`].
    Halves,
}

impl WordForm {
    /// Elements of a word.
    pub(crate) const fn elements(self) -> usize {
        if matches!(self, Self::Halves) { 2 } else { 4 }
    }
}

/// Adding it to a float of at most 255 rounds the float to an integer, which is then in the low byte.
pub(crate) const BYTE: f32 = 8_388_608.0; // 2^23

/// Bits of the mantissa of a float.
pub(crate) const MANTISSA: i32 = 0x7f_ffff;

/// The bits of 1.0.
pub(crate) const ONE: i32 = 0x3f80_0000;

/// Products of words in lanes.
///
/// # Safety
///
/// `Words` has `Floats::LANES` lanes of 32 bits; loads and stores access exactly one vector; `KEYS <= MAX_KEYS`.
pub(crate) unsafe trait Int8Lanes: Copy + Send + Sync + 'static {
    /// What a word holds.
    const FORM: WordForm;
    /// Keys, or columns of values, of a tile.
    const KEYS: usize;
    /// The f32 vectors of the same instruction set.
    type LaneFloats: SimdF32;
    /// A vector of words.
    type Words: Copy;
    /// A vector of sums of products.
    type Totals: Copy;

    /// The token of [`Int8Lanes::LaneFloats`].
    fn lane_floats(self) -> Self::LaneFloats;
    /// A vector of words.
    ///
    /// # Safety
    /// `from` is valid for reads of `LANES` words.
    unsafe fn load_words(self, from: *const i32) -> Self::Words;
    /// Stores a vector of words.
    ///
    /// # Safety
    /// `to` is valid for writes of `LANES` words.
    unsafe fn store_words(self, to: *mut i32, words: Self::Words);
    /// A word in all lanes.
    fn splat_word(self, word: i32) -> Self::Words;
    /// Sums that start at these numbers.
    fn totals(self, start: Self::Words) -> Self::Totals;
    /// `sum + unsigned . signed` in each lane, of words of [`Int8Lanes::pack`] and of [`Int8Lanes::signed`].
    fn add_products(
        self,
        sum: Self::Totals,
        unsigned: Self::Words,
        signed: Self::Words,
    ) -> Self::Totals;
    /// The nearest f32 of each sum.
    fn totals_to_f32(self, sum: Self::Totals) -> <Self::LaneFloats as SimdF32>::F32;
    /// Rounds numbers of a magnitude below `2^31` to integers and returns the floats with these bits, and their mantissas
    /// in `1..2`.
    fn float_of_bits(
        self,
        bits: <Self::LaneFloats as SimdF32>::F32,
    ) -> [<Self::LaneFloats as SimdF32>::F32; 2];
    /// The unsigned words of four elements, of which each is an integer in `0..=255` plus [`BYTE`]. With
    /// [`WordForm::Halves`] there are two words, otherwise both are the same.
    fn pack(self, elements: [<Self::LaneFloats as SimdF32>::F32; 4]) -> [Self::Words; 2];
    /// The signed words with the elements of `packed` less 128.
    fn signed(self, packed: Self::Words) -> Self::Words;
}

/// The most [`Int8Lanes::KEYS`].
pub(crate) const MAX_KEYS: usize = 8;
