//! The store of a GEMM: the epilogue is applied to a tile of sums, and the result is written to the output.

use super::epilogue::{Epilogue, Residual};
#[cfg(feature = "train")]
use super::epilogue_grad::{Derivative, Derivatives};
use super::microkernel::Tile;
use crate::activation::{Activation, Applied, Map, apply_lanes, apply_row, with_map};
use crate::matrix::MatrixMut;
use crate::prefetch::prefetch_rows;
use crate::simd::{MAX_LANES, MAX_MR, MAX_PANEL, SimdF32, SimdOp};
use core::mem::MaybeUninit;

/// An [`Epilogue`] and an output as pointers. Their shapes match.
#[derive(Clone, Copy)]
pub(super) struct Store {
    pub(super) c: *mut f32,
    pub(super) row_stride: usize,
    pub(super) column_stride: usize,
    pub(super) scale: f32,
    /// Null if there is no bias.
    pub(super) bias: *const f32,
    pub(super) activation: Activation,
    /// Null if there is no residual; may be equal to `c`.
    pub(super) residual: *const f32,
    /// Whether the result is multiplied by the residual instead of added to it.
    pub(super) gate: bool,
    pub(super) residual_row_stride: usize,
    pub(super) residual_column_stride: usize,
    #[cfg(feature = "train")]
    derivative: Option<Derivative>,
}

// SAFETY: `Store` has only pointers and values. The tasks of one GEMM write disjoint tiles and read only their own tile
// (`# Safety` of `Store::finish`).
unsafe impl Send for Store {}
// SAFETY: a task only copies the pointers of a `&Store`, and writes only its own tiles with them (`# Safety` of
// `Store::finish`).
unsafe impl Sync for Store {}

impl Store {
    pub(super) fn new(epilogue: &Epilogue<'_>, c: &mut MatrixMut<'_>) -> Self {
        let (row_stride, column_stride) = (c.row_stride(), c.column_stride());
        let start = c.shared().as_ptr();
        let (residual, residual_row_stride, residual_column_stride) = match epilogue.residual {
            Residual::None => (core::ptr::null(), 0, 1),
            Residual::Output | Residual::MultiplyOutput => {
                (start.cast_const(), row_stride, column_stride)
            }
            Residual::Matrix(m) => (m.as_ptr(), m.row_stride(), m.column_stride()),
            #[cfg(feature = "train")]
            Residual::ActivationBackward { .. } => (core::ptr::null(), 0, 1),
        };
        Self {
            c: start,
            row_stride,
            column_stride,
            scale: epilogue.scale,
            bias: epilogue.bias.map_or(core::ptr::null(), <[f32]>::as_ptr),
            activation: epilogue.activation,
            residual,
            gate: matches!(epilogue.residual, Residual::MultiplyOutput),
            residual_row_stride,
            residual_column_stride,
            #[cfg(feature = "train")]
            derivative: match &epilogue.residual {
                Residual::ActivationBackward { activation, pre } => {
                    Some(Derivative::new(*activation, pre))
                }
                _ => None,
            },
        }
    }

    /// Prefetches the output lines that [`Store::finish`] will write.
    #[inline(always)]
    pub(super) fn prefetch<S: SimdF32, const MR: usize>(&self, s: S, row: usize, column: usize) {
        #[cfg(feature = "train")]
        if let Some(derivative) = &self.derivative {
            derivative.prefetch(s, MR, row, column);
        }
        if self.column_stride != 1 {
            return;
        }
        let at = self.c.wrapping_add(row * self.row_stride + column);
        prefetch_rows::<S, true>(s, at, self.row_stride, MR, S::PANEL);
    }

    /// Prefetches long before [`Store::finish`]: the output lines into the L2 cache, and the residual into the L1
    /// cache.
    #[inline(always)]
    pub(super) fn prefetch_l2<S: SimdF32, const MR: usize>(
        &self,
        s: S,
        row: usize,
        column: usize,
        width: usize,
    ) {
        if self.column_stride != 1 {
            return;
        }
        let to = self.c.wrapping_add(row * self.row_stride + column);
        prefetch_rows::<S, false>(s, to, self.row_stride, MR, width);
        if !self.residual.is_null() && self.residual_column_stride == 1 {
            let from = self.residual.wrapping_add(row * self.residual_row_stride + column);
            prefetch_rows::<S, true>(s, from, self.residual_row_stride, MR, width);
        }
    }

    /// Applies the epilogue to the tile whose first element is `(row, column)`, and stores its first `valid` columns.
    ///
    /// The common cases run in registers. All other cases go through the stack and one function for tiles of any
    /// height: inlined into every tile, that function would be most of the code of a GEMM.
    ///
    /// # Safety
    /// The output, bias and residual of `self` cover rows `row..row + MR` and columns `column..column + valid`, no
    /// other thread accesses that part of the output, and `1 <= valid <= NV * LANES`.
    #[inline(always)]
    pub(super) unsafe fn finish<S: SimdF32, const MR: usize, const NV: usize>(
        &self,
        s: S,
        mut acc: Tile<S, MR, NV>,
        row: usize,
        column: usize,
        valid: usize,
    ) {
        if !self.fits_registers(valid == NV * S::LANES) {
            // SAFETY: `# Safety` of this function.
            return unsafe { self.finish_on_stack(s, &acc, MR, row, column, valid) };
        }
        if !self.bias.is_null() {
            for v in 0..NV {
                // SAFETY: `fits_registers` is true, so all columns of the panel are valid and the bias has them.
                let bias = unsafe { s.load(self.bias.add(column + v * S::LANES)) };
                for line in &mut acc {
                    line[v] = s.add(line[v], bias);
                }
            }
        }
        if self.activation == Activation::Relu {
            for line in &mut acc {
                for x in line {
                    *x = apply_lanes(s, Activation::Relu, *x);
                }
            }
        }
        for (i, line) in acc.iter().enumerate() {
            for (v, &x) in line.iter().enumerate() {
                let at = column + v * S::LANES;
                // SAFETY: `# Safety` of this function: the output and the residual have full vectors in row `row + i`.
                unsafe {
                    let mut x = x;
                    if !self.residual.is_null() {
                        let r = self.residual.add((row + i) * self.residual_row_stride + at);
                        let r = s.load(r);
                        x = if self.gate { s.mul(r, x) } else { s.add(r, x) };
                    }
                    s.store(self.c.add((row + i) * self.row_stride + at), x);
                }
            }
        }
        // SAFETY: `# Safety` of this function; the loop above has stored the tile.
        unsafe { self.finish_stored(s, MR, row, column, valid) };
    }

    /// Whether the epilogue of a tile can run in registers. `whole` is true if all columns of the tile are in the
    /// output.
    #[inline(always)]
    pub(super) fn fits_registers(&self, whole: bool) -> bool {
        self.scale == 1.0
            && whole
            && self.column_stride == 1
            && self.residual_column_stride == 1
            && matches!(self.activation, Activation::Identity | Activation::Relu)
    }

    /// The bias of `NV` vectors of columns from `column` on, if there is a bias.
    ///
    /// # Safety
    /// The output has these columns.
    #[inline(always)]
    pub(super) unsafe fn bias_of<S: SimdF32, const NV: usize>(
        &self,
        s: S,
        column: usize,
    ) -> Option<[S::F32; NV]> {
        if self.bias.is_null() {
            return None;
        }
        let mut bias = [s.splat(0.0); NV];
        for (v, bias) in bias.iter_mut().enumerate() {
            // SAFETY: the bias has one element per column of the output, and `# Safety` of this function covers the
            // columns.
            *bias = unsafe { s.load(self.bias.add(column + v * S::LANES)) };
        }
        Some(bias)
    }

    /// [`Store::finish`] for one row of a tile for which [`Store::fits_registers`] is true, with the bias of its
    /// columns. It is for tall tiles, which would otherwise be spilled to memory.
    ///
    /// # Safety
    /// As [`Store::finish`], for this row. [`Store::finish_stored`] must be called last, for all rows.
    #[inline(always)]
    pub(super) unsafe fn finish_row<S: SimdF32, const NV: usize>(
        &self,
        s: S,
        line: [S::F32; NV],
        bias: Option<[S::F32; NV]>,
        row: usize,
        column: usize,
    ) {
        for (v, mut x) in line.into_iter().enumerate() {
            if let Some(bias) = bias {
                x = s.add(x, bias[v]);
            }
            if self.activation == Activation::Relu {
                x = apply_lanes(s, Activation::Relu, x);
            }
            let at = column + v * S::LANES;
            // SAFETY: `# Safety` of this function: the output and the residual have full vectors in row `row`.
            unsafe {
                if !self.residual.is_null() {
                    let r = s.load(self.residual.add(row * self.residual_row_stride + at));
                    x = if self.gate { s.mul(r, x) } else { s.add(r, x) };
                }
                s.store(self.c.add(row * self.row_stride + at), x);
            }
        }
    }

    /// The rest of the epilogue for a stored tile of `rows` rows for which [`Store::fits_registers`] is true.
    ///
    /// # Safety
    /// As [`Store::finish`].
    #[inline(always)]
    #[cfg_attr(not(feature = "train"), allow(unused_variables))]
    pub(super) unsafe fn finish_stored<S: SimdF32>(
        &self,
        s: S,
        rows: usize,
        row: usize,
        column: usize,
        valid: usize,
    ) {
        #[cfg(feature = "train")]
        if let Some(derivative) = self.derivative {
            let tile = self.c.wrapping_add(row * self.row_stride + column);
            let width = self.row_stride;
            s.call_noinline(Derivatives { derivative, tile, rows, width, row, column, valid });
        }
    }

    /// [`Store::finish`] for a tile in memory, `[rows, width]`, where `width` is a multiple of the vector length. The
    /// tile is overwritten.
    ///
    /// # Safety
    /// As [`Store::finish`]; `tile` is valid for reads and writes of `rows * width` floats.
    #[inline(always)]
    pub(super) unsafe fn finish_tile<S: SimdF32>(
        &self,
        s: S,
        tile: *mut f32,
        (rows, width): (usize, usize),
        row: usize,
        column: usize,
        valid: usize,
    ) {
        s.call_noinline(Finish { store: self, tile, rows, width, row, column, valid });
    }

    /// [`Store::finish`] for the first `rows` rows of a tile. The other rows are outside the output.
    ///
    /// # Safety
    /// As [`Store::finish`], for `1 <= rows <= MR` rows.
    #[cfg(feature = "train")]
    #[inline(always)]
    pub(super) unsafe fn finish_rows<S: SimdF32, const MR: usize, const NV: usize>(
        &self,
        s: S,
        acc: Tile<S, MR, NV>,
        rows: usize,
        row: usize,
        column: usize,
        valid: usize,
    ) {
        // SAFETY: `# Safety` of this function.
        unsafe {
            if rows == MR {
                self.finish(s, acc, row, column, valid);
            } else {
                self.finish_on_stack(s, &acc, rows, row, column, valid);
            }
        }
    }

    /// [`Store::finish`] for the first `rows` rows of a tile, with any epilogue.
    ///
    /// # Safety
    /// As [`Store::finish`], for `1 <= rows <= MR` rows.
    #[inline(always)]
    unsafe fn finish_on_stack<S: SimdF32, const MR: usize, const NV: usize>(
        &self,
        s: S,
        acc: &Tile<S, MR, NV>,
        rows: usize,
        row: usize,
        column: usize,
        valid: usize,
    ) {
        const { assert!(MR * NV * S::LANES <= MAX_MR * MAX_PANEL) };
        let mut buffer = MaybeUninit::<[f32; MAX_MR * MAX_PANEL]>::uninit();
        let tile = buffer.as_mut_ptr().cast::<f32>();
        for (i, line) in acc.iter().enumerate() {
            for (v, &x) in line.iter().enumerate() {
                // SAFETY: the assertion above: `buffer` is at least as long as the tile.
                unsafe { s.store(tile.add((i * NV + v) * S::LANES), x) };
            }
        }
        // SAFETY: `# Safety` of this function, as of `finish_tile`; the loop above stored `MR >=
        // rows` rows of `NV * LANES` floats to `tile`.
        unsafe { self.finish_tile(s, tile, (rows, NV * S::LANES), row, column, valid) };
    }

    /// Adds the residual to `count` sums of row `row` from column `column` on, or multiplies them by it, and stores
    /// them.
    ///
    /// # Safety
    /// As [`Store::finish`], for these elements; `count <= LANES`.
    #[inline(always)]
    unsafe fn store_vector<S: SimdF32>(
        &self,
        s: S,
        mut x: S::F32,
        row: usize,
        column: usize,
        count: usize,
    ) {
        let c = row * self.row_stride + column * self.column_stride;
        let r = row * self.residual_row_stride + column * self.residual_column_stride;
        // SAFETY: `# Safety` of this function: `count` columns from `column` are inside the output and the residual.
        unsafe {
            if self.column_stride == 1 && self.residual_column_stride == 1 {
                if !self.residual.is_null() {
                    let r = s.load_prefix(self.residual.add(r), count);
                    x = if self.gate { s.mul(r, x) } else { s.add(r, x) };
                }
                s.store_prefix(self.c.add(c), x, count);
                return;
            }
            let mut buffer = [0.0f32; MAX_LANES];
            s.store(buffer.as_mut_ptr(), x);
            for (j, &x) in buffer.iter().enumerate().take(count) {
                let at = self.residual.wrapping_add(r + j * self.residual_column_stride);
                let result = match (self.residual.is_null(), self.gate) {
                    (true, _) => x,
                    (false, false) => *at + x,
                    (false, true) => *at * x,
                };
                *self.c.add(c + j * self.column_stride) = result;
            }
        }
    }
}

/// [`Store::finish`] for a tile in memory, with any scale, activation, stride and edge.
struct Finish<'a> {
    store: &'a Store,
    /// `[rows, width]`.
    tile: *mut f32,
    rows: usize,
    /// Row stride of the tile.
    width: usize,
    row: usize,
    column: usize,
    valid: usize,
}

impl SimdOp for Finish<'_> {
    type Output = ();

    #[inline(always)]
    fn run<S: SimdF32>(self, s: S) {
        let Self { store, tile, rows, width, row, column, valid } = self;
        let one_pass = store.column_stride == 1 && store.residual_column_stride == 1;
        #[cfg(feature = "train")]
        let one_pass = one_pass && store.derivative.is_none();
        if one_pass {
            return with_map(store.activation, OnePass { s, finish: self });
        }
        let scale = s.splat(store.scale);
        for first in (0..valid).step_by(S::LANES) {
            let count = (valid - first).min(S::LANES);
            // SAFETY: `column + valid` is at most the length of the bias; `count` stops there.
            let bias = (!store.bias.is_null())
                .then(|| unsafe { s.load_prefix(store.bias.add(column + first), count) });
            for i in 0..rows {
                // SAFETY: the tile has `rows` rows of `width` floats, a multiple of LANES.
                unsafe {
                    let at = tile.add(i * width + first);
                    let mut x = s.load(at);
                    if store.scale != 1.0 {
                        x = s.mul(x, scale);
                    }
                    if let Some(bias) = bias {
                        x = s.add(x, bias);
                    }
                    s.store(at, x);
                }
            }
        }
        // SAFETY: the tile has `rows * width` floats (`# Safety` of `Store::finish_tile`).
        unsafe { apply_row(s, store.activation, tile, rows * width) };
        #[cfg(feature = "train")]
        if let Some(derivative) = store.derivative {
            s.call_noinline(Derivatives { derivative, tile, rows, width, row, column, valid });
        }
        for i in 0..rows {
            for first in (0..valid).step_by(S::LANES) {
                let count = (valid - first).min(S::LANES);
                // SAFETY: the tile has `rows` rows of `width` floats, a multiple of LANES; `#
                // Safety` of `Store::finish` says that the output has these rows and columns and
                // that no other thread touches them.
                unsafe {
                    let x = s.load(tile.add(i * width + first));
                    store.store_vector(s, x, row + i, column + first, count);
                }
            }
        }
    }
}

/// [`Finish`] for an output with contiguous rows. It reads and writes each vector once.
struct OnePass<'a, S> {
    s: S,
    finish: Finish<'a>,
}

impl<S: SimdF32> Applied for OnePass<'_, S> {
    #[inline(always)]
    fn run<M: Map>(self, map: M) {
        let Self { s, finish: Finish { store, tile, rows, width, row, column, valid } } = self;
        let scale = s.splat(store.scale);
        for first in (0..valid).step_by(S::LANES) {
            let (at, count) = (column + first, (valid - first).min(S::LANES));
            // SAFETY: `column + valid` is at most the length of the bias; `count` stops there.
            let bias = (!store.bias.is_null())
                .then(|| unsafe { s.load_prefix(store.bias.add(at), count) });
            for i in 0..rows {
                let c = store.c.wrapping_add((row + i) * store.row_stride + at);
                let r = store.residual.wrapping_add((row + i) * store.residual_row_stride + at);
                // SAFETY: the tile has `rows` rows of `width` floats, a multiple of LANES; `#
                // Safety` of `Store::finish` says that output and residual have these rows and
                // columns and that no other thread touches them.
                unsafe {
                    let mut x = s.load(tile.add(i * width + first));
                    if store.scale != 1.0 {
                        x = s.mul(x, scale);
                    }
                    if let Some(bias) = bias {
                        x = s.add(x, bias);
                    }
                    x = map.map(s, x);
                    if !store.residual.is_null() {
                        let r = s.load_prefix(r, count);
                        x = if store.gate { s.mul(r, x) } else { s.add(r, x) };
                    }
                    if count == S::LANES {
                        s.store(c, x);
                    } else {
                        s.store_prefix(c, x, count);
                    }
                }
            }
        }
    }
}
