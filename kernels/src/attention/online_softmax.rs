//! The online softmax: computes weights from scores, one block of keys after the other. It keeps a running maximum and
//! sum, with which earlier blocks are rescaled when a later block has a larger maximum.

use super::bias::BiasRows;
use crate::math::{exp_nonpositive, exp_shift};
use crate::simd::{MAX_LANES, MAX_MR, MOST_PARTS, simd_op};

/// Keys in one block. A block of keys and values of 64 dimensions is 128 KiB, a share of the second-level cache. Most
/// sentences have one block, which is never rescaled.
pub(super) const KEY_BLOCK: usize = 256;

/// Keys `key..key + len` of a sequence.
#[derive(Clone, Copy)]
pub(super) struct KeyBlock {
    pub(super) key: usize,
    pub(super) len: usize,
    /// First key that is multiplied after this block.
    pub(super) next: usize,
}

/// For each query of a tile, a line of [`KEY_BLOCK`] scores, which weights replace.
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

    /// Whether the query sees no key, or only keys with a score of minus infinity. The largest weight is 1, so any
    /// other sum is at least 1, or NaN.
    #[inline(always)]
    pub(super) fn is_fully_masked(self) -> bool {
        self.sum == 0.0
    }

    /// The maximum that was subtracted from the scores, and the reciprocal of the sum of the weights. Both are 0 for a
    /// fully masked query, and for no other.
    #[inline(always)]
    pub(super) fn saved(self) -> (f32, f32) {
        if self.is_fully_masked() { (0.0, 0.0) } else { (exp_shift(self.maximum), 1.0 / self.sum) }
    }
}

/// Factors of an output row.
#[derive(Clone, Copy)]
pub(super) struct Factors {
    /// Before the values of a block are added: rescales the sums of earlier blocks to the new maximum.
    pub(super) before: f32,
    /// After they are added: the reciprocal of the sum of all weights for the last block, else 1.
    pub(super) after: f32,
}

simd_op!(
    /// Adds the biases to the scores of a tile of queries with a block of keys, which begin at `place = (query, key)`,
    /// and replaces the scores of keys that a query does not see with minus infinity. Query `i` of the tile sees `seen[i]` keys of the
    /// block; its scores are `vectors` vectors of line `i`. Without a bias, and if every query sees all keys of its
    /// vectors, nothing changes.
    ///
    /// This is a separate pass over data in the first-level cache: the products of queries and keys have no registers
    /// for it.
    ///
    /// # Safety
    /// `lines` is valid for reads and writes of a line for each query. The bias has a value for each key that a query
    /// sees, and the last query sees a key of each vector.
    pub(super) unsafe fn mask_scores<S: SimdF32>(
        s: S,
        bias: Option<BiasRows>,
        place: (usize, usize),
        seen: &[usize],
        vectors: usize,
        lines: *mut f32,
    ) {
        let (row, key) = place;
        for (i, &seen) in seen.iter().enumerate() {
            let line = lines.wrapping_add(i * KEY_BLOCK);
            let start = if bias.is_some() { 0 } else { seen / S::LANES };
            for v in start..vectors {
                let first = v * S::LANES;
                let count = seen.saturating_sub(first).min(S::LANES);
                // SAFETY: the caller's contract; the vector is inside the line. Whole vectors of biases are only read
                // where the last query of the tile sees a key of them (`BiasRows::whole`).
                unsafe {
                    let mut x = s.load(line.add(first));
                    if let Some(bias) = bias {
                        x = bias.add_to(s, x, (row + i, key + first), count);
                    }
                    if count < S::LANES {
                        // The bias may have any value past the visible keys.
                        x = s.select(s.first(count), x, s.splat(f32::NEG_INFINITY));
                    }
                    s.store(line.add(first), x);
                }
            }
        }
    }
);

simd_op!(
    /// Replaces the scores of `MR` queries with weights relative to their new maxima, and adds the weights to the
    /// running sums. Returns the factors of the output rows; `last` is whether the block is the last one of the rows.
    ///
    /// The line of each query in `lines` has `vectors` vectors of scores. It is a function of its own because all dtypes
    /// of keys, and tiles as well as decode steps, share it.
    pub(super) fn exponentials<S: SimdF32, const MR: usize>(
        s: S,
        lines: &mut WeightLines,
        vectors: usize,
        running: &mut [Running],
        last: bool,
    ) -> [Factors; MR] {
        const {
            assert!(MR <= MAX_MR && KEY_BLOCK.is_multiple_of(S::LANES));
            assert!(MAX_LANES / S::LANES <= MOST_PARTS);
        };
        let lines = lines.0.as_mut_ptr();
        let vectors = vectors.min(KEY_BLOCK / S::LANES);
        let mut highest = [s.splat(f32::NEG_INFINITY); MR];
        for v in 0..vectors {
            for i in 0..MR {
                // SAFETY: `i < MR` and `v < KEY_BLOCK / LANES`, so the vector is inside line `i`.
                let x = unsafe { s.load(lines.add(i * KEY_BLOCK + v * S::LANES)) };
                highest[i] = s.max(x, highest[i]);
            }
        }
        let mut old = [f32::NEG_INFINITY; MR];
        let mut relative_to = [s.splat(0.0); MR];
        for (i, running) in running.iter_mut().take(MR).enumerate() {
            old[i] = running.maximum;
            let highest = s.reduce_max(highest[i]);
            if highest > running.maximum {
                running.maximum = highest;
            }
            relative_to[i] = s.splat(exp_shift(running.maximum));
        }
        let parts = MAX_LANES / S::LANES;
        let mut sums = [s.splat(0.0); MR];
        let mut pair = sums;
        for turn in 0..parts {
            // The order is that of `sum_of_lanes`, so that few sums wait in registers: of four parts, 0 and 2, then 1
            // and 3.
            let part = if parts == 4 { [0, 2, 1, 3][turn] } else { turn };
            let mut total = [s.splat(0.0); MR];
            let mut v = part;
            while v < vectors {
                for i in 0..MR {
                    // SAFETY: as above.
                    unsafe {
                        let at = lines.add(i * KEY_BLOCK + v * S::LANES);
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
        let mut factors = [Factors { before: 1.0, after: 1.0 }; MR];
        for (i, running) in running.iter_mut().take(MR).enumerate() {
            if old[i] == f32::NEG_INFINITY {
                // Nothing was accumulated before.
                factors[i].before = 0.0;
            } else if running.maximum != old[i] {
                let change = s.splat(old[i] - exp_shift(running.maximum));
                factors[i].before = s.reduce_max(exp_nonpositive(s, change));
            }
            running.sum = running.sum * factors[i].before + s.reduce_add(sums[i]);
            if last {
                factors[i].after = 1.0 / running.sum;
            }
        }
        factors
    }
);
