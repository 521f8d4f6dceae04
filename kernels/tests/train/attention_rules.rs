//! Properties of the gradient of attention other than its values: bits, masks, memory that is not accessed,
//! errors.

use super::attention::{Case, Gradients};
use crate::support::batch::{Batch, with_bias, with_relative_bias};
use crate::support::*;
use simdformer_kernels::train::{
    AttentionGradients, AttentionInputs, Dropout, SavedAttention, WeightDropout,
    attention_backward, attention_backward_scratch, attention_forward_save,
};
use simdformer_kernels::{
    AttentionOptions, Bias, Error, Exec, Expected, FullyMasked, Heads, HeadsMut, Isa, Qkv,
    Sequence, attention_scratch,
};

pub(crate) fn large(causal: bool, relative: bool, head_dim: usize) -> Case {
    let lens = [(130, 130, 4), (1, 300, 0), (0, 9, 1), (65, 300, 0), (300, 41, 2), (5, 0, 2)];
    let mut batch = Batch::new(&lens, [6, 3, head_dim], [0, 1, 2], head_dim as u64);
    batch.causal = causal;
    if relative {
        let mut random = Random::new(5);
        batch = with_relative_bias(batch, false, |_, _| random.value());
    }
    Case::new(batch, [1, 0, 2, 0], 4)
}

#[test]
fn trap_19_threads_do_not_change_a_bit() {
    for (causal, relative, head_dim) in
        [(false, false, 64), (true, false, 64), (true, true, 37), (false, true, 20)]
    {
        check_threads(&large(causal, relative, head_dim));
    }
}

/// Neither what the forward pass saves nor the gradients depend on threads.
pub(crate) fn check_threads(case: &Case) {
    for isa in all_isas() {
        let kept = case.forward(isa, SERIAL);
        let serial = case.backward(isa, &kept, SERIAL).bits();
        for crew in CREWS {
            let (again, found) = crew.with_parallelism(|parallelism| {
                let again = case.forward(isa, parallelism);
                (again, case.backward(isa, &kept, parallelism).bits())
            });
            assert!(bits(&again.sums) == bits(&kept.sums), "{isa}, {crew:?}: sums");
            assert!(bits(&again.context.data) == bits(&kept.context.data), "{isa}, {crew:?}");
            assert!(found == serial, "{isa}, head size {}, {crew:?}", case.batch.head_dim());
        }
    }
}

/// One sequence of a case, in a batch of its own.
fn alone(case: &Case, index: usize) -> Case {
    let sequence = case.batch.sequences[index];
    let Sequence { query_start, query_len, key_start, key_len, padded_len } = sequence;
    let mut batch = case.batch.clone();
    batch.query = batch.query.tokens(query_start..query_start + query_len);
    batch.key = batch.key.tokens(key_start..key_start + padded_len);
    batch.value = batch.value.tokens(key_start..key_start + padded_len);
    batch.sequences =
        vec![Sequence { query_start: 0, query_len, key_start: 0, key_len, padded_len }];
    let d_context = case.d_context.tokens(query_start..query_start + query_len);
    let sentences = case.sentences[query_start..query_start + query_len].to_vec();
    Case { batch, d_context, layouts: [0; 3], dropout: case.dropout, sentences }
}

/// Every sequence of a case has the gradients that it has alone.
pub(crate) fn check_alone(case: &Case) {
    for isa in all_isas() {
        let all = case.compute_gradients(isa, SERIAL);
        for (index, sequence) in case.batch.sequences.iter().enumerate() {
            let found = alone(case, index).compute_gradients(isa, SERIAL);
            let queries = sequence.query_start..sequence.query_start + sequence.query_len;
            let keys = sequence.key_start..sequence.key_start + sequence.padded_len;
            let expected = Gradients {
                query: all.query.tokens(queries),
                key: all.key.tokens(keys.clone()),
                value: all.value.tokens(keys),
                bias: Vec::new(),
            };
            assert!(found.bits() == expected.bits(), "{isa}: {sequence:?}");
        }
    }
}

#[test]
fn a_sequence_has_the_same_gradients_alone() {
    for (causal, head_dim) in [(false, 64), (true, 33)] {
        check_alone(&large(causal, false, head_dim));
    }
}

/// All sets give the same bits in the forward and in the backward pass.
#[test]
fn instruction_sets_agree() {
    let mut cases: Vec<Case> =
        [(false, false, 64), (true, false, 33), (true, true, 20), (false, true, 130)]
            .map(|(causal, relative, head_dim)| large(causal, relative, head_dim))
            .into();
    for (causal, head_dim) in [(false, 32), (true, 32), (true, 64)] {
        let lens: Vec<_> = (1..=17).map(|len| (len, 1 + (5 * len) % 17, 0)).collect();
        let mut batch = Batch::new(&lens, [2, 2, head_dim], [0; 3], 3);
        batch.causal = causal;
        cases.push(Case::new(batch, [0; 4], 1));
    }
    for (index, case) in cases.iter().enumerate() {
        let expected = case.compute_gradients(Isa::SCALAR, SERIAL);
        for isa in all_isas() {
            let found = case.compute_gradients(isa, SERIAL);
            assert!(found.bits() == expected.bits(), "{isa}, case {index}");
        }
    }
}

/// Fills the keys and values from each `cut` on, or the queries and their gradients before it, with NaN.
/// Rows that do not see them keep their bits.
#[test]
fn nan_reaches_only_rows_that_see_it() {
    for head_dim in [5, 16, 64] {
        for (query_len, key_len) in [(300, 300), (40, 300), (310, 300), (9, 9)] {
            let mut batch = Batch::new(&[(query_len, key_len, 0)], [1, 1, head_dim], [0; 3], 4);
            batch.causal = true;
            let case = Case::new(batch, [0; 4], 6);
            for isa in all_isas() {
                let clean = case.compute_gradients(isa, SERIAL);
                for cut in [1, 2, 8, 15, 16, 17, 40, 95, 97, 255, 256, 257, 290] {
                    let sees = |i: usize| (i + 1 + key_len).saturating_sub(query_len);
                    if cut < key_len {
                        let mut poisoned = case.clone();
                        poisoned.batch.key.fill(cut..key_len, || f32::NAN);
                        poisoned.batch.value.fill(cut..key_len, || f32::NAN);
                        let found = poisoned.compute_gradients(isa, SERIAL);
                        for i in 0..query_len {
                            let (row, clean) = (found.query.row(i, 0), clean.query.row(i, 0));
                            if sees(i) <= cut {
                                assert_eq!(difference(row, clean), None, "{isa}: query {i}, {cut}");
                            } else {
                                assert!(row.iter().all(|x| x.is_nan()), "{isa}: {i}, {cut}");
                            }
                        }
                    }
                    if cut < query_len {
                        let mut poisoned = case.clone();
                        poisoned.batch.query.fill(0..cut, || f32::NAN);
                        poisoned.d_context.fill(0..cut, || f32::INFINITY);
                        let found = poisoned.compute_gradients(isa, SERIAL);
                        for j in 0..key_len {
                            for (found, clean) in
                                [(&found.key, &clean.key), (&found.value, &clean.value)]
                            {
                                let (row, clean) = (found.row(j, 0), clean.row(j, 0));
                                if j >= sees(cut - 1) {
                                    assert_eq!(difference(row, clean), None, "{isa}: {j}, {cut}");
                                } else {
                                    assert!(row.iter().all(|x| x.is_nan()), "{isa}: {j}, {cut}");
                                }
                            }
                        }
                    }
                }
            }
        }
    }
}

/// A sequence without a key and one without a query, beside others.
#[test]
fn trap_09_a_length_of_0_beside_a_length_of_5() {
    for uniform in [false, true] {
        for causal in [false, true] {
            let mut batch = Batch::new(
                &[(5, 5, 0), (4, 0, 3), (5, 5, 0), (0, 5, 1), (6, 3, 0)],
                [4, 2, 16],
                [0; 3],
                2,
            );
            batch.causal = causal;
            if uniform {
                batch.fully_masked = FullyMasked::Uniform;
                // It counts in the mean.
                let padding = batch.sequences[1];
                let tokens = padding.key_start..padding.key_start + padding.padded_len;
                batch.value.fill(tokens, || 0.5);
                let padding = batch.sequences[3];
                let token = padding.key_start + padding.key_len;
                batch.value.fill(token..token + 1, || 0.5);
            }
            let case = Case::new(batch, [0; 4], 1);
            for isa in all_isas() {
                let found = case.compute_gradients(isa, SERIAL);
                case.check(&found, &format!("{isa}, uniform {uniform}, causal {causal}"));
                let keyless = case.batch.sequences[1];
                for token in keyless.query_start..keyless.query_start + keyless.query_len {
                    for head in 0..4 {
                        assert!(found.query.row(token, head).iter().all(|&x| x == 0.0), "{isa}");
                    }
                }
            }
        }
    }
}

/// A row whose weights are all zero by its scores or its bias contributes nothing to any gradient, whatever
/// it holds.
#[test]
fn a_query_without_weights_contributes_nothing() {
    for by_bias in [false, true] {
        let mut batch = Batch::new(&[(9, 20, 0)], [1, 1, 16], [0; 3], 2);
        if by_bias {
            batch = with_bias(batch, |i, _| if i == 4 { f32::NEG_INFINITY } else { 0.0 });
        } else {
            // All keys have one direction, and query 4 is infinite in the other direction.
            batch.key.fill(0..20, || 1.0);
            batch.query.fill(4..5, || f32::NEG_INFINITY);
        }
        let mut case = Case::new(batch, [0; 4], 1);
        let clean = {
            let mut case = case.clone();
            case.batch.query.fill(4..5, || 1.0);
            case.d_context.fill(4..5, || 0.0);
            case
        };
        case.d_context.fill(4..5, || f32::NAN);
        for isa in all_isas() {
            let found = case.compute_gradients(isa, SERIAL);
            let clean = clean.compute_gradients(isa, SERIAL);
            assert!(found.query.row(4, 0).iter().all(|&x| x == 0.0), "{isa}");
            for j in 0..20 {
                assert!(found.key.row(j, 0) == clean.key.row(j, 0), "{isa}: key {j}");
                assert!(found.value.row(j, 0) == clean.value.row(j, 0), "{isa}: value {j}");
            }
        }
    }
}

/// A key that the bias hides from every query contributes nothing, whatever it and its value hold; in one
/// block of keys and in two.
#[test]
fn a_key_that_the_bias_hides_contributes_nothing() {
    for keys in [4, 20, 300] {
        let batch = Batch::new(&[(9, keys, 0)], [2, 1, 16], [0; 3], 2);
        let batch = with_bias(batch, |_, j| if j == 3 { f32::NEG_INFINITY } else { 0.25 });
        let mut case = Case::new(batch, [0; 4], 1);
        let clean = case.clone();
        case.batch.key.fill(3..4, || f32::NAN);
        case.batch.value.fill(3..4, || f32::INFINITY);
        for isa in all_isas() {
            let found = case.compute_gradients(isa, SERIAL);
            case.check(&found, &format!("{isa}, {keys} keys"));
            let clean = clean.compute_gradients(isa, SERIAL);
            for (i, head) in (0..9).flat_map(|i| [(i, 0), (i, 1)]) {
                assert!(found.query.row(i, head) == clean.query.row(i, head), "{isa}: query {i}");
            }
            for j in 0..keys {
                assert!(found.key.row(j, 0) == clean.key.row(j, 0), "{isa}: key {j}");
                assert!(found.value.row(j, 0) == clean.value.row(j, 0), "{isa}: value {j}");
            }
            assert!(found.key.row(3, 0).iter().all(|&x| x == 0.0), "{isa}");
        }
    }
}

/// Scores far below zero: the score 0 of a padding lane is far above the maximum.
#[test]
fn trap_10_padded_lanes_do_not_overflow_under_very_negative_maxima() {
    for keys in [1, 3, 15, 17, 31, 40, 257] {
        for causal in [false, true] {
            let mut batch = Batch::new(&[(keys, keys, 2)], [2, 1, 8], [0; 3], 2);
            batch.causal = causal;
            let mut random = Random::new(1);
            batch.query.fill(0..keys, || 30.0 + random.value());
            batch.key.fill(0..keys, || -30.0 + random.value());
            let case = Case::new(batch, [0; 4], 1);
            for isa in all_isas() {
                let kept = case.forward(isa, SERIAL);
                assert!(kept.sums[0] < -1000.0, "{isa}: {}", kept.sums[0]);
                let found = case.backward(isa, &kept, SERIAL);
                case.check(&found, &format!("{isa}, {keys} keys, causal {causal}"));
            }
        }
    }
}

/// The gradient of the context in memory with gaps, and with rows a power of two apart.
#[test]
fn trap_11_strides_of_the_contexts_gradient_do_not_matter() {
    let case = large(true, false, 64);
    let shape @ [tokens, heads, head_dim] = case.batch.query.shape;
    for isa in all_isas() {
        let kept = case.forward(isa, SERIAL);
        let expected = case.backward(isa, &kept, SERIAL).bits();
        for (token_stride, head_stride) in
            [(1024, head_dim), (2048, 128), (head_dim, 64 * 1024), (heads * head_dim + 1, head_dim)]
        {
            let reach = (tokens - 1) * token_stride + (heads - 1) * head_stride + head_dim;
            let data = vec![POISON; reach];
            let mut other = case.clone();
            other.d_context = Tensor { data, shape, token_stride, head_stride };
            for token in 0..tokens {
                for head in 0..heads {
                    let row = case.d_context.row(token, head);
                    other.d_context.row_mut(token, head).copy_from_slice(row);
                }
            }
            let found = other.backward(isa, &kept, SERIAL).bits();
            assert!(found == expected, "{isa}: strides {token_stride} and {head_stride}");
        }
    }
}

/// Query, key and value in one buffer, and their gradients in another one of the same layout.
#[test]
fn a_fused_buffer_has_a_fused_gradient() {
    for (tokens, heads, head_dim) in [(37, 3, 16), (9, 2, 7), (0, 2, 8), (5, 0, 8), (5, 2, 0)] {
        let width = 3 * heads * head_dim;
        let mut random = Random::new(6);
        let fused = random.values(tokens * width);
        let d_context = random.values(tokens * heads * head_dim);
        let shape = [tokens, heads, head_dim];
        let sequences = [Sequence::packed(0, tokens / 2), Sequence::packed(tokens / 2, tokens / 3)];
        let options = AttentionOptions { causal: true, ..AttentionOptions::new(head_dim) };
        for isa in all_isas() {
            let qkv = Qkv::fused(&fused, shape).unwrap();
            let mut context = vec![POISON; tokens * heads * head_dim];
            let mut sums = vec![POISON; tokens * heads * 2];
            let mut scratch =
                vec![0.0; attention_scratch(isa, &sequences, heads, head_dim).unwrap()];
            let out = view_heads_mut(&mut context, shape);

            let inputs =
                AttentionInputs { qkv, sequences: &sequences, options: &options, dropout: None };
            attention_forward_save(Exec::serial(isa), &inputs, out, &mut sums, &mut scratch)
                .unwrap();
            let floats =
                attention_backward_scratch(isa, &sequences, heads, heads, head_dim).unwrap();
            let context = view_heads(&context, shape);
            let saved = SavedAttention { context, sums: &sums };
            let run = |to: AttentionGradients<'_>| {
                let d_context = view_heads(&d_context, shape);
                let scratch = &mut vec![POISON; floats];
                attention_backward(Exec::serial(isa), &inputs, saved, d_context, to, scratch)
                    .unwrap();
            };
            let mut parts = [(); 3].map(|()| vec![POISON; tokens * heads * head_dim]);
            let [query, key, value] = parts.each_mut().map(|part| HeadsMut::new(part, shape));
            let (query, key, value) = (query.unwrap(), key.unwrap(), value.unwrap());
            run(AttentionGradients { query, key, value, bias: None });
            let mut fused = vec![POISON; tokens * width];
            run(AttentionGradients::fused(&mut fused, shape).unwrap());
            for (token, row) in fused.chunks_exact(width.max(1)).enumerate() {
                for (part, row) in parts.iter().zip(row.chunks_exact(width / 3)) {
                    let expected = &part[token * heads * head_dim..][..heads * head_dim];
                    assert_eq!(bits(row), bits(expected), "{isa}: token {token}");
                }
            }
            let wrong = [tokens + 1, 1 + heads, 1 + head_dim];
            assert!(AttentionGradients::fused(&mut fused, wrong).is_err());
        }
    }
}

/// A correct call: queries `[6, 4, 8]`, keys and values `[7, 2, 8]`, two sequences.
struct Call {
    context: [usize; 3],
    d_context: [usize; 3],
    gradients: [[usize; 3]; 3],
    sums: usize,
    sequences: Vec<Sequence>,
    relative: bool,
    d_bias: Option<usize>,
    /// The number of tokens of the dropout.
    dropped: usize,
    scratch_less: usize,
}

const DROPOUT: Dropout = Dropout { seed: 1, step: 2, site: 3, probability: 0.1 };

impl Call {
    fn good() -> Self {
        let sequence = |query_start, query_len, key_start, key_len, padded_len| Sequence {
            query_start,
            query_len,
            key_start,
            key_len,
            padded_len,
        };
        Self {
            context: [6, 4, 8],
            d_context: [6, 4, 8],
            gradients: [[6, 4, 8], [7, 2, 8], [7, 2, 8]],
            sums: 48,
            sequences: vec![sequence(0, 2, 4, 3, 3), sequence(2, 4, 0, 3, 4)],
            relative: true,
            d_bias: Some(3 * 6 + 2 + 4),
            dropped: 6,
            scratch_less: 0,
        }
    }

    fn result(&self, isa: Isa) -> Result<(), Error> {
        const ZEROS: [f32; 512] = [0.0; 512];
        let heads = |shape| view_heads(&ZEROS, shape);
        let bias = Bias::Relative { data: &ZEROS[..24], head_stride: 6, zero: 2 };
        let options =
            AttentionOptions { bias: self.relative.then_some(bias), ..AttentionOptions::new(8) };
        let floats = attention_backward_scratch(isa, &self.sequences, 4, 2, 8).unwrap_or(0);
        let mut scratch = vec![POISON; floats - self.scratch_less];
        let mut out = self.gradients.map(|shape| vec![POISON; shape.iter().product()]);
        let [query, key, value] = out.each_mut();
        let mut d_bias = self.d_bias.map(|len| vec![POISON; len]);
        let inputs = AttentionInputs {
            qkv: Qkv { query: heads([6, 4, 8]), key: heads([7, 2, 8]), value: heads([7, 2, 8]) },
            sequences: &self.sequences,
            options: &options,
            dropout: Some(WeightDropout::new(&DROPOUT, &[3; 8][..self.dropped]).unwrap()),
        };
        let saved = SavedAttention { context: heads(self.context), sums: &ZEROS[..self.sums] };
        let to = AttentionGradients {
            query: view_heads_mut(query, self.gradients[0]),
            key: view_heads_mut(key, self.gradients[1]),
            value: view_heads_mut(value, self.gradients[2]),
            bias: d_bias.as_deref_mut(),
        };
        let d_context = heads(self.d_context);
        let result =
            attention_backward(Exec::serial(isa), &inputs, saved, d_context, to, &mut scratch);
        if result.is_err() {
            let all = out.iter().chain(&d_bias).flatten().chain(&scratch);
            let touched = all.filter(|x| x.to_bits() != POISON.to_bits()).count();
            assert_eq!(touched, 0, "{result:?}");
        }
        result
    }
}

#[test]
fn operands_that_do_not_fit_are_errors() {
    type Change = fn(&mut Call);
    let shared = "sequences with a key of sequence 1: expected 1, found 2";
    let changes: Vec<(Change, &str)> = vec![
        (|c| c.context[1] = 3, "shape of saved.context: expected [6, 4, 8], found [6, 3, 8]"),
        (|c| c.d_context[0] = 5, "shape of d_context: expected [6, 4, 8], found [5, 4, 8]"),
        (
            |c| c.gradients[0][0] = 7,
            "shape of gradients.query: expected [6, 4, 8], found [7, 4, 8]",
        ),
        (|c| c.gradients[1][0] = 6, "shape of gradients.key: expected [7, 2, 8], found [6, 2, 8]"),
        (
            |c| c.gradients[2][2] = 7,
            "shape of gradients.value: expected [7, 2, 8], found [7, 2, 7]",
        ),
        (|c| c.sums = 47, "length of sums: expected 48, found 47"),
        (|c| c.sums = 49, "length of sums: expected 48, found 49"),
        (|c| c.sequences[1].query_len = 5, "query end of sequence 1: expected at most 6, found 7"),
        (
            |c| c.sequences[1].query_start = 1,
            "query start of sequence 1: expected at least 2, found 1",
        ),
        (|c| c.sequences[0].padded_len = 4, "key end of sequence 0: expected at most 7, found 8"),
        (
            |c| {
                (c.relative, c.d_bias) = (false, None);
                c.sequences[0].key_len = 4;
            },
            "valid keys of sequence 0: expected at most 3, found 4",
        ),
        (|c| c.sequences[1].padded_len = 5, shared),
        (|c| c.sequences[1] = Sequence { query_start: 2, ..c.sequences[0] }, shared),
        (|c| c.relative = false, "tables of the relative bias: expected 1, found 0"),
        (|c| c.dropped = 5, "sentences of dropout: expected 6, found 5"),
        (|c| c.dropped = 7, "sentences of dropout: expected 6, found 7"),
        (|c| c.d_bias = Some(23), "length of gradients.bias: expected at least 24, found 23"),
    ];
    for isa in all_isas() {
        assert_eq!(Call::good().result(isa), Ok(()));
        for (change, text) in &changes {
            let mut call = Call::good();
            change(&mut call);
            let found = call.result(isa).map_err(|error| error.to_string());
            assert_eq!(found, Err((*text).to_owned()));
        }
        let mut call = Call::good();
        call.scratch_less = 1;
        let error = call.result(isa).expect_err("too short");
        assert!(
            matches!(error, Error::Size {
                operand: "scratch", expected: Expected::AtLeast(least), found, ..
            } if found + 1 == least),
            "{error}"
        );
    }
}

/// The tokens of a dense `[2, heads, tokens, head_dim]` are those of its `[2 * tokens, heads, head_dim]`, so the same
/// sequences give the same gradients.
#[test]
fn heads_first_tensors_have_the_same_gradients() {
    let ([heads, kv_heads, head_dim], [queries, keys]) = ([4, 2, 7], [5, 6]);
    let mut random = Random::new(3);
    let mut dense = |heads: usize, tokens: usize| random.values(2 * tokens * heads * head_dim);
    let (query, d_context) = (dense(heads, queries), dense(heads, queries));
    let (key, value) = (dense(kv_heads, keys), dense(kv_heads, keys));
    // From `[2, tokens, heads, head_dim]`.
    let turned = |data: &[f32], heads: usize, tokens: usize| -> Vec<f32> {
        let plain = view_heads(data, [2 * tokens, heads, head_dim]);
        let rows = (0..2 * heads * tokens).map(|row| {
            let (element, head, token) = (row / tokens / heads, row / tokens % heads, row % tokens);
            plain.row(element * tokens + token, head).expect("a row")
        });
        rows.flatten().copied().collect()
    };
    let sequence = |element: usize, query_len, key_len| Sequence {
        query_start: element * queries,
        query_len,
        key_start: element * keys,
        key_len,
        padded_len: key_len,
    };
    let sequences = [sequence(0, 5, 4), sequence(1, 3, 6)];
    let options = AttentionOptions::new(head_dim);
    let run = |isa: Isa, heads_first: bool| -> Vec<Vec<u32>> {
        /// Whether heads are first, and `[batch, heads, tokens, head_dim]`.
        type Of = (bool, [usize; 4]);
        let shape = |heads, tokens| (heads_first, [2, heads, tokens, head_dim]);
        let laid = |data: &[f32], heads, tokens| {
            if heads_first { turned(data, heads, tokens) } else { data.to_vec() }
        };
        fn view(data: &[f32], (first, [batch, heads, tokens, dim]): Of) -> Heads<'_> {
            let view = match first {
                true => Heads::heads_first(data, [batch, heads, tokens, dim]),
                false => Heads::new(data, [batch * tokens, heads, dim]),
            };
            view.expect("space")
        }
        fn view_mut(data: &mut [f32], (first, [batch, heads, tokens, dim]): Of) -> HeadsMut<'_> {
            let view = match first {
                true => HeadsMut::heads_first(data, [batch, heads, tokens, dim]),
                false => HeadsMut::new(data, [batch * tokens, heads, dim]),
            };
            view.expect("space")
        }
        let (of_query, of_key) = (shape(heads, queries), shape(kv_heads, keys));
        let (q, d) = (laid(&query, heads, queries), laid(&d_context, heads, queries));
        let (k, v) = (laid(&key, kv_heads, keys), laid(&value, kv_heads, keys));
        let qkv = Qkv { query: view(&q, of_query), key: view(&k, of_key), value: view(&v, of_key) };
        let floats = attention_scratch(isa, &sequences, kv_heads, head_dim).expect("small");
        let mut sums = vec![0.0; 2 * 2 * queries * heads];
        let mut context = vec![POISON; q.len()];
        let inputs =
            AttentionInputs { qkv, sequences: &sequences, options: &options, dropout: None };
        let scratch = &mut vec![0.0; floats];
        let out = view_mut(&mut context, of_query);
        attention_forward_save(Exec::serial(isa), &inputs, out, &mut sums, scratch).expect("fits");
        let floats = attention_backward_scratch(isa, &sequences, heads, kv_heads, head_dim);
        let mut out = [vec![POISON; q.len()], vec![POISON; k.len()], vec![POISON; k.len()]];
        let [d_query, d_key, d_value] = out.each_mut();
        let to = AttentionGradients {
            query: view_mut(d_query, of_query),
            key: view_mut(d_key, of_key),
            value: view_mut(d_value, of_key),
            bias: None,
        };
        let saved = SavedAttention { context: view(&context, of_query), sums: &sums };
        let scratch = &mut vec![0.0; floats.expect("small")];
        attention_backward(Exec::serial(isa), &inputs, saved, view(&d, of_query), to, scratch)
            .expect("fits");
        let [d_query, d_key, d_value] = out;
        [(context, of_query), (d_query, of_query), (d_key, of_key), (d_value, of_key)]
            .iter()
            .map(|(data, of)| {
                let view = view(data, *of);
                let of_row = |(token, head)| view.row(token, head).expect("a row");
                let heads = 0..view.heads();
                let row = |token| heads.clone().map(move |head| (token, head));
                let rows = (0..view.tokens()).flat_map(row);
                rows.flat_map(of_row).map(|x| x.to_bits()).collect()
            })
            .collect()
    };
    for isa in all_isas() {
        let plain = run(isa, false);
        assert!(plain[1].iter().any(|&x| x != POISON.to_bits()));
        assert_eq!(run(isa, true), plain, "{isa}");
    }
}
