//! A product of two unpacked matrices: scores against a table that changes, a low-rank update, or the operands of the
//! `matmul` of another engine.
//!
//! All threads pack `B` into the caller's scratch, [`COLUMNS`] columns at a time. Each part is multiplied while it is
//! in an outer cache. The tile is that of the packed product, so the bits are the same. Packing reads and writes `B`
//! once, which takes as long as a product of a few rows; from about a dozen rows on its cost does not matter. If `A`
//! has only one tile of rows and the rows of `B` are contiguous, `B` is read in place (see `small_m.rs`).

use super::epilogue::{Epilogue, PostOp, check_operands};
use super::packing::PackedMatrix;
use super::store_tile::Store;
use super::{blocking, small_m};
use crate::error::Error;
use crate::isa::Isa;
use crate::matrix::{Matrix, MatrixMut};
use crate::parallel::Exec;

/// Columns that are packed together: 2 MiB at a depth of 512, and sixteen panels of the widest instruction set, so that
/// sixteen threads can pack.
const COLUMNS: usize = 1024;

/// Floats of scratch that [`gemm_unpacked`] takes for a `B` of `[depth, columns]`: [`PackedMatrix::buffer_len`] of at most
/// 1,024 columns.
///
/// # Errors
/// The size overflows.
pub fn gemm_unpacked_scratch(isa: Isa, depth: usize, columns: usize) -> Result<usize, Error> {
    PackedMatrix::buffer_len(isa, depth, columns.min(COLUMNS))
}

/// [`gemm`](super::gemm) for two unpacked matrices:
/// `C[m, n] = post_op(activation(scale * sum_k A[m, k] B[k, n] + bias[n]))`. `a` is `[rows, depth]`, `b` is
/// `[depth, columns]` and `c` is `[rows, columns]`, all with any strides. A `B` stored `[columns, depth]` is passed
/// transposed.
///
/// `scratch` takes [`gemm_unpacked_scratch`] floats; its previous content does not matter. The bits and the error bound
/// are those of [`gemm`](super::gemm) with `b` packed for `isa`. A matrix that is used in many products should be
/// packed once.
///
/// # Errors
/// The shapes do not match, or the scratch is too short. Nothing is written then.
///
/// ```
/// use simdformer_kernels::{
///     Epilogue, Exec, Isa, Matrix, MatrixMut, gemm_unpacked, gemm_unpacked_scratch,
/// };
///
/// let isa = Isa::best();
/// let a = [1.0, 10.0]; // [1, 2]
/// let b = [1.0, 4.0, 2.0, 5.0, 3.0, 6.0]; // [2, 3], stored by column
/// let mut scratch = vec![0.0; gemm_unpacked_scratch(isa, 2, 3)?];
/// let mut c = [0.0; 3];
/// gemm_unpacked(
///     Exec::serial(isa),
///     Matrix::new(&a, 1, 2)?,
///     Matrix::new(&b, 3, 2)?.transposed(),
///     &Epilogue::default(),
///     MatrixMut::new(&mut c, 1, 3)?,
///     &mut scratch,
/// )?;
/// assert_eq!(c, [41.0, 52.0, 63.0]);
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
pub fn gemm_unpacked(
    exec: Exec<'_>,
    a: Matrix<'_>,
    b: Matrix<'_>,
    epilogue: &Epilogue<'_>,
    mut c: MatrixMut<'_>,
    scratch: &mut [f32],
) -> Result<(), Error> {
    let Exec { isa, threads } = exec;
    let (depth, columns) = (b.rows(), b.columns());
    check_operands(["a", "b"], (a.rows(), a.columns()), (depth, columns), epilogue, &c)?;
    let expected = gemm_unpacked_scratch(isa, depth, columns)?;
    Error::check_min_len("scratch", expected, scratch)?;
    if a.rows() == 0 {
        return Ok(());
    }
    let workers = threads.workers();
    let mut done = 0;
    if small_m::is_supported(&a, &b) {
        done = small_m::multiply_whole_panels(isa, a, b, Store::new(epilogue, &mut c), workers);
    }
    for first in (done..columns).step_by(COLUMNS) {
        let count = (columns - first).min(COLUMNS);
        // SAFETY: `first + count <= columns`, the number of columns of `b`; `check_operands` checked that `c` and
        // the operand of the post-op have as many.
        let (b, mut c, post_op) = unsafe {
            let post_op = match epilogue.post_op {
                PostOp::Add(added) => PostOp::Add(added.columns_unchecked(first, count)),
                #[cfg(feature = "train")]
                PostOp::ActivationBackward { activation, pre } => {
                    let pre = pre.columns_unchecked(first, count);
                    PostOp::ActivationBackward { activation, pre }
                }
                other => other,
            };
            let c = c.reborrow().columns_unchecked(first, count);
            (b.columns_unchecked(first, count), c, post_op)
        };
        let packed = PackedMatrix::pack_by(isa, b, scratch, workers)?;
        let bias = epilogue.bias.map(|bias| &bias[first..first + count]);
        let epilogue = Epilogue { bias, post_op, ..*epilogue };
        blocking::multiply_packed(a, &packed, &epilogue, &mut c, workers);
    }
    Ok(())
}
