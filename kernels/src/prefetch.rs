//! Software prefetch: the policies of a tile. `gemm/prefetch_weights.rs` selects those of weights, and `row_prefetch.rs`
//! is for loops that are not tiles.
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
//! A pair or an array of policies issues the prefetches of all its parts.
//!
//! A CPU has a strong hardware prefetcher if it loads sequential data faster without a software prefetch for each cache
//! line: see [`SimdF32::prefers_hw_prefetch`].

use crate::simd::{CACHE_LINE_F32, SimdF32};

/// Floats between a sparse prefetch and its use: 16 KiB.
pub(crate) const SPARSE_DISTANCE: usize = 4 << 10;

/// Steps between the prefetch of a row of a panel and its use. A load from L2 into L1 takes about one step of six rows,
/// and more when other requests compete for the bus.
const PANEL_STEPS: usize = 8;

/// The cache that a line is requested into.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum CacheLevel {
    L1,
    L2,
}

impl CacheLevel {
    /// Requests the line at `at`; any address is valid.
    #[inline(always)]
    pub(crate) fn prefetch<S: SimdF32>(self, s: S, at: *const f32) {
        match self {
            Self::L1 => s.prefetch(at),
            Self::L2 => s.prefetch_l2(at),
        }
    }
}

/// Whether this CPU has a strong hardware prefetcher.
#[inline(always)]
pub(crate) fn strong_hw_prefetcher<S: SimdF32>(s: S) -> bool {
    (const { S::MAY_PREFER_HW_PREFETCH }) && s.prefers_hw_prefetch()
}

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

/// Prefetches `rows` rows of `elements` floats, given as address, stride and number of rows. The address may be invalid.
#[inline(always)]
pub(crate) fn prefetch_rows<S: SimdF32>(
    s: S,
    cache: CacheLevel,
    (at, stride, rows): (*const f32, usize, usize),
    elements: usize,
) {
    for row in 0..rows {
        let at = at.wrapping_add(row.wrapping_mul(stride));
        let mut column = 0;
        while column < elements {
            cache.prefetch(s, at.wrapping_add(column));
            column += CACHE_LINE_F32;
        }
    }
}
