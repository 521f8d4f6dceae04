//! Int8 attention of one tile of queries: a lane of the vectors is a query.

use super::super::head_views::HeadRows;
use super::layout::{BLOCK, KvLayout};
use super::quantize::{QueryTile, quantize_queries};
use crate::gemm::{Panels, Rows, TileOperand, multiply};
use crate::parallel::share;
use crate::prefetch::{CacheLevel, prefetch_rows};
use crate::simd::int8::Int8Dot;
use crate::simd::int8_lanes::{BYTE, Int8Lanes, MAX_KEYS, WordForm};
use crate::simd::{SimdF32, simd_op};
use core::mem::MaybeUninit;

/// Most queries of a tile, on any set.
const MAX_QUERIES: usize = 32;

/// Columns of values whose sums are on the stack. Wider heads compute their weights once for each part.
pub(super) const COLUMNS: usize = 128;

/// The weights of a block are `2^LOG_WEIGHT` times `2^(score - maximum)`: at most 254.6, so that the errors of their
/// computation do not make them larger than a byte. It has so few bits that its difference to a maximum is exact.
const LOG_WEIGHT: f32 = 8.0 - 1.0 / 128.0;

/// The exponent of the smallest weight, as a biased exponent times `2^23`. Smaller weights have no slow subnormal
/// numbers, and round to 0 all the same.
const LOWEST: f32 = 87.0 * BYTE;

/// `2^(x - 1) / x` for `x` in `1..2`, within 6.7e-4 of its value: what the number of a float's exponent and mantissa,
/// `2^n x`, is to be multiplied with for `2^(n + x - 1)`.
const RATIO: [f32; 4] = [1.775_614_7, -1.377_307_6, 0.707_475_83, -0.106_445_7];

/// Rounding to bytes may change the sum of the weights of a block by this share of the sum so far; otherwise the block is
/// computed with weights of two bytes.
const MAX_LOSS: f32 = 1.0 / 128.0;

/// The maximum of a block of which no key is visible.
const NO_KEY: f32 = -1e30;

/// A score, or a maximum, from which on the result is NaN: the integer nearest to it would not be exact.
const MAX_SCORE: f32 = 4_194_304.0; // 2^22

/// One head of one sequence.
#[derive(Clone, Copy)]
pub(super) struct Int8Head {
    pub(super) layout: KvLayout,
    /// The quantized keys and values.
    pub(super) kv: *const f32,
    pub(super) head_dim: usize,
    pub(super) keys: usize,
    /// The factor of scores, as powers of two.
    pub(super) scale: f32,
    /// The values in f32.
    pub(super) value: HeadRows,
}

/// A tile of queries.
#[derive(Clone, Copy)]
pub(super) struct TileRows {
    pub(super) query: HeadRows,
    /// At least 1, and at most as many as the set has lanes in a tile.
    pub(super) count: usize,
    /// Visible keys of the first query, before clamping to `0..=keys`, and how many more each further query sees.
    pub(super) first_limit: isize,
    pub(super) limit_step: isize,
    /// Keys of the sequence.
    pub(super) keys: usize,
    pub(super) words: QueryTile,
    pub(super) out: *mut f32,
    pub(super) out_row: usize,
    /// The queries after the tile, and their stride. They are only prefetched, and need not exist.
    pub(super) next: (*const f32, usize),
}

impl TileRows {
    /// Visible keys of a query of the tile.
    #[inline(always)]
    fn limit(&self, row: usize) -> usize {
        let limit = self.first_limit.saturating_add(self.limit_step * row as isize);
        (limit.max(0) as usize).min(self.keys)
    }
}

/// Queries times keys, or weights times values.
#[derive(Clone, Copy)]
struct LaneOperand<B, const WEIGHTS: bool>(B);

impl<B: Int8Dot, const WEIGHTS: bool> TileOperand for LaneOperand<B, WEIGHTS> {
    type SimdF32 = B::Floats;
    type Element = i32;
    type Weight = i32;
    type Vector = B::Words;
    type Sum = B::Totals;

    #[inline(always)]
    fn lanes(self) -> B::Floats {
        self.0.lane_floats()
    }
    #[inline(always)]
    unsafe fn load(self, from: *const i32, _: usize) -> B::Words {
        // SAFETY: `# Safety` of the trait method.
        unsafe { self.0.load_words(from) }
    }
    #[inline(always)]
    unsafe fn broadcast(self, from: *const i32) -> B::Words {
        // SAFETY: `# Safety` of the trait method.
        self.0.splat_word(unsafe { *from })
    }
    #[inline(always)]
    fn multiply_add(self, shared: B::Words, lanes: B::Words, sum: B::Totals) -> B::Totals {
        if WEIGHTS { self.0.weigh(sum, lanes, shared) } else { self.0.score(sum, lanes, shared) }
    }
}

/// A number for each query of a tile.
type Lanes = [f32; MAX_QUERIES];

/// What a tile needs of the stack.
#[repr(align(64))]
pub(super) struct TileStack {
    /// `[keys][queries]`: the scores. At the start of a tile the words of its queries, not yet in lanes.
    scores: [MaybeUninit<f32>; BLOCK * MAX_QUERIES],
    /// `[words][queries]`: the weights, or one of their two bytes.
    words: [MaybeUninit<i32>; BLOCK / 2 * MAX_QUERIES],
    /// `[columns][queries]`: the weighted sums of the values. A tile has whole groups of columns.
    sums: [MaybeUninit<f32>; (COLUMNS + MAX_KEYS) * MAX_QUERIES],
    /// The state of a block, for the code that few blocks need.
    state: State,
}

/// The numbers of each query in a block, in memory.
#[repr(align(64))]
struct State {
    factor: Lanes,
    offset: Lanes,
    /// The power of two that the sums of this block are multiplied with.
    after: Lanes,
    /// 1 for the queries that need weights of two bytes, or of f32, otherwise 0.
    chosen: Lanes,
    /// Visible keys of the block.
    seen: Lanes,
    /// The sum of the weights.
    counted: Lanes,
}

impl TileStack {
    pub(super) const fn new() -> Self {
        const ZEROS: Lanes = [0.0; MAX_QUERIES];
        Self {
            scores: [MaybeUninit::uninit(); BLOCK * MAX_QUERIES],
            words: [MaybeUninit::uninit(); BLOCK / 2 * MAX_QUERIES],
            sums: [MaybeUninit::uninit(); (COLUMNS + MAX_KEYS) * MAX_QUERIES],
            state: State {
                factor: ZEROS,
                offset: ZEROS,
                after: ZEROS,
                chosen: ZEROS,
                seen: ZEROS,
                counted: ZEROS,
            },
        }
    }

    fn scores(&mut self) -> *mut f32 {
        self.scores.as_mut_ptr().cast()
    }

    fn words(&mut self) -> *mut i32 {
        self.words.as_mut_ptr().cast()
    }

    fn sums(&mut self) -> *mut f32 {
        self.sums.as_mut_ptr().cast()
    }
}

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

/// A vector for each vector of queries.
type Line<B, const QV: usize> = [<<B as Int8Lanes>::LaneFloats as SimdF32>::F32; QV];

/// A block of keys, and a part of the columns of its values.
#[derive(Clone, Copy)]
struct Part {
    key: usize,
    count: usize,
    column: usize,
    columns: usize,
}

/// The code of a tile of `QV` vectors of queries, `K` keys or columns at a time. All functions have the contract of
/// [`attend_tile`]; the arrays of [`TileStack`] have space for `QV` vectors of queries.
#[derive(Clone, Copy)]
struct TileRun<B, const K: usize, const QV: usize>(B);

impl<B: Int8Dot, const K: usize, const QV: usize> TileRun<B, K, QV> {
    /// Queries of the tile.
    const ROW: usize = QV * <B::Floats as SimdF32>::LANES;

    #[inline(always)]
    fn load_line(self, from: *const f32) -> Line<B, QV> {
        let s = self.0.lane_floats();
        let mut line = [s.splat(0.0); QV];
        for (v, line) in line.iter_mut().enumerate() {
            // SAFETY: the callers pass the address of a row.
            *line = unsafe { s.load(from.add(v * B::Floats::LANES)) };
        }
        line
    }

    #[inline(always)]
    fn store_line(self, to: *mut f32, line: Line<B, QV>) {
        let s = self.0.lane_floats();
        for (v, line) in line.into_iter().enumerate() {
            // SAFETY: the callers pass the address of a row.
            unsafe { s.store(to.add(v * B::Floats::LANES), line) };
        }
    }

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

    /// The scores of the keys of a block, in units of the factor of the query, and the largest of each query.
    #[inline(always)]
    unsafe fn scores(
        self,
        head: &Int8Head,
        rows: &TileRows,
        Part { key, count, .. }: Part,
        stack: &mut TileStack,
    ) -> Line<B, QV> {
        let (b, s) = (self.0, self.0.lane_floats());
        let lanes = B::Floats::LANES;
        let scores = stack.scores();
        let KvLayout { steps, key_scales, .. } = head.layout;
        let mut best = [s.splat(f32::NEG_INFINITY); QV];
        // SAFETY: the contract of `attend_tile`. The layout has `MAX_KEYS` more keys.
        unsafe {
            let keys = head.kv.cast::<i32>().add(key * steps);
            let scales = head.kv.add(key_scales + key);
            let mut start = [b.totals(b.splat_word(0)); QV];
            for (v, start) in start.iter_mut().enumerate() {
                *start = b.totals(b.load_words(rows.words.starts.add(v * lanes)));
            }
            let panel = Panels::one(rows.words.words.cast_const(), Self::ROW, lanes);
            for first in (0..count).step_by(K) {
                let shared = Rows { at: keys.add(first * steps), row: steps, step: 1 };
                let operand = LaneOperand::<B, false>(b);
                let [tile] = multiply(operand, [[start; K]], steps, shared, panel, ());
                for (i, tile) in tile.iter().enumerate() {
                    if first + i >= count {
                        break;
                    }
                    let scale = s.splat(*scales.add(first + i));
                    for v in 0..QV {
                        let score = s.mul(b.totals_to_f32(tile[v]), scale);
                        best[v] = s.max(best[v], score);
                        s.store(scores.add((first + i) * Self::ROW + v * lanes), score);
                    }
                }
            }
            for missing in count..count.next_multiple_of(4) {
                let none = [s.splat(f32::NEG_INFINITY); QV];
                self.store_line(scores.add(missing * Self::ROW), none);
            }
        }
        best
    }

    /// The weight of a score as a product of two numbers, of which the first is a float with the exponent.
    #[inline(always)]
    fn weight(
        self,
        score: <B::Floats as SimdF32>::F32,
        factor: <B::Floats as SimdF32>::F32,
        offset: <B::Floats as SimdF32>::F32,
    ) -> [<B::Floats as SimdF32>::F32; 2] {
        let s = self.0.lane_floats();
        let bits = s.max(s.mul_add(score, factor, offset), s.splat(LOWEST));
        let [float, mantissa] = self.0.float_of_bits(bits);
        let ratio = s.mul_add(s.splat(RATIO[3]), mantissa, s.splat(RATIO[2]));
        let ratio = s.mul_add(ratio, mantissa, s.splat(RATIO[1]));
        let ratio = s.mul_add(ratio, mantissa, s.splat(RATIO[0]));
        [float, ratio]
    }

    /// Writes the words of the weights of a block, which `weight` gives for a key and a vector as integers plus [`BYTE`],
    /// and returns the sums of the weights.
    #[inline(always)]
    unsafe fn pack(
        self,
        count: usize,
        words: *mut i32,
        mut weight: impl FnMut(usize, usize) -> <B::Floats as SimdF32>::F32,
    ) -> Line<B, QV> {
        let (b, s) = (self.0, self.0.lane_floats());
        let groups = count.div_ceil(4);
        let per_group = const { 4 / B::FORM.elements() };
        let (ones, start) = match B::FORM {
            WordForm::Halves => (0x0001_0001, 0),
            WordForm::Unsigned => (0x0101_0101, 0),
            WordForm::Signed => (0x0101_0101, 128 * 4 * groups as i32),
        };
        let ones = b.splat_word(ones);
        let mut counted = [s.splat(0.0); QV];
        for (v, counted) in counted.iter_mut().enumerate() {
            let mut sum = b.totals(b.splat_word(start));
            for group in 0..groups {
                let mut rounded = [s.splat(BYTE); 4];
                for (i, rounded) in rounded.iter_mut().enumerate() {
                    *rounded = weight(group * 4 + i, v);
                }
                let packed = b.pack_weights(rounded);
                for (i, &packed) in packed.iter().enumerate().take(per_group) {
                    let at = (group * per_group + i) * Self::ROW + v * B::Floats::LANES;
                    // SAFETY: `words` has a row for each word of a block.
                    unsafe { b.store_words(words.add(at), packed) };
                    sum = b.weigh(sum, packed, ones);
                }
            }
            *counted = b.totals_to_f32(sum);
        }
        counted
    }

    /// Writes the words of the weights, and returns their sums, rounded and not.
    #[inline(always)]
    unsafe fn weights(
        self,
        count: usize,
        factor: &Line<B, QV>,
        offset: &Line<B, QV>,
        stack: &mut TileStack,
    ) -> (Line<B, QV>, Line<B, QV>) {
        let s = self.0.lane_floats();
        let (scores, words) = (stack.scores().cast_const(), stack.words());
        let mut sums = [[s.splat(0.0); QV]; 2];
        // SAFETY: `scores` has rows up to a multiple of four; the rest is the contract of `attend_tile`.
        let counted = unsafe {
            self.pack(
                count,
                words,
                #[inline(always)]
                |key, v| {
                    let score = s.load(scores.add(key * Self::ROW + v * B::Floats::LANES));
                    let factor = s.mul(factor[v], s.splat(BYTE));
                    let [float, ratio] = self.weight(score, factor, offset[v]);
                    let sum = &mut sums[key % 2][v];
                    *sum = s.mul_add(float, ratio, *sum);
                    s.mul_add(float, ratio, s.splat(BYTE))
                },
            )
        };
        let mut exact = sums[0];
        for v in 0..QV {
            exact[v] = s.add(exact[v], sums[1][v]);
        }
        (counted, exact)
    }

    /// Adds the values of a block, weighted with the words of `stack` times `after`, to its sums: if `CHOSEN`, only for the
    /// queries with a `chosen` of 1.
    #[inline(always)]
    unsafe fn add_values<const CHOSEN: bool>(
        self,
        head: &Int8Head,
        Part { key, count, column: first, columns }: Part,
        after: &Line<B, QV>,
        chosen: &Line<B, QV>,
        stack: &mut TileStack,
    ) {
        let (b, s) = (self.0, self.0.lane_floats());
        let lanes = B::Floats::LANES;
        let (words, sums) = (stack.words().cast_const(), stack.sums());
        let elements = const { B::FORM.elements() };
        let (layout, head_dim, block) = (head.layout, head.head_dim, key / BLOCK);
        let place = block * head_dim + first;
        // SAFETY: the contract of `attend_tile`. The layout has `MAX_KEYS` more columns.
        unsafe {
            let values = head.kv.add(layout.values).cast::<i32>();
            let values = values.add(block * (BLOCK / elements) * head_dim + first);
            let scales = head.kv.add(layout.value_scales + place);
            let starts = head.kv.add(layout.value_starts).cast::<i32>().wrapping_add(place);
            let steps = count.div_ceil(elements);
            for column in (0..columns).step_by(K) {
                let mut start = [[b.totals(b.splat_word(0)); QV]; K];
                if matches!(B::FORM, WordForm::Signed) {
                    for (i, start) in start.iter_mut().enumerate() {
                        *start = [b.totals(b.splat_word(*starts.add(column + i))); QV];
                    }
                }
                let shared = Rows { at: values.add(column), row: 1, step: head_dim };
                let panel = Panels::one(words, Self::ROW, lanes);
                let operand = LaneOperand::<B, true>(b);
                let [tile] = multiply(operand, [start], steps, shared, panel, ());
                for (i, tile) in tile.iter().enumerate() {
                    let scale = s.splat(*scales.add(column + i));
                    for v in 0..QV {
                        let at = sums.add((column + i) * Self::ROW + v * lanes);
                        let x = s.mul(b.totals_to_f32(tile[v]), after[v]);
                        let old = s.load(at);
                        let mut sum = s.mul_add(x, scale, old);
                        if CHOSEN {
                            sum = s.select(s.less(s.splat(0.5), chosen[v]), sum, old);
                        }
                        s.store(at, sum);
                    }
                }
            }
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

simd_op!(
    /// At the edge of a causal mask: replaces the scores of hidden keys by minus infinity, and writes the number of visible
    /// keys of the block, and as `counted` the largest score.
    fn hide_scores<B: Int8Dot, const NV: usize, const TV: usize, const QV: usize>(
        b: B,
        rows: &TileRows,
        part: Part,
        stack: &mut TileStack,
    ) {
        let (run, s) = (TileRun::<B, 1, QV>(b), b.lane_floats());
        for (i, seen) in stack.state.seen.iter_mut().enumerate() {
            *seen = rows.limit(i).saturating_sub(part.key).min(BLOCK) as f32;
        }
        let seen = run.load_line(stack.state.seen.as_ptr());
        let none = s.splat(f32::NEG_INFINITY);
        let mut best = [none; QV];
        for key in 0..part.count {
            let at = stack.scores().wrapping_add(key * TileRun::<B, 1, QV>::ROW);
            let mut line = run.load_line(at);
            for v in 0..QV {
                line[v] = s.select(s.less(s.splat(key as f32), seen[v]), line[v], none);
                best[v] = s.max(best[v], line[v]);
            }
            run.store_line(at, line);
        }
        run.store_line(stack.state.counted.as_mut_ptr(), best);
    }
);

simd_op!(
    /// Writes the words of the high or the low bytes of the weights of a block, and their sums as `counted`. Queries that are
    /// not chosen have their weights of one byte as the high bytes, and zeros as the low bytes.
    fn weigh_in_bytes<B: Int8Dot, const NV: usize, const TV: usize, const QV: usize>(
        b: B,
        count: usize,
        high: bool,
        stack: &mut TileStack,
    ) {
        let (run, s) = (TileRun::<B, 1, QV>(b), b.lane_floats());
        let factor = run.load_line(stack.state.factor.as_ptr());
        let offset = run.load_line(stack.state.offset.as_ptr());
        let chosen = run.load_line(stack.state.chosen.as_ptr());
        let (scores, words) = (stack.scores().cast_const(), stack.words());
        let (byte, magic) = (s.splat(BYTE), s.splat(1.5 * BYTE));
        // SAFETY: `scores` has rows up to a multiple of four, and `words` those of a block.
        let counted = unsafe {
            run.pack(
                count,
                words,
                #[inline(always)]
                |key, v| {
                    let at = key * TileRun::<B, 1, QV>::ROW + v * B::Floats::LANES;
                    let factor = s.mul(factor[v], byte);
                    let [float, ratio] = run.weight(s.load(scores.add(at)), factor, offset[v]);
                    let whole = s.mul_add(s.mul(float, s.splat(256.0)), ratio, magic);
                    let whole = s.sub(whole, magic);
                    // The integer part of a 256th.
                    let upper = s.mul_add(whole, s.splat(1.0 / 256.0), s.splat(-127.5 / 256.0));
                    let upper = s.sub(s.add(upper, magic), magic);
                    let (two, one) = if high {
                        (upper, s.mul_add(float, ratio, byte))
                    } else {
                        (s.mul_add(upper, s.splat(-256.0), whole), byte)
                    };
                    s.select(s.less(s.splat(0.5), chosen[v]), s.add(two, byte), one)
                },
            )
        };
        run.store_line(stack.state.counted.as_mut_ptr(), counted);
    }
);

simd_op!(
    /// Adds the values of a block, times `scale`, to the sums of the chosen queries.
    ///
    /// # Safety
    /// That of [`attend_tile`].
    unsafe fn add_chosen<
        B: Int8Dot,
        const NV: usize,
        const TV: usize,
        const K: usize,
        const QV: usize,
    >(
        b: B,
        head: &Int8Head,
        part: Part,
        scale: f32,
        stack: &mut TileStack,
    ) {
        let (run, s) = (TileRun::<B, K, QV>(b), b.lane_floats());
        let mut after = run.load_line(stack.state.after.as_ptr());
        let chosen = run.load_line(stack.state.chosen.as_ptr());
        for after in &mut after {
            *after = s.mul(*after, s.splat(scale));
        }
        // SAFETY: the contract of this function.
        unsafe { run.add_values::<true>(head, part, &after, &chosen, stack) };
    }
);

/// Columns of values that are added at once to the sums of queries that see a part of a block.
const EDGE_COLUMNS: usize = 4;

simd_op!(
    /// Adds the values of a block to the sums of the queries that see only a part of it, in f32, and writes the sums of
    /// their weights as `counted`. A value in memory is multiplied only for the queries that see it.
    ///
    /// # Safety
    /// That of [`attend_tile`].
    unsafe fn add_partly_seen<B: Int8Dot, const NV: usize, const TV: usize, const QV: usize>(
        b: B,
        head: &Int8Head,
        part: Part,
        stack: &mut TileStack,
    ) {
        let (run, s) = (TileRun::<B, 1, QV>(b), b.lane_floats());
        let row = TileRun::<B, 1, QV>::ROW;
        let state = &stack.state;
        let factor = run.load_line(state.factor.as_ptr());
        let offset = run.load_line(state.offset.as_ptr());
        let after = run.load_line(state.after.as_ptr());
        let mut seen = run.load_line(state.seen.as_ptr());
        for seen in &mut seen {
            // Other queries have added all keys.
            let partial = s.less(*seen, s.splat(BLOCK as f32));
            *seen = s.select(partial, *seen, s.splat(0.0));
        }
        let scores = stack.scores();
        let mut counted = [s.splat(0.0); QV];
        for key in 0..part.count {
            let at = scores.wrapping_add(key * row);
            let mut line = run.load_line(at);
            for v in 0..QV {
                let [float, ratio] =
                    run.weight(line[v], s.mul(factor[v], s.splat(BYTE)), offset[v]);
                let weight = s.mul(float, ratio);
                let sum = s.add(counted[v], weight);
                counted[v] = s.select(s.less(s.splat(key as f32), seen[v]), sum, counted[v]);
                line[v] = s.mul(weight, after[v]);
            }
            run.store_line(at, line);
        }
        for first in (0..part.columns).step_by(EDGE_COLUMNS) {
            let columns = (part.columns - first).min(EDGE_COLUMNS);
            let mut tile = [[s.splat(0.0); QV]; EDGE_COLUMNS];
            for (i, tile) in tile.iter_mut().enumerate().take(columns) {
                *tile = run.load_line(stack.sums().wrapping_add((first + i) * row));
            }
            for key in 0..part.count {
                let weights = run.load_line(scores.wrapping_add(key * row));
                let value = head.value.at.wrapping_add((part.key + key) * head.value.stride);
                let value = value.wrapping_add(part.column + first);
                for i in 0..EDGE_COLUMNS {
                    // SAFETY: the value exists, by the contract of this function.
                    let x = s.splat(unsafe { *value.add(i.min(columns - 1)) });
                    for v in 0..QV {
                        let sum = s.mul_add(weights[v], x, tile[i][v]);
                        let visible = s.less(s.splat(key as f32), seen[v]);
                        tile[i][v] = s.select(visible, sum, tile[i][v]);
                    }
                }
            }
            for (i, tile) in tile.into_iter().enumerate().take(columns) {
                run.store_line(stack.sums().wrapping_add((first + i) * row), tile);
            }
        }
        run.store_line(stack.state.counted.as_mut_ptr(), counted);
    }
);
