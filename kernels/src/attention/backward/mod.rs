//! The gradient of attention, without storing the full matrix of weights.
//!
//! Let the scores be `S = scale Q K^T + bias`, the weights `P = softmax(S)` and the context `O = P V`. The gradient
//! `dO` of the context determines
//!
//! * `dV = P^T dO`,
//! * `dS = P (dP - D)` element by element, with `dP = dO V^T` and `D` the sum of `P dP` over the keys of a query. If
//!   all these keys are in one block, `D` is computed as that sum. Otherwise it is the dot product of the row of `dO`
//!   with the row of `O`, which is the same number plus the rounding of the context,
//! * `dQ = scale dS K`, `dK = scale dS^T Q`, and `d_bias` is the sum of `dS` over the pairs that share a value of the
//!   bias.
//!
//! [`attention_forward_save`] saves two floats per query and head: the maximum `m` of its scores and the reciprocal of
//! the sum of its weights. The backward pass recomputes `P = exp(S - m) / sum` from the same bits as the forward pass.
//! The logarithm of the sum is not saved, because its sum with a large maximum would lose the low bits that determine
//! the weights.
//!
//! One task is a key-value head of a sequence (`tasks.rs`). The outer loop is over blocks of keys, the inner loop over
//! blocks of queries (`score_block.rs`). A tile of queries recomputes its weights, computes the gradients of its scores, and
//! adds to its own gradient (`dq.rs`). Then a tile of keys sums over the queries of the block (`dkv.rs`). These are
//! five products, two and a half times the work of the forward pass, without atomics and without a second pass. Every
//! element of a gradient is one chain of multiply-adds: over keys for a query, over heads and then queries for a key.
//! So its bits depend neither on threads, nor on the rest of the batch, nor on the vector width.
//!
//! Masks are loop bounds, as in the forward pass. No product includes a key that a query does not see, so `0 * NaN`
//! does not reach a gradient. A bias of minus infinity hides keys one by one (`masked.rs`).
//!
//! Dropout applies to weights, not to scores. Let `Z` be 0 where a weight is dropped; for all other weights, `Z` is the
//! reciprocal of the probability that a weight is not dropped. Then `O = (P Z) V`, so `dV = (P Z)^T dO` and
//! `dP = (dO V^T) Z`; the other equations do not change. No dropout mask is saved: each tile recomputes its part.
//!
//! Source: Dao et al. 2022, algorithm 4, and Dao 2023, algorithm 2, with a fixed order of the sums.

mod dkv;
mod dq;
mod fused_small;
mod masked;
mod product;
mod row_ops;
mod score_block;
mod tasks;
mod workspace;

use super::bias::CheckedBias;
use super::head_views::{Heads, HeadsMut, Qkv};
use super::options::{
    AttentionOptions, Bias, Sequence, check_keys, check_query, check_sentences, check_sequences,
};
use super::tasks::{AttentionParams, MIN_WORK_TO_FORK, TrainArgs, attend, check_sums, count_tasks};
use crate::debug_slice::impl_debug;
use crate::dropout::WeightDropout;
use crate::error::{Error, Expected};
use crate::float_mode::in_default_mode;
use crate::isa::Isa;
use crate::parallel::{Exec, share};
use crate::sync_ptr::SharedMut;
use core::ops::RangeInclusive;
use tasks::{Backward, table_len, tasks};
use workspace::Workspace;

/// Most workspaces of concurrent tasks, for any number of threads.
const MAX_WORKSPACES: usize = 32;

/// As [`attention`](crate::attention), with the same bits except for the dropout. It also saves the data that
/// [`attention_backward`] needs in `sums`, `[query tokens, heads, 2]`: the maximum score of each query token and head,
/// and the reciprocal of the sum of its weights relative to that maximum. Both are 0 for a fully masked query. The sums
/// of queries that are in no sequence are not written.
///
/// The dropout sets each weight after the softmax to 0, or divides it by the probability that it is not dropped, before
/// the product with the values. `sums` are those of all weights. The output of a fully masked query does not change.
/// The error bound is that of [`attention`](crate::attention), with the bound of the values divided by that
/// probability, plus two roundings.
///
/// `scratch` needs [`attention_scratch`](crate::attention_scratch) floats.
///
/// # Errors
/// As [`attention`](crate::attention); also if `sums` has the wrong length, or the dropout has another number of tokens.
/// Then nothing is written.
///
/// ```
/// use simdformer_kernels::train::{
///     AttentionGradients, AttentionInputs, SavedAttention, attention_backward,
///     attention_backward_scratch, attention_forward_save,
/// };
/// use simdformer_kernels::{
///     AttentionOptions, Exec, Heads, HeadsMut, Isa, Qkv, Sequence, attention_scratch,
/// };
///
/// let isa = Isa::best();
/// let exec = Exec::serial(isa);
/// let shape = [2, 1, 1]; // Two tokens, one head of one element.
/// let sequences = [Sequence::packed(0, 2)];
/// let options = AttentionOptions::new(1);
/// let fused = [0.0, 1.0, 2.0, 0.0, 1.0, 4.0]; // Queries 0, keys 1, values 2 and 4.
/// let qkv = Qkv::fused(&fused, shape)?;
/// let inputs =
///     AttentionInputs { qkv, sequences: &sequences, options: &options, dropout: None };
/// let (mut context, mut sums) = ([0.0; 2], [0.0; 4]);
/// let mut scratch = vec![0.0; attention_scratch(isa, &sequences, 1, 1)?];
/// let out = HeadsMut::new(&mut context, shape)?;
/// attention_forward_save(exec, &inputs, out, &mut sums, &mut scratch)?;
/// assert_eq!((context, sums), ([3.0; 2], [0.0, 0.5, 0.0, 0.5]));
///
/// // The gradient of the first token's context.
/// let d_context = [1.0, 0.0];
/// let mut gradient = [f32::NAN; 6];
/// let mut scratch = vec![0.0; attention_backward_scratch(isa, &sequences, 1, 1, 1)?];
/// let saved = SavedAttention { context: Heads::new(&context, shape)?, sums: &sums };
/// let to = AttentionGradients::fused(&mut gradient, shape)?;
/// let d_context = Heads::new(&d_context, shape)?;
/// attention_backward(exec, &inputs, saved, d_context, to, &mut scratch)?;
/// // Each value gets half of it. The keys are equal, so the gradients of queries and keys are 0.
/// assert_eq!(gradient, [0.0, 0.0, 0.5, 0.0, 0.0, 0.5]);
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
pub fn attention_forward_save(
    exec: Exec<'_>,
    inputs: &AttentionInputs<'_>,
    context: HeadsMut<'_>,
    sums: &mut [f32],
    scratch: &mut [f32],
) -> Result<(), Error> {
    let Exec { isa, threads } = exec;
    let &AttentionInputs { qkv, sequences, options, dropout } = inputs;
    let train = Some(TrainArgs { sums, dropout });
    attend(isa, qkv, sequences, options, (context.into(), train), scratch, threads)
}

/// What the forward and the backward pass of attention read.
#[derive(Clone, Copy, Debug)]
pub struct AttentionInputs<'a> {
    /// Queries, keys and values.
    pub qkv: Qkv<'a>,
    /// The sequences of the call.
    pub sequences: &'a [Sequence],
    /// The scale, the mask and the bias.
    pub options: &'a AttentionOptions<'a>,
    /// Which weights are dropped; `None` drops none.
    pub dropout: Option<WeightDropout<'a>>,
}

/// The results of [`attention_forward_save`], which its gradient reads.
#[derive(Clone, Copy)]
pub struct SavedAttention<'a> {
    /// The output, `[query tokens, heads, head_dim]`.
    pub context: Heads<'a>,
    /// `[query tokens, heads, 2]`.
    pub sums: &'a [f32],
}

impl_debug!(SavedAttention { context, [sums] });

/// The gradients that [`attention_backward`] writes: those of [`Qkv`], each with the shape of its tensor, and that of
/// the bias.
pub struct AttentionGradients<'a> {
    /// Gradient of the queries, `[tokens, heads, head_dim]`.
    pub query: HeadsMut<'a>,
    /// Gradient of the keys, `[key tokens, kv_heads, head_dim]`.
    pub key: HeadsMut<'a>,
    /// Gradient of the values, `[key tokens, kv_heads, head_dim]`.
    pub value: HeadsMut<'a>,
    /// Receives the gradient of a [`Bias::Relative`], in the layout of its values. The gradient is *added*, sequence by
    /// sequence, because the bias may be used several times: clear it before the first use. Values that no query and
    /// key use are not written.
    pub bias: Option<&'a mut [f32]>,
}

impl_debug!(AttentionGradients { query, key, value, [bias] });

impl<'a> AttentionGradients<'a> {
    /// The three parts of one fused gradient, `[tokens, (query, key, value), heads, head_dim]`, each
    /// `shape = [tokens, heads, head_dim]`, as [`Qkv::fused`] reads them.
    ///
    /// # Errors
    /// The slice is shorter than `3 * tokens * heads * head_dim`.
    pub fn fused(data: &'a mut [f32], shape: [usize; 3]) -> Result<Self, Error> {
        let [query, key, value] = HeadsMut::side_by_side(data, shape)?;
        Ok(Self { query, key, value, bias: None })
    }

    /// A separate gradient of the query, `[tokens, heads, head_dim]`, and a fused gradient of keys and values,
    /// `[key tokens, (key, value), kv_heads, head_dim]`, each `key_shape`, as cross-attention projects the encoder
    /// output.
    ///
    /// # Errors
    /// The slice is shorter than `2 * key tokens * kv_heads * head_dim`.
    ///
    /// ```
    /// use simdformer_kernels::HeadsMut;
    /// use simdformer_kernels::train::AttentionGradients;
    ///
    /// let (mut query, mut key_value) = ([0.0; 2], [1.0, 2.0, 3.0, 4.0, 5.0, 6.0, 7.0, 8.0]);
    /// let query = HeadsMut::new(&mut query, [1, 1, 2])?;
    /// // Two keys of one head of 2.
    /// let gradients = AttentionGradients::cross(query, &mut key_value, [2, 1, 2])?;
    /// assert_eq!(gradients.key.as_view().row(1, 0), Some(&[5.0, 6.0][..]));
    /// assert_eq!(gradients.value.as_view().row(0, 0), Some(&[3.0, 4.0][..]));
    /// # Ok::<(), simdformer_kernels::Error>(())
    /// ```
    pub fn cross(
        query: HeadsMut<'a>,
        key_value: &'a mut [f32],
        key_shape: [usize; 3],
    ) -> Result<Self, Error> {
        let [key, value] = HeadsMut::side_by_side(key_value, key_shape)?;
        Ok(Self { query, key, value, bias: None })
    }
}

/// The error for a size of the scratch that overflows.
const TOO_LARGE: Error = Error::TooLarge { operand: "the scratch" };

/// The number of tasks of a call, and the number of workspaces.
fn workspaces(sequences: usize, kv_heads: usize) -> Result<(usize, usize), Error> {
    let tasks = sequences.checked_mul(kv_heads).ok_or(TOO_LARGE)?;
    Ok((tasks, tasks.min(MAX_WORKSPACES)))
}

fn workspace_of(isa: Isa, sequences: &[Sequence], head_dim: usize) -> Result<Workspace, Error> {
    let queries = sequences.iter().map(|s| s.query_len).max().unwrap_or(0);
    let keys = sequences.iter().map(|s| s.key_len).max().unwrap_or(0);
    Workspace::new(isa.lanes(), [queries, keys], head_dim).ok_or(TOO_LARGE)
}

/// Floats of scratch that [`attention_backward`] needs for `sequences` with `heads` query heads and `kv_heads`
/// key-value heads of `head_dim` elements.
///
/// This is a workspace for each of at most 32 tasks, each for at most a block of 256 keys and 96 queries, and the sums
/// per distance for the gradient of a relative bias. It does not depend on threads.
///
/// # Errors
/// The size overflows.
pub fn attention_backward_scratch(
    isa: Isa,
    sequences: &[Sequence],
    heads: usize,
    kv_heads: usize,
    head_dim: usize,
) -> Result<usize, Error> {
    let layout = workspace_of(isa, sequences, head_dim)?;
    let (_, workspaces) = workspaces(sequences.len(), kv_heads)?;
    let tables = sequences.iter().map(table_len).try_fold(0usize, usize::checked_add);
    tables
        .and_then(|tables| {
            tables.checked_mul(heads)?.checked_add(workspaces.checked_mul(layout.floats)?)
        })
        .ok_or(TOO_LARGE)
}

/// Floats of scratch that are enough for [`attention_backward`] of any `sequences` sequences with at most
/// `tokens = [queries, keys]` in total and at most `longest` of either per sequence, and with
/// `heads = [heads, kv_heads]`. It is for planning before the lengths are known.
///
/// ```
/// use simdformer_kernels::train::{attention_backward_scratch, attention_backward_scratch_bound};
/// use simdformer_kernels::{Isa, Sequence};
///
/// let isa = Isa::best();
/// let planned = attention_backward_scratch_bound(isa, 2, [40, 40], 33, [8, 8], 64)?;
/// let sequences = [Sequence::packed(0, 33), Sequence::packed(33, 7)];
/// assert!(attention_backward_scratch(isa, &sequences, 8, 8, 64)? <= planned);
/// # Ok::<(), simdformer_kernels::Error>(())
/// ```
///
/// # Errors
/// The size overflows.
pub fn attention_backward_scratch_bound(
    isa: Isa,
    sequences: usize,
    tokens: [usize; 2],
    longest: usize,
    [heads, kv_heads]: [usize; 2],
    head_dim: usize,
) -> Result<usize, Error> {
    let longest = tokens.map(|tokens| longest.min(tokens));
    let layout = Workspace::new(isa.lanes(), longest, head_dim).ok_or(TOO_LARGE)?;
    let (_, workspaces) = workspaces(sequences, kv_heads)?;
    let distances = tokens[0].checked_add(tokens[1]);
    distances
        .and_then(|all| all.checked_mul(heads)?.checked_add(workspaces.checked_mul(layout.floats)?))
        .ok_or(TOO_LARGE)
}

/// The gradients of queries, keys and values, and of a relative bias. `d_context` is the gradient of the context in
/// `saved`, which [`attention_forward_save`] wrote from the same `inputs`.
///
/// All three gradients are stored, never added, for every query of a sequence and for every key, padding included. The
/// gradient of a hidden key is exactly 0. (Under [`FullyMasked::Uniform`](crate::FullyMasked::Uniform) its value gets
/// its share of each fully masked query.) Rows that are in no sequence are not written. With grouped heads, the
/// gradient of a key is the sum over the query heads that read it.
///
/// Each key and value is in one sequence only: unlike in the forward pass, sequences that share keys are rejected.
/// `scratch` needs [`attention_backward_scratch`] floats.
///
/// The bits of a gradient depend on its own sequence, the options, `sums` and `context`.
///
/// Error: let `u = 2^-24`, `n` and `m` the numbers of queries and keys of a sequence, `A = head_dim max|dO| max|v|`,
/// `e` the relative error of a weight, `8 u (head_dim scale max|q| max|k| + max|bias| + m / 8 + 8)`, and `P` the exact
/// weights. Gradients are within
///
/// * `scale max|k| A (3 e + (2 head_dim + 2 m + 12) u)` for a query,
/// * `scale max|q| A (3 e + (2 head_dim + 2 n g + 12) u) sum P` for a key, whose weights from all queries of the
///   `g` heads of its group add up to `sum P`,
/// * `max|dO| (e + (n g + 1) u) sum P` for a value,
/// * `A (3 e + (2 head_dim + 2 t + 12) u) sum P` for a bias that `t` pairs share,
///
/// of the exact ones. `dP` and `D` are at most `A`. Each element of `dS` has an error of `3 e A P` from the weight, the
/// context and the weight in `D`; the other terms are the roundings of sums. Under dropout, `max|dO|` is divided by the
/// probability that a weight is not dropped, and `e` has two more roundings.
///
/// # Errors
/// Shapes, ranges or buffers that do not fit, sequences that share keys, a gradient of a relative bias that is not
/// there, or a dropout with another number of tokens; then nothing is written.
///
/// There is an example at [`attention_forward_save`].
pub fn attention_backward(
    exec: Exec<'_>,
    inputs: &AttentionInputs<'_>,
    saved: SavedAttention<'_>,
    d_context: Heads<'_>,
    gradients: AttentionGradients<'_>,
    scratch: &mut [f32],
) -> Result<(), Error> {
    let Exec { isa, threads } = exec;
    let &AttentionInputs { qkv, sequences, options, dropout } = inputs;
    let (Qkv { query, key, value }, SavedAttention { context, sums }) = (qkv, saved);
    let AttentionGradients { query: mut d_query, key: mut d_key, value: mut d_value, bias: d_bias } =
        gradients;
    let (heads, kv_heads, head_dim) = (query.heads(), key.heads(), key.head_dim());
    value.check_shape("value", key.shape())?;
    check_query(&query, ("gradients.query", &d_query), kv_heads, head_dim)?;
    context.check_shape("saved.context", query.shape())?;
    d_context.check_shape("d_context", query.shape())?;
    d_key.as_view().check_shape("gradients.key", key.shape())?;
    d_value.as_view().check_shape("gradients.value", value.shape())?;
    let queries = sequences.iter().map(|s| (s.query_start, s.query_len, s.key_len));
    let reach = check_sequences(queries, &query, &[context, d_context, d_query.as_view()])?;
    let bias = CheckedBias::new(options, reach)?;
    check_keys(sequences, &key, &[value, d_key.as_view(), d_value.as_view()])?;
    check_disjoint_keys(sequences)?;
    check_sums(sums, &query)?;
    check_sentences(dropout.as_ref(), &query)?;
    let d_bias = match d_bias {
        None => None,
        Some(gradient) => Distances::new(options, gradient, heads, bias)?,
    };
    let expected = attention_backward_scratch(isa, sequences, heads, kv_heads, head_dim)?;
    Error::check_min_len("scratch", expected, scratch)?;
    count_tasks(sequences.len(), heads, reach.longest[0])?;
    if heads == 0 || head_dim == 0 {
        return Ok(());
    }

    let layout = workspace_of(isa, sequences, head_dim)?;
    let (task_count, workspaces) = workspaces(sequences.len(), kv_heads)?;
    let (places, tables) = scratch.split_at_mut(workspaces * layout.floats);
    let (places, tables) = (SharedMut::new(places), SharedMut::new(tables));
    let mut params = AttentionParams::new(&query, kv_heads, options, bias, &mut d_query, None);
    params.dropout = dropout;
    let backward = Backward {
        params: &params,
        qkv,
        context,
        d_context,
        sums,
        sequences,
        d_key: d_key.shared(),
        d_value: d_value.shared(),
        layout,
        tables: d_bias.is_some().then_some(tables),
    };
    let place = |index: usize| places.as_ptr().wrapping_add(index * layout.floats);
    let run = |range, index| {
        isa.dispatch(tasks(&backward, range, place(index)));
    };
    let workers = threads.workers();
    if workers.threads() == 1 || reach.work < MIN_WORK_TO_FORK {
        run(0..task_count, 0);
    } else {
        workers.for_each(workspaces, &|index| {
            run(share(task_count, workspaces, index), index);
        });
    }
    if let Some(d_bias) = d_bias {
        // SAFETY: all tasks have ended, and the scratch was checked to have space for the tables of all sequences and
        // heads.
        let tables = unsafe { tables.part(0, expected - workspaces * layout.floats) };
        in_default_mode(|| d_bias.add(sequences, tables));
    }
    Ok(())
}

/// The checked gradient of a relative bias.
struct Distances<'a> {
    gradient: &'a mut [f32],
    heads: usize,
    head_stride: usize,
    /// Index of distance 0 in the values of a head.
    zero: usize,
    causal: bool,
}

impl<'a> Distances<'a> {
    /// `None` if no sequence has both queries and keys, and thus no bias.
    fn new(
        options: &AttentionOptions<'_>,
        gradient: &'a mut [f32],
        heads: usize,
        bias: Option<CheckedBias<'_>>,
    ) -> Result<Option<Self>, Error> {
        let Some(Bias::Relative { head_stride, zero, .. }) = options.bias else {
            let missing = Expected::Exactly(1);
            return Error::check_size("tables", "the relative bias", missing, 0).map(|()| None);
        };
        let Some(bias) = bias else { return Ok(None) };
        Error::check_min_len("gradients.bias", bias.len, gradient)?;
        Ok(Some(Self { gradient, heads, head_stride, zero, causal: options.causal }))
    }

    /// Distances from query to key in a sequence that has both. Under a causal mask, none is positive.
    fn reach(sequence: &Sequence, causal: bool) -> RangeInclusive<isize> {
        let ahead = if causal { 0 } else { sequence.query_len as isize - 1 };
        1 - sequence.key_len as isize..=ahead
    }

    /// Adds the tables of all sequences and heads, in order.
    fn add(self, sequences: &[Sequence], tables: &[f32]) {
        let mut tables = tables;
        for sequence in sequences.iter().filter(|sequence| table_len(sequence) > 0) {
            let reach = Self::reach(sequence, self.causal);
            let count = (reach.end() - reach.start() + 1).max(0) as usize;
            for head in 0..self.heads {
                let (table, rest) = tables.split_at(table_len(sequence));
                tables = rest;
                let first = head * self.head_stride + self.zero + 1 - sequence.key_len;
                let to = &mut self.gradient[first..first + count];
                for (sum, x) in to.iter_mut().zip(table) {
                    *sum += x;
                }
            }
        }
    }
}

/// Checks that no two sequences share a key, padding included.
fn check_disjoint_keys(sequences: &[Sequence]) -> Result<(), Error> {
    let mut end = 0;
    for (index, sequence) in sequences.iter().enumerate() {
        let Sequence { key_start, padded_len, .. } = *sequence;
        let after = key_start.saturating_add(padded_len);
        if padded_len > 0 && key_start < end {
            // Sequences may be in any order: compare with each earlier one.
            let shares = |other: &Sequence| {
                let other_end = other.key_start.saturating_add(other.padded_len);
                other.padded_len > 0 && key_start < other_end && other.key_start < after
            };
            let sharing = 1 + sequences[..index].iter().filter(|other| shares(other)).count();
            let (index, one) = (Some(index), Expected::Exactly(1));
            Error::check_item("sequences with a key", "sequence", index, one, sharing)?;
        }
        if padded_len > 0 {
            end = end.max(after);
        }
    }
    Ok(())
}
