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
//! * `error_bound.rs`: the proof, and every constant in it.
//! * `build.rs`: from packed floats to bytes, with statistics of the columns.
//! * `quantize_rows.rs`: from the rows of `x` to bytes, with statistics of the rows.
//! * `scan.rs`: all columns, in bytes; keeps the candidates.
//! * `rescore.rs`: the candidates, in f32.

mod build;
mod candidates;
mod error;
mod error_bound;
mod product;
mod quantize_rows;
mod rescore;
mod scan;

pub use build::PruningTable;
pub use error::PrunedArgmaxError;
pub use product::{Product, scratch};
pub use rescore::UNDECIDED;

use crate::Matrix;
use crate::parallel::{Parallelism, share};
use crate::shared::SharedMut;
use candidates::{CANDIDATES, PARTS};

/// For each row of `x`, `[rows, depth]`, the column of the largest element of `x W + b` among those
/// that `banned(row, column)` is false for, the first of several; and that element, with the bits
/// that [`gemm`](crate::gemm()) gives it. [`UNDECIDED`] (and NaN) for rows where that is not certain, among
/// them every row whose largest element is NaN, infinite, or banned altogether.
///
/// `banned` is only asked about columns that might be the largest, on whichever threads compute. What
/// it says of a column must not change. It may panic, which reaches the caller, and enter rayon again:
/// `Team` says what callbacks may do.
///
/// `columns` and `values` have a place for each row, `scratch` is of [`scratch`] floats. Which rows are
/// undecided may depend on threads; what is decided does not.
///
/// # Errors
/// Shapes that do not fit together; then nothing is written.
///
/// ```
/// use simdformer_kernels::pruned_argmax::{self, Product, PruningTable};
/// use simdformer_kernels::{Isa, Matrix, PackedMatrix, Parallelism};
///
/// let isa = Isa::detect()?;
/// let weight = [1.0, 4.0, 3.0, 2.0, 5.0, 6.0]; // [2, 3]
/// let mut buffer = vec![0.0; PackedMatrix::len(isa, 2, 3)?];
/// let packed = PackedMatrix::pack(isa, Matrix::new(&weight, 2, 3)?, &mut buffer)?;
/// let mut buffer = vec![0.0; PruningTable::len(2, 3)?];
/// let screen = PruningTable::build(&packed, &mut buffer)?;
///
/// let x = [1.0, 10.0];
/// let product = Product { weight: &packed, screen: &screen, bias: None, by_column: None };
/// let (mut column, mut value) = ([0], [0.0]);
/// let mut scratch = vec![0.0; pruned_argmax::scratch(1, 2)?];
/// pruned_argmax::argmax(
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
pub fn argmax(
    product: &Product<'_>,
    x: Matrix<'_>,
    banned: &(dyn Fn(usize, u32) -> bool + Sync),
    (columns, values): (&mut [u32], &mut [f32]),
    scratch: &mut [f32],
    parallelism: Parallelism<'_>,
) -> Result<(), PrunedArgmaxError> {
    // No screen exists without the feature, and no code below is compiled.
    if !cfg!(feature = "int8") {
        return Err(PrunedArgmaxError::MissingFeature { feature: "int8" });
    }
    product::check(product, &x, columns, values, scratch)?;
    let Product { weight, screen, .. } = *product;
    let (count, steps) = (x.rows(), screen.steps());
    if count == 0 {
        return Ok(());
    }
    let isa = weight.isa();
    let (words, scratch) = scratch.split_at_mut(count * steps);
    let (statistics, scratch) = scratch.split_at_mut(count * quantize_rows::ROW_STATISTICS);
    let (counts, scratch) = scratch.split_at_mut(PARTS * count);
    let lists = &mut scratch[..PARTS * count * CANDIDATES * 2];
    counts.fill(f32::from_bits(0));
    let job = scan::ScanTask {
        product,
        rows: quantize_rows::quantize(isa, &x, screen, words, statistics),
        banned,
        counts: counts.as_mut_ptr().cast(),
        lists: lists.as_mut_ptr().cast(),
    };
    let (panels, workers) = (screen.panels(), parallelism.workers());
    workers.for_each(PARTS, &|part| {
        isa.dispatch_bytes(scan::Scan { job: &job, part, panels: share(panels, PARTS, part) });
    });
    let (columns, values) = (SharedMut::new(columns), SharedMut::new(&mut values[..count]));
    workers.for_each(count, &|row| {
        let (column, value) = isa.dispatch(rescore::Rescore { job: &job, x: &x, row });
        // SAFETY: one element for each row, and each task has its own row.
        unsafe {
            columns.part(row, 1)[0] = column;
            values.part(row, 1)[0] = value;
        }
    });
    Ok(())
}

#[cfg(test)]
mod tests;
