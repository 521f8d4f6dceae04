//! What few blocks need: weights of two bytes, and the edge of a causal mask. These are functions of their own, and their
//! operands are in memory.

use super::super::one_head::HeadQuery;
use super::block::{Int8Head, Lanes, Part, TileRun, TileStack};
use super::layout::BLOCK;
use crate::simd::int8::{BYTE, SimdI32};
use crate::simd::{SimdF32, simd_op};

simd_op!(
    /// At the edge of a causal mask: replaces the scores of hidden keys by minus infinity, and writes the number of visible
    /// keys of the block, and the largest score.
    pub(super) fn hide_scores<B: Int8Dot, const NV: usize, const TV: usize>(
        b: B,
        head: &Int8Head,
        first: usize,
        part: Part,
        stack: &mut TileStack,
    ) {
        let (run, s) = (TileRun::<B, 1, TV>(b), b.sums().floats());
        count_seen(&head.query, first, part.key, &mut stack.state.seen);
        let seen = run.load_line(stack.state.seen.as_ptr());
        let none = s.splat(f32::NEG_INFINITY);
        let mut best = [none; TV];
        let (scores, ..) = stack.arrays();
        for key in 0..part.count {
            let at = scores.wrapping_add(key * TileRun::<B, 1, TV>::ROW);
            let mut line = run.load_line(at);
            for v in 0..TV {
                line[v] = s.select(s.less(s.splat(key as f32), seen[v]), line[v], none);
                best[v] = s.max(best[v], line[v]);
            }
            run.store_line(at, line);
        }
        run.store_line(stack.state.best.as_mut_ptr(), best);
    }
);

/// The visible keys of the block of `key`.
#[inline(never)]
fn count_seen(head: &HeadQuery, first: usize, key: usize, seen: &mut Lanes) {
    for (i, seen) in seen.iter_mut().enumerate() {
        *seen = head.limit(first + i).saturating_sub(key).min(BLOCK) as f32;
    }
}

simd_op!(
    /// Writes the words of the high or the low bytes of the weights of a block, and their sums as `counted`. Queries that do
    /// not need two bytes have their weights of one byte as the high bytes, and zeros as the low bytes.
    pub(super) fn weigh_in_bytes<B: Int8Dot, const NV: usize, const TV: usize>(
        b: B,
        count: usize,
        high: bool,
        stack: &mut TileStack,
    ) {
        let (run, s) = (TileRun::<B, 1, TV>(b), b.sums().floats());
        let row = TileRun::<B, 1, TV>::ROW;
        let (byte, magic) = (s.splat(BYTE), s.splat(1.5 * BYTE));
        for first in (0..row).step_by(B::Floats::LANES) {
            let (scores, words, _) = stack.arrays();
            let scores = scores.wrapping_add(first);
            let state = &mut stack.state;
            // SAFETY: `first` is the first lane of a vector. `scores` has rows up to a multiple of four, and `words` those
            // of a block.
            unsafe {
                let factor = s.mul(s.load(state.factor.as_ptr().add(first)), byte);
                let offset = s.load(state.narrow.as_ptr().add(first));
                let chosen = s.less(s.splat(0.5), s.load(state.needs.as_ptr().add(first)));
                let counted = run.pack(
                    count,
                    words.add(first),
                    #[inline(always)]
                    |key| {
                        let score = s.load(scores.add(key * row));
                        let [float, ratio] = run.weight(score, factor, offset);
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
                        s.select(chosen, s.add(two, byte), one)
                    },
                );
                s.store(state.counted.as_mut_ptr().add(first), counted);
            }
        }
    }
);

/// Columns of values that are added at once to the sums of queries that see a part of a block.
const EDGE_COLUMNS: usize = 4;

simd_op!(
    /// Adds the values of a block to the sums of the queries that see only a part of it, in f32, and writes the sums of
    /// their weights as `counted`. A value in memory is multiplied only for the queries that see it.
    ///
    /// # Safety
    /// That of [`attend_tile`](super::tile::attend_tile).
    pub(super) unsafe fn add_partly_seen<B: Int8Dot, const NV: usize, const TV: usize>(
        b: B,
        head: &Int8Head,
        part: Part,
        stack: &mut TileStack,
    ) {
        let (run, s) = (TileRun::<B, 1, TV>(b), b.sums().floats());
        let row = TileRun::<B, 1, TV>::ROW;
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
        let (scores, _, sums) = stack.arrays();
        let mut counted = [s.splat(0.0); TV];
        for key in 0..part.count {
            let at = scores.wrapping_add(key * row);
            let mut line = run.load_line(at);
            for v in 0..TV {
                let [float, ratio] =
                    run.weight(line[v], s.mul(factor[v], s.splat(BYTE)), offset[v]);
                let weight = s.mul(float, ratio);
                let sum = s.add(counted[v], weight);
                counted[v] = s.select(s.less(s.splat(key as f32), seen[v]), sum, counted[v]);
                line[v] = s.mul(weight, after[v]);
            }
            run.store_line(at, line);
        }
        for first in (0..part.columns.1).step_by(EDGE_COLUMNS) {
            let columns = (part.columns.1 - first).min(EDGE_COLUMNS);
            let mut tile = [[s.splat(0.0); TV]; EDGE_COLUMNS];
            for (i, tile) in tile.iter_mut().enumerate().take(columns) {
                *tile = run.load_line(sums.wrapping_add((first + i) * row));
            }
            for key in 0..part.count {
                let weights = run.load_line(scores.wrapping_add(key * row));
                let value = head.value.at.wrapping_add((part.key + key) * head.value.stride);
                let value = value.wrapping_add(part.columns.0 + first);
                for i in 0..EDGE_COLUMNS {
                    // SAFETY: the value exists, by the contract of this function.
                    let x = s.splat(unsafe { *value.add(i.min(columns - 1)) });
                    for v in 0..TV {
                        let sum = s.mul_add(weights[v], x, tile[i][v]);
                        let visible = s.less(s.splat(key as f32), seen[v]);
                        tile[i][v] = s.select(visible, sum, tile[i][v]);
                    }
                }
            }
            for (i, tile) in tile.into_iter().enumerate().take(columns) {
                run.store_line(sums.wrapping_add((first + i) * row), tile);
            }
        }
        run.store_line(stack.state.counted.as_mut_ptr(), counted);
    }
);
