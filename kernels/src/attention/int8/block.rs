//! One block of keys for one tile of queries: scores, weights and weighted sums. A lane of the vectors is a query.

use super::super::head_views::HeadRows;
use super::super::one_head::HeadQuery;
use super::layout::{BLOCK, KvLayout};
use super::quantize::{Columns, ones};
use crate::gemm::{Panels, Rows, TileOperand, multiply};
use crate::simd::SimdF32;
use crate::simd::int8::{BYTE, FloatVector, Int8Dot, MAX_KEYS, SimdI32, WordForm};
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
    /// The scale is that of scores as powers of two.
    pub(super) query: HeadQuery,
    pub(super) layout: KvLayout,
    /// The quantized keys and values.
    pub(super) kv: *mut f32,
    /// The values in f32.
    pub(super) value: HeadRows,
}

/// A tile of queries.
pub(super) struct TileRows {
    /// The words of the quantized queries and their factors, in the scratch.
    pub(super) words: *mut i32,
    /// The first query.
    pub(super) first: usize,
    /// At least 1, and at most as many as the set has lanes in a tile.
    pub(super) count: usize,
}

/// Queries times keys, or weights times values.
#[derive(Clone, Copy)]
struct LaneOperand<B, const WEIGHTS: bool>(B);

impl<B: Int8Dot, const WEIGHTS: bool> TileOperand for LaneOperand<B, WEIGHTS> {
    type SimdF32 = B::Floats;
    type Element = i32;
    type Weight = i32;
    type Vector = B::Words;
    type Sum = B::I32;

    #[inline(always)]
    fn lanes(self) -> B::Floats {
        self.0.sums().floats()
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
    fn multiply_add(self, shared: B::Words, lanes: B::Words, sum: B::I32) -> B::I32 {
        // Of both operands, weights and keys are the unsigned ones.
        let [unsigned, signed] = if WEIGHTS { [lanes, shared] } else { [shared, lanes] };
        self.0.add_products(sum, unsigned, signed)
    }
}

/// A number for each query of a tile.
pub(super) type Lanes = [f32; MAX_QUERIES];

/// What a tile needs of the stack.
#[repr(align(64))]
pub(super) struct TileStack {
    /// `[keys][queries]`: the scores. At the start of a tile the columns of its queries.
    pub(super) scores: Columns,
    /// `[words][queries]`: the weights, or one of their two bytes.
    words: [i32; BLOCK / 2 * MAX_QUERIES],
    /// `[columns][queries]`: the weighted sums of the values. A tile has whole groups of columns.
    sums: [MaybeUninit<f32>; (COLUMNS + MAX_KEYS) * MAX_QUERIES],
    /// The state of a block.
    pub(super) state: State,
}

/// The numbers of each query of a tile.
#[derive(Default)]
#[repr(C, align(64))]
pub(super) struct State {
    /// What scores are multiplied with.
    pub(super) factor: Lanes,
    /// The largest score of the block.
    pub(super) best: Lanes,
    /// The largest maximum so far, and the sum of all weights.
    pub(super) running: Lanes,
    pub(super) total: Lanes,
    /// What is added to scores, and for queries that see only a part of the block minus infinity.
    pub(super) offset: Lanes,
    pub(super) narrow: Lanes,
    /// The powers of two that the sums so far and those of this block are multiplied with.
    pub(super) before: Lanes,
    pub(super) after: Lanes,
    /// The sum of the weights of the block.
    pub(super) counted: Lanes,
    /// Visible keys of the block.
    pub(super) seen: Lanes,
    /// 1 for the queries that see the whole block, and for those that need weights of two bytes, otherwise 0.
    pub(super) whole: Lanes,
    pub(super) needs: Lanes,
}

impl TileStack {
    pub(super) fn new() -> Self {
        Self {
            scores: [const { MaybeUninit::uninit() }; _],
            words: [0; _],
            sums: [const { MaybeUninit::uninit() }; _],
            state: State::default(),
        }
    }

    /// Scores, words and sums, of one borrow: a borrow for each would end the one before.
    pub(super) fn arrays(&mut self) -> (*mut f32, *mut i32, *mut f32) {
        (self.scores.as_mut_ptr().cast(), self.words.as_mut_ptr(), self.sums.as_mut_ptr().cast())
    }
}

/// A vector for each vector of queries.
pub(super) type Line<B, const QV: usize> = [FloatVector<B>; QV];

/// A block of keys, and a part of the columns of its values.
#[derive(Clone, Copy)]
pub(super) struct Part {
    pub(super) key: usize,
    pub(super) count: usize,
    /// The first column, and how many there are.
    pub(super) columns: (usize, usize),
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
        let s = self.0.sums().floats();
        let mut line = [s.splat(0.0); QV];
        for (v, line) in line.iter_mut().enumerate() {
            // SAFETY: the callers pass the address of a row.
            *line = unsafe { s.load(from.add(v * B::Floats::LANES)) };
        }
        line
    }

    #[inline(always)]
    pub(super) fn store_line(self, to: *mut f32, line: Line<B, QV>) {
        let s = self.0.sums().floats();
        for v in 0..QV {
            // SAFETY: the callers pass the address of a row.
            unsafe { s.store(to.add(v * B::Floats::LANES), line[v]) };
        }
    }

    /// Adds `depth` products of words in lanes, `[depth][queries]`, with the words `[depth][..]` of each of `K` keys or
    /// columns: weights with values, or queries with keys.
    ///
    /// # Safety
    /// All these words can be read.
    #[inline(always)]
    pub(super) unsafe fn multiply<const WEIGHTS: bool>(
        self,
        sums: [[B::I32; QV]; K],
        lanes: *const i32,
        (shared, stride): (*const i32, usize),
        depth: usize,
    ) -> [[B::I32; QV]; K] {
        let panel = Panels::from_ptr(lanes, Self::ROW, B::Floats::LANES);
        let shared = Rows { at: shared, row: 1, step: stride };
        let operand = LaneOperand::<B, WEIGHTS>(self.0);
        // SAFETY: the caller's contract.
        let [sums] = unsafe { multiply(operand, [sums], depth, shared, panel, ()) };
        sums
    }

    /// Writes the scores of the keys of a block, in units of the factor of the query, and the largest of each query.
    #[inline(always)]
    pub(super) unsafe fn scores(
        self,
        head: &Int8Head,
        rows: &TileRows,
        Part { key, count, .. }: Part,
        stack: &mut TileStack,
    ) {
        let s = self.0.sums().floats();
        let (scores, ..) = stack.arrays();
        let mut best = [s.splat(f32::NEG_INFINITY); QV];
        let block = head.layout.block(head.kv, key);
        let mut start = [self.0.sums().splat_i32(0); QV];
        if !matches!(B::FORM, WordForm::Signed) {
            let starts = rows.words.wrapping_add((head.layout.steps + 1) * Self::ROW);
            for (v, start) in start.iter_mut().enumerate() {
                // SAFETY: the contract of `attend_tile`.
                *start = unsafe { self.0.sums().load_sums(starts.add(v * B::Floats::LANES)) };
            }
        }
        for first in (0..count).step_by(K) {
            // SAFETY: the contract of `attend_tile`. After the last key the layout has `MAX_KEYS` more words.
            let tile = unsafe {
                let keys = (block.keys.add(first).cast_const(), BLOCK);
                self.multiply::<false>([start; K], rows.words, keys, head.layout.steps)
            };
            for (i, tile) in tile.iter().enumerate().take((count - first).min(K)) {
                // SAFETY: as above; `scores` has a row for each key of a block.
                unsafe {
                    let scale = s.splat(*block.key_scales.add(first + i));
                    for v in 0..QV {
                        let score = s.mul(self.0.sums().to_f32(tile[v]), scale);
                        best[v] = s.max(best[v], score);
                        s.store(scores.add((first + i) * Self::ROW + v * B::Floats::LANES), score);
                    }
                }
            }
        }
        for missing in count..count.next_multiple_of(4) {
            let none = [s.splat(f32::NEG_INFINITY); QV];
            self.store_line(scores.wrapping_add(missing * Self::ROW), none);
        }
        self.store_line(stack.state.best.as_mut_ptr(), best);
    }

    /// The weight of a score as a product of two numbers, of which the first is a float with the exponent.
    #[inline(always)]
    pub(super) fn weight(
        self,
        score: FloatVector<B>,
        factor: FloatVector<B>,
        offset: FloatVector<B>,
    ) -> [FloatVector<B>; 2] {
        let s = self.0.sums().floats();
        let bits = s.max(s.mul_add(score, factor, offset), s.splat(LOWEST));
        let [float, mantissa] = self.0.float_of_bits(bits);
        let ratio = s.mul_add(s.splat(RATIO[3]), mantissa, s.splat(RATIO[2]));
        let ratio = s.mul_add(ratio, mantissa, s.splat(RATIO[1]));
        let ratio = s.mul_add(ratio, mantissa, s.splat(RATIO[0]));
        [float, ratio]
    }

    /// Writes the words of the weights of a block for a vector of queries, which `weight` gives for a key as integers plus
    /// [`BYTE`], and returns the sum of the weights.
    ///
    /// # Safety
    /// `words` is the vector in the first row of words.
    #[inline(always)]
    pub(super) unsafe fn pack(
        self,
        count: usize,
        words: *mut i32,
        mut weight: impl FnMut(usize) -> FloatVector<B>,
    ) -> FloatVector<B> {
        let (b, s) = (self.0, self.0.sums().floats());
        let groups = count.div_ceil(4);
        let per_group = const { 4 / B::FORM.elements() };
        let signed = matches!(B::FORM, WordForm::Signed);
        let start = if signed { 128 * 4 * groups as i32 } else { 0 };
        let ones = b.splat_word(ones(B::FORM));
        let mut sum = b.sums().splat_i32(start);
        for group in 0..groups {
            let mut rounded = [s.splat(BYTE); 4];
            for (i, rounded) in rounded.iter_mut().enumerate() {
                *rounded = weight(group * 4 + i);
            }
            let packed = b.pack(rounded);
            for (i, &packed) in packed.iter().enumerate().take(per_group) {
                // SAFETY: `words` has a row for each word of a block.
                unsafe { b.store_words(words.add((group * per_group + i) * Self::ROW), packed) };
                sum = b.add_products(sum, packed, ones);
            }
        }
        b.sums().to_f32(sum)
    }
}
