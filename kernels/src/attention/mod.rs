//! Scaled dot-product attention, `softmax(scale * Q K^T + bias, masked) V`, without ever forming
//! the matrix of scores.
//!
//! Three entries share one online softmax (`online_softmax.rs`) and, but for the step, one inner loop
//! (`flash.rs`):
//!
//! * [`attention`]: queries, keys and values in strided views, any number of sequences laid end to
//!   end or padded; keys are put into panels and values into rows in the caller's scratch first.
//! * [`attention_cached`]: keys and values in a [`Cache`], where they already have that layout:
//!   cross-attention, and prefills that continue a cache.
//! * [`attention_decode`]: one query per row, whose past lies in several slots of the cache.
//!
//! Masking is by length (`key_len` of each sequence) and by causality, aligned to the end of the
//! keys: query `i` of `query_len` sees keys `0..i + 1 + key_len - query_len`. An additive [`Bias`] of
//! minus infinity hides the key, whatever its score is. A hidden key contributes exactly 0, whatever its memory holds. A key that is not hidden is visible: its value is multiplied
//! with its weight even where that weight is too small for f32 and is 0, so that a value which is NaN
//! or infinite shows.
//!
//! A query that sees no key, or only keys whose score is minus infinity, has nothing to weigh. It
//! gets zeros, or with [`FullyMasked::Uniform`](crate::FullyMasked::Uniform) the mean of all values of
//! its sequence: of `padded_len` for [`attention`], of `key_len` in a cache.
//!
//! A call takes at most 32 KiB of the caller's stack when compiled with optimization: the scores and
//! the queries of one tile lie there. Nothing is allocated.
//!
//! Error: with `u = 2^-24`, each output is within
//! `8 u (head_dim scale max|q| max|k| + max|bias| + key_len / 8 + 8) max|v|` of the exact value; on a cache of
//! [`CacheDtype::F16`] of that for the keys and values as it keeps them.
//!
//! Source: Vaswani et al. 2017, equation 1; the online softmax is Milakov and Gimelshein 2018, its
//! use in attention Rabe and Staats 2021 and Dao et al. 2022.

#[cfg(feature = "train")]
mod backward;
mod bias;
mod cache;
mod check;
mod decode;
mod decode_queries;
#[cfg(feature = "train")]
mod dropout;
mod error;
mod flash;
mod head_params;
mod heads;
mod kv_dtype;
mod online_softmax;
mod options;
mod outputs;
mod panels;
mod params;
mod prefetched_tile;
mod prefill;

#[cfg(feature = "train")]
pub use backward::{
    QkvMut, attention_backward, attention_backward_scratch, attention_backward_scratch_bound,
    attention_forward_save,
};
pub use cache::{Cache, CacheMut, CacheShape};
pub use error::AttentionError;
pub use heads::{Heads, HeadsMut, Qkv};
pub use kv_dtype::CacheDtype;
pub use options::{
    AttentionOptions, AttentionOutput, Bias, CachedSequence, Sequence, SlotTable, Weights,
};

pub use prefill::attention_scratch;

use crate::isa::Isa;
use crate::parallel::Parallelism;
use bias::CheckedBias;
use panels::{head_floats, value_row};
use params::{
    AttentionParams, KvHead, Steps, chunked, count_tasks, dispatch, estimate_work, rows_of_unit,
};

/// Floats of scratch that are enough for any `sequences` sequences with `tokens` keys in all, padding
/// included: what to plan when lengths are not known yet.
///
/// ```
/// use simdformer_kernels::{Isa, Sequence, attention_scratch, attention_scratch_bound};
///
/// let isa = Isa::best();
/// let planned = attention_scratch_bound(isa, 2, 40, 8, 64)?;
/// let sequences = [Sequence::packed(0, 33), Sequence::packed(33, 7)];
/// assert!(attention_scratch(isa, &sequences, 8, 64)? <= planned);
/// # Ok::<(), simdformer_kernels::AttentionError>(())
/// ```
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
        .and_then(|tokens| head_floats(isa.lanes(), tokens, head_dim)?.checked_mul(heads))
        .ok_or(AttentionError::TooLarge)
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
/// # Tensors of other engines
///
/// * `[batch, tokens, heads, head_dim]`: as it is, with one [`Sequence`] for each part of the batch.
/// * `[batch, heads, tokens, head_dim]`, all of one length: one sequence with `batch * heads` heads, a
///   token stride of `head_dim` and a head stride of `tokens * head_dim`, or of `capacity * head_dim`
///   in a cache with room for more; grouped key-value heads still find theirs. Of several lengths: a
///   call for each.
/// * Causality here is aligned to the end of the keys, as flash attention and caches want it. One that
///   is aligned to the start, as PyTorch's `is_causal`, is the same where there are as many queries as
///   keys, and otherwise a bias.
///
/// # Errors
/// Shapes, ranges or buffers that do not fit; then nothing is written.
///
/// ```
/// use simdformer_kernels::{
///     AttentionOptions, HeadsMut, Isa, Parallelism, Qkv, Sequence, attention, attention_scratch,
/// };
///
/// let isa = Isa::detect()?;
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
    prefill::attend(isa, qkv, sequences, options, (output, None), scratch, parallelism)
}

/// As [`attention`], with keys and values from positions `0..key_len` of a slot of `cache`, on the
/// cache's instruction set. Several sequences may read one slot: that is how the beams of a
/// sentence share its source. Needs no scratch.
///
/// This is cross-attention, with every key of the source in view, and a prefill that continues a
/// past: write the new tokens to the cache first, then attend causally with `key_len` of all of them.
/// The bits and the error bound are those of [`attention`] on the same keys and values.
///
/// # Errors
/// Shapes, slots or buffers that do not fit; then nothing is written.
///
/// ```
/// use simdformer_kernels::{
///     AttentionOptions, CacheMut, CacheShape, CachedSequence, Heads, HeadsMut, Isa, Parallelism,
///     attention_cached,
/// };
///
/// let (isa, heads, head_dim) = (Isa::best(), 1, 2);
/// let shape = CacheShape::new(1, 8, heads, head_dim);
/// let mut data = vec![0.0; shape.len(isa)?];
/// let mut cache = CacheMut::new(isa, shape, &mut data)?;
/// // The memory of a source of three tokens, projected once. The keys are all alike.
/// let (key, value) = ([1.0; 6], [3.0, 0.0, 6.0, 0.0, 9.0, 3.0]);
/// let tokens = [3, heads, head_dim];
/// cache.write(0, 0, Heads::new(&key, tokens)?, Heads::new(&value, tokens)?)?;
///
/// // Two hypotheses about it, one query each.
/// let query = [0.5, 1.0, -2.0, 0.0];
/// let beam = |row| CachedSequence { query_start: row, query_len: 1, slot: 0, key_len: 3 };
/// let mut context = [0.0; 4];
/// attention_cached(
///     Heads::new(&query, [2, heads, head_dim])?,
///     &cache.read(),
///     &[beam(0), beam(1)],
///     &AttentionOptions::new(head_dim),
///     HeadsMut::new(&mut context, [2, heads, head_dim])?.into(),
///     Parallelism::Serial,
/// )?;
/// // The mean of the values.
/// assert!(context.iter().zip([6.0, 1.0, 6.0, 1.0]).all(|(x, y)| (x - y).abs() < 1e-5));
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
pub fn attention_cached(
    query: Heads<'_>,
    cache: &Cache<'_>,
    sequences: &[CachedSequence],
    options: &AttentionOptions<'_>,
    output: AttentionOutput<'_>,
    parallelism: Parallelism<'_>,
) -> Result<(), AttentionError> {
    let shape = cache.shape();
    let isa = cache.isa();
    check::query(&query, &output.context, shape.heads, shape.head_dim)?;
    let queries = sequences.iter().map(|s| (s.query_start, s.query_len, s.key_len));
    let reach = check::sequences(queries, &query)?;
    let bias = CheckedBias::new(options.bias, reach, options.causal)?;
    let weights = check::weights(output.weights, reach)?;
    for sequence in sequences {
        check::slot(&shape, sequence.slot, sequence.key_len)?;
    }
    let longest = sequences.iter().map(|s| s.query_len).max().unwrap_or(0);
    count_tasks(sequences.len(), query.heads(), longest)?;
    if query.tokens() == 0 || query.heads() == 0 || shape.head_dim == 0 {
        return Ok(());
    }
    let row = value_row(isa.lanes(), shape.head_dim);
    let mut context = output.context;
    let mut call = AttentionParams::new(&query, shape.heads, options, bias, &mut context, weights);
    call.read(shape.storage);
    let pairs = sequences.iter().map(|s| (s.query_len, s.key_len));
    let work = estimate_work(pairs, [query.heads(), shape.head_dim]);
    call.run(
        isa,
        sequences.len(),
        |i| sequences[i].query_len,
        work,
        parallelism.workers(),
        &|index, head| {
            let sequence = sequences[index];
            KvHead {
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
/// slots: `ancestry` says where. `out` has the query's shape. A bias counts rows as it counts queries
/// elsewhere; a relative one has each row at the position of its last key.
///
/// This is self-attention in a decoding step, after the rows' own keys and values have been
/// [appended](CacheMut::append): a row sees itself. A hypothesis that continues another one copies a
/// line of the table, not keys and values.
///
/// The bits are those of [`attention_cached`] on a cache in which the same keys lie in one slot.
///
/// # Errors
/// Shapes, slots, lengths or buffers that do not fit; then nothing is written.
///
/// ```
/// use simdformer_kernels::{
///     SlotTable, AttentionOptions, CacheMut, CacheShape, Heads, HeadsMut, Isa, Parallelism,
///     attention_decode,
/// };
///
/// let (isa, heads, head_dim) = (Isa::best(), 1, 2);
/// let shape = CacheShape::new(2, 8, heads, head_dim);
/// let mut data = vec![0.0; shape.len(isa)?];
/// let mut cache = CacheMut::new(isa, shape, &mut data)?;
/// // Keys that are all alike, so that a row's context is the mean of the values it sees.
/// let key = [1.0; 4];
/// let rows = [2, heads, head_dim];
///
/// // Step 0: one hypothesis, in slot 0. Step 1: it has become two, which write to slots 0 and 1.
/// let (first, second) = ([2.0, 0.0], [4.0, 0.0, 8.0, 6.0]);
/// let one = [1, heads, head_dim];
/// cache.append(&[0], &[0], Heads::new(&key[..2], one)?, Heads::new(&first, one)?)?;
/// cache.append(&[0, 1], &[1, 1], Heads::new(&key, rows)?, Heads::new(&second, rows)?)?;
///
/// // Position 0 of both lies in slot 0, position 1 in the slot of each. Lines of 8 positions.
/// let mut slots = [0u32; 2 * 8];
/// slots[8 + 1] = 1;
/// let mut context = [0.0; 4];
/// attention_decode(
///     Heads::new(&[0.5; 4], rows)?,
///     &cache.read(),
///     SlotTable { lens: &[2, 2], slots: &slots, stride: 8 },
///     &AttentionOptions::new(head_dim),
///     HeadsMut::new(&mut context, rows)?,
///     Parallelism::Serial,
/// )?;
/// assert!(context.iter().zip([3.0, 0.0, 5.0, 3.0]).all(|(x, y)| (x - y).abs() < 1e-5));
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
pub fn attention_decode(
    query: Heads<'_>,
    cache: &Cache<'_>,
    ancestry: SlotTable<'_>,
    options: &AttentionOptions<'_>,
    mut out: HeadsMut<'_>,
    parallelism: Parallelism<'_>,
) -> Result<(), AttentionError> {
    let shape = cache.shape();
    let isa = cache.isa();
    check::query(&query, &out, shape.heads, shape.head_dim)?;
    check::ancestry(&ancestry, query.tokens(), &shape)?;
    let pasts = ancestry.lens.iter().enumerate().map(|(row, &len)| (row, 1, len as usize));
    let reach = check::sequences(pasts, &query)?;
    let bias = CheckedBias::new(options.bias, reach, options.causal)?;
    if query.tokens() == 0 || query.heads() == 0 || shape.head_dim == 0 {
        return Ok(());
    }
    let call = AttentionParams::new(&query, shape.heads, options, bias, &mut out, None);
    let pairs = ancestry.lens.iter().map(|&len| (1, len as usize));
    let work = estimate_work(pairs, [query.heads(), shape.head_dim]);
    // Each has elements of its own in the output.
    let workers = parallelism.workers();
    let unit = rows_of_unit(query.tokens(), query.heads(), workers.threads());
    let tasks = query.tokens().div_ceil(unit) * query.heads();
    chunked(tasks, work, workers, &|range| {
        let steps = Steps { call: &call, cache: *cache, ancestry, unit, range };
        dispatch(isa, shape.storage, steps);
    });
    Ok(())
}
