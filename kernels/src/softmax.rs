//! Softmax, log-softmax and log-sum-exp of rows.
//!
//! With `m` the row's maximum and `s` the sum of `e^(x_i - m)`: softmax is `e^(x_i - m) / s`,
//! log-softmax `x_i - m - ln s`, log-sum-exp `m + ln s`. Nothing overflows, whatever the scores.
//!
//! A row is read in blocks that fit the first-level cache: the maximum of a block and then its
//! exponentials, while it is there. A sum over earlier blocks is rescaled when a later block has a
//! larger maximum, and is kept in f64, so a row of 256,000 columns is read from memory once and is
//! as accurate as a short one. Short rows keep their exponentials; long ones form them again.
//!
//! Special values. Columns from a row's length on are masked: never read, 0 in the result (negative
//! infinity for log-softmax). A score of negative infinity is masked too. NaN or positive infinity
//! in the valid part of a row makes that whole valid part NaN, and no other row.

use crate::isa::Kernel;
use crate::lanes::Lanes;
use crate::math::exp_nonpositive;
use crate::matrix::SharedMut;
use crate::rows::{Map, UnitColumns, for_rows, sweep};
use crate::{Isa, Matrix, MatrixMut, Parallelism};
use core::fmt;

/// Columns in one block: 16 KiB, a third of a first-level cache.
const BLOCK: usize = 4096;
/// Vectors in flight in a reduction.
const UNROLL: usize = 4;

/// What softmax makes of a row with no valid entry, where the formula is 0 / 0.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub enum FullyMasked {
    /// Every probability 0 (logarithm negative infinity): nothing is attended to.
    #[default]
    Zeros,
    /// Every one of the row's columns, masked or not, gets `1 / columns`: what comes of filling
    /// masked scores with a large negative number, as textbooks do.
    Uniform,
}

/// Why a softmax could not run.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum SoftmaxError {
    /// The output has another shape than the scores.
    Shape {
        /// Rows and columns of the scores.
        expected: [usize; 2],
        /// Rows and columns of the output.
        found: [usize; 2],
    },
    /// The elements of a row are not side by side.
    ColumnStride {
        /// The column stride found; 1 is expected.
        found: usize,
    },
    /// There is not one length for each row.
    Lengths {
        /// Rows of the scores.
        expected: usize,
        /// Lengths given.
        found: usize,
    },
    /// A row's length is larger than the row.
    Length {
        /// The row.
        row: usize,
        /// Columns in a row.
        columns: usize,
        /// The length given for it.
        found: usize,
    },
    /// There is not one output for each row.
    Output {
        /// Rows of the scores.
        expected: usize,
        /// Outputs given.
        found: usize,
    },
}

impl fmt::Display for SoftmaxError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Shape { expected: [r, c], found: [fr, fc] } => {
                write!(f, "the output should be {r} x {c} like the scores, found {fr} x {fc}")
            }
            Self::ColumnStride { found } => {
                write!(f, "softmax needs contiguous rows (column stride 1), found {found}")
            }
            Self::Lengths { expected, found } => {
                write!(f, "expected {expected} lengths, one for each row, found {found}")
            }
            Self::Length { row, columns, found } => {
                write!(f, "row {row} has {columns} columns, found a length of {found}")
            }
            Self::Output { expected, found } => {
                write!(f, "expected {expected} outputs, one for each row, found {found}")
            }
        }
    }
}

impl core::error::Error for SoftmaxError {}

/// Maximum of `len` floats, ignoring NaN; negative infinity when there is none.
///
/// # Safety
/// `from` is valid for reads of `len` floats.
#[inline(always)]
pub(crate) unsafe fn block_max<S: Lanes>(s: S, from: *const f32, len: usize) -> f32 {
    let lowest = s.splat(f32::NEG_INFINITY);
    let mut max = [lowest; UNROLL];
    let mut i = 0;
    while i + UNROLL * S::LANES <= len {
        for (j, max) in max.iter_mut().enumerate() {
            // SAFETY: `i + UNROLL * LANES <= len`. NaN in the first argument leaves the second.
            *max = s.max(unsafe { s.load(from.add(i + j * S::LANES)) }, *max);
        }
        i += UNROLL * S::LANES;
    }
    while i < len {
        let count = (len - i).min(S::LANES);
        // SAFETY: `i + count <= len`.
        let x = s.select(s.first(count), unsafe { s.load_first(from.add(i), count) }, lowest);
        max[0] = s.max(x, max[0]);
        i += count;
    }
    s.reduce_max(s.max(s.max(max[0], max[1]), s.max(max[2], max[3])))
}

/// Sum of `e^(x - max)` over `len` floats; stores the exponentials too if `STORE`.
///
/// # Safety
/// `from` is valid for reads and, if `STORE`, `to` for writes of `len` floats; they are the same or
/// disjoint.
#[inline(always)]
unsafe fn block_exp<S: Lanes, const STORE: bool>(
    s: S,
    from: *const f32,
    to: *mut f32,
    len: usize,
    max: f32,
) -> f32 {
    let shift = s.splat(max);
    let mut sum = [s.splat(0.0); UNROLL];
    let mut i = 0;
    while i + UNROLL * S::LANES <= len {
        for (j, sum) in sum.iter_mut().enumerate() {
            let at = i + j * S::LANES;
            // SAFETY: `i + UNROLL * LANES <= len`.
            let e = exp_nonpositive(s, s.sub(unsafe { s.load(from.add(at)) }, shift));
            if STORE {
                // SAFETY: as above.
                unsafe { s.store(to.add(at), e) };
            }
            *sum = s.add(*sum, e);
        }
        i += UNROLL * S::LANES;
    }
    while i < len {
        let count = (len - i).min(S::LANES);
        // SAFETY: `i + count <= len`.
        let e = exp_nonpositive(s, s.sub(unsafe { s.load_first(from.add(i), count) }, shift));
        if STORE {
            // SAFETY: as above.
            unsafe { s.store_first(to.add(i), e, count) };
        }
        sum[0] = s.add(sum[0], s.select(s.first(count), e, s.splat(0.0)));
        i += count;
    }
    s.reduce_add(s.add(s.add(sum[0], sum[1]), s.add(sum[2], sum[3])))
}

/// The maximum and the sum of `e^(x - max)` of a row.
#[derive(Clone, Copy)]
struct Sums {
    /// 0 when every entry is masked.
    max: f32,
    /// 0 when every entry is masked, NaN when one entry is.
    sum: f64,
}

/// What is subtracted from scores whose maximum is `max`. The maximum itself, except that negative
/// infinity minus itself would be NaN.
#[inline(always)]
fn shift_of(max: f32) -> f32 {
    if max == f32::NEG_INFINITY { 0.0 } else { max }
}

/// # Safety
/// `from` is valid for reads of `len` floats.
#[inline(always)]
unsafe fn sums<S: Lanes>(s: S, from: *const f32, len: usize) -> Sums {
    let mut max = f32::NEG_INFINITY;
    let mut sum = 0.0f64;
    let mut start = 0;
    while start < len {
        let count = (len - start).min(BLOCK);
        // SAFETY: `start + count <= len`.
        let block = unsafe { from.add(start) };
        // SAFETY: as above.
        let largest = unsafe { block_max(s, block, count) };
        if largest > max {
            if sum != 0.0 {
                sum *= libm::exp(f64::from(max) - f64::from(largest));
            }
            max = largest;
        }
        // SAFETY: as above; nothing is stored.
        let part =
            unsafe { block_exp::<S, false>(s, block, core::ptr::null_mut(), count, shift_of(max)) };
        sum += f64::from(part);
        start += count;
    }
    Sums { max: shift_of(max), sum }
}

#[derive(Clone, Copy)]
struct Times(f32);

impl Map for Times {
    #[inline(always)]
    fn map<S: Lanes>(self, s: S, x: S::F32) -> S::F32 {
        s.mul(x, s.splat(self.0))
    }
}

/// `e^(x - shift) * factor`
#[derive(Clone, Copy)]
struct ShiftExpTimes(f32, f32);

impl Map for ShiftExpTimes {
    #[inline(always)]
    fn map<S: Lanes>(self, s: S, x: S::F32) -> S::F32 {
        s.mul(exp_nonpositive(s, s.sub(x, s.splat(self.0))), s.splat(self.1))
    }
}

/// `(x - first) - second`
#[derive(Clone, Copy)]
struct MinusTwice(f32, f32);

impl Map for MinusTwice {
    #[inline(always)]
    fn map<S: Lanes>(self, s: S, x: S::F32) -> S::F32 {
        s.sub(s.sub(x, s.splat(self.0)), s.splat(self.1))
    }
}

#[inline(always)]
unsafe fn fill(to: *mut f32, start: usize, end: usize, value: f32) {
    for i in start..end {
        // SAFETY: the caller vouches for `end` floats.
        unsafe { to.add(i).write(value) };
    }
}

/// Softmax of one row of `columns` of which the first `len` are valid.
///
/// # Safety
/// `from` is valid for reads of `len`, `to` for writes of `columns` floats; they are the same or
/// disjoint.
#[inline(always)]
unsafe fn softmax_row<S: Lanes>(
    s: S,
    from: *const f32,
    to: *mut f32,
    len: usize,
    columns: usize,
    fully_masked: FullyMasked,
) {
    // SAFETY: the caller's contract, for all of this function.
    unsafe {
        let empty;
        if len <= BLOCK {
            let max = shift_of(block_max(s, from, len));
            let sum = block_exp::<S, true>(s, from, to, len, max);
            empty = sum == 0.0;
            if !empty {
                sweep(s, Times(1.0 / sum), to, to, len);
            }
        } else {
            let Sums { max, sum } = sums(s, from, len);
            empty = sum == 0.0;
            if !empty {
                sweep(s, ShiftExpTimes(max, (1.0 / sum) as f32), from, to, len);
            }
        }
        match fully_masked {
            FullyMasked::Zeros if empty => fill(to, 0, columns, 0.0),
            FullyMasked::Uniform if empty => fill(to, 0, columns, 1.0 / columns as f32),
            _ => fill(to, len, columns, 0.0),
        }
    }
}

/// As [`softmax_row`], for the logarithm.
///
/// # Safety
/// As [`softmax_row`].
#[inline(always)]
unsafe fn log_softmax_row<S: Lanes>(
    s: S,
    from: *const f32,
    to: *mut f32,
    len: usize,
    columns: usize,
    fully_masked: FullyMasked,
) {
    // SAFETY: the caller's contract, for all of this function.
    unsafe {
        let Sums { max, sum } = sums(s, from, len);
        let empty = sum == 0.0;
        if !empty {
            sweep(s, MinusTwice(max, libm::log(sum) as f32), from, to, len);
        }
        match fully_masked {
            FullyMasked::Zeros if empty => fill(to, 0, columns, f32::NEG_INFINITY),
            FullyMasked::Uniform if empty => {
                fill(to, 0, columns, -libm::log(columns as f64) as f32);
            }
            _ => fill(to, len, columns, f32::NEG_INFINITY),
        }
    }
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum Form {
    Probability,
    Logarithm,
}

struct SoftmaxRows<'a> {
    form: Form,
    from: *const f32,
    from_stride: usize,
    to: *mut f32,
    to_stride: usize,
    rows: usize,
    columns: usize,
    lengths: Option<&'a [usize]>,
    fully_masked: FullyMasked,
}

impl Kernel for SoftmaxRows<'_> {
    type Output = ();

    #[inline(always)]
    fn run<S: Lanes>(self, s: S) {
        for row in 0..self.rows {
            let len = self.lengths.map_or(self.columns, |lengths| lengths[row]);
            // SAFETY: whoever made the value vouches for `rows` rows of `columns` floats at both
            // places, and for lengths of at most `columns`.
            unsafe {
                let from = self.from.add(row * self.from_stride);
                let to = self.to.add(row * self.to_stride);
                match self.form {
                    Form::Probability => {
                        softmax_row(s, from, to, len, self.columns, self.fully_masked);
                    }
                    Form::Logarithm => {
                        log_softmax_row(s, from, to, len, self.columns, self.fully_masked);
                    }
                }
            }
        }
    }
}

fn check_lengths(
    lengths: Option<&[usize]>,
    rows: usize,
    columns: usize,
) -> Result<(), SoftmaxError> {
    let Some(lengths) = lengths else { return Ok(()) };
    if lengths.len() != rows {
        return Err(SoftmaxError::Lengths { expected: rows, found: lengths.len() });
    }
    match lengths.iter().enumerate().find(|&(_, &length)| length > columns) {
        Some((row, &found)) => Err(SoftmaxError::Length { row, columns, found }),
        None => Ok(()),
    }
}

/// Where a row is read when it is not overwritten.
#[derive(Clone, Copy)]
enum Source<'a> {
    Same,
    Other(Matrix<'a>),
}

struct Settings<'a> {
    isa: Isa,
    form: Form,
    lengths: Option<&'a [usize]>,
    fully_masked: FullyMasked,
    parallelism: Parallelism<'a>,
}

fn run(
    settings: &Settings<'_>,
    source: Source<'_>,
    mut to: MatrixMut<'_>,
) -> Result<(), SoftmaxError> {
    let (rows, columns) = (to.rows(), to.columns());
    let mut wide = to.wide_columns();
    if let Source::Other(from) = source {
        let expected = [from.rows(), from.columns()];
        if expected != [rows, columns] {
            return Err(SoftmaxError::Shape { expected, found: [rows, columns] });
        }
        wide = wide.or(from.wide_columns());
    }
    if let Some(found) = wide {
        return Err(SoftmaxError::ColumnStride { found });
    }
    check_lengths(settings.lengths, rows, columns)?;
    if columns == 0 {
        return Ok(());
    }
    let to_stride = to.row_stride();
    let shared = to.shared();
    let &Settings { isa, form, lengths, fully_masked, parallelism } = settings;
    for_rows(parallelism, rows, columns, &|range| {
        // SAFETY: the view was checked to hold every row, and each task has its own.
        let to = unsafe { shared.as_ptr().add(range.start * to_stride) };
        let (from, from_stride) = match source {
            Source::Same => (to.cast_const(), to_stride),
            // SAFETY: as above.
            Source::Other(from) => {
                (unsafe { from.as_ptr().add(range.start * from.row_stride()) }, from.row_stride())
            }
        };
        isa.dispatch(SoftmaxRows {
            form,
            from,
            from_stride,
            to,
            to_stride,
            rows: range.len(),
            columns,
            lengths: lengths.map(|lengths| &lengths[range]),
            fully_masked,
        });
    });
    Ok(())
}

/// Softmax of each row of `scores` `[rows, columns]` into `out` of the same shape.
///
/// `lengths` holds, if given, one number for each row: how many of its first columns are valid.
/// The others are not read and get 0. `fully_masked` says what a row with no valid entry gets.
///
/// Error: each probability `p` is within `p (d + 8) 2^-24 + 2^-126` of the exact softmax of the
/// scores as given, with `d` half the terms that one lane sums, at most `4096 / (4 lanes)`.
///
/// # Errors
/// Shapes or number of lengths disagree, a length exceeds the columns, or the elements of a row are
/// not side by side.
///
/// ```
/// use simdformer_kernels::softmax::{FullyMasked, softmax};
/// use simdformer_kernels::{Isa, Matrix, MatrixMut, Parallelism};
///
/// let scores = [0.0, 0.0, f32::NAN, 5.0, 5.0, 5.0];
/// let mut p = [0.0; 6];
/// softmax(
///     Isa::detect(),
///     Matrix::new(&scores, 2, 3)?,
///     Some(&[2, 0]),
///     FullyMasked::Zeros,
///     MatrixMut::new(&mut p, 2, 3)?,
///     Parallelism::Serial,
/// )?;
/// assert_eq!(p, [0.5, 0.5, 0.0, 0.0, 0.0, 0.0]);
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
pub fn softmax(
    isa: Isa,
    scores: Matrix<'_>,
    lengths: Option<&[usize]>,
    fully_masked: FullyMasked,
    out: MatrixMut<'_>,
    parallelism: Parallelism<'_>,
) -> Result<(), SoftmaxError> {
    let settings = Settings { isa, form: Form::Probability, lengths, fully_masked, parallelism };
    run(&settings, Source::Other(scores), out)
}

/// [`softmax`], in place.
///
/// # Errors
/// As [`softmax`].
pub fn softmax_in_place(
    isa: Isa,
    scores: MatrixMut<'_>,
    lengths: Option<&[usize]>,
    fully_masked: FullyMasked,
    parallelism: Parallelism<'_>,
) -> Result<(), SoftmaxError> {
    let settings = Settings { isa, form: Form::Probability, lengths, fully_masked, parallelism };
    run(&settings, Source::Same, scores)
}

/// Logarithm of the softmax of each row of `scores` `[rows, columns]` into `out` of the same shape;
/// masked columns, and rows with no valid entry under [`FullyMasked::Zeros`], get negative
/// infinity. The other arguments are those of [`softmax`].
///
/// Error: within `(d + 4) 2^-24 + 2^-24 (|x - m| + 2 |result|)` of the exact value for a score `x`
/// in a row of maximum `m`, with `d` as in [`softmax`].
///
/// # Errors
/// As [`softmax`].
pub fn log_softmax(
    isa: Isa,
    scores: Matrix<'_>,
    lengths: Option<&[usize]>,
    fully_masked: FullyMasked,
    out: MatrixMut<'_>,
    parallelism: Parallelism<'_>,
) -> Result<(), SoftmaxError> {
    let settings = Settings { isa, form: Form::Logarithm, lengths, fully_masked, parallelism };
    run(&settings, Source::Other(scores), out)
}

/// [`log_softmax`], in place.
///
/// # Errors
/// As [`softmax`].
pub fn log_softmax_in_place(
    isa: Isa,
    scores: MatrixMut<'_>,
    lengths: Option<&[usize]>,
    fully_masked: FullyMasked,
    parallelism: Parallelism<'_>,
) -> Result<(), SoftmaxError> {
    let settings = Settings { isa, form: Form::Logarithm, lengths, fully_masked, parallelism };
    run(&settings, Source::Same, scores)
}

struct LogSumExpRows<'a> {
    from: *const f32,
    stride: usize,
    rows: usize,
    columns: usize,
    lengths: Option<&'a [usize]>,
    out: *mut f32,
}

impl Kernel for LogSumExpRows<'_> {
    type Output = ();

    #[inline(always)]
    fn run<S: Lanes>(self, s: S) {
        for row in 0..self.rows {
            let len = self.lengths.map_or(self.columns, |lengths| lengths[row]);
            // SAFETY: whoever made the value vouches for `rows` rows of `columns` floats, lengths
            // of at most `columns`, and `rows` outputs.
            unsafe {
                let Sums { max, sum } = sums(s, self.from.add(row * self.stride), len);
                // The logarithm of no entry at all, ln 0, is negative infinity.
                self.out.add(row).write((f64::from(max) + libm::log(sum)) as f32);
            }
        }
    }
}

/// `ln(sum of e^x)` of each row of `scores` `[rows, columns]` into `out` `[rows]`; negative infinity
/// for a row with no valid entry. `lengths` as in [`softmax`].
///
/// Error: within `(d + 4) 2^-24 + 2^-24 |result|` of the exact value, with `d` as in [`softmax`].
///
/// # Errors
/// As [`softmax`], or there is not one output for each row.
pub fn log_sum_exp(
    isa: Isa,
    scores: Matrix<'_>,
    lengths: Option<&[usize]>,
    out: &mut [f32],
    parallelism: Parallelism<'_>,
) -> Result<(), SoftmaxError> {
    let (rows, columns, stride) = (scores.rows(), scores.columns(), scores.row_stride());
    if let Some(found) = scores.wide_columns() {
        return Err(SoftmaxError::ColumnStride { found });
    }
    check_lengths(lengths, rows, columns)?;
    if out.len() != rows {
        return Err(SoftmaxError::Output { expected: rows, found: out.len() });
    }
    if columns == 0 {
        out.fill(f32::NEG_INFINITY);
        return Ok(());
    }
    let shared = SharedMut::new(out);
    for_rows(parallelism, rows, columns, &|range| {
        // SAFETY: the view was checked to hold every row, `out` has one element for each, and each
        // task has its own.
        let (from, out) = unsafe {
            (scores.as_ptr().add(range.start * stride), shared.as_ptr().add(range.start))
        };
        isa.dispatch(LogSumExpRows {
            from,
            stride,
            rows: range.len(),
            columns,
            lengths: lengths.map(|lengths| &lengths[range]),
            out,
        });
    });
    Ok(())
}
