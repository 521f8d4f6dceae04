//! Int8 attention of one tile of queries: the blocks of keys one after the other, with the sums of all of them.

use super::super::head_views::HeadRows;
use super::super::one_head::HeadQuery;
use super::block::{
    COLUMNS, Int8Head, Lanes, Line, MAX_QUERIES, Part, TileRows, TileRun, TileStack,
};
use super::layout::BLOCK;
use super::quantize::{LaneRows, LaneWords, quantize_lanes};
use super::rare_blocks::{add_partly_seen, hide_scores, weigh_in_bytes};
use crate::parallel::share;
use crate::prefetch::{CacheLevel, prefetch_rows};
use crate::simd::int8::{BYTE, FloatVector, Int8Dot, MAX_KEYS, SimdI32, WordForm};
use crate::simd::{MAX_LANES, SimdF32, simd_op};

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
    ($B:ident, $K:ident => $body:expr) => {
        crate::simd::tile_heights!($B::KEYS, [1 2 4 5 8], $K if $K == $B::KEYS => $body)
    };
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
        unsafe { with_keys!(B, K => TileRun::<B, K, TV>(b).compute_tile(head, &rows, stack)) };
    }
);

simd_op!(
    /// Adds the values of a block, weighted with the words of `stack`, to the sums of the queries that see the whole block, or
    /// if these are the `low` bytes, of those that need weights of two bytes. The words of other queries are zeros.
    ///
    /// # Safety
    /// That of [`attend_tile`].
    pub(super) unsafe fn add_values<B: Int8Dot, const NV: usize, const TV: usize>(
        b: B,
        head: &Int8Head,
        part: Part,
        low: bool,
        stack: &mut TileStack,
    ) {
        // SAFETY: the contract of this function.
        unsafe { with_keys!(B, K => TileRun::<B, K, TV>(b).add_values(head, part, low, stack)) };
    }
);

simd_op!(
    /// Writes columns of outputs: the transpose of `sums`, whose rows are `row` floats apart, times `inverse` of each query.
    ///
    /// # Safety
    /// `sums` has whole vectors of columns, and `inverse` of queries; the outputs can be written.
    unsafe fn write_outputs<S: SimdF32>(
        s: S,
        sums: *mut f32,
        row: usize,
        inverse: *const f32,
        queries: usize,
        columns: usize,
        out: *mut f32,
        stride: usize,
    ) {
        let mut block = [0.0; MAX_LANES * MAX_LANES];
        // SAFETY: the contract of this function.
        unsafe {
            for first in (0..queries).step_by(S::LANES) {
                let inverse = s.load(inverse.add(first));
                let count = (queries - first).min(S::LANES);
                for column in (0..columns).step_by(S::LANES) {
                    let from = sums.add(column * row + first);
                    for i in 0..S::LANES {
                        let at = from.add(i * row);
                        s.store(at, s.mul(s.load(at), inverse));
                    }
                    let width = (columns - column).min(S::LANES);
                    let to = out.add(first * stride + column);
                    let whole = width == S::LANES && count == S::LANES;
                    let (at, step) =
                        if whole { (to, stride) } else { (block.as_mut_ptr(), S::LANES) };
                    s.transpose(from, row, at, step);
                    if !whole {
                        for (i, line) in block.chunks_exact(S::LANES).enumerate().take(count) {
                            s.store_prefix(to.add(i * stride), s.load(line.as_ptr()), width);
                        }
                    }
                }
            }
        }
    }
);

impl<B: Int8Dot, const K: usize, const QV: usize> TileRun<B, K, QV> {
    /// `2^n` for integers `n` of at most 127; not less than `2^-126`.
    #[inline(always)]
    fn power(self, n: FloatVector<B>) -> FloatVector<B> {
        let s = self.0.sums().floats();
        let exponent = s.add(s.max(n, s.splat(-126.0)), s.splat(127.0));
        // The exponent's place is that of a multiple of 2^23.
        self.0.float_of_bits(s.mul(exponent, s.splat(BYTE)))[0]
    }

    #[inline(always)]
    unsafe fn compute_tile(self, head: &Int8Head, rows: &TileRows, stack: &mut TileStack) {
        let s = self.0.sums().floats();
        let HeadQuery { query, query_row, head_dim, scale, .. } = head.query;
        let factors = rows.words.wrapping_add(head.layout.steps * Self::ROW).cast::<f32>();
        for first in (0..Self::ROW).step_by(B::Floats::LANES) {
            let at = query.wrapping_add((rows.first + first).wrapping_mul(query_row));
            let from = LaneRows {
                rows: HeadRows { at, stride: query_row },
                count: rows.count.saturating_sub(first).min(B::Floats::LANES),
                head_dim,
                center: (&0.0, 0),
                factor: scale,
            };
            let to = LaneWords {
                words: rows.words.wrapping_add(first),
                stride: Self::ROW,
                scales: factors.wrapping_add(first),
                starts: Some(factors.wrapping_add(Self::ROW + first).cast()),
            };
            // SAFETY: the contract of `attend_tile`.
            self.0.call_noinline(unsafe { quantize_lanes(from, to, &mut stack.scores) });
        }
        for column in (0..head_dim).step_by(COLUMNS) {
            let columns = (head_dim - column).min(COLUMNS);
            // SAFETY: the contract of `attend_tile`.
            unsafe {
                self.sum_columns(head, rows, (column, columns), stack);
                let (.., sums) = stack.arrays();
                let bad = *head.layout.first_bad(head.kv) as usize;
                if bad < head.query.key_len {
                    mark_bad_rows(&head.query, rows, bad, &mut stack.state.total);
                }
                let HeadQuery { out, out_row, .. } = head.query;
                s.call_noinline(write_outputs(
                    sums,
                    Self::ROW,
                    stack.state.total.as_ptr(),
                    rows.count,
                    columns,
                    out.wrapping_add(rows.first * out_row + column),
                    out_row,
                ));
            }
        }
    }

    /// Writes the weighted sums of some columns of the values, and as `total` the reciprocals of the sums of the weights.
    #[inline(always)]
    unsafe fn sum_columns(
        self,
        head: &Int8Head,
        rows: &TileRows,
        (column, columns): (usize, usize),
        stack: &mut TileStack,
    ) {
        let (b, s) = (self.0, self.0.sums().floats());
        // SAFETY: the contract of `attend_tile`.
        unsafe {
            let (.., sums) = stack.arrays();
            for column in 0..columns.next_multiple_of(MAX_LANES) + MAX_KEYS {
                self.store_line(sums.add(column * Self::ROW), [s.splat(0.0); QV]);
            }
            let factors = rows.words.add(head.layout.steps * Self::ROW).cast::<f32>();
            self.store_line(stack.state.factor.as_mut_ptr(), self.load_line(factors));
            self.store_line(stack.state.running.as_mut_ptr(), [s.splat(NO_KEY); QV]);
            self.store_line(stack.state.total.as_mut_ptr(), [s.splat(0.0); QV]);
            // Keys that all queries see, and that one sees.
            let limit = |row: usize| head.query.limit(rows.first + row);
            let (inner, end) = (limit(0), limit(rows.count - 1));
            let mut key = 0;
            while key < end {
                let count = (end - key).min(BLOCK);
                let part = Part { key, count, columns: (column, columns) };
                let edge = head.query.limit_step > 0 && key + BLOCK > inner;
                if column == 0 {
                    // A few rows in each block, because the CPU waits when it has too many misses.
                    let done = share(rows.count, end.div_ceil(BLOCK), key / BLOCK);
                    let HeadQuery { query, query_row, out, out_row, head_dim, .. } = head.query;
                    let out = (out.cast_const(), rows.first, out_row);
                    // The queries after the tile need not exist.
                    let next = (query, rows.first + Self::ROW, query_row);
                    for (at, first, stride) in [out, next] {
                        let at = at.wrapping_add((first + done.start).wrapping_mul(stride));
                        prefetch_rows(s, CacheLevel::L1, (at, stride, done.len()), head_dim);
                    }
                }
                self.scores(head, rows, part, stack);
                if edge {
                    b.call_noinline(hide_scores(head, rows.first, part, stack));
                }
                let (mut grows, mut loses) = (false, false);
                for first in (0..rows.count).step_by(B::Floats::LANES) {
                    let found = self.weigh(count, edge, first, stack);
                    grows |= found.0;
                    loses |= found.1;
                }
                if grows && key > 0 {
                    let before = self.load_line(stack.state.before.as_ptr());
                    let (.., sums) = stack.arrays();
                    for column in 0..columns {
                        let at = sums.add(column * Self::ROW);
                        let mut line = self.load_line(at);
                        for v in 0..QV {
                            line[v] = s.mul(line[v], before[v]);
                        }
                        self.store_line(at, line);
                    }
                }
                if loses {
                    b.call_noinline(weigh_in_bytes(count, true, stack));
                }
                let mut counted = self.load_line(stack.state.counted.as_ptr());
                b.call_noinline(add_values(head, part, false, stack));
                if loses {
                    b.call_noinline(weigh_in_bytes(count, false, stack));
                    let low = self.load_line(stack.state.counted.as_ptr());
                    for v in 0..QV {
                        counted[v] = s.mul_add(low[v], s.splat(1.0 / 256.0), counted[v]);
                    }
                    b.call_noinline(add_values(head, part, true, stack));
                }
                self.add_to_total(counted, stack);
                if edge {
                    b.call_noinline(add_partly_seen(head, part, stack));
                    let seen = self.load_line(stack.state.counted.as_ptr());
                    self.add_to_total(seen, stack);
                }
                key += count;
            }
            let mut inverse = self.load_line(stack.state.total.as_ptr());
            for inverse in &mut inverse {
                *inverse = s.div(s.splat(1.0), *inverse);
            }
            self.store_line(stack.state.total.as_mut_ptr(), inverse);
        }
    }

    /// Adds sums of weights of a block to those of all blocks.
    #[inline(always)]
    fn add_to_total(self, counted: Line<B, QV>, stack: &mut TileStack) {
        let s = self.0.sums().floats();
        let after = self.load_line(stack.state.after.as_ptr());
        let mut total = self.load_line(stack.state.total.as_ptr());
        for v in 0..QV {
            total[v] = s.mul_add(counted[v], after[v], total[v]);
        }
        self.store_line(stack.state.total.as_mut_ptr(), total);
    }

    /// Computes the weights of a block for the vector of queries from `first` on: writes their words and the state of these
    /// queries. Returns whether a maximum grows, and whether a query needs weights of two bytes.
    #[inline(always)]
    unsafe fn weigh(
        self,
        count: usize,
        edge: bool,
        first: usize,
        stack: &mut TileStack,
    ) -> (bool, bool) {
        let s = self.0.sums().floats();
        let (scores, words, _) = stack.arrays();
        let state = &mut stack.state;
        // SAFETY: `first` is the first lane of a vector. `scores` has rows up to a multiple of four, and `words` those of a
        // block.
        unsafe {
            let (scores, words) = (scores.add(first), words.add(first));
            let load = |lanes: &Lanes| s.load(lanes.as_ptr().add(first));
            let store = |lanes: &mut Lanes, x| s.store(lanes.as_mut_ptr().add(first), x);
            let (factor, best) = (load(&state.factor), load(&state.best));
            let x = s.mul(best, factor);
            let near = s.less(s.abs(x), s.splat(MAX_SCORE));
            // An integer that is at least `x`, also with the errors in the weights.
            let above = s.add(x, s.splat(0.5));
            let above = s.mul_add(s.abs(x), s.splat(1.0 / MAX_SCORE), above);
            let magic = s.splat(1.5 * BYTE);
            let above = s.sub(s.add(above, magic), magic);
            let mut maximum = s.select(near, above, s.splat(f32::NAN));
            if edge {
                let hidden = s.less(load(&state.seen), s.splat(0.5));
                maximum = s.select(hidden, s.splat(NO_KEY), maximum);
            }
            let offset = s.mul(s.sub(s.splat(127.0 + LOG_WEIGHT), maximum), s.splat(BYTE));
            let running = load(&state.running);
            let new = s.max(running, maximum);
            let grows = s.any(s.less(running, new));
            let before = self.power(s.sub(running, new));
            let after = self.power(s.sub(maximum, new));
            // NaN if the maximum is NaN.
            let poison = s.mul(maximum, s.splat(0.0));
            let total = s.mul_add(load(&state.total), before, poison);
            // Queries that see only a part of the block have no weights in bytes.
            let (mut narrow, mut whole) = (offset, s.splat(1.0));
            if edge {
                let partial = s.less(load(&state.seen), s.splat(BLOCK as f32));
                narrow = s.select(partial, s.splat(f32::NEG_INFINITY), offset);
                whole = s.select(partial, s.splat(0.0), whole);
            }
            let mut sums = [s.splat(0.0); 2];
            let scaled = s.mul(factor, s.splat(BYTE));
            let counted = self.pack(
                count,
                words,
                #[inline(always)]
                |key| {
                    let score = s.load(scores.add(key * Self::ROW));
                    let [float, ratio] = self.weight(score, scaled, narrow);
                    let sum = &mut sums[key % 2];
                    *sum = s.mul_add(float, ratio, *sum);
                    s.mul_add(float, ratio, s.splat(BYTE))
                },
            );
            let exact = s.add(sums[0], sums[1]);
            let so_far = s.mul_add(exact, after, total);
            let loss = s.mul(s.abs(s.sub(counted, exact)), after);
            let lost = s.less(s.mul(so_far, s.splat(MAX_LOSS)), loss);
            let lost = s.select(lost, s.splat(1.0), s.splat(0.0));
            // A query without a key has no weights.
            let needs = s.select(s.less(s.splat(0.5), counted), lost, s.splat(0.0));
            store(&mut state.running, new);
            store(&mut state.total, total);
            store(&mut state.offset, offset);
            store(&mut state.narrow, narrow);
            store(&mut state.before, before);
            store(&mut state.after, after);
            store(&mut state.counted, counted);
            store(&mut state.whole, whole);
            store(&mut state.needs, needs);
            (grows, s.any(s.less(s.splat(0.5), needs)))
        }
    }

    /// [`add_values`] of this tile.
    #[inline(always)]
    unsafe fn add_values(
        self,
        head: &Int8Head,
        Part { key, count, columns: (first, columns) }: Part,
        low: bool,
        stack: &mut TileStack,
    ) {
        let s = self.0.sums().floats();
        let (_, words, out) = stack.arrays();
        let mut after = self.load_line(stack.state.after.as_ptr());
        let (chosen, scale) = match low {
            true => (&stack.state.needs, 1.0 / 256.0),
            false => (&stack.state.whole, 1.0),
        };
        let chosen = self.load_line(chosen.as_ptr());
        for v in 0..QV {
            // The weights of other queries are zeros: -0 is added, which changes nothing.
            let chosen = s.less(s.splat(0.5), chosen[v]);
            after[v] = s.select(chosen, s.mul(after[v], s.splat(scale)), s.splat(-1.0));
        }
        let block = head.layout.block(head.kv, key);
        let steps = count.div_ceil(const { B::FORM.elements() });
        for column in (0..columns).step_by(K) {
            // SAFETY: the contract of `attend_tile`. After the last column the layout has `MAX_KEYS` more words.
            unsafe {
                let place = first + column;
                let values = (block.values.add(place).cast_const(), head.layout.columns);
                let mut sums = [[self.0.sums().splat_i32(0); QV]; K];
                if matches!(B::FORM, WordForm::Signed) {
                    for (i, sums) in sums.iter_mut().enumerate() {
                        let start = *block.value_starts.add(place + i);
                        *sums = [self.0.sums().splat_i32(start); QV];
                    }
                }
                let tile = self.multiply::<true>(sums, words, values, steps);
                for (i, tile) in tile.iter().enumerate() {
                    let scale = s.splat(*block.value_scales.add(place + i));
                    for v in 0..QV {
                        // The scale may be NaN.
                        let chosen = s.less(s.splat(0.5), chosen[v]);
                        let scale = s.select(chosen, scale, s.splat(0.0));
                        let at = out.add((column + i) * Self::ROW + v * B::Floats::LANES);
                        let x = s.mul(self.0.sums().to_f32(tile[v]), after[v]);
                        s.store(at, s.mul_add(x, scale, s.load(at)));
                    }
                }
            }
        }
    }
}

/// Makes the outputs of the queries NaN that see the key `bad`, which is not finite.
#[inline(never)]
fn mark_bad_rows(head: &HeadQuery, rows: &TileRows, bad: usize, inverse: &mut Lanes) {
    for (i, lane) in inverse.iter_mut().enumerate().take(rows.count) {
        if bad < head.limit(rows.first + i) {
            *lane = f32::NAN;
        }
    }
}
