//! The quantizations of a product, and the scale of a row or a column from its largest magnitude.

/// How the weights and the activations of a product are quantized: the names are those of the field, weights in 8 bits
/// and activations in 8 or 16 bits.
///
/// It is a property of a layer, not of a call: another precision gives other results.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum Quantization {
    /// Activations are integers of at most 127. The relative error of a row (root mean square) is `largest / rms / 440`: 0.75 % for 512
    /// Gaussian values, and several times more where a few elements are much larger than the others.
    W8A8,
    /// Activations are integers of at most 32,639, or fewer for sums of more than 518 products. The remaining error is that of the
    /// weights. With few rows it is as fast as 8 bits, because reading the weights takes longest; with many rows it is
    /// half as fast.
    W8A16,
}

impl Quantization {
    /// The largest integer that an element of a row of `depth` elements is rounded to. With it, no sum of products with
    /// int8 values exceeds 32 bits.
    pub(super) const fn levels(self, depth: usize) -> i32 {
        match self {
            Self::W8A8 => LEVELS,
            Self::W8A16 => {
                let products = LEVELS as usize * if depth > 0 { depth } else { 1 };
                let levels = i32::MAX as usize / products;
                if levels < MAX_LEVELS { levels as i32 } else { MAX_LEVELS as i32 }
            }
        }
    }
}

/// The integer that the largest element of a column is rounded to, and of a row in 8 bits.
pub(crate) const LEVELS: i32 = 127;

/// The largest integer that two signed bytes represent, `256 * 127 + 127`.
const MAX_LEVELS: usize = 32_639;

/// Largest depth for which every sum of int8 products fits 32 bits.
pub(super) const MAX_DEPTH: usize = i32::MAX as usize / (LEVELS * LEVELS) as usize;

/// Rows or columns whose elements are all smaller are quantized to zeros, because the inverse of the scale would
/// overflow.
pub(crate) const MIN_AMAX: f32 = 1e-30;

/// The bits of a float without its sign. As integers they have the order of the magnitudes, with infinity and then NaN
/// above all numbers.
#[inline(always)]
pub(crate) const fn magnitude(x: f32) -> i32 {
    (x.to_bits() & 0x7fff_ffff).cast_signed()
}

/// The scale of a row or a column.
#[derive(Clone, Copy)]
pub(crate) struct Rounding {
    /// The value of the integer 1.
    pub(crate) scale: f32,
    /// The factor before rounding. `None` if all quantized values are zero.
    pub(crate) inverse: Option<f32>,
}

impl Rounding {
    /// The scale for elements whose largest [`magnitude`] is `largest`, to integers up to `levels`.
    #[inline(always)]
    pub(crate) fn new(largest: i32, levels: i32) -> Self {
        let (largest, levels) = (f32::from_bits(largest.cast_unsigned()), levels as f32);
        if !largest.is_finite() {
            Self { scale: f32::NAN, inverse: None }
        } else if largest < MIN_AMAX {
            Self { scale: 0.0, inverse: None }
        } else {
            Self { scale: largest / levels, inverse: Some(levels / largest) }
        }
    }
}

/// The integer nearest to `x * inverse`, ties to even, modulo `2^16`, for `|x * inverse| < 2^22`.
#[inline(always)]
pub(crate) const fn round(x: f32, inverse: f32) -> u16 {
    const ROUND: f32 = 12_582_912.0; // 1.5 * 2^23: adding it rounds; the low bits are the integer
    (x * inverse + ROUND).to_bits() as u16
}
