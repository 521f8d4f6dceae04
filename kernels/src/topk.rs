//! The largest entries of each row: argmax and top-k over logits.
//!
//! Order: larger values first, equal values by the lower index (`0.0` and `-0.0` are equal), NaN after every number.
//! So the result always has `k` entries and depends on the row alone. A NaN is returned only when a row has fewer than
//! `k` numbers.
//!
//! Both functions read a row once and compare vectors with the current threshold. They examine single entries only in
//! vectors that exceed it.

use crate::error::{Error, Expected};
use crate::matrix::Matrix;
use crate::parallel::Exec;
use crate::row_tasks::{RowPtrs, for_rows};
use crate::simd::{SimdF32, simd_op};
use crate::softmax::block_max;
use crate::sync_ptr::SharedMut;
use core::ops::Range;

/// Columns in one block of argmax, whose maximum is computed with vectors.
const BLOCK: usize = 4096;
/// Vectors in one comparison of top-k.
const GROUP: usize = 8;

/// Whether entry `a` at index `i` comes before `b` at `j`.
#[inline(always)]
fn before((a, i): (f32, u32), (b, j): (f32, u32)) -> bool {
    if a == b || (a.is_nan() && b.is_nan()) { i < j } else { a > b || b.is_nan() }
}

/// The rows of `scores`, of which the `k` largest entries can be found.
fn checked<'a>(scores: &Matrix<'a>, k: usize) -> Result<RowPtrs<'a>, Error> {
    let columns = scores.columns();
    if scores.rows() > 0 {
        Error::check_size("columns", "scores", Expected::AtLeast(k), columns)?;
    }
    // Indices are `u32`.
    Error::check_size("columns", "scores", Expected::AtMost(u32::MAX as usize), columns)?;
    RowPtrs::from_matrix("scores", scores, scores.shape())
}

#[inline(always)]
fn argmax_row<S: SimdF32>(s: S, row: &[f32]) -> u32 {
    let mut best = (f32::NEG_INFINITY, 0);
    for (index, block) in row.chunks(BLOCK).enumerate() {
        // SAFETY: the pointer and length of a slice.
        let max = unsafe { block_max(s, block.as_ptr(), block.len()) };
        if max > best.0 {
            best = (max, index);
        }
    }
    let (max, block) = best;
    // If no number is above negative infinity, the first block may contain only NaN.
    let start = if max == f32::NEG_INFINITY { 0 } else { block * BLOCK };
    let group = GROUP * S::LANES;
    for (index, entries) in row[start..].chunks(group).enumerate() {
        // SAFETY: the pointer and length of a slice.
        if unsafe { block_max(s, entries.as_ptr(), entries.len()) } == max
            && let Some(at) = entries.iter().position(|&x| x == max)
        {
            return (start + index * group + at) as u32;
        }
    }
    0
}

simd_op!(
    /// The index of the largest entry of each of `rows`.
    fn argmax_rows<S: SimdF32>(
        s: S,
        scores: RowPtrs<'_>,
        columns: usize,
        rows: Range<usize>,
        indices: &mut [u32],
    ) {
        for (row, index) in rows.zip(indices) {
            // SAFETY: `checked` ensures that the matrix has this row of `columns` floats.
            let row = unsafe { core::slice::from_raw_parts(scores.row(row), columns) };
            *index = argmax_row(s, row);
        }
    }
);

/// Writes the index of the largest entry of each row of `scores` `[rows, columns]` to `indices` `[rows]`. Of equal
/// entries the lowest index is written; a row that contains only NaN gives 0.
///
/// # Errors
/// Rows have no columns, the number of outputs differs from the number of rows, or the elements of a row are not
/// contiguous.
///
/// ```
/// use simdformer_kernels::topk::argmax;
/// use simdformer_kernels::{Exec, Isa, Matrix};
///
/// let scores = Matrix::new(&[1.0, 7.0, 7.0, f32::NAN, -2.0, -3.0], 2, 3)?;
/// let mut indices = [0; 2];
/// argmax(Exec::serial(Isa::detect()?), scores, &mut indices)?;
/// assert_eq!(indices, [1, 1]);
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
pub fn argmax(exec: Exec<'_>, scores: Matrix<'_>, indices: &mut [u32]) -> Result<(), Error> {
    let from = checked(&scores, 1)?;
    let (rows, columns) = (scores.rows(), scores.columns());
    Error::check_len("indices", rows, indices)?;
    let indices = SharedMut::new(indices);
    for_rows(exec, [rows, columns], |range| {
        // SAFETY: `indices` has one element for each row, and each task has its own rows.
        let indices = unsafe { indices.part(range.start, range.len()) };
        argmax_rows(from, columns, range, indices)
    });
    Ok(())
}

/// The best entries so far, as a binary heap. Its root is the worst of them.
struct Heap<'a> {
    values: &'a mut [f32],
    indices: &'a mut [u32],
}

impl Heap<'_> {
    #[inline(always)]
    fn entry(&self, at: usize) -> (f32, u32) {
        (self.values[at], self.indices[at])
    }

    /// Inserts `entry` at `at` or at a descendant of `at`, among the first `len` entries, and moves the replaced
    /// entries up.
    #[inline(always)]
    fn sink(&mut self, mut at: usize, entry: (f32, u32), len: usize) {
        loop {
            let mut child = 2 * at + 1;
            if child >= len {
                break;
            }
            if child + 1 < len && before(self.entry(child), self.entry(child + 1)) {
                child += 1;
            }
            if !before(entry, self.entry(child)) {
                break;
            }
            (self.values[at], self.indices[at]) = self.entry(child);
            at = child;
        }
        (self.values[at], self.indices[at]) = entry;
    }

    fn build(&mut self) {
        let len = self.values.len();
        for at in (0..len / 2).rev() {
            self.sink(at, self.entry(at), len);
        }
    }

    fn sort(&mut self) {
        for len in (1..self.values.len()).rev() {
            let last = self.entry(len);
            (self.values[len], self.indices[len]) = self.entry(0);
            self.sink(0, last, len);
        }
    }
}

#[inline(always)]
fn top_k_row<S: SimdF32>(s: S, row: &[f32], heap: Heap<'_>) {
    let mut heap = heap;
    let k = heap.values.len();
    heap.values.copy_from_slice(&row[..k]);
    for (i, index) in heap.indices.iter_mut().enumerate() {
        *index = i as u32;
    }
    heap.build();
    let mut at = k;
    while at < row.len() {
        let end = row.len().min(at + GROUP * S::LANES);
        let worst = heap.values[0];
        // Later entries lose ties, so only larger values matter; any number comes before NaN.
        // SAFETY: `at..end` is inside the row.
        if worst.is_nan() || unsafe { any_above(s, row.as_ptr().add(at), end - at, worst) } {
            for (i, &value) in row[at..end].iter().enumerate() {
                let entry = (value, (at + i) as u32);
                if before(entry, heap.entry(0)) {
                    heap.sink(0, entry, k);
                }
            }
        }
        at = end;
    }
    heap.sort();
}

simd_op!(
    /// The `k > 0` largest entries of each of `rows`, into `k` values and indices for each.
    fn top_k_rows<S: SimdF32>(
        s: S,
        scores: RowPtrs<'_>,
        columns: usize,
        rows: Range<usize>,
        k: usize,
        outputs: (&mut [f32], &mut [u32]),
    ) {
        let outputs = outputs.0.chunks_exact_mut(k).zip(outputs.1.chunks_exact_mut(k));
        for (row, (values, indices)) in rows.zip(outputs) {
            // SAFETY: `checked` ensures that the matrix has this row of `columns` floats.
            let row = unsafe { core::slice::from_raw_parts(scores.row(row), columns) };
            top_k_row(s, row, Heap { values, indices });
        }
    }
);

/// Whether any of `len` floats is larger than `bound`.
///
/// # Safety
/// `from` is valid for reads of `len` floats.
#[inline(always)]
unsafe fn any_above<S: SimdF32>(s: S, from: *const f32, len: usize, bound: f32) -> bool {
    if len == GROUP * S::LANES {
        let mut max = [s.splat(bound); GROUP];
        for (j, max) in max.iter_mut().enumerate() {
            // SAFETY: the caller's contract: `from` has `len` floats. If the first argument of `max` is NaN, the
            // result is the second.
            *max = s.max(unsafe { s.load(from.add(j * S::LANES)) }, *max);
        }
        let a = s.max(s.max(max[0], max[1]), s.max(max[2], max[3]));
        let b = s.max(s.max(max[4], max[5]), s.max(max[6], max[7]));
        s.any(s.less(s.splat(bound), s.max(a, b)))
    } else {
        // SAFETY: the caller's contract.
        unsafe { block_max(s, from, len) > bound }
    }
}

/// Writes the `k` largest entries of each row of `scores` `[rows, columns]`, best first, to `values` `[rows, k]` and
/// their columns to `indices` `[rows, k]`. Equal values are ordered by column, and NaN comes after every number.
///
/// # Errors
/// Rows have fewer than `k` columns, an output does not have `rows * k` elements, or the elements of a row are not
/// contiguous.
///
/// ```
/// use simdformer_kernels::topk::top_k;
/// use simdformer_kernels::{Exec, Isa, Matrix};
///
/// let scores = Matrix::new(&[1.0, 7.0, f32::NAN, 7.0, 3.0], 1, 5)?;
/// let (mut values, mut indices) = ([0.0; 3], [0; 3]);
/// top_k(Exec::serial(Isa::detect()?), scores, 3, &mut values, &mut indices)?;
/// assert_eq!((values, indices), ([7.0, 7.0, 3.0], [1, 3, 4]));
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
pub fn top_k(
    exec: Exec<'_>,
    scores: Matrix<'_>,
    k: usize,
    values: &mut [f32],
    indices: &mut [u32],
) -> Result<(), Error> {
    let from = checked(&scores, k)?;
    let (rows, columns) = (scores.rows(), scores.columns());
    // The product can overflow only if rows share memory: otherwise it is at most the number of elements of a view.
    let expected = rows.saturating_mul(k);
    Error::check_len("values", expected, values)?;
    Error::check_len("indices", expected, indices)?;
    if k == 0 {
        return Ok(());
    }
    let (values, indices) = (SharedMut::new(values), SharedMut::new(indices));
    for_rows(exec, [rows, columns], |range| {
        let (start, len) = (range.start * k, range.len() * k);
        // SAFETY: both outputs have `k` elements for each row, and each task has its own rows.
        let outputs = unsafe { (values.part(start, len), indices.part(start, len)) };
        top_k_rows(from, columns, range, k, outputs)
    });
    Ok(())
}
