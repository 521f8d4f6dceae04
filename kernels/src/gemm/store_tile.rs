//! The store of a GEMM: the epilogue is applied to a tile of sums, and the result is written to the output.

use super::epilogue::{Binary, ElementPtrs, Epilogue, OutputRange, PostOp, apply, copy_strided};
#[cfg(feature = "train")]
use super::epilogue_grad::{Derivative, times_derivative};
use super::microkernel::Tile;
use super::packing::PackedMatrix;
use crate::activation::{Activation, map_activation};
use crate::matrix::{Matrix, MatrixMut};
use crate::prefetch::CacheLevel;
use crate::simd::{MAX_MR, MAX_PANEL, SimdF32, simd_op};
use core::mem::MaybeUninit;
use core::ops::Range;

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

/// A part of a product with packed weights: some rows times some panels.
pub(super) struct GemmRange<'a> {
    pub(super) a: Matrix<'a>,
    pub(super) weight: &'a PackedMatrix<'a>,
    pub(super) store: Store,
    pub(super) rows: Range<usize>,
    pub(super) panels: Range<usize>,
}

impl GemmRange<'_> {
    /// The output of a tile: `rows` rows from `row` on, and the columns of `panels` panels from `panel` on that are columns
    /// of the matrix.
    #[inline(always)]
    pub(super) fn output<S: SimdF32>(
        &self,
        (row, rows): (usize, usize),
        (panel, panels): (usize, usize),
    ) -> OutputRange {
        let column = panel * S::PANEL;
        let columns = (self.weight.columns() - column).min(panels * S::PANEL);
        OutputRange { row, rows, column, columns }
    }
}

/// Floats of a tile that goes through the stack.
const FLOATS_ON_STACK: usize = MAX_MR * MAX_PANEL;

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
                PostOp::Add(other) => Some((Binary::Add, ElementPtrs::from_matrix(&other))),
                PostOp::MultiplyOutput => Some((Binary::Multiply, c)),
                _ => None,
            },
            #[cfg(feature = "train")]
            derivative: match &epilogue.post_op {
                PostOp::ActivationBackward { activation, pre } => {
                    Some(Derivative { of: *activation, pre: ElementPtrs::from_matrix(pre) })
                }
                _ => None,
            },
        }
    }

    /// Prefetches the output lines that [`Store::store_panels`] will write.
    #[inline(always)]
    pub(super) fn prefetch<S: SimdF32>(&self, s: S, block: OutputRange) {
        let block = OutputRange { columns: S::PANEL, ..block };
        #[cfg(feature = "train")]
        if let Some(Derivative { pre, .. }) = &self.derivative {
            pre.prefetch(s, CacheLevel::L1, block);
        }
        self.c.prefetch(s, CacheLevel::L1, block);
    }

    /// Prefetches long before [`Store::store_rows`]: the output lines into the L2 cache, and the other operand into the
    /// L1 cache.
    #[inline(always)]
    pub(super) fn prefetch_l2<S: SimdF32>(&self, s: S, block: OutputRange) {
        if self.c.column_stride != 1 {
            return;
        }
        self.c.prefetch(s, CacheLevel::L2, block);
        if let Some((_, other)) = &self.binary {
            other.prefetch(s, CacheLevel::L1, block);
        }
    }

    /// [`Store::store_rows`] for the first rows of a tile of `P` panels, with one call for all of them: no sum is in a register
    /// during it. The other rows are outside the output.
    ///
    /// # Safety
    /// As [`Store::store_rows`], for the columns of all panels.
    #[inline(always)]
    pub(super) unsafe fn store_panels<
        S: SimdF32,
        const P: usize,
        const MR: usize,
        const NV: usize,
    >(
        &self,
        s: S,
        sums: [Tile<S, MR, NV>; P],
        block: OutputRange,
    ) {
        // Not at compile time: callers also name tiles that they never reach.
        assert!(P * MR * NV * S::LANES <= FLOATS_ON_STACK);
        let (width, panel) = (P * NV * S::LANES, NV * S::LANES);
        if block.columns == width && self.fits_registers::<S>() {
            let pass = Pass { scale: 1.0, ..self.pass(block) };
            for (p, sums) in sums.into_iter().enumerate() {
                let columns = (p * panel, panel);
                // SAFETY: `# Safety` of this function: the block has all columns of the tile.
                unsafe {
                    pass.columns(
                        s,
                        (MR, true),
                        block,
                        columns,
                        #[inline(always)]
                        |i| sums[i],
                    );
                }
            }
            return;
        }
        let mut buffer = MaybeUninit::<[f32; FLOATS_ON_STACK]>::uninit();
        let tile = buffer.as_mut_ptr().cast::<f32>();
        for (p, sums) in sums.into_iter().enumerate() {
            for (i, line) in sums.into_iter().enumerate() {
                // SAFETY: `buffer` has `MR` rows of `width` floats.
                unsafe { store_line(s, tile.add(i * width + p * panel), line) };
            }
        }
        // SAFETY: `# Safety` of this function; the loop above stored the rows.
        s.call_noinline(unsafe { finish_in_memory(self, (tile, width), block) });
    }

    /// Applies the epilogue to the sums of `block`, of which `line` returns row `i`, `NV` vectors, and stores them.
    /// `line` is called for the rows below `tall`, the constant height of a tile, that are in `block`.
    ///
    /// Bias, ReLU and another operand are applied in registers, one row at a time: a tall tile would be spilled to memory.
    /// All other cases go through the stack and one function for tiles of any height: inlined into every tile, that
    /// function would be most of the code of a GEMM.
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
        let width = const {
            assert!(NV * S::LANES <= MAX_PANEL);
            NV * S::LANES
        };
        if block.columns == width && self.fits_registers::<S>() {
            let pass = Pass { scale: 1.0, ..self.pass(block) };
            // SAFETY: `# Safety` of this function: the block has all columns of the tile.
            return unsafe { pass.columns(s, (tall, true), block, (0, width), line) };
        }
        let mut buffer = MaybeUninit::<[f32; FLOATS_ON_STACK]>::uninit();
        let tile = buffer.as_mut_ptr().cast::<f32>();
        // Blocks that are taller than a tile are stored in several passes.
        let pass = const { FLOATS_ON_STACK / (NV * S::LANES) };
        let mut first = 0;
        loop {
            for i in first..tall.min(first + pass) {
                if i >= block.rows {
                    break;
                }
                // SAFETY: `buffer` has `pass` rows of `width` floats.
                unsafe { store_line(s, tile.add((i - first) * width), line(i)) };
            }
            let rows = (block.rows - first).min(pass);
            let part = OutputRange { row: block.row + first, rows, ..block };
            // SAFETY: `# Safety` of this function; the loop above stored the rows.
            s.call_noinline(unsafe { finish_in_memory(self, (tile, width), part) });
            first += pass;
            if tall <= pass || block.rows <= first {
                break;
            }
        }
    }

    /// Whether the epilogue of a tile whose columns are all in the output runs in registers.
    #[inline(always)]
    fn fits_registers<S: SimdF32>(&self) -> bool {
        #[cfg(feature = "train")]
        if self.derivative.is_some() {
            return false;
        }
        // Without fused instructions the code of each pass is long.
        !S::SOFT_FMA
            && self.scale == 1.0
            && self.c.column_stride == 1
            && self.binary.is_none_or(|(_, other)| other.column_stride == 1)
            && is_maximum(self.activation)
    }

    /// The only pass over `block`, if the activation is a maximum, into the output.
    #[inline(always)]
    fn pass(&self, block: OutputRange) -> Pass {
        let Self { c, scale, bias, activation, binary, .. } = *self;
        let floor = if activation == Activation::Relu { 0.0 } else { f32::NEG_INFINITY };
        Pass { scale, bias, floor, binary, to: (c.at(block.row, block.column), c.row_stride) }
    }
}

/// Whether the activation is a maximum of its input and a constant.
#[inline(always)]
fn is_maximum(activation: Activation) -> bool {
    matches!(activation, Activation::Identity | Activation::Relu)
}

/// `NV` vectors from `from` on.
///
/// # Safety
/// `from` is valid for reads of as many floats.
#[inline(always)]
pub(crate) unsafe fn load_line<S: SimdF32, const NV: usize>(
    s: S,
    from: *const f32,
) -> [S::F32; NV] {
    let mut line = [s.splat(0.0); NV];
    for (v, to) in line.iter_mut().enumerate() {
        // SAFETY: `# Safety` of this function.
        *to = unsafe { s.load(from.add(v * S::LANES)) };
    }
    line
}

/// As [`load_line`], or the first `count` floats of one vector.
///
/// # Safety
/// `from` is valid for reads of `count` floats.
#[inline(always)]
unsafe fn load_columns<S: SimdF32, const NV: usize>(
    s: S,
    from: *const f32,
    count: usize,
) -> [S::F32; NV] {
    // SAFETY: `# Safety` of this function.
    unsafe {
        if count == NV * S::LANES { load_line(s, from) } else { [s.load_prefix(from, count); NV] }
    }
}

/// Writes `NV` vectors from `to` on.
///
/// # Safety
/// `to` is valid for writes of as many floats.
#[inline(always)]
pub(crate) unsafe fn store_line<S: SimdF32, const NV: usize>(
    s: S,
    to: *mut f32,
    line: [S::F32; NV],
) {
    for (v, &x) in line.iter().enumerate() {
        // SAFETY: `# Safety` of this function.
        unsafe { s.store(to.add(v * S::LANES), x) };
    }
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
        let mut pass = store.pass(block);
        if !in_place {
            pass.to = tile;
        }
        let to = pass.to;
        let mut last = is_maximum(store.activation);
        // SAFETY: the contract of this function, for both passes and for the rows of the tile between them.
        unsafe {
            if !last {
                pass = Pass { binary: None, to: tile, ..pass };
            }
            loop {
                pass.apply_to_tile(s, tile, block);
                if last {
                    break;
                }
                // Without another operand, the activation is the last step.
                last = true;
                let mapped = if store.binary.is_none() { to } else { tile };
                for i in 0..rows {
                    let (from, to) = (tile.0.add(i * tile.1), mapped.0.wrapping_add(i * mapped.1));
                    s.call_noinline(map_activation(store.activation, from, to, columns));
                }
                if store.binary.is_none() {
                    break;
                }
                pass = Pass { scale: 1.0, bias: None, binary: store.binary, to, ..pass };
            }
        }
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

/// A pass over a block in memory: the formula of the epilogue, with a maximum for the activation.
#[derive(Clone, Copy)]
struct Pass {
    scale: f32,
    bias: Option<*const f32>,
    floor: f32,
    binary: Option<(Binary, ElementPtrs)>,
    /// Where the results go: an address and a row stride.
    to: (*mut f32, usize),
}

impl Pass {
    /// The pass over all columns.
    ///
    /// # Safety
    /// As [`finish_in_memory`].
    #[inline(always)]
    unsafe fn apply_to_tile<S: SimdF32>(self, s: S, tile: (*mut f32, usize), block: OutputRange) {
        let mut first = 0;
        while first < block.columns {
            let left = block.columns - first;
            let two = const { S::PANEL > S::LANES } && left >= 2 * S::LANES;
            let count = left.min(if two { 2 * S::LANES } else { S::LANES });
            macro_rules! columns {
                ($vectors:literal) => {
                    self.columns::<S, $vectors>(
                        s,
                        (block.rows, false),
                        block,
                        (first, count),
                        #[inline(always)]
                        |i| load_line(s, tile.0.add(i * tile.1 + first)),
                    )
                };
            }
            // SAFETY: `# Safety` of this function: columns from `first` on are in the block.
            unsafe { if two { columns!(2) } else { columns!(1) } };
            first += count;
        }
    }

    /// The pass over `count` columns of each row from column `first` of `block` on: all of `N` vectors, or the first of
    /// one. `sums` returns the vectors of a row; it is called for the rows below `tall` that are in `block`. `contiguous`
    /// means that the columns of the other operand are: a call in a tile would store and load its sums.
    ///
    /// # Safety
    /// As [`finish_in_memory`], and the block has these columns.
    #[inline(always)]
    unsafe fn columns<S: SimdF32, const N: usize>(
        self,
        s: S,
        (tall, contiguous): (usize, bool),
        block: OutputRange,
        (first, count): (usize, usize),
        sums: impl Fn(usize) -> [S::F32; N],
    ) {
        let Self { scale, bias, floor, binary, to } = self;
        let (scale, floor, at) = (s.splat(scale), s.splat(floor), block.column + first);
        let whole = count == N * S::LANES;
        debug_assert!(whole || N == 1);
        // SAFETY: `# Safety` of this function: the output, the bias and the other operand have the columns, and no other
        // thread accesses that part of the output.
        unsafe {
            let bias = match bias {
                Some(bias) => load_columns(s, bias.add(at), count),
                None => [s.splat(-0.0); N],
            };
            for i in 0..tall {
                if i >= block.rows {
                    break;
                }
                let mut buffer = MaybeUninit::<[f32; MAX_PANEL]>::uninit();
                let other = binary.map(
                    #[inline(always)]
                    |(op, m)| {
                        let from = if contiguous {
                            m.first.wrapping_add((block.row + i) * m.row_stride + at).cast_const()
                        } else {
                            m.row(block.row + i, at, count, buffer.as_mut_ptr().cast())
                        };
                        (op, load_columns(s, from, count))
                    },
                );
                let line = apply(s, sums(i), (scale, bias, floor), other);
                let to = to.0.wrapping_add(i * to.1 + first);
                if whole {
                    store_line(s, to, line);
                } else {
                    s.store_prefix(to, line[0], count);
                }
            }
        }
    }
}
