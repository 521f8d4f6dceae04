//! Int8 products whose lanes are rows in plain Rust.

use crate::arch::scalar::Scalar;
use crate::simd::int8::{Int8Dot, SimdI32};
use crate::simd::int8_lanes::{Int8Lanes, MANTISSA, ONE, WordForm};
use crate::simd::vector::SimdF32;

type F32 = <Scalar as SimdF32>::F32;

fn to_array(v: F32) -> [f32; 8] {
    let mut out = [0.0; 8];
    // SAFETY: `out` has eight floats.
    unsafe { Scalar.store(out.as_mut_ptr(), v) };
    out
}

fn from_bits(bits: [i32; 8]) -> F32 {
    let floats = bits.map(|bits| f32::from_bits(bits.cast_unsigned()));
    // SAFETY: `floats` has eight floats.
    unsafe { SimdF32::load(Scalar, floats.as_ptr()) }
}

#[inline(never)]
fn float_of_bits(bits: F32) -> [F32; 2] {
    // The numbers are so large that they are integers.
    let bits = to_array(bits).map(|bits| bits as i32);
    [from_bits(bits), from_bits(bits.map(|bits| bits & MANTISSA | ONE))]
}

#[inline(never)]
fn pack(elements: [F32; 4]) -> [i32; 8] {
    let mut words = [[0; 4]; 8];
    for (i, elements) in elements.into_iter().enumerate() {
        for (word, element) in words.iter_mut().zip(to_array(elements)) {
            word[i] = element.to_bits() as u8;
        }
    }
    words.map(i32::from_le_bytes)
}

// SAFETY: `Words` is `[i32; 8]`, with as many lanes as the f32 vector of `Scalar`; loads and stores access one such array.
unsafe impl Int8Lanes for Scalar {
    const FORM: WordForm = WordForm::Unsigned;
    const KEYS: usize = 1;
    type LaneFloats = Self;
    type Words = [i32; 8];
    type Totals = [i32; 8];

    #[inline(always)]
    fn lane_floats(self) -> Self {
        self
    }
    #[inline(always)]
    unsafe fn load_words(self, from: *const i32) -> [i32; 8] {
        // SAFETY: the caller's contract.
        unsafe { SimdI32::load_sums(self, from) }
    }
    #[inline(always)]
    unsafe fn store_words(self, to: *mut i32, words: [i32; 8]) {
        // SAFETY: the caller's contract.
        unsafe { to.cast::<[i32; 8]>().write_unaligned(words) }
    }
    #[inline(always)]
    fn splat_word(self, word: i32) -> [i32; 8] {
        [word; 8]
    }
    #[inline(always)]
    fn totals(self, start: [i32; 8]) -> [i32; 8] {
        start
    }
    #[inline(always)]
    fn add_products(self, sum: [i32; 8], unsigned: [i32; 8], signed: [i32; 8]) -> [i32; 8] {
        self.dot(sum, unsigned, signed)
    }
    #[inline(always)]
    fn totals_to_f32(self, sum: [i32; 8]) -> F32 {
        SimdI32::to_f32(self, sum)
    }
    #[inline(always)]
    fn float_of_bits(self, bits: F32) -> [F32; 2] {
        float_of_bits(bits)
    }
    #[inline(always)]
    fn pack(self, elements: [F32; 4]) -> [[i32; 8]; 2] {
        [pack(elements); 2]
    }
    #[inline(always)]
    fn signed(self, packed: [i32; 8]) -> [i32; 8] {
        packed.map(|word| word ^ i32::from_le_bytes([0x80; 4]))
    }
}
