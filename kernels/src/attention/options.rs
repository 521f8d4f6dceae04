//! Sequences, masks, biases, outputs and options of a call, and the checks that they fit. The checks run before anything
//! is written.

use super::head_views::{Heads, HeadsMut};
use crate::debug_slice::{CountElements, impl_debug};
#[cfg(feature = "train")]
use crate::dropout::WeightDropout;
use crate::error::{Error, Expected};
use crate::float_mode::in_default_mode;
use crate::softmax::FullyMasked;
use core::fmt;

/// One sequence of a batch: its rows of the query (and the output) and of the key (and the value).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Sequence {
    /// First query token.
    pub query_start: usize,
    /// Query tokens.
    pub query_len: usize,
    /// First key token.
    pub key_start: usize,
    /// Valid key tokens.
    pub key_len: usize,
    /// Key tokens, valid or padding; at least `key_len`. Only [`FullyMasked::Uniform`] reads past
    /// `key_len`.
    pub padded_len: usize,
}

impl Sequence {
    /// Self-attention of `len` tokens that start at row `start` of query, key and value.
    pub const fn packed(start: usize, len: usize) -> Self {
        Self { key_start: start, ..Self::of_queries(start, len, len) }
    }

    /// Queries of a sequence whose `key_len` keys, without padding, have a place of their own.
    #[inline(always)]
    pub(super) const fn of_queries(query_start: usize, query_len: usize, key_len: usize) -> Self {
        Self { query_start, query_len, key_start: 0, key_len, padded_len: key_len }
    }
}

/// Scale, masks and bias of attention.
#[derive(Clone, Copy, Debug)]
pub struct AttentionOptions<'a> {
    /// Factor of the scores, usually `1 / sqrt(head_dim)`.
    pub scale: f32,
    /// Whether query `i` sees keys `0..i + 1 + key_len - query_len` only.
    pub causal: bool,
    /// Added to the scaled scores.
    pub bias: Option<Bias<'a>>,
    /// The output of a fully masked query, which sees no key or only keys with a score of minus infinity: zeros, or the
    /// mean of all values of the sequence, including hidden ones and padding.
    pub fully_masked: FullyMasked,
    /// The precision of the products, f32 by default. Only [`attention`](super::attention()) has the others.
    pub precision: AttentionPrecision,
}

/// The precision of the two products of [`attention`](super::attention()).
///
/// ```
/// use simdformer_kernels::{
///     AttentionOptions, AttentionPrecision, Exec, HeadsMut, Isa, Qkv, Sequence, attention,
/// };
///
/// let isa = Isa::detect()?;
/// let (tokens, heads, head_dim) = (3, 2, 4);
/// let fused = [0.25; 3 * 3 * 8]; // [tokens, (query, key, value), heads, head_dim]
/// let sequences = [Sequence::packed(0, tokens)];
/// let options =
///     AttentionOptions { precision: AttentionPrecision::Int8, ..AttentionOptions::new(head_dim) };
/// let floats = options.scratch(isa, &sequences, heads, heads, head_dim)?;
/// let (mut scratch, mut out) = (vec![0.0; floats], [0.0; 3 * 8]);
/// attention(
///     Exec::serial(isa),
///     Qkv::fused(&fused, [tokens, heads, head_dim])?,
///     &sequences,
///     &options,
///     HeadsMut::new(&mut out, [tokens, heads, head_dim])?.into(),
///     &mut scratch,
/// )?;
/// assert!(out.iter().all(|x| (x - 0.25).abs() < 1e-6));
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub enum AttentionPrecision {
    /// Products of f32.
    #[default]
    F32,
    /// Queries, keys, weights and values are quantized to bytes within the call, for encoders, prefills and
    /// cross-attention: up to several times faster from about 100 keys on, most on CPUs with int8 instructions, and less
    /// exact. A bias and the output of weights are not supported, and the head size is at most 131,072. Without the
    /// feature `int8` it is an error.
    ///
    /// The bits of an output row depend on its own query, on the keys and values of its sequence (under a causal mask, on
    /// those that the query sees), and on the options. They do not depend on the rest of the batch, on threads, or on the
    /// instruction set.
    ///
    /// Error, for finite operands: let `d = 0.51 / 127`, and for each visible key `j`, less the center,
    /// `shift = scale d (max|k_j| sum|q| + max|q| sum|k_j| + d head_dim max|q| max|k_j|)`, of which `g = exp(the largest) - 1`.
    /// Let `r` be the sum over blocks of `64 / 254 (1 + g)` times the largest weight of the block, where the weights of all keys
    /// add up to 1. Each output is within `2 (g + 0.001 + r) max|v| + d max|v|` of the exact value. This is a bound for the worst
    /// signs of all roundings. For Gaussian queries, keys and values, the error is 1.3 % of the output (root mean square).
    ///
    /// A call uses at most 40 KiB of the stack of each participating thread (AArch64: 72 KiB), in an optimized build.
    ///
    /// A query, key or value that is not finite makes every output NaN that depends on it: a query its row, a key the rows that
    /// see it, a value its column in the rows that see it. If the largest score of a query in a block is beyond 2.9 million, its
    /// row is NaN; it may be NaN, too, if `scale max|q|` is beyond 3e33.
    Int8,
}

impl AttentionOptions<'_> {
    /// No causal mask, no bias, scale `1 / sqrt(head_dim)`. For a `head_dim` of 0 the scale is 1: the scores are 0, and
    /// an infinite scale would turn them into NaN. A call with such heads is accepted and writes nothing, not even
    /// weights.
    pub fn new(head_dim: usize) -> Self {
        Self {
            scale: in_default_mode(|| (1.0 / libm::sqrt(head_dim.max(1) as f64)) as f32),
            causal: false,
            bias: None,
            fully_masked: FullyMasked::Zeros,
            precision: AttentionPrecision::F32,
        }
    }
}

/// An additive bias. Minus infinity hides the key. Lengths hide padding faster than a bias.
///
/// ```
/// use simdformer_kernels::{
///     AttentionOptions, Bias, Exec, HeadsMut, Isa, Qkv, Sequence, attention, attention_scratch,
/// };
///
/// // Two sentences of 3 and 2 tokens share one table of 2 * 3 - 1 distances: a token sees itself and the one before
/// // it.
/// let hidden = f32::NEG_INFINITY;
/// let table = [hidden, 0.0, 0.0, hidden, hidden];
/// let bias = Bias::Relative { data: &table, head_stride: 0, zero: 2 };
///
/// let (isa, shape) = (Isa::best(), [5, 1, 1]);
/// let (same, value) = ([1.0; 5], [2.0, 4.0, 8.0, 16.0, 32.0]);
/// let view = |data| simdformer_kernels::Heads::new(data, shape);
/// let sequences = [Sequence::packed(0, 3), Sequence::packed(3, 2)];
/// let mut scratch = vec![0.0; attention_scratch(isa, &sequences, 1, 1)?];
/// let mut out = [0.0; 5];
/// attention(
///     Exec::serial(isa),
///     Qkv { query: view(&same)?, key: view(&same)?, value: view(&value)? },
///     &sequences,
///     &AttentionOptions { bias: Some(bias), ..AttentionOptions::new(1) },
///     HeadsMut::new(&mut out, shape)?.into(),
///     &mut scratch,
/// )?;
/// assert_eq!(out, [2.0, 3.0, 6.0, 16.0, 24.0]);
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Clone, Copy)]
pub enum Bias<'a> {
    /// `[heads, tokens, keys]`: the bias of query token `t` and key `j` of its sequence is
    /// `data[h * head_stride + t * query_stride + j]`.
    ///
    /// `t` counts all query tokens, `j` the keys of the token's own sequence. So one bias serves several packed
    /// sequences. A mask `[batch, 1, queries, keys]` of another engine is `{ head_stride: 0, query_stride: keys }`.
    Dense {
        /// The values.
        data: &'a [f32],
        /// Elements from one head to the next; 0 if all heads share one bias.
        head_stride: usize,
        /// Elements from one query token to the next.
        query_stride: usize,
    },
    /// `[heads, distances]`, for a bias that depends only on the distance from query to key, as in T5
    /// ([`crate::relative`] fills such a table): the bias of the query at position `i` of its sequence and key `j` is
    /// `data[h * head_stride + zero + j - i]`.
    ///
    /// The position of query `r` of a sequence is `i = key_len - query_len + r`: the last query is at the last key, as
    /// with the causal mask. All sequences share the table. For `T` keys, an encoder reads `2 T - 1` values per head
    /// with `zero: T - 1`. A causal decoder and a decode step read the `T` values up to `zero`.
    ///
    /// If no value that a call can use is minus infinity, the call is about as fast as without a bias.
    Relative {
        /// The values.
        data: &'a [f32],
        /// Elements from one head to the next; 0 if all heads share one bias.
        head_stride: usize,
        /// The index of the value for distance 0 in the values of a head.
        zero: usize,
    },
}

/// The outputs of attention. A [`HeadsMut`] converts into an output with the context only;
/// `AttentionOutput { weights: Some(weights), ..context.into() }` adds the weights.
#[derive(Debug)]
pub struct AttentionOutput<'a> {
    /// `[tokens, heads, head_dim]`, the query's shape: the weighted means of the values.
    pub context: HeadsMut<'a>,
    /// The attention weights of selected heads, for inspection.
    pub weights: Option<AttentionWeights<'a>>,
}

impl<'a> From<HeadsMut<'a>> for AttentionOutput<'a> {
    fn from(context: HeadsMut<'a>) -> Self {
        Self { context, weights: None }
    }
}

/// Buffer for the attention weights of selected heads: the weight of query token `t` and key `j` of its sequence is
/// stored in `data[i * head_stride + t * query_stride + j]` for the `i`-th selected head. Columns from the last key of
/// the sequence up to `keys` are 0. The weights of a query that sees a key add up to 1.
pub struct AttentionWeights<'a> {
    /// Receives the weights.
    pub data: &'a mut [f32],
    /// The selected heads, each once, in output order.
    pub heads: &'a [usize],
    /// Elements from one head to the next; at least `query_stride` times the end of the last sequence.
    pub head_stride: usize,
    /// Elements from one query token to the next; at least `keys`.
    pub query_stride: usize,
    /// Columns written for each query; at least the keys of the longest sequence.
    pub keys: usize,
}

impl fmt::Debug for Bias<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (name, data, head_stride, (other, value)) = match *self {
            Self::Dense { data, head_stride, query_stride } => {
                ("Dense", data, head_stride, ("query_stride", query_stride))
            }
            Self::Relative { data, head_stride, zero } => {
                ("Relative", data, head_stride, ("zero", zero))
            }
        };
        let mut fields = f.debug_struct(name);
        fields.field("data", &data.elements()).field("head_stride", &head_stride);
        fields.field(other, &value).finish()
    }
}

impl_debug!(AttentionWeights { [data], [heads], head_stride, query_stride, keys });

/// Checks that the query fits the output, `out` with its name, and `kv_heads` key heads of `head_dim`.
pub(super) fn check_query(
    query: &Heads<'_>,
    (name, out): (&'static str, &HeadsMut<'_>),
    kv_heads: usize,
    head_dim: usize,
) -> Result<(), Error> {
    out.as_view().check_shape(name, query.shape())?;
    Error::check_size("head size", "query", Expected::Exactly(head_dim), query.head_dim())?;
    if query.heads() == 0 {
        return Ok(());
    }
    Error::check_size("heads", "query", Expected::MultipleOf(kv_heads), query.heads())
}

/// Upper bounds of the sequences of a call.
#[derive(Clone, Copy)]
pub(super) struct Reach {
    pub(super) heads: usize,
    /// One past the last query of a sequence.
    pub(super) end: usize,
    /// Most queries, and most keys, of a sequence.
    pub(super) longest: [usize; 2],
    /// The same of the sequences that have both.
    pub(super) longest_scored: [usize; 2],
    /// Multiply-adds of one of the two products of the call, as [`estimate_work`] returns them.
    pub(super) work: usize,
}

impl Reach {
    /// Floats from the first to the last of `[heads, queries, keys]` with these strides.
    pub(super) fn floats(
        &self,
        heads: usize,
        head_stride: usize,
        query_stride: usize,
        keys: usize,
    ) -> Result<usize, Error> {
        if heads == 0 || self.end == 0 || keys == 0 {
            return Ok(0);
        }
        let heads = (heads - 1).checked_mul(head_stride);
        let queries = (self.end - 1).checked_mul(query_stride);
        heads
            .zip(queries)
            .and_then(|(heads, queries)| heads.checked_add(queries)?.checked_add(keys))
            .ok_or(Error::TooLarge { operand: "a bias or weights" })
    }
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

/// Checks that the query ranges `(query_start, query_len, key_len)` are in order and inside the query, and each in one
/// batch element of each of `views`, which have the shape of the query.
pub(super) fn check_sequences(
    sequences: impl Iterator<Item = (usize, usize, usize)> + Clone,
    query: &Heads<'_>,
    views: &[Heads<'_>],
) -> Result<Reach, Error> {
    let pairs = sequences.clone().map(|(_, queries, keys)| (queries, keys));
    let work = estimate_work(pairs, [query.heads(), query.head_dim()]);
    let mut reach =
        Reach { heads: query.heads(), end: 0, longest: [0; 2], longest_scored: [0; 2], work };
    let tokens = query.tokens();
    for (index, (start, len, keys)) in sequences.enumerate() {
        let (index, after) = (Some(index), Expected::AtLeast(reach.end));
        Error::check_item("query start", "sequence", index, after, start)?;
        Error::check_end("query end", "sequence", index, (start, len), tokens)?;
        for view in core::iter::once(query).chain(views) {
            view.check_within("sequence", index, (start, len))?;
        }
        reach.end = start + len;
        let raise = |most: [usize; 2]| [most[0].max(len), most[1].max(keys)];
        reach.longest = raise(reach.longest);
        if len > 0 && keys > 0 {
            reach.longest_scored = raise(reach.longest_scored);
        }
    }
    Ok(reach)
}

/// Checks that the key ranges are inside `key`, with at most as many valid keys as keys, and each in one batch element of
/// each of `views`, which have the shape of the key.
pub(super) fn check_keys(
    sequences: &[Sequence],
    key: &Heads<'_>,
    views: &[Heads<'_>],
) -> Result<(), Error> {
    for (index, sequence) in sequences.iter().enumerate() {
        let Sequence { key_start, key_len, padded_len, .. } = *sequence;
        let (index, padded) = (Some(index), Expected::AtMost(padded_len));
        Error::check_item("valid keys", "sequence", index, padded, key_len)?;
        Error::check_end("key end", "sequence", index, (key_start, padded_len), key.tokens())?;
        for view in core::iter::once(key).chain(views) {
            view.check_within("sequence", index, (key_start, padded_len))?;
        }
    }
    Ok(())
}

/// Checks that the weights have space for `reach` and that their rows do not overlap. Returns `None` if there is
/// nothing to write; the strides are then not checked.
pub(super) fn check_weights<'a>(
    weights: Option<AttentionWeights<'a>>,
    reach: Reach,
) -> Result<Option<AttentionWeights<'a>>, Error> {
    let Some(weights) = weights else { return Ok(None) };
    let AttentionWeights { heads, head_stride, query_stride, keys, .. } = weights;
    for (index, &head) in heads.iter().enumerate() {
        Error::check_size("head", "weights", Expected::Below(reach.heads), head)?;
        let uses = 1 + heads[..index].iter().filter(|&&other| other == head).count();
        Error::check_item("uses in weights", "head", Some(head), Expected::Exactly(1), uses)?;
    }
    Error::check_size("keys", "weights", Expected::AtLeast(reach.longest[1]), keys)?;
    let expected = reach.floats(heads.len(), head_stride, query_stride, keys)?;
    if expected == 0 {
        return Ok(None);
    }
    Error::check_size("query stride", "weights", Expected::AtLeast(keys), query_stride)?;
    if heads.len() > 1 {
        let head = Expected::AtLeast(reach.end.saturating_mul(query_stride));
        Error::check_size("head stride", "weights", head, head_stride)?;
    }
    Error::check_min_len("weights", expected, weights.data)?;
    Ok(Some(weights))
}

/// Checks that there is one sentence for each query token.
#[cfg(feature = "train")]
pub(super) fn check_sentences(
    dropout: Option<&WeightDropout<'_>>,
    query: &Heads<'_>,
) -> Result<(), Error> {
    let found = dropout.map_or(query.tokens(), WeightDropout::tokens);
    Error::check_size("sentences", "dropout", Expected::Exactly(query.tokens()), found)
}
