//! The gradients of what a norm has learned: sums over rows, a few columns at a time, with the sums of
//! a leaf in registers.

use super::views::{Shareable, read};
use crate::isa::Isa;
use crate::lanes::{Kernel, Lanes};
use crate::matrix::Matrix;
use crate::norm::error::NormError;
use crate::norm::vectors::{Place, UNROLL, load, prefetch_step, store};
use crate::parallel::Parallelism;
use crate::train::{Leaves, Write};
use core::ops::Range;

/// Columns of one task are a multiple of this.
const COLUMNS: usize = 64;
/// Elements in one task, about, if columns are few.
const TASK: usize = 1 << 14;
/// Rows that are asked for before they are needed: a column of a matrix is no stream for the CPU.
const AHEAD: usize = 8;

/// `BIAS` if the sum of `d_out` alone is wanted too.
struct ColumnSums<'a, const BIAS: bool> {
    columns: Range<usize>,
    leaves: Leaves<'a>,
    write: Write,
    standard: Place,
    d_out: Place,
    d_weight: *mut f32,
    d_bias: *mut f32,
}

impl<const BIAS: bool> Kernel for ColumnSums<'_, BIAS> {
    type Output = ();

    #[inline(always)]
    fn run<S: Lanes>(self, s: S) {
        let Range { start: mut at, end } = self.columns;
        // SAFETY: whoever made the value vouches for the columns and the rows of the leaves.
        unsafe {
            while at + UNROLL * S::LANES <= end {
                self.sweep::<S, UNROLL, true>(s, at, S::LANES);
                at += UNROLL * S::LANES;
            }
            while at < end {
                let count = (end - at).min(S::LANES);
                self.sweep::<S, 1, false>(s, at, count);
                at += count;
            }
        }
    }
}

impl<const BIAS: bool> ColumnSums<'_, BIAS> {
    /// `V` vectors of columns from `at` on, each `FULL` or of `count` elements.
    ///
    /// # Safety
    /// The matrices have the columns and the rows of the leaves; the results have the columns, `d_bias`
    /// if `BIAS`.
    #[inline(always)]
    unsafe fn sweep<S: Lanes, const V: usize, const FULL: bool>(
        &self,
        s: S,
        at: usize,
        count: usize,
    ) {
        let mut add = self.write == Write::Add;
        if self.leaves.is_empty() && !add {
            for j in 0..V {
                let at = at + j * S::LANES;
                // SAFETY: the caller's contract.
                unsafe {
                    store::<S, FULL>(s, self.d_weight.add(at), s.splat(0.0), count);
                    if BIAS {
                        store::<S, FULL>(s, self.d_bias.add(at), s.splat(0.0), count);
                    }
                }
            }
        }
        for rows in self.leaves.ranges() {
            let mut weight = [s.splat(0.0); V];
            let mut bias = [s.splat(0.0); V];
            for row in rows {
                let ([z], [dy]) = (self.standard.rows(row), self.d_out.rows(row));
                if FULL {
                    let ([z], [dy]) =
                        (self.standard.rows(row + AHEAD), self.d_out.rows(row + AHEAD));
                    prefetch_step(s, z, at);
                    prefetch_step(s, dy, at);
                }
                for j in 0..V {
                    let at = at + j * S::LANES;
                    // SAFETY: the caller's contract.
                    unsafe {
                        let dy = load::<S, FULL>(s, dy.add(at), count);
                        let z = load::<S, FULL>(s, z.add(at), count);
                        weight[j] = s.mul_add(dy, z, weight[j]);
                        if BIAS {
                            bias[j] = s.add(bias[j], dy);
                        }
                    }
                }
            }
            for j in 0..V {
                let at = at + j * S::LANES;
                // SAFETY: the caller's contract.
                unsafe {
                    let to = self.d_weight.add(at);
                    let old = if add { load::<S, FULL>(s, to, count) } else { s.splat(0.0) };
                    let sum = if add { s.add(old, weight[j]) } else { weight[j] };
                    store::<S, FULL>(s, to, sum, count);
                    if BIAS {
                        let to = self.d_bias.add(at);
                        let old = if add { load::<S, FULL>(s, to, count) } else { s.splat(0.0) };
                        let sum = if add { s.add(old, bias[j]) } else { bias[j] };
                        store::<S, FULL>(s, to, sum, count);
                    }
                }
            }
            add = true;
        }
    }
}

pub(super) fn run(
    isa: Isa,
    (standard, d_out): (Matrix<'_>, Matrix<'_>),
    leaves: Leaves<'_>,
    write: Write,
    d_weight: &mut [f32],
    d_bias: Option<&mut [f32]>,
    parallelism: Parallelism<'_>,
) -> Result<(), NormError> {
    let shape @ [rows, columns] = [d_out.rows(), d_out.columns()];
    let (standard, d_out) = (read(&standard, shape)?, read(&d_out, shape)?);
    if d_weight.len() != columns {
        return Err(NormError::Weight { expected: columns, found: d_weight.len() });
    }
    if let Some(d_bias) = &d_bias
        && d_bias.len() != columns
    {
        return Err(NormError::Bias { expected: columns, found: d_bias.len() });
    }
    if leaves.rows() != rows {
        return Err(NormError::Leaves { expected: rows, found: leaves.rows() });
    }
    let bias = d_bias.is_some();
    let d_bias = d_bias.map_or(core::ptr::null_mut(), <[f32]>::as_mut_ptr);
    let row = |start| Place { start, stride: 0 };
    // SAFETY: everything is borrowed as long as this call; tasks write columns of their own.
    let places =
        unsafe { Shareable::new([standard, d_out, row(d_weight.as_mut_ptr()), row(d_bias)]) };
    let chunk = (TASK / rows.max(1)).max(1).next_multiple_of(COLUMNS);
    parallelism.for_each(columns.div_ceil(chunk), &|task| {
        let columns = task * chunk..columns.min((task + 1) * chunk);
        let [standard, d_out, Place { start: d_weight, .. }, Place { start: d_bias, .. }] =
            places.places();
        macro_rules! run {
            ($bias:literal) => {
                isa.dispatch(ColumnSums::<$bias> {
                    columns,
                    leaves,
                    write,
                    standard,
                    d_out,
                    d_weight,
                    d_bias,
                })
            };
        }
        if bias { run!(true) } else { run!(false) }
    });
    Ok(())
}
