//! The operands of an int8 product, and those of a tile for each layout of the rows.

use super::quantized_activations::QuantizedActivations;
use super::weights::QuantizedMatrix;
use crate::gemm::microkernel::TileOperand;
use crate::gemm::store_tile::Store;
use crate::simd::SimdF32;
use crate::simd::int8::{Int8Dot, SimdI32};
use crate::simd::u8_activations::ActivationEncoding;
use core::ops::Range;

/// A part of a product: some tiles of rows times some panels.
#[derive(Clone)]
pub(super) struct Int8Range<'a> {
    pub(super) rows: &'a QuantizedActivations<'a>,
    pub(super) weight: &'a QuantizedMatrix<'a>,
    pub(super) store: &'a Store,
    pub(super) tiles: Range<usize>,
    pub(super) panels: Range<usize>,
}

/// A row of sums, as f32, with its scales.
#[inline(always)]
pub(super) fn scale_line<S: SimdF32, const NV: usize>(
    s: S,
    mut line: [S::F32; NV],
    column_scales: &[S::F32; NV],
    row_scale: f32,
) -> [S::F32; NV] {
    let row_scale = s.splat(row_scale);
    for (x, &column_scale) in line.iter_mut().zip(column_scales) {
        *x = s.mul(s.mul(*x, column_scale), row_scale);
    }
    line
}

/// An operand with integer sums. Implementations are `#[inline(always)]`.
pub(crate) trait Integers: TileOperand<Element = i32, Weight = i32> {
    /// Words of a row per step.
    const WORDS: usize;
    /// Registers that one vector of sums takes.
    const SUMS: usize;
    /// Whether the latency of an accumulation is so long that few rows need several sums per element.
    const LATENCY_BOUND: bool;
    /// Whether weights are converted before they are multiplied by several tiles (`widened.rs`).
    const WIDENS: bool = false;
    /// Rows of the tallest tile.
    const TALL: usize;
    /// Rows of the tallest tile that covers a whole panel.
    const WHOLE_PANEL_ROWS: usize;

    /// The zero sum.
    fn zero(self) -> Self::Sum;
    /// The initial sums of a vector of columns, from their offsets.
    ///
    /// # Safety
    /// `offsets` is valid for reads of a vector.
    unsafe fn start(self, offsets: *const i32) -> Self::Sum;
    /// `a + b`.
    fn add(self, a: Self::Sum, b: Self::Sum) -> Self::Sum;
    /// The nearest f32.
    fn to_f32(self, sum: Self::Sum) -> <Self::SimdF32 as SimdF32>::F32;
}

/// Rows whose four elements of a step are one operand of the multiplication.
#[derive(Clone, Copy)]
pub(crate) struct Single<B>(pub(crate) B);

impl<B: Int8Dot> TileOperand for Single<B> {
    type SimdF32 = B::Floats;
    type Element = i32;
    type Weight = i32;
    type Vector = B::I8x4;
    type Sum = B::I32;
    const A_STATIONARY: bool = matches!(B::STORED, ActivationEncoding::Pairs);

    #[inline(always)]
    fn lanes(self) -> B::Floats {
        self.0.sums().floats()
    }
    #[inline(always)]
    unsafe fn load(self, from: *const i32, _: usize) -> B::I8x4 {
        // SAFETY: `# Safety` of the trait method.
        unsafe { self.0.load(from) }
    }
    #[inline(always)]
    unsafe fn broadcast(self, from: *const i32) -> B::I8x4 {
        // SAFETY: `# Safety` of the trait method.
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
    // With `Pairs` the addition is a separate instruction with a latency of one cycle.
    const LATENCY_BOUND: bool = !matches!(B::STORED, ActivationEncoding::Pairs);
    // With enough registers a tile of all rows covers a whole panel, and is as tall as if the weights were converted before.
    const WIDENS: bool = matches!(B::STORED, ActivationEncoding::Pairs) && B::ROWS < B::TALL;
    const TALL: usize = B::TALL;
    const WHOLE_PANEL_ROWS: usize = B::ROWS;

    #[inline(always)]
    fn zero(self) -> B::I32 {
        self.0.sums().splat_i32(0)
    }
    #[inline(always)]
    unsafe fn start(self, offsets: *const i32) -> B::I32 {
        match B::STORED {
            // SAFETY: `# Safety` of the trait method.
            ActivationEncoding::Unsigned => unsafe { self.0.sums().load_sums(offsets) },
            ActivationEncoding::Signed | ActivationEncoding::Pairs => self.0.sums().splat_i32(0),
        }
    }
    #[inline(always)]
    fn add(self, a: B::I32, b: B::I32) -> B::I32 {
        self.0.sums().add(a, b)
    }
    #[inline(always)]
    fn to_f32(self, sum: B::I32) -> <B::Floats as SimdF32>::F32 {
        self.0.sums().to_f32(sum)
    }
}

/// 16-bit rows as high and low bytes: the weights are read once and multiplied by both.
#[derive(Clone, Copy)]
pub(super) struct Digits<B>(pub(super) B);

/// One value for the high bytes and one for the low bytes. For weights both are the same.
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
        self.0.sums().floats()
    }
    #[inline(always)]
    unsafe fn load(self, from: *const i32, _: usize) -> HighLow<B::I8x4> {
        // SAFETY: `# Safety` of the trait method.
        let weights = unsafe { self.0.load(from) };
        HighLow { high: weights, low: weights }
    }
    #[inline(always)]
    unsafe fn broadcast(self, from: *const i32) -> HighLow<B::I8x4> {
        // SAFETY: `# Safety` of the trait method; an element is two words (`WORDS`).
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
    const LATENCY_BOUND: bool = true;
    const TALL: usize = B::TALL / 2;
    const WHOLE_PANEL_ROWS: usize = B::ROWS / 2;

    #[inline(always)]
    fn zero(self) -> HighLow<B::I32> {
        HighLow { high: self.0.sums().splat_i32(0), low: self.0.sums().splat_i32(0) }
    }
    #[inline(always)]
    unsafe fn start(self, offsets: *const i32) -> HighLow<B::I32> {
        // The offset is -128 times the sum of the values of a column. The sum of the high bytes is later multiplied by
        // 256, which makes the offset -32,768 times that sum.
        // SAFETY: `# Safety` of the trait method.
        let high = unsafe { Single(self.0).start(offsets) };
        HighLow { high, low: self.0.sums().splat_i32(0) }
    }
    #[inline(always)]
    fn add(self, a: HighLow<B::I32>, b: HighLow<B::I32>) -> HighLow<B::I32> {
        HighLow { high: self.0.sums().add(a.high, b.high), low: self.0.sums().add(a.low, b.low) }
    }
    #[inline(always)]
    fn to_f32(self, sum: HighLow<B::I32>) -> <B::Floats as SimdF32>::F32 {
        self.0.sums().to_f32(self.0.sums().join(sum.high, sum.low))
    }
}
