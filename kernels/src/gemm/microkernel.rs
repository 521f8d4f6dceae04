//! The tile: up to six rows of `A` times one panel of `B`, in registers.
//!
//! Per step of `k` a tile of `MR` rows and `NV` vectors loads `NV` vectors of `B`, broadcasts `MR`
//! elements of `A` and does `MR * NV` fused multiply-adds. On AVX-512, 6 x 4 vectors use 24 of 32
//! registers as accumulators with 10 loads per 24 FMAs, against two loads and two FMAs per cycle;
//! on AVX2, 6 x 2 use 12 of 16 with 8 loads per 12 FMAs.
//!
//! There is one such loop, [`multiply`], for every kernel that multiplies and for every form in
//! which weights are stored. What is left to its callers are two small traits:
//!
//! * [`TileOperand`]: how a vector of weights is read and what it adds to a sum. [`F32Operand`] is f32 times
//!   f32; a screen has bytes times bytes.
//! * [`Prefetch`]: what is asked of memory meanwhile. `()` asks for nothing, [`PrefetchLines`] for what comes a
//!   few steps later, [`SpreadPrefetch`] for the block after this one, a pair or an array for all of its
//!   parts. [`SparsePrefetch`] and [`InterleavedPrefetch`] are for CPUs that [follow](SimdF32::prefers_hw_prefetch) what is read.

use crate::simd::{CACHE_LINE_F32, HW_PREFETCH_DISTANCE, SimdF32};

/// Rows of the tallest tile.
pub(crate) const MAX_MR: usize = 6;

/// The accumulators of a tile.
pub(crate) type Tile<S, const MR: usize, const NV: usize> = [[<S as SimdF32>::F32; NV]; MR];

/// A form of weights in a tile. Implementations are `#[inline(always)]`.
pub(crate) trait TileOperand: Copy {
    /// The vectors of f32 beside it.
    type SimdF32: SimdF32;
    /// An element of `A`.
    type Element: Copy;
    /// An element of `B`, as it is stored.
    type Weight: Copy;
    /// Elements, or weights, as they are multiplied.
    type Vector: Copy;
    /// Sums of their products.
    type Sum: Copy;
    /// Steps of `k` that lie side by side where one vector has its place.
    const PARTS: usize = 1;
    /// Whether a step of a tile that is wider than tall holds its elements in registers and reads weights one
    /// by one, instead of holding the weights: where one vector of weights takes several registers.
    const A_STATIONARY: bool = false;
    /// Whether a load is a single instruction of every set.
    const ONE_INSTRUCTION: bool = false;

    /// The proof for [`TileOperand::SimdF32`].
    fn lanes(self) -> Self::SimdF32;
    /// One vector of weights, of step `part % PARTS` of those that are there.
    ///
    /// # Safety
    /// `from` is valid for reads of a vector.
    unsafe fn load(self, from: *const Self::Weight, part: usize) -> Self::Vector;
    /// All lanes the element at `from`.
    ///
    /// # Safety
    /// `from` is valid for reads of an element.
    unsafe fn broadcast(self, from: *const Self::Element) -> Self::Vector;
    /// `element * weights + sum`.
    fn multiply_add(
        self,
        element: Self::Vector,
        weights: Self::Vector,
        sum: Self::Sum,
    ) -> Self::Sum;
}

/// f32 times f32.
#[derive(Clone, Copy)]
pub(crate) struct F32Operand<S>(pub(crate) S);

impl<S: SimdF32> TileOperand for F32Operand<S> {
    type SimdF32 = S;
    type Element = f32;
    type Weight = f32;
    type Vector = S::F32;
    type Sum = S::F32;
    const ONE_INSTRUCTION: bool = true;

    #[inline(always)]
    fn lanes(self) -> S {
        self.0
    }
    #[inline(always)]
    unsafe fn load(self, from: *const f32, _: usize) -> S::F32 {
        // SAFETY: the caller's contract.
        unsafe { self.0.load(from) }
    }
    #[inline(always)]
    unsafe fn broadcast(self, from: *const f32) -> S::F32 {
        // SAFETY: the caller's contract.
        self.0.splat(unsafe { *from })
    }
    #[inline(always)]
    fn multiply_add(self, element: S::F32, weights: S::F32, sum: S::F32) -> S::F32 {
        self.0.mul_add(element, weights, sum)
    }
}

/// What a tile asks memory for before each of its steps. Implementations are `#[inline(always)]`.
pub(crate) trait Prefetch: Copy {
    /// Steps after which it asks alike: the loop is unrolled by so many, and asks for nothing in
    /// those that are left over.
    const PERIOD: usize = 1;
    /// Asks for what belongs to step `step % PERIOD`, once for each step, in order.
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
        for ahead in self {
            ahead.issue(s, step);
        }
    }
}

/// The same lines of each step, into the first-level cache: `count` of them, `apart` floats apart,
/// and `step` floats further at each step. `count` is a constant wherever one is made.
#[derive(Clone, Copy)]
pub(crate) struct PrefetchLines {
    /// Where they start, any address.
    pub(crate) at: *const f32,
    pub(crate) step: usize,
    pub(crate) count: usize,
    pub(crate) apart: usize,
}

impl PrefetchLines {
    /// `count` requests a step, one after the other.
    #[inline(always)]
    pub(crate) fn running(at: *const f32, count: usize, apart: usize) -> Self {
        Self { at, step: count * apart, count, apart }
    }
}

impl Prefetch for PrefetchLines {
    #[inline(always)]
    fn issue<S: SimdF32>(&mut self, s: S, _: usize) {
        for line in 0..self.count {
            s.prefetch(self.at.wrapping_add(line * self.apart));
        }
        self.at = self.at.wrapping_add(self.step);
    }
}

/// What is read in order, where the CPU [follows](SimdF32::prefers_hw_prefetch) that: a line now and then, into the
/// second-level cache, so that it knows the pages that come and has begun with them before they are read.
#[derive(Clone, Copy)]
pub(crate) struct SparsePrefetch {
    at: *const f32,
    step: usize,
}

impl SparsePrefetch {
    /// Of what is read from `at` on, `step` floats at each step.
    #[inline(always)]
    pub(crate) fn of(at: *const f32, step: usize) -> Self {
        Self { at: at.wrapping_add(HW_PREFETCH_DISTANCE), step }
    }
}

impl Prefetch for SparsePrefetch {
    /// A panel of floats of AVX-512 is a KiB in four steps, of bytes half of one.
    const PERIOD: usize = 4;

    #[inline(always)]
    fn issue<S: SimdF32>(&mut self, s: S, step: usize) {
        if step == 0 {
            s.prefetch_l2(self.at);
            self.at = self.at.wrapping_add(Self::PERIOD * self.step);
        }
    }
}

/// Two lines a step into the second-level cache, from eight places in turn: for tiles that leave a CPU which
/// follows streams no time to follow the one that they read. Memory answers several streams sooner than one.
#[derive(Clone, Copy)]
pub(crate) struct InterleavedPrefetch {
    at: *const f32,
    apart: usize,
    steps: usize,
}

impl InterleavedPrefetch {
    const COUNT: usize = 8;

    /// `floats` floats from `at` on, at most two lines for each step.
    #[inline(always)]
    pub(crate) fn of(at: *const f32, floats: usize) -> Self {
        Self { at, apart: floats.div_ceil(Self::COUNT), steps: 0 }
    }
}

impl Prefetch for InterleavedPrefetch {
    #[inline(always)]
    fn issue<S: SimdF32>(&mut self, s: S, _: usize) {
        let (turn, pair) = (self.steps / (Self::COUNT / 2), self.steps % (Self::COUNT / 2));
        let at = self.at.wrapping_add(turn * CACHE_LINE_F32 + 2 * pair * self.apart);
        s.prefetch_l2(at);
        s.prefetch_l2(at.wrapping_add(self.apart));
        self.steps += 1;
    }
}

/// `REQUESTS` lines for each two steps, into the first-level cache if `TO_L1`, else into the second.
///
/// They are spread evenly over the steps: a burst of them would fill the queue to memory and hold up
/// the loads behind it. Several requests for one line cost next to nothing.
#[derive(Clone, Copy)]
pub(super) struct SpreadPrefetch<const REQUESTS: usize, const TO_L1: bool> {
    /// Where they start, any address.
    pub(super) at: *const f32,
    /// Floats from one request to the next.
    pub(super) apart: usize,
}

impl<const REQUESTS: usize, const TO_L1: bool> Prefetch for SpreadPrefetch<REQUESTS, TO_L1> {
    const PERIOD: usize = 2;

    #[inline(always)]
    fn issue<S: SimdF32>(&mut self, s: S, step: usize) {
        let now = match (REQUESTS % 2, step) {
            (0, _) => REQUESTS / 2,
            (_, 0) => REQUESTS,
            _ => 0,
        };
        for _ in 0..now {
            if TO_L1 {
                s.prefetch(self.at)
            } else {
                s.prefetch_l2(self.at)
            }
            self.at = self.at.wrapping_add(self.apart);
        }
    }
}

/// The rows of `A` under a tile, in elements.
#[derive(Clone, Copy)]
pub(crate) struct Rows<T> {
    /// Row 0.
    pub(crate) at: *const T,
    /// From one row to the next.
    pub(crate) row: usize,
    /// From one `k` to the next.
    pub(crate) step: usize,
}

/// `P` panels of `B` beside each other, in elements.
#[derive(Clone, Copy)]
pub(crate) struct Panels<T, const P: usize> {
    /// Vector 0 of each.
    pub(crate) at: [*const T; P],
    /// From one `k` to the next, or from [`TileOperand::PARTS`] of them to the next.
    pub(crate) step: usize,
    /// From one vector of a panel to the next.
    pub(crate) vector: usize,
}

/// `acc[p][i][v] += sum over k of rows[i, k] * panels[p][k, v]`, `k` from 0 to `depth - 1` in order;
/// `ahead` is asked before each step. `P` is 1 but for a row that is alone, which has too few chains
/// of additions in one panel.
///
/// # Safety
/// Rows `0..MR` and steps `0..depth` of `A`, and vectors `0..NV` of full width at steps `0..depth`
/// of each panel of `B`, are valid for reads.
#[inline(always)]
pub(crate) unsafe fn multiply<F, Q, const P: usize, const MR: usize, const NV: usize>(
    form: F,
    mut acc: [[[F::Sum; NV]; MR]; P],
    depth: usize,
    mut rows: Rows<F::Element>,
    mut panels: Panels<F::Weight, P>,
    mut ahead: Q,
) -> [[[F::Sum; NV]; MR]; P]
where
    F: TileOperand,
    Q: Prefetch,
{
    let period = const {
        assert!(Q::PERIOD.is_multiple_of(F::PARTS) || F::PARTS.is_multiple_of(Q::PERIOD));
        if Q::PERIOD > F::PARTS { Q::PERIOD } else { F::PARTS }
    };
    for _ in 0..depth / period {
        for part in 0..period {
            ahead.issue(form.lanes(), part % Q::PERIOD);
            // SAFETY: the caller's contract.
            unsafe { step(form, &mut acc, &mut rows, &mut panels, part) };
        }
    }
    for part in 0..depth % period {
        // SAFETY: the caller's contract.
        unsafe { step(form, &mut acc, &mut rows, &mut panels, part) };
    }
    acc
}

/// [`multiply`] of one panel with `PHASES` sums for each element, of which the first begin as `acc` and the
/// others as `zero`: step `k` goes to those of `k % PHASES`, but for the last ones, which go to the first.
/// For few rows, whose chains of additions are too few to keep a CPU busy, where the order of a sum does
/// not matter.
///
/// # Safety
/// As [`multiply`].
#[inline(always)]
pub(crate) unsafe fn multiply_in_phases<
    F: TileOperand,
    Q: Prefetch,
    const PHASES: usize,
    const MR: usize,
    const NV: usize,
>(
    form: F,
    (acc, zero): ([[F::Sum; NV]; MR], F::Sum),
    depth: usize,
    mut rows: Rows<F::Element>,
    mut panel: Panels<F::Weight, 1>,
    mut ahead: Q,
) -> [[[F::Sum; NV]; MR]; PHASES] {
    let period = const {
        assert!(F::PARTS == 1);
        assert!(Q::PERIOD.is_multiple_of(PHASES) || PHASES.is_multiple_of(Q::PERIOD));
        if Q::PERIOD > PHASES { Q::PERIOD } else { PHASES }
    };
    let mut phases = [[[[zero; NV]; MR]; 1]; PHASES];
    phases[0] = [acc];
    for _ in 0..depth / period {
        for part in 0..period {
            ahead.issue(form.lanes(), part % Q::PERIOD);
            // SAFETY: the caller's contract.
            unsafe { step(form, &mut phases[part % PHASES], &mut rows, &mut panel, 0) };
        }
    }
    for _ in 0..depth % period {
        // SAFETY: the caller's contract.
        unsafe { step(form, &mut phases[0], &mut rows, &mut panel, 0) };
    }
    let mut sums = [[[zero; NV]; MR]; PHASES];
    for (sum, [phase]) in sums.iter_mut().zip(phases) {
        *sum = phase;
    }
    sums
}

/// One step of [`multiply`].
///
/// # Safety
/// As [`multiply`], for the step at hand.
#[inline(always)]
unsafe fn step<F: TileOperand, const P: usize, const MR: usize, const NV: usize>(
    form: F,
    acc: &mut [[[F::Sum; NV]; MR]; P],
    rows: &mut Rows<F::Element>,
    panels: &mut Panels<F::Weight, P>,
    part: usize,
) {
    // The one that several panels share.
    // SAFETY: the caller's contract: there is a row.
    let alone = if const { MR == 1 } { Some(unsafe { form.broadcast(rows.at) }) } else { None };
    for (tile, at) in acc.iter_mut().zip(panels.at) {
        if const { F::A_STATIONARY && MR < NV } {
            // SAFETY: the caller's contract.
            let mut elements = [unsafe { form.broadcast(rows.at) }; MR];
            for (i, element) in elements.iter_mut().enumerate().skip(1) {
                // SAFETY: the caller's contract.
                *element = unsafe { form.broadcast(rows.at.add(i * rows.row)) };
            }
            for v in 0..NV {
                // SAFETY: the caller's contract.
                let vector = unsafe { form.load(at.add(v * panels.vector), part) };
                for i in 0..MR {
                    tile[i][v] = form.multiply_add(elements[i], vector, tile[i][v]);
                }
            }
            continue;
        }
        let vectors: [_; NV] = if const { F::ONE_INSTRUCTION } {
            // SAFETY: the caller's contract.
            core::array::from_fn(|v| unsafe { form.load(at.add(v * panels.vector), part) })
        } else {
            // Of loads that are more than one instruction a closure would be a call.
            // SAFETY: the caller's contract.
            let mut vectors = [unsafe { form.load(at, part) }; NV];
            for (v, vector) in vectors.iter_mut().enumerate().skip(1) {
                // SAFETY: the caller's contract.
                *vector = unsafe { form.load(at.add(v * panels.vector), part) };
            }
            vectors
        };
        for (i, line) in tile.iter_mut().enumerate() {
            let element = match alone {
                Some(element) => element,
                // SAFETY: the caller's contract.
                None => unsafe { form.broadcast(rows.at.add(i * rows.row)) },
            };
            for (sum, vector) in line.iter_mut().zip(vectors) {
                *sum = form.multiply_add(element, vector, *sum);
            }
        }
    }
    // Past the last step these pointers are not read; they may lie outside the operands.
    rows.at = rows.at.wrapping_add(rows.step);
    if part % F::PARTS == F::PARTS - 1 {
        for at in &mut panels.at {
            *at = at.wrapping_add(panels.step);
        }
    }
}

/// Where the operands of a tile are, in elements.
#[derive(Clone, Copy)]
pub(crate) struct Operands {
    /// Row 0 of `A`.
    pub(crate) a: *const f32,
    /// From one row of `A` to the next.
    pub(crate) a_row: usize,
    /// From one `k` of `A` to the next.
    pub(crate) a_step: usize,
    /// Vector 0 of `B`.
    pub(crate) b: *const f32,
    /// From one `k` of `B` to the next.
    pub(crate) b_step: usize,
    /// From one vector of `B` to the next.
    pub(crate) b_vector: usize,
}

impl Operands {
    /// The part of `A`.
    #[inline(always)]
    pub(crate) fn rows(&self) -> Rows<f32> {
        Rows { at: self.a, row: self.a_row, step: self.a_step }
    }
}

/// [`multiply`] of one panel of floats that asks memory for nothing.
///
/// # Safety
/// As [`multiply`].
#[inline(always)]
pub(crate) unsafe fn tile<S: SimdF32, const MR: usize, const NV: usize>(
    s: S,
    acc: Tile<S, MR, NV>,
    depth: usize,
    operands: Operands,
) -> Tile<S, MR, NV> {
    // SAFETY: the caller's contract.
    unsafe { tile_prefetched(s, acc, depth, operands, ()) }
}

/// [`multiply`] of one panel of floats.
///
/// # Safety
/// As [`multiply`].
#[inline(always)]
pub(crate) unsafe fn tile_prefetched<S: SimdF32, Q: Prefetch, const MR: usize, const NV: usize>(
    s: S,
    acc: Tile<S, MR, NV>,
    depth: usize,
    operands: Operands,
    ahead: Q,
) -> Tile<S, MR, NV> {
    let Operands { b, b_step, b_vector, .. } = operands;
    let panel = Panels { at: [b], step: b_step, vector: b_vector };
    // SAFETY: the caller's contract.
    let [acc] = unsafe { multiply(F32Operand(s), [acc], depth, operands.rows(), panel, ahead) };
    acc
}
