//! The gradients of a norm's parameters: sums over rows. Each task has a few hundred columns and processes four rows
//! at a time, with the sums of a reduction chunk in the L1 cache, so memory is read in long contiguous parts of rows.

use super::NormGradients;
use crate::error::{Error, Expected};
use crate::isa::Isa;
use crate::matrix::Matrix;
use crate::norm::simd_rows::{load, store};
use crate::parallel::Parallelism;
use crate::row_tasks::RowPtrs;
use crate::simd::{SimdF32, SimdOp};
use crate::sync_ptr::SharedMut;
use crate::train::{ReductionChunks, WriteMode};
use core::ops::Range;

/// Columns of one task.
const COLUMNS: usize = 256;
/// Rows that are added between a load and a store of a sum.
const GROUP: usize = 4;

/// `BIAS` if the sum of `d_out` alone is computed too.
struct ParamGradSums<'a, const BIAS: bool> {
    columns: Range<usize>,
    chunks: ReductionChunks<'a>,
    write: WriteMode,
    standard: RowPtrs<'a>,
    d_out: RowPtrs<'a>,
    d_weight: *mut f32,
    d_bias: *mut f32,
}

impl<const BIAS: bool> SimdOp for ParamGradSums<'_, BIAS> {
    type Output = ();

    #[inline(always)]
    fn run<S: SimdF32>(self, s: S) {
        let mut add = self.write == WriteMode::Add;
        if self.chunks.is_empty() && !add {
            self.finish(s, &Sums::default(), false);
        }
        for Range { start: mut row, end } in self.chunks.ranges() {
            let mut sums = Sums::default();
            // SAFETY: `run` checked that `standard` and `d_out` have the same shape with contiguous rows, that the
            // reduction chunks have as many rows, and that `d_weight` and `d_bias` have `columns` floats; each task
            // has its own columns.
            unsafe {
                while row + GROUP <= end {
                    self.rows::<S, GROUP>(s, row, &mut sums);
                    row += GROUP;
                }
                while row < end {
                    self.rows::<S, 1>(s, row, &mut sums);
                    row += 1;
                }
            }
            self.finish(s, &sums, add);
            add = true;
        }
    }
}

/// The sums of a reduction chunk.
struct Sums {
    weight: [f32; COLUMNS],
    bias: [f32; COLUMNS],
}

impl Default for Sums {
    #[inline(always)]
    fn default() -> Self {
        Self { weight: [0.0; COLUMNS], bias: [0.0; COLUMNS] }
    }
}

impl<const BIAS: bool> ParamGradSums<'_, BIAS> {
    /// Adds `R` rows from `row` on, in order.
    ///
    /// # Safety
    /// The matrices have these rows and the columns of the task.
    #[inline(always)]
    unsafe fn rows<S: SimdF32, const R: usize>(&self, s: S, row: usize, sums: &mut Sums) {
        let Range { start, end } = self.columns;
        let standard = self.standard.rows::<R>(row);
        let d_out = self.d_out.rows::<R>(row);
        let (weights, biases) = (sums.weight.as_mut_ptr(), sums.bias.as_mut_ptr());
        macro_rules! vector {
            ($full:literal, $at:expr, $count:expr) => {{
                let (at, count) = ($at, $count);
                let (to_weight, to_bias) = (weights.add(at), biases.add(at));
                let mut weight = load::<S, $full>(s, to_weight, count);
                let mut bias =
                    if BIAS { load::<S, $full>(s, to_bias, count) } else { s.splat(0.0) };
                for i in 0..R {
                    let dy = load::<S, $full>(s, d_out[i].add(start + at), count);
                    let z = load::<S, $full>(s, standard[i].add(start + at), count);
                    weight = s.mul_add(dy, z, weight);
                    if BIAS {
                        bias = s.add(bias, dy);
                    }
                }
                store::<S, $full>(s, to_weight, weight, count);
                if BIAS {
                    store::<S, $full>(s, to_bias, bias, count);
                }
            }};
        }
        let (len, mut at) = (end - start, 0);
        while at + S::LANES <= len {
            // SAFETY: `at + LANES` is at most the number of the task's columns, which is at most the number of sums.
            unsafe { vector!(true, at, S::LANES) };
            at += S::LANES;
        }
        if at < len {
            // SAFETY: `len - at` columns of the task are left, fewer than LANES, and there is a sum for each.
            unsafe { vector!(false, at, len - at) };
        }
    }

    /// Stores the sums of a reduction chunk, or adds them.
    #[inline(always)]
    fn finish<S: SimdF32>(&self, s: S, sums: &Sums, add: bool) {
        let Range { start, end } = self.columns;
        for at in (0..end - start).step_by(S::LANES) {
            let count = (end - start - at).min(S::LANES);
            let both = [(self.d_weight, sums.weight.as_ptr()), (self.d_bias, sums.bias.as_ptr())];
            for (to, sums) in both.into_iter().take(1 + usize::from(BIAS)) {
                // SAFETY: `run` checked that `d_weight` has `columns` floats, and `d_bias` too if `BIAS`; only this
                // task uses these columns. `count` ends at `end`, and there is a sum for each column of a task.
                unsafe {
                    let to = to.add(start + at);
                    let sum = s.load_prefix(sums.add(at), count);
                    let sum = if add { s.add(s.load_prefix(to, count), sum) } else { sum };
                    s.store_prefix(to, sum, count);
                }
            }
        }
    }
}

pub(super) fn run(
    isa: Isa,
    (standard, d_out): (Matrix<'_>, Matrix<'_>),
    chunks: ReductionChunks<'_>,
    write: WriteMode,
    NormGradients { weight: d_weight, bias: d_bias }: NormGradients<'_>,
    parallelism: Parallelism<'_>,
) -> Result<(), Error> {
    let shape @ [rows, columns] = [d_out.rows(), d_out.columns()];
    let standard = RowPtrs::read("standard", &standard, shape)?;
    let d_out = RowPtrs::read("d_out", &d_out, shape)?;
    Error::check_len("d_weight", columns, d_weight)?;
    if let Some(d_bias) = &d_bias {
        Error::check_len("d_bias", columns, d_bias)?;
    }
    Error::check_size("rows", "chunks", Expected::Exactly(rows), chunks.rows())?;
    let (d_weight, d_bias) = (SharedMut::new(d_weight), d_bias.map(SharedMut::new));
    parallelism.workers().for_each(columns.div_ceil(COLUMNS), &|task| {
        let columns = task * COLUMNS..columns.min((task + 1) * COLUMNS);
        let d_weight = d_weight.as_ptr();
        macro_rules! run {
            ($bias:literal, $d_bias:expr) => {
                isa.dispatch(ParamGradSums::<$bias> {
                    columns,
                    chunks,
                    write,
                    standard,
                    d_out,
                    d_weight,
                    d_bias: $d_bias,
                })
            };
        }
        match d_bias {
            Some(d_bias) => run!(true, d_bias.as_ptr()),
            None => run!(false, core::ptr::null_mut()),
        }
    });
    Ok(())
}
