//! Quantizes floats to words of bytes in plain Rust.

use crate::arch::scalar::Scalar;
#[cfg(not(vectors = "x86_64"))]
use crate::arch::scalar::portable::{from_array, to_array};
#[cfg(vectors = "x86_64")]
use crate::arch::scalar::sse2::{from_array, to_array};
use crate::simd::quantize::{LINES, Round, word_of};
use crate::simd::vector::SimdF32;

/// Eight lanes, in the order of two 128-bit halves.
const LANES: usize = <Scalar as SimdF32>::LANES;

/// The integers nearest to the floats of four vectors.
#[inline(always)]
fn integers(x: [<Scalar as SimdF32>::F32; 4]) -> [[i32; LANES]; 4] {
    x.map(|x| to_array(x).map(|x| libm::rintf(x) as i32))
}

/// Makes a vector of words; `word` makes one word of four integers.
#[inline(always)]
fn words(
    x: [<Scalar as SimdF32>::F32; 4],
    word: impl Fn([i32; 4]) -> u32,
) -> <Scalar as SimdF32>::F32 {
    let mut words = [0.0; LANES];
    for (v, integers) in integers(x).iter().enumerate() {
        for (part, four) in integers.chunks_exact(4).enumerate() {
            let word = word([four[0], four[1], four[2], four[3]]);
            words[4 * part + v] = f32::from_bits(word);
        }
    }
    from_array(words)
}

impl Round for Scalar {
    type Magnitudes = [i32; LANES];

    #[inline(always)]
    fn none(self) -> [i32; LANES] {
        [0; LANES]
    }
    #[inline(always)]
    fn larger(self, so_far: [i32; LANES], x: Self::F32) -> [i32; LANES] {
        let mut larger = so_far;
        for (larger, x) in larger.iter_mut().zip(to_array(x)) {
            *larger = (x.to_bits() & 0x7fff_ffff).cast_signed().max(*larger);
        }
        larger
    }
    #[inline(always)]
    fn largest(self, of: [[i32; LANES]; 4]) -> i32 {
        of.into_iter().flatten().fold(0, i32::max)
    }
    #[inline(always)]
    fn bytes(self, x: [Self::F32; 4]) -> Self::F32 {
        words(x, |four| u32::from_le_bytes(four.map(|x| x as u8 ^ 0x80)))
    }
    #[inline(always)]
    fn digits(self, x: [Self::F32; 4]) -> [Self::F32; 2] {
        [
            words(x, |four| u32::from_le_bytes(four.map(|x| ((x + 0x8000) >> 8) as u8))),
            words(x, |four| u32::from_le_bytes(four.map(|x| x as u8))),
        ]
    }
    #[inline(always)]
    fn pairs(self, x: [Self::F32; 4]) -> [Self::F32; 2] {
        let pair =
            |first: i32, second: i32| u32::from(first as u16) | u32::from(second as u16) << 16;
        [words(x, |four| pair(four[0], four[2])), words(x, |four| pair(four[1], four[3]))]
    }
    #[inline(always)]
    fn in_order(self, words: Self::F32) -> Self::F32 {
        let words = to_array(words);
        from_array(core::array::from_fn(|step| words[word_of(step, LANES)]))
    }
    #[inline(always)]
    unsafe fn store_columns(self, lines: [Self::F32; LINES], to: *mut f32, stride: usize) {
        let words = lines.map(to_array);
        for step in 0..LANES {
            for (i, words) in words.iter().enumerate() {
                // SAFETY: the caller's contract.
                unsafe { *to.add(step * stride + i) = words[word_of(step, LANES)] };
            }
        }
    }
}
