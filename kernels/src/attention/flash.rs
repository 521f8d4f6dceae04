//! Online-softmax attention of one head of one sequence.
//!
//! Keys go by in blocks counted from key 0, so that a query meets the same blocks whether it is one
//! of a thousand in a prefill or alone in a decode step, and gets the same bits. Within a block:
//! scores by the GEMM tile over key panels, the running maximum, exponentials, then the GEMM tile
//! over value rows; the output of earlier blocks is rescaled when the maximum has grown.
//!
//! Masks are loop bounds. Each query has a *limit*: it sees keys `0..limit`. A tile of queries with
//! different limits (on the causal diagonal) masks the scores past each limit, and multiplies
//! values row by row past the smallest one, so that the value of a hidden key is never read for a
//! query that may not see it: zero times NaN does not happen.

use crate::gemm::{MAX_ROWS, Operands, share, tile, tile_ahead};
use crate::lanes::Lanes;
use crate::math::exp_nonpositive;
use crate::softmax::FullyMasked;

/// Keys in one block: a block of keys and values of 64 dimensions is 128 KiB, a share of the
/// second-level cache; most sentences are one block, which never rescales.
pub(crate) const KEY_BLOCK: usize = 256;

/// Queries that pass over one block of keys before the next: they divide the traffic of keys and
/// values from outer caches.
pub(crate) const QUERY_BLOCK: usize = 48;

/// Vectors of scores in flight for a query that is alone.
const WIDE: usize = 8;

/// Scores of one tile of queries against one block of keys.
#[repr(align(64))]
pub(super) struct Scores(pub(super) [f32; MAX_ROWS * KEY_BLOCK]);

impl Scores {
    pub(super) const fn new() -> Self {
        Self([0.0; MAX_ROWS * KEY_BLOCK])
    }
}

/// Where the data of one head of one sequence is, in elements.
#[derive(Clone, Copy)]
pub(super) struct Head {
    pub(super) query: *const f32,
    pub(super) query_row: usize,
    /// `[ceil(keys / LANES)][head_dim][LANES]`, zero past the last key.
    pub(super) keys: *const f32,
    /// Probably the keys that are needed after these: a query that is alone asks memory for them.
    pub(super) next_keys: *const f32,
    /// Rows of `head_dim` rounded up to whole vectors.
    pub(super) values: *const f32,
    pub(super) value_row: usize,
    pub(super) out: *mut f32,
    pub(super) out_row: usize,
    pub(super) head_dim: usize,
    pub(super) scale: f32,
    /// Valid keys.
    pub(super) key_len: usize,
    /// Key rows that exist, valid or padding.
    pub(super) padded_len: usize,
    /// Keys that query 0 sees, before clamping to `0..=key_len`.
    pub(super) first_limit: isize,
    /// Keys that each further query sees more: 1 under a causal mask, else 0.
    pub(super) limit_step: isize,
    /// Added to the scores, `[queries][bias_row]`; null when there is none.
    pub(super) bias: *const f32,
    pub(super) bias_row: usize,
    pub(super) fully_masked: FullyMasked,
    /// Receives the normalised weights, `[queries][weights_row]`; null when nobody asked.
    pub(super) weights: *mut f32,
    pub(super) weights_row: usize,
    pub(super) weights_len: usize,
}

/// Running maximum and sum of a block of queries.
pub(super) struct Running {
    maximum: [f32; QUERY_BLOCK],
    sum: [f32; QUERY_BLOCK],
}

impl Running {
    pub(super) const fn new() -> Self {
        Self { maximum: [f32::NEG_INFINITY; QUERY_BLOCK], sum: [0.0; QUERY_BLOCK] }
    }
}

/// What exponents are taken relative to: 0 while no key has been seen, since
/// `-inf - -inf` is NaN.
#[inline(always)]
fn base(maximum: f32) -> f32 {
    if maximum == f32::NEG_INFINITY { 0.0 } else { maximum }
}

impl Head {
    /// Keys that query `row` sees.
    #[inline(always)]
    pub(super) fn limit(&self, row: usize) -> usize {
        let limit = self.first_limit + self.limit_step * row as isize;
        (limit.max(0) as usize).min(self.key_len)
    }

    /// Attends with queries `start..start + count`, `count <= QUERY_BLOCK`. What `scores` holds does not
    /// matter.
    ///
    /// # Safety
    /// Every pointer is valid for what its field says, for the instruction set of `S`; nobody else
    /// touches the outputs and weights of these queries.
    #[inline(always)]
    pub(super) unsafe fn attend<S: Lanes, const NV: usize>(
        &self,
        s: S,
        start: usize,
        count: usize,
        scores: &mut Scores,
    ) {
        let mut running = Running::new();
        let end = self.limit(start + count - 1);
        let tiles = count.div_ceil(MAX_ROWS);
        let mut key = 0;
        while key < end {
            let block = Block { key, len: (end - key).min(KEY_BLOCK) };
            for index in 0..tiles {
                let local = share(count, tiles, index);
                let (row, at) = (start + local.start, local.start);
                // SAFETY: the caller's contract.
                unsafe {
                    match local.len() {
                        1 => self.tile::<S, 1, NV>(s, block, row, at, &mut running, scores),
                        2 => self.tile::<S, 2, NV>(s, block, row, at, &mut running, scores),
                        3 => self.tile::<S, 3, NV>(s, block, row, at, &mut running, scores),
                        4 => self.tile::<S, 4, NV>(s, block, row, at, &mut running, scores),
                        5 => self.tile::<S, 5, NV>(s, block, row, at, &mut running, scores),
                        _ => self.tile::<S, 6, NV>(s, block, row, at, &mut running, scores),
                    }
                }
            }
            key += block.len;
        }
        for i in 0..count {
            // SAFETY: the caller's contract.
            unsafe { self.finish(s, start + i, running.maximum[i], running.sum[i]) };
        }
    }

    /// One tile of `MR` queries from `row` against one block of keys; `at` is the tile's place in
    /// `running`.
    ///
    /// # Safety
    /// As [`Head::attend`].
    #[inline(always)]
    unsafe fn tile<S: Lanes, const MR: usize, const NV: usize>(
        &self,
        s: S,
        block: Block,
        row: usize,
        at: usize,
        running: &mut Running,
        scores: &mut Scores,
    ) {
        // Keys of this block that each query sees; limits never decrease from row to row.
        let mut seen = [0; MR];
        for (i, n) in seen.iter_mut().enumerate() {
            *n = self.limit(row + i).saturating_sub(block.key).min(block.len);
        }
        let (fewest, most) = (seen[0], seen[MR - 1]);
        if most == 0 && block.key > 0 {
            return;
        }
        let vectors = most.div_ceil(S::LANES);
        let mut highest = [s.splat(f32::NEG_INFINITY); MR];
        let mut v = 0;
        while v < vectors {
            // SAFETY: panels up to `vectors` exist, and the scores have room for a whole block.
            unsafe {
                if MR == 1 && vectors - v >= WIDE {
                    self.scores::<S, MR, WIDE>(s, block, row, v, &seen, &mut highest, scores);
                    v += WIDE;
                } else if vectors - v >= NV {
                    self.scores::<S, MR, NV>(s, block, row, v, &seen, &mut highest, scores);
                    v += NV;
                } else {
                    self.scores::<S, MR, 1>(s, block, row, v, &seen, &mut highest, scores);
                    v += 1;
                }
            }
        }
        let mut correction = [1.0f32; MR];
        for i in 0..MR {
            let line = &mut scores.0[i * KEY_BLOCK..][..KEY_BLOCK];
            correction[i] = exponentials(
                s,
                line,
                seen[i].div_ceil(S::LANES),
                s.reduce_max(highest[i]),
                &mut running.maximum[at + i],
                &mut running.sum[at + i],
            );
        }
        // SAFETY: the caller's contract.
        unsafe {
            if self.bias.is_null() {
                self.values::<S, MR, NV>(s, block, row, fewest, &seen, &correction, scores);
            } else {
                for i in 0..MR {
                    self.values_where_seen(s, block, row + i, seen[i], correction[i], {
                        &scores.0[i * KEY_BLOCK..][..KEY_BLOCK]
                    });
                }
            }
        }
    }

    /// Scores of `G` vectors of keys from vector `v` of the block, scaled, biased and masked.
    ///
    /// # Safety
    /// As [`Head::attend`]; the panels exist.
    #[inline(always)]
    #[allow(clippy::too_many_arguments)]
    unsafe fn scores<S: Lanes, const MR: usize, const G: usize>(
        &self,
        s: S,
        block: Block,
        row: usize,
        v: usize,
        seen: &[usize; MR],
        highest: &mut [S::F32; MR],
        scores: &mut Scores,
    ) {
        let panel = self.head_dim * S::LANES;
        let operands = Operands {
            a: self.query.wrapping_add(row * self.query_row),
            a_row: self.query_row,
            a_step: 1,
            b: self.keys.wrapping_add((block.key / S::LANES + v) * panel),
            b_step: S::LANES,
            b_vector: panel,
        };
        let zero = [[s.splat(0.0); G]; MR];
        // SAFETY: rows and panels exist.
        let acc = unsafe {
            if MR == 1 && G == WIDE {
                // A query that is alone waits for memory: the values come while keys are multiplied.
                let values = block.key + v * S::LANES;
                let ahead = self.values.wrapping_add(values * self.value_row);
                tile_ahead::<S, MR, G, WIDE, true>(s, zero, self.head_dim, operands, ahead)
            } else {
                tile::<S, MR, G>(s, zero, self.head_dim, operands)
            }
        };
        let scale = s.splat(self.scale);
        let masked = (v + G) * S::LANES > seen[0];
        for i in 0..MR {
            for (g, &sum) in acc[i].iter().enumerate() {
                let first = (v + g) * S::LANES;
                let mut x = s.mul(sum, scale);
                if !self.bias.is_null() {
                    let at = (row + i) * self.bias_row + block.key + first;
                    let count = seen[i].saturating_sub(first).min(S::LANES);
                    // SAFETY: the bias has a column for every key that this query sees.
                    x = biased(s, x, unsafe { s.load_first(self.bias.wrapping_add(at), count) });
                }
                if masked {
                    let visible = s.first(seen[i].saturating_sub(first));
                    x = s.select(visible, x, s.splat(f32::NEG_INFINITY));
                }
                highest[i] = s.max(x, highest[i]);
                // SAFETY: `first + LANES <= KEY_BLOCK`.
                unsafe { s.store(scores.0.as_mut_ptr().add(i * KEY_BLOCK + first), x) };
            }
        }
    }

    /// `out = out * correction + weights * values`, without bias.
    ///
    /// # Safety
    /// As [`Head::attend`].
    #[inline(always)]
    #[allow(clippy::too_many_arguments)]
    unsafe fn values<S: Lanes, const MR: usize, const NV: usize>(
        &self,
        s: S,
        block: Block,
        row: usize,
        fewest: usize,
        seen: &[usize; MR],
        correction: &[f32; MR],
        scores: &Scores,
    ) {
        let mut column = 0;
        while column < self.head_dim {
            let left = (self.head_dim - column).div_ceil(S::LANES);
            // SAFETY: the caller's contract.
            unsafe {
                if left >= NV {
                    self.columns::<S, MR, NV>(s, block, row, column, fewest, correction, scores);
                    for (i, &n) in seen.iter().enumerate() {
                        if n > fewest {
                            let weights = scores.0.as_ptr().add(i * KEY_BLOCK);
                            self.rest::<S, NV>(s, block, row + i, column, fewest..n, weights);
                        }
                    }
                    column += NV * S::LANES;
                } else {
                    self.columns::<S, MR, 1>(s, block, row, column, fewest, correction, scores);
                    for (i, &n) in seen.iter().enumerate() {
                        if n > fewest {
                            let weights = scores.0.as_ptr().add(i * KEY_BLOCK);
                            self.rest::<S, 1>(s, block, row + i, column, fewest..n, weights);
                        }
                    }
                    column += S::LANES;
                }
            }
        }
    }

    /// `G` vectors of output columns over the keys that all queries of the tile see.
    ///
    /// # Safety
    /// As [`Head::attend`].
    #[inline(always)]
    #[allow(clippy::too_many_arguments)]
    unsafe fn columns<S: Lanes, const MR: usize, const G: usize>(
        &self,
        s: S,
        block: Block,
        row: usize,
        column: usize,
        keys: usize,
        correction: &[f32; MR],
        scores: &Scores,
    ) {
        let mut acc = [[s.splat(0.0); G]; MR];
        if block.key > 0 {
            for i in 0..MR {
                let factor = s.splat(correction[i]);
                for (g, x) in acc[i].iter_mut().enumerate() {
                    // SAFETY: the output row exists and was written for an earlier block.
                    *x = s.mul(factor, unsafe { self.load_out(s, row + i, column + g * S::LANES) });
                }
            }
        }
        let operands = Operands {
            a: scores.0.as_ptr(),
            a_row: KEY_BLOCK,
            a_step: 1,
            b: self.values.wrapping_add(block.key * self.value_row + column),
            b_step: self.value_row,
            b_vector: S::LANES,
        };
        // SAFETY: `keys` weights and value rows exist.
        let acc = unsafe {
            if MR == 1 && G > 1 {
                let ahead = self.next_keys.wrapping_add(block.key * self.head_dim);
                tile_ahead::<S, MR, G, G, true>(s, acc, keys, operands, ahead)
            } else {
                tile::<S, MR, G>(s, acc, keys, operands)
            }
        };
        for (i, line) in acc.iter().enumerate() {
            for (g, &x) in line.iter().enumerate() {
                // SAFETY: the output row exists.
                unsafe { self.store_out(s, row + i, column + g * S::LANES, x) };
            }
        }
    }

    /// Adds the keys `keys` of the block to one row of output: those past the fewest that its tile
    /// sees.
    ///
    /// # Safety
    /// As [`Head::attend`].
    #[inline(always)]
    unsafe fn rest<S: Lanes, const G: usize>(
        &self,
        s: S,
        block: Block,
        row: usize,
        column: usize,
        keys: core::ops::Range<usize>,
        weights: *const f32,
    ) {
        let mut acc = [[s.splat(0.0); G]; 1];
        for (g, x) in acc[0].iter_mut().enumerate() {
            // SAFETY: the output row exists and has been written.
            *x = unsafe { self.load_out(s, row, column + g * S::LANES) };
        }
        let operands = Operands {
            a: weights.wrapping_add(keys.start),
            a_row: 0,
            a_step: 1,
            b: self.values.wrapping_add((block.key + keys.start) * self.value_row + column),
            b_step: self.value_row,
            b_vector: S::LANES,
        };
        // SAFETY: the weights and value rows of `keys` exist.
        let acc = unsafe { tile::<S, 1, G>(s, acc, keys.len(), operands) };
        for (g, &x) in acc[0].iter().enumerate() {
            // SAFETY: the output row exists.
            unsafe { self.store_out(s, row, column + g * S::LANES, x) };
        }
    }

    /// One query under an additive bias, which may hide any key: keys of weight zero are skipped, so
    /// that their values are not read.
    ///
    /// # Safety
    /// As [`Head::attend`].
    #[inline(always)]
    unsafe fn values_where_seen<S: Lanes>(
        &self,
        s: S,
        block: Block,
        row: usize,
        seen: usize,
        correction: f32,
        weights: &[f32],
    ) {
        let mut column = 0;
        while column < self.head_dim {
            // SAFETY: the output row exists, and value rows of keys that the query sees.
            unsafe {
                let mut acc = s.splat(0.0);
                if block.key > 0 {
                    acc = s.mul(s.splat(correction), self.load_out(s, row, column));
                }
                for (key, &weight) in weights.iter().enumerate().take(seen) {
                    if weight != 0.0 {
                        let at = (block.key + key) * self.value_row + column;
                        acc = s.mul_add(s.splat(weight), s.load(self.values.add(at)), acc);
                    }
                }
                self.store_out(s, row, column, acc);
            }
            column += S::LANES;
        }
    }

    /// # Safety
    /// Output row `row` exists; `column < head_dim`.
    #[inline(always)]
    pub(super) unsafe fn load_out<S: Lanes>(&self, s: S, row: usize, column: usize) -> S::F32 {
        let at = self.out.wrapping_add(row * self.out_row + column);
        // SAFETY: the caller's contract, and the count stops at `head_dim`.
        unsafe {
            if column + S::LANES <= self.head_dim {
                s.load(at)
            } else {
                s.load_first(at, self.head_dim - column)
            }
        }
    }

    /// # Safety
    /// As [`Head::load_out`].
    #[inline(always)]
    pub(super) unsafe fn store_out<S: Lanes>(&self, s: S, row: usize, column: usize, x: S::F32) {
        let at = self.out.wrapping_add(row * self.out_row + column);
        // SAFETY: the caller's contract, and the count stops at `head_dim`.
        unsafe {
            if column + S::LANES <= self.head_dim {
                s.store(at, x);
            } else {
                s.store_first(at, x, self.head_dim - column);
            }
        }
    }

    /// Divides row `row` of the output by the sum of its weights, or gives a row that saw no key
    /// what such rows get; then writes the weights if they are wanted.
    ///
    /// # Safety
    /// As [`Head::attend`].
    #[inline(always)]
    pub(super) unsafe fn finish<S: Lanes>(&self, s: S, row: usize, maximum: f32, sum: f32) {
        // The largest weight is 1, so a row that saw a key has a sum of at least 1, or NaN.
        let saw_nothing = sum == 0.0;
        let mut column = 0;
        while column < self.head_dim {
            // SAFETY: the caller's contract; value rows exist up to `padded_len`.
            unsafe {
                let x = if !saw_nothing {
                    s.div(self.load_out(s, row, column), s.splat(sum))
                } else if self.fully_masked == FullyMasked::Uniform {
                    let mut total = s.splat(0.0);
                    for key in 0..self.padded_len {
                        total =
                            s.add(total, s.load(self.values.add(key * self.value_row + column)));
                    }
                    s.div(total, s.splat(self.padded_len.max(1) as f32))
                } else {
                    s.splat(0.0)
                };
                self.store_out(s, row, column, x);
            }
            column += S::LANES;
        }
        if !self.weights.is_null() {
            // SAFETY: the caller's contract.
            unsafe { self.write_weights(s, row, maximum, sum) };
        }
    }

    /// Computes the scores of `row` once more and writes its normalised weights: the heads that
    /// nobody looks at never form them.
    ///
    /// # Safety
    /// As [`Head::attend`].
    #[inline(always)]
    unsafe fn write_weights<S: Lanes>(&self, s: S, row: usize, maximum: f32, sum: f32) {
        // Without columns the stride is not checked, and the address not used.
        let to = self.weights.wrapping_add(row.wrapping_mul(self.weights_row));
        let uniform = sum == 0.0 && self.fully_masked == FullyMasked::Uniform;
        let limit = self.limit(row);
        let panel = self.head_dim * S::LANES;
        let mut first = 0;
        while first < self.weights_len {
            let count = (self.weights_len - first).min(S::LANES);
            let mut x = s.splat(0.0);
            if uniform {
                let share = s.splat(1.0 / self.padded_len as f32);
                let visible = s.first(self.padded_len.saturating_sub(first));
                x = s.select(visible, share, x);
            } else if first < limit && sum != 0.0 {
                let operands = Operands {
                    a: self.query.wrapping_add(row * self.query_row),
                    a_row: 0,
                    a_step: 1,
                    b: self.keys.wrapping_add(first / S::LANES * panel),
                    b_step: S::LANES,
                    b_vector: 0,
                };
                let zero = [[s.splat(0.0); 1]; 1];
                // SAFETY: the query row and the panel of key `first` exist.
                let acc = unsafe { tile::<S, 1, 1>(s, zero, self.head_dim, operands) };
                let mut score = s.mul(acc[0][0], s.splat(self.scale));
                let visible = limit - first;
                if !self.bias.is_null() {
                    let at = self.bias.wrapping_add(row * self.bias_row + first);
                    // SAFETY: the bias has a column for every key that this query sees.
                    let bias = unsafe { s.load_first(at, visible.min(S::LANES)) };
                    score = biased(s, score, bias);
                }
                let weight = exp_nonpositive(s, s.sub(score, s.splat(base(maximum))));
                x = s.select(s.first(visible), s.div(weight, s.splat(sum)), x);
            }
            // SAFETY: `first + count <= weights_len`.
            unsafe { s.store_first(to.wrapping_add(first), x, count) };
            first += S::LANES;
        }
    }
}

/// `score + bias`, where a bias of minus infinity hides the key whatever its score is.
#[inline(always)]
pub(super) fn biased<S: Lanes>(s: S, score: S::F32, bias: S::F32) -> S::F32 {
    let hidden = s.less(bias, s.splat(f32::MIN));
    s.select(hidden, s.splat(f32::NEG_INFINITY), s.add(score, bias))
}

/// Turns the scores of one query into weights relative to the new maximum, adds them to the running
/// sum, and returns the factor for what was accumulated under the old maximum.
#[inline(always)]
pub(super) fn exponentials<S: Lanes>(
    s: S,
    line: &mut [f32],
    vectors: usize,
    block_maximum: f32,
    maximum: &mut f32,
    sum: &mut f32,
) -> f32 {
    let old = *maximum;
    if block_maximum > old {
        *maximum = block_maximum;
    }
    let relative_to = s.splat(base(*maximum));
    let mut total = s.splat(0.0);
    for lane in line[..vectors * S::LANES].chunks_exact_mut(S::LANES) {
        // SAFETY: a chunk has LANES floats.
        unsafe {
            let x = exp_nonpositive(s, s.sub(s.load(lane.as_ptr()), relative_to));
            total = s.add(total, x);
            s.store(lane.as_mut_ptr(), x);
        }
    }
    let correction = if *maximum == old {
        1.0
    } else {
        s.reduce_max(exp_nonpositive(s, s.splat(old - base(*maximum))))
    };
    *sum = *sum * correction + s.reduce_add(total);
    correction
}

/// Keys `key..key + len` of a sequence.
#[derive(Clone, Copy)]
pub(super) struct Block {
    pub(super) key: usize,
    pub(super) len: usize,
}
