//! Embedding lookup: `out[i] = table[ids[i]] * scale`, plus the position's vector, in one pass.

use crate::debug_slice::impl_debug;
use crate::error::{Error, Expected};
use crate::matrix::{Matrix, MatrixMut};
use crate::parallel::Exec;
use crate::row_tasks::{RowPtrs, for_rows};
use crate::rows::map_row;
use crate::simd::simd_op;
use core::ops::Range;

#[cfg(feature = "train")]
pub(crate) mod gradient;

/// The position vectors that are added to the token vectors.
#[derive(Clone, Copy)]
pub struct Positions<'a> {
    /// One row for each position, with as many columns as the token table.
    pub table: Matrix<'a>,
    /// The row of each token in `table`.
    pub rows: &'a [u32],
}

impl_debug!(Positions { table, [rows] });

simd_op!(
    fn look_up<S: SimdF32>(
        s: S,
        table: Matrix<'_>,
        ids: &[u32],
        scale: f32,
        positions: Option<Positions<'_>>,
        out: RowPtrs<'_>,
        tokens: Range<usize>,
    ) {
        let columns = table.columns();
        let scale = s.splat(scale);
        for token in tokens {
            // SAFETY: `embed` checked that each id and each position is a row of its table, that tables and `out` have
            // `columns` contiguous floats in each row, and that `out` has a row for each token. `for_rows` gives each
            // task its own rows.
            unsafe {
                let from = table.as_ptr().add(ids[token] as usize * table.row_stride());
                let to = out.row(token);
                match positions {
                    Some(Positions { table, rows }) => {
                        let position =
                            table.as_ptr().add(rows[token] as usize * table.row_stride());
                        map_row::<S, 1, 1>(
                            s,
                            columns,
                            [to],
                            &[],
                            #[inline(always)]
                            |at| [s.mul_add(at.load(s, from), scale, at.load(s, position))],
                        );
                    }
                    None => map_row::<S, 1, 1>(
                        s,
                        columns,
                        [to],
                        &[],
                        #[inline(always)]
                        |at| [s.mul(at.load(s, from), scale)],
                    ),
                }
            }
        }
    }
);

/// `out[i] = table[ids[i]] * scale (+ positions.table[positions.rows[i]])` for each token `i`. `table` is
/// `[vocabulary, columns]`, `out` is `[tokens, columns]`. Other rows of the tables are not read. Each result is
/// rounded once, also with positions.
///
/// # Errors
/// An id or a position is not a row of its table, shapes disagree, or the elements of a row are not contiguous.
/// Nothing is written then.
///
/// ```
/// use simdformer_kernels::embedding::embed;
/// use simdformer_kernels::{Exec, Isa, Matrix, MatrixMut};
///
/// let table = [0.0, 1.0, 10.0, 11.0, 20.0, 21.0];
/// let table = Matrix::new(&table, 3, 2)?;
/// let mut out = [0.0; 4];
/// let view = MatrixMut::new(&mut out, 2, 2)?;
/// embed(Exec::serial(Isa::detect()?), table, &[2, 0], 2.0, None, view)?;
/// assert_eq!(out, [40.0, 42.0, 0.0, 2.0]);
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
pub fn embed(
    exec: Exec<'_>,
    table: Matrix<'_>,
    ids: &[u32],
    scale: f32,
    positions: Option<Positions<'_>>,
    mut out: MatrixMut<'_>,
) -> Result<(), Error> {
    let columns = table.columns();
    let out = RowPtrs::from_matrix_mut("out", &mut out, [ids.len(), columns])?;
    table.check_contiguous_rows("table")?;
    if let Some(Positions { table, rows }) = positions {
        let expected = Expected::Exactly(columns);
        Error::check_size("columns", "positions.table", expected, table.columns())?;
        Error::check_len("positions.rows", ids.len(), rows)?;
        table.check_contiguous_rows("positions.table")?;
        Error::check_indices("position", "token", table.rows(), rows)?;
    }
    Error::check_indices("id", "token", table.rows(), ids)?;
    for_rows(exec, [ids.len(), columns], |tokens| {
        look_up(table, ids, scale, positions, out, tokens)
    });
    Ok(())
}
