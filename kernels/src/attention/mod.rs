//! Scaled dot-product attention, `softmax(scale * Q K^T + bias, masked) V`, without storing the matrix of scores.
//!
//! Three functions share one online softmax (`online_softmax.rs`). The first two also share one inner loop
//! (`flash.rs`):
//!
//! * [`attention`]: queries, keys and values in strided views, any number of sequences, packed or padded. It first
//!   copies keys into panels and values into rows in the caller's scratch.
//! * [`attention_cached`]: keys and values in a [`Cache`], which already has that layout: cross-attention, and prefills
//!   that continue a cache.
//! * [`attention_decode`]: one query per row, whose keys and values are in several slots of the cache.
//!
//! Masks are by length (`key_len` of each sequence) and by causality, aligned to the end of the keys: query `i` of
//! `query_len` sees keys `0..i + 1 + key_len - query_len`. An additive [`Bias`] of minus infinity hides the key for
//! every score. A hidden key contributes exactly 0, whatever its memory contains. All other keys are visible: the value
//! of a visible key is multiplied with its weight even if the weight is too small for f32 and is 0, so a value that is
//! NaN or infinite reaches the output.
//!
//! A query is fully masked if it sees no key, or only keys with a score of minus infinity. Its output is zeros, or with
//! [`FullyMasked::Uniform`](crate::FullyMasked::Uniform) the mean of all values of its sequence: of `padded_len` values
//! for [`attention`], of `key_len` values in a cache.
//!
//! A call uses at most 32 KiB of the caller's stack in an optimized build, for the scores and the queries of one tile.
//! It allocates nothing.
//!
//! Error: with `u = 2^-24`, each output is within
//! `8 u (head_dim scale max|q| max|k| + max|bias| + key_len / 8 + 8) max|v|` of the exact value. For a cache of
//! [`Dtype::F16`](crate::Dtype::F16), the exact value is that for the rounded keys and values in the cache.
//!
//! Source: Vaswani et al. 2017, equation 1. The online softmax is from Milakov and Gimelshein 2018, its use in
//! attention from Rabe and Staats 2021 and Dao et al. 2022.

#[cfg(feature = "train")]
mod backward;
mod bias;
mod cache;
mod check;
mod decode;
mod decode_query_group;
#[cfg(feature = "train")]
mod dropout;
mod flash;
mod head_views;
mod kv_dtype;
mod one_head;
mod online_softmax;
mod options;
mod panels;
mod prefill;
mod tasks;
mod write_output;

#[cfg(feature = "train")]
pub use backward::{
    AttentionGradients, AttentionInputs, SavedAttention, attention_backward,
    attention_backward_scratch, attention_backward_scratch_bound, attention_forward_save,
};
pub use cache::{Cache, CacheMut, CacheShape};
pub use head_views::{Heads, HeadsMut, Qkv};
pub use options::{
    AttentionOptions, AttentionOutput, AttentionWeights, Bias, CachedSequence, Sequence, SlotTable,
};

pub use prefill::attention_scratch;

use crate::dtype::Dtype;
use crate::error::Error;
use crate::isa::Isa;
use crate::parallel::{Exec, Parallelism};
use bias::CheckedBias;
use kv_dtype::with_kv_format;
use one_head::HeadKv;
use panels::{head_floats, value_row};
use tasks::{AttentionParams, DecodeRows, chunked, count_tasks, decode_rows, rows_of_unit};

/// Floats of scratch that are enough for any `sequences` sequences with `tokens` keys in total, padding included. It is
/// for planning before the lengths are known.
///
/// ```
/// use simdformer_kernels::{Isa, Sequence, attention_scratch, attention_scratch_bound};
///
/// let isa = Isa::best();
/// let planned = attention_scratch_bound(isa, 2, 40, 8, 64)?;
/// let sequences = [Sequence::packed(0, 33), Sequence::packed(33, 7)];
/// assert!(attention_scratch(isa, &sequences, 8, 64)? <= planned);
/// # Ok::<(), simdformer_kernels::Error>(())
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
) -> Result<usize, Error> {
    sequences
        .checked_mul(isa.lanes())
        .and_then(|rounding| rounding.checked_add(tokens))
        .and_then(|tokens| head_floats(isa.lanes(), tokens, head_dim)?.checked_mul(heads))
        .ok_or(Error::TooLarge { operand: "the scratch" })
}

/// Attention of every sequence. The query and the output are `[tokens, heads, head_dim]`, key and value
/// `[tokens, kv_heads, head_dim]`. `heads` is a multiple of `kv_heads`: query head `h` reads key-value head
/// `h / (heads / kv_heads)`. Output rows of queries that are in no sequence are not written.
///
/// Sequences are in order of `query_start`, and their queries do not overlap; they may share keys. `scratch` needs
/// [`attention_scratch`] floats.
///
/// The bits of an output row depend on its own query, on the keys and values that the query may see, and on the
/// options. They do not depend on the rest of the batch or on threads.
///
/// # Tensors of other engines
///
/// * `[batch, tokens, heads, head_dim]`: used directly, with one [`Sequence`] per batch element.
/// * `[batch, heads, tokens, head_dim]`: [`Heads::heads_first`] and [`HeadsMut::heads_first`], with one [`Sequence`]
///   per batch element, from token `batch element * tokens` on; the lengths may differ. For a cache with more capacity
///   than tokens, `tokens` is the capacity.
/// * The causal mask is aligned to the end of the keys, as in flash attention and with KV caches. A mask that is
///   aligned to the start, as PyTorch's `is_causal`, is the same if there are as many queries as keys. Otherwise, use a
///   bias.
///
/// # Errors
/// Shapes, ranges or buffers that do not fit; then nothing is written.
///
/// ```
/// use simdformer_kernels::{
///     AttentionOptions, Exec, HeadsMut, Isa, Qkv, Sequence, attention, attention_scratch,
/// };
///
/// let isa = Isa::detect()?;
/// let (tokens, heads, head_dim) = (3, 2, 4);
/// let fused = [0.25; 3 * 3 * 8]; // [tokens, (query, key, value), heads, head_dim]
/// let sequences = [Sequence::packed(0, tokens)];
/// let mut scratch = vec![0.0; attention_scratch(isa, &sequences, heads, head_dim)?];
/// let mut out = [0.0; 3 * 8];
/// attention(
///     Exec::serial(isa),
///     Qkv::fused(&fused, [tokens, heads, head_dim])?,
///     &sequences,
///     &AttentionOptions { causal: true, ..AttentionOptions::new(head_dim) },
///     HeadsMut::new(&mut out, [tokens, heads, head_dim])?.into(),
///     &mut scratch,
/// )?;
/// assert!(out.iter().all(|x| (x - 0.25).abs() < 1e-6));
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
pub fn attention(
    exec: Exec<'_>,
    qkv: Qkv<'_>,
    sequences: &[Sequence],
    options: &AttentionOptions<'_>,
    output: AttentionOutput<'_>,
    scratch: &mut [f32],
) -> Result<(), Error> {
    let Exec { isa, threads } = exec;
    prefill::attend(isa, qkv, sequences, options, (output, None), scratch, threads)
}

/// As [`attention`], with keys and values from positions `0..key_len` of a slot of `cache`, on the instruction set of
/// the cache. Several sequences may read one slot: the beams of a sentence share its source in this way. It needs no
/// scratch.
///
/// It is for cross-attention, where every key of the source is visible, and for a prefill that continues a cached
/// sequence: write the new tokens to the cache first, then call with `causal` and a `key_len` that includes them. The
/// bits and the error bound are those of [`attention`] on the same keys and values.
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
/// // The keys and values of a source of three tokens, projected once. All keys are equal.
/// let (key, value) = ([1.0; 6], [3.0, 0.0, 6.0, 0.0, 9.0, 3.0]);
/// let tokens = [3, heads, head_dim];
/// cache.write(0, 0, Heads::new(&key, tokens)?, Heads::new(&value, tokens)?)?;
///
/// // Two hypotheses of this source, with one query each.
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
) -> Result<(), Error> {
    let shape = cache.shape();
    let isa = cache.isa();
    check::query(&query, ("output.context", &output.context), shape.heads, shape.head_dim)?;
    let queries = sequences.iter().map(|s| (s.query_start, s.query_len, s.key_len));
    let reach = check::sequences(queries, &query, &[output.context.read()])?;
    let bias = CheckedBias::new(options.bias, reach, options.causal)?;
    let weights = check::weights(output.weights, reach)?;
    for sequence in sequences {
        shape.check_range(sequence.slot, 0, sequence.key_len)?;
    }
    count_tasks(sequences.len(), query.heads(), reach.longest)?;
    if query.tokens() == 0 || query.heads() == 0 || shape.head_dim == 0 {
        return Ok(());
    }
    let mut context = output.context;
    let mut params =
        AttentionParams::new(&query, shape.heads, options, bias, &mut context, weights);
    params.dtype = shape.dtype;
    let kv = |index: usize, head| {
        let CachedSequence { query_start, query_len, slot, key_len } = sequences[index];
        let next_keys = match sequences.get(index + 1) {
            Some(next) if head + 1 == shape.heads => cache.keys(next.slot, 0),
            _ => cache.keys(slot, head + 1),
        };
        let (keys, values) = (cache.keys(slot, head), cache.values(slot, head));
        let value_row = value_row(isa.lanes(), shape.head_dim);
        let kv = HeadKv { keys, next_keys, values, value_row };
        (Sequence::of_queries(query_start, query_len, key_len), kv)
    };
    let size = (sequences.len(), reach.longest);
    params.run(isa, size, reach.work, parallelism.workers(), &kv);
    Ok(())
}

/// Attention of one query per row, `[rows, heads, head_dim]`, over keys and values that may be in several slots;
/// `slot_table` contains the slots. `out` has the query's shape. A dense bias is indexed by row, as by query elsewhere.
/// With a relative bias, the position of each row is that of its last key.
///
/// This is self-attention in a decode step. [Append](CacheMut::append) the keys and values of the rows first: a row
/// sees its own key. To fork a hypothesis, copy a row of the table; keys and values are not copied.
///
/// The bits are those of [`attention_cached`] on a cache that has the same keys in one slot.
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
/// // All keys are equal, so the context of a row is the mean of the values that it sees.
/// let key = [1.0; 4];
/// let rows = [2, heads, head_dim];
///
/// // Step 0: one hypothesis, in slot 0. Step 1: two hypotheses, which write to slots 0 and 1.
/// let (first, second) = ([2.0, 0.0], [4.0, 0.0, 8.0, 6.0]);
/// let one = [1, heads, head_dim];
/// cache.append(&[0], &[0], Heads::new(&key[..2], one)?, Heads::new(&first, one)?)?;
/// cache.append(&[0, 1], &[1, 1], Heads::new(&key, rows)?, Heads::new(&second, rows)?)?;
///
/// // Position 0 of both is in slot 0, position 1 in the slot of each. A row of the table has 8 positions.
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
    slot_table: SlotTable<'_>,
    options: &AttentionOptions<'_>,
    mut out: HeadsMut<'_>,
    parallelism: Parallelism<'_>,
) -> Result<(), Error> {
    let shape = cache.shape();
    let isa = cache.isa();
    check::query(&query, ("out", &out), shape.heads, shape.head_dim)?;
    check::slot_table(&slot_table, query.tokens(), &shape)?;
    let ranges = slot_table.lens.iter().enumerate().map(|(row, &len)| (row, 1, len as usize));
    let reach = check::sequences(ranges, &query, &[])?;
    let bias = CheckedBias::new(options.bias, reach, options.causal)?;
    if query.tokens() == 0 || query.heads() == 0 || shape.head_dim == 0 {
        return Ok(());
    }
    let params = AttentionParams::new(&query, shape.heads, options, bias, &mut out, None);
    // Each task writes its own elements of the output.
    let workers = parallelism.workers();
    let unit = rows_of_unit(query.tokens(), query.heads(), workers.threads());
    let tasks = query.tokens().div_ceil(unit) * query.heads();
    chunked(tasks, reach.work, workers, &|range| {
        let rows = DecodeRows { params: &params, cache: *cache, slot_table, unit, range };
        with_kv_format!(shape.dtype, N => isa.dispatch(decode_rows::<N>(rows)));
    });
    Ok(())
}
