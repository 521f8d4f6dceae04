//! Rounding of a number to a dtype.

use crate::Dtype;

/// The nearest number to `x` in `dtype`, ties to even. Infinite from half a unit above the largest number
/// on, which packing rejects.
///
/// ```
/// use simdformer_kernels::{Dtype, reference::dtype::stored};
///
/// assert_eq!(stored(Dtype::F32, 0.1), 0.1);
/// assert_eq!(stored(Dtype::Bf16, 0.1), 0.10009765625);
/// assert_eq!(stored(Dtype::F16, 0.1), 0.0999755859375);
/// assert_eq!(stored(Dtype::F16, 65_519.0), 65_504.0);
/// ```
pub fn stored(dtype: Dtype, x: f32) -> f32 {
    // Binary digits, and the exponents of the smallest normal and of the largest number.
    let (digits, least, most) = match dtype {
        Dtype::F32 => return x,
        Dtype::Bf16 => (8, -126, 127),
        Dtype::F16 => (11, -14, 15),
    };
    if x == 0.0 || !x.is_finite() {
        return x;
    }
    let x = f64::from(x);
    let exponent = libm::ilogb(x).max(least);
    let unit = libm::exp2(f64::from(exponent + 1 - digits));
    let nearest = libm::rint(x / unit) * unit;
    let beyond = libm::exp2(f64::from(most + 1));
    if nearest.abs() < beyond { nearest as f32 } else { f32::INFINITY.copysign(x as f32) }
}
