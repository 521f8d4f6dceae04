//! The loops around the tile, and their split over threads.
//!
//! For each panel of `W`, all rows of `A` go by in tiles of at most six, balanced so that seven rows
//! are 4 + 3 and not 6 + 1. A deep panel is cut into blocks of `k` so that it stays in a cache while
//! the tiles pass; the sums wait on the stack meanwhile, as f32, which loses nothing.
//!
//! Threads take ranges of panels, and ranges of rows as well when there are too few panels to go
//! round. `k` is never split.

use super::epilogue::{Epilogue, Store};
use super::microkernel::{LINE, MAX_ROWS, Operands, row, tile, tile_ahead};
use super::packing::PackedMatrix;
use crate::isa::{Isa, Kernel};
use crate::lanes::{Lanes, MAX_PANEL, PanelKernel};
use crate::matrix::{Matrix, MatrixMut};
use crate::parallel::Parallelism;
use core::ops::Range;

/// Rows that pass over one block of a panel before the next block.
const BLOCK_ROWS: usize = 96;

/// Multiply-adds below which a second thread costs more than it brings.
const MIN_WORK_TO_FORK: usize = 1 << 19;

/// Tasks per thread: enough that a thread that is late does not hold up the others.
const TASKS_PER_THREAD: usize = 4;

/// Rows that are few: the weights come from memory faster than they are multiplied from there, so a
/// block of a panel must come while the one before is multiplied from the first-level cache.
const FEW_ROWS: usize = 4 * MAX_ROWS;

/// `k` in a block for few rows: 64 steps of a 64-wide panel are 16 KiB, a third of a first-level
/// cache.
const FEW_ROWS_BLOCK: usize = 64;

/// `k` in a block for many rows: half a MiB, half of a second-level cache.
const MANY_ROWS_BLOCK: usize = 2048;

/// Weights that an outer cache may hold from one call to the next, in floats. A single row asks for
/// them early; from memory the hardware's own streams are faster without (measured: a fifth more
/// from the third-level cache, a tenth less from memory).
const CACHED_WEIGHTS: usize = 4 << 20;

/// Steps of `k` by which a single row asks early.
const ROW_AHEAD: usize = 16;

/// `k` in one block for `rows` rows in all.
#[inline(always)]
const fn block_depth(rows: usize, depth: usize) -> usize {
    if rows <= MAX_ROWS {
        depth
    } else if rows <= FEW_ROWS {
        FEW_ROWS_BLOCK
    } else {
        MANY_ROWS_BLOCK
    }
}

pub(super) fn run(
    a: Matrix<'_>,
    weight: &PackedMatrix<'_>,
    epilogue: &Epilogue<'_>,
    c: &mut MatrixMut<'_>,
    parallelism: Parallelism<'_>,
) {
    let isa = weight.isa();
    let rows = c.rows();
    let panels = c.columns().div_ceil(isa.panel());
    let job = Job { a, weight, store: Store::new(epilogue, c) };
    let work = rows * weight.depth() * weight.columns();
    let threads = parallelism.threads();
    if threads == 1 || work < MIN_WORK_TO_FORK {
        return job.part(isa, 0..rows, 0..panels);
    }
    let wanted = threads * TASKS_PER_THREAD;
    let column_tasks = panels.min(wanted);
    // Rows are cut at multiples of the tile, and only when panels are too few.
    let row_tasks = (wanted / column_tasks).min(rows.div_ceil(2 * MAX_ROWS)).max(1);
    parallelism.for_each(column_tasks * row_tasks, &|task| {
        let (column_task, row_task) = (task / row_tasks, task % row_tasks);
        job.part(isa, share(rows, row_tasks, row_task), share(panels, column_tasks, column_task));
    });
}

/// Part `index` of `0..total` cut into `parts` ranges as equal as can be.
#[inline(always)]
pub(crate) const fn share(total: usize, parts: usize, index: usize) -> Range<usize> {
    let (size, extra) = (total / parts, total % parts);
    let smaller = if index < extra { index } else { extra };
    let start = index * size + smaller;
    start..start + size + (index < extra) as usize
}

#[derive(Clone, Copy)]
struct Job<'a> {
    a: Matrix<'a>,
    weight: &'a PackedMatrix<'a>,
    store: Store,
}

impl Job<'_> {
    fn part(&self, isa: Isa, rows: Range<usize>, panels: Range<usize>) {
        isa.dispatch(Part { job: self, rows, panels });
    }
}

struct Part<'a> {
    job: &'a Job<'a>,
    rows: Range<usize>,
    panels: Range<usize>,
}

impl Kernel for Part<'_> {
    type Output = ();

    #[inline(always)]
    fn run<S: Lanes>(self, s: S) {
        s.with_panels(self);
    }
}

impl PanelKernel for Part<'_> {
    type Output = ();

    #[inline(always)]
    fn run<S: Lanes, const NV: usize>(self, s: S) {
        if self.rows.len() == 1 {
            self.one_row::<S, NV>(s);
        } else {
            self.many_rows::<S, NV>(s);
        }
    }
}

impl Part<'_> {
    /// Columns of `panel` that exist.
    #[inline(always)]
    fn valid<S: Lanes>(&self, panel: usize) -> usize {
        (self.job.weight.columns() - panel * S::PANEL).min(S::PANEL)
    }

    #[inline(always)]
    fn operands<S: Lanes>(&self, row: usize, k: usize, panel: usize) -> Operands {
        let Job { a, weight, .. } = self.job;
        Operands {
            a: a.as_ptr().wrapping_add(row * a.row_stride() + k * a.column_stride()),
            a_row: a.row_stride(),
            a_step: a.column_stride(),
            b: weight.as_ptr().wrapping_add((panel * weight.depth() + k) * S::PANEL),
            b_step: S::PANEL,
            b_vector: S::LANES,
        }
    }

    #[inline(always)]
    fn one_row<S: Lanes, const NV: usize>(&self, s: S) {
        let at = self.rows.start;
        let depth = self.job.weight.depth();
        let in_cache = depth * self.job.weight.columns() <= CACHED_WEIGHTS;
        let mut panel = self.panels.start;
        while panel < self.panels.end {
            let operands = self.operands::<S>(at, 0, panel);
            // SAFETY: `operands` points at row `at` of A and at panels that W has, whose lengths the
            // views vouch for; this part's panels are stored by nobody else.
            unsafe {
                if panel + 2 <= self.panels.end {
                    let zero = [[s.splat(0.0); NV]; 2];
                    let apart = depth * S::PANEL;
                    let acc = if in_cache {
                        row::<S, 2, NV, ROW_AHEAD>(s, zero, depth, operands, apart)
                    } else {
                        row::<S, 2, NV, 0>(s, zero, depth, operands, apart)
                    };
                    for (i, line) in acc.into_iter().enumerate() {
                        let column = (panel + i) * S::PANEL;
                        let valid = self.valid::<S>(panel + i);
                        self.job.store.finish::<S, 1, NV>(s, [line], at, column, valid);
                    }
                    panel += 2;
                } else {
                    let zero = [[s.splat(0.0); NV]; 1];
                    let acc = tile::<S, 1, NV>(s, zero, depth, operands);
                    let (column, valid) = (panel * S::PANEL, self.valid::<S>(panel));
                    self.job.store.finish::<S, 1, NV>(s, acc, at, column, valid);
                    panel += 1;
                }
            }
        }
    }

    #[inline(always)]
    fn many_rows<S: Lanes, const NV: usize>(&self, s: S) {
        let depth = self.job.weight.depth();
        let block = block_depth(self.rows.len(), depth).max(1);
        let mut waiting = [0.0f32; BLOCK_ROWS * MAX_PANEL];
        for panel in self.panels.clone() {
            let mut start = self.rows.start;
            while start < self.rows.end {
                // Without waiting sums there is no reason to stop at BLOCK_ROWS.
                let count = if depth <= block {
                    self.rows.end - start
                } else {
                    (self.rows.end - start).min(BLOCK_ROWS)
                };
                let tiles = count.div_ceil(MAX_ROWS);
                let mut k = 0;
                loop {
                    let steps = (depth - k).min(block);
                    let last = k + steps == depth;
                    // Panels follow each other, so the next block of `k` and the next panel are
                    // both what comes after this block in memory.
                    let next = self.operands::<S>(start, k + steps, panel).b;
                    let lines = match tiles {
                        1 => 4,
                        2..=3 => 2,
                        _ => 1,
                    };
                    for index in 0..tiles {
                        let local = share(count, tiles, index);
                        let step = Step {
                            row: start + local.start,
                            panel,
                            k,
                            steps,
                            last,
                            ahead: next.wrapping_add(index * steps * lines * LINE),
                            waiting: waiting.as_mut_ptr().wrapping_add(if last && k == 0 {
                                0
                            } else {
                                local.start * S::PANEL
                            }),
                        };
                        match (tiles, local.len()) {
                            (1, 1) => self.step::<S, 1, NV, 4, true>(s, &step),
                            (1, 2) => self.step::<S, 2, NV, 4, true>(s, &step),
                            (1, 3) => self.step::<S, 3, NV, 4, true>(s, &step),
                            (1, 4) => self.step::<S, 4, NV, 4, true>(s, &step),
                            (1, 5) => self.step::<S, 5, NV, 4, true>(s, &step),
                            (1, _) => self.step::<S, 6, NV, 4, true>(s, &step),
                            (2..=3, 3) => self.step::<S, 3, NV, 2, true>(s, &step),
                            (2..=3, 4) => self.step::<S, 4, NV, 2, true>(s, &step),
                            (2..=3, 5) => self.step::<S, 5, NV, 2, true>(s, &step),
                            (2..=3, _) => self.step::<S, 6, NV, 2, true>(s, &step),
                            (4, 4) => self.step::<S, 4, NV, 1, true>(s, &step),
                            (4, 5) => self.step::<S, 5, NV, 1, true>(s, &step),
                            (4, _) => self.step::<S, 6, NV, 1, true>(s, &step),
                            (_, 5) => self.step::<S, 5, NV, 1, false>(s, &step),
                            (_, 6) => self.step::<S, 6, NV, 1, false>(s, &step),
                            // Five or more balanced tiles have at least five rows each.
                            (_, _) => self.step::<S, 4, NV, 1, false>(s, &step),
                        }
                    }
                    k += steps;
                    if last {
                        break;
                    }
                }
                start += count;
            }
        }
    }

    /// One tile over one block of `k`.
    #[inline(always)]
    fn step<S: Lanes, const MR: usize, const NV: usize, const AHEAD: usize, const NEAR: bool>(
        &self,
        s: S,
        step: &Step,
    ) {
        let mut acc = [[s.splat(0.0); NV]; MR];
        // SAFETY: rows `step.row..step.row + MR` and the panel exist in the views; `waiting` has
        // `BLOCK_ROWS` rows of PANEL floats, of which this tile's are used only when there is more
        // than one block, in which case at most BLOCK_ROWS rows wait.
        unsafe {
            if step.k > 0 {
                for (i, line) in acc.iter_mut().enumerate() {
                    for (v, x) in line.iter_mut().enumerate() {
                        *x = s.load(step.waiting.add(i * S::PANEL + v * S::LANES));
                    }
                }
            }
            let operands = self.operands::<S>(step.row, step.k, step.panel);
            let acc =
                tile_ahead::<S, MR, NV, AHEAD, NEAR>(s, acc, step.steps, operands, step.ahead);
            if step.last {
                let (column, valid) = (step.panel * S::PANEL, self.valid::<S>(step.panel));
                self.job.store.finish::<S, MR, NV>(s, acc, step.row, column, valid);
            } else {
                for (i, line) in acc.iter().enumerate() {
                    for (v, &x) in line.iter().enumerate() {
                        s.store(step.waiting.add(i * S::PANEL + v * S::LANES), x);
                    }
                }
            }
        }
    }
}

struct Step {
    row: usize,
    panel: usize,
    k: usize,
    steps: usize,
    /// What to ask memory for meanwhile.
    ahead: *const f32,
    /// This block holds the last `k`.
    last: bool,
    /// The tile's sums while they wait for the next block.
    waiting: *mut f32,
}
