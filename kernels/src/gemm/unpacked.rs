//! A product of two matrices of which neither was packed before: scores against a table that changes,
//! a low-rank update, the operands of another engine's `matmul`.
//!
//! `B` is packed [`COLUMNS`] columns at a time into the caller's scratch, by all threads, and each part
//! is multiplied while it is in an outer cache. The tile is the packed product's, so the bits are
//! too. Packing reads and writes `B` once, what a product of a few rows takes as well: from some dozen
//! rows on it does not matter. One tile of rows reads a `B` of contiguous rows where it lies, see
//! `small_m.rs`.

use super::epilogue::{Epilogue, Residual, Store};
use super::error::GemmError;
use super::packing::PackedMatrix;
use super::{blocking, check, small_m};
use crate::isa::Isa;
use crate::matrix::{Matrix, MatrixMut};
use crate::parallel::Parallelism;

/// Columns that are packed together: 2 MiB at a depth of 512, and sixteen panels of the widest, so that
/// as many threads can pack.
const COLUMNS: usize = 1024;

/// Floats of scratch that [`gemm_unpacked`] takes for a `B` of `[depth, columns]`: those of
/// [`PackedMatrix::len`], for 1,024 columns at most.
///
/// # Errors
/// The size overflows.
pub fn gemm_unpacked_scratch(isa: Isa, depth: usize, columns: usize) -> Result<usize, GemmError> {
    PackedMatrix::len(isa, depth, columns.min(COLUMNS))
}

/// As [`gemm`](super::gemm), `C[m, n] = residual[m, n] + activation(scale * sum_k A[m, k] B[k, n] + bias[n])`, of
/// matrices that both come as they are: `a` is `[rows, depth]`, `b` `[depth, columns]` and `c`
/// `[rows, columns]`, all with any strides. A `B` stored `[columns, depth]` is passed transposed.
///
/// `scratch` takes [`gemm_unpacked_scratch`] floats, whatever they hold. The bits and the error bound
/// are those of [`gemm`](super::gemm) on `b` packed for `isa`. A matrix that is multiplied with again and again is
/// better packed once.
///
/// # Errors
/// Shapes that do not fit together, a scratch that is too short; then nothing is written.
///
/// ```
/// use simdformer_kernels::{
///     Epilogue, Isa, Matrix, MatrixMut, Parallelism, gemm_unpacked, gemm_unpacked_scratch,
/// };
///
/// let isa = Isa::best();
/// let a = [1.0, 10.0]; // [1, 2]
/// let b = [1.0, 4.0, 2.0, 5.0, 3.0, 6.0]; // [2, 3], column after column
/// let mut scratch = vec![0.0; gemm_unpacked_scratch(isa, 2, 3)?];
/// let mut c = [0.0; 3];
/// gemm_unpacked(
///     isa,
///     Matrix::new(&a, 1, 2)?,
///     Matrix::new(&b, 3, 2)?.transposed(),
///     &Epilogue::default(),
///     MatrixMut::new(&mut c, 1, 3)?,
///     &mut scratch,
///     Parallelism::Serial,
/// )?;
/// assert_eq!(c, [41.0, 52.0, 63.0]);
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
pub fn gemm_unpacked(
    isa: Isa,
    a: Matrix<'_>,
    b: Matrix<'_>,
    epilogue: &Epilogue<'_>,
    mut c: MatrixMut<'_>,
    scratch: &mut [f32],
    parallelism: Parallelism<'_>,
) -> Result<(), GemmError> {
    let (depth, columns) = (b.rows(), b.columns());
    check::operands((a.rows(), a.columns()), (depth, columns), epilogue, &c)?;
    let expected = gemm_unpacked_scratch(isa, depth, columns)?;
    let found = scratch.len();
    let Some(scratch) = scratch.get_mut(..expected) else {
        return Err(GemmError::Scratch { expected, found });
    };
    if a.rows() == 0 {
        return Ok(());
    }
    let workers = parallelism.workers();
    let mut done = 0;
    if small_m::is_supported(&a, &b) {
        done = small_m::run(isa, a, b, Store::new(epilogue, &mut c), workers);
    }
    for first in (done..columns).step_by(COLUMNS) {
        let count = (columns - first).min(COLUMNS);
        // SAFETY: columns that are there, of `b` and, as was checked, of everything beside it.
        let (b, mut c, residual) = unsafe {
            let residual = match epilogue.residual {
                Residual::Matrix(residual) => {
                    Residual::Matrix(residual.columns_unchecked(first, count))
                }
                #[cfg(feature = "train")]
                Residual::Derivative { of, pre } => {
                    Residual::Derivative { of, pre: pre.columns_unchecked(first, count) }
                }
                other => other,
            };
            let c = c.reborrow().columns_unchecked(first, count);
            (b.columns_unchecked(first, count), c, residual)
        };
        let packed = PackedMatrix::pack_by(isa, b, scratch, workers)?;
        let bias = epilogue.bias.map(|bias| &bias[first..first + count]);
        let epilogue = Epilogue { bias, residual, ..*epilogue };
        blocking::run(a, &packed, &epilogue, &mut c, workers);
    }
    Ok(())
}
