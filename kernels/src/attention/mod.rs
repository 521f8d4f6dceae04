//! Scaled dot-product attention, `softmax(scale * Q K^T + bias, masked) V`, without ever forming
//! the matrix of scores.
//!
//! Three entries share one inner loop (`flash.rs`):
//!
//! * [`attention`]: queries, keys and values in strided views, any number of sequences laid end to
//!   end or padded; keys are put into panels and values into rows in the caller's scratch first.
//! * [`attention_cached`]: keys and values in a [`Cache`], where they already have that layout:
//!   cross-attention, and prefills that continue a cache.
//! * [`attention_step`]: one query per row, whose past lies in several slots of the cache.
//!
//! Masking is by length (`key_len` of each sequence) and by causality, aligned to the end of the
//! keys: query `i` of `query_len` sees keys `0..i + 1 + key_len - query_len`. What is masked
//! contributes exactly 0, whatever its memory holds. An additive bias is the general path; a bias of
//! minus infinity hides a key in the same way.
//!
//! Error: with `u = 2^-24`, each output is within
//! `8 u (head_dim scale max|q| max|k| + key_len / 8 + 8) max|v|` of the exact value.
//!
//! Source: Vaswani et al. 2017, equation 1; the online softmax is Milakov and Gimelshein 2018, its
//! use in attention Rabe and Staats 2021 and Dao et al. 2022.

mod cache;
mod call;
mod error;
mod finish;
mod flash;
mod heads;
mod options;
mod panels;
mod product;
mod step;
mod weights;

pub use cache::{Cache, CacheMut, CacheShape};
pub use error::AttentionError;
pub use heads::{Heads, HeadsMut, Qkv};
pub use options::{
    Ancestry, AttentionOptions, AttentionOutput, Bias, CachedSequence, Sequence, Weights,
};

use crate::isa::Isa;
use crate::matrix::SharedMut;
use crate::parallel::Parallelism;
use crate::softmax::FullyMasked;
use call::{Call, MIN_WORK_TO_FORK, Prepare, Source, Steps, chunked};
use panels::{key_panels, value_row, value_rows};

/// Heads for each thread from which on heads are not cut into blocks of queries.
const HEADS_PER_THREAD: usize = 4;

/// Queries for which values are copied together.
const MIN_COPIED: usize = 12;

/// Floats of scratch that [`attention`] needs for `sequences` with key-value heads `heads` of
/// `head_dim`.
///
/// # Errors
/// The size overflows.
pub fn attention_scratch(
    isa: Isa,
    sequences: &[Sequence],
    heads: usize,
    head_dim: usize,
) -> Result<usize, AttentionError> {
    sequences.iter().try_fold(0usize, |total, sequence| {
        sequence_scratch(isa, sequence.padded_len, heads, head_dim)
            .and_then(|floats| total.checked_add(floats))
            .ok_or(AttentionError::TooLarge)
    })
}

/// Floats of scratch that are enough for any `sequences` sequences with `tokens` keys in all.
///
/// # Errors
/// The size overflows.
pub fn attention_scratch_bound(
    isa: Isa,
    sequences: usize,
    tokens: usize,
    heads: usize,
    head_dim: usize,
) -> Result<usize, AttentionError> {
    sequences
        .checked_mul(isa.lanes())
        .and_then(|rounding| rounding.checked_add(tokens))
        .and_then(|tokens| sequence_scratch(isa, tokens, heads, head_dim))
        .ok_or(AttentionError::TooLarge)
}

/// Panels of keys, and rows of values.
fn sequence_scratch(isa: Isa, tokens: usize, heads: usize, head_dim: usize) -> Option<usize> {
    let keys = key_panels(isa.lanes(), tokens, head_dim)?;
    let values = value_rows(isa.lanes(), tokens, head_dim)?;
    keys.checked_add(values)?.checked_mul(heads)
}

/// Attention of every sequence: the query and the output are `[tokens, heads, head_dim]`, key and
/// value `[tokens, kv_heads, head_dim]` with `heads` a multiple of `kv_heads` (query head `h` reads
/// key-value head `h / (heads / kv_heads)`). Query rows of no sequence are left alone.
///
/// Sequences are in order of `query_start` and do not overlap there; they may share keys. `scratch`
/// takes [`attention_scratch`] floats.
///
/// The bits of an output row depend on its own query, on the keys and values it may see and on the
/// options, not on the rest of the batch or on threads.
///
/// # Errors
/// Shapes, ranges or buffers that do not fit; then nothing is written.
///
/// ```
/// use simdformer_kernels::{
///     AttentionOptions, HeadsMut, Isa, Parallelism, Qkv, Sequence, attention, attention_scratch,
/// };
///
/// let isa = Isa::detect();
/// let (tokens, heads, head_dim) = (3, 2, 4);
/// let fused = [0.25; 3 * 3 * 8]; // [tokens, (query, key, value), heads, head_dim]
/// let sequences = [Sequence::packed(0, tokens)];
/// let mut scratch = vec![0.0; attention_scratch(isa, &sequences, heads, head_dim)?];
/// let mut out = [0.0; 3 * 8];
/// attention(
///     isa,
///     Qkv::fused(&fused, [tokens, heads, head_dim])?,
///     &sequences,
///     &AttentionOptions { causal: true, ..AttentionOptions::new(head_dim) },
///     HeadsMut::new(&mut out, [tokens, heads, head_dim])?.into(),
///     &mut scratch,
///     Parallelism::Serial,
/// )?;
/// assert!(out.iter().all(|x| (x - 0.25).abs() < 1e-6));
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
pub fn attention(
    isa: Isa,
    qkv: Qkv<'_>,
    sequences: &[Sequence],
    options: &AttentionOptions<'_>,
    output: AttentionOutput<'_>,
    scratch: &mut [f32],
    parallelism: Parallelism<'_>,
) -> Result<(), AttentionError> {
    let Qkv { query, key, value } = qkv;
    let AttentionOutput { context: mut out, weights } = output;
    let (kv_heads, head_dim) = (key.heads(), key.head_dim());
    if (value.heads(), value.head_dim()) != (kv_heads, head_dim) {
        return Err(AttentionError::KeyValueShape {
            expected: (kv_heads, head_dim),
            found: (value.heads(), value.head_dim()),
        });
    }
    if key.tokens() != value.tokens() {
        return Err(AttentionError::ValueTokens { expected: key.tokens(), found: value.tokens() });
    }
    check_query(&query, &out, kv_heads, head_dim)?;
    let queries = sequences.iter().map(|s| (s.query_start, s.query_len, s.key_len));
    check_sequences(queries, query.tokens(), options, weights.as_ref(), query.heads())?;
    for (index, sequence) in sequences.iter().enumerate() {
        if sequence.key_len > sequence.padded_len {
            return Err(AttentionError::KeyLength {
                sequence: index,
                padded: sequence.padded_len,
                found: sequence.key_len,
            });
        }
        let end = sequence.key_start.saturating_add(sequence.padded_len);
        if end > key.tokens() {
            return Err(AttentionError::KeyRange {
                sequence: index,
                tokens: key.tokens(),
                found: end,
            });
        }
    }
    let expected = attention_scratch(isa, sequences, kv_heads, head_dim)?;
    if scratch.len() < expected {
        return Err(AttentionError::Scratch { expected, found: scratch.len() });
    }
    if query.tokens() == 0 || query.heads() == 0 || head_dim == 0 {
        return Ok(());
    }

    let row = value_row(isa.lanes(), head_dim);
    let area = SharedMut::new(scratch);
    let floats = |len: usize| sequence_scratch(isa, len, 1, head_dim).unwrap_or(0);
    // Where the panels and rows of a head of a sequence are in the scratch.
    let place = |task: usize| {
        let (index, head) = (task / kv_heads, task % kv_heads);
        let before: usize =
            sequences[..index].iter().map(|s| kv_heads * floats(s.padded_len)).sum();
        area.as_ptr().wrapping_add(before + head * floats(sequences[index].padded_len))
    };
    let panels =
        |index: usize| sequences[index].padded_len.next_multiple_of(isa.lanes()) * head_dim;
    // A few queries read values where they are.
    let group = query.heads() / kv_heads;
    let in_place = |index: usize| {
        head_dim.is_multiple_of(isa.lanes()) && sequences[index].query_len * group < MIN_COPIED
    };
    let prepare = |task: usize, at: *mut f32| {
        let (index, head) = (task / kv_heads, task % kv_heads);
        let sequence = sequences[index];
        let value_len = match options.fully_masked {
            FullyMasked::Uniform => sequence.padded_len,
            FullyMasked::Zeros => sequence.key_len,
        };
        let values =
            if in_place(index) { core::ptr::null_mut() } else { at.wrapping_add(panels(index)) };
        isa.dispatch(Prepare { key, value, head, sequence, value_len, keys: at, values });
    };
    let source = |index: usize, head: usize, at: *mut f32| {
        let sequence = sequences[index];
        let in_place = in_place(index);
        Source {
            query_start: sequence.query_start,
            query_len: sequence.query_len,
            key_len: sequence.key_len,
            padded_len: sequence.padded_len,
            keys: at,
            next_keys: at,
            values: if in_place {
                value.at(sequence.key_start, head)
            } else {
                at.wrapping_add(panels(index))
            },
            value_row: if in_place { value.token_stride() } else { row },
        }
    };

    let call = Call::new(&query, kv_heads, options, &mut out, weights);
    let work = sequences
        .iter()
        .map(|s| s.query_len.saturating_mul(s.key_len))
        .fold(0usize, usize::saturating_add)
        .saturating_mul(query.heads() * head_dim);
    let tasks = sequences.len() * kv_heads;
    if parallelism.threads() == 1 || tasks >= HEADS_PER_THREAD * parallelism.threads() {
        // One head after the other, in the place of the first: its panels and rows stay in cache.
        chunked(tasks, work, parallelism, &|range| {
            let at = place(range.start);
            for task in range {
                prepare(task, at);
                let (index, head) = (task / kv_heads, task % kv_heads);
                call.run_head(isa, index, head, source(index, head, at));
            }
        });
        return Ok(());
    }
    let padded: usize = sequences.iter().map(|s| s.padded_len).sum();
    let threads = if padded * kv_heads * head_dim < MIN_WORK_TO_FORK {
        Parallelism::Serial
    } else {
        parallelism
    };
    threads.for_each(tasks, &|task| prepare(task, place(task)));
    call.run(
        isa,
        sequences.len(),
        |i| sequences[i].query_len,
        work,
        parallelism,
        &|index, head| source(index, head, place(index * kv_heads + head)),
    );
    Ok(())
}

/// As [`attention`], with keys and values from positions `0..key_len` of a slot of `cache`, on the
/// cache's instruction set. Several sequences may read one slot: that is how the beams of a
/// sentence share its source. Needs no scratch.
///
/// # Errors
/// Shapes, slots or buffers that do not fit; then nothing is written.
pub fn attention_cached(
    query: Heads<'_>,
    cache: &Cache<'_>,
    sequences: &[CachedSequence],
    options: &AttentionOptions<'_>,
    output: AttentionOutput<'_>,
    parallelism: Parallelism<'_>,
) -> Result<(), AttentionError> {
    let AttentionOutput { context: mut out, weights } = output;
    let shape = cache.shape();
    let isa = cache.isa();
    check_query(&query, &out, shape.heads, shape.head_dim)?;
    let queries = sequences.iter().map(|s| (s.query_start, s.query_len, s.key_len));
    check_sequences(queries, query.tokens(), options, weights.as_ref(), query.heads())?;
    for sequence in sequences {
        check_slot(&shape, sequence.slot, sequence.key_len)?;
    }
    if query.tokens() == 0 || query.heads() == 0 || shape.head_dim == 0 {
        return Ok(());
    }
    let row = value_row(isa.lanes(), shape.head_dim);
    let call = Call::new(&query, shape.heads, options, &mut out, weights);
    let work = sequences
        .iter()
        .map(|s| s.query_len.saturating_mul(s.key_len))
        .fold(0usize, usize::saturating_add)
        .saturating_mul(query.heads() * shape.head_dim);
    call.run(
        isa,
        sequences.len(),
        |i| sequences[i].query_len,
        work,
        parallelism,
        &|index, head| {
            let sequence = sequences[index];
            Source {
                query_start: sequence.query_start,
                query_len: sequence.query_len,
                key_len: sequence.key_len,
                padded_len: sequence.key_len,
                keys: cache.keys(sequence.slot, head),
                next_keys: match sequences.get(index + 1) {
                    Some(next) if head + 1 == shape.heads => cache.keys(next.slot, 0),
                    _ => cache.keys(sequence.slot, head + 1),
                },
                values: cache.values(sequence.slot, head),
                value_row: row,
            }
        },
    );
    Ok(())
}

/// Attention of one query per row, `[rows, heads, head_dim]`, over a past that may lie in several
/// slots: `ancestry` says where. `out` has the query's shape.
///
/// The bits are those of [`attention_cached`] on a cache in which the same keys lie in one slot.
///
/// # Errors
/// Shapes, slots, lengths or buffers that do not fit; then nothing is written.
pub fn attention_step(
    query: Heads<'_>,
    cache: &Cache<'_>,
    ancestry: Ancestry<'_>,
    options: &AttentionOptions<'_>,
    mut out: HeadsMut<'_>,
    parallelism: Parallelism<'_>,
) -> Result<(), AttentionError> {
    let shape = cache.shape();
    let isa = cache.isa();
    check_query(&query, &out, shape.heads, shape.head_dim)?;
    let Ancestry { lens, slots, stride } = ancestry;
    if lens.len() != query.tokens() {
        return Err(AttentionError::Places { expected: query.tokens(), found: lens.len() });
    }
    if options.bias.is_some() {
        return Err(AttentionError::Bias { expected: 0, found: 1 });
    }
    let past = |row: usize| {
        let start = row.checked_mul(stride)?;
        slots.get(start..start.checked_add(lens[row] as usize)?)
    };
    for row in 0..query.tokens() {
        let Some(past) = past(row) else {
            let expected = row.saturating_mul(stride).saturating_add(lens[row] as usize);
            return Err(AttentionError::Ancestry { expected, found: slots.len() });
        };
        check_slot(&shape, 0, past.len())?;
        if let Some(&found) = past.iter().find(|&&slot| slot as usize >= shape.slots) {
            return Err(AttentionError::Slot { slots: shape.slots, found: found as usize });
        }
    }
    if query.tokens() == 0 || query.heads() == 0 || shape.head_dim == 0 {
        return Ok(());
    }
    let call = Call::new(&query, shape.heads, options, &mut out, None);
    let keys: usize = lens.iter().map(|&len| len as usize).sum();
    let work = keys * query.heads() * shape.head_dim;
    let tasks = query.tokens() * query.heads();
    chunked(tasks, work, parallelism, &|range| {
        isa.dispatch(Steps { call: &call, cache: *cache, lens, past: &past, range });
    });
    Ok(())
}

fn check_query(
    query: &Heads<'_>,
    out: &HeadsMut<'_>,
    kv_heads: usize,
    head_dim: usize,
) -> Result<(), AttentionError> {
    let expected = [query.tokens(), query.heads(), query.head_dim()];
    let found = [out.tokens(), out.heads(), out.head_dim()];
    if expected != found {
        return Err(AttentionError::OutputShape { expected, found });
    }
    if query.head_dim() != head_dim {
        return Err(AttentionError::HeadDim { expected: head_dim, found: query.head_dim() });
    }
    if query.heads() > 0 && (kv_heads == 0 || !query.heads().is_multiple_of(kv_heads)) {
        return Err(AttentionError::HeadGroups { query: query.heads(), key: kv_heads });
    }
    Ok(())
}

fn check_slot(shape: &CacheShape, slot: usize, positions: usize) -> Result<(), AttentionError> {
    if slot >= shape.slots {
        return Err(AttentionError::Slot { slots: shape.slots, found: slot });
    }
    if positions > shape.capacity {
        return Err(AttentionError::Capacity { capacity: shape.capacity, found: positions });
    }
    Ok(())
}

/// Checks query ranges, and that bias and weights cover them; `sequences` gives
/// `(query_start, query_len, key_len)`.
fn check_sequences(
    sequences: impl Iterator<Item = (usize, usize, usize)>,
    tokens: usize,
    options: &AttentionOptions<'_>,
    weights: Option<&Weights<'_>>,
    heads: usize,
) -> Result<(), AttentionError> {
    let (mut end, mut longest) = (0, 0);
    for (index, (start, len, keys)) in sequences.enumerate() {
        if start < end {
            return Err(AttentionError::QueryOverlap { sequence: index });
        }
        end = start.saturating_add(len);
        if end > tokens {
            return Err(AttentionError::QueryRange { sequence: index, tokens, found: end });
        }
        longest = longest.max(keys);
    }
    let reach = |heads: usize, head_stride: usize, query_stride: usize, keys: usize| {
        if heads == 0 || end == 0 || keys == 0 {
            return Some(0);
        }
        (heads - 1)
            .checked_mul(head_stride)?
            .checked_add((end - 1).checked_mul(query_stride)?)?
            .checked_add(keys)
    };
    if let Some(bias) = options.bias {
        let expected = reach(heads, bias.head_stride, bias.query_stride, longest)
            .ok_or(AttentionError::TooLarge)?;
        if bias.data.len() < expected {
            return Err(AttentionError::Bias { expected, found: bias.data.len() });
        }
    }
    if let Some(weights) = weights {
        if let Some(&found) = weights.heads.iter().find(|&&head| head >= heads) {
            return Err(AttentionError::WeightsHead { heads, found });
        }
        for (index, &found) in weights.heads.iter().enumerate() {
            if weights.heads[..index].contains(&found) {
                return Err(AttentionError::WeightsRepeated { found });
            }
        }
        let chosen = weights.heads.len();
        let expected = reach(chosen, weights.head_stride, weights.query_stride, weights.keys)
            .ok_or(AttentionError::TooLarge)?;
        // Rows of a head, and heads, must not run into each other.
        let apart = weights.query_stride >= weights.keys
            && (chosen <= 1 || weights.head_stride >= end.saturating_mul(weights.query_stride));
        if weights.data.len() < expected || (expected > 0 && !apart) || weights.keys < longest {
            let expected = expected.max(longest);
            return Err(AttentionError::Weights { expected, found: weights.data.len() });
        }
    }
    Ok(())
}
