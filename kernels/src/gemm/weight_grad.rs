//! The gradient of a weight, `dW = dY^T X`, and of a bias, the sums of the columns of `dY`.
//!
//! It is the same tile as everywhere: its rows are outputs, its panel is 64 inputs, and its steps are the
//! rows of the batch. What differs is that both operands are new in every call. What has to be copied is, a leaf
//! at a time: `X` into panels, `dY` into strips of six columns (see `pack_a.rs`). An element that is copied
//! takes a fifth of a nanosecond and is then used as often as the other operand has columns.
//!
//! For few outputs that would be a tenth of the work or more, and `X` is read where it lies, a few whole lines of each
//! row, unless its rows share a few sets of the caches.
//!
//! A leaf of some 500 rows is exactly what the packed product takes as one block of `k`: a panel of it
//! fits in a second-level cache beside the strips that pass over it, and the sums never wait. After a leaf
//! they are stored, or added to what earlier leaves have left.
//!
//! Strips are not copied before they are multiplied: the tile of the first panel reads rows of `dY` where they
//! are, and copies six columns of each on the way, where multiplications leave loads and stores to spare.
//!
//! Tasks are blocks of strips; rows are never split. So an element's sum is one chain of
//! multiply-adds per leaf, whatever the threads and whatever the instruction set.

use super::blocking::MIN_WORK_TO_FORK;
use super::epilogue::{Epilogue, Residual, Store};
use super::error::GemmError;
use super::microkernel::{
    MAX_MR, Operands, Prefetch, PrefetchLines, SpreadPrefetch, tile_prefetched,
};
use super::pack_a::{self, Copying, Strips};
use super::packing::PackedMatrix;
use crate::isa::Isa;
use crate::matrix::{Matrix, MatrixMut};
use crate::parallel::{Parallelism, Workers, share};
use crate::shared::SharedMut;
use crate::simd::{CACHE_LINE_F32, SimdF32, SimdOp, TileOp};
use crate::train::{ReductionChunks, WriteMode};
use core::ops::Range;

/// Steps by which a panel is asked for before it is multiplied, as in the packed product.
const PANEL_AHEAD: usize = 8;

/// Rows of a multiple of so many floats share a few sets of the caches.
const FEW_SETS: usize = 512;

/// Most outputs for which `X` is not copied: more of them pass over a panel sooner where its rows lie side by side.
const FEW_OUTPUTS: usize = 512;

/// Tasks for each thread, if there are so many strips.
const TASKS_PER_THREAD: usize = 4;

/// Panels that a task copies, as rows are copied a KiB at a time.
const PANELS_COPIED: usize = 4;

/// Floats of scratch that [`weight_gradient`] takes when no leaf has more than `rows` rows: a copy of those
/// rows of `dY` and of `X`, rounded up to whole tiles. It does not depend on threads.
///
/// # Errors
/// The size overflows.
pub fn weight_gradient_scratch(
    isa: Isa,
    rows: usize,
    outputs: usize,
    inputs: usize,
) -> Result<usize, GemmError> {
    let panels = PackedMatrix::len(isa, rows, inputs)?;
    pack_a::stride(rows)
        .and_then(|stride| stride.checked_mul(outputs.div_ceil(pack_a::WIDTH)))
        .and_then(|strips| strips.checked_add(panels)?.checked_add(CACHE_LINE_F32))
        .filter(|&floats| floats <= isize::MAX as usize / 4)
        .ok_or(GemmError::TooLarge)
}

/// The gradients of a linear layer `Y = X W^T + b` with `W` stored `[outputs, inputs]`, as checkpoints
/// have it: `dW = dY^T X` and `db`, the sums of the columns of `dY`.
///
/// `d_y` is `[rows, outputs]`, `x` `[rows, inputs]`, `d_weight` `[outputs, inputs]`, all with any strides
/// (unit column strides are the fast ones); `d_bias` has `outputs` elements. `leaves` are those of the
/// rows: a leaf's sum starts at zero and takes its rows in order, one multiply-add an element. The sum of the
/// first leaf is stored or added, as `write` says, and those of the others are added, one after the
/// other. Without rows, [`WriteMode::Store`] writes zeros.
///
/// `scratch` takes [`weight_gradient_scratch`] floats for the longest leaf, whatever they hold. Leaves of
/// about 500 rows are the fast ones.
///
/// Error: `|dW - exact| <= 2 (r + l + 2) u * sum_k |dY[k, n]| |X[k, m]|` for `l` leaves of at most `r` rows,
/// `u = 2^-24`; under [`WriteMode::Add`] what was there belongs to the magnitudes. `db` likewise, with `X` all
/// ones.
///
/// The bits of an element depend on its column of `dY`, its column of `X` and on where leaves end: a call
/// with several leaves is as many calls with one each, of which the later ones add.
///
/// # Errors
/// Shapes that do not fit together, leaves of other rows, a scratch that is too short; then nothing is
/// written.
///
/// ```
/// use simdformer_kernels::train::{ReductionChunks, WriteMode, weight_gradient, weight_gradient_scratch};
/// use simdformer_kernels::{Isa, Matrix, MatrixMut, Parallelism};
///
/// let isa = Isa::best();
/// let d_y = [1.0, 2.0, 0.0, 10.0, 20.0, 0.0]; // [2, 3]
/// let x = [1.0, 2.0, 3.0, 4.0]; // [2, 2]
/// let leaves = ReductionChunks::new(&[2])?;
/// let mut scratch = vec![0.0; weight_gradient_scratch(isa, 2, 3, 2)?];
/// let (mut d_weight, mut d_bias) = ([f32::NAN; 6], [f32::NAN; 3]);
/// weight_gradient(
///     isa,
///     Matrix::new(&d_y, 2, 3)?,
///     Matrix::new(&x, 2, 2)?,
///     leaves,
///     WriteMode::Store,
///     MatrixMut::new(&mut d_weight, 3, 2)?,
///     Some(&mut d_bias),
///     &mut scratch,
///     Parallelism::Serial,
/// )?;
/// assert_eq!(d_weight, [31.0, 42.0, 62.0, 84.0, 0.0, 0.0]);
/// assert_eq!(d_bias, [11.0, 22.0, 0.0]);
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[allow(clippy::too_many_arguments, reason = "two operands, two results, and how to go about it")]
pub fn weight_gradient(
    isa: Isa,
    d_y: Matrix<'_>,
    x: Matrix<'_>,
    leaves: ReductionChunks<'_>,
    write: WriteMode,
    mut d_weight: MatrixMut<'_>,
    mut d_bias: Option<&mut [f32]>,
    scratch: &mut [f32],
    parallelism: Parallelism<'_>,
) -> Result<(), GemmError> {
    let (outputs, inputs) = (d_y.columns(), x.columns());
    check(&d_y, &x, leaves, &d_weight, d_bias.as_deref())?;
    let longest = leaves.ranges().map(|rows| rows.len()).max().unwrap_or(0);
    let expected = weight_gradient_scratch(isa, longest, outputs, inputs)?;
    let found = scratch.len();
    let Some(scratch) = scratch.get_mut(..expected) else {
        return Err(GemmError::Scratch { expected, found });
    };
    if leaves.is_empty() && write == WriteMode::Store {
        clear(&mut d_weight);
        d_bias.iter_mut().for_each(|d_bias| d_bias.fill(0.0));
    }
    let aligned =
        scratch.as_ptr().align_offset(CACHE_LINE_F32 * size_of::<f32>()).min(CACHE_LINE_F32);
    let scratch = &mut scratch[aligned..];

    let work = longest.saturating_mul(outputs).saturating_mul(inputs);
    let workers = if work < MIN_WORK_TO_FORK { Workers::SERIAL } else { parallelism.workers() };
    for (index, rows) in leaves.ranges().enumerate() {
        let write = if index == 0 { write } else { WriteMode::Add };
        let residual = match write {
            WriteMode::Store => Residual::None,
            WriteMode::Add => Residual::Output,
        };
        // SAFETY: rows of a leaf are rows of both, as was checked.
        let (d_y, x) = unsafe {
            (d_y.block_unchecked(rows.start, rows.len()), x.block_unchecked(rows.start, rows.len()))
        };
        let store = Store::new(&Epilogue { residual, ..Epilogue::default() }, &mut d_weight);
        let d_bias = d_bias.as_deref_mut().map(|d_bias| (SharedMut::new(d_bias), write));
        let scratch = SharedMut::new(scratch);
        ReductionChunk::new(isa, d_y, x, scratch, store, d_bias, workers.threads()).run(workers);
    }
    Ok(())
}

/// Whether operands fit together.
fn check(
    d_y: &Matrix<'_>,
    x: &Matrix<'_>,
    leaves: ReductionChunks<'_>,
    d_weight: &MatrixMut<'_>,
    d_bias: Option<&[f32]>,
) -> Result<(), GemmError> {
    let (rows, outputs, inputs) = (d_y.rows(), d_y.columns(), x.columns());
    if x.rows() != rows {
        return Err(GemmError::GradientRows { expected: rows, found: x.rows() });
    }
    if leaves.rows() != rows {
        return Err(GemmError::ReductionChunkRows { expected: rows, found: leaves.rows() });
    }
    if (d_weight.rows(), d_weight.columns()) != (outputs, inputs) {
        return Err(GemmError::WeightGradient {
            expected: (outputs, inputs),
            found: (d_weight.rows(), d_weight.columns()),
        });
    }
    if let Some(d_bias) = d_bias
        && d_bias.len() != outputs
    {
        return Err(GemmError::BiasGradient { expected: outputs, found: d_bias.len() });
    }
    Ok(())
}

/// Writes zeros.
fn clear(matrix: &mut MatrixMut<'_>) {
    let (row_stride, column_stride) = (matrix.row_stride(), matrix.column_stride());
    let (rows, columns) = (matrix.rows(), matrix.columns());
    let first = matrix.shared().as_ptr();
    for row in 0..rows {
        for column in 0..columns {
            // SAFETY: an element of the view, which is borrowed exclusively.
            unsafe { first.add(row * row_stride + column * column_stride).write(0.0) };
        }
    }
}

/// The rows of a leaf, and how they lie in the scratch: panels of `X`, then strips of `dY`.
struct ReductionChunk<'a> {
    isa: Isa,
    d_y: Matrix<'a>,
    x: Matrix<'a>,
    panels: usize,
    /// Of these, the first ones are read where they lie in `X`.
    in_place: usize,
    strips: usize,
    /// Blocks of strips, as even as they can be.
    blocks: usize,
    /// Floats of all panels.
    panel_floats: usize,
    /// Floats from one strip to the next.
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
        // The last panel is copied if it is not whole: zeros come after it.
        let reads = d_y.columns() <= FEW_OUTPUTS && spreads(&x);
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
            // The scratch of a leaf that is no shorter could be counted.
            stride: pack_a::stride(rows).unwrap_or(0),
            scratch,
            store,
            d_bias,
        }
    }

    /// Copies what has to be copied, and multiplies, each block of strips from its copy on by one thread. One thread
    /// has one place for the strips of all blocks, which stays in its cache; several have one for each block.
    fn run(&self, workers: Workers<'_>) {
        let copied = self.panels - self.in_place;
        let groups = copied.div_ceil(PANELS_COPIED);
        workers.for_each(groups, &|group| {
            let panels = share(copied, groups, group);
            self.copy_panels(self.in_place + panels.start..self.in_place + panels.end);
        });
        let serial = workers.threads() == 1;
        workers.for_each(self.blocks, &|block| {
            let strips = self.strips_of(block);
            let place = if serial { 0 } else { strips.start };
            // SAFETY: panels are there, and each block has outputs of its own. It has places of its own as well,
            // or `Workers::for_each` runs the blocks one after the other: both follow from the one number of
            // threads in `workers`.
            unsafe { self.run_block(strips, place) };
        });
    }

    /// Copies the strips of a block to places from `place` on, and multiplies them.
    ///
    /// # Safety
    /// Panels are there, and nobody else uses those places or the strips' outputs.
    unsafe fn run_block(&self, strips: Range<usize>, place: usize) {
        // The last ones of a row have too few columns behind them.
        let wide = pack_a::wide(self.d_y.columns()).clamp(strips.start, strips.end);
        let wide = if self.panels > 0 && spreads(&self.d_y) { wide } else { strips.start };
        // SAFETY: the caller's contract; strips are copied before they are read.
        unsafe {
            let first = strips.start;
            self.copy_strips(wide..strips.end, place + wide - first);
            for panel in 0..self.panels {
                // Those before `read` are copied by the first panel's tiles.
                let read = if panel == 0 { wide } else { strips.start };
                for (strips, copies) in [(strips.start..read, true), (read..strips.end, false)] {
                    let place = place + strips.start - first;
                    Product { leaf: self, strips, place, panel, copies }.run();
                }
            }
        }
    }

    fn strips_of(&self, block: usize) -> Range<usize> {
        share(self.strips, self.blocks, block)
    }

    /// Where the strip at place `place` starts in the scratch.
    const fn place(&self, place: usize) -> usize {
        self.panel_floats + place * self.stride
    }

    /// Copies panels of `X` to their places.
    fn copy_panels(&self, panels: Range<usize>) {
        if panels.is_empty() {
            return;
        }
        let (rows, width, first) =
            (self.x.rows(), self.isa.panel(), panels.start * self.isa.panel());
        let count = (self.x.columns() - first).min(panels.len() * width);
        // SAFETY: the columns are there, and the scratch has a place of its own for each panel.
        let (block, to) = unsafe {
            (
                self.x.columns_unchecked(first, count),
                self.scratch.part(first * rows, panels.len() * width * rows),
            )
        };
        PackedMatrix::pack_whole(self.isa, block, to);
    }

    /// Copies strips of `dY`, the first one to place `place`, and finishes their part of the bias' gradient.
    ///
    /// # Safety
    /// There are as many places, and nobody else uses them, or their part of the bias' gradient.
    unsafe fn copy_strips(&self, strips: Range<usize>, place: usize) {
        if strips.is_empty() {
            return;
        }
        let first = strips.start * pack_a::WIDTH;
        let count = (self.d_y.columns() - first).min(strips.len() * pack_a::WIDTH);
        // SAFETY: the columns are there; the rest is the caller's contract.
        let (from, to, sums) = unsafe {
            (
                self.d_y.columns_unchecked(first, count),
                self.scratch.part(self.place(place), strips.len() * self.stride),
                self.d_bias.as_ref().map(|(d_bias, write)| (d_bias.part(first, count), *write)),
            )
        };
        self.isa.dispatch(Strips { from, to, stride: self.stride, sums });
    }

    /// A panel, and the floats from one of its rows to the next.
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

/// Whether contiguous rows lie so that a few columns of them stay in the caches: those that are a power of two apart
/// share a few sets, which have lost the lines of one pass when the next one wants them.
fn spreads(matrix: &Matrix<'_>) -> bool {
    matrix.column_stride() == 1 && !matrix.row_stride().is_multiple_of(FEW_SETS)
}

/// A block of strips times a panel.
struct Product<'a> {
    leaf: &'a ReductionChunk<'a>,
    strips: Range<usize>,
    /// Where the first of them is.
    place: usize,
    panel: usize,
    /// Whether the strips are copied on the way, with their part of the bias' gradient, from rows that are read
    /// where they are; each has [`pack_a::AFTER`] columns behind it.
    copies: bool,
}

impl Product<'_> {
    /// # Safety
    /// Strips and panel are there, and nobody writes them, or nobody uses the places of strips that are to be copied;
    /// nobody else uses their part of the outputs.
    unsafe fn run(self) {
        if !self.strips.is_empty() {
            self.leaf.isa.dispatch(self);
        }
    }
}

impl SimdOp for Product<'_> {
    type Output = ();

    #[inline(always)]
    fn run<S: SimdF32>(self, s: S) {
        s.with_tile_width(self);
    }
}

impl TileOp for Product<'_> {
    type Output = ();

    #[inline(always)]
    fn run<S: SimdF32, const NV: usize>(self, s: S) {
        let asked = Asked::new::<S>(self.leaf, self.panel, self.strips.len());
        for index in 0..self.strips.len() {
            // SAFETY: the contract of `Product::run`.
            unsafe {
                match self.copies {
                    false => self.tile::<S, NV, false>(s, &asked, index),
                    true => self.tile::<S, NV, true>(s, &asked, index),
                }
            }
        }
    }
}

impl Product<'_> {
    /// One strip times the panel; copies the strip if `COPIES`.
    ///
    /// # Safety
    /// As [`Product::run`].
    #[inline(always)]
    unsafe fn tile<S: SimdF32, const NV: usize, const COPIES: bool>(
        &self,
        s: S,
        asked: &Asked,
        index: usize,
    ) {
        let Self { leaf, panel, .. } = *self;
        let (rows, outputs) = (leaf.d_y.rows(), leaf.d_y.columns());
        let row = (self.strips.start + index) * pack_a::WIDTH;
        let column = panel * S::PANEL;
        let valid = (leaf.x.columns() - column).min(S::PANEL);
        let start = leaf.scratch.as_ptr();
        let strip = start.wrapping_add(leaf.place(self.place + index));
        let d_y = leaf.d_y.as_ptr().wrapping_add(row);
        let (a, a_step) = match COPIES {
            true => (d_y, leaf.d_y.row_stride()),
            false => (strip.cast_const(), pack_a::WIDTH),
        };
        let (b, b_step) = leaf.panel::<S>(panel);
        let operands = Operands { a, a_row: 1, a_step, b, b_step, b_vector: S::LANES };
        let mut totals = [0.0; pack_a::WIDTH + pack_a::AFTER];
        // SAFETY: the strip has columns behind it and a place in the scratch, and is asked once for each row.
        let mut copy = unsafe { Copying::<COPIES>::new(d_y, a_step, strip, &mut totals) };
        leaf.store.prefetch::<S, MAX_MR>(s, row, column);
        let zero = [[s.splat(0.0); NV]; MAX_MR];
        let ahead = (asked.with_strip::<S>(index, b, b_step), copy);
        // SAFETY: the operands have their rows and columns, zeros where `dY` and `X` have none; the output has the
        // rows and columns that are stored, and they are this task's own.
        unsafe {
            let acc = tile_prefetched(s, zero, rows, operands, ahead);
            let height = (outputs - row).min(MAX_MR);
            leaf.store.finish_rows::<S, MAX_MR, NV>(s, acc, height, row, column, valid);
        }
        if !rows.is_multiple_of(2) {
            // The tile asks in pairs.
            copy.skip(rows - 1);
            copy.issue(s, 0);
        }
        if COPIES && let Some((d_bias, write)) = &leaf.d_bias {
            // SAFETY: this task's own part.
            let d_bias = unsafe { d_bias.part(row, pack_a::WIDTH) };
            write.all(d_bias, &totals[..pack_a::WIDTH]);
        }
    }
}

/// What is asked for while a block of strips passes over a panel.
struct Asked {
    /// The panel that comes next; after the last one the first.
    next: *const f32,
    /// Floats from one of its rows to the next.
    step: usize,
    rows: usize,
    strips: usize,
}

impl Asked {
    #[inline(always)]
    fn new<S: SimdF32>(leaf: &ReductionChunk<'_>, panel: usize, strips: usize) -> Self {
        let (next, step) = leaf.panel::<S>(if panel + 1 < leaf.panels { panel + 1 } else { 0 });
        Self { next, step, rows: leaf.d_y.rows(), strips }
    }

    /// What the strip of this number asks for.
    #[inline(always)]
    fn with_strip<S: SimdF32>(
        &self,
        index: usize,
        panel: *const f32,
        step: usize,
    ) -> (SpreadPrefetch<1, false>, PrefetchLines) {
        let lines = S::PANEL.div_ceil(CACHE_LINE_F32);
        let next = if self.step == S::PANEL {
            // The block asks for all of it in even parts.
            let apart = (2 * S::PANEL).div_ceil(self.strips);
            SpreadPrefetch {
                at: self.next.wrapping_add(index * self.rows.div_ceil(2) * apart),
                apart,
            }
        } else {
            // One line of every other row, by turns.
            let (row, line) = (index % 2, index / 2 % lines);
            let at = self.next.wrapping_add(row * self.step + line * CACHE_LINE_F32);
            SpreadPrefetch { at, apart: 2 * self.step }
        };
        let here = PrefetchLines {
            at: panel.wrapping_add(PANEL_AHEAD * step),
            step,
            count: lines,
            apart: CACHE_LINE_F32,
        };
        (next, here)
    }
}
