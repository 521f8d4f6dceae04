//! Checks that shapes, ranges and buffers of a call fit. They run before anything is written.

use super::bias::Reach;
use super::cache::CacheShape;
use super::error::AttentionError;
use super::heads::{Heads, HeadsMut, Qkv};
use super::options::{Sequence, SlotTable, Weights};
#[cfg(feature = "train")]
use crate::dropout::WeightDropout;

/// Checks that the key and the value have the same shape.
pub(super) fn key_value(qkv: &Qkv<'_>) -> Result<(), AttentionError> {
    let Qkv { key, value, .. } = qkv;
    let expected = (key.heads(), key.head_dim());
    let found = (value.heads(), value.head_dim());
    if found != expected {
        return Err(AttentionError::KeyValueShape { expected, found });
    }
    if key.tokens() != value.tokens() {
        return Err(AttentionError::ValueTokens { expected: key.tokens(), found: value.tokens() });
    }
    Ok(())
}

/// Checks that the query fits the output and `kv_heads` key heads of `head_dim`.
pub(super) fn query(
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

/// Checks that the query ranges `(query_start, query_len, key_len)` are in order and inside the query.
pub(super) fn sequences(
    sequences: impl Iterator<Item = (usize, usize, usize)>,
    query: &Heads<'_>,
) -> Result<Reach, AttentionError> {
    let mut reach =
        Reach { heads: query.heads(), queries: 0, keys: 0, max_queries: 0, max_keys: 0 };
    let tokens = query.tokens();
    for (index, (start, len, keys)) in sequences.enumerate() {
        if start < reach.queries {
            return Err(AttentionError::QueryOverlap { sequence: index });
        }
        reach.queries = start.saturating_add(len);
        if reach.queries > tokens {
            let found = reach.queries;
            return Err(AttentionError::QueryRange { sequence: index, tokens, found });
        }
        reach.keys = reach.keys.max(keys);
        if len > 0 && keys > 0 {
            reach.max_queries = reach.max_queries.max(len);
            reach.max_keys = reach.max_keys.max(keys);
        }
    }
    Ok(reach)
}

/// Checks that the key ranges are inside `tokens`, with at most as many valid keys as keys.
pub(super) fn keys(sequences: &[Sequence], tokens: usize) -> Result<(), AttentionError> {
    for (index, sequence) in sequences.iter().enumerate() {
        let Sequence { key_start, key_len, padded_len, .. } = *sequence;
        if key_len > padded_len {
            let found = key_len;
            return Err(AttentionError::KeyLength { sequence: index, padded: padded_len, found });
        }
        let found = key_start.saturating_add(padded_len);
        if found > tokens {
            return Err(AttentionError::KeyRange { sequence: index, tokens, found });
        }
    }
    Ok(())
}

/// Checks that the weights have space for `reach` and that their rows do not overlap. Returns `None` if there is
/// nothing to write; the strides are then not checked.
pub(super) fn weights<'a>(
    weights: Option<Weights<'a>>,
    reach: Reach,
) -> Result<Option<Weights<'a>>, AttentionError> {
    let Some(weights) = weights else { return Ok(None) };
    let Weights { heads, head_stride, query_stride, keys, .. } = weights;
    if let Some(&found) = heads.iter().find(|&&head| head >= reach.heads) {
        return Err(AttentionError::WeightsHead { heads: reach.heads, found });
    }
    for (index, &found) in heads.iter().enumerate() {
        if heads[..index].contains(&found) {
            return Err(AttentionError::WeightsRepeated { found });
        }
    }
    if keys < reach.keys {
        return Err(AttentionError::WeightsKeys { expected: reach.keys, found: keys });
    }
    let expected = reach.floats(heads.len(), head_stride, query_stride, keys)?;
    if expected == 0 {
        return Ok(None);
    }
    if query_stride < keys {
        return Err(AttentionError::WeightsRows { expected: keys, found: query_stride });
    }
    let head = reach.queries.saturating_mul(query_stride);
    if heads.len() > 1 && head_stride < head {
        return Err(AttentionError::WeightsHeads { expected: head, found: head_stride });
    }
    if weights.data.len() < expected {
        return Err(AttentionError::Weights { expected, found: weights.data.len() });
    }
    Ok(Some(weights))
}

/// Checks that there is a maximum and a sum for each query token and head.
pub(super) fn sums(sums: &[f32], query: &Heads<'_>) -> Result<(), AttentionError> {
    let expected = query
        .tokens()
        .checked_mul(query.heads())
        .and_then(|rows| rows.checked_mul(2))
        .ok_or(AttentionError::TooLarge)?;
    if sums.len() != expected {
        return Err(AttentionError::Sums { expected, found: sums.len() });
    }
    Ok(())
}

/// Checks that no two sequences share a key, padding included.
#[cfg(feature = "train")]
pub(super) fn disjoint_keys(sequences: &[Sequence]) -> Result<(), AttentionError> {
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
            if let Some(found) = sequences[..index].iter().position(shares) {
                return Err(AttentionError::KeyOverlap { sequence: index, found });
            }
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
) -> Result<(), AttentionError> {
    match dropout.map(WeightDropout::tokens) {
        Some(found) if found != query.tokens() => {
            Err(AttentionError::Sentences { expected: query.tokens(), found })
        }
        _ => Ok(()),
    }
}

/// Checks that a gradient has the shape of its tensor.
#[cfg(feature = "train")]
pub(super) fn gradient(of: &Heads<'_>, gradient: &Heads<'_>) -> Result<(), AttentionError> {
    let expected = [of.tokens(), of.heads(), of.head_dim()];
    let found = [gradient.tokens(), gradient.heads(), gradient.head_dim()];
    if expected != found {
        return Err(AttentionError::GradientShape { expected, found });
    }
    Ok(())
}

/// Checks that the cache has the slot, with at least `positions` positions.
pub(super) fn slot(
    shape: &CacheShape,
    slot: usize,
    positions: usize,
) -> Result<(), AttentionError> {
    if slot >= shape.slots {
        return Err(AttentionError::Slot { slots: shape.slots, found: slot });
    }
    if positions > shape.capacity {
        return Err(AttentionError::Capacity { capacity: shape.capacity, found: positions });
    }
    Ok(())
}

/// Checks that each of `rows` rows has a slot for each of its keys, and that the cache has these slots and positions.
pub(super) fn slot_table(
    slot_table: &SlotTable<'_>,
    rows: usize,
    shape: &CacheShape,
) -> Result<(), AttentionError> {
    let &SlotTable { lens, slots, stride } = slot_table;
    if lens.len() != rows {
        return Err(AttentionError::Places { expected: rows, found: lens.len() });
    }
    for (row, &len) in lens.iter().enumerate() {
        let Some(row_slots) = slot_table.row_slots(row) else {
            let expected = row.saturating_mul(stride).saturating_add(len as usize);
            return Err(AttentionError::SlotTable { expected, found: slots.len() });
        };
        slot(shape, 0, row_slots.len())?;
        if let Some(&found) = row_slots.iter().find(|&&slot| slot as usize >= shape.slots) {
            return Err(AttentionError::Slot { slots: shape.slots, found: found as usize });
        }
    }
    Ok(())
}
