//! The gradients of attention, one score at a time.

use super::attention::{Factor, attention, check_product, hidden, score};
use crate::attention::{AttentionOptions, Heads, Qkv, Sequence};
use crate::error::Error;
use crate::softmax::FullyMasked;

/// The outputs of [`attention_backward`].
#[derive(Debug)]
pub struct Gradients<'a> {
    /// Gradient of the queries of the sequence, `[query_len, heads, head_dim]`.
    pub query: &'a mut [f64],
    /// Gradient of its keys, `[padded_len, kv_heads, head_dim]`.
    pub key: &'a mut [f64],
    /// Gradient of its values, with the shape of that of the keys.
    pub value: &'a mut [f64],
    /// Gradient of the scaled and biased scores, `[heads, query_len, padded_len]`. The gradient of a bias is a sum of
    /// these.
    pub scores: &'a mut [f64],
}

/// Whether query `i` has no valid key with a score above minus infinity in query head `head`.
fn nothing_to_weigh(
    qkv: &Qkv<'_>,
    sequence: Sequence,
    options: &AttentionOptions<'_>,
    head: usize,
    i: usize,
) -> bool {
    let score = |j| score(qkv.query, qkv.key, sequence, options, head, i, j);
    (0..sequence.padded_len).all(|j| score(j).is_none_or(|x| x == f64::NEG_INFINITY))
}

/// The gradients of [`attention_dropped`](super::attention::attention_dropped) of one sequence, from `d_context`, the
/// gradient of its output.
///
/// With weights `P`, factors `Z`, `dP = (dO V^T) Z` and `D = sum over keys of P dP`: `dV = (P Z)^T dO`, `dS = P (dP -
/// D)`, `dQ = scale dS K`, `dK = scale dS^T Q`. Masked pairs of key and query are not read. The weights of a query
/// without a valid key are constant: such a query has no gradient, and with [`FullyMasked::Uniform`] each of the
/// `padded_len` values gets an equal share.
///
/// # Errors
/// As [`attention`], or a gradient has the wrong shape.
pub fn attention_backward(
    qkv: Qkv<'_>,
    sequence: Sequence,
    options: &AttentionOptions<'_>,
    factor: Factor<'_>,
    d_context: Heads<'_>,
    gradients: Gradients<'_>,
) -> Result<(), Error> {
    let Qkv { query, key, value } = qkv;
    let Gradients { query: d_query, key: d_key, value: d_value, scores } = gradients;
    d_context.check_shape("d_context", query.shape())?;
    // The weights are written to the buffer of the scores' gradient; the context is not needed.
    attention(qkv, sequence, options, d_query, scores)?;
    let (heads, kv_heads, head_dim) = (query.heads(), key.heads(), query.head_dim());
    let Sequence { query_start, query_len, key_start, padded_len, .. } = sequence;
    let keys = [padded_len, kv_heads, head_dim];
    check_product("gradients.key", keys, d_key)?;
    check_product("gradients.value", keys, d_value)?;
    d_query.fill(0.0);
    d_key.fill(0.0);
    d_value.fill(0.0);
    let group = heads / kv_heads.max(1);
    let scale = f64::from(options.scale);
    for head in 0..heads {
        let kv_head = head / group;
        let place = |j: usize| (j * kv_heads + kv_head) * head_dim;
        for i in 0..query_len {
            let row = &mut scores[(head * query_len + i) * padded_len..][..padded_len];
            let d_out = d_context.row(query_start + i, head).unwrap_or(&[]);
            if nothing_to_weigh(&qkv, sequence, options, head, i) {
                if options.fully_masked == FullyMasked::Uniform {
                    for j in 0..padded_len {
                        for (sum, &d) in d_value[place(j)..][..head_dim].iter_mut().zip(d_out) {
                            *sum += f64::from(d) / padded_len as f64;
                        }
                    }
                }
                row.fill(0.0);
                continue;
            }
            let d_weight = |j: usize| -> f64 {
                let values = value.row(key_start + j, kv_head).unwrap_or(&[]);
                let product: f64 =
                    d_out.iter().zip(values).map(|(&d, &v)| f64::from(d) * f64::from(v)).sum();
                let factor = factor(head, i, j);
                // A dropped weight is 0 even if the product is NaN.
                if factor == 0.0 { 0.0 } else { product * factor }
            };
            let seen = |j: usize| !hidden(sequence, options, head, i, j);
            let mean: f64 =
                (0..padded_len).filter(|&j| seen(j)).map(|j| row[j] * d_weight(j)).sum();
            let q = query.row(query_start + i, head).unwrap_or(&[]);
            for j in (0..padded_len).filter(|&j| seen(j)) {
                let d_score = row[j] * (d_weight(j) - mean);
                let weight = row[j] * factor(head, i, j);
                let k = key.row(key_start + j, kv_head).unwrap_or(&[]);
                for c in 0..head_dim {
                    d_value[place(j) + c] += weight * f64::from(d_out[c]);
                    d_query[(i * heads + head) * head_dim + c] += scale * d_score * f64::from(k[c]);
                    d_key[place(j) + c] += scale * d_score * f64::from(q[c]);
                }
                row[j] = d_score;
            }
        }
    }
    Ok(())
}
