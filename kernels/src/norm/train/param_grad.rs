//! The gradients of a norm's parameters: sums over rows. Each task has a few hundred columns and processes four rows
//! at a time, with the sums of a reduction chunk in the L1 cache, so memory is read in long contiguous parts of rows.

use crate::debug_slice::impl_debug;
use crate::error::{Error, Expected};
use crate::matrix::Matrix;
use crate::parallel::Exec;
use crate::row_tasks::RowPtrs;
use crate::rows::map_row;
use crate::simd::{SimdF32, array_of, simd_op};
use crate::sync_ptr::SharedMut;
use crate::train::{ReductionChunks, WriteMode};
use core::ops::Range;

/// The gradients of the parameters of a norm.
pub struct NormGradients<'a> {
    /// The gradient of the weight, `[columns]`.
    pub weight: &'a mut [f32],
    /// The gradient of the bias, `[columns]`; `None` for a norm without a bias.
    pub bias: Option<&'a mut [f32]>,
}

impl_debug!(NormGradients { [weight], [bias] });

/// Columns of one task.
const COLUMNS: usize = 256;
/// Rows that are added between a load and a store of a sum.
const GROUP: usize = 4;

/// The sums of a reduction chunk.
type ChunkSums<const N: usize> = [[f32; COLUMNS]; N];

/// The operands of a task, and the columns of its sums.
struct ParamGradTask<'a> {
    columns: Range<usize>,
    standard: RowPtrs<'a>,
    d_out: RowPtrs<'a>,
}

simd_op!(
    /// Computes `N` gradients: that of the weight and, if `N` is 2, that of the bias.
    ///
    /// # Safety
    /// The matrices have the rows of `chunks` and the columns of the task, and the gradients have these columns, which
    /// only this task uses.
    unsafe fn sum_gradients<S: SimdF32, const N: usize>(
        s: S,
        task: ParamGradTask<'_>,
        chunks: ReductionChunks<'_>,
        write: WriteMode,
        gradients: [*mut f32; N],
    ) {
        let mut add = write == WriteMode::Add;
        // SAFETY: the caller's contract.
        unsafe {
            if chunks.is_empty() && !add {
                task.finish(s, &[[0.0; COLUMNS]; N], gradients, false);
            }
            for Range { start: mut row, end } in chunks.ranges() {
                let mut sums = [[0.0; COLUMNS]; N];
                while row + GROUP <= end {
                    task.rows::<S, N, GROUP>(s, row, &mut sums);
                    row += GROUP;
                }
                while row < end {
                    task.rows::<S, N, 1>(s, row, &mut sums);
                    row += 1;
                }
                task.finish(s, &sums, gradients, add);
                add = true;
            }
        }
    }
);

impl ParamGradTask<'_> {
    /// Adds `R` rows from `row` on, in order.
    ///
    /// # Safety
    /// The matrices have these rows and the columns of the task.
    #[inline(always)]
    unsafe fn rows<S: SimdF32, const N: usize, const R: usize>(
        &self,
        s: S,
        row: usize,
        sums: &mut ChunkSums<N>,
    ) {
        let Range { start, end } = self.columns;
        let of_task = |row: *mut f32| row.wrapping_add(start);
        let standard = self.standard.rows::<R>(row).map(of_task);
        let d_out = self.d_out.rows::<R>(row).map(of_task);
        let sums = sums.each_mut().map(|sums| sums.as_mut_ptr());
        // SAFETY: the caller's contract; a task has at most as many columns as there are sums.
        unsafe {
            map_row::<S, N, 1>(
                s,
                end - start,
                sums,
                &[],
                #[inline(always)]
                |at| {
                    let mut v = array_of!(n in N => at.load(s, sums[n]));
                    for i in 0..R {
                        let dy = at.load(s, d_out[i]);
                        v[0] = s.mul_add(dy, at.load(s, standard[i]), v[0]);
                        if let Some(bias) = v.get_mut(1) {
                            *bias = s.add(*bias, dy);
                        }
                    }
                    v
                },
            );
        }
    }

    /// Stores the sums of a reduction chunk, or adds them.
    ///
    /// # Safety
    /// The gradients have the columns of the task, which only this task uses.
    #[inline(always)]
    unsafe fn finish<S: SimdF32, const N: usize>(
        &self,
        s: S,
        sums: &ChunkSums<N>,
        gradients: [*mut f32; N],
        add: bool,
    ) {
        let Range { start, end } = self.columns;
        let to = gradients.map(|to| to.wrapping_add(start));
        // SAFETY: the caller's contract; there is a sum for each column of a task.
        unsafe {
            map_row::<S, N, 1>(
                s,
                end - start,
                to,
                &[],
                #[inline(always)]
                |at| {
                    array_of!(n in N => {
                        let sum = at.load(s, sums[n].as_ptr());
                        if add { s.add(at.load(s, to[n]), sum) } else { sum }
                    })
                },
            );
        }
    }
}

/// The gradients of a norm's weight, `d_weight = sum over rows of d_out * standard`, and, if it has one, bias, `d_bias =
/// sum over rows of d_out`, both `[columns]`, stored or added. For each column the rows of a reduction chunk are added
/// in order, then the chunks in order. Without rows, zeros are stored.
///
/// Error: with `l` the rows of the longest chunk and `n` the number of chunks, `d_weight` is within `u (l + n + 1) sum
/// |d_out * standard|` of the exact sum and `d_bias` within `u (l + n) sum |d_out|`, with `u = 2^-24`; the previous
/// content counts as a summand.
///
/// # Errors
/// Shapes or lengths disagree, the reduction chunks and the matrices have different numbers of rows, or the elements
/// of a row are not contiguous.
///
/// ```
/// use simdformer_kernels::train::{
///     NormGradients, ReductionChunks, WriteMode, norm_parameters_backward,
/// };
/// use simdformer_kernels::{Exec, Isa, Matrix};
///
/// let standard = Matrix::new(&[-1.0, 1.0, 1.0, -1.0], 2, 2)?;
/// let d_out = Matrix::new(&[3.0, 4.0, 5.0, 6.0], 2, 2)?;
/// let (mut d_weight, mut d_bias) = ([0.0; 2], [0.0; 2]);
/// norm_parameters_backward(
///     Exec::serial(Isa::best()),
///     standard,
///     d_out,
///     ReductionChunks::new(&[2])?,
///     WriteMode::Store,
///     NormGradients { weight: &mut d_weight, bias: Some(&mut d_bias) },
/// )?;
/// assert_eq!((d_weight, d_bias), ([2.0, -2.0], [8.0, 10.0]));
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
pub fn norm_parameters_backward(
    exec: Exec<'_>,
    standard: Matrix<'_>,
    d_out: Matrix<'_>,
    chunks: ReductionChunks<'_>,
    write: WriteMode,
    gradients: NormGradients<'_>,
) -> Result<(), Error> {
    let Exec { isa, threads } = exec;
    let NormGradients { weight: d_weight, bias: d_bias } = gradients;
    let shape @ [rows, columns] = [d_out.rows(), d_out.columns()];
    let standard = RowPtrs::from_matrix("standard", &standard, shape)?;
    let d_out = RowPtrs::from_matrix("d_out", &d_out, shape)?;
    Error::check_len("d_weight", columns, d_weight)?;
    if let Some(d_bias) = &d_bias {
        Error::check_len("d_bias", columns, d_bias)?;
    }
    Error::check_size("rows", "chunks", Expected::Exactly(rows), chunks.rows())?;
    let (d_weight, d_bias) = (SharedMut::new(d_weight), d_bias.map(SharedMut::new));
    threads.workers().for_each(columns.div_ceil(COLUMNS), &|task| {
        let columns = task * COLUMNS..columns.min((task + 1) * COLUMNS);
        let task = ParamGradTask { columns, standard, d_out };
        let d_weight = d_weight.as_ptr();
        // SAFETY: the checks above; each task has its own columns.
        unsafe {
            match d_bias.map(|d_bias| d_bias.as_ptr()) {
                Some(d_bias) => {
                    isa.dispatch(sum_gradients(task, chunks, write, [d_weight, d_bias]));
                }
                None => isa.dispatch(sum_gradients(task, chunks, write, [d_weight])),
            }
        }
    });
    Ok(())
}
