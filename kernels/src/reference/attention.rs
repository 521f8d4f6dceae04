//! Attention as in equation 1 of "Attention Is All You Need": all scores of a query, their softmax, and the weighted
//! mean of the values.

use crate::attention::{AttentionOptions, Bias, Heads, Qkv, Sequence};
use crate::error::{Error, Expected};
use crate::softmax::FullyMasked;

/// The number of keys that query `i` of `sequence` attends to, counted from the sequence's first key. Causality is
/// aligned to the end: the last query attends to every valid key, the one before it to one key less.
pub fn visible(sequence: Sequence, causal: bool, i: usize) -> usize {
    if causal {
        let keys = i.saturating_add(1).saturating_add(sequence.key_len);
        keys.saturating_sub(sequence.query_len).min(sequence.key_len)
    } else {
        sequence.key_len
    }
}

/// The bias of the score of query `i` and key `j` of `sequence` in query head `head`: zero without a bias, minus
/// infinity if the bias has no such element.
fn bias(
    sequence: Sequence,
    options: &AttentionOptions<'_>,
    head: usize,
    i: usize,
    j: usize,
) -> f32 {
    let value = match options.bias {
        None => return 0.0,
        Some(Bias::Dense { data, head_stride, query_stride }) => {
            let at = || {
                let token = sequence.query_start.checked_add(i)?;
                let row = token.checked_mul(query_stride)?;
                head.checked_mul(head_stride)?.checked_add(row)?.checked_add(j)
            };
            at().and_then(|at| data.get(at))
        }
        Some(Bias::Relative { data, head_stride, zero }) => {
            let at = || {
                // `j - position`, where the position is `key_len - query_len + i`.
                let ahead = j.checked_add(sequence.query_len)?;
                let behind = sequence.key_len.checked_add(i)?;
                let entry = zero.checked_add(ahead)?.checked_sub(behind)?;
                head.checked_mul(head_stride)?.checked_add(entry)
            };
            at().and_then(|at| data.get(at))
        }
    };
    value.copied().unwrap_or(f32::NEG_INFINITY)
}

/// Whether key `j` is masked for query `i` of `sequence` in query head `head`: it is after the end of the sequence, it
/// is in the query's future, or its bias is minus infinity.
pub fn hidden(
    sequence: Sequence,
    options: &AttentionOptions<'_>,
    head: usize,
    i: usize,
    j: usize,
) -> bool {
    j >= visible(sequence, options.causal, i)
        || bias(sequence, options, head, i, j) == f32::NEG_INFINITY
}

/// `scale * (q . k) + bias` of query `i` and key `j` of `sequence` in query head `head`, or `None` if the key is
/// [`hidden`] from the query or one of them does not exist.
pub fn score(
    query: Heads<'_>,
    key: Heads<'_>,
    sequence: Sequence,
    options: &AttentionOptions<'_>,
    head: usize,
    i: usize,
    j: usize,
) -> Option<f64> {
    if hidden(sequence, options, head, i, j) {
        return None;
    }
    let group = query.heads() / key.heads().max(1);
    let q = query.row(sequence.query_start.checked_add(i)?, head)?;
    let k = key.row(sequence.key_start.checked_add(j)?, head / group.max(1))?;
    let dot: f64 = q.iter().zip(k).map(|(&q, &k)| f64::from(q) * f64::from(k)).sum();
    Some(f64::from(options.scale) * dot + f64::from(bias(sequence, options, head, i, j)))
}

/// Converts the scores in `row` to weights that sum to 1. Keys for which `hidden` is true get 0 whatever their score
/// is. Returns false, with zeros in `row`, when no key remains.
fn softmax(row: &mut [f64], hidden: impl Fn(usize) -> bool) -> bool {
    let mut maximum = f64::NEG_INFINITY;
    for (j, &score) in row.iter().enumerate() {
        if !hidden(j) {
            maximum = maximum.max(score);
        }
    }
    // Without a finite maximum (all keys are masked, or all scores are minus infinity) nothing is subtracted.
    let base = if maximum == f64::NEG_INFINITY { 0.0 } else { maximum };
    let mut sum = 0.0;
    for (j, x) in row.iter_mut().enumerate() {
        *x = if hidden(j) { 0.0 } else { libm::exp(*x - base) };
        sum += *x;
    }
    if sum == 0.0 {
        return false;
    }
    for x in row {
        *x /= sum;
    }
    true
}

/// Checks that a tensor of `shape` is as long as `found`.
pub(super) fn check_product(
    operand: &'static str,
    shape: [usize; 3],
    found: &[f64],
) -> Result<(), Error> {
    let len = shape.into_iter().try_fold(1usize, usize::checked_mul);
    Error::check_len(operand, len.ok_or(Error::TooLarge { operand })?, found)
}

/// Attention of one sequence: `query` is `[tokens, heads, head_dim]`, `key` and `value` are
/// `[tokens, kv_heads, head_dim]`, and query head `h` reads key-value head `h / (heads / kv_heads)`.
///
/// `out` gets `[query_len, heads, head_dim]`, `weights` gets `[heads, query_len, padded_len]`. A masked key has weight
/// 0 and its value is not read. A query without a valid key, or with scores of minus infinity alone, gets zeros, or
/// with [`FullyMasked::Uniform`] the mean of all `padded_len` values.
///
/// # Errors
/// The shapes of the heads disagree, the sequence is outside the tensors, or an output has the wrong length.
pub fn attention(
    qkv: Qkv<'_>,
    sequence: Sequence,
    options: &AttentionOptions<'_>,
    out: &mut [f64],
    weights: &mut [f64],
) -> Result<(), Error> {
    attention_dropped(qkv, sequence, options, &|_, _, _| 1.0, out, weights)
}

/// The factor of the weight of a query head, a query and a key: 1, or with dropout 0 or one over the probability that
/// the weight is not dropped.
pub type Factor<'a> = &'a dyn Fn(usize, usize, usize) -> f64;

/// [`attention`] of one sequence, with the weights multiplied by `factor` before they multiply the values. `weights`
/// gets the weights without the factors. No dropout is applied to a query without a valid key.
///
/// # Errors
/// As [`attention`].
pub fn attention_dropped(
    qkv: Qkv<'_>,
    sequence: Sequence,
    options: &AttentionOptions<'_>,
    factor: Factor<'_>,
    out: &mut [f64],
    weights: &mut [f64],
) -> Result<(), Error> {
    let Qkv { query, key, value } = qkv;
    let (heads, head_dim) = (query.heads(), query.head_dim());
    let Sequence { query_start, query_len, key_start, key_len, padded_len } = sequence;
    if heads > 0 {
        Error::check_size("heads", "query", Expected::MultipleOf(key.heads()), heads)?;
    }
    Error::check_size("head size", "query", Expected::Exactly(key.head_dim()), head_dim)?;
    value.check_shape("value", key.shape())?;
    Error::check_end("query end", "sequence", None, (query_start, query_len), query.tokens())?;
    Error::check_end("key end", "sequence", None, (key_start, padded_len), key.tokens())?;
    Error::check_size("valid keys", "sequence", Expected::AtMost(padded_len), key_len)?;
    check_product("out", [query_len, heads, head_dim], out)?;
    check_product("weights", [heads, query_len, padded_len], weights)?;
    if out.is_empty() && weights.is_empty() {
        return Ok(());
    }

    let group = heads / key.heads().max(1);
    for head in 0..heads {
        for i in 0..query_len {
            let row = &mut weights[(head * query_len + i) * padded_len..][..padded_len];
            for (j, x) in row.iter_mut().enumerate() {
                *x = score(query, key, sequence, options, head, i, j).unwrap_or(f64::NEG_INFINITY);
            }
            let hidden = |j| hidden(sequence, options, head, i, j);
            let any = softmax(row, hidden);
            let uniform = !any && options.fully_masked == FullyMasked::Uniform;
            if uniform {
                row.fill(1.0 / padded_len as f64);
            }
            let mean = &mut out[(i * heads + head) * head_dim..][..head_dim];
            mean.fill(0.0);
            for (j, &weight) in row.iter().enumerate() {
                if !(uniform || any && !hidden(j)) {
                    continue;
                }
                let weight = if uniform { weight } else { weight * factor(head, i, j) };
                let values = value.row(key_start + j, head / group).unwrap_or(&[]);
                for (sum, &v) in mean.iter_mut().zip(values) {
                    *sum += weight * f64::from(v);
                }
            }
        }
    }
    Ok(())
}
