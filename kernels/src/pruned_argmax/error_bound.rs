//! Why the pruned argmax is exact: a bound on the difference between the int8 product and the result of
//! [`gemm`](crate::gemm()), and all roundings that the bound must cover.
//!
//! Below, `u = 2^-24` is half of [`f32::EPSILON`], `d` is the depth, `x` is a row, `w` is a column and `b` is its bias.
//! `x'` and `w'` are the dequantized values of `x` and `w`, as real numbers. `|x|` is the Euclidean norm.
//!
//! # The theorem
//!
//! Let `g` be the element that `gemm` computes, and let `a` be the int8 product that a scan computes, with its scales
//! and the bias. Then `|g - a| <= B`, with
//!
//! ```text
//! B = |x - x'| |w| + |x'| |w - w'| + 2 (d + 16) u |x| |w| + 8 u |b|
//! ```
//!
//! multiplied by a factor of `1 + 32 u`, and with norms that are upper bounds of the true norms. So `a + B` is an upper
//! bound of `g`, and `(a + B) - 2 B` is a lower bound. A column whose upper bound is below the lower bound of another
//! column cannot be the largest.
//!
//! # The proof
//!
//! Without roundings the bound is the Cauchy-Schwarz inequality, used twice: `x w - x' w' = (x - x') w + x' (w - w')`.
//! The table lists the roundings, and by how many `u |x| |w|` each changes `g - a`:
//!
//! | rounding | where | used | allowed |
//! |---|---|---|---|
//! | the sum: `d` products and `d` additions (1) | `gemm` | `d + d du` | [`ROUNDINGS`] |
//! | adding the bias | `gemm` | 1 | |
//! | the integer sum to f32, times both scales, plus the bias (2) | scan | 4 | |
//! | `a + B`, and `(a + B) - 2 B`: the part from `a` | scan | 2 | |
//! | `x - x'`: a product and a difference for each element (3) | quantization of `x` | 2 | |
//! | **total** | | **`d + d du + 9`** | **`2 d + 32`** |
//! | the same sums, the part from the bias | `gemm` 1, scan 3 | 4 `u |b|` | [`BIAS_ROUNDING`], 8 |
//! | `w - w'`: as for `x` | quantization of `w` | 2 `u |w|` | [`column_error`], 4 |
//!
//! (1) The first addition is to zero. All are in one chain: each term has at most `d` roundings, fused or not, and the
//! sum of the terms is at most `|x| |w|`. (2) The integer sum is exact in 32 bits, see [`MAX_DEPTH`]. (3) In the norm
//! they are `u |x'|` and `u |x|`.
//!
//! Roundings of `B` itself are proportional to `B`. [`MARGIN`] covers them:
//!
//! | rounding | used | allowed |
//! |---|---|---|
//! | the factors of a row: two products and two sums | 4 `u B` | |
//! | two products and two sums from the factors to `B` | 4 | |
//! | `a + B`, and `(a + B) - 2 B`: the part from `B` | 2 | |
//! | `|x'| |w'|` and `|x'| |w|` in the table above are at most `|x| |w| + B` | 7 | |
//! | **total** | **17** | **32** |
//!
//! A norm in f32 is the root of a sum of `d` squares. Each term has at most `d + 1` roundings, which the root halves;
//! the root, the factor and two sums add four more. This takes `d / 2 + 5` of the `2 d + 16` in [`allowance`]. `LOST`
//! covers squares that underflow in f32. It makes `B` at least `LOST * LOST`, far above what any of these sums loses
//! below the smallest normal number.
//!
//! Values that are not finite: a row whose norm is not finite is undecided. A column whose norm is not finite has
//! bounds that are not finite, and is always a candidate; if an element is not finite, its scale is NaN, too. An int8 product that overflows to minus infinity counts as
//! [`f32::MIN`], and no upper bound is less.
//!
//! The unused allowances are `d + 23` of `2 d + 32` (`d du` is at most 256, at `d` = 65,536), 4 of 8, and 15 of 32. An
//! additional rounding must be added to a table. The sums of the tables are constants in this file, which do not
//! compile if they exceed the allowance, and `tests.rs` checks `gemm` and the scan against their rows.

use crate::gemm::MIN_AMAX;
use crate::math::sqrt;

/// Largest depth for which every sum of int8 products (at most 255 * 127 each) fits 32 bits.
pub(super) const MAX_DEPTH: usize = 1 << 16;

/// Squares below the smallest normal number may underflow. Their sum is at most this value squared.
const LOST: f32 = 1e-16;

/// Roundings of `|x| |w|` that are allowed in addition to those of a sum of `d` terms, in `2 u`.
const ROUNDINGS: usize = 16;

/// Allowance for roundings of the bias, `2 u` each.
pub(super) const BIAS_ROUNDING: f32 = 4.0 * f32::EPSILON;

/// Allowance for roundings of the bound itself, `2 u` each.
const MARGIN: f32 = 1.0 + 16.0 * f32::EPSILON;

/// The entries of the first table in `u |x| |w|`, without `d + d du`: `gemm`, the scan, its bounds, and the
/// quantization of `x`.
pub(super) const TAKEN: [usize; 4] = [1, 4, 2, 2];

/// The entries of the bias in `u |b|`: `gemm` and the scan.
pub(super) const TAKEN_BY_BIAS: [usize; 2] = [1, 3];

/// The entries of the second table in `u B`.
const TAKEN_OF_BOUND: [usize; 4] = [4, 4, 2, 7];

const fn sum<const N: usize>(parts: [usize; N]) -> usize {
    let (mut sum, mut i) = (0, 0);
    while i < N {
        sum += parts[i];
        i += 1;
    }
    sum
}

const _: () = {
    let u = f32::EPSILON / 2.0;
    assert!(255 * 127 * MAX_DEPTH <= i32::MAX as usize);
    // Elements below MIN_AMAX, which are quantized to zero, and squares that underflow.
    assert!(MAX_DEPTH as f32 * f32::MIN_POSITIVE <= LOST * LOST);
    assert!(MAX_DEPTH as f32 * MIN_AMAX * MIN_AMAX <= LOST * LOST);
    assert!(127.0 / MIN_AMAX < f32::INFINITY && MIN_AMAX / 127.0 > f32::MIN_POSITIVE);
    // d + d du + TAKEN <= 2 d + 2 ROUNDINGS, at every depth: d du <= d.
    assert!(MAX_DEPTH as f32 * u <= 1.0 && sum(TAKEN) <= 2 * ROUNDINGS);
    assert!(sum(TAKEN_BY_BIAS) as f32 * u <= BIAS_ROUNDING);
    assert!(1.0 + sum(TAKEN_OF_BOUND) as f32 * u <= MARGIN);
};

/// A factor for the rounding of a sum of `depth` squares in f32 and of its root: the exact root is at most the f32 root
/// times this factor.
#[inline(always)]
fn allowance(depth: usize) -> f32 {
    1.0 + (depth + 8) as f32 * f32::EPSILON
}

/// An upper bound of the norm of a vector of `depth` elements, from the sum of its squares.
#[inline(always)]
pub(super) fn norm(squares: f32, depth: usize) -> f32 {
    sqrt(squares) * allowance(depth) + LOST
}

/// An upper bound of `|w - w'|`, from the sum of the squares of the quantization error and the norm of `w`.
#[inline(always)]
pub(super) fn column_error(error_squares: f32, norm: f32, depth: usize) -> f32 {
    sqrt(error_squares) * allowance(depth) + norm * (2.0 * f32::EPSILON) + LOST
}

/// The factor of `|w|` in the bound of a row: `|x - x'|`, and the roundings of `|x| |w|`.
#[inline(always)]
pub(super) fn norm_factor(error_squares: f32, norm: f32, depth: usize) -> f32 {
    let rounding = (depth + ROUNDINGS) as f32 * f32::EPSILON;
    (sqrt(error_squares) * allowance(depth) + rounding * norm + LOST) * MARGIN
}

/// The factor of `|w - w'|` in the bound of a row: `|x'|`, from the sum of its squares.
#[inline(always)]
pub(super) fn error_factor(dequantized_squares: f32, depth: usize) -> f32 {
    norm(dequantized_squares, depth) * MARGIN
}
