//! Queries of a decode step that read the same slots of the cache: their scores with keys, and their sums of weights
//! times values.
//!
//! The keys and values that only one query reads are processed in separate functions, which groups of all sizes call.

use super::cache::Cache;
use super::kv_dtype::KvFormat;
use super::one_head::HeadQuery;
use super::online_softmax::{KEY_BLOCK, KeyBlock};
use super::panels::value_row;
use crate::gemm::{Panels, Rows, Tile, multiply, multiply_one};
use crate::prefetch::ONE_QUERY_STEPS;
use crate::simd::{CACHE_LINE_F32, MAX_LANES, MAX_PANEL, SimdF32, simd_op, vector_groups};

/// Panels that are scored at once, where vectors have fewer than 16 lanes.
const WIDE: usize = 8;

/// Consecutive queries of one head that read the same slots.
#[derive(Clone, Copy)]
pub(super) struct Queries<'a> {
    pub(super) heads: &'a [HeadQuery],
    /// The slot of each key.
    pub(super) slots: &'a [u32],
    pub(super) cache: Cache<'a>,
    pub(super) kv_head: usize,
}

impl Queries<'_> {
    /// The panel of `position` in `slot`.
    #[inline(always)]
    pub(super) fn panel<S: SimdF32, N: KvFormat>(
        &self,
        slot: u32,
        position: usize,
    ) -> *const N::KvElement {
        let panel = position / S::LANES * self.heads[0].head_dim * S::LANES;
        self.cache.keys(slot as usize, self.kv_head).cast::<N::KvElement>().wrapping_add(panel)
    }

    /// The value row of `position` in `slot`.
    #[inline(always)]
    pub(super) fn value<S: SimdF32, N: KvFormat>(
        &self,
        slot: u32,
        position: usize,
    ) -> *const N::KvElement {
        let row = value_row(S::LANES, self.heads[0].head_dim);
        let values = self.cache.values(slot as usize, self.kv_head).cast::<N::KvElement>();
        values.wrapping_add(position * row)
    }

    /// Scores of a single query with the panels of a block, from panel `first`. `after` is the address of the next
    /// read, for prefetch.
    ///
    /// # Safety
    /// As `KvView::attend`; `line` is valid for writes of a block of scores.
    #[inline(always)]
    pub(super) unsafe fn own_scores<S: SimdF32, N: KvFormat>(
        &self,
        s: S,
        block: KeyBlock,
        first: usize,
        after: *const N::KvElement,
        highest: &mut S::F32,
        line: *mut f32,
    ) {
        let highest = core::array::from_mut(highest);
        let panels = block.len.div_ceil(S::LANES);
        let mut v = first;
        // SAFETY: the `# Safety` contract of `own_scores` holds; `panels * LANES <= KEY_BLOCK`.
        unsafe {
            vector_groups!(v, panels, [WIDE if S::LANES < 16, 4, 2, 1] => {
                self.group::<S, N, 1>(s, block, v, after, highest, line)
            });
        }
    }

    /// Scores of `G` panels of a block, from panel `v`, for `MR` queries. Each panel is scored in the slot of its first
    /// position. If its positions are in several slots, the lanes of the other slots are replaced. `after` is the
    /// address of the next read after the last panel of the block, for prefetch.
    ///
    /// # Safety
    /// As `KvView::attend`; the panels exist, and `lines` is valid for writes of a block of scores of each query.
    #[inline(always)]
    pub(super) unsafe fn group<S: SimdF32, N: KvFormat, const MR: usize, const G: usize>(
        &self,
        s: S,
        block: KeyBlock,
        v: usize,
        after: *const N::KvElement,
        highest: &mut [S::F32; MR],
        lines: *mut f32,
    ) {
        let slots = &self.slots[block.key..block.key + block.len];
        let mut from = [core::ptr::null(); G];
        for (g, from) in from.iter_mut().enumerate() {
            let first = (v + g) * S::LANES;
            *from = self.panel::<S, N>(slots[first], block.key + first);
        }
        let prefetch = match slots.get((v + G) * S::LANES) {
            Some(&slot) => self.panel::<S, N>(slot, block.key + (v + G) * S::LANES),
            None => after,
        };
        // SAFETY: the panels have been written, by the contract of `KvView::attend`.
        let sums = unsafe { self.sums::<S, N, MR, G>(s, from, prefetch) };
        for (g, mut sums) in sums.into_iter().enumerate() {
            let first = (v + g) * S::LANES;
            let slots = &slots[first..slots.len().min(first + S::LANES)];
            if !all_equal(slots) {
                for lane in 1..slots.len() {
                    let slot = slots[lane];
                    // Score each slot once, at its first position.
                    if slot == slots[lane - 1] || slots[..lane].contains(&slot) {
                        continue;
                    }
                    let from = [self.panel::<S, N>(slot, block.key + first)];
                    // SAFETY: the panel has been written, by the contract of `KvView::attend`.
                    let [others] = unsafe { self.sums::<S, N, MR, 1>(s, from, prefetch) };
                    for (at, &found) in slots.iter().enumerate().skip(lane) {
                        if found == slot {
                            for i in 0..MR {
                                let before = s.select(s.first(at + 1), others[i][0], sums[i][0]);
                                sums[i][0] = s.select(s.first(at), sums[i][0], before);
                            }
                        }
                    }
                }
            }
            for i in 0..MR {
                let head = &self.heads[i];
                let mut x = s.mul(sums[i][0], s.splat(head.scale));
                if let Some(bias) = head.bias {
                    // SAFETY: the head has a single query, row 0, which sees all of its keys.
                    x = unsafe { bias.add_to(s, x, (0, block.key + first), slots.len()) };
                }
                let x = s.select(s.first(slots.len()), x, s.splat(f32::NEG_INFINITY));
                highest[i] = s.max(x, highest[i]);
                // SAFETY: `first + LANES <= KEY_BLOCK`, and `lines` has a line for each query.
                unsafe { s.store(lines.add(i * KEY_BLOCK + first), x) };
            }
        }
    }

    /// One vector of sums for each panel in `from` and each of `MR` queries. Prefetches as many vectors from
    /// `prefetch`, which may be an invalid address.
    ///
    /// # Safety
    /// The panels exist.
    #[inline(always)]
    unsafe fn sums<S: SimdF32, N: KvFormat, const MR: usize, const G: usize>(
        &self,
        s: S,
        from: [*const N::KvElement; G],
        prefetch: *const N::KvElement,
    ) -> [Tile<S, MR, 1>; G] {
        let head = &self.heads[0];
        let queries = Rows { at: head.query, row: head.query_row, step: 1 };
        let keys = Panels { at: from, step: S::LANES, vector: S::LANES };
        let zero = [[[s.splat(0.0)]; MR]; G];
        let prefetch = N::prefetch_lines(prefetch, G, S::LANES);
        // SAFETY: the query rows have `head_dim` elements, and each panel has as many vectors.
        unsafe { multiply(N::operand(s), zero, head.head_dim, queries, keys, prefetch) }
    }

    /// Adds weights times values of a part of a block to `acc`, slot by slot. `after` is the address of the next read,
    /// for prefetch.
    ///
    /// # Safety
    /// As `KvView::attend`; `weights` are those of the block, a line for each query.
    #[inline(always)]
    pub(super) unsafe fn runs<S: SimdF32, N: KvFormat, const MR: usize, const G: usize>(
        &self,
        s: S,
        mut acc: [[S::F32; G]; MR],
        part: BlockPart,
        weights: *const f32,
        after: *const N::KvElement,
    ) -> [[S::F32; G]; MR] {
        let BlockPart { block, column, mut start, end } = part;
        let row = value_row(S::LANES, self.heads[0].head_dim);
        let slots = &self.slots[block.key..block.key + end];
        while start < end {
            let slot = slots[start];
            let at = |slot: u32, key: usize| {
                self.value::<S, N>(slot, block.key + key).wrapping_add(column)
            };
            let mut run = run_of(&slots[start..]);
            // Prefetch the value `ONE_QUERY_STEPS` positions ahead, in its own slot. After the last value, prefetch
            // `after`.
            let prefetch = if let Some(&later) = slots.get(start + ONE_QUERY_STEPS) {
                run = run.min(run_of(&slots[start + ONE_QUERY_STEPS..]));
                at(later, start + ONE_QUERY_STEPS)
            } else {
                let near_end = end.saturating_sub(ONE_QUERY_STEPS).max(part.start);
                after.wrapping_add((start - near_end) * G * S::LANES)
            };
            let weights = Rows { at: weights.wrapping_add(start), row: KEY_BLOCK, step: 1 };
            let values = Panels::one(at(slot, start), row, S::LANES);
            let prefetch = N::prefetch_lines(prefetch, G, CACHE_LINE_F32);
            // SAFETY: these positions of the slot have been written, by the contract of `KvView::attend`.
            acc = unsafe { multiply_one(N::operand(s), acc, run, weights, values, prefetch) };
            start += run;
        }
        acc
    }
}

simd_op!(
    /// [`Queries::own_scores`] as a separate function, for the queries of a group. `highest` is the maximum score in
    /// each lane so far.
    ///
    /// # Safety
    /// As [`Queries::own_scores`].
    pub(super) unsafe fn own_scores<S: SimdF32, N: KvFormat>(
        s: S,
        own: Queries<'_>,
        block: KeyBlock,
        first: usize,
        after: *const N::KvElement,
        highest: &mut [f32; MAX_LANES],
        line: *mut f32,
    ) {
        // SAFETY: the caller's contract. A vector of any instruction set fits in `highest`.
        unsafe {
            let mut lanes = s.load(highest.as_ptr());
            own.own_scores::<S, N>(s, block, first, after, &mut lanes, line);
            s.store(highest.as_mut_ptr(), lanes);
        }
    }
);

simd_op!(
    /// [`Queries::runs`] of one query as a separate function, for the queries of a group. Adds the sums to the `G`
    /// vectors in `sums`.
    ///
    /// # Safety
    /// As [`Queries::runs`].
    pub(super) unsafe fn own_values<S: SimdF32, N: KvFormat, const G: usize>(
        s: S,
        own: Queries<'_>,
        part: BlockPart,
        weights: *const f32,
        after: *const N::KvElement,
        sums: &mut [f32; MAX_PANEL],
    ) {
        const { assert!(G * S::LANES <= MAX_PANEL) };
        let mut acc = [[s.splat(0.0); G]; 1];
        // SAFETY: the caller's contract. `G` vectors fit in `sums`.
        unsafe {
            for (g, x) in acc[0].iter_mut().enumerate() {
                *x = s.load(sums.as_ptr().add(g * S::LANES));
            }
            let acc = own.runs::<S, N, 1, G>(s, acc, part, weights, after);
            for (g, &x) in acc[0].iter().enumerate() {
                s.store(sums.as_mut_ptr().add(g * S::LANES), x);
            }
        }
    }
);

/// Keys `start..end` of a block, and one group of output columns.
#[derive(Clone, Copy)]
pub(super) struct BlockPart {
    pub(super) block: KeyBlock,
    pub(super) column: usize,
    pub(super) start: usize,
    pub(super) end: usize,
}

/// Whether all `slots` are equal. There is at least one.
#[inline(always)]
fn all_equal(slots: &[u32]) -> bool {
    slots.iter().fold(0, |difference, &slot| difference | (slot ^ slots[0])) == 0
}

/// How many `slots`, from the first, are equal.
#[inline(always)]
fn run_of(slots: &[u32]) -> usize {
    let Some(&slot) = slots.first() else { return 0 };
    let (chunks, _) = slots.as_chunks::<16>();
    let differs = |chunk: &[u32; 16]| chunk.iter().fold(0, |all, &other| all | (slot ^ other)) != 0;
    let whole = 16 * chunks.iter().take_while(|&chunk| !differs(chunk)).count();
    whole + slots[whole..].iter().take_while(|&&other| other == slot).count()
}
