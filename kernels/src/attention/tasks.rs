//! The parameters of one call, and its split into tasks: sequences times heads times blocks of queries, or rows times
//! heads in a decode step. Tasks write disjoint rows of the output.

use super::bias::CheckedBias;
use super::cache::Cache;
use super::decode::{self, KvView, MAX_SHARED_ROWS, attend};
use super::flash::{FlashHead, MIN_QUERY_BLOCK, QUERY_BLOCK, Scores};
use super::head_views::{HeadPtrs, Heads, HeadsMut};
use super::kv_dtype::{KvFormat, with_kv_format};
use super::one_head::{HeadKv, HeadQuery, RowsOut};
use super::online_softmax::WeightLines;
use super::options::{AttentionOptions, AttentionWeights, Sequence, SlotTable};
#[cfg(feature = "train")]
use crate::dropout::WeightDropout;
use crate::dtype::Dtype;
use crate::error::Error;
use crate::isa::Isa;
use crate::parallel::{Workers, share, work_to_share};
use crate::simd::{SimdF32, simd_op};
use crate::softmax::FullyMasked;
use crate::sync_ptr::SharedMut;
use core::ops::Range;

/// Multiply-adds below which a second thread costs more time than it saves.
pub(super) const MIN_WORK_TO_FORK: usize = work_to_share(1 << 18);

/// Chunks of tasks per thread.
const CHUNKS_PER_THREAD: usize = 8;

/// Runs `chunk` on ranges that cover `0..tasks`, on several threads if there is enough work.
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

/// Upper bound of the number of tasks of a call on `sequences` sequences, of which the longest has `longest` queries.
/// All other task counts are at most this bound.
///
/// # Errors
/// The number overflows.
pub(super) fn count_tasks(sequences: usize, heads: usize, longest: usize) -> Result<usize, Error> {
    sequences
        .checked_mul(heads)
        .and_then(|pairs| pairs.checked_mul(longest.div_ceil(MIN_QUERY_BLOCK).max(1)))
        .ok_or(Error::TooLarge { operand: "the list of tasks" })
}

/// Multiply-adds of sequences of `(queries, keys)` over `elements` elements of all heads, saturating. It decides the
/// number of threads.
pub(super) fn estimate_work(
    sequences: impl Iterator<Item = (usize, usize)>,
    elements: [usize; 2],
) -> usize {
    sequences
        .map(|(queries, keys)| queries.saturating_mul(keys))
        .fold(0, usize::saturating_add)
        .saturating_mul(elements[0].saturating_mul(elements[1]))
}

/// The checked parameters that all sequences and heads of one call share.
pub(super) struct AttentionParams<'a> {
    pub(super) query: Heads<'a>,
    /// Query heads that read one key-value head.
    pub(super) group: usize,
    pub(super) scale: f32,
    pub(super) causal: bool,
    pub(super) fully_masked: FullyMasked,
    /// The dtype of keys and values.
    pub(super) dtype: Dtype,
    pub(super) bias: Option<CheckedBias<'a>>,
    pub(super) out: HeadPtrs<'a>,
    /// Receives the weights: the data, which the second value does not have any more.
    weights: Option<(SharedMut<'a>, AttentionWeights<'a>)>,
    /// `[query tokens, heads, 2]`: receives the maximum score and the reciprocal of the sum of the weights of each query
    /// and head.
    pub(super) sums: Option<SharedMut<'a>>,
    /// The dropout of weights. There is a sentence for each query token.
    #[cfg(feature = "train")]
    pub(super) dropout: Option<WeightDropout<'a>>,
}

/// The queries, keys and values of a task: the sequence, of which no key is read at `key_start`, and its keys and
/// values.
pub(super) type KvHead = (Sequence, HeadKv);

impl<'a> AttentionParams<'a> {
    /// Keys and values are f32. Sums are not saved, and no weight is dropped.
    pub(super) fn new(
        query: &Heads<'a>,
        kv_heads: usize,
        options: &AttentionOptions<'_>,
        bias: Option<CheckedBias<'a>>,
        out: &'a mut HeadsMut<'_>,
        weights: Option<AttentionWeights<'a>>,
    ) -> Self {
        Self {
            query: *query,
            group: query.heads() / kv_heads,
            scale: options.scale,
            causal: options.causal,
            fully_masked: options.fully_masked,
            dtype: Dtype::F32,
            bias,
            out: out.shared(),
            weights: weights
                .map(|mut weights| (SharedMut::new(core::mem::take(&mut weights.data)), weights)),
            sums: None,
            #[cfg(feature = "train")]
            dropout: None,
        }
    }

    /// The queries of `sequence` in head `head`.
    pub(super) fn head(&self, sequence: &Sequence, head: usize) -> HeadQuery {
        let &Sequence { query_start: start, query_len, key_len, padded_len, .. } = sequence;
        let (first_limit, limit_step) = match self.causal {
            true => (key_len as isize - query_len as isize + 1, 1),
            false => (key_len as isize, 0),
        };
        let weights = self.weights.as_ref().and_then(|(data, weights)| {
            let &AttentionWeights { heads, head_stride, query_stride: row, keys: len, .. } =
                weights;
            let index = heads.iter().position(|&wanted| wanted == head)?;
            let at = data.as_ptr().wrapping_add(index * head_stride + start * row);
            Some(RowsOut { at, row, len })
        });
        let heads = self.query.heads();
        HeadQuery {
            query: self.query.at(start, head),
            query_row: self.query.token_stride(),
            out: self.out.at(start, head),
            out_row: self.out.token_stride(),
            head_dim: self.query.head_dim(),
            scale: self.scale,
            key_len,
            padded_len,
            first_limit,
            limit_step,
            bias: self.bias.map(|bias| bias.rows(head, sequence)),
            fully_masked: self.fully_masked,
            weights,
            sums: self.sums.map(|sums| {
                let at = sums.as_ptr().wrapping_add(2 * (start * heads + head));
                RowsOut { at, row: 2 * heads, len: 2 }
            }),
            #[cfg(feature = "train")]
            drops: self.dropout.and_then(|dropout| dropout.of_head(start, head)),
        }
    }

    /// Computes attention for every block of queries of every head of `sequences` sequences, of which the longest has
    /// `longest` queries. `kv` gives the keys and values of a sequence and a key-value head.
    pub(super) fn run(
        &self,
        isa: Isa,
        (sequences, longest): (usize, usize),
        work: usize,
        workers: Workers<'_>,
        kv: &(dyn Fn(usize, usize) -> KvHead + Sync),
    ) {
        let heads = self.query.heads();
        // Larger blocks read keys and values from the outer caches less often, but each thread needs several tasks. The
        // block size does not change the bits. `count_tasks` has checked the count for the smallest blocks.
        const { assert!(QUERY_BLOCK.is_multiple_of(MIN_QUERY_BLOCK)) };
        let mut block = QUERY_BLOCK;
        while block > MIN_QUERY_BLOCK
            && sequences * heads * longest.div_ceil(block) < 2 * workers.threads()
        {
            block /= 2;
        }
        let blocks = longest.div_ceil(block);
        let tasks = sequences * heads * blocks;
        chunked(tasks, work, workers, &|range| self.run_blocks(isa, kv, (block, blocks), range));
    }

    /// Computes attention for every query of one sequence that reads key-value head `head`.
    pub(super) fn run_head(&self, isa: Isa, head: usize, kv: KvHead) {
        let blocks = kv.0.query_len.div_ceil(QUERY_BLOCK);
        let first = head * self.group * blocks;
        let range = first..first + self.group * blocks;
        self.run_blocks(isa, &|_, _| kv, (QUERY_BLOCK, blocks), range);
    }

    /// A range of `(sequence, head, block of queries)`, with `block` queries in a block and `blocks` blocks for the
    /// longest sequence.
    fn run_blocks(
        &self,
        isa: Isa,
        kv: &(dyn Fn(usize, usize) -> KvHead + Sync),
        (block, blocks): (usize, usize),
        range: Range<usize>,
    ) {
        with_kv_format!(self.dtype, N => {
            isa.dispatch(prefill_blocks::<N>(self, kv, block, blocks, range))
        });
    }
}

simd_op!(
    /// [`AttentionParams::run_blocks`] for one dtype.
    fn prefill_blocks<S: SimdF32, N: KvFormat, const NV: usize = { S::PANEL / S::LANES }>(
        s: S,
        params: &AttentionParams<'_>,
        kv: &(dyn Fn(usize, usize) -> KvHead + Sync),
        block: usize,
        blocks: usize,
        range: Range<usize>,
    ) {
        let heads = params.query.heads();
        let mut scores = Scores::new();
        for task in range {
            let (pair, index_of_block) = (task / blocks, task % blocks);
            let (index, head) = (pair / heads, pair % heads);
            let (sequence, kv) = kv(index, head / params.group);
            let start = index_of_block * block;
            if start >= sequence.query_len {
                continue;
            }
            let count = (sequence.query_len - start).min(block);
            let head = FlashHead::<N> { query: params.head(&sequence, head), kv: kv.cast() };
            // SAFETY: the entry points checked the views and ranges (`check.rs`). Only this task writes these rows.
            unsafe { head.attend::<S, NV>(s, start, count, &mut scores) };
        }
    }
);

/// A range of `(unit of rows, head)` of a decode step.
pub(super) struct DecodeRows<'a> {
    pub(super) params: &'a AttentionParams<'a>,
    pub(super) cache: Cache<'a>,
    pub(super) slot_table: SlotTable<'a>,
    /// Rows in a unit.
    pub(super) unit: usize,
    pub(super) range: Range<usize>,
}

simd_op!(
    /// Computes attention for the rows and heads of `decode`.
    pub(super) fn decode_rows<
        S: SimdF32,
        N: KvFormat,
        const NV: usize = { S::PANEL / S::LANES },
    >(
        s: S,
        decode: DecodeRows<'_>,
    ) {
        let heads = decode.params.query.heads();
        let rows = decode.slot_table.lens.len();
        let mut lines = WeightLines::new();
        let mut task = decode.range.start;
        while task < decode.range.end {
            let (unit, first) = (task / heads, task % heads);
            let count = (heads - first).min(decode.range.end - task);
            let end = rows.min((unit + 1) * decode.unit);
            let mut row = unit * decode.unit;
            while row < end {
                let group = decode.group::<S>(row, end);
                // The heads of a row are processed in order, as they are in memory.
                for head in first..first + count {
                    let next = if head + 1 < first + count {
                        (row, head + 1)
                    } else if row + group.rows < end {
                        (row + group.rows, first)
                    } else {
                        (end, 0)
                    };
                    macro_rules! attend_group {
                        ($R:literal) => {{
                            let view = decode.view::<$R>(&group, (row, head), next);
                            // SAFETY: `check::slot_table` checked slots and lengths against the cache. Only this task
                            // writes these rows and this head.
                            unsafe { s.call_noinline(attend::<N, $R, NV>(view, &mut lines)) }
                        }};
                    }
                    match group.rows {
                        4 if const { max_shared_rows::<S>() >= 4 } => attend_group!(4),
                        2 if const { max_shared_rows::<S>() >= 2 } => attend_group!(2),
                        _ => {
                            let view = decode.view::<1>(&group, (row, head), next);
                            // SAFETY: as above.
                            unsafe { view.attend::<S, N, NV>(s, &mut lines) };
                        }
                    }
                }
                row += group.rows;
            }
            task += count;
        }
    }
);

/// Most rows that share one pass over common keys and values. It is one on instruction sets without prefetch, where
/// computing takes longer than reading.
const fn max_shared_rows<S: SimdF32>() -> usize {
    if S::PREFETCHES { MAX_SHARED_ROWS } else { 1 }
}

/// Rows that share one pass over their common keys and values: 1, 2 or 4.
struct RowGroup<'a> {
    rows: usize,
    /// The KV slots of each row.
    slots: [&'a [u32]; MAX_SHARED_ROWS],
    /// Keys that have the same slot in all rows, in whole panels.
    shared: usize,
}

impl<'a> DecodeRows<'a> {
    /// The KV slots of a row.
    #[inline(always)]
    fn slots(&self, row: usize) -> &'a [u32] {
        self.slot_table.row_slots(row).unwrap_or(&[])
    }

    /// The largest group of rows with a common prefix of slots, from `row`, before `end`.
    #[inline(always)]
    fn group<S: SimdF32>(&self, row: usize, end: usize) -> RowGroup<'a> {
        let mut slots = [self.slots(row); MAX_SHARED_ROWS];
        let mut rows = 1;
        while rows < const { max_shared_rows::<S>() } && row + rows < end {
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
            (1, _) | (_, 0) => RowGroup { rows: 1, slots, shared: 0 },
            _ => RowGroup { rows, slots, shared },
        }
    }

    /// One head of the `R` rows of a group from `row`. `next` is the row and the head that are computed after it.
    #[inline(always)]
    fn view<const R: usize>(
        &self,
        group: &RowGroup<'a>,
        (row, head): (usize, usize),
        next: (usize, usize),
    ) -> KvView<'a, R> {
        let rows = self.slot_table.lens.len();
        let head_of = |i: usize| {
            let keys = group.slots[i].len();
            self.params.head(&Sequence::of_queries(row + i, 1, keys), head)
        };
        KvView {
            heads: core::array::from_fn(head_of),
            cache: self.cache,
            kv_head: head / self.params.group,
            slots: core::array::from_fn(|i| group.slots[i]),
            shared: group.shared,
            next_kv_head: next.1 / self.params.group,
            next_slots: if next.0 < rows { self.slots(next.0) } else { &[] },
        }
    }
}

/// Rows of a decode step per task. With more rows, more of them can share what they read, but each thread needs several
/// tasks. The number does not change the bits.
pub(super) fn rows_of_unit(rows: usize, heads: usize, threads: usize) -> usize {
    let mut unit = MAX_SHARED_ROWS;
    while unit > 1 && rows.div_ceil(unit) * heads < 2 * threads {
        unit /= 2;
    }
    unit
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A product that wraps around would give few tasks, two of which write the same row.
    #[test]
    fn task_count_overflow_is_rejected() {
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
            let expected = Err(Error::TooLarge { operand: "the list of tasks" });
            assert_eq!(found, expected, "{sequences} x {heads} x {longest}");
        }
        assert_eq!(count_tasks(3, 4, 0), Ok(12));
        assert_eq!(count_tasks(3, 4, QUERY_BLOCK), Ok(12 * QUERY_BLOCK / block));
        assert_eq!(count_tasks(0, MAX, MAX), Ok(0));
        assert_eq!(count_tasks(MAX, 1, block), Ok(MAX));
    }

    #[test]
    fn estimated_work_saturates() {
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
