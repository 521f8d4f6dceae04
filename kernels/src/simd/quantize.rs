//! Rounding of floats to the words of rows that [`crate::simd::int8::Int8Dot`] multiplies, a vector of words at a time: for
//! instruction sets that can narrow four vectors to one.

use crate::simd::vector::SimdF32;
use pulp::Scalar;

/// Floats to words, as [`ActivationEncoding`](crate::simd::int8::Stored) has them.
///
/// The integers are those nearest to the elements, ties to even, which the caller has made small enough. Elements
/// `4 i..4 i + 4` are word [`word_of`]`(i)` of a vector: narrowing works on each 128 bits by themselves, and whoever
/// turns rows into columns afterwards can do without another shuffle.
pub(crate) trait Round: SimdF32 {
    /// One vector of the bits of magnitudes.
    type Magnitudes: Copy;

    /// All lanes 0.
    fn none(self) -> Self::Magnitudes;
    /// The larger of two magnitudes each, those of NaN being larger than any number's.
    fn larger(self, so_far: Self::Magnitudes, x: Self::F32) -> Self::Magnitudes;
    /// The largest of four vectors.
    fn largest(self, of: [Self::Magnitudes; 4]) -> i32;
    /// Bytes, 128 higher.
    fn bytes(self, x: [Self::F32; 4]) -> Self::F32;
    /// The high bytes of what is 32,768 higher, and the low bytes.
    fn digits(self, x: [Self::F32; 4]) -> [Self::F32; 2];
    /// Elements of 16 bits: the first and the third of each four, and the second and the fourth.
    fn pairs(self, x: [Self::F32; 4]) -> [Self::F32; 2];
    /// A vector of words in the order of their elements.
    fn in_order(self, words: Self::F32) -> Self::F32;
    /// Writes word `i` of each line, in the order of their elements, to `to + i * stride`, from the first one to the
    /// last.
    ///
    /// # Safety
    /// `to` is valid for writes of [`LINES`] words at each of `LANES` places.
    unsafe fn store_columns(self, lines: [Self::F32; LINES], to: *mut f32, stride: usize);
}

/// Lines of words that are turned together: as many words as 128 bits hold.
pub(crate) const LINES: usize = 4;

/// Which word of a vector of so many is that of step `step`.
#[inline(always)]
const fn word_of(step: usize, lanes: usize) -> usize {
    step % (lanes / 4) * 4 + step / (lanes / 4)
}

/// Eight lanes, in the same order as two times 128 bits.
const LANES: usize = <Scalar as SimdF32>::LANES;

/// The integers nearest to four vectors.
#[inline(always)]
fn integers(s: Scalar, x: [<Scalar as SimdF32>::F32; 4]) -> [[i32; LANES]; 4] {
    x.map(|x| {
        let mut floats = [0.0; LANES];
        // SAFETY: as many floats as lanes.
        unsafe { s.store(floats.as_mut_ptr(), x) };
        floats.map(|x| libm::rintf(x) as i32)
    })
}

/// Vectors of words: `word` makes one of each four integers.
#[inline(always)]
fn words(
    s: Scalar,
    x: [<Scalar as SimdF32>::F32; 4],
    word: impl Fn([i32; 4]) -> u32,
) -> <Scalar as SimdF32>::F32 {
    let mut words = [0.0; LANES];
    for (v, integers) in integers(s, x).iter().enumerate() {
        for (part, four) in integers.chunks_exact(4).enumerate() {
            let word = word([four[0], four[1], four[2], four[3]]);
            words[4 * part + v] = f32::from_bits(word);
        }
    }
    // SAFETY: as many floats as lanes.
    unsafe { s.load(words.as_ptr()) }
}

impl Round for Scalar {
    type Magnitudes = [i32; LANES];

    #[inline(always)]
    fn none(self) -> [i32; LANES] {
        [0; LANES]
    }
    #[inline(always)]
    fn larger(self, so_far: [i32; LANES], x: Self::F32) -> [i32; LANES] {
        let mut floats = [0.0f32; LANES];
        // SAFETY: as many floats as lanes.
        unsafe { self.store(floats.as_mut_ptr(), x) };
        let mut larger = so_far;
        for (larger, x) in larger.iter_mut().zip(floats) {
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
        words(self, x, |four| u32::from_le_bytes(four.map(|x| x as u8 ^ 0x80)))
    }
    #[inline(always)]
    fn digits(self, x: [Self::F32; 4]) -> [Self::F32; 2] {
        [
            words(self, x, |four| u32::from_le_bytes(four.map(|x| ((x + 0x8000) >> 8) as u8))),
            words(self, x, |four| u32::from_le_bytes(four.map(|x| x as u8))),
        ]
    }
    #[inline(always)]
    fn pairs(self, x: [Self::F32; 4]) -> [Self::F32; 2] {
        let pair =
            |first: i32, second: i32| u32::from(first as u16) | u32::from(second as u16) << 16;
        [
            words(self, x, |four| pair(four[0], four[2])),
            words(self, x, |four| pair(four[1], four[3])),
        ]
    }
    #[inline(always)]
    fn in_order(self, words: Self::F32) -> Self::F32 {
        let (mut from, mut to) = ([0.0; LANES], [0.0; LANES]);
        // SAFETY: as many floats as lanes.
        unsafe {
            self.store(from.as_mut_ptr(), words);
            for (step, to) in to.iter_mut().enumerate() {
                *to = from[word_of(step, LANES)];
            }
            self.load(to.as_ptr())
        }
    }
    #[inline(always)]
    unsafe fn store_columns(self, lines: [Self::F32; LINES], to: *mut f32, stride: usize) {
        let mut words = [[0.0; LANES]; LINES];
        for (words, line) in words.iter_mut().zip(lines) {
            // SAFETY: as many floats as lanes.
            unsafe { self.store(words.as_mut_ptr(), line) };
        }
        for step in 0..LANES {
            for (i, words) in words.iter().enumerate() {
                // SAFETY: the caller's contract.
                unsafe { *to.add(step * stride + i) = words[word_of(step, LANES)] };
            }
        }
    }
}
