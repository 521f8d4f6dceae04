//! The parameters of one call, and its split into tasks: sequences times heads times blocks of queries, or rows times
//! heads in a decode step. Tasks write disjoint rows of the output.

use super::bias::CheckedBias;
use super::cache::Cache;
use super::decode::{self, KvView, MAX_SHARED_ROWS, attend};
use super::flash::{MIN_QUERY_BLOCK, QUERY_BLOCK, Scores};
use super::head_views::{HeadPtrs, Heads, HeadsMut};
use super::kv_dtype::KvFormat;
use super::one_head::HeadParams;
use super::online_softmax::WeightLines;
use super::options::{AttentionOptions, SlotTable, Weights};
#[cfg(feature = "train")]
use crate::dropout::WeightDropout;
use crate::dtype::Dtype;
use crate::error::Error;
use crate::isa::Isa;
use crate::parallel::{Workers, share, work_to_share};
use crate::simd::{MAX_LANES, SimdF32, simd_op};
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

/// Location of one key-value head of one sequence.
#[derive(Clone, Copy)]
pub(super) struct KvHead {
    pub(super) query_start: usize,
    pub(super) query_len: usize,
    pub(super) key_len: usize,
    pub(super) padded_len: usize,
    pub(super) keys: *const (),
    /// Keys of the next head: prefetched, never read.
    pub(super) next_keys: *const (),
    pub(super) values: *const (),
    pub(super) value_row: usize,
}

// SAFETY: keys and values are borrowed for reading only.
unsafe impl Sync for KvHead {}

/// The checked parameters that all sequences and heads of one call share.
pub(super) struct AttentionParams<'a> {
    query: Heads<'a>,
    group: usize,
    scale: f32,
    causal: bool,
    fully_masked: FullyMasked,
    dtype: Dtype,
    bias: Option<CheckedBias<'a>>,
    out: HeadPtrs<'a>,
    weights: Option<SharedMut<'a>>,
    weight_heads: &'a [usize],
    weights_head: usize,
    weights_query: usize,
    weights_len: usize,
    /// `[query tokens, heads, 2]`, if the sums are saved.
    sums: Option<SharedMut<'a>>,
    #[cfg(feature = "train")]
    dropout: Option<WeightDropout<'a>>,
}

impl<'a> AttentionParams<'a> {
    pub(super) fn new(
        query: &Heads<'a>,
        kv_heads: usize,
        options: &AttentionOptions<'_>,
        bias: Option<CheckedBias<'a>>,
        out: &'a mut HeadsMut<'_>,
        weights: Option<Weights<'a>>,
    ) -> Self {
        let mut params = Self {
            query: *query,
            group: query.heads() / kv_heads,
            scale: options.scale,
            causal: options.causal,
            fully_masked: options.fully_masked,
            dtype: Dtype::F32,
            bias,
            out: out.shared(),
            weights: None,
            weight_heads: &[],
            weights_head: 0,
            weights_query: 0,
            weights_len: 0,
            sums: None,
            #[cfg(feature = "train")]
            dropout: None,
        };
        if let Some(weights) = weights {
            params.weights = Some(SharedMut::new(weights.data));
            params.weight_heads = weights.heads;
            params.weights_head = weights.head_stride;
            params.weights_query = weights.query_stride;
            params.weights_len = weights.keys;
        }
        params
    }

    /// Factor of the scores.
    #[cfg(feature = "train")]
    pub(super) fn scale(&self) -> f32 {
        self.scale
    }

    /// The rows of the output.
    #[cfg(feature = "train")]
    pub(super) fn out(&self) -> HeadPtrs<'a> {
        self.out
    }

    /// Sets the dropout of weights. The caller has checked that each query token has a sentence.
    #[cfg(feature = "train")]
    pub(super) fn set_dropout(&mut self, dropout: Option<WeightDropout<'a>>) {
        self.dropout = dropout;
    }

    /// Sets the dtype of keys and values; f32 by default.
    pub(super) fn set_kv_dtype(&mut self, dtype: Dtype) {
        self.dtype = dtype;
    }

    /// Whether the sums are saved, as in the forward pass of training.
    pub(super) fn saves_sums(&self) -> bool {
        self.sums.is_some()
    }

    /// Also writes the maximum score and the reciprocal of the sum of the weights of each query and head to `sums`. The
    /// caller has checked its length.
    pub(super) fn save_sums(&mut self, sums: &'a mut [f32]) {
        self.sums = Some(SharedMut::new(sums));
    }

    /// The parameters of head `head`, with queries from `kv.query_start`.
    pub(super) fn head(&self, kv: &KvHead, head: usize) -> HeadParams {
        let start = kv.query_start;
        let (query_len, key_len) = (kv.query_len, kv.key_len);
        let ((bias, bias_row), bias_hides, bias_whole) = match self.bias {
            Some(bias) => {
                let whole = bias.whole(head, (query_len, key_len), MAX_LANES);
                (bias.place(head, (start, query_len, key_len)), bias.hides, whole)
            }
            None => ((core::ptr::null(), 0), false, false),
        };
        let chosen = self.weight_heads.iter().position(|&wanted| wanted == head);
        let weights = self.weights.zip(chosen).map_or(core::ptr::null_mut(), |(weights, index)| {
            let first = index * self.weights_head + start * self.weights_query;
            weights.as_ptr().wrapping_add(first)
        });
        let (first_limit, limit_step) = if self.causal {
            (kv.key_len as isize - kv.query_len as isize + 1, 1)
        } else {
            (kv.key_len as isize, 0)
        };
        HeadParams {
            query: self.query.at(start, head),
            query_row: self.query.token_stride(),
            keys: kv.keys,
            next_keys: kv.next_keys,
            values: kv.values,
            value_row: kv.value_row,
            out: self.out.at(start, head),
            out_row: self.out.token_stride(),
            head_dim: self.query.head_dim(),
            scale: self.scale,
            key_len: kv.key_len,
            padded_len: kv.padded_len,
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
            sums: self.sums.map_or(core::ptr::null_mut(), |sums| {
                sums.as_ptr().wrapping_add(2 * (start * self.query.heads() + head))
            }),
            sums_row: 2 * self.query.heads(),
            #[cfg(feature = "train")]
            drops: self.dropout.and_then(|dropout| dropout.of_head(start, head)),
        }
    }

    /// Computes attention for every block of queries of every head of every sequence.
    pub(super) fn run(
        &self,
        isa: Isa,
        sequences: usize,
        query_len: impl Fn(usize) -> usize,
        work: usize,
        workers: Workers<'_>,
        kv: &(dyn Fn(usize, usize) -> KvHead + Sync),
    ) {
        let longest = (0..sequences).map(query_len).max().unwrap_or(0);
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
        chunked(sequences * heads * blocks, work, workers, &|range| {
            with_kv_format!(self.dtype, N => {
                isa.dispatch(prefill_blocks::<N>(self, kv, block, blocks, range))
            });
        });
    }

    /// Computes attention for every query of one sequence that reads key-value head `head`.
    pub(super) fn run_head(&self, isa: Isa, head: usize, kv: KvHead) {
        let block = QUERY_BLOCK;
        let blocks = kv.query_len.div_ceil(block);
        let first = head * self.group * blocks;
        let range = first..first + self.group * blocks;
        let kv = &|_, _| kv;
        with_kv_format!(self.dtype, N => {
            isa.dispatch(prefill_blocks::<N>(self, kv, block, blocks, range))
        });
    }
}

simd_op!(
    /// A range of `(sequence, head, block of queries)`, with `block` queries in a block and `blocks` blocks for the
    /// longest sequence.
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
            let kv = kv(index, head / params.group);
            let start = index_of_block * block;
            if start >= kv.query_len {
                continue;
            }
            let count = (kv.query_len - start).min(block);
            let head = params.head(&kv, head);
            // SAFETY: the entry points checked the views and ranges (`check.rs`). Only this task writes these rows.
            unsafe { head.attend::<S, N, NV>(s, start, count, &mut scores) };
        }
    }
);

/// Evaluates `$run` with `$N` as the [`KvFormat`] of `$dtype`. Each format has a separate entry, so that the stack
/// holds the scores of one format only.
macro_rules! with_kv_format {
    ($dtype:expr, $N:ident => $run:expr) => {
        match $dtype {
            Dtype::F32 => {
                type $N = $crate::attention::kv_dtype::F32Kv;
                $run
            }
            Dtype::F16 if cfg!(feature = "f16") => {
                type $N = $crate::attention::kv_dtype::F16Kv;
                $run
            }
            _ => unreachable!("`CacheShape::len` rejects the dtype"),
        }
    };
}
pub(super) use with_kv_format;

/// A range of `(unit of rows, head)` of a decode step.
pub(super) struct DecodeRows<'a> {
    pub(super) params: &'a AttentionParams<'a>,
    pub(super) cache: Cache<'a>,
    pub(super) slot_table: SlotTable<'a>,
    /// Rows in a unit.
    pub(super) unit: usize,
    pub(super) range: core::ops::Range<usize>,
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
                    // SAFETY: `check::slot_table` checked slots and lengths against the cache. Only this task writes
                    // these rows and this head.
                    unsafe {
                        match group.rows {
                            4 if const { max_shared_rows::<S>() >= 4 } => {
                                let view = decode.view::<4>(&group, (row, head), next);
                                s.call_noinline(attend::<N, 4, NV>(view, &mut lines));
                            }
                            2 if const { max_shared_rows::<S>() >= 2 } => {
                                let view = decode.view::<2>(&group, (row, head), next);
                                s.call_noinline(attend::<N, 2, NV>(view, &mut lines));
                            }
                            _ => {
                                let view = decode.view::<1>(&group, (row, head), next);
                                view.attend::<S, N, NV>(s, &mut lines);
                            }
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
struct Group<'a> {
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
    fn group<S: SimdF32>(&self, row: usize, end: usize) -> Group<'a> {
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
            (1, _) | (_, 0) => Group { rows: 1, slots, shared: 0 },
            _ => Group { rows, slots, shared },
        }
    }

    /// One head of the `R` rows of a group from `row`. `next` is the row and the head that are computed after it.
    #[inline(always)]
    fn view<const R: usize>(
        &self,
        group: &Group<'a>,
        (row, head): (usize, usize),
        next: (usize, usize),
    ) -> KvView<'a, R> {
        let rows = self.slot_table.lens.len();
        let head_of = |i: usize| {
            let kv = KvHead {
                query_start: row + i,
                query_len: 1,
                key_len: group.slots[i].len(),
                padded_len: group.slots[i].len(),
                keys: core::ptr::null(),
                next_keys: core::ptr::null(),
                values: core::ptr::null(),
                value_row: 0,
            };
            self.params.head(&kv, head)
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
