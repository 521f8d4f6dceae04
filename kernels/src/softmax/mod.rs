//! Softmax, log-softmax and log-sum-exp of rows.
//!
//! With `m` the row's maximum and `s` the sum of `e^(x_i - m)`: softmax is `e^(x_i - m) / s`, log-softmax is `x_i - m
//! - ln s`, and log-sum-exp is `m + ln s`. No score causes an overflow.
//!
//! A row is read in blocks that fit the L1 cache: first the maximum of a block, then its exponentials, while the block
//! is in the cache. The sum over earlier blocks is rescaled when a later block has a larger maximum. It is stored in
//! f64, so a row of 256,000 columns is read from memory once and is as accurate as a short one. For short rows the
//! exponentials are stored; for long ones they are computed again.
//!
//! Special values. Columns from a row's length on are masked: they are never read, and the result there is 0 (negative
//! infinity for log-softmax). A score of negative infinity is masked too. NaN or positive infinity in the valid part
//! of a row makes the whole valid part of this row NaN, and does not change other rows.

mod options;
mod passes;

pub use options::{FullyMasked, SoftmaxOptions};
pub(crate) use passes::block_max;

use crate::error::{Error, Expected};
use crate::input::Input;
use crate::matrix::{Matrix, MatrixMut};
use crate::parallel::Exec;
use crate::row_tasks::{RowPtrs, for_rows};
use crate::sync_ptr::SharedMut;
use passes::{SoftmaxRows, log_sum_exp_rows, softmax_rows};

fn check_lengths(lengths: Option<&[usize]>, rows: usize, columns: usize) -> Result<(), Error> {
    let Some(lengths) = lengths else { return Ok(()) };
    Error::check_len("lengths", rows, lengths)?;
    lengths.iter().enumerate().try_for_each(|(row, &length)| {
        Error::check_item("length", "row", Some(row), Expected::AtMost(columns), length)
    })
}

/// Softmax of each row of `scores` `[rows, columns]`, or its logarithm, into `out` of the same shape.
///
/// Error: the probability `p` of a score `x` in a row with maximum `m` is within `p (d + 12 + |x - m|) 2^-24 + 2^-125`
/// of the exact softmax of the given scores, where `d = min(columns, 4096) / 64` is the number of additions in one
/// lane. A logarithm is within `(d + 8 + |x - m| + 2 |result|) 2^-24`.
///
/// # Errors
/// Shapes or the number of lengths disagree, a length exceeds the columns, or the elements of a row are not
/// contiguous.
///
/// ```
/// use simdformer_kernels::softmax::{SoftmaxOptions, softmax};
/// use simdformer_kernels::{Exec, Input, Isa, Matrix, MatrixMut};
///
/// let exec = Exec::serial(Isa::detect()?);
/// let scores = [0.0, 0.0, f32::NAN, 5.0, 5.0, 5.0];
/// let mut p = [0.0; 6];
/// let options = SoftmaxOptions { lengths: Some(&[2, 0]), ..SoftmaxOptions::default() };
/// let input = Input::Matrix(Matrix::new(&scores, 2, 3)?);
/// softmax(exec, input, options, MatrixMut::new(&mut p, 2, 3)?)?;
/// assert_eq!(p, [0.5, 0.5, 0.0, 0.0, 0.0, 0.0]);
///
/// let mut logs = [1000.0, 1000.0];
/// let options = SoftmaxOptions { logarithm: true, ..SoftmaxOptions::default() };
/// softmax(exec, Input::Output, options, MatrixMut::new(&mut logs, 1, 2)?)?;
/// assert!((logs[0] + 2.0f32.ln()).abs() < 1e-6);
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
pub fn softmax(
    exec: Exec<'_>,
    scores: Input<'_>,
    options: SoftmaxOptions<'_>,
    mut out: MatrixMut<'_>,
) -> Result<(), Error> {
    let shape @ [rows, columns] = match &scores {
        Input::Matrix(scores) => scores.shape(),
        Input::Output => [out.rows(), out.columns()],
    };
    let to = RowPtrs::from_matrix_mut("out", &mut out, shape)?;
    let from = scores.rows("scores", to, shape)?;
    check_lengths(options.lengths, rows, columns)?;
    let softmax = SoftmaxRows { options, from, to, columns };
    for_rows(exec, shape, |rows| softmax_rows(softmax, rows));
    Ok(())
}

/// `ln(sum of e^x)` of each row of `scores` `[rows, columns]` into `out` `[rows]`; negative infinity for a row without
/// a valid entry. `lengths` as in [`SoftmaxOptions`].
///
/// Error: within `(d + 8 + |result|) 2^-24` of the exact value, with the symbols of [`softmax()`].
///
/// # Errors
/// As [`softmax()`], or the number of outputs differs from the number of rows.
///
/// ```
/// use simdformer_kernels::softmax::log_sum_exp;
/// use simdformer_kernels::{Exec, Isa, Matrix};
///
/// let scores = Matrix::new(&[0.0, 0.0, 88.0, 88.0], 2, 2)?;
/// let mut sums = [0.0; 2];
/// log_sum_exp(Exec::serial(Isa::best()), scores, None, &mut sums)?;
/// assert!((sums[1] - sums[0] - 88.0).abs() < 1e-5);
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
pub fn log_sum_exp(
    exec: Exec<'_>,
    scores: Matrix<'_>,
    lengths: Option<&[usize]>,
    out: &mut [f32],
) -> Result<(), Error> {
    let shape @ [rows, columns] = scores.shape();
    let scores = RowPtrs::from_matrix("scores", &scores, shape)?;
    check_lengths(lengths, rows, columns)?;
    Error::check_len("out", rows, out)?;
    if columns == 0 {
        out.fill(f32::NEG_INFINITY);
    }
    let out = SharedMut::new(out);
    for_rows(exec, shape, |rows| {
        // SAFETY: `out` has one element for each row, and each task has its own rows.
        let out = unsafe { out.part(rows.start, rows.len()) };
        log_sum_exp_rows(scores, rows, columns, lengths, out)
    });
    Ok(())
}
