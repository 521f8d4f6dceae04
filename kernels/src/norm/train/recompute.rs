//! Recomputes the output of a norm from the saved standard scores.

use super::row_ptrs::{SyncPtrs, read, written};
use crate::error::Error;
use crate::isa::Isa;
use crate::matrix::{Matrix, MatrixMut};
use crate::norm::call::Norm;
use crate::norm::vectors::{RowPtrs, learned};
use crate::parallel::Parallelism;
use crate::rows::for_rows;
use crate::simd::{SimdF32, SimdOp};

struct RecomputeRows<'a> {
    weight: &'a [f32],
    bias: Option<&'a [f32]>,
    rows: usize,
    standard: RowPtrs,
    out: RowPtrs,
}

impl SimdOp for RecomputeRows<'_> {
    type Output = ();

    #[inline(always)]
    fn run<S: SimdF32>(self, s: S) {
        for row in 0..self.rows {
            let ([standard], [out]) = (self.standard.rows(row), self.out.rows(row));
            // SAFETY: `run` checked with `read` and `written` that both matrices have these rows of `columns` floats,
            // and with `Norm::check` that weight and bias have `columns` floats; `for_rows` gives each task its own
            // rows.
            unsafe {
                match self.bias {
                    Some(_) => learned::<S, true>(s, self.weight, self.bias, standard, out),
                    None => learned::<S, false>(s, self.weight, None, standard, out),
                }
            }
        }
    }
}

pub(super) fn run(
    isa: Isa,
    norm: Norm<'_>,
    standard: Matrix<'_>,
    mut out: MatrixMut<'_>,
    parallelism: Parallelism<'_>,
) -> Result<(), Error> {
    let shape @ [rows, columns] = [out.rows(), out.columns()];
    let ptrs = [read("standard", &standard, shape)?, written("out", &mut out, shape)?];
    norm.check(columns)?;
    if rows == 0 || columns == 0 {
        return Ok(());
    }
    let (weight, bias) = norm.learned();
    // SAFETY: both views are borrowed for the whole call; each task writes only its own rows.
    let ptrs = unsafe { SyncPtrs::new(ptrs) };
    for_rows(parallelism.workers(), rows, columns, &|range| {
        let [standard, out] = ptrs.row_ptrs().map(|ptr| ptr.from(range.start));
        isa.dispatch(RecomputeRows { weight, bias, rows: range.len(), standard, out });
    });
    Ok(())
}
