//! [`super::attention`]: copies keys into panels and values into rows of the caller's scratch, then computes attention
//! for the queries.

use super::bias::CheckedBias;
use super::check;
use super::head_views::{Heads, Qkv};
use super::options::{AttentionOptions, AttentionOutput, Sequence};
use super::panels::{head_floats, value_row, write_all_keys, write_values};
use super::tasks::{
    AttentionParams, KvHead, MIN_WORK_TO_FORK, chunked, count_tasks, estimate_work,
};
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
    let reach = check::sequences(queries, &query)?;
    let bias = CheckedBias::new(options.bias, reach, options.causal)?;
    let weights = check::weights(output.weights, reach)?;
    check::keys(sequences, key.tokens())?;
    let queries = sequences.iter().map(|s| (s.query_start, s.query_len));
    check::within_batch(queries, [query, output.context.read()])?;
    let keys = sequences.iter().map(|s| (s.key_start, s.padded_len));
    check::within_batch(keys, [key, value])?;
    let expected = attention_scratch(isa, sequences, kv_heads, head_dim)?;
    Error::check_min_len("scratch", expected, scratch)?;
    if let Some(train) = &train {
        check::sums(train.sums, &query)?;
        #[cfg(feature = "train")]
        check::sentences(train.dropout.as_ref(), &query)?;
    }
    let longest = sequences.iter().map(|s| s.query_len).max().unwrap_or(0);
    count_tasks(sequences.len(), query.heads(), longest)?;
    if query.tokens() == 0 || query.heads() == 0 || head_dim == 0 {
        return Ok(());
    }

    let mut context = output.context;
    let mut params = AttentionParams::new(&query, kv_heads, options, bias, &mut context, weights);
    if let Some(train) = train {
        params.save_sums(train.sums);
        #[cfg(feature = "train")]
        params.set_dropout(train.dropout);
    }
    let pairs = sequences.iter().map(|s| (s.query_len, s.key_len));
    let work = estimate_work(pairs, [query.heads(), head_dim]);
    let scratch = SharedMut::new(scratch);
    let fully_masked = options.fully_masked;
    Prefill { isa, qkv, sequences, fully_masked, scratch }.run(
        &params,
        work,
        parallelism.workers(),
    );
    Ok(())
}

/// Most queries or keys of a sequence whose rows are prefetched during the task before it.
const MAX_PREFETCH_ROWS: usize = 64;

/// A checked call; no tensor is empty.
pub(super) struct Prefill<'a> {
    pub(super) isa: Isa,
    pub(super) qkv: Qkv<'a>,
    pub(super) sequences: &'a [Sequence],
    pub(super) fully_masked: FullyMasked,
    /// Panels and rows of each key-value head of each sequence, in order.
    pub(super) scratch: SharedMut<'a>,
}

impl Prefill<'_> {
    /// Computes attention for every query.
    pub(super) fn run(&self, params: &AttentionParams<'_>, work: usize, workers: Workers<'_>) {
        // This does not overflow: `count_tasks` checked a larger count, with at least one task per query head.
        let tasks = self.sequences.len() * self.kv_heads();
        let threads = workers.threads();
        if threads == 1 || tasks / threads >= HEADS_PER_THREAD {
            self.head_by_head(params, tasks, work, workers);
        } else {
            self.all_keys_first(params, tasks, work, workers);
        }
    }

    /// Processes one head after the other in the same scratch, so that its panels and rows stay in the cache.
    fn head_by_head(
        &self,
        params: &AttentionParams<'_>,
        tasks: usize,
        work: usize,
        workers: Workers<'_>,
    ) {
        chunked(tasks, work, workers, &|range| {
            let at = self.place(range.start);
            for task in range.clone() {
                self.prepare(task, at);
                if params.saves_sums() && task + 1 < range.end {
                    self.prefetch_task(task + 1);
                }
                let (index, head) = (task / self.kv_heads(), task % self.kv_heads());
                params.run_head(self.isa, head, self.kv_head(index, head, at));
            }
        });
    }

    /// For few heads: copies the keys and values of all heads, then processes their queries in blocks.
    fn all_keys_first(
        &self,
        params: &AttentionParams<'_>,
        tasks: usize,
        work: usize,
        workers: Workers<'_>,
    ) {
        let copied = self.sequences.iter().map(|s| s.padded_len).fold(0, usize::saturating_add);
        let elements = self.kv_heads().saturating_mul(self.qkv.key.head_dim());
        let few = copied.saturating_mul(elements) < MIN_WORK_TO_FORK;
        let copying = if few { Workers::SERIAL } else { workers };
        copying.for_each(tasks, &|task| self.prepare(task, self.place(task)));
        params.run(
            self.isa,
            self.sequences.len(),
            |index| self.sequences[index].query_len,
            work,
            workers,
            &|index, head| self.kv_head(index, head, self.place(index * self.kv_heads() + head)),
        );
    }

    fn kv_heads(&self) -> usize {
        self.qkv.key.heads()
    }

    /// Floats of the panels and rows of one head of sequence `index`. They are within the checked scratch.
    fn floats(&self, index: usize) -> usize {
        let tokens = self.sequences[index].padded_len;
        head_floats(self.isa.lanes(), tokens, self.qkv.key.head_dim()).unwrap_or(0)
    }

    /// Address of the panels and rows of a head of a sequence in the scratch.
    fn place(&self, task: usize) -> *mut f32 {
        let (index, head) = (task / self.kv_heads(), task % self.kv_heads());
        let before: usize = (0..index).map(|index| self.kv_heads() * self.floats(index)).sum();
        self.scratch.as_ptr().wrapping_add(before + head * self.floats(index))
    }

    /// Floats of the panels of one head of sequence `index`. The rows follow them.
    fn panels(&self, index: usize) -> usize {
        let tokens = self.sequences[index].padded_len;
        tokens.next_multiple_of(self.isa.lanes()) * self.qkv.key.head_dim()
    }

    /// Whether the queries of sequence `index` are so few that they read values in place.
    fn in_place(&self, index: usize) -> bool {
        let group = self.qkv.query.heads() / self.kv_heads();
        self.qkv.key.head_dim().is_multiple_of(self.isa.lanes())
            && self.sequences[index].query_len * group < MIN_COPIED
    }

    /// Copies the keys of one head of one sequence into panels at `at`. Unless values are read in place, copies them
    /// into rows after the panels.
    fn prepare(&self, task: usize, at: *mut f32) {
        let (index, head) = (task / self.kv_heads(), task % self.kv_heads());
        let sequence = self.sequences[index];
        let value_len = match self.fully_masked {
            FullyMasked::Uniform => sequence.padded_len,
            FullyMasked::Zeros => sequence.key_len,
        };
        let values = if self.in_place(index) {
            core::ptr::null_mut()
        } else {
            at.wrapping_add(self.panels(index))
        };
        let Qkv { key, value, .. } = self.qkv;
        self.isa.dispatch(copy_head(key, value, head, sequence, value_len, at, values));
    }

    /// Prefetches the rows of a task if it has few. The rows of one head are too short for the hardware prefetcher, and
    /// in training other activations are accessed in between.
    fn prefetch_task(&self, task: usize) {
        let (index, head) = (task / self.kv_heads(), task % self.kv_heads());
        let Sequence { query_start, query_len, key_start, key_len, .. } = self.sequences[index];
        if query_len.max(key_len) > MAX_PREFETCH_ROWS {
            return;
        }
        let Qkv { query, key, value } = self.qkv;
        let queries = query.at(query_start, head * (query.heads() / self.kv_heads()));
        let rows = [
            (key.at(key_start, head), key.token_stride(), key_len),
            (value.at(key_start, head), value.token_stride(), key_len),
            (queries, query.token_stride(), query_len),
        ];
        self.isa.dispatch(PrefetchRows::new(rows, key.head_dim(), false));
    }

    /// The keys and values of one head of one sequence that [`Prefill::prepare`] has copied to `at`.
    fn kv_head(&self, index: usize, head: usize, at: *mut f32) -> KvHead {
        let sequence = self.sequences[index];
        let (values, value_row) = if self.in_place(index) {
            let value = self.qkv.value;
            (value.at(sequence.key_start, head), value.token_stride())
        } else {
            let values = at.wrapping_add(self.panels(index));
            (values.cast_const(), value_row(self.isa.lanes(), self.qkv.key.head_dim()))
        };
        KvHead {
            query_start: sequence.query_start,
            query_len: sequence.query_len,
            key_len: sequence.key_len,
            padded_len: sequence.padded_len,
            keys: at.cast(),
            next_keys: at.cast(),
            values: values.cast(),
            value_row,
        }
    }
}

simd_op!(
    /// Copies the keys of one head of one sequence into panels, and `value_len` values into rows. `values` is null if
    /// values are read in place.
    fn copy_head<S: SimdF32>(
        s: S,
        key: Heads<'_>,
        value: Heads<'_>,
        head: usize,
        sequence: Sequence,
        value_len: usize,
        keys: *mut f32,
        values: *mut f32,
    ) {
        let start = sequence.key_start;
        // SAFETY: `check::keys` checked that the sequence's tokens exist. The scratch has separate space for this task.
        unsafe {
            write_all_keys(s, &key, head, start..start + sequence.key_len, keys);
            if !values.is_null() {
                write_values(s, &value, head, start..start + value_len, values);
            }
        }
    }
);
