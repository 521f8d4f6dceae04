//! The two passes over a row of logits: its sums, and the gradient that overwrites it.

use super::smoothing::{IGNORED, RowLoss, TargetProbs};
use crate::math::{EXP_LOWEST, exp_from};
use crate::row_tasks::{Map, RowPtrs, map_slice};
use crate::simd::{MAX_LANES, SimdF32, simd_op};
use crate::softmax::block_max;

/// Columns in one block. The block is small because rounding errors grow with the additions in a lane.
const BLOCK: usize = 1024;

/// The number of virtual lanes, on every instruction set: element `i` of a row belongs to lane `i % VIRTUAL`.
const VIRTUAL: usize = 64;
/// The largest number of vectors for the virtual lanes: that of a set with four lanes.
const MOST: usize = VIRTUAL / 4;

/// The virtual lanes as vectors, the first `VIRTUAL / LANES` of them.
struct VirtualLanes<S: SimdF32>([S::F32; MOST]);

impl<S: SimdF32> VirtualLanes<S> {
    #[inline(always)]
    fn zero(s: S) -> Self {
        const { assert!(VIRTUAL.is_multiple_of(S::LANES) && VIRTUAL / S::LANES <= MOST) };
        Self([s.splat(0.0); MOST])
    }

    /// Sets the lanes from `vector * LANES` on.
    #[inline(always)]
    fn set(&mut self, vector: usize, lanes: S::F32) {
        self.0[vector] = lanes;
    }

    /// The sum of all lanes by halving: lane `i` and lane `i + 32`, then 16, 8, 4, 2, 1.
    #[inline(always)]
    fn sum(mut self, s: S) -> f32 {
        let mut vectors = VIRTUAL / S::LANES;
        while vectors > 1 {
            vectors /= 2;
            for i in 0..vectors {
                self.0[i] = s.add(self.0[i], self.0[i + vectors]);
            }
        }
        let mut lanes = [0.0f32; MAX_LANES];
        // SAFETY: `lanes` has `MAX_LANES` floats, enough for the widest vector.
        unsafe { s.store(lanes.as_mut_ptr(), self.0[0]) };
        let mut left = S::LANES;
        while left > 1 {
            left /= 2;
            for i in 0..left {
                lanes[i] += lanes[i + left];
            }
        }
        lanes[0]
    }
}

/// The sums of a row.
#[derive(Clone, Copy)]
struct Sums {
    /// The largest logit; 0 when all are negative infinity.
    max: f32,
    /// The number of logits that equal the maximum.
    ties: f64,
    /// Sum of `e^(z - max)` over the other logits. NaN when a logit is NaN or positive infinity.
    tail: f64,
    /// Sum of `max - z` over all logits.
    distance: f64,
}

/// The value that is subtracted from logits whose maximum is `max`: the maximum itself, except for negative infinity,
/// because negative infinity minus itself is NaN.
#[inline(always)]
fn shift_of(max: f32) -> f32 {
    if max == f32::NEG_INFINITY { 0.0 } else { max }
}

/// The sums of a block of `len` logits, none of them above `max`.
///
/// # Safety
/// `from` is valid for reads of `len` floats.
#[inline(always)]
unsafe fn block_sums<S: SimdF32>(s: S, from: *const f32, len: usize, max: f32) -> Sums {
    let (zero, one) = (s.splat(0.0), s.splat(1.0));
    let (shift, lowest) = (s.splat(max), s.splat(EXP_LOWEST));
    let (mut ties, mut tail) = (VirtualLanes::zero(s), VirtualLanes::zero(s));
    let mut distance = VirtualLanes::zero(s);
    // One vector of virtual lanes at a time: all of them would not fit the registers.
    for vector in 0..VIRTUAL / S::LANES {
        let (mut tied, mut rest, mut far) = (zero, zero, zero);
        let mut i = vector * S::LANES;
        while i + S::LANES <= len {
            // SAFETY: `i + LANES <= len`.
            let x = s.sub(unsafe { s.load(from.add(i)) }, shift);
            // NaN is not less either: it counts as a tie whose exponential is not 1.
            let tie = s.select(s.less(x, zero), zero, one);
            tied = s.add(tied, tie);
            rest = s.add(rest, s.sub(exp_from(s, x, lowest), tie));
            far = s.sub(far, x);
            i += VIRTUAL;
        }
        if i < len {
            let count = len - i;
            let inside = s.first(count);
            // SAFETY: `i + count <= len`, and `count < LANES`, as the loop has ended.
            let x = s.sub(unsafe { s.load_prefix(from.add(i), count) }, shift);
            let tie = s.select(s.less(x, zero), zero, one);
            tied = s.add(tied, s.select(inside, tie, zero));
            let e = s.sub(exp_from(s, x, lowest), tie);
            rest = s.add(rest, s.select(inside, e, zero));
            far = s.sub(far, s.select(inside, x, zero));
        }
        ties.set(vector, tied);
        tail.set(vector, rest);
        distance.set(vector, far);
    }
    let [ties, tail, distance] = [ties.sum(s), tail.sum(s), distance.sum(s)].map(f64::from);
    Sums { max, ties, tail, distance }
}

/// # Safety
/// `from` is valid for reads of `len` floats.
#[inline(always)]
unsafe fn sums<S: SimdF32>(s: S, from: *const f32, len: usize) -> Sums {
    let mut max = f32::NEG_INFINITY;
    let (mut ties, mut tail, mut distance) = (0.0, 0.0, 0.0);
    let mut start = 0;
    while start < len {
        let count = (len - start).min(BLOCK);
        // SAFETY: `start + count <= len`.
        let (block, largest) = unsafe {
            let block = from.add(start);
            (block, block_max(s, block, count))
        };
        if largest > max {
            if start > 0 {
                let rise = f64::from(largest) - f64::from(max);
                tail = (tail + ties) * libm::exp(-rise);
                distance += start as f64 * rise;
            }
            (max, ties) = (largest, 0.0);
        }
        // SAFETY: `start + count <= len`, and by the contract `len` floats can be read.
        let part = unsafe { block_sums(s, block, count, shift_of(max)) };
        ties += part.ties;
        tail += part.tail;
        distance += part.distance;
        start += count;
    }
    Sums { max: shift_of(max), ties, tail, distance }
}

/// `factor * e^(x - shift) - other`; the exponential is 0 where the product would be subnormal.
#[derive(Clone, Copy)]
struct Gradient {
    shift: f32,
    lowest: f32,
    factor: f32,
    minus_other: f32,
}

impl Map for Gradient {
    #[inline(always)]
    fn map<S: SimdF32>(self, s: S, x: S::F32) -> S::F32 {
        let e = exp_from(s, s.sub(x, s.splat(self.shift)), s.splat(self.lowest));
        s.mul_add(e, s.splat(self.factor), s.splat(self.minus_other))
    }
}

/// The nearest f32, or 0 if that is subnormal.
#[inline(always)]
fn narrow(x: f64) -> f32 {
    if x.abs() < f64::from(f32::MIN_POSITIVE) { 0.0 } else { x as f32 }
}

simd_op!(
    /// The losses of rows and, if there is a scale, the gradient, which overwrites the logits.
    pub(super) fn loss_rows<S: SimdF32>(
        s: S,
        logits: RowPtrs<'_>,
        columns: usize,
        targets: &[u32],
        target_probs: TargetProbs,
        scale: Option<f32>,
        losses: &mut [RowLoss],
    ) {
        for (row, (&target, loss)) in targets.iter().zip(losses).enumerate() {
            // SAFETY: `RowPtrs` and `check` checked for `cross_entropy` and `cross_entropy_loss` that the matrix has a
            // row of `columns` floats for each target and that a target is a column or `IGNORED`. `cross_entropy`
            // passes a scale and rows that only this task writes. `cross_entropy_loss` passes no scale, and then
            // nothing is written.
            unsafe {
                let logits = logits.row(row);
                if target == IGNORED {
                    if scale.is_some() {
                        logits.write_bytes(0, columns);
                    }
                    *loss = RowLoss::default();
                    continue;
                }
                let target = target as usize;
                let sums = sums(s, logits, columns);
                let z = *logits.add(target);
                *loss = row_loss(s, logits, target, &sums, target_probs);
                if let Some(scale) = scale {
                    let (map, at_target) = gradient(&sums, z, target_probs, f64::from(scale));
                    map_slice(s, map, logits, logits, columns);
                    *logits.add(target) = at_target;
                }
            }
        }
    }
);

/// The losses of a row with these sums.
///
/// # Safety
/// `logits` is valid for reads of more than `target` floats.
#[inline(always)]
unsafe fn row_loss<S: SimdF32>(
    s: S,
    logits: *const f32,
    target: usize,
    sums: &Sums,
    target_probs: TargetProbs,
) -> RowLoss {
    let &Sums { max, ties, tail, distance } = sums;
    // SAFETY: the caller's contract.
    let z = unsafe { *logits.add(target) };
    if ties == 0.0 {
        // A row with negative infinity alone is not a distribution.
        return RowLoss { loss: f64::NAN, nll: f64::NAN, correct: false };
    }
    let below = f64::from(max) - f64::from(z);
    let log_sum = libm::log1p((ties - 1.0) + tail);
    let nll = log_sum + below;
    let loss = if below == f64::INFINITY || target_probs.other == 0.0 {
        nll
    } else {
        // The target's weight is `1 - rest`, of which `other` is already in the sum over all columns.
        let at_target = 1.0 - target_probs.rest - target_probs.other;
        log_sum + at_target * below + target_probs.other * distance
    };
    let largest = z == max && !nll.is_nan();
    // SAFETY: the caller's contract: `logits` has more than `target` floats.
    let correct = largest && (ties == 1.0 || unsafe { block_max(s, logits, target) } < max);
    RowLoss { loss, nll, correct }
}

/// The gradient of the columns other than the target, and that of the target.
#[inline(always)]
fn gradient(sums: &Sums, z: f32, target_probs: TargetProbs, scale: f64) -> (Gradient, f32) {
    let &Sums { max, ties, tail, .. } = sums;
    let sum = ties + tail;
    let factor = scale / sum;
    // Products below the smallest normal number become 0, also if `factor` is NaN.
    let smallest = libm::log(f64::from(f32::MIN_POSITIVE) / factor.abs()) as f32;
    // If one argument of `f32::max` is NaN, the result is the other.
    let lowest = smallest.max(EXP_LOWEST);
    let map = Gradient {
        shift: max,
        lowest,
        factor: factor as f32,
        minus_other: -narrow(scale * target_probs.other),
    };
    // p - q = (e^(z - max) - q sum) / sum, without the terms that cancel: the exponential of the maximum, which is 1,
    // is removed from the sum, and 1 from both terms.
    let below = f64::from(z) - f64::from(max);
    let beyond = (ties - 1.0) + tail;
    let top = libm::expm1(below) + target_probs.rest - (1.0 - target_probs.rest) * beyond;
    (map, narrow(factor * top))
}
