//! The gradient of an embedding lookup: each row of the table's gradient is the sum of the gradients of its tokens.
//!
//! A counting sort first orders the tokens by id, and keeps the order of tokens with the same id; its scratch is the
//! caller's. A task is a range of sorted tokens, and processes the ids whose first token is in its range. So no two
//! tasks add to the same row, and each row is summed in the order of its tokens on any number of threads.

use crate::debug_slice::impl_debug;
use crate::error::{Error, Expected};
use crate::matrix::{Matrix, MatrixMut};
use crate::parallel::Exec;
use crate::row_tasks::{RowPtrs, for_rows};
use crate::rows::map_row;
use crate::simd::{SimdF32, simd_op};
use core::ops::Range;

/// A lookup of the forward pass.
#[derive(Clone, Copy)]
pub struct Lookup<'a> {
    /// The row of each token.
    pub ids: &'a [u32],
    /// The factor of the rows.
    pub scale: f32,
    /// Tokens with this id are skipped and their gradients are not read, as with PyTorch's `padding_idx`: the row of a
    /// pad token then gets a gradient from the output projection alone.
    pub skip: Option<u32>,
}

impl_debug!(Lookup { [ids], scale, skip });

simd_op!(
    /// Adds the gradients of the tokens in `sorted`, which are ordered by id, then by index, to the rows of a table.
    /// The task processes the ids whose first token in `sorted` is in `range`.
    fn add_rows<S: SimdF32>(
        s: S,
        lookup: Lookup<'_>,
        sorted: &[u32],
        range: Range<usize>,
        gradient: Matrix<'_>,
        table: RowPtrs<'_>,
    ) {
        let Lookup { ids, scale, skip } = lookup;
        let id_at = |at: usize| ids[sorted[at] as usize];
        let mut at = range.start;
        // An id that begins before the range belongs to another task.
        while at > 0 && at < range.end && id_at(at) == id_at(at - 1) {
            at += 1;
        }
        if at == range.end {
            return;
        }
        let mut id = id_at(at);
        let columns = gradient.columns();
        loop {
            if Some(id) != skip {
                // SAFETY: `embedding_gradient` checked that each id is a row of the table, that table and gradient
                // have `columns` contiguous floats in each row, and that the gradient has a row for each token. An id
                // belongs to the task in whose range its tokens begin, so no other task writes its row.
                unsafe {
                    let row = table.row(id as usize);
                    let token = sorted[at] as usize;
                    let from = gradient.as_ptr().add(token * gradient.row_stride());
                    add_scaled(s, from, scale, row, columns);
                }
            }
            at += 1;
            if at == sorted.len() {
                return;
            }
            let next = id_at(at);
            if next != id && at >= range.end {
                return;
            }
            id = next;
        }
    }
);

/// `to[i] += scale * from[i]`. The product is rounded, then the sum: the same bits on every instruction set.
///
/// # Safety
/// `from` is valid for reads and `to` for reads and writes of `len` floats.
#[inline(always)]
unsafe fn add_scaled<S: SimdF32>(s: S, from: *const f32, scale: f32, to: *mut f32, len: usize) {
    let scale = s.splat(scale);
    // SAFETY: the caller's contract.
    unsafe {
        map_row::<S, 1, 1>(
            s,
            len,
            [to],
            &[],
            #[inline(always)]
            |at| [s.add(at.load(s, to), s.mul(at.load(s, from), scale))],
        );
    }
}

/// Length in `u32` words of the scratch that [`embedding_gradient`] needs for a table of `rows` and for `tokens`.
///
/// # Errors
/// The size overflows.
///
/// ```
/// use simdformer_kernels::train::embedding_gradient_scratch;
///
/// assert_eq!(embedding_gradient_scratch(32_000, 4096), Ok(36_096));
/// ```
pub fn embedding_gradient_scratch(rows: usize, tokens: usize) -> Result<usize, Error> {
    rows.checked_add(tokens).ok_or(Error::TooLarge { operand: "the scratch" })
}

/// Sorts tokens by id into `sorted`, stable. `next` has one element for each row.
fn sort(ids: &[u32], next: &mut [u32], sorted: &mut [u32]) {
    next.fill(0);
    for &id in ids {
        next[id as usize] += 1;
    }
    let mut start = 0;
    for next in &mut *next {
        let count = *next;
        *next = start;
        start += count;
    }
    for (token, &id) in ids.iter().enumerate() {
        let next = &mut next[id as usize];
        sorted[*next as usize] = token as u32;
        *next += 1;
    }
}

/// `d_table[ids[i]] += scale * d_x[i]` for each token `i`, with the `ids` and the `scale` of `lookup`: the gradient of [`embed`](crate::embedding::embed) with
/// respect to its table. With `scale` 1 and positions instead of ids, it is the gradient with respect to its position
/// table.
///
/// `d_x` is `[tokens, columns]`, `d_table` is `[vocabulary, columns]`. Each row is summed in the order of its tokens,
/// and each product and each sum is rounded once, so the result has the same bits with any number of threads and on
/// any instruction set. The error of a row with `n` tokens is at most `(n + 1) 2^-24 (|before| + |scale| sum |d_x|)`.
/// Rows without a token are not touched.
///
/// `scratch` must have at least [`embedding_gradient_scratch`]`(vocabulary, tokens)` words.
///
/// # Errors
/// An id is not a row of the table, shapes disagree, the elements of a row are not contiguous, the scratch is too
/// short, or there are 2^32 tokens or more. Nothing is written then.
///
/// ```
/// use simdformer_kernels::train::{Lookup, embedding_gradient};
/// use simdformer_kernels::{Exec, Isa, Matrix, MatrixMut};
///
/// let d_x = [1.0, 2.0, 10.0, 20.0, 100.0, 200.0];
/// let d_x = Matrix::new(&d_x, 3, 2)?;
/// let (mut table, mut scratch) = ([0.0; 8], [0; 4 + 3]);
/// let d_table = MatrixMut::new(&mut table, 4, 2)?;
/// let lookup = Lookup { ids: &[2, 0, 2], scale: 0.5, skip: None };
/// embedding_gradient(Exec::serial(Isa::best()), lookup, d_x, d_table, &mut scratch)?;
/// assert_eq!(table, [5.0, 10.0, 0.0, 0.0, 50.5, 101.0, 0.0, 0.0]);
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
pub fn embedding_gradient(
    exec: Exec<'_>,
    lookup: Lookup<'_>,
    d_x: Matrix<'_>,
    mut d_table: MatrixMut<'_>,
    scratch: &mut [u32],
) -> Result<(), Error> {
    let ids = lookup.ids;
    let (rows, columns) = (d_table.rows(), d_table.columns());
    d_x.check_shape("d_x", [ids.len(), columns])?;
    d_x.check_contiguous_rows("d_x")?;
    let table = RowPtrs::from_matrix_mut("d_table", &mut d_table, [rows, columns])?;
    // The sort counts tokens in `u32`.
    Error::check_size("length", "ids", Expected::AtMost(u32::MAX as usize), ids.len())?;
    Error::check_indices("id", "token", rows, ids)?;
    let expected = embedding_gradient_scratch(rows, ids.len())?;
    Error::check_min_len("scratch", expected, scratch)?;
    let (next, sorted) = scratch.split_at_mut(rows);
    let sorted = &mut sorted[..ids.len()];
    sort(ids, next, sorted);
    let sorted = &*sorted;
    for_rows(exec, [ids.len(), columns], |range| add_rows(lookup, sorted, range, d_x, table));
    Ok(())
}
