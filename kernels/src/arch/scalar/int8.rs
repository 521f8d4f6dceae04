//! Int8 products in plain Rust.

use crate::arch::scalar::Scalar;
use crate::simd::int8::{Int8Dot, Int8Op, SimdI32};
use crate::simd::quantize::Round;
use crate::simd::u8_activations::ActivationEncoding;
use crate::simd::vector::SimdF32;

/// [`Int8Dot::dot`]. A separate function, because inlined it would add 32 multiplications for each vector of every tile.
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

// SAFETY: `Self::I32` is `[i32; 8]`, with as many lanes as the f32 vector of `Scalar`, and a load reads one such array.
unsafe impl SimdI32 for Scalar {
    type Floats = Self;
    type I32 = [i32; 8];

    #[inline(always)]
    fn floats(self) -> Self {
        self
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
    fn add(self, a: [i32; 8], b: [i32; 8]) -> [i32; 8] {
        let mut sums = a;
        for (sum, b) in sums.iter_mut().zip(b) {
            *sum = sum.wrapping_add(b);
        }
        sums
    }
    #[inline(always)]
    fn join(self, high: [i32; 8], low: [i32; 8]) -> [i32; 8] {
        SimdI32::add(self, high.map(|high| high.wrapping_mul(256)), low)
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

// SAFETY: loads read one array of eight words, or one word; `ROWS` and `TALL` are at most `MAX_MR`.
unsafe impl Int8Dot for Scalar {
    int8_items!(2, 2, Unsigned, |set| set => Self, [i32; 8]);

    #[inline(never)]
    fn call_noinline<K: Int8Op>(self, kernel: K) -> K::Output {
        kernel.run::<Self, 4, 4>(self)
    }
    #[inline(always)]
    unsafe fn load(self, from: *const i32) -> [i32; 8] {
        // SAFETY: the caller's contract.
        unsafe { SimdI32::load_sums(self, from) }
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
}
