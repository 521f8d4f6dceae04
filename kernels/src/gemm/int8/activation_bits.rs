//! From a largest magnitude to a scale.

/// How the rows of the other operand of a product with weights in bytes are rounded.
///
/// It belongs to a layer, not to a call: a row rounded otherwise is another row.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum ActivationBits {
    /// To integers of at most 127. The relative error of a row (root mean square) is
    /// `largest / rms / 440`: 0.75 % of 512 Gaussian numbers, several times that where a few elements are
    /// far larger than the others.
    Eight,
    /// To integers of at most 32,639, less for sums of more than 518 products: what is left is the error of the
    /// weights. As fast while reading the weights takes longest, at few rows, and half as fast at many.
    Sixteen,
}

impl ActivationBits {
    /// The largest integer that elements of rows of `depth` are rounded to: such that no sum of products
    /// with bytes exceeds 32 bits.
    pub(super) const fn levels(self, depth: usize) -> i32 {
        match self {
            Self::Eight => LEVELS,
            Self::Sixteen => {
                let products = LEVELS as usize * if depth > 0 { depth } else { 1 };
                let levels = i32::MAX as usize / products;
                if levels < MOST_LEVELS { levels as i32 } else { MOST_LEVELS as i32 }
            }
        }
    }
}

/// What the largest element of a column is rounded to, and that of a row in eight bits.
pub(super) const LEVELS: i32 = 127;

/// The most that two signed bytes make together, `256 * 127 + 127`.
const MOST_LEVELS: usize = 32_639;

/// Products of bytes that surely fit a sum of 32 bits.
pub(super) const MOST_DEPTH: usize = i32::MAX as usize / (LEVELS * LEVELS) as usize;

/// Rows or columns whose elements are all smaller are zeros: of so small a number the inverse is none.
const SMALLEST: f32 = 1e-30;

/// The bits of a float but for its sign. As integers they are in the order of magnitudes, with infinity and
/// then NaN above all numbers.
#[inline(always)]
pub(super) const fn magnitude(x: f32) -> i32 {
    (x.to_bits() & 0x7fff_ffff).cast_signed()
}

/// What a row or a column is rounded by.
#[derive(Clone, Copy)]
pub(super) struct Rounding {
    /// What an integer stands for.
    pub(super) scale: f32,
    /// What elements are multiplied with before they are rounded, if they are not zeros altogether.
    pub(super) inverse: Option<f32>,
}

impl Rounding {
    /// Of elements whose largest [`magnitude`] is `largest`, to integers up to `levels`.
    #[inline(always)]
    pub(super) fn new(largest: i32, levels: i32) -> Self {
        let (largest, levels) = (f32::from_bits(largest.cast_unsigned()), levels as f32);
        if !largest.is_finite() {
            Self { scale: f32::NAN, inverse: None }
        } else if largest < SMALLEST {
            Self { scale: 0.0, inverse: None }
        } else {
            Self { scale: largest / levels, inverse: Some(levels / largest) }
        }
    }
}

/// The integer nearest to `x * inverse`, ties to even, modulo `2^16`, for `|x * inverse| < 2^22`.
#[inline(always)]
pub(super) const fn round(x: f32, inverse: f32) -> u16 {
    const ROUND: f32 = 12_582_912.0; // 1.5 * 2^23: adding it rounds to an integer, which the last bits are
    (x * inverse + ROUND).to_bits() as u16
}
