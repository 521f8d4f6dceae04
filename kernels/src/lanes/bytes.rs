//! Products of bytes, four at a time into 32-bit sums: what a screen of a product needs beside f32.
//!
//! A trait of its own, as not every CPU with an instruction set of [`crate::Isa`] multiplies bytes
//! faster than floats; where it does not, plain Rust stands in, with the same results.

use super::vector::Lanes;
use pulp::Scalar;

/// The tallest tile of any instruction set.
pub(crate) const MAX_ROWS: usize = 12;

/// Sums of products of bytes, in vectors as long as those of f32.
///
/// # Safety
///
/// `Floats::LANES` lanes in `I32`; `load` touches exactly them; `ROWS <= MAX_ROWS`.
pub(crate) unsafe trait Bytes: Copy + Send + Sync + 'static {
    /// Rows of the tallest tile whose sums, beside one panel, fit the registers.
    const ROWS: usize;
    /// The vectors of f32 that go with it.
    type Floats: Lanes;
    /// One vector of i32.
    type I32: Copy;

    /// The proof for [`Bytes::Floats`].
    fn floats(self) -> Self::Floats;
    /// All lanes `x`.
    fn splat(self, x: i32) -> Self::I32;
    /// `LANES` words from `from`, any alignment.
    ///
    /// # Safety
    /// `from` is valid for reads of `LANES` words.
    unsafe fn load(self, from: *const i32) -> Self::I32;
    /// `sum + a0 b0 + a1 b1 + a2 b2 + a3 b3` in each lane, modulo `2^32`: the four bytes of `a` are
    /// unsigned, those of `b` signed.
    fn dot(self, sum: Self::I32, a: Self::I32, b: Self::I32) -> Self::I32;
    /// The nearest f32.
    fn to_f32(self, a: Self::I32) -> <Self::Floats as Lanes>::F32;
}

/// Work that multiplies bytes. Implementations are `#[inline(always)]`.
pub(crate) trait BytesKernel {
    type Output;
    /// `NV` vectors are 32 words, on every instruction set.
    fn run<B: Bytes, const NV: usize>(self, bytes: B) -> Self::Output;
}

// SAFETY: eight lanes, as in the scalar vectors of f32.
unsafe impl Bytes for Scalar {
    const ROWS: usize = 2;
    type Floats = Self;
    type I32 = [i32; 8];

    #[inline(always)]
    fn floats(self) -> Self {
        self
    }
    #[inline(always)]
    fn splat(self, x: i32) -> [i32; 8] {
        [x; 8]
    }
    #[inline(always)]
    unsafe fn load(self, from: *const i32) -> [i32; 8] {
        // SAFETY: the caller vouches for eight words.
        unsafe { from.cast::<[i32; 8]>().read_unaligned() }
    }
    #[inline(always)]
    fn dot(self, sum: [i32; 8], a: [i32; 8], b: [i32; 8]) -> [i32; 8] {
        core::array::from_fn(|lane| {
            let (a, b) = (a[lane].to_le_bytes(), b[lane].to_le_bytes());
            (0..4).fold(sum[lane], |sum, i| {
                sum.wrapping_add(i32::from(a[i]) * i32::from(b[i].cast_signed()))
            })
        })
    }
    #[inline(always)]
    fn to_f32(self, a: [i32; 8]) -> <Self as Lanes>::F32 {
        let floats = a.map(|x| x as f32);
        // SAFETY: eight floats.
        unsafe { Lanes::load(self, floats.as_ptr()) }
    }
}
