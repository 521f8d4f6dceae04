//! Checks that shapes, ranges and buffers of a call fit. They run before anything is written.

use super::bias::Reach;
use super::head_views::{Heads, HeadsMut};
use super::options::{AttentionWeights, Sequence};
use super::tasks::estimate_work;
#[cfg(feature = "train")]
use crate::dropout::WeightDropout;
use crate::error::{Error, Expected};

/// Checks that the query fits the output, `out` with its name, and `kv_heads` key heads of `head_dim`.
pub(super) fn query(
    query: &Heads<'_>,
    (name, out): (&'static str, &HeadsMut<'_>),
    kv_heads: usize,
    head_dim: usize,
) -> Result<(), Error> {
    out.read().check_shape(name, query.shape())?;
    Error::check_size("head size", "query", Expected::Exactly(head_dim), query.head_dim())?;
    if query.heads() == 0 {
        return Ok(());
    }
    Error::check_size("heads", "query", Expected::MultipleOf(kv_heads), query.heads())
}

/// Checks that the query ranges `(query_start, query_len, key_len)` are in order and inside the query, and each in one
/// batch element of each of `views`, which have the shape of the query.
pub(super) fn sequences(
    sequences: impl Iterator<Item = (usize, usize, usize)> + Clone,
    query: &Heads<'_>,
    views: &[Heads<'_>],
) -> Result<Reach, Error> {
    let pairs = sequences.clone().map(|(_, queries, keys)| (queries, keys));
    let mut reach = Reach {
        heads: query.heads(),
        queries: 0,
        keys: 0,
        max_queries: 0,
        max_keys: 0,
        longest: 0,
        work: estimate_work(pairs, [query.heads(), query.head_dim()]),
    };
    let tokens = query.tokens();
    for (index, (start, len, keys)) in sequences.enumerate() {
        let (index, after) = (Some(index), Expected::AtLeast(reach.queries));
        Error::check_item("query start", "sequence", index, after, start)?;
        Error::check_end("query end", "sequence", index, (start, len), tokens)?;
        for view in core::iter::once(query).chain(views) {
            view.check_within("sequence", index, (start, len))?;
        }
        reach.queries = start + len;
        reach.longest = reach.longest.max(len);
        reach.keys = reach.keys.max(keys);
        if len > 0 && keys > 0 {
            reach.max_queries = reach.max_queries.max(len);
            reach.max_keys = reach.max_keys.max(keys);
        }
    }
    Ok(reach)
}

/// Checks that the key ranges are inside `key`, with at most as many valid keys as keys, and each in one batch element of
/// each of `views`, which have the shape of the key.
pub(super) fn keys(
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
pub(super) fn weights<'a>(
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
    Error::check_size("keys", "weights", Expected::AtLeast(reach.keys), keys)?;
    let expected = reach.floats(heads.len(), head_stride, query_stride, keys)?;
    if expected == 0 {
        return Ok(None);
    }
    Error::check_size("query stride", "weights", Expected::AtLeast(keys), query_stride)?;
    if heads.len() > 1 {
        let head = Expected::AtLeast(reach.queries.saturating_mul(query_stride));
        Error::check_size("head stride", "weights", head, head_stride)?;
    }
    Error::check_min_len("weights", expected, weights.data)?;
    Ok(Some(weights))
}

/// Checks that there is a maximum and a sum for each query token and head.
pub(super) fn sums(sums: &[f32], query: &Heads<'_>) -> Result<(), Error> {
    let expected = query
        .tokens()
        .checked_mul(query.heads())
        .and_then(|rows| rows.checked_mul(2))
        .ok_or(Error::TooLarge { operand: "sums" })?;
    Error::check_len("sums", expected, sums)
}

/// Checks that no two sequences share a key, padding included.
#[cfg(feature = "train")]
pub(super) fn disjoint_keys(sequences: &[Sequence]) -> Result<(), Error> {
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

/// Checks that there is one sentence for each query token.
#[cfg(feature = "train")]
pub(super) fn sentences(
    dropout: Option<&WeightDropout<'_>>,
    query: &Heads<'_>,
) -> Result<(), Error> {
    let found = dropout.map_or(query.tokens(), WeightDropout::tokens);
    Error::check_size("sentences", "dropout", Expected::Exactly(query.tokens()), found)
}
