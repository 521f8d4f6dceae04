//! The gradient of a weight, `dW = dY^T X`, and of a bias, the sums of the columns of `dY`.
//!
//! The tile is the same as in the other products. Its rows are outputs, its panel is 64 inputs, and its steps are the
//! rows of the batch. The difference is that both operands are new in every call, so they are packed for each reduction
//! chunk: `X` into panels, and `dY` into strips of six columns (see `pack_a.rs`). Packing takes a fifth of a nanosecond
//! per element, and the element is then used once for each column of the other operand.
//!
//! For few outputs, packing `X` would be a tenth of the work or more. `X` is then read in place, a few whole cache
//! lines of each row, unless the stride of its rows puts them into a few cache sets.
//!
//! A reduction chunk of about 500 rows has the size of one block of `k` in the packed product: a panel fits the L2
//! cache together with the strips that are multiplied by it, and partial sums are not stored within a chunk. After a
//! chunk the sums are stored, or added to the sums of earlier chunks.
//!
//! Strips are not packed in a separate pass. The tile of the first panel reads rows of `dY` in place and copies six
//! columns of each, because the multiplications leave load and store slots unused.
//!
//! Tasks are blocks of strips; rows are never split. The sum of an element is therefore one chain of multiply-adds per
//! reduction chunk, for any number of threads and any instruction set.

use super::blocking::MIN_WORK_TO_FORK;
use super::epilogue::{Epilogue, OutputRange, PostOp};
use super::microkernel::{F32Operand, Panels, Rows, multiply_in_phases};
use super::pack_a::{self, CopyStrip, Strips, pack_strips};
use super::packing::{PackedMatrix, pack_f32};
use super::prefetch_weights::{ManyRows, NextBlock, PrefetchPlan};
use super::store_tile::Store;
use crate::dtype::Dtype;
use crate::error::{Error, Expected};
use crate::isa::Isa;
use crate::matrix::{Matrix, MatrixMut};
use crate::parallel::{Exec, Workers, share};
use crate::prefetch::{CacheLevel, PerPeriod, PerStep};
use crate::simd::{CACHE_LINE_F32, MAX_MR, SimdF32, simd_op};
use crate::sync_ptr::SharedMut;
use crate::train::{ReductionChunks, WriteMode};
use core::ops::Range;

/// Rows with a stride that is a multiple of this number of floats share a few cache sets.
const FEW_SETS: usize = 512;

/// Largest number of outputs for which `X` is not packed. More outputs read each panel more often, which is faster from
/// a packed panel with contiguous rows.
const FEW_OUTPUTS: usize = 512;

/// Tasks for each thread, if there are enough strips.
const TASKS_PER_THREAD: usize = 4;

/// Panels that a task packs, because packing reads one KiB of a row at a time.
const PANELS_COPIED: usize = 4;

/// Floats of scratch that [`weight_gradient`] takes if no reduction chunk has more than `rows` rows: a copy of those
/// rows of `dY` and of `X`, rounded up to whole tiles. The size does not depend on the number of threads.
///
/// # Errors
/// The size overflows.
pub fn weight_gradient_scratch(
    isa: Isa,
    rows: usize,
    outputs: usize,
    inputs: usize,
) -> Result<usize, Error> {
    let panels = PackedMatrix::buffer_len(isa, rows, inputs)?;
    pack_a::stride(rows)
        .and_then(|stride| stride.checked_mul(outputs.div_ceil(pack_a::WIDTH)))
        .and_then(|strips| strips.checked_add(panels)?.checked_add(CACHE_LINE_F32))
        .filter(|&floats| floats <= isize::MAX as usize / 4)
        .ok_or(Error::TooLarge { operand: "the scratch" })
}

/// The gradients of a linear layer `Y = X W^T + b` with `W` stored `[outputs, inputs]`, as in checkpoints:
/// `dW = dY^T X` and `db`, the sums of the columns of `dY`.
///
/// `d_y` is `[rows, outputs]`, `x` is `[rows, inputs]` and `d_weight` is `[outputs, inputs]`, all with any strides
/// (unit column strides are fastest). `d_bias` has `outputs` elements. `chunks` are the reduction chunks of the rows:
/// the sum of a chunk starts at zero and adds its rows in order, one multiply-add per element. The sum of the first
/// chunk is stored or added, as `write` selects. The sums of the other chunks are added in order. Without rows,
/// [`WriteMode::Store`] writes zeros.
///
/// `scratch` takes [`weight_gradient_scratch`] floats for the longest chunk; its previous content does not matter.
/// Chunks of about 500 rows are fastest.
///
/// Error: `|dW - exact| <= 2 (r + l + 2) u * sum_k |dY[k, n]| |X[k, m]|` for `l` chunks of at most `r` rows,
/// `u = 2^-24`. With [`WriteMode::Add`] the magnitude of the previous content is added to the sum. The same bound holds
/// for `db`, with an `X` of ones.
///
/// The bits of an element depend on its column of `dY`, its column of `X` and the boundaries of the chunks. A call with
/// several chunks is equivalent to one call for each chunk, where the later calls add.
///
/// # Errors
/// The shapes do not match, the chunks cover another number of rows, or the scratch is too short. Nothing is written
/// then.
///
/// ```
/// use simdformer_kernels::train::{ReductionChunks, WriteMode, weight_gradient, weight_gradient_scratch};
/// use simdformer_kernels::{Exec, Isa, Matrix, MatrixMut};
///
/// let isa = Isa::best();
/// let d_y = [1.0, 2.0, 0.0, 10.0, 20.0, 0.0]; // [2, 3]
/// let x = [1.0, 2.0, 3.0, 4.0]; // [2, 2]
/// let chunks = ReductionChunks::new(&[2])?;
/// let mut scratch = vec![0.0; weight_gradient_scratch(isa, 2, 3, 2)?];
/// let (mut d_weight, mut d_bias) = ([f32::NAN; 6], [f32::NAN; 3]);
/// weight_gradient(
///     Exec::serial(isa),
///     Matrix::new(&d_y, 2, 3)?,
///     Matrix::new(&x, 2, 2)?,
///     chunks,
///     WriteMode::Store,
///     MatrixMut::new(&mut d_weight, 3, 2)?,
///     Some(&mut d_bias),
///     &mut scratch,
/// )?;
/// assert_eq!(d_weight, [31.0, 42.0, 62.0, 84.0, 0.0, 0.0]);
/// assert_eq!(d_bias, [11.0, 22.0, 0.0]);
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[allow(clippy::too_many_arguments, reason = "two operands, two results, and options")]
pub fn weight_gradient(
    exec: Exec<'_>,
    d_y: Matrix<'_>,
    x: Matrix<'_>,
    chunks: ReductionChunks<'_>,
    write: WriteMode,
    mut d_weight: MatrixMut<'_>,
    mut d_bias: Option<&mut [f32]>,
    scratch: &mut [f32],
) -> Result<(), Error> {
    let Exec { isa, threads } = exec;
    let (outputs, inputs) = (d_y.columns(), x.columns());
    check(&d_y, &x, chunks, &d_weight, d_bias.as_deref())?;
    let longest = chunks.ranges().map(|rows| rows.len()).max().unwrap_or(0);
    let expected = weight_gradient_scratch(isa, longest, outputs, inputs)?;
    Error::check_min_len("scratch", expected, scratch)?;
    let scratch = &mut scratch[..expected];
    if chunks.is_empty() && write == WriteMode::Store {
        clear(&mut d_weight);
        d_bias.iter_mut().for_each(|d_bias| d_bias.fill(0.0));
    }
    let misalignment =
        scratch.as_ptr().align_offset(CACHE_LINE_F32 * size_of::<f32>()).min(CACHE_LINE_F32);
    let scratch = &mut scratch[misalignment..];

    let work = longest.saturating_mul(outputs).saturating_mul(inputs);
    let workers = if work < MIN_WORK_TO_FORK { Workers::SERIAL } else { threads.workers() };
    for (index, rows) in chunks.ranges().enumerate() {
        let write = if index == 0 { write } else { WriteMode::Add };
        let post_op = match write {
            WriteMode::Store => PostOp::None,
            WriteMode::Add => PostOp::AddOutput,
        };
        // SAFETY: `check` checked that `d_y`, `x` and the chunks have the same number of rows.
        let (d_y, x) = unsafe {
            (d_y.block_unchecked(rows.start, rows.len()), x.block_unchecked(rows.start, rows.len()))
        };
        let store = Store::new(&Epilogue { post_op, ..Epilogue::default() }, &mut d_weight);
        let d_bias = d_bias.as_deref_mut().map(|d_bias| (SharedMut::new(d_bias), write));
        let scratch = SharedMut::new(scratch);
        ReductionChunk::new(isa, d_y, x, scratch, store, d_bias, workers.threads())
            .run_blocks(workers);
    }
    Ok(())
}

/// Checks that the shapes of the operands match.
fn check(
    d_y: &Matrix<'_>,
    x: &Matrix<'_>,
    chunks: ReductionChunks<'_>,
    d_weight: &MatrixMut<'_>,
    d_bias: Option<&[f32]>,
) -> Result<(), Error> {
    let (rows, outputs, inputs) = (d_y.rows(), d_y.columns(), x.columns());
    Error::check_size("rows", "x", Expected::Exactly(rows), x.rows())?;
    Error::check_size("rows", "chunks", Expected::Exactly(rows), chunks.rows())?;
    d_weight.as_view().check_shape("d_weight", [outputs, inputs])?;
    d_bias.map_or(Ok(()), |d_bias| Error::check_len("d_bias", outputs, d_bias))
}

/// Writes zeros.
fn clear(matrix: &mut MatrixMut<'_>) {
    let rows = if matrix.columns() == 0 { 0 } else { matrix.rows() };
    for row in 0..rows {
        for column in 0..matrix.columns() {
            *matrix.at_mut(row, column) = 0.0;
        }
    }
}

/// The rows of a reduction chunk, and their layout in the scratch: panels of `X`, then strips of `dY`.
struct ReductionChunk<'a> {
    isa: Isa,
    d_y: Matrix<'a>,
    x: Matrix<'a>,
    panels: usize,
    /// Panels that are read in place from `X`: the first ones.
    in_place: usize,
    strips: usize,
    /// Number of blocks of strips. Their sizes differ by at most one strip.
    blocks: usize,
    /// Floats of all panels.
    panel_floats: usize,
    /// Floats between the starts of two strips.
    stride: usize,
    scratch: SharedMut<'a>,
    store: Store,
    d_bias: Option<(SharedMut<'a>, WriteMode)>,
}

impl<'a> ReductionChunk<'a> {
    fn new(
        isa: Isa,
        d_y: Matrix<'a>,
        x: Matrix<'a>,
        scratch: SharedMut<'a>,
        store: Store,
        d_bias: Option<(SharedMut<'a>, WriteMode)>,
        threads: usize,
    ) -> Self {
        let rows = d_y.rows();
        let panels = x.columns().div_ceil(isa.panel());
        let strips = d_y.columns().div_ceil(pack_a::WIDTH);
        let blocks = strips.div_ceil(pack_a::BLOCK);
        // A partial last panel is copied, because it is padded with zeros.
        let reads = d_y.columns() <= FEW_OUTPUTS && rows_spread_over_sets(&x);
        let in_place = if reads { x.columns() / isa.panel() } else { 0 };
        Self {
            isa,
            d_y,
            x,
            panels,
            in_place,
            strips,
            blocks: match threads {
                1 => blocks,
                _ => blocks.max(threads * TASKS_PER_THREAD).next_multiple_of(threads).min(strips),
            },
            panel_floats: panels * isa.panel() * rows,
            // `stride` cannot fail here: `weight_gradient_scratch` succeeded for the longest chunk.
            stride: pack_a::stride(rows).unwrap_or(0),
            scratch,
            store,
            d_bias,
        }
    }

    /// Packs the panels, then packs and multiplies each block of strips on one thread. A single thread uses one slot
    /// for the strips of all blocks, which stays in its cache. With several threads each block has its own slots.
    fn run_blocks(&self, workers: Workers<'_>) {
        let copied = self.panels - self.in_place;
        let groups = copied.div_ceil(PANELS_COPIED);
        workers.for_each(groups, &|group| {
            let panels = share(copied, groups, group);
            self.copy_panels(self.in_place + panels.start..self.in_place + panels.end);
        });
        let serial = workers.threads() == 1;
        workers.for_each(self.blocks, &|block| {
            let strips = self.strips_of(block);
            let slot = if serial { 0 } else { strips.start };
            // SAFETY: the panels are packed, and each block has its own outputs. Each block also has its own slots, or
            // `Workers::for_each` runs the blocks one after another: both depend on the same number of threads in
            // `workers`.
            unsafe { self.run_block(strips, slot) };
        });
    }

    /// Packs the strips of a block into the slots from `slot` on, and multiplies them.
    ///
    /// # Safety
    /// The panels are packed, and no other thread uses those slots or the outputs of the strips.
    unsafe fn run_block(&self, strips: Range<usize>, slot: usize) {
        // The last strips of a row have too few columns after them.
        let whole = pack_a::whole_strips(self.d_y.columns()).clamp(strips.start, strips.end);
        let whole =
            if self.panels > 0 && rows_spread_over_sets(&self.d_y) { whole } else { strips.start };
        // SAFETY: `# Safety` of this function; strips are packed before they are read.
        unsafe {
            let first = strips.start;
            self.copy_strips(whole..strips.end, slot + whole - first);
            for panel in 0..self.panels {
                // Strips before `read` are packed by the tiles of the first panel.
                let read = if panel == 0 { whole } else { strips.start };
                for (strips, copies) in [(strips.start..read, true), (read..strips.end, false)] {
                    let slot = slot + strips.start - first;
                    if !strips.is_empty() {
                        let product = Product { chunk: self, strips, slot, panel, copies };
                        self.isa.dispatch(multiply_strips(product));
                    }
                }
            }
        }
    }

    fn strips_of(&self, block: usize) -> Range<usize> {
        share(self.strips, self.blocks, block)
    }

    /// Offset of slot `slot` in the scratch.
    const fn slot(&self, slot: usize) -> usize {
        self.panel_floats + slot * self.stride
    }

    /// Packs panels of `X` into the scratch.
    fn copy_panels(&self, panels: Range<usize>) {
        if panels.is_empty() {
            return;
        }
        let (rows, width, first) =
            (self.x.rows(), self.isa.panel(), panels.start * self.isa.panel());
        let count = (self.x.columns() - first).min(panels.len() * width);
        // SAFETY: `first + count` is at most the columns of `X`, and the scratch has a separate range for each panel.
        let (block, to) = unsafe {
            (
                self.x.columns_unchecked(first, count),
                self.scratch.part(first * rows, panels.len() * width * rows),
            )
        };
        pack_f32(self.isa, block, block.columns(), 0, to, Workers::SERIAL);
    }

    /// Packs strips of `dY`, the first one into slot `slot`, and writes their part of the bias gradient.
    ///
    /// # Safety
    /// The scratch has the slots, and no other thread uses them or the part of the bias gradient.
    unsafe fn copy_strips(&self, strips: Range<usize>, slot: usize) {
        if strips.is_empty() {
            return;
        }
        let first = strips.start * pack_a::WIDTH;
        let count = (self.d_y.columns() - first).min(strips.len() * pack_a::WIDTH);
        // SAFETY: `first + count` is at most the columns of `dY`; `# Safety` of this function covers the slots and the
        // sums.
        let (from, to, sums) = unsafe {
            (
                self.d_y.columns_unchecked(first, count),
                self.scratch.part(self.slot(slot), strips.len() * self.stride),
                self.d_bias.as_ref().map(|(d_bias, write)| (d_bias.part(first, count), *write)),
            )
        };
        // SAFETY: `to` has the slots of the strips.
        self.isa.dispatch(unsafe { pack_strips(Strips { from, to, stride: self.stride, sums }) });
    }

    /// The address of a panel, and its row stride in floats.
    #[inline(always)]
    fn panel<S: SimdF32>(&self, panel: usize) -> (*const f32, usize) {
        let column = panel * S::PANEL;
        match panel < self.in_place {
            true => (self.x.as_ptr().wrapping_add(column), self.x.row_stride()),
            false => {
                let start = self.scratch.as_ptr().cast_const();
                (start.wrapping_add(column * self.x.rows()), S::PANEL)
            }
        }
    }
}

/// Whether rows are contiguous and their stride lets a few columns of them stay in the caches. Rows with a stride of a
/// large power of two share a few cache sets, and the lines of one pass are evicted before the next pass reads them.
fn rows_spread_over_sets(matrix: &Matrix<'_>) -> bool {
    matrix.column_stride() == 1 && !matrix.row_stride().is_multiple_of(FEW_SETS)
}

/// A block of strips times a panel.
struct Product<'a> {
    chunk: &'a ReductionChunk<'a>,
    strips: Range<usize>,
    /// Slot of the first strip.
    slot: usize,
    panel: usize,
    /// Whether the tiles also pack the strips and sum their part of the bias gradient, reading the rows of `dY` in
    /// place. Each strip then has [`pack_a::OVERRUN`] columns after it.
    copies: bool,
}

simd_op!(
    /// # Safety
    /// The panel is packed, and no other thread writes it. The strips are packed and no other thread writes them, or
    /// `copies` is set and no other thread uses their slots. No other thread uses their part of the outputs.
    unsafe fn multiply_strips<S: SimdF32, const NV: usize = { S::PANEL / S::LANES }>(
        s: S,
        product: Product<'_>,
    ) {
        let strips = product.strips.len();
        let plan = StripPrefetch::new::<S>(product.chunk, product.panel, strips);
        for index in 0..strips {
            // SAFETY: the contract of this function.
            unsafe {
                match product.copies {
                    false => product.tile::<S, NV, false>(s, &plan, index),
                    true => product.tile::<S, NV, true>(s, &plan, index),
                }
            }
        }
    }
);

impl Product<'_> {
    /// Multiplies one strip by the panel. Packs the strip if `COPIES`.
    ///
    /// # Safety
    /// As [`multiply_strips`].
    #[inline(always)]
    unsafe fn tile<S: SimdF32, const NV: usize, const COPIES: bool>(
        &self,
        s: S,
        plan: &StripPrefetch,
        index: usize,
    ) {
        let Self { chunk, panel, .. } = *self;
        let (rows, outputs) = (chunk.d_y.rows(), chunk.d_y.columns());
        let row = (self.strips.start + index) * pack_a::WIDTH;
        let column = panel * S::PANEL;
        let valid = (chunk.x.columns() - column).min(S::PANEL);
        let start = chunk.scratch.as_ptr();
        let strip = start.wrapping_add(chunk.slot(self.slot + index));
        let d_y = chunk.d_y.as_ptr().wrapping_add(row);
        let (a, a_step) = match COPIES {
            true => (d_y, chunk.d_y.row_stride()),
            false => (strip.cast_const(), pack_a::WIDTH),
        };
        let (b, b_step) = chunk.panel::<S>(panel);
        let elements = Rows { at: a, row: 1, step: a_step };
        let weights = Panels::from_ptr(b, b_step, S::LANES);
        let mut totals = [0.0; pack_a::WIDTH + pack_a::OVERRUN];
        let copy = CopyStrip { from: d_y, row_stride: a_step, to: strip, totals: &raw mut totals };
        let copy = if COPIES { Some(copy) } else { None };
        let block = OutputRange { row, rows: MAX_MR, column, columns: S::PANEL };
        chunk.store.prefetch(s, block);
        let zero = [[s.splat(0.0); NV]; MAX_MR];
        let prefetch = plan.with_strip::<S>(index, b, b_step);
        // SAFETY: the operands have `rows` steps and whole tiles, with zeros where `dY` and `X` have no column. If the
        // strip is copied, it has `OVERRUN` columns after it (`copies`) and a slot in the scratch with a place for each
        // of `rows` rows. The stored rows and columns are inside the output. Only this task uses the slot and them.
        unsafe {
            let [acc] = multiply_in_phases(
                F32Operand(s),
                [[zero]],
                rows,
                elements,
                weights,
                prefetch,
                copy,
            );
            let height = (outputs - row).min(MAX_MR);
            let block = OutputRange { row, rows: height, column, columns: valid };
            chunk.store.store_panels(s, acc, block);
        }
        if COPIES && let Some((d_bias, write)) = &chunk.d_bias {
            // SAFETY: `# Safety` of this function: no other thread uses this part of the bias gradient.
            let d_bias = unsafe { d_bias.part(row, pack_a::WIDTH) };
            write.all(d_bias, &totals[..pack_a::WIDTH]);
        }
    }
}

/// The prefetches of a block of strips while it is multiplied by a panel.
struct StripPrefetch {
    /// The next panel. After the last panel it is the first.
    next: *const f32,
    /// Row stride of the next panel.
    step: usize,
    rows: usize,
    plan: PrefetchPlan,
}

impl StripPrefetch {
    #[inline(always)]
    fn new<S: SimdF32>(chunk: &ReductionChunk<'_>, panel: usize, strips: usize) -> Self {
        let (next, step) = chunk.panel::<S>(if panel + 1 < chunk.panels { panel + 1 } else { 0 });
        let plan = PrefetchPlan::new::<S>(Dtype::F32, strips, 1, CacheLevel::L2);
        Self { next, step, rows: chunk.d_y.rows(), plan }
    }

    /// The prefetches of strip `index`.
    #[inline(always)]
    fn with_strip<S: SimdF32>(&self, index: usize, panel: *const f32, step: usize) -> ManyRows {
        let (at, apart) = if self.step == S::PANEL {
            // The strips of the block prefetch equal parts of the next panel.
            let NextBlock { from, apart, .. } = self.plan.next(self.next, index, self.rows);
            (from, apart)
        } else {
            // One line of every other row. Row parity and line alternate with the strip.
            let (row, line) = (index % 2, index / 2 % S::PANEL.div_ceil(CACHE_LINE_F32));
            (self.next.wrapping_add(row * self.step + line * CACHE_LINE_F32), 2 * self.step)
        };
        let next = PerPeriod { at, apart, count: 1, cache: CacheLevel::L2 };
        (next, PerStep::of_panel::<S>(panel, step))
    }
}
