//! The two passes over a row of logits: its sums, and the gradient that overwrites it.

use super::smoothing::{IGNORED, RowLoss, TargetProbs};
use crate::math::{EXP_ZERO, exp_from, exp_nonpositive, exp_shift};
use crate::row_tasks::RowPtrs;
use crate::rows::{UNROLL, fold_lanes, map_slice};
use crate::simd::{SimdF32, simd_op};
use crate::softmax::block_max;
use core::ops::Range;

/// Columns in one block. The block is small because rounding errors grow with the additions in a lane.
const BLOCK: usize = 1024;

/// The sums of a row.
#[derive(Clone, Copy)]
struct LogitSums {
    /// The largest logit; 0 when all are negative infinity.
    max: f32,
    /// The number of logits that equal the maximum.
    ties: f64,
    /// Sum of `e^(z - max)` over the other logits. NaN when a logit is NaN or positive infinity.
    tail: f64,
    /// Sum of `max - z` over all logits.
    distance: f64,
}

/// The sums of a block of `len` logits, none of them above `max`.
///
/// # Safety
/// `from` is valid for reads of `len` floats.
#[inline(always)]
unsafe fn block_sums<S: SimdF32>(s: S, from: *const f32, len: usize, max: f32) -> LogitSums {
    let (zero, one) = (s.splat(0.0), s.splat(1.0));
    let shift = s.splat(max);
    // One vector of virtual lanes at a time: all of them would not fit the registers.
    let sums = fold_lanes::<S, 1, 3, 1, 1>(
        s,
        len,
        &[],
        #[inline(always)]
        |_, at, [ties, tail, distance]| {
            // SAFETY: the caller's contract.
            let x = s.sub(unsafe { at.load(s, from) }, shift);
            // NaN is not less either: it counts as a tie whose exponential is not 1.
            let tie = s.select(s.less(x, zero), zero, one);
            *ties = s.add(*ties, at.zero_rest(s, tie));
            let e = s.sub(exp_nonpositive(s, x), tie);
            *tail = s.add(*tail, at.zero_rest(s, e));
            *distance = s.sub(*distance, at.zero_rest(s, x));
        },
    );
    let [ties, tail, distance] = sums.map(|[sum]| f64::from(sum));
    LogitSums { max, ties, tail, distance }
}

/// # Safety
/// `from` is valid for reads of `len` floats.
#[inline(always)]
unsafe fn sums<S: SimdF32>(s: S, from: *const f32, len: usize) -> LogitSums {
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
        let part = unsafe { block_sums(s, block, count, exp_shift(max)) };
        ties += part.ties;
        tail += part.tail;
        distance += part.distance;
        start += count;
    }
    LogitSums { max: exp_shift(max), ties, tail, distance }
}

/// `factor * e^(x - shift) - other`; the exponential is 0 where the product would be subnormal.
#[derive(Clone, Copy)]
struct Gradient {
    shift: f32,
    lowest: f32,
    factor: f32,
    minus_other: f32,
}

impl Gradient {
    #[inline(always)]
    fn compute_at<S: SimdF32>(self, s: S, x: S::F32) -> S::F32 {
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
        rows: Range<usize>,
        columns: usize,
        targets: &[u32],
        target_probs: TargetProbs,
        scale: Option<f32>,
        losses: &mut [RowLoss],
    ) {
        for (row, (&target, loss)) in rows.zip(targets.iter().zip(losses)) {
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
                    let (gradient, at_target) = gradient(&sums, z, target_probs, f64::from(scale));
                    map_slice::<S, UNROLL>(
                        s,
                        logits,
                        logits,
                        columns,
                        #[inline(always)]
                        |x| gradient.compute_at(s, x),
                    );
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
    sums: &LogitSums,
    target_probs: TargetProbs,
) -> RowLoss {
    let &LogitSums { max, ties, tail, distance } = sums;
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
fn gradient(sums: &LogitSums, z: f32, target_probs: TargetProbs, scale: f64) -> (Gradient, f32) {
    let &LogitSums { max, ties, tail, .. } = sums;
    let sum = ties + tail;
    let factor = scale / sum;
    // Products below the smallest normal number become 0, also if `factor` is NaN.
    let smallest = libm::log(f64::from(f32::MIN_POSITIVE) / factor.abs()) as f32;
    // If one argument of `f32::max` is NaN, the result is the other.
    let lowest = smallest.max(EXP_ZERO);
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
