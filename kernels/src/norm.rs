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

mod parameters;
mod passes;

pub use parameters::LayerNorm;

use crate::isa::Isa;
use crate::matrix::{Matrix, MatrixMut};
use crate::parallel::Parallelism;
use crate::rows::{UnitColumns, for_rows};
use crate::shared::SharedMut;
use core::fmt;
use passes::{NormRows, Place};

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
///     Isa::detect()?,
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

/// `x = LN(x)`, `[rows, columns]`: [`layer_norm`] in place.
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
///
/// ```
/// use simdformer_kernels::norm::{LayerNorm, add_layer_norm_in_place};
/// use simdformer_kernels::{Isa, Matrix, MatrixMut, Parallelism};
///
/// let norm = LayerNorm { weight: &[1.0, 1.0], bias: &[0.0, 0.0], eps: 0.0 };
/// let mut stream = [1.0, 2.0];
/// add_layer_norm_in_place(
///     Isa::best(),
///     norm,
///     Matrix::new(&[4.0, 7.0], 1, 2)?,
///     MatrixMut::new(&mut stream, 1, 2)?,
///     Parallelism::Serial,
/// )?;
/// assert_eq!(stream, [-1.0, 1.0]);
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
pub fn add_layer_norm_in_place(
    isa: Isa,
    norm: LayerNorm<'_>,
    x: Matrix<'_>,
    residual: MatrixMut<'_>,
    parallelism: Parallelism<'_>,
) -> Result<(), NormError> {
    run(isa, norm, Operands::AddInPlace(x), residual, parallelism)
}

/// `residual += x; out = LN(residual)`: the end of one pre-norm block and the start of the next. All
/// `[rows, columns]`; the bits of `out` are those of [`add_layer_norm`].
///
/// # Errors
/// As [`layer_norm`].
///
/// ```
/// use simdformer_kernels::norm::{LayerNorm, add_into_layer_norm};
/// use simdformer_kernels::{Isa, Matrix, MatrixMut, Parallelism};
///
/// let norm = LayerNorm { weight: &[1.0, 1.0], bias: &[0.0, 0.0], eps: 0.0 };
/// let (mut stream, mut normed) = ([1.0, 2.0], [0.0; 2]);
/// add_into_layer_norm(
///     Isa::best(),
///     norm,
///     Matrix::new(&[4.0, 7.0], 1, 2)?,
///     MatrixMut::new(&mut stream, 1, 2)?,
///     MatrixMut::new(&mut normed, 1, 2)?,
///     Parallelism::Serial,
/// )?;
/// assert_eq!((stream, normed), ([5.0, 9.0], [-1.0, 1.0]));
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
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
