//! Attention over keys and values that are in a cache: the entry [`attention_cached`]. It runs the tiles of
//! [`attention`](super::attention()), because a slot of a cache has the layout that they read.

use super::bias::CheckedBias;
use super::cache::Cache;
use super::head_views::Heads;
use super::options::{
    AttentionOptions, AttentionOutput, Sequence, check_query, check_sequences, check_weights,
};
use super::tasks::{AttentionParams, count_tasks};
use crate::error::Error;
use crate::parallel::Parallelism;

/// One sequence whose keys and values are in a cache, from position 0.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct CachedSequence {
    /// First query token.
    pub query_start: usize,
    /// Query tokens.
    pub query_len: usize,
    /// Slot of the cache.
    pub slot: usize,
    /// Positions of the slot that are visible.
    pub key_len: usize,
}

/// As [`attention`](super::attention), with keys and values from positions `0..key_len` of a slot of `cache`, on the
/// instruction set of the cache. Several sequences may read one slot: the beams of a sentence share its source in this way. It needs no
/// scratch.
///
/// It is for cross-attention, where every key of the source is visible, and for a prefill that continues a cached
/// sequence: write the new tokens to the cache first, then call with `causal` and a `key_len` that includes them. The
/// bits and the error bound are those of [`attention`](super::attention) on the same keys and values.
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
/// let mut data = vec![0.0; shape.buffer_len(isa)?];
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
///     &cache.as_view(),
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
    check_query(&query, ("output.context", &output.context), shape.heads, shape.head_dim)?;
    let queries = sequences.iter().map(|s| (s.query_start, s.query_len, s.key_len));
    let reach = check_sequences(queries, &query, &[output.context.as_view()])?;
    let bias = CheckedBias::new(options, reach)?;
    let weights = check_weights(output.weights, reach)?;
    for sequence in sequences {
        shape.check_range(sequence.slot, 0, sequence.key_len)?;
    }
    count_tasks(sequences.len(), query.heads(), reach.longest[0])?;
    if query.tokens() == 0 || query.heads() == 0 || shape.head_dim == 0 {
        return Ok(());
    }
    let mut context = output.context;
    let mut params =
        AttentionParams::new(&query, shape.heads, options, bias, &mut context, weights);
    params.dtype = shape.dtype;
    let kv = |index: usize, head| {
        let CachedSequence { query_start, query_len, slot, key_len } = sequences[index];
        let next = match sequences.get(index + 1) {
            Some(next) if head + 1 == shape.heads => (next.slot, 0),
            _ => (slot, head + 1),
        };
        let kv = cache.head_kv((slot, head), next);
        (Sequence::of_queries(query_start, query_len, key_len), kv)
    };
    let size = (sequences.len(), reach.longest[0]);
    params.run_sequences(isa, size, reach.work, parallelism.workers(), &kv);
    Ok(())
}
