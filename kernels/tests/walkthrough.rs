//! The published walkthrough of a small encoder-decoder, computed by the kernels. The printed queries, keys
//! and masks must give the printed scores, weights and context, and the masks of a batch must follow from
//! lengths and causality. `tests/golden/walkthrough/README.md` describes the files.

use crate::support::batch::{Batch, OwnedBias};
use crate::support::gemm::Packed;
use crate::support::*;
use serde_json::Value;
use simdformer_kernels::{
    AttentionOptions, Epilogue, FullyMasked, Heads, Isa, Matrix, Sequence, reference,
};

fn trace() -> Value {
    serde_json::from_str(include_str!("../../tests/golden/walkthrough/navigate_trace.json"))
        .expect("valid JSON")
}

fn masks() -> Value {
    serde_json::from_str(include_str!("../../tests/golden/walkthrough/masks.json"))
        .expect("valid JSON")
}

/// All numbers of a nested array in order; `true` counts as 1.
fn flat(value: &Value) -> Vec<f64> {
    match value {
        Value::Array(items) => items.iter().flat_map(flat).collect(),
        Value::Bool(x) => vec![f64::from(u8::from(*x))],
        other => vec![other.as_f64().expect("a number")],
    }
}

fn size(value: &Value) -> usize {
    value.as_array().expect("an array").len()
}

/// One kind of attention of one sentence; every tensor is `[heads, tokens, ...]`.
struct Printed {
    query: Tensor,
    key: Tensor,
    value: Tensor,
    /// `[queries][keys]`, true if the query sees the key.
    mask: Vec<bool>,
    scores: Vec<f64>,
    weights: Vec<f64>,
    context: Vec<f64>,
    /// The weights after dropout, divided by the probability of being kept.
    kept: Vec<f64>,
}

impl Printed {
    fn read(attention: &Value, sentence: usize) -> Self {
        let at = |name: &str| &attention[name][sentence];
        let tensor = |name: &str| {
            let printed = at(name);
            let shape = [size(&printed[0]), size(printed), size(&printed[0][0])];
            let mut numbers = flat(printed).into_iter();
            let mut tensor = Tensor::new(shape, 0);
            for head in 0..shape[1] {
                for token in 0..shape[0] {
                    for x in tensor.row_mut(token, head) {
                        *x = numbers.next().expect("as many numbers as the shape says") as f32;
                    }
                }
            }
            tensor
        };
        let (query, key, value) = (tensor("query"), tensor("key"), tensor("value"));
        // One row of the mask may be for all queries.
        let rows: Vec<Vec<f64>> =
            at("mask")[0].as_array().expect("rows").iter().map(flat).collect();
        let mask = (0..query.shape[0])
            .flat_map(|i| rows[i.min(rows.len() - 1)].iter().map(|&x| x != 0.0))
            .collect();
        let p = attention["dropout_p"].as_f64().expect("a probability");
        let kept = flat(at("dropout_keep")).iter().map(|keep| keep / (1.0 - p)).collect();
        let (scores, weights, context) =
            (flat(at("scores")), flat(at("weights")), flat(at("context")));
        Self { query, key, value, mask, scores, weights, context, kept }
    }

    fn keys(&self) -> usize {
        self.key.shape[0]
    }

    fn sees(&self, i: usize, j: usize) -> bool {
        self.mask[i * self.keys() + j]
    }

    /// The mask as sequences: runs of queries that see the same number of keys, or one more key each.
    fn by_length(&self, causal: bool) -> Batch {
        let mut batch = self.batch();
        batch.causal = causal;
        let (queries, keys) = (self.query.shape[0], self.keys());
        let seen: Vec<usize> =
            (0..queries).map(|i| (0..keys).filter(|&j| self.sees(i, j)).count()).collect();
        let step = usize::from(causal);
        let mut start = 0;
        while start < queries {
            let mut end = start + 1;
            while end < queries && seen[end] == seen[end - 1] + step {
                end += 1;
            }
            batch.sequences.push(Sequence {
                query_start: start,
                query_len: end - start,
                key_start: 0,
                key_len: seen[end - 1],
                padded_len: keys,
            });
            start = end;
        }
        batch
    }

    /// The mask as a bias.
    fn by_bias(&self) -> Batch {
        let mut batch = self.batch();
        let (queries, keys) = (self.query.shape[0], self.keys());
        batch.sequences.push(Sequence { query_len: queries, ..Sequence::packed(0, keys) });
        let data = self.mask.iter().map(|&see| if see { 0.0 } else { f32::NEG_INFINITY }).collect();
        batch.bias = Some(OwnedBias::dense(data, 0, keys));
        batch
    }

    fn batch(&self) -> Batch {
        let mut batch = Batch::new(&[], self.query.shape, [0, 0, 0], 0);
        batch.key = self.key.clone();
        batch.value = self.value.clone();
        batch.query = self.query.clone();
        batch.weight_heads = (0..self.query.shape[1]).collect();
        batch
    }
}

fn close(found: f64, printed: f64, tolerance: f64, what: &str) {
    let error = (found - printed).abs();
    assert!(error <= tolerance, "{what}: {found}, printed {printed}");
}

/// `a`, `[rows, depth]`, times `b`, `[depth, columns]`, by the kernel.
fn product(isa: Isa, a: Matrix<'_>, b: Matrix<'_>, scale: f32) -> Vec<f32> {
    let epilogue = Epilogue { scale, ..Epilogue::default() };
    Packed::new(isa, b).times(a, &epilogue, SERIAL)
}

/// The tokens of one head as rows.
fn rows(tensor: &Tensor, head: usize) -> Matrix<'_> {
    let [tokens, _, head_dim] = tensor.shape;
    let data = &tensor.data[tensor.start(0, head)..];
    Matrix::strided(data, tokens, head_dim, tensor.token_stride, 1).expect("inside the tensor")
}

#[test]
fn printed_scores_weights_and_context() {
    let trace = trace();
    let mut compared = 0;
    for (name, causal) in [
        ("encoder_self_attention", false),
        ("decoder_self_attention", true),
        ("cross_attention", false),
    ] {
        for sentence in 0..2 {
            let printed = Printed::read(&trace[name], sentence);
            let [queries, heads, head_dim] = printed.query.shape;
            let keys = printed.keys();
            let options = AttentionOptions::new(head_dim);
            let everything = Sequence { query_len: queries, ..Sequence::packed(0, keys) };
            for isa in all_isas() {
                let by_length = printed.by_length(causal).attention(isa, SERIAL);
                let by_bias = printed.by_bias().attention(isa, SERIAL);
                for head in 0..heads {
                    let what = |i, j| format!("{isa}, {name} {sentence}, head {head}, {i} to {j}");
                    // Scores of the oracle, and of a GEMM that computes Q K^T.
                    let (q, k) = (rows(&printed.query, head), rows(&printed.key, head));
                    let scores = product(isa, q, k.transposed(), options.scale);
                    let mut dropped = vec![0.0f32; queries * keys];
                    for i in 0..queries {
                        for j in 0..keys {
                            let at = (head * queries + i) * keys + j;
                            let (query, key) = (printed.query.view(), printed.key.view());
                            let score = reference::attention::score(
                                query, key, everything, &options, head, i, j,
                            );
                            let score = score.expect("nothing is masked");
                            close(score, printed.scores[at], 3e-4, &what(i, j));
                            let score = f64::from(scores[i * keys + j]);
                            close(score, printed.scores[at], 3e-4, &what(i, j));
                            for output in [&by_length, &by_bias] {
                                let weight = output.weights(head, i)[j];
                                close(f64::from(weight), printed.weights[at], 2e-4, &what(i, j));
                                assert_eq!(weight == 0.0, !printed.sees(i, j), "{}", what(i, j));
                            }
                            dropped[i * keys + j] =
                                by_length.weights(head, i)[j] * printed.kept[at] as f32;
                            compared += 1;
                        }
                    }
                    // The printed context was computed in training, with dropout of the
                    // weights.
                    let dropped = view_matrix(&dropped, queries, keys);
                    let context = product(isa, dropped, rows(&printed.value, head), 1.0);
                    for i in 0..queries {
                        for c in 0..head_dim {
                            let at = (head * queries + i) * head_dim + c;
                            let found = f64::from(context[i * head_dim + c]);
                            close(found, printed.context[at], 5e-4, &what(i, c));
                        }
                    }
                }
                // Without dropout the output of flash attention is the weights times the
                // values.
                for output in [&by_length, &by_bias] {
                    for i in 0..queries {
                        for head in 0..heads {
                            for c in 0..head_dim {
                                let value = |j| f64::from(printed.value.row(j, head)[c]);
                                let weight = |j| f64::from(output.weights(head, i)[j]);
                                let sum: f64 = (0..keys).map(|j| weight(j) * value(j)).sum();
                                close(f64::from(output.out.row(i, head)[c]), sum, 1e-6, name);
                            }
                        }
                    }
                }
            }
        }
    }
    // 9 + 25 + 15 pairs, 3 heads, 2 sentences.
    assert_eq!(compared, (9 + 25 + 15) * 3 * 2 * all_isas().len());
}

/// Four tokens, one head, its weights, and no sequence.
fn four_tokens(head_dim: usize, seed: u64) -> Batch {
    let mut batch = Batch::new(&[], [1, 1, head_dim], [0, 0, 0], 0);
    let mut random = Random::new(seed);
    for tensor in [&mut batch.query, &mut batch.key, &mut batch.value] {
        *tensor = Tensor::filled([4, 1, head_dim], 0, &mut random);
    }
    batch.weight_heads = vec![0];
    batch
}

/// Lengths and causality give exactly the three masks of the batch.
#[test]
fn lengths_give_the_three_masks() {
    let masks = masks();
    let lengths =
        |name: &str| -> Vec<usize> { flat(&masks[name]).iter().map(|&n| n as usize).collect() };
    let (source, target) = (lengths("source_lengths"), lengths("target_lengths"));
    for (name, queries, keys, causal) in [
        ("encoder_self_attention_masked", &source, &source, false),
        ("cross_attention_masked", &target, &source, false),
        ("decoder_self_attention_masked", &target, &target, true),
    ] {
        for sentence in 0..2 {
            let (query_len, key_len) = (queries[sentence], keys[sentence]);
            let mut batch = four_tokens(3, 1);
            batch.causal = causal;
            // A padded query sees no key.
            batch.sequences = vec![
                Sequence { query_len, key_len, padded_len: 4, ..Sequence::default() },
                Sequence {
                    query_start: query_len,
                    query_len: 4 - query_len,
                    padded_len: 4,
                    ..Sequence::default()
                },
            ];
            let masked = flat(&masks[name][sentence]);
            for isa in all_isas() {
                let output = batch.attention(isa, SERIAL);
                for i in 0..4 {
                    for j in 0..4 {
                        assert_eq!(
                            output.weights(0, i)[j] == 0.0,
                            masked[i * 4 + j] != 0.0,
                            "{isa}, {name}, sentence {sentence}: {i} to {j}"
                        );
                    }
                }
            }
        }
    }
}

/// The masked softmax of the textbook example, in which a fully masked row is uniform.
#[test]
fn the_worked_softmax() {
    let masks = masks();
    let worked = &masks["worked_softmax"];
    let mask = &masks[worked["mask"].as_str().expect("the name of a mask")];
    let tolerance = worked["tolerance"].as_f64().expect("a number");
    for sentence in 0..2 {
        let scores = flat(&worked["scores"][sentence]);
        let expected = flat(&worked["weights"][sentence]);
        let masked = flat(&mask[sentence]);
        // With queries of zeros the bias is the score.
        let mut batch = four_tokens(2, 2);
        batch.query.fill(0..4, || 0.0);
        batch.fully_masked = FullyMasked::Uniform;
        let all = Sequence { query_len: 4, key_len: 4, padded_len: 4, ..Sequence::default() };
        let bias = |mask: bool| {
            let scores = scores.iter().zip(&masked);
            let masked = |(&x, &m)| if mask && m != 0.0 { f32::NEG_INFINITY } else { x as f32 };
            OwnedBias::dense(scores.map(masked).collect(), 0, 4)
        };
        // Masked by the bias, and masked by lengths with one sequence per row.
        let by_bias = Batch { sequences: vec![all], bias: Some(bias(true)), ..batch.clone() };
        let by_length = Batch {
            sequences: (0..4)
                .map(|i| Sequence {
                    query_start: i,
                    query_len: 1,
                    key_len: masked[i * 4..][..4].iter().filter(|&&m| m == 0.0).count(),
                    ..all
                })
                .collect(),
            bias: Some(bias(false)),
            ..batch
        };
        for batch in [by_bias, by_length] {
            let exact = batch.exact();
            for isa in all_isas() {
                let output = batch.attention(isa, SERIAL);
                batch.check(&output, &exact, "the worked softmax");
                for i in 0..4 {
                    for j in 0..4 {
                        let found = f64::from(output.weights(0, i)[j]);
                        close(found, expected[i * 4 + j], tolerance, &format!("{isa}, {i}, {j}"));
                    }
                }
            }
        }
    }
}

/// `Q = W_q X` and `Y = V A'`, four columns each, printed column by column.
#[test]
fn the_worked_products() {
    let masks = masks();
    let numbers = |value: &Value| -> Vec<f32> { flat(value).iter().map(|&x| x as f32).collect() };
    for (worked, left, right, result) in [
        ("worked_projection", "w_q", "x_columns", "q_columns"),
        ("worked_output", "v_columns", "weights_columns", "y_columns"),
    ] {
        let worked = &masks[worked];
        let (a, b, c) = (numbers(&worked[left]), numbers(&worked[right]), numbers(&worked[result]));
        let columns = size(&worked[right]);
        let depth = b.len() / columns;
        let rows = a.len() / depth;
        let left_matrix = if left == "w_q" {
            view_matrix(&a, rows, depth)
        } else {
            view_matrix(&a, depth, rows).transposed()
        };
        let right_matrix = view_matrix(&b, columns, depth).transposed();
        for isa in all_isas() {
            let found = product(isa, left_matrix, right_matrix, 1.0);
            for i in 0..rows {
                for j in 0..columns {
                    let (found, printed) = (found[i * columns + j], c[j * rows + i]);
                    close(f64::from(found), f64::from(printed), 1e-6, &format!("{isa}, {i}, {j}"));
                }
            }
        }
    }
}

/// A view of the printed tensors is a view like any other.
#[test]
fn printed_tensors_have_the_printed_shapes() {
    let trace = trace();
    let printed = Printed::read(&trace["cross_attention"], 1);
    let query: Heads<'_> = printed.query.view();
    assert_eq!([query.tokens(), query.heads(), query.head_dim()], [5, 3, 2]);
    assert_eq!(printed.keys(), 3);
    assert!(!printed.sees(0, 2));
}
