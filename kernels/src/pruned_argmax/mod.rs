//! Pruned argmax: the column of the largest element of each row of `X W + b`, without most of the multiplications.
//!
//! Greedy decoding needs one column of 32,000 for each row, and nearly all columns are far below the largest. So a
//! second copy of `W` is stored in int8 ([`PruningTable`]). Reading it takes a quarter of the memory traffic and, on a
//! CPU with int8 multiplication, a quarter of the time. By the Cauchy-Schwarz inequality, the error of the int8 product
//! is at most
//!
//! `|x w - x' w'| <= |x - x'| |w| + |x'| |w - w'|`,
//!
//! where `x'` and `w'` are the dequantized values. The norms are computed together with the int8 values. A column whose
//! upper bound is below the best lower bound cannot be the largest. For the few remaining columns the sum is computed
//! again in f32, in the order of [`gemm`](crate::gemm()). The bounds include the rounding of both computations, so the
//! result is exact: it is the column that [`gemm`](crate::gemm()) and [`argmax`](crate::topk::argmax) would give, and
//! the same value bit for bit.
//!
//! A row for which this is not certain (too many candidates, or an element that is not finite) is [`UNDECIDED`], and
//! the caller computes the whole product.

mod build;
mod error_bound;
mod product;
mod rescore;
mod row_bounds;
mod scan;

pub use build::PruningTable;
pub use product::{Product, argmax_scratch};
pub use rescore::UNDECIDED;

use crate::error::Error;
use crate::parallel::{Parallelism, share};
use crate::sync_ptr::SharedMut;
use crate::{Matrix, Quantization, QuantizedActivations};
use core::ptr::NonNull;
use product::{CANDIDATES, PARTS};

/// For each row of `x`, `[rows, depth]`: the column of the largest element of `x W + b` among the columns for which
/// `banned(row, column)` is false, the first one if there are several; and the value of that element, with the bits
/// that [`gemm`](crate::gemm()) gives it. Rows for which this is not certain give [`UNDECIDED`] and NaN. Among them is
/// every row whose largest element is NaN or infinite, and every row whose columns are all banned.
///
/// `banned` is called only for columns that may be the largest, on any of the computing threads. Its result for a
/// column must not change during the call. It may panic (the panic reaches the caller), and it may enter rayon again:
/// the documentation of `Team` lists what callbacks may do.
///
/// `columns` and `values` have one element per row, and `scratch` has [`argmax_scratch`] floats. Which rows are undecided may
/// depend on the number of threads; the results of the decided rows do not.
///
/// # Errors
/// The shapes do not match. Nothing is written then.
///
/// ```
/// use simdformer_kernels::pruned_argmax::{self, Product, PruningTable};
/// use simdformer_kernels::{Isa, Matrix, PackedMatrix, Parallelism};
///
/// let isa = Isa::detect()?;
/// let weight = [1.0, 4.0, 3.0, 2.0, 5.0, 6.0]; // [2, 3]
/// let mut buffer = vec![0.0; PackedMatrix::buffer_len(isa, 2, 3)?];
/// let packed = PackedMatrix::pack(isa, Matrix::new(&weight, 2, 3)?, &mut buffer)?;
/// let mut buffer = vec![0.0; PruningTable::buffer_len(2, 3)?];
/// let pruning_table = PruningTable::build(&packed, &mut buffer)?;
///
/// let x = [1.0, 10.0];
/// let product = Product { weight: &packed, pruning_table: &pruning_table, bias: None, by_column: None };
/// let (mut column, mut value) = ([0], [0.0]);
/// let mut scratch = vec![0.0; pruned_argmax::argmax_scratch(1, 2)?];
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
) -> Result<(), Error> {
    // Without the feature no table can exist. The check removes the code below from such builds.
    if !cfg!(feature = "int8") {
        return Err(Error::NO_INT8);
    }
    product::check(product, &x, columns, values, scratch)?;
    let Product { weight, pruning_table, .. } = *product;
    let (count, depth) = (x.rows(), x.columns());
    if count == 0 {
        return Ok(());
    }
    let isa = weight.isa();
    let words = QuantizedActivations::buffer_len(count, depth, Quantization::W8A8)?;
    let (words, scratch) = scratch.split_at_mut(words);
    let (statistics, scratch) = scratch.split_at_mut(count * row_bounds::ROW_STATISTICS);
    let (counts, scratch) = scratch.split_at_mut(PARTS * count);
    let lists = &mut scratch[..PARTS * count * CANDIDATES * 2];
    counts.fill(f32::from_bits(0));
    let job = scan::ScanTask {
        product,
        rows: row_bounds::BoundedRows::new(isa, &x, words, statistics)?,
        banned,
        counts: SharedMut::from_first(NonNull::from(counts).cast()),
        lists: SharedMut::from_first(NonNull::from(lists).cast()),
    };
    let (panels, workers) = (pruning_table.panels().panels(), parallelism.workers());
    workers.for_each(PARTS, &|part| {
        isa.dispatch_bytes(scan::scan(&job, part, share(panels, PARTS, part)));
    });
    let (columns, values) = (SharedMut::new(columns), SharedMut::new(&mut values[..count]));
    workers.for_each(count, &|row| {
        let (column, value) = isa.dispatch(rescore::rescore(&job, &x, row));
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
