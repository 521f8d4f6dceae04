//! The online softmax: from scores to weights, one block of keys after the other.

use super::flash::KEY_BLOCK;
use crate::gemm::MAX_ROWS;
use crate::lanes::Lanes;
use crate::math::exp_nonpositive;

/// Running maximum and sum of the weights of one query.
#[derive(Clone, Copy)]
pub(super) struct Running {
    pub(super) maximum: f32,
    pub(super) sum: f32,
}

impl Running {
    pub(super) const START: Self = Self { maximum: f32::NEG_INFINITY, sum: 0.0 };
}

/// What exponents are taken relative to: 0 while no key has been seen, since
/// `-inf - -inf` is NaN.
#[inline(always)]
pub(super) fn base(maximum: f32) -> f32 {
    if maximum == f32::NEG_INFINITY { 0.0 } else { maximum }
}

/// Turns the scores of `MR` queries into weights relative to their new maxima, adds them to the
/// running sums, and returns the factors for what was accumulated under the old maxima.
///
/// `lines` has a line of [`KEY_BLOCK`] for each query, of which `vectors` vectors are scores.
#[inline(always)]
pub(super) fn exponentials<S: Lanes, const MR: usize>(
    s: S,
    lines: &mut [f32; MAX_ROWS * KEY_BLOCK],
    vectors: usize,
    highest: [S::F32; MR],
    running: &mut [Running],
) -> [f32; MR] {
    let mut old = [f32::NEG_INFINITY; MR];
    let mut relative_to = [s.splat(0.0); MR];
    for (i, running) in running.iter_mut().take(MR).enumerate() {
        old[i] = running.maximum;
        let highest = s.reduce_max(highest[i]);
        if highest > running.maximum {
            running.maximum = highest;
        }
        relative_to[i] = s.splat(base(running.maximum));
    }
    let mut total = [s.splat(0.0); MR];
    let vectors = vectors.min(KEY_BLOCK / S::LANES);
    for v in 0..vectors {
        for i in 0..MR {
            // SAFETY: inside line `i`.
            unsafe {
                let at = lines.as_mut_ptr().add(i * KEY_BLOCK + v * S::LANES);
                let x = exp_nonpositive(s, s.sub(s.load(at), relative_to[i]));
                total[i] = s.add(total[i], x);
                s.store(at, x);
            }
        }
    }
    let mut correction = [1.0; MR];
    for (i, running) in running.iter_mut().take(MR).enumerate() {
        if old[i] == f32::NEG_INFINITY {
            // Nothing was accumulated before.
            correction[i] = 0.0;
        } else if running.maximum != old[i] {
            let change = s.splat(old[i] - base(running.maximum));
            correction[i] = s.reduce_max(exp_nonpositive(s, change));
        }
        running.sum = running.sum * correction[i] + s.reduce_add(total[i]);
    }
    correction
}
