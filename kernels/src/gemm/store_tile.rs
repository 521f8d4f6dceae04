//! The store of a GEMM: the epilogue is applied to a tile of sums, and the result is written to the output.

use super::epilogue::{ElementPtrs, Epilogue, OutputRange, PostOp, copy_strided};
#[cfg(feature = "train")]
use super::epilogue_grad::{Derivative, times_derivative};
use super::microkernel::Tile;
use crate::activation::{Activation, Applied, Map, with_map};
use crate::matrix::MatrixMut;
use crate::prefetch::CacheLevel;
use crate::simd::{MAX_LANES, MAX_MR, MAX_PANEL, SimdF32, simd_op};
use core::mem::MaybeUninit;

/// An [`Epilogue`] and an output as pointers. Their shapes match.
#[derive(Clone, Copy)]
pub(super) struct Store {
    c: ElementPtrs,
    scale: f32,
    /// One value per column.
    bias: Option<*const f32>,
    activation: Activation,
    /// The other operand of a sum or a product, which may be the output itself.
    binary: Option<(Binary, ElementPtrs)>,
    #[cfg(feature = "train")]
    derivative: Option<Derivative>,
}

/// What combines the result with the other operand.
#[derive(Clone, Copy)]
enum Binary {
    Add,
    Multiply,
}

// SAFETY: `Store` has only pointers and values. The tasks of one GEMM write disjoint tiles and read only their own tile
// (`# Safety` of `Store::store_rows`).
unsafe impl Send for Store {}
// SAFETY: a task only copies the pointers of a `&Store`, and writes only its own tiles with them (`# Safety` of
// `Store::store_rows`).
unsafe impl Sync for Store {}

impl Store {
    pub(super) fn new(epilogue: &Epilogue<'_>, c: &mut MatrixMut<'_>) -> Self {
        let (row_stride, column_stride) = (c.row_stride(), c.column_stride());
        let c = ElementPtrs { first: c.shared().as_ptr(), row_stride, column_stride };
        Self {
            c,
            scale: epilogue.scale,
            bias: epilogue.bias.map(<[f32]>::as_ptr),
            activation: epilogue.activation,
            binary: match epilogue.post_op {
                PostOp::AddOutput => Some((Binary::Add, c)),
                PostOp::Add(other) => Some((Binary::Add, ElementPtrs::of(&other))),
                PostOp::MultiplyOutput => Some((Binary::Multiply, c)),
                _ => None,
            },
            #[cfg(feature = "train")]
            derivative: match &epilogue.post_op {
                PostOp::ActivationBackward { activation, pre } => {
                    Some(Derivative { of: *activation, pre: ElementPtrs::of(pre) })
                }
                _ => None,
            },
        }
    }

    /// Prefetches the output lines that [`Store::finish`] will write.
    #[inline(always)]
    pub(super) fn prefetch<S: SimdF32, const MR: usize>(&self, s: S, row: usize, column: usize) {
        let block = OutputRange { row, rows: MR, column, columns: S::PANEL };
        #[cfg(feature = "train")]
        if let Some(Derivative { pre, .. }) = &self.derivative {
            pre.prefetch(s, CacheLevel::L1, block);
        }
        self.c.prefetch(s, CacheLevel::L1, block);
    }

    /// Prefetches long before [`Store::store_rows`]: the output lines into the L2 cache, and the other operand into the
    /// L1 cache.
    #[inline(always)]
    pub(super) fn prefetch_l2<S: SimdF32, const MR: usize>(
        &self,
        s: S,
        row: usize,
        column: usize,
        width: usize,
    ) {
        if self.c.column_stride != 1 {
            return;
        }
        let block = OutputRange { row, rows: MR, column, columns: width };
        self.c.prefetch(s, CacheLevel::L2, block);
        if let Some((_, other)) = &self.binary {
            other.prefetch(s, CacheLevel::L1, block);
        }
    }

    /// [`Store::store_rows`] for a tile.
    ///
    /// # Safety
    /// As [`Store::store_rows`].
    #[inline(always)]
    pub(super) unsafe fn finish<S: SimdF32, const MR: usize, const NV: usize>(
        &self,
        s: S,
        acc: Tile<S, MR, NV>,
        row: usize,
        column: usize,
        valid: usize,
    ) {
        // SAFETY: `# Safety` of this function.
        unsafe { self.finish_rows(s, acc, MR, row, column, valid) };
    }

    /// [`Store::store_rows`] for the first `rows` rows of a tile. The other rows are outside the output.
    ///
    /// # Safety
    /// As [`Store::store_rows`].
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
        let block = OutputRange { row, rows, column, columns: valid };
        // SAFETY: `# Safety` of this function.
        unsafe {
            self.store_rows(
                s,
                MR,
                block,
                #[inline(always)]
                |i| acc[i],
            )
        };
    }

    /// Applies the epilogue to the sums of `block`, of which `line` returns row `i`, `NV` vectors, and stores them.
    /// `line` is called for the rows below `tall`, the constant height of a tile, that are in `block`.
    ///
    /// The common cases run in registers, one row at a time: a tall tile would be spilled to memory. All other cases go
    /// through the stack and one function for tiles of any height: inlined into every tile, that function would be most
    /// of the code of a GEMM.
    ///
    /// # Safety
    /// The output, the bias and the other operand of `self` cover `block`, no other thread accesses that part of the
    /// output, `1 <= block.rows <= tall` and `1 <= block.columns <= NV * LANES`.
    #[inline(always)]
    pub(super) unsafe fn store_rows<S: SimdF32, const NV: usize>(
        &self,
        s: S,
        tall: usize,
        block: OutputRange,
        line: impl Fn(usize) -> [S::F32; NV],
    ) {
        const ROWS_ON_STACK: usize = MAX_MR * MAX_PANEL;
        let Self { c, bias, activation, binary, .. } = *self;
        let OutputRange { row, rows, column, columns } = block;
        let width = const {
            assert!(NV * S::LANES <= MAX_PANEL);
            NV * S::LANES
        };
        if columns == width && self.fits_registers() {
            let one = s.splat(1.0);
            // -0 is the neutral element of additions, and minus infinity that of `max`.
            let mut biases = [s.splat(-0.0); NV];
            let floor = if activation == Activation::Relu { 0.0 } else { f32::NEG_INFINITY };
            let floor = s.splat(floor);
            if let Some(bias) = bias {
                for (v, to) in biases.iter_mut().enumerate() {
                    // SAFETY: `columns` is `width`, so the bias has all columns of the tile.
                    *to = unsafe { s.load(bias.add(column + v * S::LANES)) };
                }
            }
            for i in 0..tall {
                if i >= rows {
                    break;
                }
                let other = match binary {
                    None => None,
                    Some((op, m)) => {
                        let mut other = [one; NV];
                        for (v, to) in other.iter_mut().enumerate() {
                            let at = (row + i) * m.row_stride + column + v * S::LANES;
                            // SAFETY: `# Safety` of this function: the operand has full vectors in row `row + i`.
                            *to = unsafe { s.load(m.first.add(at)) };
                        }
                        Some((op, other))
                    }
                };
                let line = apply(
                    s,
                    line(i),
                    (one, biases),
                    #[inline(always)]
                    |x| s.max(floor, x),
                    other,
                );
                for (v, &x) in line.iter().enumerate() {
                    let to = c.first.wrapping_add((row + i) * c.row_stride + column + v * S::LANES);
                    // SAFETY: `# Safety` of this function: the output has full vectors in row `row + i`.
                    unsafe { s.store(to, x) };
                }
            }
            #[cfg(feature = "train")]
            if let Some(derivative) = self.derivative {
                let to = (c.at(row, column), c.row_stride);
                // SAFETY: `# Safety` of this function; the loop above has stored the rows.
                s.call_noinline(unsafe { times_derivative(derivative, to, block) });
            }
            return;
        }
        let mut buffer = MaybeUninit::<[f32; ROWS_ON_STACK]>::uninit();
        let tile = buffer.as_mut_ptr().cast::<f32>();
        // Blocks that are taller than a tile are stored in several passes.
        let pass = const { ROWS_ON_STACK / (NV * S::LANES) };
        let mut first = 0;
        loop {
            for i in first..tall.min(first + pass) {
                if i >= rows {
                    break;
                }
                let line = line(i);
                for (v, &x) in line.iter().enumerate() {
                    // SAFETY: `buffer` has `pass` rows of `width` floats.
                    unsafe { s.store(tile.add((i - first) * width + v * S::LANES), x) };
                }
            }
            let part = OutputRange { row: row + first, rows: (rows - first).min(pass), ..block };
            // SAFETY: `# Safety` of this function; the loop above stored the rows.
            s.call_noinline(unsafe { finish_in_memory(self, (tile, width), part) });
            first += pass;
            if tall <= pass || rows <= first {
                break;
            }
        }
    }

    /// Whether the epilogue of a tile whose columns are all in the output can run in registers.
    #[inline(always)]
    fn fits_registers(&self) -> bool {
        self.scale == 1.0
            && self.c.column_stride == 1
            && self.binary.is_none_or(|(_, other)| other.column_stride == 1)
            && matches!(self.activation, Activation::Identity | Activation::Relu)
    }
}

/// The formula of the epilogue: `other op map(scale * x + bias)`. Without a scale, `scale` is 1, and without a bias,
/// `bias` is -0: both are exact.
#[inline(always)]
fn apply<S: SimdF32, const NV: usize>(
    s: S,
    mut x: [S::F32; NV],
    (scale, bias): (S::F32, [S::F32; NV]),
    map: impl Fn(S::F32) -> S::F32,
    other: Option<(Binary, [S::F32; NV])>,
) -> [S::F32; NV] {
    for v in 0..NV {
        x[v] = map(s.add(s.mul(x[v], scale), bias[v]));
    }
    match other {
        None => {}
        Some((Binary::Add, other)) => {
            for v in 0..NV {
                x[v] = s.add(other[v], x[v]);
            }
        }
        Some((Binary::Multiply, other)) => {
            for v in 0..NV {
                x[v] = s.mul(other[v], x[v]);
            }
        }
    }
    x
}

simd_op!(
    /// [`Store::store_rows`] for the sums in `tile`, an address and a row stride, with any epilogue. The tile may be
    /// overwritten.
    ///
    /// # Safety
    /// As [`Store::store_rows`]; `tile` is valid for reads and writes of `block.rows` rows of whole vectors.
    unsafe fn finish_in_memory<S: SimdF32>(
        s: S,
        store: &Store,
        tile: (*mut f32, usize),
        block: OutputRange,
    ) {
        let OutputRange { row, rows, column, columns } = block;
        let in_place = store.c.column_stride == 1;
        let to = if in_place { (store.c.at(row, column), store.c.row_stride) } else { tile };
        with_map(store.activation, FinishRows { s, store, tile, to, block });
        #[cfg(feature = "train")]
        if let Some(derivative) = store.derivative {
            // SAFETY: the contract of this function; the rows are stored at `to`.
            s.call_noinline(unsafe { times_derivative(derivative, to, block) });
        }
        if !in_place {
            for i in 0..rows {
                // SAFETY: the contract of this function: the output has the block.
                unsafe {
                    let (from, to) = (tile.0.add(i * tile.1), store.c.at(row + i, column));
                    copy_strided((from, 1), (to, store.c.column_stride), columns);
                }
            }
        }
    }
);

/// Applies the epilogue to a tile in memory. It reads and writes each vector once.
struct FinishRows<'a, S> {
    s: S,
    store: &'a Store,
    /// The sums, and where the results go, which may be the same: addresses and row strides.
    tile: (*mut f32, usize),
    to: (*mut f32, usize),
    block: OutputRange,
}

impl<S: SimdF32> Applied for FinishRows<'_, S> {
    #[inline(always)]
    fn run<M: Map>(self, map: M) {
        let Self { s, store, tile, to, block: OutputRange { row, rows, column, columns } } = self;
        let scale = s.splat(store.scale);
        for first in (0..columns).step_by(S::LANES) {
            let (at, count) = (column + first, (columns - first).min(S::LANES));
            let bias = match store.bias {
                // SAFETY: the bias has all columns of the block; `count` stops there.
                Some(bias) => unsafe { s.load_prefix(bias.add(at), count) },
                None => s.splat(-0.0),
            };
            for i in 0..rows {
                let to = to.0.wrapping_add(i * to.1 + first);
                // SAFETY: `# Safety` of `finish_in_memory`: the tile has whole vectors, the output and the other
                // operand have the block, and no other thread accesses that part of the output.
                unsafe {
                    let x = s.load(tile.0.add(i * tile.1 + first));
                    let mut buffer = [0.0; MAX_LANES];
                    let other = store.binary.map(|(op, m)| {
                        let from = m.row(row + i, at, count, buffer.as_mut_ptr());
                        (op, [s.load_prefix(from, count)])
                    });
                    let [x] = apply(
                        s,
                        [x],
                        (scale, [bias]),
                        #[inline(always)]
                        |x| map.map(s, x),
                        other,
                    );
                    if count == S::LANES {
                        s.store(to, x);
                    } else {
                        s.store_prefix(to, x, count);
                    }
                }
            }
        }
    }
}
