//! What happens to a tile of sums between the last multiplication and the store.

use super::microkernel::{LINE, MAX_ROWS, Tile};
use crate::activation::{Activation, apply_lanes, apply_row};
use crate::isa::Kernel;
use crate::lanes::{Lanes, MAX_PANEL};
use crate::matrix::{Matrix, MatrixMut};

/// What a GEMM does with its sums: `C = residual + activation(scale * sum + bias)`.
///
/// The default stores the sums as they are.
#[derive(Clone, Copy, Debug)]
pub struct Epilogue<'a> {
    /// Multiplies the sum.
    pub scale: f32,
    /// One value per column, added after the scale.
    pub bias: Option<&'a [f32]>,
    /// Applied after the bias.
    pub activation: Activation,
    /// Added last.
    pub residual: Residual<'a>,
}

/// What is added to the result.
#[derive(Clone, Copy, Debug, Default)]
pub enum Residual<'a> {
    /// Nothing: the contents of `C` are never read.
    #[default]
    None,
    /// What `C` holds.
    Output,
    /// A matrix of the shape of `C`.
    Matrix(Matrix<'a>),
}

impl Default for Epilogue<'_> {
    fn default() -> Self {
        Self { scale: 1.0, bias: None, activation: Activation::Identity, residual: Residual::None }
    }
}

/// An [`Epilogue`] and an output as pointers, checked against each other.
#[derive(Clone, Copy)]
pub(super) struct Store {
    pub(super) c: *mut f32,
    pub(super) row_stride: usize,
    pub(super) column_stride: usize,
    pub(super) scale: f32,
    /// Null when there is none.
    pub(super) bias: *const f32,
    pub(super) activation: Activation,
    /// Null when there is none; may be `c`.
    pub(super) residual: *const f32,
    pub(super) residual_row_stride: usize,
    pub(super) residual_column_stride: usize,
}

// SAFETY: only pointers; the tasks of one GEMM write disjoint tiles and read their own tile only.
unsafe impl Send for Store {}
// SAFETY: as above.
unsafe impl Sync for Store {}

impl Store {
    pub(super) fn new(epilogue: &Epilogue<'_>, c: &mut MatrixMut<'_>) -> Self {
        let (row_stride, column_stride) = (c.row_stride(), c.column_stride());
        let start = c.shared().as_ptr();
        let (residual, residual_row_stride, residual_column_stride) = match epilogue.residual {
            Residual::None => (core::ptr::null(), 0, 1),
            Residual::Output => (start.cast_const(), row_stride, column_stride),
            Residual::Matrix(m) => (m.as_ptr(), m.row_stride(), m.column_stride()),
        };
        Self {
            c: start,
            row_stride,
            column_stride,
            scale: epilogue.scale,
            bias: epilogue.bias.map_or(core::ptr::null(), <[f32]>::as_ptr),
            activation: epilogue.activation,
            residual,
            residual_row_stride,
            residual_column_stride,
        }
    }

    /// Asks early for where [`Store::finish`] will write, and for what it will add.
    #[inline(always)]
    pub(super) fn prefetch<S: Lanes, const MR: usize>(&self, s: S, row: usize, column: usize) {
        if self.column_stride != 1 {
            return;
        }
        for i in 0..MR {
            let at = self.c.wrapping_add((row + i) * self.row_stride + column);
            for line in (0..S::PANEL).step_by(LINE) {
                s.prefetch(at.wrapping_add(line));
            }
        }
    }

    /// Finishes the tile whose first element is `(row, column)` and stores its first `valid` columns.
    ///
    /// # Safety
    /// The output, bias and residual of this value cover rows `row..row + MR` and columns
    /// `column..column + valid`, no other thread touches that part of the output, and
    /// `1 <= valid <= NV * LANES`.
    #[inline(always)]
    pub(super) unsafe fn finish<S: Lanes, const MR: usize, const NV: usize>(
        &self,
        s: S,
        mut acc: Tile<S, MR, NV>,
        row: usize,
        column: usize,
        valid: usize,
    ) {
        if self.scale != 1.0 {
            let scale = s.splat(self.scale);
            for line in &mut acc {
                for x in line {
                    *x = s.mul(*x, scale);
                }
            }
        }
        let full = valid == NV * S::LANES;
        if !self.bias.is_null() {
            for v in 0..NV {
                let count = valid.saturating_sub(v * S::LANES).min(S::LANES);
                let at = self.bias.wrapping_add(column + v * S::LANES);
                // SAFETY: `column + valid` is at most the length of the bias; `count` stops there.
                let bias = unsafe { if full { s.load(at) } else { s.load_first(at, count) } };
                for line in &mut acc {
                    line[v] = s.add(line[v], bias);
                }
            }
        }
        match self.activation {
            Activation::Identity => {}
            Activation::Relu => {
                for line in &mut acc {
                    for x in line {
                        *x = apply_lanes(s, Activation::Relu, *x);
                    }
                }
            }
            // The others take many instructions each: a loop over a tile on the stack, in one place,
            // instead of MR * NV copies of them in every tile.
            activation => {
                let mut room = [0.0f32; MAX_ROWS * MAX_PANEL];
                for i in 0..MR {
                    for v in 0..NV {
                        // SAFETY: `MR <= MAX_ROWS` and `NV * LANES <= MAX_PANEL`.
                        unsafe {
                            s.store(room.as_mut_ptr().add((i * NV + v) * S::LANES), acc[i][v])
                        };
                    }
                }
                let tile = &mut room[..MR * NV * S::LANES];
                s.outlined(Activate { activation, tile });
                for i in 0..MR {
                    for v in 0..NV {
                        // SAFETY: as above.
                        acc[i][v] = unsafe { s.load(room.as_ptr().add((i * NV + v) * S::LANES)) };
                    }
                }
            }
        }
        let unit = self.column_stride == 1 && self.residual_column_stride == 1;
        if unit && full {
            for i in 0..MR {
                for v in 0..NV {
                    // SAFETY: the caller's contract: full vectors of row `row + i`.
                    unsafe {
                        let mut x = acc[i][v];
                        let at = column + v * S::LANES;
                        if !self.residual.is_null() {
                            let r = self.residual.add((row + i) * self.residual_row_stride + at);
                            x = s.add(s.load(r), x);
                        }
                        s.store(self.c.add((row + i) * self.row_stride + at), x);
                    }
                }
            }
        } else {
            // SAFETY: the caller's contract.
            unsafe { self.store_edge(s, &acc, row, column, valid, unit) };
        }
    }

    /// The last columns of a matrix, or strided columns.
    ///
    /// # Safety
    /// As [`Store::finish`].
    #[inline(always)]
    unsafe fn store_edge<S: Lanes, const MR: usize, const NV: usize>(
        &self,
        s: S,
        acc: &Tile<S, MR, NV>,
        row: usize,
        column: usize,
        valid: usize,
        unit: bool,
    ) {
        for (i, line) in acc.iter().enumerate() {
            for (v, &sum) in line.iter().enumerate() {
                let first = v * S::LANES;
                if first >= valid {
                    break;
                }
                let count = (valid - first).min(S::LANES);
                let c = (row + i) * self.row_stride + (column + first) * self.column_stride;
                let r = (row + i) * self.residual_row_stride
                    + (column + first) * self.residual_column_stride;
                // SAFETY: `count` columns from `column + first` are inside the views.
                unsafe {
                    if unit {
                        let mut x = sum;
                        if !self.residual.is_null() {
                            x = s.add(s.load_first(self.residual.add(r), count), x);
                        }
                        s.store_first(self.c.add(c), x, count);
                    } else {
                        let mut room = [0.0f32; crate::lanes::MAX_LANES];
                        s.store(room.as_mut_ptr(), sum);
                        for (j, &x) in room.iter().enumerate().take(count) {
                            let added = if self.residual.is_null() {
                                x
                            } else {
                                *self.residual.add(r + j * self.residual_column_stride) + x
                            };
                            *self.c.add(c + j * self.column_stride) = added;
                        }
                    }
                }
            }
        }
    }
}

/// Applies an activation to a tile on the stack.
struct Activate<'a> {
    activation: Activation,
    tile: &'a mut [f32],
}

impl Kernel for Activate<'_> {
    type Output = ();

    #[inline(always)]
    fn run<S: Lanes>(self, s: S) {
        // SAFETY: the whole slice, and nothing else.
        unsafe { apply_row(s, self.activation, self.tile.as_mut_ptr(), self.tile.len()) };
    }
}
