//! [`super::attention`]: copies keys into panels and values into rows of the caller's scratch, and splits the queries into
//! tasks: sequences times heads times blocks of queries. Tasks write disjoint rows of the output.

use super::bias::CheckedBias;
use super::flash::{FlashHead, MIN_QUERY_BLOCK, QUERY_BLOCK, Scores};
use super::head_views::{HeadPtrs, Heads, HeadsMut, Qkv};
use super::kv_f16::with_kv_format;
use super::one_head::{HeadKv, HeadQuery, RowsOut};
#[cfg(feature = "train")]
use super::options::check_sentences;
use super::options::{
    AttentionOptions, AttentionOutput, AttentionWeights, Reach, Sequence, check_keys, check_query,
    check_sequences, check_weights,
};
use super::panels::{KvFormat, ROWS_AHEAD, copy_rows, head_floats, value_row, write_keys};
#[cfg(feature = "train")]
use crate::dropout::WeightDropout;
use crate::dtype::Dtype;
use crate::error::Error;
use crate::isa::Isa;
use crate::parallel::{Parallelism, Workers, share, work_to_share};
use crate::prefetch::CacheLevel;
use crate::row_prefetch::{PrefetchRows, prefetch_all};
use crate::simd::simd_op;
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

/// Floats of scratch that [`attention`](super::attention()) needs for `sequences` with `heads` key-value heads of
/// `head_dim` elements: a copy of their keys and values, rounded up to whole vectors.
///
/// # Errors
/// The size overflows.
pub fn attention_scratch(
    isa: Isa,
    sequences: &[Sequence],
    heads: usize,
    head_dim: usize,
) -> Result<usize, Error> {
    sequences.iter().try_fold(0usize, |total, sequence| {
        head_floats(isa.lanes(), sequence.padded_len, head_dim)
            .and_then(|floats| floats.checked_mul(heads)?.checked_add(total))
            .ok_or(Error::TooLarge { operand: "the scratch" })
    })
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
    pub(super) fn run_sequences(
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
        if range.is_empty() {
            return;
        }
        // The next task is counted: divisions would delay the first loads of each head.
        let (pair, mut index_of_block) = (range.start / blocks, range.start % blocks);
        let (mut index, mut head) = (pair / heads, pair % heads);
        for _ in range {
            let (sequence, kv) = kv(index, head / params.group);
            let start = index_of_block * block;
            if start < sequence.query_len {
                let count = (sequence.query_len - start).min(block);
                let head = FlashHead::<N> { query: params.head(&sequence, head), kv: kv.cast() };
                // SAFETY: the entry points checked the views and ranges (`options.rs`). Only this task writes these
                // rows.
                unsafe { head.attend::<S, NV>(s, start, count, &mut scores) };
            }
            index_of_block += 1;
            if index_of_block == blocks {
                (index_of_block, head) = (0, head + 1);
                if head == heads {
                    (head, index) = (0, index + 1);
                }
            }
        }
    }
);

/// Key-value heads per thread from which heads are not split into blocks of queries.
const HEADS_PER_THREAD: usize = 4;

/// Fewest queries for which values are copied into rows.
const MIN_COPIED: usize = 12;

/// Additional inputs and outputs of the forward pass of training.
pub(super) struct TrainArgs<'a> {
    /// `[query tokens, heads, 2]`: receives the maximum score and the reciprocal of the sum of the weights.
    pub(super) sums: &'a mut [f32],
    #[cfg(feature = "train")]
    pub(super) dropout: Option<WeightDropout<'a>>,
}

/// Checks that there is a maximum and a sum for each query token and head.
pub(super) fn check_sums(sums: &[f32], query: &Heads<'_>) -> Result<(), Error> {
    let expected = query
        .tokens()
        .checked_mul(query.heads())
        .and_then(|rows| rows.checked_mul(2))
        .ok_or(Error::TooLarge { operand: "sums" })?;
    Error::check_len("sums", expected, sums)
}

/// [`attention`](super::attention), with the additional outputs for training.
///
/// # Errors
/// Shapes, ranges or buffers that do not fit; then nothing is written.
pub(super) fn attend(
    isa: Isa,
    qkv: Qkv<'_>,
    sequences: &[Sequence],
    options: &AttentionOptions<'_>,
    (output, train): (AttentionOutput<'_>, Option<TrainArgs<'_>>),
    scratch: &mut [f32],
    parallelism: Parallelism<'_>,
) -> Result<(), Error> {
    let Qkv { query, key, value } = qkv;
    let (kv_heads, head_dim) = (key.heads(), key.head_dim());
    value.check_shape("value", key.shape())?;
    let name = if train.is_some() { "context" } else { "output.context" };
    check_query(&query, (name, &output.context), kv_heads, head_dim)?;
    let queries = sequences.iter().map(|s| (s.query_start, s.query_len, s.key_len));
    let reach = check_sequences(queries, &query, &[output.context.as_view()])?;
    let bias = CheckedBias::new(options, reach)?;
    let weights = check_weights(output.weights, reach)?;
    check_keys(sequences, &key, &[value])?;
    let expected = attention_scratch(isa, sequences, kv_heads, head_dim)?;
    Error::check_min_len("scratch", expected, scratch)?;
    if let Some(train) = &train {
        check_sums(train.sums, &query)?;
        #[cfg(feature = "train")]
        check_sentences(train.dropout.as_ref(), &query)?;
    }
    count_tasks(sequences.len(), query.heads(), reach.longest[0])?;
    if query.tokens() == 0 || query.heads() == 0 || head_dim == 0 {
        return Ok(());
    }

    let mut context = output.context;
    let mut params = AttentionParams::new(&query, kv_heads, options, bias, &mut context, weights);
    if let Some(train) = train {
        params.sums = Some(SharedMut::new(train.sums));
        #[cfg(feature = "train")]
        {
            params.dropout = train.dropout;
        }
    }
    let workers = parallelism.workers();
    let scratch = SharedMut::new(scratch);
    let prefill = Prefill { isa, qkv, sequences, params: &params, scratch };
    // This does not overflow: `count_tasks` checked a larger count, with at least one task per query head.
    let tasks = sequences.len() * kv_heads;
    if workers.threads() == 1 || tasks / workers.threads() >= HEADS_PER_THREAD {
        prefill.run_head_by_head(tasks, reach.work, workers);
    } else {
        prefill.run_after_all_keys(tasks, reach, workers);
    }
    Ok(())
}

/// Most queries or keys of a sequence whose rows are prefetched during the task before it.
const MAX_PREFETCH_ROWS: usize = 64;

/// A checked call; no tensor is empty. Its tasks are the key-value heads of each sequence, in order.
struct Prefill<'a> {
    isa: Isa,
    qkv: Qkv<'a>,
    sequences: &'a [Sequence],
    params: &'a AttentionParams<'a>,
    /// Panels and rows of each task, in order.
    scratch: SharedMut<'a>,
}

impl Prefill<'_> {
    /// Processes one head after the other in the same scratch, so that its panels and rows stay in the cache.
    fn run_head_by_head(&self, tasks: usize, work: usize, workers: Workers<'_>) {
        chunked(tasks, work, workers, &|range| {
            let at = self.place(range.start);
            for task in range.clone() {
                self.prepare(task, at);
                if self.params.sums.is_some() && task + 1 < range.end {
                    self.prefetch_task(task + 1);
                }
                self.params.run_head(self.isa, self.split(task).1, self.kv_head(task, at));
            }
        });
    }

    /// For few heads: copies the keys and values of all heads, then processes their queries in blocks.
    fn run_after_all_keys(&self, tasks: usize, reach: Reach, workers: Workers<'_>) {
        let copied = self.sequences.iter().map(|s| s.padded_len).fold(0, usize::saturating_add);
        let elements = self.kv_heads().saturating_mul(self.qkv.key.head_dim());
        let few = copied.saturating_mul(elements) < MIN_WORK_TO_FORK;
        let copying = if few { Workers::SERIAL } else { workers };
        copying.for_each(tasks, &|task| self.prepare(task, self.place(task)));
        let size = (self.sequences.len(), reach.longest[0]);
        self.params.run_sequences(self.isa, size, reach.work, workers, &|index, head| {
            let task = index * self.kv_heads() + head;
            self.kv_head(task, self.place(task))
        });
    }

    fn kv_heads(&self) -> usize {
        self.qkv.key.heads()
    }

    /// The sequence of a task, with its index, and the key-value head.
    fn split(&self, task: usize) -> ((usize, Sequence), usize) {
        let (index, head) = (task / self.kv_heads(), task % self.kv_heads());
        ((index, self.sequences[index]), head)
    }

    /// Floats of the panels and rows of one head of a sequence. They are within the checked scratch.
    fn floats(&self, sequence: &Sequence) -> usize {
        let head_dim = self.qkv.key.head_dim();
        head_floats(self.isa.lanes(), sequence.padded_len, head_dim).unwrap_or(0)
    }

    /// Address of the panels and rows of a task in the scratch.
    fn place(&self, task: usize) -> *mut f32 {
        let ((index, sequence), head) = self.split(task);
        let earlier = &self.sequences[..index];
        let before: usize = earlier.iter().map(|s| self.kv_heads() * self.floats(s)).sum();
        self.scratch.as_ptr().wrapping_add(before + head * self.floats(&sequence))
    }

    /// The value rows of a task whose panels are at `at`: after the panels, or `None` if its queries are so few that they
    /// read values in place.
    fn value_rows(&self, sequence: &Sequence, at: *mut f32) -> Option<*mut f32> {
        let (lanes, head_dim) = (self.isa.lanes(), self.qkv.key.head_dim());
        let in_place =
            head_dim.is_multiple_of(lanes) && sequence.query_len * self.params.group < MIN_COPIED;
        let panels = sequence.padded_len.next_multiple_of(lanes) * head_dim;
        (!in_place).then(|| at.wrapping_add(panels))
    }

    /// Copies the keys of a task into panels at `at`. Unless values are read in place, copies them into rows after the
    /// panels.
    fn prepare(&self, task: usize, at: *mut f32) {
        let ((_, sequence), head) = self.split(task);
        let value_len = match self.params.fully_masked {
            FullyMasked::Uniform => sequence.padded_len,
            FullyMasked::Zeros => sequence.key_len,
        };
        let values = self.value_rows(&sequence, at);
        let Qkv { key, value, .. } = self.qkv;
        self.isa.dispatch(copy_head(key, value, head, sequence, value_len, at, values));
    }

    /// Prefetches the rows of a task if it has few. The rows of one head are too short for the hardware prefetcher, and
    /// in training other activations are accessed in between.
    fn prefetch_task(&self, task: usize) {
        let ((_, sequence), head) = self.split(task);
        let Sequence { query_start, query_len, key_start, key_len, .. } = sequence;
        if query_len.max(key_len) > MAX_PREFETCH_ROWS {
            return;
        }
        let Qkv { query, key, value } = self.qkv;
        let rows = [
            (key.rows(key_start, head), key_len),
            (value.rows(key_start, head), key_len),
            (query.rows(query_start, head * self.params.group), query_len),
        ];
        let rows = rows.map(|(rows, count)| (rows.at, rows.stride, count));
        let rows = PrefetchRows::new(rows, key.head_dim(), CacheLevel::L2);
        self.isa.dispatch(prefetch_all(rows));
    }

    /// A task whose keys and values [`Prefill::prepare`] has copied to `at`.
    fn kv_head(&self, task: usize, at: *mut f32) -> KvHead {
        let ((_, sequence), head) = self.split(task);
        let value = self.qkv.value;
        let (values, value_row) = match self.value_rows(&sequence, at) {
            Some(rows) => (rows.cast_const(), value_row(self.isa.lanes(), value.head_dim())),
            None => (value.at(sequence.key_start, head), value.token_stride()),
        };
        let keys = at.cast_const().cast();
        (sequence, HeadKv { keys, next_keys: keys, values: values.cast(), value_row })
    }
}

simd_op!(
    /// Copies the keys of one head of one sequence into panels, and `value_len` values into rows, if there are rows.
    fn copy_head<S: SimdF32>(
        s: S,
        key: Heads<'_>,
        value: Heads<'_>,
        head: usize,
        sequence: Sequence,
        value_len: usize,
        keys: *mut f32,
        values: Option<*mut f32>,
    ) {
        let (start, head_dim) = (sequence.key_start, key.head_dim());
        let (key, value) = (key.rows(start, head), value.rows(start, head));
        // SAFETY: `check_keys` checked that the sequence's tokens exist. The scratch has separate space for this task.
        unsafe {
            write_keys::<S, f32, true>(s, key, (sequence.key_len, head_dim), 0, keys);
            if let Some(values) = values {
                let (size, row) = ((value_len, head_dim), value_row(S::LANES, head_dim));
                copy_rows::<S, f32, ROWS_AHEAD>(s, value, size, values, row);
            }
        }
    }
);

#[cfg(test)]
mod tests {
    use super::super::options::estimate_work;
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
