//! Int8 products in plain Rust.

use crate::arch::scalar::Scalar;
#[cfg(not(vectors = "x86_64"))]
use crate::arch::scalar::portable::{from_array, to_array};
#[cfg(vectors = "x86_64")]
use crate::arch::scalar::sse2::{from_array, to_array};
use crate::simd::int8::{Int8Dot, Int8Op, MANTISSA, ONE, SimdI32, WordForm};
use crate::simd::quantize::Round;
use crate::simd::u8_activations::ActivationEncoding;
use crate::simd::vector::SimdF32;

type F32 = <Scalar as SimdF32>::F32;

fn from_bits(bits: [i32; 8]) -> F32 {
    from_array(bits.map(|bits| f32::from_bits(bits.cast_unsigned())))
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
    fn splat_i32(self, x: i32) -> [i32; 8] {
        [x; 8]
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
        from_array(a.map(|x| x as f32))
    }
    #[inline(always)]
    fn rounds(self) -> Option<impl Round> {
        Some(self)
    }
}

// SAFETY: loads and stores access one array of eight words, or one word; the constants are at most `MAX_MR` and `MAX_KEYS`.
unsafe impl Int8Dot for Scalar {
    int8_items!(2, 2, Unsigned, |set| set => Self, [i32; 8]);
    const FORM: WordForm = WordForm::Unsigned;
    const KEYS: usize = 1;
    type Words = [i32; 8];

    #[inline(never)]
    fn call_noinline<K: Int8Op>(self, kernel: K) -> K::Output {
        kernel.run_with::<Self, 4, 4>(self)
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
    fn add_products(self, sum: [i32; 8], unsigned: [i32; 8], signed: [i32; 8]) -> [i32; 8] {
        self.dot(sum, unsigned, signed)
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
