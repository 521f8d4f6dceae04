//! Recomputes the output of a norm from the saved standard scores.

use crate::error::Error;
use crate::isa::Isa;
use crate::matrix::{Matrix, MatrixMut};
use crate::norm::call::Norm;
use crate::norm::vectors::learned;
use crate::parallel::Parallelism;
use crate::rows::{RowPtrs, for_rows};
use crate::simd::simd_op;
use core::ops::Range;

simd_op!(
    fn recompute_rows<S: SimdF32>(
        s: S,
        weight: &[f32],
        bias: Option<&[f32]>,
        rows: Range<usize>,
        standard: RowPtrs<'_>,
        out: RowPtrs<'_>,
    ) {
        for row in rows {
            let (standard, out) = (standard.row(row), out.row(row));
            // SAFETY: `run` checked with `RowPtrs` that both matrices have these rows of `columns` floats, and with
            // `Norm::check` that weight and bias have `columns` floats; `for_rows` gives each task its own rows.
            unsafe {
                match bias {
                    Some(_) => learned::<S, true>(s, weight, bias, standard, out),
                    None => learned::<S, false>(s, weight, None, standard, out),
                }
            }
        }
    }
);

pub(super) fn run(
    isa: Isa,
    norm: Norm<'_>,
    standard: Matrix<'_>,
    mut out: MatrixMut<'_>,
    parallelism: Parallelism<'_>,
) -> Result<(), Error> {
    let shape @ [rows, columns] = [out.rows(), out.columns()];
    let standard = RowPtrs::read("standard", &standard, shape)?;
    let out = RowPtrs::written("out", &mut out, shape)?;
    norm.check(columns)?;
    if rows == 0 || columns == 0 {
        return Ok(());
    }
    let (weight, bias) = norm.learned();
    for_rows(parallelism.workers(), rows, columns, &|rows| {
        isa.dispatch(recompute_rows(weight, bias, rows, standard, out));
    });
    Ok(())
}
