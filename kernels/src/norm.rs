//! Layer normalisation (Ba, Kiros and Hinton 2016) of rows, plain and fused with the residual
//! addition before it: `y = (x - mean) / sqrt(variance + eps) * weight + bias`.
//!
//! The variance is the corrected two-pass one (Chan, Golub and LeVeque 1983, "Algorithms for
//! computing the sample variance"): with `d = x - mean'` for an approximate mean,
//! `variance = (sum d^2 - (sum d)^2 / n) / n`, and `sum d / n` corrects the mean as well. The
//! approximate mean is found from `x - x_0`, so a constant row has `d = 0` throughout and gives
//! exactly the bias. All passes over a row follow each other while it is in the first-level cache,
//! so each byte of memory is touched once.
//!
//! A row whose variance leaves the comfortable range of f32 (entries of 1e30, or tiny ones with
//! `eps` 0) is done again in f64; only sums that overflow f32 themselves (`x + residual`) are lost.

use crate::isa::Kernel;
use crate::lanes::Lanes;
use crate::matrix::SharedMut;
use crate::rows::{UnitColumns, for_rows};
use crate::{Isa, Matrix, MatrixMut, Parallelism, math};
use core::fmt;

/// Vectors in flight in a reduction.
const UNROLL: usize = 4;
/// Variances plus eps that f32 handles: outside, squares may have overflowed or vanished.
const COMFORTABLE: core::ops::RangeInclusive<f32> = 1e-28..=1e35;

/// The learned part of a layer normalisation.
#[derive(Clone, Copy, Debug)]
pub struct LayerNorm<'a> {
    /// What each column is multiplied by, `[columns]`.
    pub weight: &'a [f32],
    /// What is added to each column, `[columns]`.
    pub bias: &'a [f32],
    /// Added to the variance: 1e-5 in most models, 1e-12 in BERT. With 0, a constant row still
    /// gives the bias.
    pub eps: f32,
}

/// Why a layer normalisation could not run.
#[derive(Clone, Copy, Debug, PartialEq)]
#[non_exhaustive]
pub enum NormError {
    /// Two of the matrices have different shapes.
    Shape {
        /// Rows and columns of the output.
        expected: [usize; 2],
        /// Rows and columns of the other matrix.
        found: [usize; 2],
    },
    /// The elements of a row are not side by side.
    ColumnStride {
        /// The column stride found; 1 is expected.
        found: usize,
    },
    /// The weight has not one element for each column.
    Weight {
        /// Columns.
        expected: usize,
        /// Elements of the weight.
        found: usize,
    },
    /// The bias has not one element for each column.
    Bias {
        /// Columns.
        expected: usize,
        /// Elements of the bias.
        found: usize,
    },
    /// `eps` is negative, infinite or NaN.
    Epsilon {
        /// The value given.
        found: f32,
    },
}

impl fmt::Display for NormError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Shape { expected: [r, c], found: [fr, fc] } => {
                write!(f, "the output is {r} x {c}, found a {fr} x {fc} matrix beside it")
            }
            Self::ColumnStride { found } => {
                write!(f, "layer norm needs contiguous rows (column stride 1), found {found}")
            }
            Self::Weight { expected, found } => {
                write!(f, "the weight should have {expected} elements, found {found}")
            }
            Self::Bias { expected, found } => {
                write!(f, "the bias should have {expected} elements, found {found}")
            }
            Self::Epsilon { found } => {
                write!(f, "eps should be finite and at least 0, found {found}")
            }
        }
    }
}

impl core::error::Error for NormError {}

/// Rows in memory: where they start and how far apart they are.
#[derive(Clone, Copy)]
struct Place {
    start: *mut f32,
    stride: usize,
}

struct NormRows<'a, const ADD: bool> {
    norm: LayerNorm<'a>,
    rows: usize,
    /// The input; only read.
    x: Place,
    /// If `ADD`, what is added to it; only read.
    residual: Place,
    /// If `ADD`, where the sum goes.
    sum: Place,
    out: Place,
}

impl<const ADD: bool> Kernel for NormRows<'_, ADD> {
    type Output = ();

    #[inline(always)]
    fn run<S: Lanes>(self, s: S) {
        for row in 0..self.rows {
            // SAFETY: whoever made the value vouches for `rows` rows as long as the weight and the
            // bias at every place.
            unsafe {
                let at = |place: Place| place.start.wrapping_add(row * place.stride);
                norm_row::<S, ADD>(
                    s,
                    &self.norm,
                    at(self.x),
                    at(self.residual),
                    at(self.sum),
                    at(self.out),
                );
            }
        }
    }
}

/// # Safety
/// The weight and bias have the same length; `x` is valid for reads and `out` for writes of as many
/// floats; if `ADD`, `residual` for reads and `sum` for writes. Any two are the same or disjoint,
/// and `sum` is not `x` unless it is `residual` too.
#[inline(always)]
unsafe fn norm_row<S: Lanes, const ADD: bool>(
    s: S,
    norm: &LayerNorm<'_>,
    x: *const f32,
    residual: *const f32,
    sum: *mut f32,
    out: *mut f32,
) {
    let len = norm.weight.len();
    let inverse = 1.0 / len as f32;
    let step = UNROLL * S::LANES;
    let zero = s.splat(0.0);

    // The approximate mean, from the differences to the first entry; the sum of the two rows is
    // written on the way.
    // SAFETY: rows are not empty.
    let first = unsafe { if ADD { *x + *residual } else { *x } };
    let origin = s.splat(first);
    let mut total = [zero; UNROLL];
    let mut i = 0;
    while i + step <= len {
        for (j, total) in total.iter_mut().enumerate() {
            let at = i + j * S::LANES;
            // SAFETY: `i + step <= len`.
            unsafe {
                let mut v = s.load(x.add(at));
                if ADD {
                    v = s.add(v, s.load(residual.add(at)));
                    s.store(sum.add(at), v);
                }
                *total = s.add(*total, s.sub(v, origin));
            }
        }
        i += step;
    }
    while i < len {
        let count = (len - i).min(S::LANES);
        // SAFETY: `i + count <= len`.
        unsafe {
            let mut v = s.load_first(x.add(i), count);
            if ADD {
                v = s.add(v, s.load_first(residual.add(i), count));
                s.store_first(sum.add(i), v, count);
            }
            total[0] = s.add(total[0], s.select(s.first(count), s.sub(v, origin), zero));
        }
        i += count;
    }
    let mean = first + reduce(s, total) * inverse;
    let x = if ADD { sum.cast_const() } else { x };

    // Sums of the deviations and of their squares.
    let middle = s.splat(mean);
    let mut total = [zero; UNROLL];
    let mut squares = [zero; UNROLL];
    let mut i = 0;
    while i + step <= len {
        for j in 0..UNROLL {
            // SAFETY: `i + step <= len`.
            let d = s.sub(unsafe { s.load(x.add(i + j * S::LANES)) }, middle);
            total[j] = s.add(total[j], d);
            squares[j] = s.mul_add(d, d, squares[j]);
        }
        i += step;
    }
    while i < len {
        let count = (len - i).min(S::LANES);
        // SAFETY: `i + count <= len`.
        let d = s.sub(unsafe { s.load_first(x.add(i), count) }, middle);
        let d = s.select(s.first(count), d, zero);
        total[0] = s.add(total[0], d);
        squares[0] = s.mul_add(d, d, squares[0]);
        i += count;
    }
    let total = reduce(s, total);
    let correction = total * inverse;
    let variance = (reduce(s, squares) - total * correction) * inverse;
    // Rounding can leave a tiny negative number.
    let variance = if variance < 0.0 { 0.0 } else { variance } + norm.eps;
    if !COMFORTABLE.contains(&variance) {
        // SAFETY: the caller's contract.
        return unsafe { norm_row_wide(norm, x, out) };
    }
    let scale = 1.0 / math::sqrt(variance);

    let (scale, shift) = (s.splat(scale), s.splat(-correction * scale));
    let (weight, bias) = (norm.weight.as_ptr(), norm.bias.as_ptr());
    let mut i = 0;
    while i + step <= len {
        for j in 0..UNROLL {
            let at = i + j * S::LANES;
            // SAFETY: `i + step <= len`.
            unsafe {
                let d = s.sub(s.load(x.add(at)), middle);
                let y = s.mul_add(d, scale, shift);
                s.store(out.add(at), s.mul_add(y, s.load(weight.add(at)), s.load(bias.add(at))));
            }
        }
        i += step;
    }
    while i < len {
        let count = (len - i).min(S::LANES);
        // SAFETY: `i + count <= len`.
        unsafe {
            let d = s.sub(s.load_first(x.add(i), count), middle);
            let y = s.mul_add(d, scale, shift);
            let (w, b) = (s.load_first(weight.add(i), count), s.load_first(bias.add(i), count));
            s.store_first(out.add(i), s.mul_add(y, w, b), count);
        }
        i += count;
    }
}

#[inline(always)]
fn reduce<S: Lanes>(s: S, v: [S::F32; UNROLL]) -> f32 {
    s.reduce_add(s.add(s.add(v[0], v[1]), s.add(v[2], v[3])))
}

/// The row in f64, where no square of an f32 overflows or vanishes.
///
/// # Safety
/// As [`norm_row`] without `ADD`.
#[cold]
#[inline(never)]
unsafe fn norm_row_wide(norm: &LayerNorm<'_>, x: *const f32, out: *mut f32) {
    let len = norm.weight.len();
    // SAFETY: `i < len` wherever it is called.
    let at = |i: usize| f64::from(unsafe { *x.add(i) });
    let mean = (0..len).map(at).sum::<f64>() / len as f64;
    let square = |i: usize| (at(i) - mean) * (at(i) - mean);
    let variance = (0..len).map(square).sum::<f64>() / len as f64 + f64::from(norm.eps);
    // A constant row with eps 0: 0 times infinity should be 0.
    let scale = if variance == 0.0 { 0.0 } else { 1.0 / libm::sqrt(variance) };
    for i in 0..len {
        let y = (at(i) - mean) * scale * f64::from(norm.weight[i]) + f64::from(norm.bias[i]);
        // SAFETY: `i < len`; what was read at `i` is not needed again.
        unsafe { *out.add(i) = y as f32 };
    }
}

/// What a call reads and writes.
enum Operands<'a> {
    /// `out = LN(x)`
    Plain(Matrix<'a>),
    /// `out = LN(out)`
    InPlace,
    /// `out = LN(x + residual)`
    Add(Matrix<'a>, Matrix<'a>),
    /// `out = LN(x + out)`
    AddInPlace(Matrix<'a>),
    /// `sum += x; out = LN(sum)`
    AddInto(Matrix<'a>, MatrixMut<'a>),
}

fn run(
    isa: Isa,
    norm: LayerNorm<'_>,
    mut operands: Operands<'_>,
    mut out: MatrixMut<'_>,
    parallelism: Parallelism<'_>,
) -> Result<(), NormError> {
    let (rows, columns) = (out.rows(), out.columns());
    let check = |wide: Option<usize>, found: [usize; 2]| match wide {
        Some(found) => Err(NormError::ColumnStride { found }),
        None if found != [rows, columns] => {
            Err(NormError::Shape { expected: [rows, columns], found })
        }
        None => Ok(()),
    };
    let check_read = |m: &Matrix<'_>| check(m.wide_columns(), [m.rows(), m.columns()]);
    check(out.wide_columns(), [rows, columns])?;
    match &operands {
        Operands::InPlace => {}
        Operands::Plain(x) | Operands::AddInPlace(x) => check_read(x)?,
        Operands::Add(x, residual) => {
            check_read(x)?;
            check_read(residual)?;
        }
        Operands::AddInto(x, sum) => {
            check_read(x)?;
            check(sum.wide_columns(), [sum.rows(), sum.columns()])?;
        }
    }
    if norm.weight.len() != columns {
        return Err(NormError::Weight { expected: columns, found: norm.weight.len() });
    }
    if norm.bias.len() != columns {
        return Err(NormError::Bias { expected: columns, found: norm.bias.len() });
    }
    if !(norm.eps >= 0.0 && norm.eps.is_finite()) {
        return Err(NormError::Epsilon { found: norm.eps });
    }
    if rows == 0 || columns == 0 {
        return Ok(());
    }

    let written = |stride: usize, shared: SharedMut<'_>| Place { start: shared.as_ptr(), stride };
    let read = |m: &Matrix<'_>| Place { start: m.as_ptr().cast_mut(), stride: m.row_stride() };
    let to = written(out.row_stride(), out.shared());
    let (add, x, residual, sum) = match &mut operands {
        Operands::Plain(x) => (false, read(x), to, to),
        Operands::InPlace => (false, to, to, to),
        Operands::Add(x, residual) => (true, read(x), read(residual), to),
        Operands::AddInPlace(x) => (true, read(x), to, to),
        Operands::AddInto(x, sum) => {
            let sum = written(sum.row_stride(), sum.shared());
            (true, read(x), sum, sum)
        }
    };
    let places = Shareable([x, residual, sum, to]);
    for_rows(parallelism, rows, columns, &|range| {
        let Shareable(places) = &places;
        let [x, residual, sum, out] = places.map(|place| Place {
            start: place.start.wrapping_add(range.start * place.stride),
            stride: place.stride,
        });
        if add {
            isa.dispatch(NormRows::<true> { norm, rows: range.len(), x, residual, sum, out });
        } else {
            isa.dispatch(NormRows::<false> { norm, rows: range.len(), x, residual, sum, out });
        }
    });
    Ok(())
}

/// Places handed to several tasks, each of which uses its own rows.
struct Shareable([Place; 4]);

// SAFETY: only `run` makes it, from borrows that last until all tasks are done; tasks write rows of
// their own, and rows that are only read are shared borrows.
unsafe impl Sync for Shareable {}

/// `out = LN(x)` for every row of `x` `[rows, columns]`; `out` has the same shape.
///
/// Error: with `u = 2^-24`, `z` the exact normalised value before weight and bias, and
/// `k = columns / (4 lanes) + 8` the longest chain of additions, each result is within
/// `u (k (|z| + 2) |weight| + 2 |result|)` of the exact one, as long as the mean is at most 1e5
/// standard deviations from 0. Rows that are not finite give NaN.
///
/// # Errors
/// Shapes or lengths disagree, `eps` is not a number from 0 up, or the elements of a row are not
/// side by side.
///
/// ```
/// use simdformer_kernels::norm::{LayerNorm, layer_norm};
/// use simdformer_kernels::{Isa, Matrix, MatrixMut, Parallelism};
///
/// let x = [1.0, 3.0, 7.0, 7.0];
/// let mut y = [0.0; 4];
/// layer_norm(
///     Isa::detect(),
///     LayerNorm { weight: &[2.0, 2.0], bias: &[0.5, 0.5], eps: 0.0 },
///     Matrix::new(&x, 2, 2)?,
///     MatrixMut::new(&mut y, 2, 2)?,
///     Parallelism::Serial,
/// )?;
/// assert_eq!(y, [-1.5, 2.5, 0.5, 0.5]);
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
pub fn layer_norm(
    isa: Isa,
    norm: LayerNorm<'_>,
    x: Matrix<'_>,
    out: MatrixMut<'_>,
    parallelism: Parallelism<'_>,
) -> Result<(), NormError> {
    run(isa, norm, Operands::Plain(x), out, parallelism)
}

/// `x = LN(x)`: [`layer_norm`] in place.
///
/// # Errors
/// As [`layer_norm`].
pub fn layer_norm_in_place(
    isa: Isa,
    norm: LayerNorm<'_>,
    x: MatrixMut<'_>,
    parallelism: Parallelism<'_>,
) -> Result<(), NormError> {
    run(isa, norm, Operands::InPlace, x, parallelism)
}

/// `out = LN(x + residual)`: [`layer_norm`] of the sum as rounded to f32, in one pass over memory.
/// All `[rows, columns]`.
///
/// # Errors
/// As [`layer_norm`].
pub fn add_layer_norm(
    isa: Isa,
    norm: LayerNorm<'_>,
    x: Matrix<'_>,
    residual: Matrix<'_>,
    out: MatrixMut<'_>,
    parallelism: Parallelism<'_>,
) -> Result<(), NormError> {
    run(isa, norm, Operands::Add(x, residual), out, parallelism)
}

/// `residual = LN(x + residual)`: the end of a post-norm block, [`add_layer_norm`] in place.
///
/// # Errors
/// As [`layer_norm`].
pub fn add_layer_norm_in_place(
    isa: Isa,
    norm: LayerNorm<'_>,
    x: Matrix<'_>,
    residual: MatrixMut<'_>,
    parallelism: Parallelism<'_>,
) -> Result<(), NormError> {
    run(isa, norm, Operands::AddInPlace(x), residual, parallelism)
}

/// `residual += x; out = LN(residual)`: the end of one pre-norm block and the start of the next.
///
/// # Errors
/// As [`layer_norm`].
pub fn add_into_layer_norm(
    isa: Isa,
    norm: LayerNorm<'_>,
    x: Matrix<'_>,
    residual: MatrixMut<'_>,
    out: MatrixMut<'_>,
    parallelism: Parallelism<'_>,
) -> Result<(), NormError> {
    run(isa, norm, Operands::AddInto(x, residual), out, parallelism)
}
