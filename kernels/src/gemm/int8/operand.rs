//! What a tile of bytes multiplies and adds up, for each way in which rows are stored.

use crate::gemm::microkernel::TileOperand;
use crate::simd::SimdF32;
use crate::simd::int8::{ActivationEncoding, Int8Dot};

/// A form whose sums are integers in the end. Implementations are `#[inline(always)]`.
pub(super) trait Integers: TileOperand<Element = i32, Weight = i32> {
    /// Words of a row for each step.
    const WORDS: usize;
    /// Vectors of registers that a vector of sums takes.
    const SUMS: usize;
    /// Whether a sum waits so long for a product that few rows want several of each.
    const WAITS: bool;
    /// Rows of the tallest tile.
    const TALL: usize;
    /// Rows of the tallest tile over whole panels.
    const WHOLE: usize;

    /// What all sums but one element's first begin with.
    fn zero(self) -> Self::Sum;
    /// What the sums of a vector of columns begin with, given their offsets.
    ///
    /// # Safety
    /// `offsets` is valid for reads of a vector.
    unsafe fn start(self, offsets: *const i32) -> Self::Sum;
    /// `a + b`.
    fn add(self, a: Self::Sum, b: Self::Sum) -> Self::Sum;
    /// The nearest f32.
    fn to_f32(self, sum: Self::Sum) -> <Self::SimdF32 as SimdF32>::F32;
}

/// Rows whose four elements of a step are one operand.
#[derive(Clone, Copy)]
pub(super) struct Single<B>(pub(super) B);

impl<B: Int8Dot> TileOperand for Single<B> {
    type SimdF32 = B::Floats;
    type Element = i32;
    type Weight = i32;
    type Vector = B::I8x4;
    type Sum = B::I32;
    const A_STATIONARY: bool = matches!(B::STORED, ActivationEncoding::Pairs);

    #[inline(always)]
    fn lanes(self) -> B::Floats {
        self.0.floats()
    }
    #[inline(always)]
    unsafe fn load(self, from: *const i32, _: usize) -> B::I8x4 {
        // SAFETY: the caller's contract.
        unsafe { self.0.load(from) }
    }
    #[inline(always)]
    unsafe fn broadcast(self, from: *const i32) -> B::I8x4 {
        // SAFETY: the caller's contract.
        unsafe { self.0.row(from) }
    }
    #[inline(always)]
    fn multiply_add(self, element: B::I8x4, weights: B::I8x4, sum: B::I32) -> B::I32 {
        self.0.dot(sum, element, weights)
    }
}

impl<B: Int8Dot> Integers for Single<B> {
    const WORDS: usize = if matches!(B::STORED, ActivationEncoding::Pairs) { 2 } else { 1 };
    const SUMS: usize = B::SUMS;
    // An addition by itself takes one cycle.
    const WAITS: bool = !matches!(B::STORED, ActivationEncoding::Pairs);
    const TALL: usize = B::TALL;
    const WHOLE: usize = B::ROWS;

    #[inline(always)]
    fn zero(self) -> B::I32 {
        self.0.zero()
    }
    #[inline(always)]
    unsafe fn start(self, offsets: *const i32) -> B::I32 {
        match B::STORED {
            // SAFETY: the caller's contract.
            ActivationEncoding::Unsigned => unsafe { self.0.load_sums(offsets) },
            ActivationEncoding::Signed | ActivationEncoding::Pairs => self.0.zero(),
        }
    }
    #[inline(always)]
    fn add(self, a: B::I32, b: B::I32) -> B::I32 {
        self.0.add(a, b)
    }
    #[inline(always)]
    fn to_f32(self, sum: B::I32) -> <B::Floats as SimdF32>::F32 {
        self.0.to_f32(sum)
    }
}

/// Rows of 16 bits as two of bytes: the weights are read once and multiplied with both.
#[derive(Clone, Copy)]
pub(super) struct Digits<B>(pub(super) B);

/// What belongs to high bytes and to low ones. Of weights, which both are multiplied with, it is twice the
/// same.
#[derive(Clone, Copy)]
pub(super) struct HighLow<T> {
    high: T,
    low: T,
}

impl<B: Int8Dot> TileOperand for Digits<B> {
    type SimdF32 = B::Floats;
    type Element = i32;
    type Weight = i32;
    type Vector = HighLow<B::I8x4>;
    type Sum = HighLow<B::I32>;

    #[inline(always)]
    fn lanes(self) -> B::Floats {
        self.0.floats()
    }
    #[inline(always)]
    unsafe fn load(self, from: *const i32, _: usize) -> HighLow<B::I8x4> {
        // SAFETY: the caller's contract.
        let weights = unsafe { self.0.load(from) };
        HighLow { high: weights, low: weights }
    }
    #[inline(always)]
    unsafe fn broadcast(self, from: *const i32) -> HighLow<B::I8x4> {
        // SAFETY: an element is two words.
        unsafe { HighLow { high: self.0.row(from), low: self.0.row(from.add(1)) } }
    }
    #[inline(always)]
    fn multiply_add(
        self,
        element: HighLow<B::I8x4>,
        weights: HighLow<B::I8x4>,
        sum: HighLow<B::I32>,
    ) -> HighLow<B::I32> {
        HighLow {
            high: self.0.dot(sum.high, element.high, weights.high),
            low: self.0.dot(sum.low, element.low, weights.low),
        }
    }
}

impl<B: Int8Dot> Integers for Digits<B> {
    const WORDS: usize = 2;
    const SUMS: usize = 2 * B::SUMS;
    const WAITS: bool = true;
    const TALL: usize = B::TALL / 2;
    const WHOLE: usize = B::ROWS / 2;

    #[inline(always)]
    fn zero(self) -> HighLow<B::I32> {
        HighLow { high: self.0.zero(), low: self.0.zero() }
    }
    #[inline(always)]
    unsafe fn start(self, offsets: *const i32) -> HighLow<B::I32> {
        // 32,768 times the sum of a column's bytes is 256 times its offset.
        // SAFETY: the caller's contract.
        let high = unsafe { Single(self.0).start(offsets) };
        HighLow { high, low: self.0.zero() }
    }
    #[inline(always)]
    fn add(self, a: HighLow<B::I32>, b: HighLow<B::I32>) -> HighLow<B::I32> {
        HighLow { high: self.0.add(a.high, b.high), low: self.0.add(a.low, b.low) }
    }
    #[inline(always)]
    fn to_f32(self, sum: HighLow<B::I32>) -> <B::Floats as SimdF32>::F32 {
        self.0.to_f32(self.0.join(sum.high, sum.low))
    }
}
