//! Int8 products, four at a time, added into 32-bit sums: the operations that int8 GEMM and the pruned argmax need in
//! addition to f32.
//!
//! This is a separate trait because int8 multiplication is not fixed by an instruction set of [`crate::Isa`]: CPUs
//! with AVX2, AVX-512 or NEON may have instructions for it; on the others the code converts int8 to 16 bits and
//! multiplies pairs of 16-bit numbers. All sums are exact modulo `2^32`, so all variants return the same results.

use crate::arch::scalar::Scalar;
use crate::simd::int8_lanes::Int8Lanes;
use crate::simd::quantize::Round;
use crate::simd::u8_activations::ActivationEncoding;
use crate::simd::vector::SimdF32;

/// The largest MR of any instruction set.
pub(crate) const MAX_MR: usize = 12;

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
    /// All lanes 0.
    fn zero(self) -> Self::I32;
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

/// Int8 products, added to the sums of a [`SimdI32`].
///
/// # Safety
///
/// Loads access exactly the words that they document; `ROWS <= MAX_MR`, `TALL <= MAX_MR`.
pub(crate) unsafe trait Int8Dot: Int8Lanes<LaneFloats = Self::Floats> {
    /// The largest MR with which the sums of a tile, one panel wide, fit the registers.
    const ROWS: usize;
    /// The largest MR with which the sums of a tile fit the registers, if the tile is as wide as a GEMM tile, which
    /// may be only a part of a panel.
    const TALL: usize;
    /// The encoding of rows that [`Int8Dot::row`] expects.
    const STORED: ActivationEncoding;
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

    /// The two pairs of 16-bit numbers in each lane, in the order of [`ActivationEncoding::Pairs`]. Only sets with that encoding have this
    /// function and the next two.
    fn pairs(self, _of: Self::I8x4) -> [Self::I32; 2] {
        unreachable!("a set that multiplies bytes")
    }
    /// The word at `from`, one pair of a row, in all lanes.
    ///
    /// # Safety
    /// `from` is valid for reads of one word.
    unsafe fn row_pair(self, _from: *const i32) -> Self::I32 {
        unreachable!("a set that multiplies bytes")
    }
    /// `sum + a0 b0 + a1 b1` in each lane, modulo `2^32`; `a` from `row_pair`, `b` from `pairs`.
    fn dot_pair(self, _sum: Self::I32, _a: Self::I32, _b: Self::I32) -> Self::I32 {
        unreachable!("a set that multiplies bytes")
    }
}

/// Work with int8 products. Implementations are `#[inline(always)]`.
pub(crate) trait Int8Op {
    type Output;
    /// `NV` vectors are 32 words, the width of a panel on every instruction set. `TV` vectors are the width of a tile
    /// of [`Int8Dot::TALL`] rows.
    fn run<B: Int8Dot, const NV: usize, const TV: usize>(self, bytes: B) -> Self::Output;
}
