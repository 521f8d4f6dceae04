//! Scaled dot-product attention, `softmax(scale * Q K^T + bias, masked) V`, without ever forming
//! the matrix of scores.
//!
//! Three entries share one inner loop (`flash.rs`):
//!
//! * [`attention`]: queries, keys and values in strided views, any number of sequences laid end to
//!   end or padded; keys are put into panels in the caller's scratch first.
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
mod flash;
mod heads;
mod panels;
mod step;

pub use cache::{Cache, CacheMut, CacheShape};
pub use heads::{Heads, HeadsMut};

use crate::isa::{Isa, Kernel};
use crate::lanes::{Lanes, PanelKernel};
use crate::matrix::SharedMut;
use crate::parallel::Parallelism;
use crate::softmax::FullyMasked;
use core::fmt;
use flash::{Head, QUERY_BLOCK};
use panels::{key_panels, value_row, value_rows, write_keys, write_values};
use step::Past;

/// Multiply-adds below which a second thread costs more than it brings.
const MIN_WORK_TO_FORK: usize = 1 << 18;

/// Chunks of tasks per thread.
const CHUNKS_PER_THREAD: usize = 8;

/// Why attention was refused. Nothing has been written.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum AttentionError {
    /// Query and output have different shapes `[tokens, heads, head_dim]`.
    OutputShape {
        /// Shape of the query.
        expected: [usize; 3],
        /// Shape of the output.
        found: [usize; 3],
    },
    /// Key and value must have the same heads and head size as the cache, or as each other.
    KeyValueShape {
        /// Heads and head size.
        expected: (usize, usize),
        /// Heads and head size.
        found: (usize, usize),
    },
    /// Key and value have different numbers of tokens.
    ValueTokens {
        /// Tokens of the key.
        expected: usize,
        /// Tokens of the value.
        found: usize,
    },
    /// The head sizes of query and key differ.
    HeadDim {
        /// Head size of the key.
        expected: usize,
        /// Head size of the query.
        found: usize,
    },
    /// The query's heads are not a multiple of the key's.
    HeadGroups {
        /// Heads of the query.
        query: usize,
        /// Heads of the key.
        key: usize,
    },
    /// A sequence reaches past the last query.
    QueryRange {
        /// Index of the sequence.
        sequence: usize,
        /// Tokens of the query.
        tokens: usize,
        /// End of the sequence.
        found: usize,
    },
    /// Two sequences claim the same query rows.
    QueryOverlap {
        /// Index of the sequence that starts before its predecessor's end.
        sequence: usize,
    },
    /// A sequence reaches past the last key.
    KeyRange {
        /// Index of the sequence.
        sequence: usize,
        /// Tokens of the key.
        tokens: usize,
        /// End of the sequence.
        found: usize,
    },
    /// A sequence has more valid keys than keys.
    KeyLength {
        /// Index of the sequence.
        sequence: usize,
        /// Keys that exist.
        padded: usize,
        /// Keys said to be valid.
        found: usize,
    },
    /// The scratch is too short.
    Scratch {
        /// Floats needed.
        expected: usize,
        /// Floats given.
        found: usize,
    },
    /// The bias does not cover the queries, the heads or the keys.
    Bias {
        /// Floats that it must reach.
        expected: usize,
        /// Floats in its slice.
        found: usize,
    },
    /// The weights have no room for the queries, the heads or the keys.
    Weights {
        /// Floats needed.
        expected: usize,
        /// Floats given.
        found: usize,
    },
    /// The weights or a key of a head that does not exist were asked for.
    WeightsHead {
        /// Heads of the query.
        heads: usize,
        /// The head asked for.
        found: usize,
    },
    /// The weights of one head were asked for twice.
    WeightsRepeated {
        /// The head.
        found: usize,
    },
    /// The buffer of a cache is too short.
    CacheLength {
        /// Floats needed.
        expected: usize,
        /// Floats given.
        found: usize,
    },
    /// A slot that the cache does not have.
    Slot {
        /// Slots of the cache.
        slots: usize,
        /// The slot asked for.
        found: usize,
    },
    /// A position past the cache's capacity.
    Capacity {
        /// Positions of a slot.
        capacity: usize,
        /// The position after the last one asked for.
        found: usize,
    },
    /// Not one slot and one position, or one length, for each token.
    Places {
        /// Tokens.
        expected: usize,
        /// Slots, positions or lengths given.
        found: usize,
    },
    /// The ancestry table has no room for a row's past.
    Ancestry {
        /// Entries needed.
        expected: usize,
        /// Entries given.
        found: usize,
    },
    /// A size overflows.
    TooLarge,
}

impl fmt::Display for AttentionError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::OutputShape { expected, found } => {
                write!(f, "the output must have the query's shape {expected:?}; found {found:?}")
            }
            Self::KeyValueShape { expected, found } => write!(
                f,
                "keys and values must have {} heads of {}; found {} of {}",
                expected.0, expected.1, found.0, found.1
            ),
            Self::ValueTokens { expected, found } => {
                write!(f, "the value must have the key's {expected} tokens; found {found}")
            }
            Self::HeadDim { expected, found } => {
                write!(f, "the query must have the key's head size {expected}; found {found}")
            }
            Self::HeadGroups { query, key } => {
                write!(f, "{query} query heads are not a multiple of {key} key heads")
            }
            Self::QueryRange { sequence, tokens, found } => write!(
                f,
                "sequence {sequence} ends at query {found}, but there are {tokens} queries"
            ),
            Self::QueryOverlap { sequence } => write!(
                f,
                "sequence {sequence} starts before the end of the one before it: sequences must be in order and apart"
            ),
            Self::KeyRange { sequence, tokens, found } => {
                write!(f, "sequence {sequence} ends at key {found}, but there are {tokens} keys")
            }
            Self::KeyLength { sequence, padded, found } => {
                write!(f, "sequence {sequence} has {padded} keys, but {found} are said to be valid")
            }
            Self::Scratch { expected, found } => {
                write!(f, "attention needs {expected} floats of scratch; found {found}")
            }
            Self::Bias { expected, found } => {
                write!(f, "the bias must reach {expected} floats; its slice has {found}")
            }
            Self::Weights { expected, found } => {
                write!(f, "the weights need {expected} floats; found {found}")
            }
            Self::WeightsHead { heads, found } => {
                write!(f, "head {found} was asked for, but there are {heads} heads")
            }
            Self::WeightsRepeated { found } => {
                write!(f, "weights of head {found} were asked for twice")
            }
            Self::CacheLength { expected, found } => {
                write!(f, "the cache takes {expected} floats; the buffer has {found}")
            }
            Self::Slot { slots, found } => {
                write!(f, "slot {found} was named, but the cache has {slots} slots")
            }
            Self::Capacity { capacity, found } => {
                write!(f, "{found} positions do not fit a slot of {capacity}")
            }
            Self::Places { expected, found } => {
                write!(
                    f,
                    "{expected} tokens need as many slots, positions or lengths; found {found}"
                )
            }
            Self::Ancestry { expected, found } => {
                write!(f, "the ancestry table must have {expected} entries; found {found}")
            }
            Self::TooLarge => f.write_str("a size overflows"),
        }
    }
}

impl core::error::Error for AttentionError {}

/// One sequence of a batch: which rows of the query (and the output) and of the key (and the value)
/// are its own.
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
        Self { query_start: start, query_len: len, key_start: start, key_len: len, padded_len: len }
    }
}

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

/// How to attend.
#[derive(Clone, Copy, Debug)]
pub struct AttentionOptions<'a> {
    /// Multiplies the scores, usually `1 / sqrt(head_dim)`.
    pub scale: f32,
    /// Query `i` sees keys `0..i + 1 + key_len - query_len` only.
    pub causal: bool,
    /// Added to the scaled scores.
    pub bias: Option<Bias<'a>>,
    /// What a query that sees no key gets.
    pub fully_masked: FullyMasked,
}

impl AttentionOptions<'_> {
    /// No mask but the lengths, no bias, scale `1 / sqrt(head_dim)`.
    pub fn new(head_dim: usize) -> Self {
        Self {
            scale: (1.0 / libm::sqrt(head_dim as f64)) as f32,
            causal: false,
            bias: None,
            fully_masked: FullyMasked::Zeros,
        }
    }
}

/// An additive bias: query token `t` and key `j` of its sequence get
/// `data[h * head_stride + t * query_stride + j]`. Minus infinity hides the key.
#[derive(Clone, Copy, Debug)]
pub struct Bias<'a> {
    /// The values.
    pub data: &'a [f32],
    /// Elements from one head to the next; 0 for one bias for all heads.
    pub head_stride: usize,
    /// Elements from one query token to the next.
    pub query_stride: usize,
}

/// Where to put the attention weights of chosen heads: query token `t` and key `j` of its sequence
/// go to `data[i * head_stride + t * query_stride + j]` for the `i`-th chosen head, with zeros for
/// the keys from the sequence's last to `keys`.
#[derive(Debug)]
pub struct Weights<'a> {
    /// Receives the weights.
    pub data: &'a mut [f32],
    /// The heads wanted, each once, in the order of their output.
    pub heads: &'a [usize],
    /// Elements from one head to the next.
    pub head_stride: usize,
    /// Elements from one query token to the next; at least `keys`.
    pub query_stride: usize,
    /// Columns written for each query.
    pub keys: usize,
}

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

/// Panels of keys, and rows of values unless they can be read in place.
fn sequence_scratch(isa: Isa, tokens: usize, heads: usize, head_dim: usize) -> Option<usize> {
    let keys = key_panels(isa.lanes(), tokens, head_dim)?;
    let values = if head_dim.is_multiple_of(isa.lanes()) {
        0
    } else {
        value_rows(isa.lanes(), tokens, head_dim)?
    };
    keys.checked_add(values)?.checked_mul(heads)
}

/// Attention of every sequence: `query` and `out` are `[tokens, heads, head_dim]`, `key` and `value`
/// `[tokens, kv_heads, head_dim]` with `heads` a multiple of `kv_heads` (query head `h` reads
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
///     AttentionOptions, Heads, HeadsMut, Isa, Parallelism, Sequence, attention, attention_scratch,
/// };
///
/// let isa = Isa::detect();
/// let (tokens, heads, head_dim) = (3, 2, 4);
/// let fused = [0.25; 3 * 3 * 8]; // [tokens, (query, key, value), heads, head_dim]
/// let part = |i: usize| Heads::strided(&fused[8 * i..], [tokens, heads, head_dim], 24, 4);
/// let sequences = [Sequence::packed(0, tokens)];
/// let mut scratch = vec![0.0; attention_scratch(isa, &sequences, heads, head_dim)?];
/// let mut out = [0.0; 3 * 8];
/// attention(
///     isa,
///     part(0)?,
///     part(1)?,
///     part(2)?,
///     &sequences,
///     &AttentionOptions { causal: true, ..AttentionOptions::new(head_dim) },
///     HeadsMut::new(&mut out, [tokens, heads, head_dim])?,
///     None,
///     &mut scratch,
///     Parallelism::Serial,
/// )?;
/// assert!(out.iter().all(|x| (x - 0.25).abs() < 1e-6));
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[allow(clippy::too_many_arguments)]
pub fn attention(
    isa: Isa,
    query: Heads<'_>,
    key: Heads<'_>,
    value: Heads<'_>,
    sequences: &[Sequence],
    options: &AttentionOptions<'_>,
    mut out: HeadsMut<'_>,
    weights: Option<Weights<'_>>,
    scratch: &mut [f32],
    parallelism: Parallelism<'_>,
) -> Result<(), AttentionError> {
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

    let in_place = head_dim.is_multiple_of(isa.lanes());
    let row = value_row(isa.lanes(), head_dim);
    let area = SharedMut::new(scratch);
    // Where the panels and rows of a head of a sequence start in the scratch.
    let place = |index: usize, head: usize| {
        let before: usize = sequences[..index]
            .iter()
            .map(|s| sequence_scratch(isa, s.padded_len, kv_heads, head_dim).unwrap_or(0))
            .sum();
        let padded = sequences[index].padded_len;
        let panels = padded.next_multiple_of(isa.lanes()) * head_dim;
        let keys = area.as_ptr().wrapping_add(before + head * panels);
        let values = area.as_ptr().wrapping_add(before + kv_heads * panels + head * padded * row);
        (keys, values)
    };
    let place = &place;

    let padded: usize = sequences.iter().map(|s| s.padded_len).sum();
    let threads = if padded * kv_heads * head_dim < MIN_WORK_TO_FORK {
        Parallelism::Serial
    } else {
        parallelism
    };
    threads.for_each(sequences.len() * kv_heads, &|task| {
        let (index, head) = (task / kv_heads, task % kv_heads);
        let (keys, values) = place(index, head);
        let values = if in_place { core::ptr::null_mut() } else { values };
        isa.dispatch(Prepare { key, value, head, sequence: sequences[index], keys, values });
    });

    let call = Call::new(&query, kv_heads, options, &mut out, weights);
    let work = sequences
        .iter()
        .map(|s| s.query_len.saturating_mul(s.key_len))
        .fold(0usize, usize::saturating_add)
        .saturating_mul(query.heads() * head_dim);
    call.run(
        isa,
        sequences.len(),
        |i| sequences[i].query_len,
        work,
        parallelism,
        &|index, head| {
            let sequence = sequences[index];
            let (keys, values) = place(index, head);
            Source {
                query_start: sequence.query_start,
                query_len: sequence.query_len,
                key_len: sequence.key_len,
                padded_len: sequence.padded_len,
                keys: keys.cast_const(),
                values: if in_place {
                    value.at(sequence.key_start, head)
                } else {
                    values.cast_const()
                },
                value_row: if in_place { value.token_stride() } else { row },
            }
        },
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
    mut out: HeadsMut<'_>,
    weights: Option<Weights<'_>>,
    parallelism: Parallelism<'_>,
) -> Result<(), AttentionError> {
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
                values: cache.values(sequence.slot, head),
                value_row: row,
            }
        },
    );
    Ok(())
}

/// Attention of one query per row over a past that may lie in several slots: row `r` of `query`,
/// `[rows, heads, head_dim]`, sees `lens[r]` keys, of which key `j` is position `j` of slot
/// `ancestry[r * ancestry_stride + j]`.
///
/// The bits are those of [`attention_cached`] on a cache in which the same keys lie in one slot.
///
/// # Errors
/// Shapes, slots, lengths or buffers that do not fit; then nothing is written.
#[allow(clippy::too_many_arguments)]
pub fn attention_step(
    query: Heads<'_>,
    cache: &Cache<'_>,
    lens: &[u32],
    ancestry: &[u32],
    ancestry_stride: usize,
    options: &AttentionOptions<'_>,
    mut out: HeadsMut<'_>,
    parallelism: Parallelism<'_>,
) -> Result<(), AttentionError> {
    let shape = cache.shape();
    let isa = cache.isa();
    check_query(&query, &out, shape.heads, shape.head_dim)?;
    if lens.len() != query.tokens() {
        return Err(AttentionError::Places { expected: query.tokens(), found: lens.len() });
    }
    if options.bias.is_some() {
        return Err(AttentionError::Bias { expected: 0, found: 1 });
    }
    let past = |row: usize| {
        let start = row.checked_mul(ancestry_stride)?;
        ancestry.get(start..start.checked_add(lens[row] as usize)?)
    };
    for row in 0..query.tokens() {
        let Some(slots) = past(row) else {
            let expected = row.saturating_mul(ancestry_stride).saturating_add(lens[row] as usize);
            return Err(AttentionError::Ancestry { expected, found: ancestry.len() });
        };
        check_slot(&shape, 0, slots.len())?;
        if let Some(&found) = slots.iter().find(|&&slot| slot as usize >= shape.slots) {
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

/// Runs `chunk` on ranges that cover `0..tasks`, on several threads when there is work for them.
fn chunked(
    tasks: usize,
    work: usize,
    parallelism: Parallelism<'_>,
    chunk: &(dyn Fn(core::ops::Range<usize>) + Sync),
) {
    let threads = parallelism.threads();
    if tasks == 0 {
        return;
    }
    if threads == 1 || work < MIN_WORK_TO_FORK {
        return chunk(0..tasks);
    }
    let chunks = tasks.min(threads * CHUNKS_PER_THREAD);
    parallelism.for_each(chunks, &|index| chunk(crate::gemm::share(tasks, chunks, index)));
}

/// Where a head's row starts. Strides that were not checked because there is nothing to read may
/// overflow; then the address is not used.
fn offset(head: usize, head_stride: usize, row: usize, row_stride: usize) -> usize {
    head.wrapping_mul(head_stride).wrapping_add(row.wrapping_mul(row_stride))
}

/// Puts the keys of one head of one sequence into panels, and its values into rows.
struct Prepare<'a> {
    key: Heads<'a>,
    value: Heads<'a>,
    head: usize,
    sequence: Sequence,
    keys: *mut f32,
    /// Null when values are read in place.
    values: *mut f32,
}

impl Kernel for Prepare<'_> {
    type Output = ();

    #[inline(always)]
    fn run<S: Lanes>(self, s: S) {
        let Self { key, value, head, sequence, keys, values } = self;
        let start = sequence.key_start;
        // SAFETY: the sequence's tokens exist; the scratch has this head's own place for them.
        unsafe {
            write_keys(s, &key, head, start..start + sequence.key_len, 0, keys);
            if !values.is_null() {
                write_values(s, &value, head, start..start + sequence.padded_len, values);
            }
        }
    }
}

/// Where one key-value head of one sequence is.
struct Source {
    query_start: usize,
    query_len: usize,
    key_len: usize,
    padded_len: usize,
    keys: *const f32,
    values: *const f32,
    value_row: usize,
}

/// What all sequences and heads of one call share, checked.
struct Call<'a> {
    query: Heads<'a>,
    group: usize,
    options: AttentionOptions<'a>,
    out: *mut f32,
    out_token: usize,
    out_head: usize,
    weights: *mut f32,
    weight_heads: &'a [usize],
    weights_head: usize,
    weights_query: usize,
    weights_len: usize,
}

// SAFETY: the pointers are to exclusively borrowed memory of which each task writes its own rows.
unsafe impl Sync for Call<'_> {}

impl<'a> Call<'a> {
    fn new(
        query: &Heads<'a>,
        kv_heads: usize,
        options: &AttentionOptions<'a>,
        out: &mut HeadsMut<'_>,
        weights: Option<Weights<'a>>,
    ) -> Self {
        let mut call = Self {
            query: *query,
            group: query.heads() / kv_heads,
            options: *options,
            out_token: out.token_stride(),
            out_head: out.head_stride(),
            out: out.shared().as_ptr(),
            weights: core::ptr::null_mut(),
            weight_heads: &[],
            weights_head: 0,
            weights_query: 0,
            weights_len: 0,
        };
        if let Some(weights) = weights {
            call.weights = weights.data.as_mut_ptr();
            call.weight_heads = weights.heads;
            call.weights_head = weights.head_stride;
            call.weights_query = weights.query_stride;
            call.weights_len = weights.keys;
        }
        call
    }

    /// Head `head` of the queries from `source.query_start`.
    fn head(&self, source: &Source, head: usize) -> Head {
        let start = source.query_start;
        let (bias, bias_row) = match self.options.bias {
            Some(bias) => {
                let at = offset(head, bias.head_stride, start, bias.query_stride);
                (bias.data.as_ptr().wrapping_add(at), bias.query_stride)
            }
            None => (core::ptr::null(), 0),
        };
        let chosen = self.weight_heads.iter().position(|&wanted| wanted == head);
        let weights = chosen.map_or(core::ptr::null_mut(), |index| {
            self.weights.wrapping_add(offset(index, self.weights_head, start, self.weights_query))
        });
        let (first_limit, limit_step) = if self.options.causal {
            (source.key_len as isize - source.query_len as isize + 1, 1)
        } else {
            (source.key_len as isize, 0)
        };
        Head {
            query: self.query.at(start, head),
            query_row: self.query.token_stride(),
            keys: source.keys,
            values: source.values,
            value_row: source.value_row,
            out: self.out.wrapping_add(start * self.out_token + head * self.out_head),
            out_row: self.out_token,
            head_dim: self.query.head_dim(),
            scale: self.options.scale,
            key_len: source.key_len,
            padded_len: source.padded_len,
            first_limit,
            limit_step,
            bias,
            bias_row,
            fully_masked: self.options.fully_masked,
            weights,
            weights_row: self.weights_query,
            weights_len: self.weights_len,
        }
    }

    /// Attends with every block of queries of every head of every sequence.
    fn run(
        &self,
        isa: Isa,
        sequences: usize,
        query_len: impl Fn(usize) -> usize,
        work: usize,
        parallelism: Parallelism<'_>,
        source: &(dyn Fn(usize, usize) -> Source + Sync),
    ) {
        let longest = (0..sequences).map(query_len).max().unwrap_or(0);
        let blocks = longest.div_ceil(QUERY_BLOCK);
        let heads = self.query.heads();
        chunked(sequences * heads * blocks, work, parallelism, &|range| {
            isa.dispatch(Blocks { call: self, source, heads, blocks, range });
        });
    }
}

/// A range of `(sequence, head, block of queries)`.
struct Blocks<'a> {
    call: &'a Call<'a>,
    source: &'a (dyn Fn(usize, usize) -> Source + Sync),
    heads: usize,
    blocks: usize,
    range: core::ops::Range<usize>,
}

impl Kernel for Blocks<'_> {
    type Output = ();

    #[inline(always)]
    fn run<S: Lanes>(self, s: S) {
        s.with_panels(self);
    }
}

impl PanelKernel for Blocks<'_> {
    type Output = ();

    #[inline(always)]
    fn run<S: Lanes, const NV: usize>(self, s: S) {
        for task in self.range {
            let (pair, block) = (task / self.blocks, task % self.blocks);
            let (index, head) = (pair / self.heads, pair % self.heads);
            let source = (self.source)(index, head / self.call.group);
            let start = block * QUERY_BLOCK;
            if start >= source.query_len {
                continue;
            }
            let count = (source.query_len - start).min(QUERY_BLOCK);
            // SAFETY: the views and ranges were checked; this task alone writes these rows.
            unsafe { self.call.head(&source, head).attend::<S, NV>(s, start, count) };
        }
    }
}

/// A range of `(row, head)` of a decode step.
struct Steps<'a> {
    call: &'a Call<'a>,
    cache: Cache<'a>,
    lens: &'a [u32],
    past: &'a dyn Fn(usize) -> Option<&'a [u32]>,
    range: core::ops::Range<usize>,
}

impl Kernel for Steps<'_> {
    type Output = ();

    #[inline(always)]
    fn run<S: Lanes>(self, s: S) {
        s.with_panels(self);
    }
}

impl PanelKernel for Steps<'_> {
    type Output = ();

    #[inline(always)]
    fn run<S: Lanes, const NV: usize>(self, s: S) {
        let heads = self.call.query.heads();
        for task in self.range {
            let (row, head) = (task / heads, task % heads);
            let source = Source {
                query_start: row,
                query_len: 1,
                key_len: self.lens[row] as usize,
                padded_len: 0,
                keys: core::ptr::null(),
                values: core::ptr::null(),
                value_row: 0,
            };
            let past = Past {
                head: self.call.head(&source, head),
                cache: self.cache,
                kv_head: head / self.call.group,
                slots: (self.past)(row).unwrap_or(&[]),
            };
            // SAFETY: slots and lengths were checked against the cache; this task alone writes
            // this row and head.
            unsafe { past.attend::<S, NV>(s) };
        }
    }
}
