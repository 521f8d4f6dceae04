//! Int8 attention of one tile of queries: the blocks of keys one after the other, with the sums of all of them.

use super::block::{COLUMNS, Int8Head, Line, MAX_QUERIES, Part, TileRows, TileRun, TileStack};
use super::layout::BLOCK;
use super::quantize::quantize_queries;
use super::rare_blocks::{add_chosen, add_partly_seen, hide_scores, weigh_in_bytes};
use crate::parallel::share;
use crate::prefetch::{CacheLevel, prefetch_rows};
use crate::simd::int8::Int8Dot;
use crate::simd::int8_lanes::BYTE;
use crate::simd::{SimdF32, simd_op};

/// The weights of a block are `2^LOG_WEIGHT` times `2^(score - maximum)`: at most 254.6, so that the errors of their
/// computation do not make them larger than a byte. It has so few bits that its difference to a maximum is exact.
const LOG_WEIGHT: f32 = 8.0 - 1.0 / 128.0;

/// Rounding to bytes may change the sum of the weights of a block by this share of the sum so far; otherwise the block is
/// computed with weights of two bytes.
const MAX_LOSS: f32 = 1.0 / 128.0;

/// The maximum of a block of which no key is visible.
const NO_KEY: f32 = -1e30;

/// A score, or a maximum, from which on the result is NaN: the integer nearest to it would not be exact.
const MAX_SCORE: f32 = 4_194_304.0; // 2^22

/// Runs `$body` with the constant `$K` as the number of keys of a tile of `$B`.
macro_rules! with_keys {
    ($B:ident, $K:ident => $body:expr) => {{
        const { assert!(matches!($B::KEYS, 2 | 4 | 5 | 8)) }
        if const { $B::KEYS == 8 } {
            const $K: usize = 8;
            $body
        } else if const { $B::KEYS == 5 } {
            const $K: usize = 5;
            $body
        } else if const { $B::KEYS == 4 } {
            const $K: usize = 4;
            $body
        } else {
            const $K: usize = 2;
            $body
        }
    }};
}

simd_op!(
    /// Computes a tile.
    ///
    /// # Safety
    /// The queries can be read, the outputs and the words of the queries written, and no other code accesses these. The
    /// keys and values of `head` are quantized for this set.
    pub(super) unsafe fn attend_tile<B: Int8Dot, const NV: usize, const TV: usize>(
        b: B,
        head: &Int8Head,
        rows: TileRows,
        stack: &mut TileStack,
    ) {
        const { assert!(TV * B::Floats::LANES <= MAX_QUERIES) };
        // SAFETY: the contract of this function.
        unsafe {
            with_keys!(B, K => if rows.count > B::Floats::LANES {
                TileRun::<B, K, TV>(b).run(head, &rows, stack);
            } else {
                TileRun::<B, K, 1>(b).run(head, &rows, stack);
            });
        }
    }
);

impl<B: Int8Dot, const K: usize, const QV: usize> TileRun<B, K, QV> {
    /// `2^n` for integers `n` of at most 127; not less than `2^-126`.
    #[inline(always)]
    fn power(self, n: <B::Floats as SimdF32>::F32) -> <B::Floats as SimdF32>::F32 {
        let s = self.0.lane_floats();
        let exponent = s.add(s.max(n, s.splat(-126.0)), s.splat(127.0));
        // The exponent's place is that of a multiple of 2^23.
        self.0.float_of_bits(s.mul(exponent, s.splat(BYTE)))[0]
    }

    #[inline(always)]
    unsafe fn run(self, head: &Int8Head, rows: &TileRows, stack: &mut TileStack) {
        // SAFETY: the contract of `attend_tile`.
        unsafe {
            let scratch = stack.scores();
            quantize_queries::<B>(
                self.0,
                (rows.query, rows.count),
                (head.head_dim, head.scale),
                rows.words,
                Self::ROW,
                scratch,
            );
            for column in (0..head.head_dim).step_by(COLUMNS) {
                let columns = (head.head_dim - column).min(COLUMNS);
                let mut inverse = self.columns(head, rows, (column, columns), stack);
                let bad = *head.kv.add(head.layout.first_bad).cast::<u32>() as usize;
                if bad < head.keys {
                    let lanes = &mut stack.state.factor;
                    self.store_line(lanes.as_mut_ptr(), inverse);
                    for (i, lane) in lanes.iter_mut().enumerate() {
                        if bad < rows.limit(i) {
                            *lane = f32::NAN;
                        }
                    }
                    inverse = self.load_line(lanes.as_ptr());
                }
                self.store(rows, (column, columns), inverse, stack);
            }
        }
    }

    /// The weighted sums of some columns of the values, in `stack.sums`, and the reciprocals of the sums of the weights.
    #[inline(always)]
    unsafe fn columns(
        self,
        head: &Int8Head,
        rows: &TileRows,
        (column, columns): (usize, usize),
        stack: &mut TileStack,
    ) -> Line<B, QV> {
        let s = self.0.lane_floats();
        let used = columns.next_multiple_of(K) * Self::ROW;
        // SAFETY: the contract of `attend_tile`.
        unsafe {
            for at in (0..used).step_by(B::Floats::LANES) {
                s.store(stack.sums().add(at), s.splat(0.0));
            }
            let factor = self.load_line(rows.words.factors);
            let mut running = [s.splat(NO_KEY); QV];
            let mut total = [s.splat(0.0); QV];
            // Keys that all queries see, and that one sees.
            let (inner, end) = (rows.limit(0), rows.limit(rows.count - 1));
            let mut key = 0;
            while key < end {
                let count = (end - key).min(BLOCK);
                let part = Part { key, count, column, columns };
                let edge = rows.limit_step > 0 && key + BLOCK > inner;
                if column == 0 {
                    // A few rows in each block, because the CPU waits when it has too many misses.
                    let done = share(rows.count, end.div_ceil(BLOCK), key / BLOCK);
                    for (row, stride) in [(rows.out.cast_const(), rows.out_row), rows.next] {
                        let row = row.wrapping_add(done.start.wrapping_mul(stride));
                        let rows = (row, stride, done.len());
                        prefetch_rows(s, CacheLevel::L1, rows, head.head_dim);
                    }
                }
                let mut best = self.scores(head, rows, part, stack);
                if edge {
                    self.0.call_noinline(hide_scores::<QV>(rows, part, stack));
                    best = self.load_line(stack.state.counted.as_ptr());
                }
                let mut offset = best;
                let mut before = best;
                let mut after = best;
                let mut grows = false;
                for v in 0..QV {
                    let x = s.mul(best[v], factor[v]);
                    let near = s.less(s.abs(x), s.splat(MAX_SCORE));
                    // An integer that is at least `x`, also with the errors in the weights.
                    let above = s.add(x, s.splat(0.5));
                    let above = s.mul_add(s.abs(x), s.splat(1.0 / MAX_SCORE), above);
                    let magic = s.splat(1.5 * BYTE);
                    let above = s.sub(s.add(above, magic), magic);
                    let maximum = s.select(near, above, s.splat(f32::NAN));
                    let hidden = s.less(best[v], s.splat(f32::MIN));
                    let maximum = s.select(hidden, s.splat(NO_KEY), maximum);
                    offset[v] = s.mul(s.sub(s.splat(127.0 + LOG_WEIGHT), maximum), s.splat(BYTE));
                    let new = s.max(running[v], maximum);
                    grows |= s.any(s.less(running[v], new));
                    before[v] = self.power(s.sub(running[v], new));
                    after[v] = self.power(s.sub(maximum, new));
                    running[v] = new;
                    // NaN if the maximum is NaN.
                    let poison = s.mul(maximum, s.splat(0.0));
                    total[v] = s.mul_add(total[v], before[v], poison);
                }
                if grows && key > 0 {
                    for at in (0..used).step_by(Self::ROW) {
                        let at = stack.sums().add(at);
                        let mut line = self.load_line(at);
                        for v in 0..QV {
                            line[v] = s.mul(line[v], before[v]);
                        }
                        self.store_line(at, line);
                    }
                }
                // Queries that see only a part of the block have no weights in bytes.
                let mut narrow = offset;
                let mut whole = offset;
                if edge {
                    whole = self.load_line(stack.state.seen.as_ptr());
                    for v in 0..QV {
                        let partial = s.less(whole[v], s.splat(BLOCK as f32));
                        narrow[v] = s.select(partial, s.splat(f32::NEG_INFINITY), offset[v]);
                        whole[v] = s.select(partial, s.splat(0.0), s.splat(1.0));
                    }
                }
                let (mut counted, exact) = self.weights(count, &factor, &narrow, stack);
                let mut loses = false;
                let mut needs = counted;
                for v in 0..QV {
                    let so_far = s.mul_add(exact[v], after[v], total[v]);
                    let loss = s.mul(s.abs(s.sub(counted[v], exact[v])), after[v]);
                    let lost = s.less(s.mul(so_far, s.splat(MAX_LOSS)), loss);
                    let lost = s.select(lost, s.splat(1.0), s.splat(0.0));
                    // A query without a key has no weights.
                    needs[v] = s.select(s.less(s.splat(0.5), counted[v]), lost, s.splat(0.0));
                    loses |= s.any(s.less(s.splat(0.5), needs[v]));
                }
                if loses || edge {
                    let state = &mut stack.state;
                    self.store_line(state.factor.as_mut_ptr(), factor);
                    self.store_line(state.offset.as_mut_ptr(), narrow);
                    self.store_line(state.after.as_mut_ptr(), after);
                    self.store_line(state.chosen.as_mut_ptr(), needs);
                }
                if loses {
                    self.0.call_noinline(weigh_in_bytes::<QV>(count, true, stack));
                    counted = self.load_line(stack.state.counted.as_ptr());
                }
                if edge {
                    self.store_line(stack.state.chosen.as_mut_ptr(), whole);
                    self.0.call_noinline(add_chosen::<K, QV>(head, part, 1.0, stack));
                    self.store_line(stack.state.chosen.as_mut_ptr(), needs);
                } else {
                    self.add_values::<false>(head, part, &after, &needs, stack);
                }
                if loses {
                    self.0.call_noinline(weigh_in_bytes::<QV>(count, false, stack));
                    let low = self.load_line(stack.state.counted.as_ptr());
                    for v in 0..QV {
                        counted[v] = s.mul_add(low[v], s.splat(1.0 / 256.0), counted[v]);
                    }
                    self.0.call_noinline(add_chosen::<K, QV>(head, part, 1.0 / 256.0, stack));
                }
                for v in 0..QV {
                    total[v] = s.mul_add(counted[v], after[v], total[v]);
                }
                if edge {
                    self.store_line(stack.state.offset.as_mut_ptr(), offset);
                    self.0.call_noinline(add_partly_seen::<QV>(head, part, stack));
                    let seen = self.load_line(stack.state.counted.as_ptr());
                    for v in 0..QV {
                        total[v] = s.mul_add(seen[v], after[v], total[v]);
                    }
                }
                key += count;
            }
            let mut inverse = total;
            for v in 0..QV {
                inverse[v] = s.div(s.splat(1.0), total[v]);
            }
            inverse
        }
    }

    /// Writes some columns of the outputs: the transpose of the weighted sums, times `inverse`.
    #[inline(always)]
    unsafe fn store(
        self,
        rows: &TileRows,
        (first, columns): (usize, usize),
        inverse: Line<B, QV>,
        stack: &mut TileStack,
    ) {
        let s = self.0.lane_floats();
        let lanes = B::Floats::LANES;
        let sums = stack.sums();
        // SAFETY: the contract of `attend_tile`.
        unsafe {
            for at in (0..columns * Self::ROW).step_by(Self::ROW) {
                let mut line = self.load_line(sums.add(at));
                for v in 0..QV {
                    line[v] = s.mul(line[v], inverse[v]);
                }
                self.store_line(sums.add(at), line);
            }
            for v in 0..QV {
                let queries = rows.count.saturating_sub(v * lanes).min(lanes);
                let out = rows.out.wrapping_add(v * lanes * rows.out_row + first);
                for column in (0..columns).step_by(lanes) {
                    let from = sums.add(column * Self::ROW + v * lanes).cast_const();
                    let width = (columns - column).min(lanes);
                    if width == lanes && queries == lanes {
                        s.transpose(from, Self::ROW, out.add(column), rows.out_row);
                        continue;
                    }
                    for query in 0..queries {
                        let out = out.add(query * rows.out_row + column);
                        for i in 0..width {
                            *out.add(i) = *from.add(i * Self::ROW + query);
                        }
                    }
                }
            }
        }
    }
}
