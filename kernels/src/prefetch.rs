//! Software prefetch: the policies of a tile, and [`PrefetchTarget::select`], which selects one by CPU, rows and dtype.
//!
//! A policy is described by values: the address of the first line, the distances between lines, the number of lines,
//! and the cache. Three shapes of it are compiled into tiles:
//!
//! | shape | lines | where |
//! |---|---|---|
//! | `()` | none | one row whose weights come from memory, and sets without prefetches |
//! | [`PerStep`] | the same number in each step | the steps ahead of one tile, keys and values, int8 weights |
//! | [`PerPeriod`] | some in each 2 or 4 steps, spread evenly | the next block of weights; one line per page or less |
//!
//! A pair or an array of policies issues the prefetches of all its parts. [`PrefetchPanel`], [`PrefetchRows`] and
//! [`PrefetchRow`] are for loops that are not tiles.
//!
//! A CPU has a strong hardware prefetcher if it loads sequential data faster without a software prefetch for each cache
//! line: see [`SimdF32::prefers_hw_prefetch`].

use crate::dtype::Dtype;
use crate::parallel::share;
use crate::simd::{CACHE_LINE_F32, MAX_MR, SimdF32, SimdOp};

/// The largest number of rows that counts as few: reading weights affects the time, and the part of `A` fits in an L1
/// cache together with two blocks of weights.
pub(crate) const FEW_ROWS: usize = 6 * MAX_MR;

/// Floats between a sparse prefetch and its use: 16 KiB.
const SPARSE_DISTANCE: usize = 4 << 10;

/// Steps between the prefetch of a row of a panel and its use. A load from L2 into L1 takes about one step of six rows,
/// and more when other requests compete for the bus.
const PANEL_STEPS: usize = 8;

/// Largest number of sums per column of an int8 tile that is slow enough for a strong hardware prefetcher.
pub(crate) const MAX_SPARSE_SUMS: usize = 4;

/// The cache that a line is requested into.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum CacheLevel {
    L1,
    L2,
}

impl CacheLevel {
    /// Requests the line at `at`; any address is valid.
    #[inline(always)]
    fn prefetch<S: SimdF32>(self, s: S, at: *const f32) {
        match self {
            Self::L1 => s.prefetch(at),
            Self::L2 => s.prefetch_l2(at),
        }
    }
}

/// Which weights the tiles of a product prefetch.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum PrefetchTarget {
    /// Nothing.
    Nothing,
    /// Those of a later step: [`PerStep`].
    LaterStep,
    /// One line per interval: [`PerPeriod::sparse`].
    Sparse,
    /// The next panel, in eight streams: [`PerStep::in_streams`].
    Interleaved,
    /// The next block: [`PerPeriod`]. On a CPU with a strong hardware prefetcher into the L2 cache: it loads lines that
    /// several tiles read from L2 into L1 in time. A line that is in flight from memory to L1 would stop it from doing
    /// so.
    NextBlock(CacheLevel),
    /// The next block into the L2 cache, and the current one from L2 into L1. The hardware prefetcher stops at the end
    /// of each page and each row, which costs a fifth of the speed where caches are small (32 KiB and 1 MiB).
    NextBlockAndLaterStep,
}

/// How a product reads its weights.
#[derive(Clone, Copy)]
pub(crate) struct WeightReads {
    /// Bytes of a weight: 4 for f32, 2 for bf16 and f16, 1 for int8.
    pub(crate) bytes: usize,
    /// Rows of `A`. For one tile of int8 it is the number of sums per column.
    pub(crate) rows: usize,
    /// Whether several tiles read each block of weights. Each of them then prefetches a share of the next block.
    pub(crate) shared: bool,
    /// Whether an outer cache may hold the weights from one call to the next.
    pub(crate) cached: bool,
}

impl PrefetchTarget {
    /// The target of a product on this CPU.
    #[inline(always)]
    pub(crate) fn select<S: SimdF32>(s: S, reads: WeightReads) -> Self {
        if const { !S::PREFETCHES } {
            return Self::Nothing;
        }
        match reads {
            WeightReads { bytes, rows, shared: true, .. } if bytes == 1 || rows > FEW_ROWS => {
                Self::NextBlockAndLaterStep
            }
            WeightReads { bytes: 2, rows: 2.., shared: false, .. } => Self::LaterStep,
            _ if strong_hw_prefetcher(s) => match reads {
                WeightReads { shared: true, .. } => Self::NextBlock(CacheLevel::L2),
                WeightReads { bytes: 1, rows, .. } if rows > MAX_SPARSE_SUMS => Self::Interleaved,
                _ => Self::Sparse,
            },
            // Measured: prefetching is a fifth faster from the L3 cache, and a tenth slower from memory.
            WeightReads { bytes: 4, rows: 1, cached: false, .. } => Self::Nothing,
            WeightReads { shared: true, .. } => Self::NextBlock(CacheLevel::L1),
            _ => Self::LaterStep,
        }
    }
}

/// Whether this CPU has a strong hardware prefetcher.
#[inline(always)]
pub(crate) fn strong_hw_prefetcher<S: SimdF32>(s: S) -> bool {
    (const { S::MAY_PREFER_HW_PREFETCH }) && s.prefers_hw_prefetch()
}

/// Steps between the prefetch of keys or values and their use, for a tile of `rows` queries: the latency of the L2
/// cache and a margin. A step of few rows is short. A tile of one row waits for memory, so it prefetches as far ahead
/// as a share of the L1 cache can hold.
pub(crate) const fn attention_steps(rows: usize) -> usize {
    match rows {
        1 => ONE_QUERY_STEPS,
        2..=4 => 16,
        _ => 8,
    }
}

/// [`attention_steps`] of one query: 32 steps of 4 lines are 8 KiB.
pub(crate) const ONE_QUERY_STEPS: usize = 32;

/// A policy: the cache lines that a tile prefetches. Implementations are `#[inline(always)]`.
pub(crate) trait Prefetch: Copy {
    /// Steps after which the pattern of prefetches repeats. The loop is unrolled by this number.
    const PERIOD: usize = 1;
    /// Issues the prefetches of step `step % PERIOD`. Called in order, before each step of a whole period. The last
    /// steps, fewer than a period, have no prefetches: work that every step needs is a `PerStepWork` (`microkernel.rs`).
    fn issue<S: SimdF32>(&mut self, s: S, step: usize);
}

impl Prefetch for () {
    #[inline(always)]
    fn issue<S: SimdF32>(&mut self, _: S, _: usize) {}
}

impl<A: Prefetch, B: Prefetch> Prefetch for (A, B) {
    const PERIOD: usize = if A::PERIOD > B::PERIOD { A::PERIOD } else { B::PERIOD };

    #[inline(always)]
    fn issue<S: SimdF32>(&mut self, s: S, step: usize) {
        const {
            assert!(Self::PERIOD % A::PERIOD == 0 && Self::PERIOD % B::PERIOD == 0);
        }
        self.0.issue(s, step % A::PERIOD);
        self.1.issue(s, step % B::PERIOD);
    }
}

impl<A: Prefetch, const N: usize> Prefetch for [A; N] {
    const PERIOD: usize = A::PERIOD;

    #[inline(always)]
    fn issue<S: SimdF32>(&mut self, s: S, step: usize) {
        for prefetch in self {
            prefetch.issue(s, step);
        }
    }
}

/// The same lines in each step, or in the first of each `EVERY` steps: `count` lines, `apart` floats between two of
/// them, and `step` floats further at each time. `count` is a compile-time constant at every use.
#[derive(Clone, Copy)]
pub(crate) struct PerStep<const EVERY: usize = 1> {
    /// Address of the first line. Any address is valid.
    at: *const f32,
    step: usize,
    count: usize,
    apart: usize,
    cache: CacheLevel,
    /// An address, and the floats to go back from there on: see [`PerStep::in_streams`].
    turn: Option<(*const f32, usize)>,
}

impl PerStep {
    /// `count` lines into the L1 cache, `apart` floats between two of them, and `step` floats further at each step.
    #[inline(always)]
    pub(crate) fn new(at: *const f32, step: usize, count: usize, apart: usize) -> Self {
        Self { at, step, count, apart, cache: CacheLevel::L1, turn: None }
    }

    /// `count` lines at consecutive multiples of `apart`.
    #[inline(always)]
    pub(crate) fn running(at: *const f32, count: usize, apart: usize) -> Self {
        Self::new(at, count * apart, count, apart)
    }

    /// All lines of a later row of a panel that is in the L2 cache. The panel is read from `at` on, and its rows are
    /// `step` floats apart.
    #[inline(always)]
    pub(crate) fn of_panel<S: SimdF32>(at: *const f32, step: usize) -> Self {
        let at = at.wrapping_add(PANEL_STEPS * step);
        Self::new(at, step, S::PANEL.div_ceil(CACHE_LINE_F32), CACHE_LINE_F32)
    }

    /// `count` lines into the L2 cache, in turn from `streams` streams of `floats` floats each, one after the other
    /// from `at` on. The lines of a stream are `step` floats apart. Memory delivers several streams faster than one.
    /// It is for tiles that keep a strong hardware prefetcher too busy for it to follow the stream that they read.
    #[inline(always)]
    pub(crate) fn in_streams(
        at: *const f32,
        count: usize,
        (streams, floats): (usize, usize),
        step: usize,
    ) -> Self {
        let all = streams * floats;
        let turn = Some((at.wrapping_add(all), all.wrapping_sub(step)));
        Self { at, step: count * floats, count, apart: floats, cache: CacheLevel::L2, turn }
    }

    /// The same lines in every second step.
    #[inline(always)]
    pub(crate) fn every_second(self) -> PerStep<2> {
        let Self { at, step, count, apart, cache, turn } = self;
        PerStep { at, step, count, apart, cache, turn }
    }
}

impl<const EVERY: usize> Prefetch for PerStep<EVERY> {
    const PERIOD: usize = EVERY;

    #[inline(always)]
    fn issue<S: SimdF32>(&mut self, s: S, step: usize) {
        if step > 0 {
            return;
        }
        for line in 0..self.count {
            self.cache.prefetch(s, self.at.wrapping_add(line * self.apart));
        }
        self.at = self.at.wrapping_add(self.step);
        if let Some((end, back)) = self.turn
            && self.at >= end
        {
            self.at = self.at.wrapping_sub(back);
        }
    }
}

/// `count` lines in `PERIOD` steps, `apart` floats from one to the next. `count` is a compile-time constant at every
/// use.
///
/// The requests are spread evenly over the steps, a remainder in the first one: a burst would fill the queue to memory
/// and delay the loads behind it. Repeated requests for one line cost almost nothing.
#[derive(Clone, Copy)]
pub(crate) struct PerPeriod<const PERIOD: usize> {
    /// Address of the first line. Any address is valid.
    pub(crate) at: *const f32,
    pub(crate) apart: usize,
    pub(crate) count: usize,
    pub(crate) cache: CacheLevel,
}

impl<const PERIOD: usize> PerPeriod<PERIOD> {
    /// One line into the L2 cache, 16 KiB ahead of memory that is read from `at` on, `step` floats at each step. The
    /// request announces the next pages, so that the hardware prefetcher starts on them before they are read.
    #[inline(always)]
    pub(crate) fn sparse(at: *const f32, step: usize) -> Self {
        let at = at.wrapping_add(SPARSE_DISTANCE);
        Self { at, apart: PERIOD * step, count: 1, cache: CacheLevel::L2 }
    }

    /// Requests the next line.
    #[inline(always)]
    fn request<S: SimdF32>(&mut self, s: S) {
        self.cache.prefetch(s, self.at);
        self.at = self.at.wrapping_add(self.apart);
    }
}

impl<const PERIOD: usize> Prefetch for PerPeriod<PERIOD> {
    const PERIOD: usize = PERIOD;

    #[inline(always)]
    fn issue<S: SimdF32>(&mut self, s: S, step: usize) {
        // The length of neither loop depends on `step`, or they would not be unrolled.
        if step == 0 {
            for _ in 0..self.count % PERIOD {
                self.request(s);
            }
        }
        for _ in 0..self.count / PERIOD {
            self.request(s);
        }
    }
}

/// Sparse prefetches. On AVX-512, four steps of an f32 panel are one KiB, and of an int8 panel half a KiB.
pub(crate) type Sparse = PerPeriod<4>;

/// The policy of many rows: the next block into the L2 cache, and the current one from L2 into L1.
pub(crate) type ManyRows = (PerPeriod<2>, PerStep);

/// A policy of tiles that multiply one block of `k` after the other.
pub(crate) trait BlockPrefetch: Prefetch {
    /// The fewest tiles with this policy.
    const MIN_TILES: usize = 1;
    /// Lines of the next block that a tile requests in two steps, or 0.
    #[inline(always)]
    fn requests<S: SimdF32>() -> usize {
        0
    }
    /// The prefetches of a tile that reads its block from `current` on and prefetches `next`.
    fn of_block<S: SimdF32>(current: *const f32, next: NextBlock) -> Self;
}

/// The fewest rows of a tile with policy `Q`. Smaller tiles are not compiled. Tiles are balanced: if there are several,
/// each has at least half of the rows of the tallest.
pub(crate) const fn fewest_rows<Q: BlockPrefetch>() -> usize {
    let tiles = Q::MIN_TILES;
    let rows = share((tiles - 1) * MAX_MR + 1, tiles, tiles - 1);
    // One row has its own function and is not a tile.
    if rows.end - rows.start > 2 { rows.end - rows.start } else { 2 }
}

/// No prefetches.
impl BlockPrefetch for () {
    #[inline(always)]
    fn of_block<S: SimdF32>(_: *const f32, _: NextBlock) -> Self {}
}

/// One tile on a CPU with a strong hardware prefetcher.
impl BlockPrefetch for Sparse {
    #[inline(always)]
    fn of_block<S: SimdF32>(current: *const f32, _: NextBlock) -> Self {
        Self::sparse(current, S::PANEL)
    }
}

/// One tile: each step prefetches as much as it reads.
impl BlockPrefetch for PerStep {
    #[inline(always)]
    fn of_block<S: SimdF32>(_: *const f32, next: NextBlock) -> Self {
        Self::running(next.from, S::PANEL.div_ceil(CACHE_LINE_F32), CACHE_LINE_F32)
    }
}

/// Several tiles of few rows. The requests are those of two tiles, also for more tiles: with more rows a request costs
/// relatively less.
impl BlockPrefetch for PerPeriod<2> {
    const MIN_TILES: usize = 2;

    #[inline(always)]
    fn requests<S: SimdF32>() -> usize {
        S::PANEL.div_ceil(CACHE_LINE_F32)
    }

    #[inline(always)]
    fn of_block<S: SimdF32>(_: *const f32, next: NextBlock) -> Self {
        let NextBlock { from: at, apart, cache } = next;
        let cache = if S::MAY_PREFER_HW_PREFETCH { cache } else { CacheLevel::L1 };
        Self { at, apart, count: Self::requests::<S>(), cache }
    }
}

/// Many rows.
impl BlockPrefetch for ManyRows {
    const MIN_TILES: usize = FEW_ROWS / MAX_MR + 1;

    #[inline(always)]
    fn requests<S: SimdF32>() -> usize {
        (S::PANEL / 2).div_ceil(CACHE_LINE_F32)
    }

    #[inline(always)]
    fn of_block<S: SimdF32>(current: *const f32, next: NextBlock) -> Self {
        let NextBlock { from: at, apart, .. } = next;
        let next = PerPeriod { at, apart, count: Self::requests::<S>(), cache: CacheLevel::L2 };
        (next, PerStep::of_panel::<S>(current, S::PANEL))
    }
}

/// The share of the next block that one tile prefetches while it multiplies.
#[derive(Clone, Copy)]
pub(crate) struct NextBlock {
    /// Start of the share. Any address is valid.
    pub(crate) from: *const f32,
    /// Floats between two requests.
    pub(crate) apart: usize,
    pub(crate) cache: CacheLevel,
}

/// The shares of all tiles that are multiplied by one block.
#[derive(Clone, Copy)]
pub(crate) struct PrefetchPlan {
    /// The share of one tile, in floats for each two steps of `k`.
    part: usize,
    /// Floats between two requests.
    apart: usize,
    cache: CacheLevel,
}

impl PrefetchPlan {
    /// The plan for `tiles` tiles with `requests` requests in each two steps of `k`.
    #[inline(always)]
    pub(crate) fn new<S: SimdF32>(
        dtype: Dtype,
        tiles: usize,
        requests: usize,
        cache: CacheLevel,
    ) -> Self {
        let part = (dtype.words(2) * S::PANEL).div_ceil(tiles);
        Self { part, apart: part.div_ceil(requests.max(1)), cache }
    }

    /// The share of tile `index` in a block of `steps` steps that starts at `from`.
    #[inline(always)]
    pub(crate) fn next(self, from: *const f32, index: usize, steps: usize) -> NextBlock {
        let from = from.wrapping_add(index * steps.div_ceil(2) * self.part);
        NextBlock { from, apart: self.apart, cache: self.cache }
    }
}

/// The next panel, for loops over rows: each row that is multiplied by a panel prefetches a share of the panel after
/// it, into the L2 cache.
#[cfg(any(vectors = "x86_64", vectors = "aarch64", test))]
#[derive(Clone, Copy)]
pub(crate) struct PrefetchPanel {
    /// Address of the next line. Any address is valid.
    from: *const f32,
    /// Lines per row.
    lines: usize,
}

#[cfg(any(vectors = "x86_64", vectors = "aarch64", test))]
impl PrefetchPanel {
    /// The floats from `from` to `end`, divided among `rows` rows.
    #[inline(always)]
    pub(crate) fn new(from: *const f32, end: *const f32, rows: usize) -> Self {
        let lines = (end as usize - from as usize) / size_of::<[f32; CACHE_LINE_F32]>();
        Self { from, lines: lines.div_ceil(rows) }
    }

    /// Prefetches the share of `rows` rows.
    #[inline(always)]
    pub(crate) fn issue<S: SimdF32>(&mut self, s: S, rows: usize) {
        for _ in 0..rows * self.lines {
            s.prefetch_l2(self.from);
            self.from = self.from.wrapping_add(CACHE_LINE_F32);
        }
    }
}

/// Prefetches the lines of `rows` rows of `elements` floats into the L1 cache if `TO_L1`, else into the L2 cache. The
/// address may be invalid.
#[inline(always)]
pub(crate) fn prefetch_rows<S: SimdF32, const TO_L1: bool>(
    s: S,
    at: *const f32,
    stride: usize,
    rows: usize,
    elements: usize,
) {
    for row in 0..rows {
        let at = at.wrapping_add(row.wrapping_mul(stride));
        let mut column = 0;
        while column < elements {
            if TO_L1 {
                s.prefetch(at.wrapping_add(column));
            } else {
                s.prefetch_l2(at.wrapping_add(column));
            }
            column += CACHE_LINE_F32;
        }
    }
}

/// The rows of `TENSORS` tensors that a later task reads or writes, prefetched in parts during an earlier one. The rows
/// of one head are too short for the hardware prefetcher.
pub(crate) struct PrefetchRows<const TENSORS: usize> {
    /// For each tensor, the address of its first row, which may be invalid, its stride and its number of rows.
    tensors: [(*const f32, usize, usize); TENSORS],
    elements: usize,
    to_l1: bool,
    /// Progress: the number of finished tensors, and of finished rows of the next one.
    tensor: usize,
    row: usize,
}

impl<const TENSORS: usize> PrefetchRows<TENSORS> {
    /// Rows per call of [`PrefetchRows::issue`].
    const ROWS_PER_CALL: usize = 16;

    /// No rows.
    #[cfg(feature = "train")]
    pub(crate) const NOTHING: Self = Self::new([(core::ptr::null(), 0, 0); TENSORS], 0, false);

    /// Rows of `elements` floats of each tensor, given as address, stride and number of rows.
    pub(crate) const fn new(
        tensors: [(*const f32, usize, usize); TENSORS],
        elements: usize,
        to_l1: bool,
    ) -> Self {
        Self { tensors, elements, to_l1, tensor: 0, row: 0 }
    }

    /// Prefetches the next rows of a tensor.
    #[inline(always)]
    pub(crate) fn issue<S: SimdF32>(&mut self, s: S) {
        let Some(&(at, stride, rows)) = self.tensors.get(self.tensor) else { return };
        let at = at.wrapping_add(self.row.wrapping_mul(stride));
        let count = (rows - self.row).min(Self::ROWS_PER_CALL);
        if self.to_l1 {
            prefetch_rows::<S, true>(s, at, stride, count, self.elements);
        } else {
            prefetch_rows::<S, false>(s, at, stride, count, self.elements);
        }
        self.row += count;
        if self.row == rows {
            (self.tensor, self.row) = (self.tensor + 1, 0);
        }
    }

    /// Prefetches all remaining rows.
    #[inline(always)]
    pub(crate) fn issue_all<S: SimdF32>(&mut self, s: S) {
        while self.tensor < TENSORS {
            self.issue(s);
        }
    }
}

impl<const TENSORS: usize> SimdOp for PrefetchRows<TENSORS> {
    type Output = ();

    #[inline(always)]
    fn run<S: SimdF32>(mut self, s: S) {
        self.issue_all(s);
    }
}

/// A row of a matrix, prefetched while the rows before it are read.
#[derive(Clone, Copy)]
pub(crate) struct PrefetchRow {
    /// Any address is valid.
    pub(crate) at: *const f32,
    /// Whether one line of every 512 bytes is enough.
    sparse: bool,
}

impl PrefetchRow {
    /// The row at `at` of a matrix that is too large for the caches if `large`: then a strong hardware
    /// prefetcher needs only a few lines.
    #[inline(always)]
    pub(crate) fn new<S: SimdF32>(s: S, at: *const f32, large: bool) -> Self {
        Self { at, sparse: large && strong_hw_prefetcher(s) }
    }

    /// Prefetches the cache lines of `VECTORS` vectors at element `i`.
    #[inline(always)]
    pub(crate) fn issue<S: SimdF32, const VECTORS: usize>(self, s: S, i: usize) {
        const INTERVAL: usize = 128;
        if self.sparse {
            if i.is_multiple_of(INTERVAL) {
                s.prefetch_l2(self.at.wrapping_add(i + SPARSE_DISTANCE));
            }
            return;
        }
        for line in 0..VECTORS * S::LANES / CACHE_LINE_F32 {
            s.prefetch(self.at.wrapping_add(i + line * CACHE_LINE_F32));
        }
    }
}
