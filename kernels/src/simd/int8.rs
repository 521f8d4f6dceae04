//! Int8 products, four at a time, added into 32-bit sums: the operations that int8 GEMM and the pruned argmax need in
//! addition to f32.
//!
//! This is a separate trait because int8 multiplication is not fixed by an instruction set of [`crate::Isa`]: CPUs
//! with AVX2, AVX-512 or NEON may have instructions for it; on the others the code converts int8 to 16 bits and
//! multiplies pairs of 16-bit numbers. All sums are exact modulo `2^32`, so all variants return the same results.

use crate::arch::scalar::Scalar;
use crate::simd::quantize::Round;
use crate::simd::vector::SimdF32;

/// The largest MR of any instruction set.
pub(crate) const MAX_MR: usize = 12;

/// How activations are stored, in words of four consecutive elements.
#[derive(Clone, Copy)]
#[allow(dead_code, reason = "each architecture has some of them")]
pub(crate) enum ActivationEncoding {
    /// 8-bit elements plus 128. 16-bit elements plus 32,768, as a high and a low byte.
    Unsigned,
    /// 8-bit elements, signed. 16-bit elements as `256 * high + low`.
    Signed,
    /// 16-bit elements: a word with the first and the third, then a word with the second and the fourth.
    Pairs,
}

/// Sums of int8 products, in vectors with as many lanes as those of f32.
///
/// # Safety
///
/// `I32` has `Floats::LANES` lanes; loads access exactly these lanes; `ROWS <= MAX_MR`, `TALL <= MAX_MR`.
pub(crate) unsafe trait Int8Dot: Copy + Send + Sync + 'static {
    /// The largest MR with which the sums of a tile, one panel wide, fit the registers.
    const ROWS: usize;
    /// The largest MR with which the sums of a tile fit the registers, if the tile is as wide as a GEMM tile, which
    /// may be only a part of a panel.
    const TALL: usize;
    /// The encoding of rows that [`Int8Dot::row`] expects.
    const STORED: ActivationEncoding;
    /// Vector registers in one vector of sums.
    const SUMS: usize;
    /// The f32 vectors of the same instruction set.
    type Floats: SimdF32;
    /// One vector of i32.
    type I32: Copy;
    /// One vector with four bytes in each lane, in the form that `dot` multiplies.
    type I8x4: Copy;

    /// The token of [`Int8Dot::Floats`].
    fn floats(self) -> Self::Floats;
    /// As [`SimdF32::call_noinline`], compiled with the int8 instructions.
    fn call_noinline<K: Int8Op>(self, kernel: K) -> K::Output;
    /// All lanes 0.
    fn zero(self) -> Self::I32;
    /// Loads `LANES` sums from `from`, any alignment.
    ///
    /// # Safety
    /// `from` is valid for reads of `LANES` words.
    unsafe fn load_sums(self, from: *const i32) -> Self::I32;
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
    /// `a + b`, modulo `2^32`.
    fn add(self, a: Self::I32, b: Self::I32) -> Self::I32;
    /// `256 * high + low`, modulo `2^32`.
    fn join(self, high: Self::I32, low: Self::I32) -> Self::I32;
    /// Converts each lane to the nearest f32.
    fn to_f32(self, a: Self::I32) -> <Self::Floats as SimdF32>::F32;
    /// The token that quantizes rows to vectors of words, if this set has one. Such a set never uses
    /// [signed](ActivationEncoding::Signed) rows.
    #[inline(always)]
    fn rounds(self) -> Option<impl Round> {
        None::<Scalar>
    }
}

/// Work with int8 products. Implementations are `#[inline(always)]`.
pub(crate) trait Int8Op {
    type Output;
    /// `NV` vectors are 32 words, the width of a panel on every instruction set. `TV` vectors are the width of a tile
    /// of [`Int8Dot::TALL`] rows.
    fn run<B: Int8Dot, const NV: usize, const TV: usize>(self, bytes: B) -> Self::Output;
}

/// [`Int8Dot::dot`] of the scalar set. A separate function, because inlined it would add 32 multiplications for each
/// vector of every tile.
#[inline(never)]
fn dot(mut sums: [i32; 8], a: [i32; 8], b: [i32; 8]) -> [i32; 8] {
    for (lane, sum) in sums.iter_mut().enumerate() {
        let (a, b) = (a[lane].to_le_bytes(), b[lane].to_le_bytes());
        for i in 0..4 {
            *sum = sum.wrapping_add(i32::from(a[i]) * i32::from(b[i].cast_signed()));
        }
    }
    sums
}

// SAFETY: `Self::I32` is `[i32; 8]`, with as many lanes as the f32 vector of `Scalar`, and loads read one such array;
// `ROWS` and `TALL` are at most `MAX_MR`.
unsafe impl Int8Dot for Scalar {
    const ROWS: usize = 2;
    const TALL: usize = 2;
    const STORED: ActivationEncoding = ActivationEncoding::Unsigned;
    const SUMS: usize = 1;
    type Floats = Self;
    type I32 = [i32; 8];
    type I8x4 = [i32; 8];

    #[inline(always)]
    fn floats(self) -> Self {
        self
    }
    #[inline(never)]
    fn call_noinline<K: Int8Op>(self, kernel: K) -> K::Output {
        kernel.run::<Self, 4, 4>(self)
    }
    #[inline(always)]
    fn zero(self) -> [i32; 8] {
        [0; 8]
    }
    #[inline(always)]
    unsafe fn load_sums(self, from: *const i32) -> [i32; 8] {
        // SAFETY: the contract of `load_sums`: a vector, eight words, can be read.
        unsafe { from.cast::<[i32; 8]>().read_unaligned() }
    }
    #[inline(always)]
    unsafe fn load(self, from: *const i32) -> [i32; 8] {
        // SAFETY: the caller's contract.
        unsafe { self.load_sums(from) }
    }
    #[inline(always)]
    unsafe fn row(self, from: *const i32) -> [i32; 8] {
        // SAFETY: the caller's contract.
        [unsafe { *from }; 8]
    }
    #[inline(always)]
    fn dot(self, sum: [i32; 8], a: [i32; 8], b: [i32; 8]) -> [i32; 8] {
        dot(sum, a, b)
    }
    #[inline(always)]
    fn add(self, a: [i32; 8], b: [i32; 8]) -> [i32; 8] {
        let mut sums = a;
        for (sum, b) in sums.iter_mut().zip(b) {
            *sum = sum.wrapping_add(b);
        }
        sums
    }
    #[inline(always)]
    fn join(self, high: [i32; 8], low: [i32; 8]) -> [i32; 8] {
        let mut sums = low;
        for (sum, high) in sums.iter_mut().zip(high) {
            *sum = sum.wrapping_add(high.wrapping_mul(256));
        }
        sums
    }
    #[inline(always)]
    fn to_f32(self, a: [i32; 8]) -> <Self as SimdF32>::F32 {
        let floats = a.map(|x| x as f32);
        // SAFETY: `floats` has eight floats.
        unsafe { SimdF32::load(self, floats.as_ptr()) }
    }
    #[inline(always)]
    fn rounds(self) -> Option<impl Round> {
        Some(self)
    }
}
