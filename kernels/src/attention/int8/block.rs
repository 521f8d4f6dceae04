//! One block of keys for one tile of queries: scores, weights and weighted sums. A lane of the vectors is a query.

use super::super::head_views::HeadRows;
use super::layout::{BLOCK, KvLayout};
use super::quantize::QueryTile;
use crate::gemm::{Panels, Rows, TileOperand, multiply};
use crate::simd::SimdF32;
use crate::simd::int8::Int8Dot;
use crate::simd::int8_lanes::{BYTE, Int8Lanes, MAX_KEYS, WordForm};
use core::mem::MaybeUninit;

/// Most queries of a tile, on any set.
pub(super) const MAX_QUERIES: usize = 32;

/// Columns of values whose sums are on the stack. Wider heads compute their weights once for each part.
pub(super) const COLUMNS: usize = 128;

/// The exponent of the smallest weight, as a biased exponent times `2^23`. Smaller weights have no slow subnormal
/// numbers, and round to 0 all the same.
pub(super) const LOWEST: f32 = 87.0 * BYTE;

/// `2^(x - 1) / x` for `x` in `1..2`, within 6.7e-4 of its value: what the number of a float's exponent and mantissa,
/// `2^n x`, is to be multiplied with for `2^(n + x - 1)`.
pub(super) const RATIO: [f32; 4] = [1.775_614_7, -1.377_307_6, 0.707_475_83, -0.106_445_7];

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
    pub(super) fn limit(&self, row: usize) -> usize {
        let limit = self.first_limit.saturating_add(self.limit_step * row as isize);
        (limit.max(0) as usize).min(self.keys)
    }
}

/// Queries times keys, or weights times values.
#[derive(Clone, Copy)]
pub(super) struct LaneOperand<B, const WEIGHTS: bool>(B);

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
pub(super) type Lanes = [f32; MAX_QUERIES];

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
    pub(super) state: State,
}

/// The numbers of each query in a block, in memory.
#[repr(align(64))]
pub(super) struct State {
    pub(super) factor: Lanes,
    pub(super) offset: Lanes,
    /// The power of two that the sums of this block are multiplied with.
    pub(super) after: Lanes,
    /// 1 for the queries that need weights of two bytes, or of f32, otherwise 0.
    pub(super) chosen: Lanes,
    /// Visible keys of the block.
    pub(super) seen: Lanes,
    /// The sum of the weights.
    pub(super) counted: Lanes,
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

    pub(super) fn scores(&mut self) -> *mut f32 {
        self.scores.as_mut_ptr().cast()
    }

    pub(super) fn words(&mut self) -> *mut i32 {
        self.words.as_mut_ptr().cast()
    }

    pub(super) fn sums(&mut self) -> *mut f32 {
        self.sums.as_mut_ptr().cast()
    }
}

/// A vector for each vector of queries.
pub(super) type Line<B, const QV: usize> = [<<B as Int8Lanes>::LaneFloats as SimdF32>::F32; QV];

/// A block of keys, and a part of the columns of its values.
#[derive(Clone, Copy)]
pub(super) struct Part {
    pub(super) key: usize,
    pub(super) count: usize,
    pub(super) column: usize,
    pub(super) columns: usize,
}

/// The code of a tile of `QV` vectors of queries, `K` keys or columns at a time. All functions have the contract of
/// [`attend_tile`](super::tile::attend_tile); the arrays of [`TileStack`] have space for `QV` vectors of queries.
#[derive(Clone, Copy)]
pub(super) struct TileRun<B, const K: usize, const QV: usize>(pub(super) B);

impl<B: Int8Dot, const K: usize, const QV: usize> TileRun<B, K, QV> {
    /// Queries of the tile.
    pub(super) const ROW: usize = QV * <B::Floats as SimdF32>::LANES;

    #[inline(always)]
    pub(super) fn load_line(self, from: *const f32) -> Line<B, QV> {
        let s = self.0.lane_floats();
        let mut line = [s.splat(0.0); QV];
        for (v, line) in line.iter_mut().enumerate() {
            // SAFETY: the callers pass the address of a row.
            *line = unsafe { s.load(from.add(v * B::Floats::LANES)) };
        }
        line
    }

    #[inline(always)]
    pub(super) fn store_line(self, to: *mut f32, line: Line<B, QV>) {
        let s = self.0.lane_floats();
        for (v, line) in line.into_iter().enumerate() {
            // SAFETY: the callers pass the address of a row.
            unsafe { s.store(to.add(v * B::Floats::LANES), line) };
        }
    }

    /// The scores of the keys of a block, in units of the factor of the query, and the largest of each query.
    #[inline(always)]
    pub(super) unsafe fn scores(
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
    pub(super) fn weight(
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
    pub(super) unsafe fn pack(
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
    pub(super) unsafe fn weights(
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
    pub(super) unsafe fn add_values<const CHOSEN: bool>(
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
}
