//! The tile: up to six rows of `A` times one panel of `B`, in registers (the micro-kernel).
//!
//! In each step of `k`, a tile of `MR` rows and `NV` vectors loads `NV` vectors of `B`, broadcasts `MR` elements of `A`
//! and does `MR * NV` fused multiply-adds. On AVX-512, 6 x 4 vectors use 24 of 32 registers as accumulators, with 10
//! loads per 24 FMAs; the CPU does two loads and two FMAs per cycle. On AVX2, 6 x 2 vectors use 12 of 16 registers,
//! with 8 loads per 12 FMAs.
//!
//! [`multiply`] is this loop for all kernels that multiply by panels and for all weight dtypes. Only products with rows
//! of different lengths have loops of their own: causal diagonals, masked keys, and few keys in registers (`attention`).
//! Its callers supply three small traits:
//!
//! * [`TileOperand`]: how a vector of weights is loaded and accumulated. [`F32Operand`] is f32 times f32, `F16Operand`
//!   f32 times 16-bit numbers; the pruning table multiplies int8 by int8.
//! * [`Prefetch`]: which cache lines are prefetched (`prefetch.rs`).
//! * [`PerStepWork`]: what else each step does.

use crate::matrix::Matrix;
use crate::prefetch::Prefetch;
use crate::simd::SimdF32;

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

/// Defines the items of a [`TileOperand`] whose elements are f32, for a tuple whose first field is the token.
macro_rules! f32_elements {
    () => {
        type SimdF32 = S;
        type Element = f32;
        type Vector = S::F32;
        type Sum = S::F32;

        #[inline(always)]
        fn lanes(self) -> S {
            self.0
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
    };
}
pub(super) use f32_elements;

/// f32 times f32.
#[derive(Clone, Copy)]
pub(crate) struct F32Operand<S>(pub(crate) S);

impl<S: SimdF32> TileOperand for F32Operand<S> {
    f32_elements!();
    type Weight = f32;

    #[inline(always)]
    unsafe fn load(self, from: *const f32, _: usize) -> S::F32 {
        // SAFETY: `# Safety` of this function.
        unsafe { self.0.load(from) }
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

impl<T> Panels<T, 1> {
    /// A panel from `at` on.
    #[inline(always)]
    pub(crate) fn from_ptr(at: *const T, step: usize, vector: usize) -> Self {
        Self { at: [at], step, vector }
    }

    /// The panel from step `k` on.
    #[inline(always)]
    pub(crate) fn skip(self, k: usize) -> Self {
        Self { at: [self.at[0].wrapping_add(k * self.step)], ..self }
    }
}

impl Rows<f32> {
    /// The rows of `matrix` from element `(row, k)` on.
    #[inline(always)]
    pub(super) fn from_matrix(matrix: &Matrix<'_>, row: usize, k: usize) -> Self {
        let (stride, step) = (matrix.row_stride(), matrix.column_stride());
        Self { at: matrix.as_ptr().wrapping_add(row * stride + k * step), row: stride, step }
    }
}

impl<T> Rows<T> {
    /// The rows from step `k` on.
    #[inline(always)]
    pub(crate) fn skip(self, k: usize) -> Self {
        Self { at: self.at.wrapping_add(k * self.step), ..self }
    }
}

/// Work of each step of a tile besides the product, such as copying a row that the tile reads. Implementations are
/// `#[inline(always)]`.
pub(crate) trait PerStepWork: Copy {
    /// Does the work of the next step.
    ///
    /// # Safety
    /// It is called for the steps of one tile, in order and once for each.
    unsafe fn do_step<S: SimdF32>(&mut self, s: S);
}

/// Nothing.
impl PerStepWork for () {
    #[inline(always)]
    unsafe fn do_step<S: SimdF32>(&mut self, _: S) {}
}

/// `acc[p][i][v] += sum over k of rows[i, k] * panels[p][k, v]`, `k` from 0 to `depth - 1` in order. Several panels are
/// for tiles of few rows, which have too few independent chains of additions with one. `prefetch` is issued before each
/// step of a whole period ([`Prefetch::PERIOD`]).
///
/// # Safety
/// Rows `0..MR` and steps `0..depth` of `A`, and vectors `0..NV` of full width at steps `0..depth`
/// of each panel of `B`, are valid for reads.
#[inline(always)]
pub(crate) unsafe fn multiply<F, Q, const P: usize, const MR: usize, const NV: usize>(
    operand: F,
    acc: [[[F::Sum; NV]; MR]; P],
    depth: usize,
    rows: Rows<F::Element>,
    panels: Panels<F::Weight, P>,
    prefetch: Q,
) -> [[[F::Sum; NV]; MR]; P]
where
    F: TileOperand,
    Q: Prefetch,
{
    // SAFETY: `# Safety` of this function.
    let [acc] = unsafe { multiply_in_phases(operand, [acc], depth, rows, panels, prefetch, ()) };
    acc
}

/// [`multiply`] with `PHASES` sums for each element, and with `work` in every step. Step `k` is added to sum
/// `k % PHASES`; the remainder of `depth` is added to the first sum. Several phases are for few rows, whose chains of
/// additions are too few to use the whole throughput of the CPU, and for sums that do not depend on their order.
///
/// # Safety
/// As [`multiply`], and the `# Safety` contract of `work`.
#[inline(always)]
pub(crate) unsafe fn multiply_in_phases<
    F: TileOperand,
    Q: Prefetch,
    W: PerStepWork,
    const PHASES: usize,
    const P: usize,
    const MR: usize,
    const NV: usize,
>(
    operand: F,
    mut phases: [[[[F::Sum; NV]; MR]; P]; PHASES],
    depth: usize,
    mut rows: Rows<F::Element>,
    mut panels: Panels<F::Weight, P>,
    mut prefetch: Q,
    mut work: W,
) -> [[[[F::Sum; NV]; MR]; P]; PHASES] {
    let period = const {
        assert!(F::PARTS == 1 || PHASES == 1);
        let mut period = Q::PERIOD;
        let others = [F::PARTS, PHASES];
        let mut i = 0;
        while i < others.len() {
            assert!(period.is_multiple_of(others[i]) || others[i].is_multiple_of(period));
            period = if period > others[i] { period } else { others[i] };
            i += 1;
        }
        period
    };
    for _ in 0..depth / period {
        for part in 0..period {
            prefetch.issue(operand.lanes(), part % Q::PERIOD);
            // SAFETY: `# Safety` of this function.
            unsafe {
                work.do_step(operand.lanes());
                step(operand, &mut phases[part % PHASES], &mut rows, &mut panels, part);
            }
        }
    }
    for part in 0..depth % period {
        // SAFETY: `# Safety` of this function.
        unsafe {
            work.do_step(operand.lanes());
            step(operand, &mut phases[0], &mut rows, &mut panels, part);
        }
    }
    phases
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
    // An index: with an iterator, the compiler keeps a sum of three rows and two panels of f16 on the stack on AVX2.
    for p in 0..P {
        let (tile, at) = (&mut acc[p], panels.at[p]);
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
        // SAFETY: `# Safety` of this function.
        let mut vectors = [unsafe { operand.load(at, part) }; NV];
        for (v, vector) in vectors.iter_mut().enumerate().skip(1) {
            // SAFETY: `# Safety` of this function.
            *vector = unsafe { operand.load(at.add(v * panels.vector), part) };
        }
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
