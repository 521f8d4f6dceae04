//! From one call to the tasks that it is cut into: sequences times heads times blocks of queries, or
//! rows times heads of a decode step. Tasks write disjoint rows of output.

use super::bias::CheckedBias;
use super::cache::Cache;
use super::decode::{self, Attend, KvView, MOST_ROWS};
use super::error::AttentionError;
use super::flash::{MIN_QUERY_BLOCK, QUERY_BLOCK, Scores};
use super::head_params::HeadParams;
use super::heads::{Heads, HeadsMut};
use super::kv_dtype::{CacheDtype, F16Kv, F32Kv, KvFormat};
use super::online_softmax::WeightLines;
use super::options::{AttentionOptions, SlotTable, Weights};
#[cfg(feature = "train")]
use crate::dropout::WeightDropout;
use crate::isa::Isa;
use crate::mask::FullyMasked;
use crate::parallel::{Workers, share, work_to_share};
use crate::simd::{MAX_LANES, SimdF32, SimdOp, TileOp};
use core::marker::PhantomData;
use core::ops::Range;

/// Multiply-adds below which a second thread costs more than it brings.
pub(super) const MIN_WORK_TO_FORK: usize = work_to_share(1 << 18);

/// Chunks of tasks per thread.
const CHUNKS_PER_THREAD: usize = 8;

/// Runs `chunk` on ranges that cover `0..tasks`, on several threads when there is work for them.
pub(super) fn chunked(
    tasks: usize,
    work: usize,
    workers: Workers<'_>,
    chunk: &(dyn Fn(Range<usize>) + Sync),
) {
    let threads = workers.threads();
    if tasks == 0 {
        return;
    }
    if threads == 1 || work < MIN_WORK_TO_FORK {
        return chunk(0..tasks);
    }
    let chunks = tasks.min(threads * CHUNKS_PER_THREAD);
    workers.for_each(chunks, &|index| chunk(share(tasks, chunks, index)));
}

/// Most tasks that a call on `sequences` sequences can be cut into, of which the longest has `longest`
/// queries: what everything that counts tasks stays within.
///
/// # Errors
/// They cannot be counted.
pub(super) fn count_tasks(
    sequences: usize,
    heads: usize,
    longest: usize,
) -> Result<usize, AttentionError> {
    sequences
        .checked_mul(heads)
        .and_then(|pairs| pairs.checked_mul(longest.div_ceil(MIN_QUERY_BLOCK).max(1)))
        .ok_or(AttentionError::TooLarge)
}

/// Multiply-adds of sequences of `(queries, keys)` over `elements` elements of all heads, or as many
/// as can be counted: enough to decide who computes.
pub(super) fn estimate_work(
    sequences: impl Iterator<Item = (usize, usize)>,
    elements: [usize; 2],
) -> usize {
    sequences
        .map(|(queries, keys)| queries.saturating_mul(keys))
        .fold(0, usize::saturating_add)
        .saturating_mul(elements[0].saturating_mul(elements[1]))
}

/// Where one key-value head of one sequence is.
#[derive(Clone, Copy)]
pub(super) struct KvHead {
    pub(super) query_start: usize,
    pub(super) query_len: usize,
    pub(super) key_len: usize,
    pub(super) padded_len: usize,
    pub(super) keys: *const (),
    /// Of the next head: asked for early, never read.
    pub(super) next_keys: *const (),
    pub(super) values: *const (),
    pub(super) value_row: usize,
}

// SAFETY: the keys and values are borrowed for reading.
unsafe impl Sync for KvHead {}

/// What all sequences and heads of one call share, checked.
pub(super) struct AttentionParams<'a> {
    query: Heads<'a>,
    group: usize,
    scale: f32,
    causal: bool,
    fully_masked: FullyMasked,
    storage: CacheDtype,
    bias: Option<CheckedBias<'a>>,
    out: *mut f32,
    out_token: usize,
    out_head: usize,
    weights: *mut f32,
    weight_heads: &'a [usize],
    weights_head: usize,
    weights_query: usize,
    weights_len: usize,
    /// `[query tokens, heads, 2]`; null when nobody keeps them.
    sums: *mut f32,
    #[cfg(feature = "train")]
    dropout: Option<WeightDropout<'a>>,
}

// SAFETY: the pointers are to exclusively borrowed memory of which each task writes its own rows.
unsafe impl Sync for AttentionParams<'_> {}

impl<'a> AttentionParams<'a> {
    pub(super) fn new(
        query: &Heads<'a>,
        kv_heads: usize,
        options: &AttentionOptions<'_>,
        bias: Option<CheckedBias<'a>>,
        out: &mut HeadsMut<'_>,
        weights: Option<Weights<'a>>,
    ) -> Self {
        let mut call = Self {
            query: *query,
            group: query.heads() / kv_heads,
            scale: options.scale,
            causal: options.causal,
            fully_masked: options.fully_masked,
            storage: CacheDtype::F32,
            bias,
            out_token: out.token_stride(),
            out_head: out.head_stride(),
            out: out.shared().as_ptr(),
            weights: core::ptr::null_mut(),
            weight_heads: &[],
            weights_head: 0,
            weights_query: 0,
            weights_len: 0,
            sums: core::ptr::null_mut(),
            #[cfg(feature = "train")]
            dropout: None,
        };
        if let Some(weights) = weights {
            call.weights = weights.data.as_mut_ptr();
            call.weight_heads = weights.heads;
            call.weights_head = weights.head_stride;
            call.weights_query = weights.query_stride;
            call.weights_len = weights.keys;
        }
        call
    }

    /// What scores are multiplied by.
    #[cfg(feature = "train")]
    pub(super) fn scale(&self) -> f32 {
        self.scale
    }

    /// Where the output of a query token begins in a head, and from there to the next token's.
    #[cfg(feature = "train")]
    pub(super) fn out(&self, token: usize, head: usize) -> (*mut f32, usize) {
        (self.out.wrapping_add(token * self.out_token + head * self.out_head), self.out_token)
    }

    /// Drops weights; it was checked that each query token has a sentence.
    #[cfg(feature = "train")]
    pub(super) fn drop_weights(&mut self, dropout: Option<WeightDropout<'a>>) {
        self.dropout = dropout;
    }

    /// Reads keys and values of this form, in place of floats.
    pub(super) fn read(&mut self, storage: CacheDtype) {
        self.storage = storage;
    }

    /// Whether it writes them: then it is a forward of training.
    pub(super) fn keeps(&self) -> bool {
        !self.sums.is_null()
    }

    /// Also writes the maximum and one over the sum of the weights of each query and head to `sums`, whose
    /// length was checked.
    pub(super) fn keep(&mut self, sums: &'a mut [f32]) {
        self.sums = sums.as_mut_ptr();
    }

    /// Head `head` of the queries from `source.query_start`.
    pub(super) fn head(&self, source: &KvHead, head: usize) -> HeadParams {
        let start = source.query_start;
        let (query_len, key_len) = (source.query_len, source.key_len);
        let ((bias, bias_row), bias_hides, bias_whole) = match self.bias {
            Some(bias) => {
                let whole = bias.whole(head, (query_len, key_len), MAX_LANES);
                (bias.place(head, (start, query_len, key_len)), bias.hides, whole)
            }
            None => ((core::ptr::null(), 0), false, false),
        };
        let chosen = self.weight_heads.iter().position(|&wanted| wanted == head);
        let weights = chosen.map_or(core::ptr::null_mut(), |index| {
            self.weights.wrapping_add(index * self.weights_head + start * self.weights_query)
        });
        let (first_limit, limit_step) = if self.causal {
            (source.key_len as isize - source.query_len as isize + 1, 1)
        } else {
            (source.key_len as isize, 0)
        };
        HeadParams {
            query: self.query.at(start, head),
            query_row: self.query.token_stride(),
            keys: source.keys,
            next_keys: source.next_keys,
            values: source.values,
            value_row: source.value_row,
            out: self.out.wrapping_add(start * self.out_token + head * self.out_head),
            out_row: self.out_token,
            head_dim: self.query.head_dim(),
            scale: self.scale,
            key_len: source.key_len,
            padded_len: source.padded_len,
            first_limit,
            limit_step,
            bias,
            bias_row,
            bias_hides,
            bias_whole,
            fully_masked: self.fully_masked,
            weights,
            weights_row: self.weights_query,
            weights_len: self.weights_len,
            sums: if self.sums.is_null() {
                self.sums
            } else {
                self.sums.wrapping_add(2 * (start * self.query.heads() + head))
            },
            sums_row: 2 * self.query.heads(),
            #[cfg(feature = "train")]
            drops: self.dropout.and_then(|dropout| dropout.of_head(start, head)),
        }
    }

    /// Attends with every block of queries of every head of every sequence.
    pub(super) fn run(
        &self,
        isa: Isa,
        sequences: usize,
        query_len: impl Fn(usize) -> usize,
        work: usize,
        workers: Workers<'_>,
        source: &(dyn Fn(usize, usize) -> KvHead + Sync),
    ) {
        let longest = (0..sequences).map(query_len).max().unwrap_or(0);
        let heads = self.query.heads();
        // The larger the blocks, the fewer times keys and values come from outer caches; but each
        // thread wants several. The bits are the same. Even the smallest blocks have been counted.
        const { assert!(QUERY_BLOCK.is_multiple_of(MIN_QUERY_BLOCK)) };
        let mut block = QUERY_BLOCK;
        while block > MIN_QUERY_BLOCK
            && sequences * heads * longest.div_ceil(block) < 2 * workers.threads()
        {
            block /= 2;
        }
        let blocks = longest.div_ceil(block);
        chunked(sequences * heads * blocks, work, workers, &|range| {
            let blocks = Blocks { call: self, source, heads, block, blocks, range };
            dispatch(isa, self.storage, blocks);
        });
    }

    /// Attends with every query of one sequence that reads key-value head `head`.
    pub(super) fn run_head(&self, isa: Isa, head: usize, source: KvHead) {
        let heads = self.query.heads();
        let block = QUERY_BLOCK;
        let blocks = source.query_len.div_ceil(block);
        let first = head * self.group * blocks;
        let range = first..first + self.group * blocks;
        let source = &|_, _| source;
        dispatch(isa, self.storage, Blocks { call: self, source, heads, block, blocks, range });
    }
}

/// A range of `(sequence, head, block of queries)`.
struct Blocks<'a> {
    call: &'a AttentionParams<'a>,
    source: &'a (dyn Fn(usize, usize) -> KvHead + Sync),
    heads: usize,
    /// Queries in a block, and blocks of the longest sequence.
    block: usize,
    blocks: usize,
    range: Range<usize>,
}

impl KvOp for Blocks<'_> {
    #[inline(always)]
    fn attend<S: SimdF32, N: KvFormat, const NV: usize>(self, s: S) {
        let mut scores = Scores::new();
        for task in self.range {
            let (pair, block) = (task / self.blocks, task % self.blocks);
            let (index, head) = (pair / self.heads, pair % self.heads);
            let source = (self.source)(index, head / self.call.group);
            let start = block * self.block;
            if start >= source.query_len {
                continue;
            }
            let count = (source.query_len - start).min(self.block);
            let head = self.call.head(&source, head);
            // SAFETY: the views and ranges were checked; this task alone writes these rows.
            unsafe { head.attend::<S, N, NV>(s, start, count, &mut scores) };
        }
    }
}

/// What reads keys and values of a form that is known when it runs.
pub(super) trait KvOp {
    fn attend<S: SimdF32, N: KvFormat, const NV: usize>(self, s: S);
}

/// Runs `kernel` on keys and values of `storage`. Each form is entered by itself: on the stack are the scores of
/// one, not of all.
pub(super) fn dispatch<K: KvOp>(isa: Isa, storage: CacheDtype, kernel: K) {
    match storage {
        CacheDtype::F32 => isa.dispatch(Reading::<K, F32Kv>(kernel, PhantomData)),
        CacheDtype::F16 if !cfg!(feature = "f16") => {
            unreachable!("`CacheShape::len` refuses the format")
        }
        CacheDtype::F16 => isa.dispatch(Reading::<K, F16Kv>(kernel, PhantomData)),
    }
}

/// A kernel that reads keys and values stored as `N`.
struct Reading<K, N>(K, PhantomData<N>);

impl<K: KvOp, N: KvFormat> SimdOp for Reading<K, N> {
    type Output = ();

    #[inline(always)]
    fn run<S: SimdF32>(self, s: S) {
        s.with_tile_width(self);
    }
}

impl<K: KvOp, N: KvFormat> TileOp for Reading<K, N> {
    type Output = ();

    #[inline(always)]
    fn run<S: SimdF32, const NV: usize>(self, s: S) {
        self.0.attend::<S, N, NV>(s);
    }
}

/// A range of `(unit of rows, head)` of a decode step.
pub(super) struct Steps<'a> {
    pub(super) call: &'a AttentionParams<'a>,
    pub(super) cache: Cache<'a>,
    pub(super) ancestry: SlotTable<'a>,
    /// Rows in a unit.
    pub(super) unit: usize,
    pub(super) range: core::ops::Range<usize>,
}

impl KvOp for Steps<'_> {
    #[inline(always)]
    fn attend<S: SimdF32, N: KvFormat, const NV: usize>(self, s: S) {
        let heads = self.call.query.heads();
        let rows = self.ancestry.lens.len();
        let mut lines = WeightLines::new();
        let mut task = self.range.start;
        while task < self.range.end {
            let (unit, first) = (task / heads, task % heads);
            let count = (heads - first).min(self.range.end - task);
            let end = rows.min((unit + 1) * self.unit);
            let mut row = unit * self.unit;
            while row < end {
                let group = self.group::<S>(row, end);
                // A row's heads one after the other: so they lie in memory.
                for head in first..first + count {
                    let next = if head + 1 < first + count {
                        (row, head + 1)
                    } else if row + group.rows < end {
                        (row + group.rows, first)
                    } else {
                        (end, 0)
                    };
                    // SAFETY: slots and lengths were checked against the cache; this task alone writes
                    // these rows and this head.
                    unsafe {
                        match group.rows {
                            4 if const { together::<S>() >= 4 } => {
                                let past = self.past::<4>(&group, (row, head), next);
                                s.call_noinline(Attend::<N, 4, NV> {
                                    past,
                                    lines: &mut lines,
                                    numbers: PhantomData,
                                });
                            }
                            2 if const { together::<S>() >= 2 } => {
                                let past = self.past::<2>(&group, (row, head), next);
                                s.call_noinline(Attend::<N, 2, NV> {
                                    past,
                                    lines: &mut lines,
                                    numbers: PhantomData,
                                });
                            }
                            _ => {
                                let past = self.past::<1>(&group, (row, head), next);
                                past.attend::<S, N, NV>(s, &mut lines);
                            }
                        }
                    }
                }
                row += group.rows;
            }
            task += count;
        }
    }
}

/// Most rows that pass over what they have in common together: one on instruction sets without prefetch, where
/// computing takes longer than reading.
const fn together<S: SimdF32>() -> usize {
    if S::PREFETCHES { MOST_ROWS } else { 1 }
}

/// Rows that pass over what they have in common together: 1, 2 or 4.
struct Group<'a> {
    rows: usize,
    /// The slots of the past of each.
    slots: [&'a [u32]; MOST_ROWS],
    /// Keys whose slots all of them share, in whole panels.
    shared: usize,
}

impl<'a> Steps<'a> {
    /// The slots of the past of a row.
    #[inline(always)]
    fn slots(&self, row: usize) -> &'a [u32] {
        self.ancestry.past(row).unwrap_or(&[])
    }

    /// As many rows as have a beginning in common, from `row` on and before `end`.
    #[inline(always)]
    fn group<S: SimdF32>(&self, row: usize, end: usize) -> Group<'a> {
        let mut slots = [self.slots(row); MOST_ROWS];
        let mut rows = 1;
        while rows < const { together::<S>() } && row + rows < end {
            let next = self.slots(row + rows);
            if next.len() != slots[0].len() || next.first() != slots[0].first() {
                break;
            }
            slots[rows] = next;
            rows += 1;
        }
        if rows == 3 {
            rows = 2;
        }
        let shared = decode::shared::<S>(&slots[..rows]);
        match (rows, shared) {
            (1, _) | (_, 0) => Group { rows: 1, slots, shared: 0 },
            _ => Group { rows, slots, shared },
        }
    }

    /// One head of the `R` rows of a group from `row` on; after it comes `next`, a row and a head.
    #[inline(always)]
    fn past<const R: usize>(
        &self,
        group: &Group<'a>,
        (row, head): (usize, usize),
        next: (usize, usize),
    ) -> KvView<'a, R> {
        let rows = self.ancestry.lens.len();
        let head_of = |i: usize| {
            let source = KvHead {
                query_start: row + i,
                query_len: 1,
                key_len: group.slots[i].len(),
                padded_len: group.slots[i].len(),
                keys: core::ptr::null(),
                next_keys: core::ptr::null(),
                values: core::ptr::null(),
                value_row: 0,
            };
            self.call.head(&source, head)
        };
        KvView {
            heads: core::array::from_fn(head_of),
            cache: self.cache,
            kv_head: head / self.call.group,
            slots: core::array::from_fn(|i| group.slots[i]),
            shared: group.shared,
            next_kv_head: next.1 / self.call.group,
            next_slots: if next.0 < rows { self.slots(next.0) } else { &[] },
        }
    }
}

/// Rows of a decode step that one task attends with: the more, the more of them may share what they read, but
/// each thread wants several tasks. The bits are the same.
pub(super) fn rows_of_unit(rows: usize, heads: usize, threads: usize) -> usize {
    let mut unit = MOST_ROWS;
    while unit > 1 && rows.div_ceil(unit) * heads < 2 * threads {
        unit /= 2;
    }
    unit
}

#[cfg(test)]
mod tests {
    use super::*;

    /// What wrapped would be few tasks, of which two write one row.
    #[test]
    fn tasks_that_cannot_be_counted_are_refused() {
        const MAX: usize = usize::MAX;
        let half = 1 << (usize::BITS / 2);
        let block = MIN_QUERY_BLOCK;
        for (sequences, heads, longest) in [
            (half, half, 1),
            (half, half / 2, block + 1),
            (MAX, 2, 0),
            (1, MAX, block + 1),
            (block + 1, 1, MAX),
        ] {
            let found = count_tasks(sequences, heads, longest);
            let expected = Err(AttentionError::TooLarge);
            assert_eq!(found, expected, "{sequences} x {heads} x {longest}");
        }
        assert_eq!(count_tasks(3, 4, 0), Ok(12));
        assert_eq!(count_tasks(3, 4, QUERY_BLOCK), Ok(12 * QUERY_BLOCK / block));
        assert_eq!(count_tasks(0, MAX, MAX), Ok(0));
        assert_eq!(count_tasks(MAX, 1, block), Ok(MAX));
    }

    #[test]
    fn work_that_cannot_be_counted_is_much() {
        const MAX: usize = usize::MAX;
        assert_eq!(estimate_work([(2, 3), (4, 5)].into_iter(), [6, 7]), 26 * 42);
        for (sequences, elements) in [
            ([(MAX, MAX), (1, 1)], [1, 1]),
            ([(MAX, 1), (MAX, 1)], [1, 1]),
            ([(1, 1), (1, 1)], [MAX, MAX]),
            ([(1 << (usize::BITS / 2), 1 << (usize::BITS / 2 - 1)), (0, MAX)], [1, 2]),
        ] {
            assert_eq!(estimate_work(sequences.into_iter(), elements), MAX);
        }
    }
}
