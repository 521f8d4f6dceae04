//! Rounding of floats to words of bytes, a vector of words at a time: for instruction sets of
//! [`super::bytes::Bytes`] that can narrow four vectors to one.

use super::vector::Lanes;

/// Floats to words of four bytes, as rows that are stored [unsigned](super::bytes::Stored::Unsigned) want them.
///
/// Elements `4 i..4 i + 4` are word [`word_of`]`(i)` of a vector: narrowing works on each 128 bits by themselves, and
/// whoever turns rows into columns afterwards can do without another shuffle.
pub(crate) trait Round: Copy {
    /// The vectors of f32 that go with it.
    type Lanes: Lanes;
    /// One vector of the bits of magnitudes.
    type Magnitudes: Copy;

    /// The proof for [`Round::Lanes`].
    fn lanes(self) -> Self::Lanes;
    /// All lanes 0.
    fn none(self) -> Self::Magnitudes;
    /// The larger of two magnitudes each, those of NaN being larger than any number's.
    fn larger(self, so_far: Self::Magnitudes, x: <Self::Lanes as Lanes>::F32) -> Self::Magnitudes;
    /// The largest of four vectors.
    fn largest(self, of: [Self::Magnitudes; 4]) -> i32;
    /// The integers nearest to four vectors, ties to even, 128 higher as bytes; at most 127 in magnitude.
    fn bytes(self, x: [<Self::Lanes as Lanes>::F32; 4]) -> <Self::Lanes as Lanes>::F32;
    /// The same of integers of at most 32,639 in magnitude, 32,768 higher: the high bytes and the low ones.
    fn digits(self, x: [<Self::Lanes as Lanes>::F32; 4]) -> [<Self::Lanes as Lanes>::F32; 2];
    /// A vector of words in the order of their elements.
    fn in_order(self, words: <Self::Lanes as Lanes>::F32) -> <Self::Lanes as Lanes>::F32;
}

/// Which word of a vector of so many is that of step `step`.
#[inline(always)]
pub(crate) const fn word_of(step: usize, lanes: usize) -> usize {
    step % (lanes / 4) * 4 + step / (lanes / 4)
}

/// An instruction set for which there is none.
#[derive(Clone, Copy)]
pub(crate) enum Never {}

impl Round for Never {
    type Lanes = pulp::Scalar;
    type Magnitudes = ();

    #[inline(always)]
    fn lanes(self) -> pulp::Scalar {
        match self {}
    }
    #[inline(always)]
    fn none(self) {
        match self {}
    }
    #[inline(always)]
    fn larger(self, (): (), _: <pulp::Scalar as Lanes>::F32) {
        match self {}
    }
    #[inline(always)]
    fn largest(self, _: [(); 4]) -> i32 {
        match self {}
    }
    #[inline(always)]
    fn bytes(self, _: [<pulp::Scalar as Lanes>::F32; 4]) -> <pulp::Scalar as Lanes>::F32 {
        match self {}
    }
    #[inline(always)]
    fn digits(self, _: [<pulp::Scalar as Lanes>::F32; 4]) -> [<pulp::Scalar as Lanes>::F32; 2] {
        match self {}
    }
    #[inline(always)]
    fn in_order(self, _: <pulp::Scalar as Lanes>::F32) -> <pulp::Scalar as Lanes>::F32 {
        match self {}
    }
}
