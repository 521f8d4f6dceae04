//! One call of any norm: checks its operands and splits its rows into tasks.

use super::parameters::{LayerNorm, Norm};
use super::passes::NormRows;
use crate::error::Error;
use crate::isa::Isa;
use crate::matrix::{Matrix, MatrixMut};
use crate::parallel::Parallelism;
use crate::row_tasks::{RowPtrs, for_rows};

/// The inputs and outputs of a call; `N` is the norm.
pub(super) enum Operands<'a> {
    /// `out = N(x)`
    Plain(Matrix<'a>),
    /// `out = N(out)`
    InPlace,
    /// `out = N(x + residual)`
    Add(Matrix<'a>, Matrix<'a>),
    /// `out = N(x + out)`
    AddInPlace(Matrix<'a>),
    /// `sum += x; out = N(sum)`
    AddInto(Matrix<'a>, MatrixMut<'a>),
}

/// Checks a call and splits its rows into tasks.
pub(super) fn run(
    isa: Isa,
    norm: Norm<'_>,
    operands: Operands<'_>,
    mut out: MatrixMut<'_>,
    parallelism: Parallelism<'_>,
) -> Result<(), Error> {
    let shape @ [rows, columns] = [out.rows(), out.columns()];
    let name = match &operands {
        Operands::Plain(_) | Operands::Add(..) | Operands::AddInto(..) => "out",
        Operands::InPlace => "x",
        Operands::AddInPlace(_) => "residual",
    };
    let to = RowPtrs::written(name, &mut out, shape)?;
    let read = |operand, m| RowPtrs::read(operand, m, shape);
    let mut into;
    let (add, x, residual, sum) = match operands {
        Operands::Plain(x) => (false, read("x", &x)?, to, to),
        Operands::InPlace => (false, to, to, to),
        Operands::Add(x, residual) => (true, read("x", &x)?, read("residual", &residual)?, to),
        Operands::AddInPlace(x) => (true, read("x", &x)?, to, to),
        Operands::AddInto(x, sum) => {
            let x = read("x", &x)?;
            into = sum;
            let sum = RowPtrs::written("residual", &mut into, shape)?;
            (true, x, sum, sum)
        }
    };
    let parameters = norm.checked(columns)?;
    if rows == 0 || columns == 0 {
        return Ok(());
    }
    for_rows(parallelism.workers(), rows, columns, &|range| {
        let [x, residual, sum, out] = [x, residual, sum, to].map(|ptr| ptr.from(range.start));
        let rows = range.len();
        macro_rules! run {
            ($centered:literal, $add:literal, $bias:literal) => {
                isa.dispatch(NormRows::<$centered, $add, $bias> {
                    parameters,
                    rows,
                    x,
                    residual,
                    sum,
                    out,
                })
            };
        }
        match (norm, add) {
            (Norm::Layer(LayerNorm { bias: Some(_), .. }), true) => run!(true, true, true),
            (Norm::Layer(LayerNorm { bias: Some(_), .. }), false) => run!(true, false, true),
            (Norm::Layer(_), true) => run!(true, true, false),
            (Norm::Layer(_), false) => run!(true, false, false),
            (Norm::Rms(_), true) => run!(false, true, false),
            (Norm::Rms(_), false) => run!(false, false, false),
        }
    });
    Ok(())
}
