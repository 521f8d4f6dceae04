//! The tile: up to six rows of `A` times one panel of `B`, in registers (the micro-kernel).
//!
//! In each step of `k`, a tile of `MR` rows and `NV` vectors loads `NV` vectors of `B`, broadcasts `MR` elements of `A`
//! and does `MR * NV` fused multiply-adds. On AVX-512, 6 x 4 vectors use 24 of 32 registers as accumulators, with 10
//! loads per 24 FMAs; the CPU does two loads and two FMAs per cycle. On AVX2, 6 x 2 vectors use 12 of 16 registers,
//! with 8 loads per 12 FMAs.
//!
//! [`multiply`] is the only such loop. All kernels that multiply and all weight dtypes use it. Its callers supply two
//! small traits:
//!
//! * [`TileOperand`]: how a vector of weights is loaded and accumulated. [`F32Operand`] is f32 times f32, [`F16Operand`] f32
//!   times 16-bit numbers; the pruning
//!   table multiplies int8 by int8.
//! * [`Prefetch`]: which cache lines are prefetched (`prefetch.rs`).

use crate::prefetch::Prefetch;
use crate::simd::SimdF32;
use crate::simd::half::F16Load;
use core::marker::PhantomData;

/// The accumulators of a tile.
pub(crate) type Tile<S, const MR: usize, const NV: usize> = [[<S as SimdF32>::F32; NV]; MR];

/// A weight dtype in a tile. Implementations are `#[inline(always)]`.
pub(crate) trait TileOperand: Copy {
    /// The f32 vectors of the same instruction set.
    type SimdF32: SimdF32;
    /// An element of `A`.
    type Element: Copy;
    /// An element of `B` in memory.
    type Weight: Copy;
    /// A vector of elements or of weights, as an operand of the multiplication.
    type Vector: Copy;
    /// A vector of sums of their products.
    type Sum: Copy;
    /// Steps of `k` that share one vector of memory.
    const PARTS: usize = 1;
    /// Whether a step of a tile that is wider than tall keeps its elements of `A` in registers and loads the weights
    /// one by one, instead of keeping the weights. This is for operands where one vector of weights takes several
    /// registers.
    const A_STATIONARY: bool = false;
    /// Whether a load is a single instruction on every instruction set.
    const ONE_INSTRUCTION: bool = false;

    /// The instruction set token of [`TileOperand::SimdF32`].
    fn lanes(self) -> Self::SimdF32;
    /// One vector of weights of step `part % PARTS`, out of the steps that share the memory at `from`.
    ///
    /// # Safety
    /// `from` is valid for reads of a vector.
    unsafe fn load(self, from: *const Self::Weight, part: usize) -> Self::Vector;
    /// The element at `from` in all lanes.
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
        // SAFETY: `# Safety` of this function.
        unsafe { self.0.load(from) }
    }
    #[inline(always)]
    unsafe fn broadcast(self, from: *const f32) -> S::F32 {
        // SAFETY: `# Safety` of this function.
        self.0.splat(unsafe { *from })
    }
    #[inline(always)]
    fn multiply_add(self, element: S::F32, weights: S::F32, sum: S::F32) -> S::F32 {
        self.0.mul_add(element, weights, sum)
    }
}

/// f32 times bf16 or f16, of which `PARTS` steps share a vector of memory.
#[derive(Clone, Copy)]
pub(crate) struct F16Operand<S, L, const PARTS: usize>(S, PhantomData<L>);

impl<S, L, const PARTS: usize> F16Operand<S, L, PARTS> {
    #[inline(always)]
    pub(crate) fn new(s: S) -> Self {
        Self(s, PhantomData)
    }
}

impl<S: SimdF32, L: F16Load, const PARTS: usize> TileOperand for F16Operand<S, L, PARTS> {
    type SimdF32 = S;
    type Element = f32;
    type Weight = u16;
    type Vector = S::F32;
    type Sum = S::F32;
    const PARTS: usize = PARTS;

    #[inline(always)]
    fn lanes(self) -> S {
        self.0
    }
    #[inline(always)]
    unsafe fn load(self, from: *const u16, part: usize) -> S::F32 {
        // SAFETY: `# Safety` of this function.
        unsafe { L::load(self.0, from.cast(), part % PARTS) }
    }
    #[inline(always)]
    unsafe fn broadcast(self, from: *const f32) -> S::F32 {
        // SAFETY: `# Safety` of this function.
        self.0.splat(unsafe { *from })
    }
    #[inline(always)]
    fn multiply_add(self, element: S::F32, weights: S::F32, sum: S::F32) -> S::F32 {
        self.0.mul_add(element, weights, sum)
    }
}

/// The rows of `A` of a tile, in elements.
#[derive(Clone, Copy)]
pub(crate) struct Rows<T> {
    /// Row 0.
    pub(crate) at: *const T,
    /// Stride between rows.
    pub(crate) row: usize,
    /// Stride between steps of `k`.
    pub(crate) step: usize,
}

/// `P` panels of `B`, in elements.
#[derive(Clone, Copy)]
pub(crate) struct Panels<T, const P: usize> {
    /// Vector 0 of each panel.
    pub(crate) at: [*const T; P],
    /// Stride between steps of `k`, or between groups of [`TileOperand::PARTS`] steps.
    pub(crate) step: usize,
    /// Stride between the vectors of a panel.
    pub(crate) vector: usize,
}

/// `acc[p][i][v] += sum over k of rows[i, k] * panels[p][k, v]`, `k` from 0 to `depth - 1` in order. `prefetch` is
/// issued before each step. `P` is 1 except for a single row, because one panel gives a single row too few independent
/// chains of additions.
///
/// # Safety
/// Rows `0..MR` and steps `0..depth` of `A`, and vectors `0..NV` of full width at steps `0..depth`
/// of each panel of `B`, are valid for reads.
#[inline(always)]
pub(crate) unsafe fn multiply<F, Q, const P: usize, const MR: usize, const NV: usize>(
    operand: F,
    mut acc: [[[F::Sum; NV]; MR]; P],
    depth: usize,
    mut rows: Rows<F::Element>,
    mut panels: Panels<F::Weight, P>,
    mut prefetch: Q,
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
            prefetch.issue(operand.lanes(), part % Q::PERIOD);
            // SAFETY: `# Safety` of this function.
            unsafe { step(operand, &mut acc, &mut rows, &mut panels, part) };
        }
    }
    for part in 0..depth % period {
        // SAFETY: `# Safety` of this function.
        unsafe { step(operand, &mut acc, &mut rows, &mut panels, part) };
    }
    acc
}

/// [`multiply`] of one panel with `PHASES` sums for each element. The first sums start as `acc` and the others as
/// `zero`. Step `k` is added to sum `k % PHASES`; the remainder of `depth` is added to the first sum. It is for few
/// rows, whose chains of additions are too few to use the whole throughput of the CPU, and for sums that do not depend
/// on their order.
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
    operand: F,
    (acc, zero): ([[F::Sum; NV]; MR], F::Sum),
    depth: usize,
    mut rows: Rows<F::Element>,
    mut panel: Panels<F::Weight, 1>,
    mut prefetch: Q,
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
            prefetch.issue(operand.lanes(), part % Q::PERIOD);
            // SAFETY: `# Safety` of this function.
            unsafe { step(operand, &mut phases[part % PHASES], &mut rows, &mut panel, 0) };
        }
    }
    for _ in 0..depth % period {
        // SAFETY: `# Safety` of this function.
        unsafe { step(operand, &mut phases[0], &mut rows, &mut panel, 0) };
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
/// As [`multiply`], for one step.
#[inline(always)]
unsafe fn step<F: TileOperand, const P: usize, const MR: usize, const NV: usize>(
    operand: F,
    acc: &mut [[[F::Sum; NV]; MR]; P],
    rows: &mut Rows<F::Element>,
    panels: &mut Panels<F::Weight, P>,
    part: usize,
) {
    // The element that all panels share.
    // SAFETY: `# Safety` of this function: there is at least one row.
    let only = if const { MR == 1 } { Some(unsafe { operand.broadcast(rows.at) }) } else { None };
    for (tile, at) in acc.iter_mut().zip(panels.at) {
        if const { F::A_STATIONARY && MR < NV } {
            // SAFETY: `# Safety` of this function.
            let mut elements = [unsafe { operand.broadcast(rows.at) }; MR];
            for (i, element) in elements.iter_mut().enumerate().skip(1) {
                // SAFETY: `# Safety` of this function.
                *element = unsafe { operand.broadcast(rows.at.add(i * rows.row)) };
            }
            for v in 0..NV {
                // SAFETY: `# Safety` of this function.
                let vector = unsafe { operand.load(at.add(v * panels.vector), part) };
                for i in 0..MR {
                    tile[i][v] = operand.multiply_add(elements[i], vector, tile[i][v]);
                }
            }
            continue;
        }
        let vectors: [_; NV] = if const { F::ONE_INSTRUCTION } {
            // SAFETY: `# Safety` of this function.
            core::array::from_fn(|v| unsafe { operand.load(at.add(v * panels.vector), part) })
        } else {
            // If a load takes several instructions, a closure would compile to a function call.
            // SAFETY: `# Safety` of this function.
            let mut vectors = [unsafe { operand.load(at, part) }; NV];
            for (v, vector) in vectors.iter_mut().enumerate().skip(1) {
                // SAFETY: `# Safety` of this function.
                *vector = unsafe { operand.load(at.add(v * panels.vector), part) };
            }
            vectors
        };
        for (i, line) in tile.iter_mut().enumerate() {
            let element = match only {
                Some(element) => element,
                // SAFETY: `# Safety` of this function.
                None => unsafe { operand.broadcast(rows.at.add(i * rows.row)) },
            };
            for (sum, vector) in line.iter_mut().zip(vectors) {
                *sum = operand.multiply_add(element, vector, *sum);
            }
        }
    }
    // After the last step these pointers are not read; they may be outside the operands.
    rows.at = rows.at.wrapping_add(rows.step);
    if part % F::PARTS == F::PARTS - 1 {
        for at in &mut panels.at {
            *at = at.wrapping_add(panels.step);
        }
    }
}

/// The operands of a tile, with strides in elements.
#[derive(Clone, Copy)]
pub(crate) struct Operands {
    /// Row 0 of `A`.
    pub(crate) a: *const f32,
    /// Stride between rows of `A`.
    pub(crate) a_row: usize,
    /// Stride between steps of `k` in `A`.
    pub(crate) a_step: usize,
    /// Vector 0 of `B`.
    pub(crate) b: *const f32,
    /// Stride between steps of `k` in `B`.
    pub(crate) b_step: usize,
    /// Stride between vectors of `B`.
    pub(crate) b_vector: usize,
}

impl Operands {
    /// The rows of `A`.
    #[inline(always)]
    pub(crate) fn rows(&self) -> Rows<f32> {
        Rows { at: self.a, row: self.a_row, step: self.a_step }
    }
}

/// [`multiply`] of one f32 panel.
///
/// # Safety
/// As [`multiply`].
#[inline(always)]
pub(crate) unsafe fn tile_prefetched<S: SimdF32, Q: Prefetch, const MR: usize, const NV: usize>(
    s: S,
    acc: Tile<S, MR, NV>,
    depth: usize,
    operands: Operands,
    prefetch: Q,
) -> Tile<S, MR, NV> {
    let Operands { b, b_step, b_vector, .. } = operands;
    let panel = Panels { at: [b], step: b_step, vector: b_vector };
    // SAFETY: `# Safety` of this function.
    let [acc] = unsafe { multiply(F32Operand(s), [acc], depth, operands.rows(), panel, prefetch) };
    acc
}
