//! [`super::attention`]: copies keys into panels and values into rows of the caller's scratch, then computes attention
//! for the queries.

use super::bias::{CheckedBias, Reach};
use super::check;
use super::head_views::{Heads, Qkv};
use super::one_head::HeadKv;
use super::options::{AttentionOptions, AttentionOutput, Sequence};
use super::panels::{ROWS_AHEAD, copy_rows, head_floats, value_row, write_keys};
use super::tasks::{AttentionParams, KvHead, MIN_WORK_TO_FORK, chunked, count_tasks};
#[cfg(feature = "train")]
use crate::dropout::WeightDropout;
use crate::error::Error;
use crate::isa::Isa;
use crate::parallel::{Parallelism, Workers};
use crate::prefetch::PrefetchRows;
use crate::simd::simd_op;
use crate::softmax::FullyMasked;
use crate::sync_ptr::SharedMut;

/// Key-value heads per thread from which heads are not split into blocks of queries.
const HEADS_PER_THREAD: usize = 4;

/// Fewest queries for which values are copied into rows.
const MIN_COPIED: usize = 12;

/// Floats of scratch that [`attention`](super::attention) needs for `sequences` with `heads` key-value heads of
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

/// Additional inputs and outputs of the forward pass of training.
pub(super) struct TrainArgs<'a> {
    /// `[query tokens, heads, 2]`: receives the maximum score and the reciprocal of the sum of the weights.
    pub(super) sums: &'a mut [f32],
    #[cfg(feature = "train")]
    pub(super) dropout: Option<WeightDropout<'a>>,
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
    check::query(&query, (name, &output.context), kv_heads, head_dim)?;
    let queries = sequences.iter().map(|s| (s.query_start, s.query_len, s.key_len));
    let reach = check::sequences(queries, &query, &[output.context.read()])?;
    let bias = CheckedBias::new(options.bias, reach, options.causal)?;
    let weights = check::weights(output.weights, reach)?;
    check::keys(sequences, &key, &[value])?;
    let expected = attention_scratch(isa, sequences, kv_heads, head_dim)?;
    Error::check_min_len("scratch", expected, scratch)?;
    if let Some(train) = &train {
        check::sums(train.sums, &query)?;
        #[cfg(feature = "train")]
        check::sentences(train.dropout.as_ref(), &query)?;
    }
    count_tasks(sequences.len(), query.heads(), reach.longest)?;
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
        let size = (self.sequences.len(), reach.longest);
        self.params.run(self.isa, size, reach.work, workers, &|index, head| {
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
        self.isa.dispatch(PrefetchRows::new(rows, key.head_dim(), false));
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
        // SAFETY: `check::keys` checked that the sequence's tokens exist. The scratch has separate space for this task.
        unsafe {
            write_keys::<S, f32, true>(s, key, (sequence.key_len, head_dim), 0, keys);
            if let Some(values) = values {
                let (size, row) = ((value_len, head_dim), value_row(S::LANES, head_dim));
                copy_rows::<S, f32, ROWS_AHEAD>(s, value, size, values, row);
            }
        }
    }
);
