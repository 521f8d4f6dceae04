//! The oracle of the gradient of attention compared with central differences of the oracle of attention.

use crate::support::batch::{Batch, OwnedBias, with_relative_bias};
use crate::support::*;
use simdformer_kernels::reference::attention::{Factor, attention_dropped};
use simdformer_kernels::reference::attention_backward::{Gradients, attention_backward};
use simdformer_kernels::{FullyMasked, Qkv, Sequence};

/// The gradients that the oracle gives for the only sequence of a batch.
struct Exact {
    query: Vec<f64>,
    key: Vec<f64>,
    value: Vec<f64>,
    scores: Vec<f64>,
}

/// Factors as dropout could have them: every third weight is dropped.
fn dropped(head: usize, i: usize, j: usize) -> f64 {
    if (head + 2 * i + j).is_multiple_of(3) { 0.0 } else { 1.5 }
}

fn none(_: usize, _: usize, _: usize) -> f64 {
    1.0
}

fn gradients(batch: &Batch, factor: Factor<'_>, d_context: &[f32]) -> Exact {
    let sequence = batch.sequences[0];
    let rows = sequence.query_len * batch.heads();
    let keys = sequence.padded_len * batch.kv_heads() * batch.head_dim();
    let mut exact = Exact {
        query: vec![f64::NAN; rows * batch.head_dim()],
        key: vec![f64::NAN; keys],
        value: vec![f64::NAN; keys],
        scores: vec![f64::NAN; rows * sequence.padded_len],
    };
    let Exact { query, key, value, scores } = &mut exact;
    attention_backward(
        Qkv { query: batch.query.view(), key: batch.key.view(), value: batch.value.view() },
        sequence,
        &batch.options(),
        factor,
        view_heads(d_context, batch.query.shape),
        Gradients { query, key, value, scores },
    )
    .expect("a batch that fits");
    exact
}

/// The sum of `context * d_context`.
fn loss(batch: &Batch, factor: Factor<'_>, d_context: &[f32]) -> f64 {
    let sequence = batch.sequences[0];
    let rows = sequence.query_len * batch.heads();
    let mut out = vec![f64::NAN; rows * batch.head_dim()];
    let mut weights = vec![f64::NAN; rows * sequence.padded_len];
    let qkv = Qkv { query: batch.query.view(), key: batch.key.view(), value: batch.value.view() };
    attention_dropped(qkv, sequence, &batch.options(), factor, &mut out, &mut weights)
        .expect("a batch that fits");
    out.iter().zip(d_context).map(|(&o, &d)| o * f64::from(d)).sum()
}

/// The derivative of the loss by one float of the batch, from two central differences whose steps are exact
/// in f32. The remaining error is of fourth order.
fn difference(
    batch: &Batch,
    factor: Factor<'_>,
    d_context: &[f32],
    at: impl Fn(&mut Batch) -> &mut f32,
) -> f64 {
    let central = |step: f32| {
        let moved = |step: f32| {
            let mut batch = batch.clone();
            *at(&mut batch) += step;
            loss(&batch, factor, d_context)
        };
        (moved(step) - moved(-step)) / (2.0 * f64::from(step))
    };
    let (far, near) = (central(1.0 / 128.0), central(1.0 / 256.0));
    near + (near - far) / 3.0
}

fn close(found: f64, exact: f64, what: &str) {
    assert!((found - exact).abs() <= 1e-6 * exact.abs().max(0.1), "{what}: {found}, {exact}");
}

/// One sequence whose floats have so few bits that adding a step is exact.
fn batch(lens: (usize, usize, usize), heads: [usize; 3], causal: bool, seed: u64) -> Batch {
    let mut batch = Batch::new(&[lens], heads, [0, 0, 0], seed);
    let mut random = Random::new(seed);
    for tensor in [&mut batch.query, &mut batch.key, &mut batch.value] {
        let tokens = tensor.shape[0];
        tensor.fill(0..tokens, || random.integer(64) / 64.0);
    }
    batch.causal = causal;
    batch.scale = 0.75;
    batch
}

fn check(batch: &Batch, what: &str) {
    check_under(batch, &none, what);
    check_under(batch, &dropped, &format!("{what}, dropped"));
}

fn check_under(batch: &Batch, factor: Factor<'_>, what: &str) {
    let mut random = Random::new(3);
    let d_context: Vec<f32> = random.values(batch.query.data.len());
    let exact = gradients(batch, factor, &d_context);
    for (at, &expected) in exact.query.iter().enumerate() {
        let found = difference(batch, factor, &d_context, |batch| &mut batch.query.data[at]);
        close(found, expected, &format!("{what}, query {at}"));
    }
    for at in 0..exact.key.len() {
        let found = difference(batch, factor, &d_context, |batch| &mut batch.key.data[at]);
        close(found, exact.key[at], &format!("{what}, key {at}"));
        let found = difference(batch, factor, &d_context, |batch| &mut batch.value.data[at]);
        close(found, exact.value[at], &format!("{what}, value {at}"));
    }
    let Some(bias) = &batch.bias else { return };
    let Sequence { query_len, key_len, padded_len, .. } = batch.sequences[0];
    for at in 0..bias.data.len() {
        if !bias.data[at].is_finite() {
            continue;
        }
        // All elements that share this value.
        let mut expected = 0.0;
        for head in 0..batch.heads() {
            for i in 0..query_len {
                for j in 0..key_len {
                    let place = match bias.zero {
                        Some(zero) => {
                            (head * bias.head_stride + zero + j + query_len) - (key_len + i)
                        }
                        None => head * bias.head_stride + i * bias.query_stride + j,
                    };
                    if place == at {
                        expected += exact.scores[(head * query_len + i) * padded_len + j];
                    }
                }
            }
        }
        let found = difference(batch, factor, &d_context, |batch| {
            &mut batch.bias.as_mut().expect("the bias").data[at]
        });
        close(found, expected, &format!("{what}, bias {at}"));
    }
}

#[test]
fn the_oracle_is_the_derivative_by_every_input() {
    for (lens, heads) in [
        ((3, 3, 0), [1, 1, 2]),
        ((2, 4, 1), [2, 2, 3]),
        ((4, 2, 0), [4, 2, 1]),
        ((1, 1, 2), [3, 1, 2]),
    ] {
        for causal in [false, true] {
            let plain = batch(lens, heads, causal, 7);
            check(&plain, &format!("{lens:?}, causal {causal}"));
            let mut uniform = plain.clone();
            uniform.fully_masked = FullyMasked::Uniform;
            check(&uniform, &format!("{lens:?}, causal {causal}, uniform"));
            let mut random = Random::new(9);
            let relative = with_relative_bias(plain.clone(), heads[0] == 3, |_, distance| {
                if distance == -1 { f32::NEG_INFINITY } else { random.integer(32) / 32.0 }
            });
            check(&relative, &format!("{lens:?}, causal {causal}, relative"));
            let keys = lens.1;
            let mut random = Random::new(10);
            let data = (0..heads[0] * lens.0 * keys).map(|_| random.integer(32) / 32.0).collect();
            let mut dense = plain;
            dense.bias = Some(OwnedBias::dense(data, lens.0 * keys, keys));
            check(&dense, &format!("{lens:?}, causal {causal}, dense"));
        }
    }
}
