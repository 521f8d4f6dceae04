//! Products of bytes, four at a time into 32-bit sums: what products of rounded matrices, and the screen of
//! a product, need beside f32.
//!
//! A trait of its own, as what multiplies bytes is more than an instruction set of [`crate::Isa`]: CPUs
//! with AVX2, AVX-512 or NEON may have instructions for it, or widen bytes and multiply pairs of 16 bits.
//! All sums are exact modulo `2^32`, so all of them have the same results.

use crate::simd::quantize::Round;
use crate::simd::vector::SimdF32;
use pulp::Scalar;

/// The tallest tile of any instruction set.
pub(crate) const MAX_MR: usize = 12;

/// How the rows of a product are stored, four consecutive elements at a time.
#[derive(Clone, Copy)]
#[allow(dead_code, reason = "each architecture has some of them")]
pub(crate) enum ActivationEncoding {
    /// Bytes 128 higher than they are; elements of 16 bits as a high and a low one, 32,768 higher.
    Unsigned,
    /// Bytes; elements of 16 bits as `256 * high + low`.
    Signed,
    /// Elements of 16 bits: the first and the third, then the second and the fourth.
    Pairs,
}

/// Sums of products of bytes, in vectors as long as those of f32.
///
/// # Safety
///
/// `Floats::LANES` lanes in `I32`; loads touch exactly them; `ROWS <= MAX_MR`, `TALL <= MAX_MR`.
pub(crate) unsafe trait Int8Dot: Copy + Send + Sync + 'static {
    /// Rows of the tallest tile whose sums, beside one panel, fit the registers.
    const ROWS: usize;
    /// Rows of the tallest tile whose sums, beside the part of a panel that a tile of a product has, fit
    /// the registers.
    const TALL: usize;
    /// How [`Int8Dot::row`] expects a row.
    const STORED: ActivationEncoding;
    /// Vectors of registers that a vector of sums takes.
    const SUMS: usize;
    /// The vectors of f32 that go with it.
    type Floats: SimdF32;
    /// One vector of i32.
    type I32: Copy;
    /// One vector of four bytes a lane, ready to be multiplied.
    type I8x4: Copy;

    /// The proof for [`Int8Dot::Floats`].
    fn floats(self) -> Self::Floats;
    /// As [`SimdF32::call_noinline`], with what multiplies bytes.
    fn call_noinline<K: Int8Op>(self, kernel: K) -> K::Output;
    /// All lanes 0.
    fn zero(self) -> Self::I32;
    /// `LANES` sums from `from`, any alignment.
    ///
    /// # Safety
    /// `from` is valid for reads of `LANES` words.
    unsafe fn load_sums(self, from: *const i32) -> Self::I32;
    /// `LANES` words of signed bytes from `from`, any alignment.
    ///
    /// # Safety
    /// `from` is valid for reads of `LANES` words.
    unsafe fn load(self, from: *const i32) -> Self::I8x4;
    /// Four bytes, stored 128 higher than they are, in all lanes; what [`Int8Dot::start`] gives makes them
    /// signed.
    fn splat(self, word: i32) -> Self::I8x4;
    /// Four elements of a row, as [`Int8Dot::STORED`] says, in all lanes.
    ///
    /// # Safety
    /// `from` is valid for reads of a word, of two for [`ActivationEncoding::Pairs`].
    unsafe fn row(self, from: *const i32) -> Self::I8x4;
    /// What a sum of products with [`Int8Dot::splat`] begins with, if `offset` is -128 times the sum of a
    /// column's bytes.
    fn start(self, offset: Self::I32) -> Self::I32;
    /// `sum + a0 b0 + a1 b1 + a2 b2 + a3 b3` in each lane, modulo `2^32`: `a` from a row, `b` loaded.
    fn dot(self, sum: Self::I32, a: Self::I8x4, b: Self::I8x4) -> Self::I32;
    /// `a + b`, modulo `2^32`.
    fn add(self, a: Self::I32, b: Self::I32) -> Self::I32;
    /// `256 * high + low`, modulo `2^32`.
    fn join(self, high: Self::I32, low: Self::I32) -> Self::I32;
    /// The nearest f32.
    fn to_f32(self, a: Self::I32) -> <Self::Floats as SimdF32>::F32;
    /// What rounds rows to vectors of words, if this set has it; such a set has no [signed](ActivationEncoding::Signed) rows.
    #[inline(always)]
    fn rounds(self) -> Option<impl Round> {
        None::<Scalar>
    }
}

/// Work that multiplies bytes. Implementations are `#[inline(always)]`.
pub(crate) trait Int8Op {
    type Output;
    /// `NV` vectors are 32 words, a panel, on every instruction set, and `TV` are the part of it that a
    /// tile of [`Int8Dot::TALL`] rows has.
    fn run<B: Int8Dot, const NV: usize, const TV: usize>(self, bytes: B) -> Self::Output;
}

/// [`Int8Dot::dot`] of the scalar set: a function of its own, or every tile would hold 32 multiplications for each of its
/// vectors.
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

// SAFETY: `Self::I32` is `[i32; 8]`, as many lanes as `Scalar` has of f32, and loads read one of
// it; `ROWS` and `TALL` are at most `MAX_MR`.
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
        // SAFETY: `load_sums` requires that a vector can be read: eight words.
        unsafe { from.cast::<[i32; 8]>().read_unaligned() }
    }
    #[inline(always)]
    unsafe fn load(self, from: *const i32) -> [i32; 8] {
        // SAFETY: the caller's contract.
        unsafe { self.load_sums(from) }
    }
    #[inline(always)]
    fn splat(self, word: i32) -> [i32; 8] {
        [word; 8]
    }
    #[inline(always)]
    unsafe fn row(self, from: *const i32) -> [i32; 8] {
        // SAFETY: the caller's contract.
        [unsafe { *from }; 8]
    }
    #[inline(always)]
    fn start(self, offset: [i32; 8]) -> [i32; 8] {
        offset
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
        // SAFETY: eight floats.
        unsafe { SimdF32::load(self, floats.as_ptr()) }
    }
    #[inline(always)]
    fn rounds(self) -> Option<impl Round> {
        Some(self)
    }
}
