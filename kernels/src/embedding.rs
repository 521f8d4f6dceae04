//! Embedding lookup: `out[i] = table[ids[i]] * scale`, plus the position's vector, in one pass.

use crate::debug::Elements;
use crate::isa::Isa;
use crate::matrix::{Matrix, MatrixMut};
use crate::parallel::Parallelism;
use crate::rows::{UnitColumns, for_rows};
use crate::simd::{SimdF32, SimdOp};
use core::fmt;

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

impl fmt::Debug for Positions<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Positions")
            .field("table", &self.table)
            .field("rows", &Elements::of(self.rows))
            .finish()
    }
}

/// Why a lookup cannot run. Nothing is written.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum EmbeddingError {
    /// A token id is not below the number of rows of the table.
    Id {
        /// Index of the token.
        token: usize,
        /// Rows of the table.
        rows: usize,
        /// The id given.
        found: u32,
    },
    /// A position is not below the number of rows of its table.
    Position {
        /// Index of the token.
        token: usize,
        /// Rows of the table.
        rows: usize,
        /// The position given.
        found: u32,
    },
    /// The number of positions differs from the number of tokens.
    Positions {
        /// Tokens.
        expected: usize,
        /// Positions given.
        found: usize,
    },
    /// The output does not have the shape `[tokens, columns of the table]`.
    Shape {
        /// Tokens and columns of the table.
        expected: [usize; 2],
        /// Rows and columns of the output.
        found: [usize; 2],
    },
    /// The position table and the token table have different numbers of columns.
    Columns {
        /// Columns of the token table.
        expected: usize,
        /// Columns of the position table.
        found: usize,
    },
    /// The elements of a row are not contiguous.
    ColumnStride {
        /// The column stride found; 1 is expected.
        found: usize,
    },
    /// The gradient does not have the shape `[tokens, columns of the table]`.
    #[cfg(feature = "train")]
    Gradient {
        /// Tokens and columns of the table.
        expected: [usize; 2],
        /// Rows and columns of the gradient.
        found: [usize; 2],
    },
    /// There are too many tokens for the gradient's sort.
    #[cfg(feature = "train")]
    Tokens {
        /// Tokens given; fewer than 2^32 are expected.
        found: usize,
    },
    /// The scratch is too short.
    #[cfg(feature = "train")]
    Scratch {
        /// `u32` words needed.
        expected: usize,
        /// Words given.
        found: usize,
    },
}

impl fmt::Display for EmbeddingError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Id { token, rows, found } => {
                write!(f, "token {token} has id {found}, but the table has {rows} rows")
            }
            Self::Position { token, rows, found } => {
                write!(f, "token {token} has position {found}, but the table has {rows} rows")
            }
            Self::Positions { expected, found } => {
                write!(f, "expected {expected} positions, one for each token, found {found}")
            }
            Self::Shape { expected: [r, c], found: [fr, fc] } => {
                write!(f, "the output should be {r} x {c}, found {fr} x {fc}")
            }
            Self::Columns { expected, found } => write!(
                f,
                "the positions' table should have {expected} columns like the tokens', found {found}"
            ),
            Self::ColumnStride { found } => {
                write!(f, "an embedding needs contiguous rows (column stride 1), found {found}")
            }
            #[cfg(feature = "train")]
            Self::Gradient { expected: [r, c], found: [fr, fc] } => {
                write!(f, "the gradient should be {r} x {c}, found {fr} x {fc}")
            }
            #[cfg(feature = "train")]
            Self::Tokens { found } => {
                write!(f, "a gradient is of fewer than 2^32 tokens, found {found}")
            }
            #[cfg(feature = "train")]
            Self::Scratch { expected, found } => {
                write!(f, "the scratch should have {expected} words, found {found}")
            }
        }
    }
}

impl core::error::Error for EmbeddingError {}

struct LookUp<'a> {
    table: Matrix<'a>,
    ids: &'a [u32],
    scale: f32,
    positions: Option<Positions<'a>>,
    out: *mut f32,
    stride: usize,
}

impl SimdOp for LookUp<'_> {
    type Output = ();

    #[inline(always)]
    fn run<S: SimdF32>(self, s: S) {
        let columns = self.table.columns();
        let scale = s.splat(self.scale);
        for (token, &id) in self.ids.iter().enumerate() {
            // SAFETY: `embed` checked that each id and each position is a row of its table, that tables and `out` have
            // `columns` contiguous floats in each row, and that `out` has a row for each token. `for_rows` gives each
            // task its own rows.
            unsafe {
                let from = self.table.as_ptr().add(id as usize * self.table.row_stride());
                let to = self.out.add(token * self.stride);
                match self.positions {
                    Some(Positions { table, rows }) => {
                        let position =
                            table.as_ptr().add(rows[token] as usize * table.row_stride());
                        let mut i = 0;
                        while i + S::LANES <= columns {
                            let at = s.load(position.add(i));
                            s.store(to.add(i), s.mul_add(s.load(from.add(i)), scale, at));
                            i += S::LANES;
                        }
                        let rest = columns - i;
                        let at = s.load_prefix(position.add(i), rest);
                        let y = s.mul_add(s.load_prefix(from.add(i), rest), scale, at);
                        s.store_prefix(to.add(i), y, rest);
                    }
                    None => {
                        let mut i = 0;
                        while i + S::LANES <= columns {
                            s.store(to.add(i), s.mul(s.load(from.add(i)), scale));
                            i += S::LANES;
                        }
                        let rest = columns - i;
                        let y = s.mul(s.load_prefix(from.add(i), rest), scale);
                        s.store_prefix(to.add(i), y, rest);
                    }
                }
            }
        }
    }
}

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
/// use simdformer_kernels::{Isa, Matrix, MatrixMut, Parallelism};
///
/// let table = [0.0, 1.0, 10.0, 11.0, 20.0, 21.0];
/// let table = Matrix::new(&table, 3, 2)?;
/// let mut out = [0.0; 4];
/// let view = MatrixMut::new(&mut out, 2, 2)?;
/// embed(Isa::detect()?, table, &[2, 0], 2.0, None, view, Parallelism::Serial)?;
/// assert_eq!(out, [40.0, 42.0, 0.0, 2.0]);
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
pub fn embed(
    isa: Isa,
    table: Matrix<'_>,
    ids: &[u32],
    scale: f32,
    positions: Option<Positions<'_>>,
    mut out: MatrixMut<'_>,
    parallelism: Parallelism<'_>,
) -> Result<(), EmbeddingError> {
    let columns = table.columns();
    let (expected, found) = ([ids.len(), columns], [out.rows(), out.columns()]);
    if found != expected {
        return Err(EmbeddingError::Shape { expected, found });
    }
    let mut wide = table.wide_columns().or(out.wide_columns());
    if let Some(Positions { table, rows }) = positions {
        if table.columns() != columns {
            return Err(EmbeddingError::Columns { expected: columns, found: table.columns() });
        }
        if rows.len() != ids.len() {
            return Err(EmbeddingError::Positions { expected: ids.len(), found: rows.len() });
        }
        wide = wide.or(table.wide_columns());
        let outside = |&(_, &row): &(usize, &u32)| row as usize >= table.rows();
        if let Some((token, &found)) = rows.iter().enumerate().find(outside) {
            return Err(EmbeddingError::Position { token, rows: table.rows(), found });
        }
    }
    if let Some(found) = wide {
        return Err(EmbeddingError::ColumnStride { found });
    }
    let outside = |&(_, &id): &(usize, &u32)| id as usize >= table.rows();
    if let Some((token, &found)) = ids.iter().enumerate().find(outside) {
        return Err(EmbeddingError::Id { token, rows: table.rows(), found });
    }
    if columns == 0 {
        return Ok(());
    }
    let stride = out.row_stride();
    let shared = out.shared();
    for_rows(parallelism.workers(), ids.len(), columns, &|range| {
        let positions = positions
            .map(|Positions { table, rows }| Positions { table, rows: &rows[range.clone()] });
        // SAFETY: the view contains every row, and each task has its own rows.
        let out = unsafe { shared.as_ptr().add(range.start * stride) };
        isa.dispatch(LookUp { table, ids: &ids[range], scale, positions, out, stride });
    });
    Ok(())
}
