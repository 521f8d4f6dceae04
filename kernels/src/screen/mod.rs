//! Where the largest element of each row of `X W + b` is, without most of the multiplications.
//!
//! Greedy decoding wants one column of 32,000 from each row, and nearly all columns are far from
//! being it. So `W` is kept a second time as bytes, a quarter of the memory to read and, on a CPU
//! that multiplies bytes, a quarter of the time. The product of bytes is off by no more than
//! Cauchy and Schwarz allow,
//!
//! `|x w - x' w'| <= |x - x'| |w| + |x'| |w - w'|`,
//!
//! with `x'` and `w'` what the bytes stand for and the norms known when they are made. Columns whose
//! upper bound stays below the best lower bound cannot be the largest; of the few that remain, the
//! sum is taken again in f32, in the order of [`gemm`](crate::gemm()). The bounds allow for the rounding
//! of both, so the answer is the column that [`gemm`](crate::gemm()) and
//! [`argmax`](crate::topk::argmax) would give, and the same value bit for bit: not an approximation.
//!
//! A row for which that is not certain (too many columns in reach, something not finite) is
//! [`UNDECIDED`], and the caller takes the whole product.
//!
//! * `build.rs`: from packed floats to bytes and bounds.
//! * `sweep.rs`: all columns, in bytes; keeps the candidates.
//! * `decide.rs`: the candidates, in f32.

mod build;
mod decide;
mod error;
mod rows;
mod sweep;

pub use build::Screen;
pub use error::ScreenError;

use crate::gemm::share;
use crate::parallel::Parallelism;
use crate::{Isa, Matrix, PackedMatrix};
use core::sync::atomic::{AtomicU32, Ordering};

/// Columns in a panel of bytes, on every instruction set.
pub(crate) const PANEL: usize = 32;

/// What [`largest`] gives for a row that it cannot decide.
pub const UNDECIDED: u32 = u32::MAX;

/// Parts that the columns are cut into, each with its own candidates.
const PARTS: usize = 16;

/// Candidates of a row in one part; a row with more is given up.
const CANDIDATES: usize = 64;

/// The product of which [`largest`] finds the largest elements.
#[derive(Clone, Copy, Debug)]
pub struct Product<'a> {
    /// `W`, `[depth, columns]`.
    pub weight: &'a PackedMatrix<'a>,
    /// The screen that was built from `weight`.
    pub screen: &'a Screen<'a>,
    /// `b`, one value per column.
    pub bias: Option<&'a [f32]>,
    /// `W` transposed, `[columns, depth]`, if it is at hand: a candidate is then read from a few lines
    /// of memory instead of `depth`. Must hold what `weight` holds.
    pub by_column: Option<Matrix<'a>>,
}

/// Floats of scratch that [`largest`] takes.
///
/// # Errors
/// [`ScreenError::TooLarge`].
pub fn scratch(rows: usize, depth: usize) -> Result<usize, ScreenError> {
    rows.checked_mul(rows::WORDS + PARTS * (1 + 2 * CANDIDATES))
        .and_then(|words| words.checked_add(rows.checked_mul(depth.div_ceil(4))?))
        .filter(|&words| words <= isize::MAX as usize / 4)
        .ok_or(ScreenError::TooLarge)
}

/// For each row of `x`, `[rows, depth]`, the column of the largest element of `x W + b` among those
/// that `banned(row, column)` is false for, the first of several; and that element, with the bits
/// that [`gemm`](crate::gemm()) gives it. [`UNDECIDED`] (and NaN) for rows where that is not certain, among
/// them every row whose largest element is NaN, infinite, or banned altogether.
///
/// `banned` is only asked about columns that might be the largest. What it says of a column must not
/// change.
///
/// `columns` and `values` have a place for each row, `scratch` is of [`scratch`] floats. Which rows are
/// undecided may depend on threads; what is decided does not.
///
/// # Errors
/// Shapes that do not fit together; then nothing is written.
///
/// ```
/// use simdformer_kernels::screen::{self, Product, Screen};
/// use simdformer_kernels::{Isa, Matrix, PackedMatrix, Parallelism};
///
/// let isa = Isa::detect();
/// let weight = [1.0, 4.0, 3.0, 2.0, 5.0, 6.0]; // [2, 3]
/// let mut buffer = vec![0.0; PackedMatrix::len(isa, 2, 3)?];
/// let packed = PackedMatrix::pack(isa, Matrix::new(&weight, 2, 3)?, &mut buffer)?;
/// let mut buffer = vec![0.0; Screen::len(2, 3)?];
/// let screen = Screen::build(&packed, &mut buffer)?;
///
/// let x = [1.0, 10.0];
/// let product = Product { weight: &packed, screen: &screen, bias: None, by_column: None };
/// let (mut column, mut value) = ([0], [0.0]);
/// let mut scratch = vec![0.0; screen::scratch(1, 2)?];
/// screen::largest(
///     &product,
///     Matrix::new(&x, 1, 2)?,
///     &|_, _| false,
///     (&mut column, &mut value),
///     &mut scratch,
///     Parallelism::Serial,
/// )?;
/// assert_eq!((column, value), ([2], [63.0]));
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
pub fn largest(
    product: &Product<'_>,
    x: Matrix<'_>,
    banned: &(dyn Fn(usize, u32) -> bool + Sync),
    (columns, values): (&mut [u32], &mut [f32]),
    scratch: &mut [f32],
    parallelism: Parallelism<'_>,
) -> Result<(), ScreenError> {
    error::check(product, &x, columns, values, scratch)?;
    let Product { weight, screen, .. } = *product;
    let (rows, steps) = (x.rows(), screen.steps());
    if rows == 0 {
        return Ok(());
    }
    let isa = weight.isa();
    let (words, scratch) = scratch.split_at_mut(rows * steps);
    let (facts, scratch) = scratch.split_at_mut(rows * rows::WORDS);
    let (counts, scratch) = scratch.split_at_mut(PARTS * rows);
    let lists = &mut scratch[..PARTS * rows * CANDIDATES * 2];
    let rows_of_x = rows::prepare(isa, &x, screen, words, facts);
    counts.fill(f32::from_bits(0));
    let job = sweep::Job {
        product,
        rows: rows_of_x,
        banned,
        counts: counts.as_mut_ptr().cast(),
        lists: lists.as_mut_ptr().cast(),
    };
    let panels = screen.panels();
    parallelism.for_each(PARTS, &|part| {
        isa.dispatch_bytes(sweep::Sweep { job: &job, part, panels: share(panels, PARTS, part) });
    });
    let (columns, values) = (
        crate::shared::SharedMut::new(columns),
        crate::shared::SharedMut::new(&mut values[..rows]),
    );
    parallelism.for_each(rows, &|row| {
        let (column, value) = isa.dispatch(decide::Decide { job: &job, x: &x, row });
        // SAFETY: one element for each row, and each task has its own row.
        unsafe {
            columns.part(row, 1)[0] = column;
            values.part(row, 1)[0] = value;
        }
    });
    Ok(())
}

/// The largest lower bound that any part has found for a row: only ever grows, and is infinite when
/// the row is given up.
struct Best<'a>(&'a AtomicU32);

impl Best<'_> {
    #[inline(always)]
    fn get(&self) -> f32 {
        f32::from_bits(self.0.load(Ordering::Relaxed))
    }

    fn raise(&self, bound: f32) {
        let mut seen = self.0.load(Ordering::Relaxed);
        while bound > f32::from_bits(seen) {
            match self.0.compare_exchange_weak(
                seen,
                bound.to_bits(),
                Ordering::Relaxed,
                Ordering::Relaxed,
            ) {
                Ok(_) => return,
                Err(now) => seen = now,
            }
        }
    }
}

impl Screen<'_> {
    /// Whether this CPU multiplies bytes so much faster that a screen pays on `isa`: with VNNI, that is
    /// most with AVX-512 and some with AVX2. Elsewhere it gives the same answers, slowly.
    pub fn pays(isa: Isa) -> bool {
        isa.has_bytes()
    }
}

#[cfg(test)]
mod tests;
