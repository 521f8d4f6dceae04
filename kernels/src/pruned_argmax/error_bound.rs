//! Why a screen is right: the bound on how far the product of bytes is from what
//! [`gemm`](crate::gemm()) gives, and every rounding that it has to make room for.
//!
//! Below, `u = 2^-24` is half of [`f32::EPSILON`], `d` the depth, `x` a row, `w` a column, `b` its bias;
//! `x'` and `w'` are what their bytes stand for, as real numbers; `|x|` is the Euclidean norm.
//!
//! # The theorem
//!
//! Let `g` be the element that `gemm` computes, and `a` the product of bytes that a sweep computes, with
//! its scales and the bias. Then `|g - a| <= B`, with
//!
//! ```text
//! B = |x - x'| |w| + |x'| |w - w'| + 2 (d + 16) u |x| |w| + 8 u |b|
//! ```
//!
//! made larger by a factor of `1 + 32 u`, and of norms that are themselves no less than the true ones. So
//! `a + B` is an upper bound of `g`, and `(a + B) - 2 B` a lower one. A column whose upper bound is below
//! the lower bound of another cannot be the largest.
//!
//! # The proof
//!
//! Without roundings it is Cauchy and Schwarz, twice: `x w - x' w' = (x - x') w + x' (w - w')`.
//! What is rounded, and by how much of `u |x| |w|` that moves `g - a`:
//!
//! | what rounds | where | takes | of |
//! |---|---|---|---|
//! | `d` additions, of which the first is to zero, and as many products, in one chain: `d` roundings of each term at most, fused or not, and the sum of the terms is at most `|x| |w|` | `gemm` | `d + d du` | [`ROUNDINGS`] |
//! | adding the bias | `gemm` | 1 | |
//! | the sum of bytes (exact in 32 bits, see [`MAX_DEPTH`]) to f32, times the scale of `w`, times the scale of `x`, plus the bias | a sweep | 4 | |
//! | `a + B`, and `(a + B) - 2 B`: as far as `a` goes | a sweep | 2 | |
//! | `x - x'`: a product and a difference for each element, of `u |x'|` and `u |x|` in its norm | the bytes of `x` | 2 | |
//! | **together** | | **`d + d du + 9`** | **`2 d + 32`** |
//! | the same sums as far as the bias goes | `gemm` 1, a sweep 3 | 4 `u |b|` | [`BIAS_ROUNDING`], 8 |
//! | `w - w'`: as for `x` | the bytes of `w` | 2 `u |w|` | [`column_error`], 4 |
//!
//! What moves `B` itself is a share of `B`, and [`MARGIN`] is for that:
//!
//! | what rounds | takes | of |
//! |---|---|---|
//! | the factors of a row: two products and two sums | 4 `u B` | |
//! | two products and two sums from factors to `B` | 4 | |
//! | `a + B`, and `(a + B) - 2 B`, as far as `B` goes | 2 | |
//! | `|x'| |w'|` and `|x'| |w|` in the table above are at most `|x| |w| + B` | 7 | |
//! | **together** | **17** | **32** |
//!
//! A norm in f32 is the root of a sum of `d` squares: `d + 1` roundings of each term at most, half of that
//! after the root, and four for the root, the factor and two sums. That takes `d / 2 + 5` of the `2 d + 16` in [`allowance`]. `LOST` is for squares that are too small for f32; that makes `B` at
//! least `LOST * LOST`, far above what any of these sums loses below the smallest normal number.
//!
//! What is not finite: a row whose norm is not finite is given up; a column whose norm is not has bounds
//! that are not, and always is a candidate. A product of bytes that overflows downwards counts as
//! [`f32::MIN`], and no upper bound is less.
//!
//! So `d + 23` of `2 d + 32` are left (`d du` is at most 256, where `d` is 65,536), 4 of 8, 15 of 32. A
//! rounding more belongs into a table; the sums of the tables are constants here, which do not compile
//! when they exceed what is allowed, and `tests.rs` holds `gemm` and a sweep to their rows.

use crate::math::sqrt;

/// Products of bytes (at most 255 * 127) that surely fit a sum of 32 bits.
pub(super) const MAX_DEPTH: usize = 1 << 16;

/// Squares below the smallest normal number may be lost: their sum is at most this, squared.
const LOST: f32 = 1e-16;

/// Below this, `127 / largest` is no number: everything is left out instead.
pub(super) const SMALLEST: f32 = 1e-30;

/// Roundings of `|x| |w|` that are allowed for beside those of a sum of `d`, in `2 u`.
const ROUNDINGS: usize = 16;

/// Roundings of the bias: `2 u` for each.
pub(super) const BIAS_ROUNDING: f32 = 4.0 * f32::EPSILON;

/// Roundings of the bound itself, `2 u` each.
const MARGIN: f32 = 1.0 + 16.0 * f32::EPSILON;

/// What the first table takes of `u |x| |w|` beside `d + d du`: in `gemm`, a sweep, its bounds, and the
/// bytes of `x`.
pub(super) const TAKEN: [usize; 4] = [1, 4, 2, 2];

/// What the bias takes of `u |b|`, in `gemm` and a sweep.
pub(super) const TAKEN_BY_BIAS: [usize; 2] = [1, 3];

/// What the second table takes of `u B`.
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
    // What is left out below SMALLEST, and the squares that vanish.
    assert!(MAX_DEPTH as f32 * f32::MIN_POSITIVE <= LOST * LOST);
    assert!(MAX_DEPTH as f32 * SMALLEST * SMALLEST <= LOST * LOST);
    assert!(127.0 / SMALLEST < f32::INFINITY && SMALLEST / 127.0 > f32::MIN_POSITIVE);
    // d + d du + TAKEN <= 2 d + 2 ROUNDINGS, at every depth: d du <= d.
    assert!(MAX_DEPTH as f32 * u <= 1.0 && sum(TAKEN) <= 2 * ROUNDINGS);
    assert!(sum(TAKEN_BY_BIAS) as f32 * u <= BIAS_ROUNDING);
    assert!(1.0 + sum(TAKEN_OF_BOUND) as f32 * u <= MARGIN);
};

/// How much larger a sum of `depth` squares can be than what f32 makes of it, and its root: a factor.
#[inline(always)]
fn allowance(depth: usize) -> f32 {
    1.0 + (depth + 8) as f32 * f32::EPSILON
}

/// No less than the norm of a vector of `depth` whose squares sum up to `squares`.
#[inline(always)]
pub(super) fn norm(squares: f32, depth: usize) -> f32 {
    sqrt(squares) * allowance(depth) + LOST
}

/// No less than `|w - w'|`, from the sum of the squares of what was left out and the norm of `w`.
#[inline(always)]
pub(super) fn column_error(left_out: f32, norm: f32, depth: usize) -> f32 {
    sqrt(left_out) * allowance(depth) + norm * (2.0 * f32::EPSILON) + LOST
}

/// What a row adds to a bound for each unit of `|w|`: `|x - x'|`, and the roundings of `|x| |w|`.
#[inline(always)]
pub(super) fn norm_factor(left_out: f32, norm: f32, depth: usize) -> f32 {
    let rounding = (depth + ROUNDINGS) as f32 * f32::EPSILON;
    (sqrt(left_out) * allowance(depth) + rounding * norm + LOST) * MARGIN
}

/// What a row adds to a bound for each unit of `|w - w'|`: `|x'|`, from the sum of its squares.
#[inline(always)]
pub(super) fn error_factor(kept: f32, depth: usize) -> f32 {
    norm(kept, depth) * MARGIN
}
