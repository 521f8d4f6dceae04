//! The gradient of a lookup: rows of the table, each the sum of what came back to its tokens.
//!
//! Tokens are sorted by id first, those of an id staying in their order (a counting sort, in scratch of the
//! caller's). A task is then a stretch of sorted tokens, and has the ids that begin in it: no two tasks
//! add to the same row, and each row is added to in the order of its tokens, whoever does it.

use super::EmbeddingError;
use crate::isa::Isa;
use crate::matrix::{Matrix, MatrixMut};
use crate::parallel::Parallelism;
use crate::rows::{UnitColumns, for_rows};
use crate::simd::{SimdF32, SimdOp};

/// Adds the gradients of sorted tokens to the rows of a table.
struct AddRows<'a> {
    ids: &'a [u32],
    /// Tokens, those of an id side by side and in order.
    sorted: &'a [u32],
    /// The ids that begin here in `sorted` are this task's.
    range: core::ops::Range<usize>,
    skip: Option<u32>,
    gradient: Matrix<'a>,
    scale: f32,
    table: *mut f32,
    stride: usize,
}

impl AddRows<'_> {
    /// The id of the token that was sorted to `at`.
    #[inline(always)]
    fn id(&self, at: usize) -> u32 {
        self.ids[self.sorted[at] as usize]
    }
}

impl SimdOp for AddRows<'_> {
    type Output = ();

    #[inline(always)]
    fn run<S: SimdF32>(self, s: S) {
        let mut at = self.range.start;
        // What began before belongs to another task.
        while at > 0 && at < self.range.end && self.id(at) == self.id(at - 1) {
            at += 1;
        }
        if at == self.range.end {
            return;
        }
        let mut id = self.id(at);
        let columns = self.gradient.columns();
        loop {
            if Some(id) != self.skip {
                // SAFETY: `embedding_gradient` checked that each id is a row of the table, that
                // table and gradient have `columns` floats side by side in each row, and that the
                // gradient has a row for each token. An id belongs to the task in whose range its
                // tokens begin, so no other task writes its row.
                unsafe {
                    let row = self.table.add(id as usize * self.stride);
                    let token = self.sorted[at] as usize;
                    let from = self.gradient.as_ptr().add(token * self.gradient.row_stride());
                    add_scaled(s, from, self.scale, row, columns);
                }
            }
            at += 1;
            if at == self.sorted.len() {
                return;
            }
            let next = self.id(at);
            if next != id && at >= self.range.end {
                return;
            }
            id = next;
        }
    }
}

/// `to[i] += scale * from[i]`, the product rounded, then the sum: the same bits on every instruction set.
///
/// # Safety
/// `from` is valid for reads and `to` for reads and writes of `len` floats.
#[inline(always)]
unsafe fn add_scaled<S: SimdF32>(s: S, from: *const f32, scale: f32, to: *mut f32, len: usize) {
    let scale = s.splat(scale);
    let mut i = 0;
    // SAFETY: every access is to `LANES` or fewer floats before `len`.
    unsafe {
        while i + S::LANES <= len {
            let x = s.mul(s.load(from.add(i)), scale);
            s.store(to.add(i), s.add(s.load(to.add(i)), x));
            i += S::LANES;
        }
        let rest = len - i;
        let x = s.mul(s.load_prefix(from.add(i), rest), scale);
        s.store_prefix(to.add(i), s.add(s.load_prefix(to.add(i), rest), x), rest);
    }
}

/// Words of scratch that [`embedding_gradient`] needs for a table of `rows` and so many tokens; `None` if
/// they are more than `usize` can say.
///
/// ```
/// use simdformer_kernels::train::embedding_gradient_scratch;
///
/// assert_eq!(embedding_gradient_scratch(32_000, 4096), Some(36_096));
/// ```
pub const fn embedding_gradient_scratch(rows: usize, tokens: usize) -> Option<usize> {
    rows.checked_add(tokens)
}

/// Sorts tokens by id into `sorted`, those of an id in order. `next` has a word for each row.
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

/// `d_table[ids[i]] += scale * d_x[i]` for each token `i`: the gradient of
/// [`embed`](crate::embedding::embed) by its table, and with `scale` 1 and positions for ids that by
/// its table of positions.
///
/// `d_x` is `[tokens, columns]`, `d_table` `[vocabulary, columns]`. A row is added to in the order of
/// its tokens, each product and each sum rounded once, so that the same is added whatever the threads
/// and whatever the instruction set: `n` tokens leave an error of at most
/// `(n + 1) 2^-24 (|before| + |scale| sum |d_x|)`. Rows of no token are not touched.
///
/// Tokens with the id `skip` are passed over, their gradients unread: what PyTorch calls `padding_idx`, by
/// which the row of a pad token learns from the output projection alone.
///
/// `scratch` holds [`embedding_gradient_scratch`]`(vocabulary, tokens)` words or more.
///
/// # Errors
/// An id is not a row of the table, shapes disagree, the elements of a row are not side by side, the
/// scratch is too short, or there are 2^32 tokens or more. Nothing is written then.
///
/// ```
/// use simdformer_kernels::train::embedding_gradient;
/// use simdformer_kernels::{Isa, Matrix, MatrixMut, Parallelism};
///
/// let d_x = [1.0, 2.0, 10.0, 20.0, 100.0, 200.0];
/// let d_x = Matrix::new(&d_x, 3, 2)?;
/// let (mut table, mut scratch) = ([0.0; 8], [0; 4 + 3]);
/// let d_table = MatrixMut::new(&mut table, 4, 2)?;
/// let (isa, ids) = (Isa::best(), [2, 0, 2]);
/// embedding_gradient(isa, &ids, d_x, 0.5, None, d_table, &mut scratch, Parallelism::Serial)?;
/// assert_eq!(table, [5.0, 10.0, 0.0, 0.0, 50.5, 101.0, 0.0, 0.0]);
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[allow(clippy::too_many_arguments)]
pub fn embedding_gradient(
    isa: Isa,
    ids: &[u32],
    d_x: Matrix<'_>,
    scale: f32,
    skip: Option<u32>,
    mut d_table: MatrixMut<'_>,
    scratch: &mut [u32],
    parallelism: Parallelism<'_>,
) -> Result<(), EmbeddingError> {
    let (rows, columns) = (d_table.rows(), d_table.columns());
    let (expected, found) = ([ids.len(), columns], [d_x.rows(), d_x.columns()]);
    if found != expected {
        return Err(EmbeddingError::Gradient { expected, found });
    }
    if let Some(found) = d_x.wide_columns().or(d_table.wide_columns()) {
        return Err(EmbeddingError::ColumnStride { found });
    }
    if u32::try_from(ids.len()).is_err() {
        return Err(EmbeddingError::Tokens { found: ids.len() });
    }
    let outside = |&(_, &id): &(usize, &u32)| id as usize >= rows;
    if let Some((token, &found)) = ids.iter().enumerate().find(outside) {
        return Err(EmbeddingError::Id { token, rows, found });
    }
    // More than `usize` can say is more than there is.
    let expected = embedding_gradient_scratch(rows, ids.len()).unwrap_or(usize::MAX);
    if scratch.len() < expected {
        return Err(EmbeddingError::Scratch { expected, found: scratch.len() });
    }
    if columns == 0 || ids.is_empty() {
        return Ok(());
    }
    let (next, sorted) = scratch.split_at_mut(rows);
    let sorted = &mut sorted[..ids.len()];
    sort(ids, next, sorted);
    let sorted = &*sorted;
    let stride = d_table.row_stride();
    let shared = d_table.shared();
    for_rows(parallelism.workers(), ids.len(), columns, &|range| {
        let table = shared.as_ptr();
        isa.dispatch(AddRows { ids, sorted, range, skip, gradient: d_x, scale, table, stride });
    });
    Ok(())
}
