//! The online softmax: from scores to weights, one block of keys after the other, with the running
//! maximum and sum that let an earlier block be put right when a later one has a larger maximum.

use crate::gemm::MAX_MR;
use crate::math::exp_nonpositive;
use crate::simd::{MAX_LANES, MOST_PARTS, SimdF32};

/// Keys in one block: a block of keys and values of 64 dimensions is 128 KiB, a share of the
/// second-level cache; most sentences are one block, which never rescales.
pub(super) const KEY_BLOCK: usize = 256;

/// Keys `key..key + len` of a sequence.
#[derive(Clone, Copy)]
pub(super) struct Block {
    pub(super) key: usize,
    pub(super) len: usize,
    /// Where the keys begin that are multiplied after these.
    pub(super) next: usize,
}

/// A line of [`KEY_BLOCK`] scores, then weights, for each query of a tile.
#[repr(align(64))]
pub(super) struct WeightLines(pub(super) [f32; MAX_MR * KEY_BLOCK]);

impl WeightLines {
    pub(super) const fn new() -> Self {
        Self([0.0; MAX_MR * KEY_BLOCK])
    }
}

/// Running maximum and sum of the weights of one query.
#[derive(Clone, Copy)]
pub(super) struct Running {
    pub(super) maximum: f32,
    pub(super) sum: f32,
}

impl Running {
    pub(super) const START: Self = Self { maximum: f32::NEG_INFINITY, sum: 0.0 };

    /// Whether nothing has been weighed: no key was seen, or none with a score above minus infinity.
    /// The largest weight is 1, so any other sum is at least 1, or NaN.
    #[inline(always)]
    pub(super) fn is_fully_masked(self) -> bool {
        self.sum == 0.0
    }

    /// The maximum that weights are relative to and one over their sum: two zeros where nothing was weighed,
    /// which no other query has.
    #[inline(always)]
    pub(super) fn kept(self) -> (f32, f32) {
        if self.is_fully_masked() { (0.0, 0.0) } else { (base(self.maximum), 1.0 / self.sum) }
    }
}

/// What a row of output is multiplied by.
#[derive(Clone, Copy)]
pub(super) struct Factors {
    /// Before a block's values are added: what the sums of earlier blocks are worth under the new
    /// maximum.
    pub(super) before: f32,
    /// After it: with the last block, one over the sum of all weights, else 1.
    pub(super) after: f32,
}

/// `score + bias`, and minus infinity where the bias [`hides`](super::bias::hides) the key.
#[inline(always)]
pub(super) fn biased<S: SimdF32>(s: S, score: S::F32, bias: S::F32) -> S::F32 {
    let hidden = s.less(bias, s.splat(f32::MIN));
    s.select(hidden, s.splat(f32::NEG_INFINITY), s.add(score, bias))
}

/// What exponents are taken relative to: 0 while no score was above minus infinity, since
/// `-inf - -inf` is NaN.
#[inline(always)]
pub(super) fn base(maximum: f32) -> f32 {
    if maximum == f32::NEG_INFINITY { 0.0 } else { maximum }
}

/// Turns the scores of `MR` queries into weights relative to their new maxima, adds them to the
/// running sums, and returns the factors for what was accumulated under the old maxima.
///
/// Of the line of each query in `lines`, `vectors` vectors are scores.
#[inline(always)]
pub(super) fn exponentials<S: SimdF32, const MR: usize>(
    s: S,
    lines: &mut WeightLines,
    vectors: usize,
    highest: [S::F32; MR],
    running: &mut [Running],
) -> [f32; MR] {
    const {
        assert!(MR <= MAX_MR && KEY_BLOCK.is_multiple_of(S::LANES));
        assert!(MAX_LANES / S::LANES <= MOST_PARTS);
    };
    let lines = &mut lines.0;
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
    let vectors = vectors.min(KEY_BLOCK / S::LANES);
    let parts = MAX_LANES / S::LANES;
    let mut sums = [s.splat(0.0); MR];
    let mut pair = sums;
    for turn in 0..parts {
        // In the order of `sum_of_parts`, so that few sums wait: of four parts, 0 and 2, then 1 and 3.
        let part = if parts == 4 { [0, 2, 1, 3][turn] } else { turn };
        let mut total = [s.splat(0.0); MR];
        let mut v = part;
        while v < vectors {
            for i in 0..MR {
                // SAFETY: inside line `i`.
                unsafe {
                    let at = lines.as_mut_ptr().add(i * KEY_BLOCK + v * S::LANES);
                    let x = exp_nonpositive(s, s.sub(s.load(at), relative_to[i]));
                    total[i] = s.add(total[i], x);
                    s.store(at, x);
                }
            }
            v += parts;
        }
        for i in 0..MR {
            match turn {
                0 => sums[i] = total[i],
                1 => sums[i] = s.add(sums[i], total[i]),
                2 => pair[i] = total[i],
                _ => sums[i] = s.add(sums[i], s.add(pair[i], total[i])),
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
        running.sum = running.sum * correction[i] + s.reduce_add(sums[i]);
    }
    correction
}
