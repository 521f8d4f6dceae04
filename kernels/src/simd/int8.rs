//! Int8 products, four at a time, added into 32-bit sums: the operations that int8 GEMM, the pruned argmax and int8
//! attention need in addition to f32.
//!
//! This is a separate trait because int8 multiplication is not fixed by an instruction set of [`crate::Isa`]: CPUs
//! with AVX2, AVX-512 or NEON may have instructions for it; on the others the code converts int8 to 16 bits and
//! multiplies pairs of 16-bit numbers. All sums are exact modulo `2^32`, so all variants return the same results.
//!
//! Int8 attention has rows in lanes: a vector holds a word of each of `LANES` queries, and is multiplied with one word of a
//! key or of a column of values, which all queries share. Of the two, weights and keys are integers in `0..=255`, those of
//! keys with an offset of 128; queries and values are signed.

use crate::arch::scalar::Scalar;
use crate::simd::quantize::Round;
use crate::simd::u8_activations::ActivationEncoding;
use crate::simd::vector::SimdF32;

/// The largest MR of any instruction set.
pub(crate) const MAX_MR: usize = 12;

/// What a word of lanes holds.
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

/// The most [`Int8Dot::KEYS`].
pub(crate) const MAX_KEYS: usize = 8;

/// Vectors of i32, which hold sums of int8 products. All sums are modulo `2^32`.
///
/// # Safety
///
/// `I32` has `Floats::LANES` lanes; loads access exactly these lanes.
pub(crate) unsafe trait SimdI32: Copy + Send + Sync + 'static {
    /// Vector registers in one vector of sums.
    const REGISTERS: usize = 1;
    /// The f32 vectors of the same instruction set.
    type Floats: SimdF32;
    /// One vector of i32.
    type I32: Copy;

    /// The token of [`SimdI32::Floats`].
    fn floats(self) -> Self::Floats;
    /// `x` in all lanes.
    fn splat_i32(self, x: i32) -> Self::I32;
    /// Loads `LANES` sums from `from`, any alignment.
    ///
    /// # Safety
    /// `from` is valid for reads of `LANES` words.
    unsafe fn load_sums(self, from: *const i32) -> Self::I32;
    /// `a + b`.
    fn add(self, a: Self::I32, b: Self::I32) -> Self::I32;
    /// `256 * high + low`.
    fn join(self, high: Self::I32, low: Self::I32) -> Self::I32;
    /// Converts each lane to the nearest f32.
    fn to_f32(self, a: Self::I32) -> <Self::Floats as SimdF32>::F32;
    /// The token that quantizes rows to vectors of words, if this set has one. Such a set never uses
    /// [signed](ActivationEncoding::Signed) rows; all others do.
    #[inline(always)]
    fn rounds(self) -> Option<impl Round> {
        None::<Scalar>
    }
}

/// A vector of f32 of the set `B`.
pub(crate) type FloatVector<B> = <<B as Int8Dot>::Floats as SimdF32>::F32;

/// Int8 products, added to the sums of a [`SimdI32`].
///
/// # Safety
///
/// Loads and stores access exactly the words that they document; `Words` has `Floats::LANES` lanes of 32 bits;
/// `ROWS <= MAX_MR`, `TALL <= MAX_MR`, `KEYS <= MAX_KEYS`.
pub(crate) unsafe trait Int8Dot: Copy + Send + Sync + 'static {
    /// The largest MR with which the sums of a tile, one panel wide, fit the registers.
    const ROWS: usize;
    /// The largest MR with which the sums of a tile fit the registers, if the tile is as wide as a GEMM tile, which
    /// may be only a part of a panel.
    const TALL: usize;
    /// The encoding of rows that [`Int8Dot::row`] expects.
    const STORED: ActivationEncoding;
    /// What a word of lanes holds.
    const FORM: WordForm;
    /// Keys, or columns of values, of a tile whose lanes are queries.
    const KEYS: usize;
    /// [`SimdI32::REGISTERS`].
    const SUMS: usize = Self::Sums::REGISTERS;
    /// [`SimdI32::Floats`].
    type Floats: SimdF32;
    /// [`SimdI32::I32`].
    type I32: Copy;
    /// The vectors of sums.
    type Sums: SimdI32<Floats = Self::Floats, I32 = Self::I32>;
    /// One vector with four bytes in each lane, in the form that `dot` multiplies.
    type I8x4: Copy;
    /// A vector of words.
    type Words: Copy;

    /// The token of [`Int8Dot::Sums`].
    fn sums(self) -> Self::Sums;
    /// As [`SimdF32::call_noinline`], compiled with the int8 instructions.
    fn call_noinline<K: Int8Op>(self, kernel: K) -> K::Output;
    /// Loads `LANES` words of signed bytes from `from`, any alignment.
    ///
    /// # Safety
    /// `from` is valid for reads of `LANES` words.
    unsafe fn load(self, from: *const i32) -> Self::I8x4;
    /// Four elements of a row, encoded as [`Int8Dot::STORED`], in all lanes.
    ///
    /// # Safety
    /// `from` is valid for reads of one word, or of two words with [`ActivationEncoding::Pairs`].
    unsafe fn row(self, from: *const i32) -> Self::I8x4;
    /// `sum + a0 b0 + a1 b1 + a2 b2 + a3 b3` in each lane, modulo `2^32`; `a` from `row`, `b` from `load`.
    fn dot(self, sum: Self::I32, a: Self::I8x4, b: Self::I8x4) -> Self::I32;

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
    /// `sum + unsigned . signed` in each lane, of words of [`Int8Dot::pack`] and of [`Int8Dot::signed`].
    fn add_products(self, sum: Self::I32, unsigned: Self::Words, signed: Self::Words) -> Self::I32;
    /// Rounds numbers of a magnitude below `2^31` to integers and returns the floats with these bits, and their mantissas
    /// in `1..2`.
    fn float_of_bits(self, bits: FloatVector<Self>) -> [FloatVector<Self>; 2];
    /// The unsigned words of four elements, of which each is an integer in `0..=255` plus [`BYTE`]. With
    /// [`WordForm::Halves`] there are two words, otherwise both are the same.
    fn pack(self, elements: [FloatVector<Self>; 4]) -> [Self::Words; 2];
    /// The signed words with the elements of `packed` less 128.
    fn signed(self, packed: Self::Words) -> Self::Words;

    /// The two pairs of 16-bit numbers in each lane, in the order of [`ActivationEncoding::Pairs`]. Only sets with that
    /// encoding have this function.
    fn pairs(self, _of: Self::I8x4) -> [Self::Words; 2] {
        unreachable!("a set that multiplies bytes")
    }
}

/// Work with int8 products. Implementations are `#[inline(always)]`.
pub(crate) trait Int8Op {
    type Output;
    /// `NV` vectors are 32 words, the width of a panel on every instruction set. `TV` vectors are the width of a tile
    /// of [`Int8Dot::TALL`] rows.
    fn run_with<B: Int8Dot, const NV: usize, const TV: usize>(self, bytes: B) -> Self::Output;
}
