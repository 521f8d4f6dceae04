//! The gradient of attention compared with its oracle on every instruction set of the machine: every head
//! size, every length, every mask, in strided memory that holds NaN wherever a kernel may not read.

use crate::support::batch::{Batch, OwnedBias, largest, with_relative_bias};
use crate::support::batches::{batches, head_sizes, pairs_of_lengths};
use crate::support::*;
use proptest::prelude::*;
use simdformer_kernels::reference::attention::attention_dropped;
use simdformer_kernels::reference::attention_backward as oracle;
use simdformer_kernels::train::{
    AttentionGradients, AttentionInputs, Dropout, Philox, SavedAttention, WeightDropout,
    attention_backward, attention_backward_scratch, attention_backward_scratch_bound,
    attention_forward_save,
};
use simdformer_kernels::{
    AttentionOptions, Exec, Isa, Parallelism, Sequence, attention_scratch, reference,
};

/// A batch and the gradient of its context. Tokens that belong to no sequence hold poison.
#[derive(Clone, Debug)]
pub(crate) struct Case {
    pub(crate) batch: Batch,
    pub(crate) d_context: Tensor,
    /// The layouts of the gradients.
    pub(crate) layouts: [usize; 3],
    pub(crate) dropout: Option<Dropout>,
    /// The sentence of each query token.
    pub(crate) sentences: Vec<u32>,
}

/// Whether dropout keeps an attention weight, by the definition.
pub(crate) fn is_kept(dropout: &Dropout, sentence: u32, [head, i, j]: [usize; 3]) -> bool {
    let step = [dropout.step as u32, (dropout.step >> 32) as u32];
    let philox = Philox::new(dropout.seed).branch([4, dropout.site, step[0], step[1]]);
    let words = philox.block([j as u32 / 8, i as u32, sentence, head as u32]);
    let decision = words[j % 8 / 2] >> (16 * (j % 2)) & 0xffff;
    f64::from(decision) >= (f64::from(dropout.probability) * 65536.0).round()
}

/// What the forward pass saves.
#[derive(Clone, Debug)]
pub(crate) struct Saved {
    pub(crate) context: Tensor,
    pub(crate) sums: Vec<f32>,
}

/// All gradients, in memory that held poison, except that of the bias.
#[derive(Clone, Debug)]
pub(crate) struct Gradients {
    pub(crate) query: Tensor,
    pub(crate) key: Tensor,
    pub(crate) value: Tensor,
    pub(crate) bias: Vec<f32>,
}

impl Gradients {
    /// The bits of the elements, without the gaps.
    pub(crate) fn bits(&self) -> [Vec<u32>; 4] {
        let dense = |tensor: &Tensor| bits(&tensor.dense());
        [dense(&self.query), dense(&self.key), dense(&self.value), bits(&self.bias)]
    }
}

impl Case {
    pub(crate) fn new(batch: Batch, layouts: [usize; 4], seed: u64) -> Self {
        let mut random = Random::new(seed);
        let mut d_context = Tensor::new(batch.query.shape, layouts[3]);
        for sequence in &batch.sequences {
            let tokens = sequence.query_start..sequence.query_start + sequence.query_len;
            d_context.fill(tokens, || random.value());
        }
        let mut sentences = vec![u32::MAX; batch.query.shape[0]];
        for (index, sequence) in batch.sequences.iter().enumerate() {
            let tokens = sequence.query_start..sequence.query_start + sequence.query_len;
            sentences[tokens].fill(100 + 7 * index as u32);
        }
        let layouts = [layouts[0], layouts[1], layouts[2]];
        Self { batch, d_context, layouts, dropout: None, sentences }
    }

    /// The same with dropout of weights, if the probability is not 0.
    pub(crate) fn dropping(mut self, probability: f32, seed: u64) -> Self {
        let some = Dropout { seed, step: seed % 1000, site: seed as u32 % 50, probability };
        self.dropout = (probability > 0.0).then_some(some);
        self
    }

    pub(crate) fn of_weights(&self) -> Option<WeightDropout<'_>> {
        let dropout = self.dropout.as_ref();
        dropout.map(|dropout| WeightDropout::new(dropout, &self.sentences).expect("in range"))
    }

    /// The probability that dropout keeps a weight.
    fn keep(&self) -> f64 {
        self.dropout.map_or(1.0, |dropout| dropout.keep().expect("in range"))
    }

    /// The factors of dropout for the weights of a sequence, `[heads, queries, keys]`.
    fn factors(&self, sequence: Sequence) -> Vec<f64> {
        let Sequence { query_start, query_len, padded_len, .. } = sequence;
        let rows = (0..self.batch.heads()).flat_map(|head| (0..query_len).map(move |i| (head, i)));
        let all = rows.flat_map(|(head, i)| (0..padded_len).map(move |j| [head, i, j]));
        all.map(|place| match &self.dropout {
            Some(dropout) if !is_kept(dropout, self.sentences[query_start], place) => 0.0,
            _ => 1.0 / self.keep(),
        })
        .collect()
    }

    pub(crate) fn inputs<'a>(&'a self, options: &'a AttentionOptions<'a>) -> AttentionInputs<'a> {
        let (sequences, dropout) = (&self.batch.sequences[..], self.of_weights());
        AttentionInputs { qkv: self.batch.qkv(), sequences, options, dropout }
    }

    /// Runs the forward pass, and compares its bits with those of `attention`.
    pub(crate) fn forward(&self, isa: Isa, parallelism: Parallelism<'_>) -> Saved {
        let batch = &self.batch;
        let floats =
            attention_scratch(isa, &batch.sequences, batch.kv_heads(), batch.head_dim()).unwrap();
        let mut scratch = vec![POISON; floats];
        let mut context = Tensor::new(batch.query.shape, batch.out_layout);
        let mut sums = vec![POISON; 2 * batch.query.shape[0] * batch.heads()];
        let options = batch.options();
        let (inputs, out) = (self.inputs(&options), context.view_mut());
        attention_forward_save(Exec::new(isa, parallelism), &inputs, out, &mut sums, &mut scratch)
            .expect("a batch that fits");
        if self.dropout.is_none() {
            let plain = batch.attention(isa, SERIAL).out;
            assert_eq!(difference(&context.data, &plain.data), None, "{isa}: kept and not kept");
        }
        Saved { context, sums }
    }

    /// The initial gradient of a bias: zeros where a query and a key have that distance.
    fn bias(&self) -> Vec<f32> {
        let Some(OwnedBias { data, head_stride, zero: Some(zero), .. }) = &self.batch.bias else {
            return Vec::new();
        };
        let mut gradient = vec![POISON; data.len()];
        self.pairs(|_, head, i, j, sequence| {
            let at = head * head_stride + zero + j + sequence.query_len;
            gradient[at - sequence.key_len - i] = 0.0;
        });
        gradient
    }

    /// Calls `each` with every sequence, head, query and key that the query sees under the limits.
    fn pairs(&self, mut each: impl FnMut(usize, usize, usize, usize, Sequence)) {
        for (index, &sequence) in self.batch.sequences.iter().enumerate() {
            for head in 0..self.batch.heads() {
                for i in 0..sequence.query_len {
                    let visible = reference::attention::visible(sequence, self.batch.causal, i);
                    for j in 0..visible {
                        each(index, head, i, j, sequence);
                    }
                }
            }
        }
    }

    pub(crate) fn backward(
        &self,
        isa: Isa,
        kept: &Saved,
        parallelism: Parallelism<'_>,
    ) -> Gradients {
        let batch = &self.batch;
        let mut gradients = Gradients {
            query: Tensor::new(batch.query.shape, self.layouts[0]),
            key: Tensor::new(batch.key.shape, self.layouts[1]),
            value: Tensor::new(batch.value.shape, self.layouts[2]),
            bias: self.bias(),
        };
        let (heads, kv_heads) = (batch.heads(), batch.kv_heads());
        let head_dim = batch.head_dim();
        let sequences = &batch.sequences;
        let floats = attention_backward_scratch(isa, sequences, heads, kv_heads, head_dim).unwrap();
        let sum = |count: fn(&Sequence) -> usize| sequences.iter().map(count).sum::<usize>();
        let longest = sequences.iter().map(|s| s.query_len.max(s.key_len)).max().unwrap_or(0);
        let bound = attention_backward_scratch_bound(
            isa,
            sequences.len(),
            [sum(|s| s.query_len), sum(|s| s.key_len)],
            longest,
            [heads, kv_heads],
            head_dim,
        );
        assert!(floats <= bound.unwrap());
        let mut scratch = vec![POISON; floats];
        let Gradients { query, key, value, bias } = &mut gradients;
        let relative = batch.bias.as_ref().is_some_and(|bias| bias.zero.is_some());
        let (query, key, value) = (query.view_mut(), key.view_mut(), value.view_mut());
        let to = AttentionGradients { query, key, value, bias: relative.then_some(bias) };
        let saved = SavedAttention { context: kept.context.view(), sums: &kept.sums };
        let (options, d_context) = (batch.options(), self.d_context.view());
        let inputs = self.inputs(&options);
        attention_backward(
            Exec::new(isa, parallelism),
            &inputs,
            saved,
            d_context,
            to,
            &mut scratch,
        )
        .expect("a batch that fits");
        gradients
    }

    pub(crate) fn compute_gradients(&self, isa: Isa, parallelism: Parallelism<'_>) -> Gradients {
        let kept = self.forward(isa, parallelism);
        self.backward(isa, &kept, parallelism)
    }

    /// Compares the context with the documented bound.
    pub(crate) fn check_context(&self, found: &Saved, what: &str) {
        let batch = &self.batch;
        let most = largest(&batch.value.data) / self.keep();
        let bound = (batch.bound() + 2.0 * UNIT) * most + 1e-37;
        let (heads, head_dim) = (batch.heads(), batch.head_dim());
        for &sequence in &batch.sequences {
            let Sequence { query_start, query_len, padded_len, .. } = sequence;
            let factors = self.factors(sequence);
            let mut out = vec![f64::NAN; query_len * heads * head_dim];
            let mut weights = vec![f64::NAN; heads * query_len * padded_len];
            attention_dropped(
                batch.qkv(),
                sequence,
                &batch.options(),
                &|head, i, j| factors[(head * query_len + i) * padded_len + j],
                &mut out,
                &mut weights,
            )
            .expect("a batch that fits");
            for (at, &exact) in out.iter().enumerate() {
                let (row, c) = (at / head_dim, at % head_dim);
                let x = found.context.row(query_start + row / heads, row % heads)[c];
                let what = format_args!("{what}: context {row} of {sequence:?}, element {c}");
                assert_close(x, exact, bound, what);
            }
        }
    }

    /// Compares gradients with the documented bounds. Everything beside them must be unchanged.
    pub(crate) fn check(&self, found: &Gradients, what: &str) {
        let batch = &self.batch;
        let head_dim = batch.head_dim();
        let (q, k) = (largest(&batch.query.data), largest(&batch.key.data));
        let (v, d) = (largest(&batch.value.data), largest(&self.d_context.data) / self.keep());
        let scale = f64::from(batch.scale.abs());
        let roundings = if self.dropout.is_some() { 2.0 * UNIT } else { 0.0 };
        let weight = batch.bound() + roundings;
        let product = head_dim as f64 * d * v;
        let most = |terms: f64| 3.0 * weight + (2.0 * (head_dim as f64 + terms) + 12.0) * UNIT;
        // Weights below the smallest normal number are 0.
        let tiny = 1e-34 * (1.0 + product) * (1.0 + q) * (1.0 + k) * (1.0 + d);
        let (heads, kv_heads) = (batch.heads(), batch.kv_heads());
        let group = heads / kv_heads;
        let exact_weights = batch.exact();
        let mut of_bias = vec![(0.0f64, 0.0f64, 0usize); found.bias.len()];
        let (mut queries_owned, mut keys_owned) =
            (vec![false; batch.query.shape[0]], vec![false; batch.key.shape[0]]);
        for (index, &sequence) in batch.sequences.iter().enumerate() {
            let Sequence { query_start, query_len, key_start, key_len, padded_len } = sequence;
            let rows = query_len * heads;
            let keys = padded_len * kv_heads * head_dim;
            let mut query = vec![f64::NAN; rows * head_dim];
            let (mut key, mut value) = (vec![f64::NAN; keys], vec![f64::NAN; keys]);
            let mut scores = vec![f64::NAN; rows * padded_len];
            let factors = self.factors(sequence);
            oracle::attention_backward(
                batch.qkv(),
                sequence,
                &batch.options(),
                &|head, i, j| factors[(head * query_len + i) * padded_len + j],
                self.d_context.view(),
                oracle::Gradients {
                    query: &mut query,
                    key: &mut key,
                    value: &mut value,
                    scores: &mut scores,
                },
            )
            .expect("a batch that fits");
            let weights = &exact_weights[index].weights;
            for i in 0..query_len {
                queries_owned[query_start + i] = true;
                let bound = scale * k * product * most(padded_len as f64) + tiny;
                for head in 0..heads {
                    for (c, &x) in found.query.row(query_start + i, head).iter().enumerate() {
                        let exact = query[(i * heads + head) * head_dim + c];
                        let at =
                            format_args!("query {i} of {sequence:?}, head {head}, element {c}");
                        assert_close(x, exact, bound, format_args!("{what}: {at}"));
                    }
                }
            }
            for j in 0..padded_len {
                keys_owned[key_start + j] = true;
                for kv_head in 0..kv_heads {
                    let members = kv_head * group..(kv_head + 1) * group;
                    let sum: f64 = members
                        .flat_map(|head| (0..query_len).map(move |i| head * query_len + i))
                        .map(|row| weights[row * padded_len + j])
                        .sum();
                    let terms = (query_len * group) as f64;
                    let bound = scale * q * product * most(terms) * sum + tiny * terms;
                    let value_bound = d * (weight + (terms + 2.0) * UNIT) * sum + tiny * terms;
                    for c in 0..head_dim {
                        let at = (j * kv_heads + kv_head) * head_dim + c;
                        let (x, y) = (
                            found.key.row(key_start + j, kv_head)[c],
                            found.value.row(key_start + j, kv_head)[c],
                        );
                        let place =
                            format_args!("{j} of {sequence:?}, head {kv_head}, element {c}");
                        assert_close(x, key[at], bound, format_args!("{what}: key {place}"));
                        let what_value = format_args!("{what}: value {place}");
                        assert_close(y, value[at], value_bound, what_value);
                        let hidden = j >= key_len || sum == 0.0;
                        assert!(
                            !hidden || (x == 0.0 && (sum > 0.0 || y == 0.0)),
                            "{what}: key {j}"
                        );
                    }
                }
            }
            let Some(OwnedBias { head_stride, zero: Some(zero), .. }) = batch.bias else {
                continue;
            };
            self.pairs(|other, head, i, j, _| {
                if other == index {
                    let at = head * head_stride + zero + j + query_len - key_len - i;
                    let row = (head * query_len + i) * padded_len;
                    of_bias[at].0 += scores[row + j];
                    of_bias[at].1 += weights[row + j];
                    of_bias[at].2 += 1;
                }
            });
        }
        for (at, (&x, &(exact, sum, terms))) in found.bias.iter().zip(&of_bias).enumerate() {
            if terms == 0 {
                assert_eq!(x.to_bits(), POISON.to_bits(), "{what}: bias {at} was written");
                continue;
            }
            let bound = product * most(terms as f64) * sum + tiny * terms as f64;
            assert_close(x, exact, bound, format_args!("{what}: bias {at}"));
        }
        found.query.check_untouched(|token| queries_owned[token]);
        found.key.check_untouched(|token| keys_owned[token]);
        found.value.check_untouched(|token| keys_owned[token]);
    }
}

fn check(case: &Case, what: &str) {
    check_on(&all_isas(), case, what);
}

fn check_on(isas: &[Isa], case: &Case, what: &str) {
    for &isa in isas {
        let kept = case.forward(isa, SERIAL);
        let found = case.backward(isa, &kept, SERIAL);
        case.check(&found, &format!("{isa}, {what}"));
        if case.dropout.is_some() {
            case.check_context(&kept, &format!("{isa}, {what}"));
        }
    }
}

/// Lengths, with the edges of vectors, tiles and blocks among them.
fn length() -> impl Strategy<Value = usize> + Clone {
    prop_oneof![
        6 => 0usize..=20,
        3 => prop::sample::select(vec![31usize, 32, 33, 47, 48, 63, 65, 95, 96, 97, 193, 256, 257]),
        1 => 0usize..=300,
    ]
}

fn cases() -> impl Strategy<Value = Case> {
    (
        batches(length(), &[1, 2, 3], 1_000_000),
        [0usize..=2, 0usize..=2, 0usize..=2, 0usize..=2],
        prop::sample::select(vec![0.0f32, 0.1, 0.6]),
    )
        .prop_map(|((batch, seed), layouts, dropped)| {
            Case::new(batch, layouts, seed).dropping(dropped, seed)
        })
}

proptest! {
    #![proptest_config(property(64))]

    #[test]
    fn any_gradient_is_within_its_bound_and_reads_nothing_hidden(case in cases()) {
        check(&case, "any batch");
    }
}

#[test]
fn every_head_size_up_to_70_and_some_beyond() {
    for (head_dim, causal) in head_sizes() {
        let lens = [(7, 21, 2), (3, 3, 0), (1, 40, 0)];
        let mut batch = Batch::new(&lens, [2, 2, head_dim], [1, 2, 0], head_dim as u64);
        batch.causal = causal;
        let case = Case::new(batch, [2, 1, 0, 2], 5);
        let isas = isas_of(head_dim + usize::from(causal), 2);
        check_on(&isas, &case, &format!("head size {head_dim}, causal {causal}"));
    }
}

#[test]
fn every_length_around_the_edges_of_blocks() {
    let edges = [1, 2, 5, 6, 7, 15, 16, 17, 31, 63, 95, 96, 97, 192, 193, 255, 256, 257, 300, 513];
    for ([i, j], [query_len, key_len], causal) in pairs_of_lengths(&edges) {
        let group = 1 + (i + j) % 2;
        let mut batch = Batch::new(&[(query_len, key_len, 3)], [group, 1, 3], [0, 0, 0], 11);
        batch.causal = causal;
        let case = Case::new(batch, [0; 4], key_len as u64);
        let isas = isas_of(i + 3 * j, 7);
        check_on(&isas, &case, &format!("{query_len} x {key_len}, causal {causal}"));
    }
}

/// Short sentences as in translation, whose rows are read in place.
#[test]
fn every_short_sentence() {
    for head_dim in [8, 16, 32, 64] {
        for causal in [false, true] {
            let lens: Vec<_> = (1..=17).map(|len| (len, 1 + (7 * len) % 17, len % 3)).collect();
            let cross = Batch::new(&lens, [4, 4, head_dim], [0, 1, 2], 3);
            let lens: Vec<_> = (1..=17).map(|len| (len, len, 0)).collect();
            let own = Batch::new(&lens, [2, 2, head_dim], [2, 1, 0], 4);
            for mut batch in [cross, own] {
                batch.causal = causal;
                let case = Case::new(batch, [1, 0, 2, 1], 2);
                check(&case, &format!("head size {head_dim}, causal {causal}"));
                check(&case.dropping(0.2, 9), &format!("head size {head_dim}, {causal}, dropped"));
            }
        }
    }
}

/// Sums over distances are added to a table that is not zero.
#[test]
fn the_gradient_of_a_bias_is_added() {
    for causal in [false, true] {
        let mut batch = Batch::new(&[(9, 9, 0), (4, 17, 1)], [2, 1, 8], [0; 3], 3);
        batch.causal = causal;
        let batch = with_relative_bias(batch, false, |_, distance| distance as f32 / 8.0);
        let case = Case::new(batch, [0; 4], 8);
        for isa in all_isas() {
            let kept = case.forward(isa, SERIAL);
            let once = case.backward(isa, &kept, SERIAL).bias;
            assert!(once.iter().any(|x| x.is_finite() && *x != 0.0));
            let mut twice = once.clone();
            let mut gradient = Tensor::new(case.batch.query.shape, 0);
            let shape = case.batch.key.shape;
            let (mut key, mut value) = (Tensor::new(shape, 0), Tensor::new(shape, 0));
            let floats = attention_backward_scratch(isa, &case.batch.sequences, 2, 1, 8).unwrap();
            let mut scratch = vec![POISON; floats];
            let (query, key, value) = (gradient.view_mut(), key.view_mut(), value.view_mut());
            let to = AttentionGradients { query, key, value, bias: Some(&mut twice) };
            let saved = SavedAttention { context: kept.context.view(), sums: &kept.sums };
            let (options, d_context) = (case.batch.options(), case.d_context.view());
            let inputs = case.inputs(&options);

            attention_backward(Exec::serial(isa), &inputs, saved, d_context, to, &mut scratch)
                .expect("a batch that fits");
            for (once, twice) in once.iter().zip(twice) {
                let bound = 4.0 * UNIT as f32 * (1.0 + once.abs());
                assert!(once.is_nan() || (twice - 2.0 * once).abs() <= bound, "{isa}");
            }
        }
    }
}
