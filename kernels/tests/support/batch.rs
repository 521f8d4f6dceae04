//! A batch for attention: tensors, sequences and options, the ways to run it, and the comparison with the
//! oracle.

use super::{POISON, Random, Tensor, UNIT};
use simdformer_kernels::{
    AttentionOptions, AttentionOutput, AttentionWeights, Bias, Cache, CacheMut, CacheShape,
    CachedSequence, Dtype, Error, FullyMasked, Isa, Parallelism, Qkv, Sequence, attention,
    attention_cached, attention_scratch, reference,
};

/// An additive bias that owns its values.
#[derive(Clone, Debug)]
pub struct OwnedBias {
    pub data: Vec<f32>,
    pub head_stride: usize,
    /// Of a dense bias.
    pub query_stride: usize,
    /// Of a relative bias.
    pub zero: Option<usize>,
}

impl OwnedBias {
    pub fn dense(data: Vec<f32>, head_stride: usize, query_stride: usize) -> Self {
        Self { data, head_stride, query_stride, zero: None }
    }

    pub fn relative(data: Vec<f32>, head_stride: usize, zero: usize) -> Self {
        Self { data, head_stride, query_stride: 0, zero: Some(zero) }
    }

    pub fn view(&self) -> Bias<'_> {
        let Self { ref data, head_stride, query_stride, zero } = *self;
        match zero {
            Some(zero) => Bias::Relative { data, head_stride, zero },
            None => Bias::Dense { data, head_stride, query_stride },
        }
    }
}

#[derive(Clone, Debug)]
pub struct Batch {
    pub query: Tensor,
    pub key: Tensor,
    pub value: Tensor,
    pub sequences: Vec<Sequence>,
    pub scale: f32,
    pub causal: bool,
    pub bias: Option<OwnedBias>,
    pub fully_masked: FullyMasked,
    /// Heads whose weights are requested.
    pub weight_heads: Vec<usize>,
    /// The layout of the output.
    pub out_layout: usize,
    /// The dtype of the cache.
    pub dtype: Dtype,
}

/// A value as a cache in [`Dtype::F16`] stores it: for a finite value the nearest finite number.
pub fn rounded_to_half(x: f32) -> f32 {
    let nearest = reference::dtype::stored(Dtype::F16, x);
    if x.is_finite() { nearest.clamp(-65_504.0, 65_504.0) } else { nearest }
}

/// A word that is NaN as two f16 values, and no value of a test as an f32.
pub const POISONED_HALVES: f32 = f32::from_bits(0x7e07_7e07);

/// Output and weights, in memory that held poison.
#[derive(Clone, Debug)]
pub struct Output {
    pub out: Tensor,
    pub weights: Vec<f32>,
    pub keys: usize,
    pub query_stride: usize,
    pub head_stride: usize,
}

impl Output {
    /// The weights of query token `token` in the `index`-th chosen head.
    pub fn weights(&self, index: usize, token: usize) -> &[f32] {
        &self.weights[index * self.head_stride + token * self.query_stride..][..self.keys]
    }

    /// All bits of the output as a dense tensor.
    pub fn bits(&self) -> (Vec<u32>, Vec<u32>) {
        (super::bits(&self.out.dense()), super::bits(&self.weights))
    }
}

/// The result of the oracle for one sequence: `[query_len, heads, head_dim]` and `[heads, query_len,
/// padded_len]`.
pub struct Exact {
    pub out: Vec<f64>,
    pub weights: Vec<f64>,
}

impl Batch {
    /// Sequences `(query_len, key_len, padding)` one after the other, with a token that belongs to none
    /// between them. What no query may read is poison.
    pub fn new(
        lens: &[(usize, usize, usize)],
        [heads, kv_heads, head_dim]: [usize; 3],
        layouts: [usize; 3],
        seed: u64,
    ) -> Self {
        let mut sequences = Vec::new();
        let (mut queries, mut keys) = (0, 0);
        for (index, &(query_len, key_len, padding)) in lens.iter().enumerate() {
            let gap = usize::from(index % 2 == 1);
            (queries, keys) = (queries + gap, keys + gap);
            let padded_len = key_len + padding;
            sequences.push(Sequence {
                query_start: queries,
                query_len,
                key_start: keys,
                key_len,
                padded_len,
            });
            (queries, keys) = (queries + query_len, keys + padded_len);
        }
        let mut random = Random::new(seed);
        let mut batch = Self {
            query: Tensor::new([queries, heads, head_dim], layouts[0]),
            key: Tensor::new([keys, kv_heads, head_dim], layouts[1]),
            value: Tensor::new([keys, kv_heads, head_dim], layouts[2]),
            sequences,
            scale: AttentionOptions::new(head_dim).scale,
            causal: false,
            bias: None,
            fully_masked: FullyMasked::Zeros,
            weight_heads: Vec::new(),
            out_layout: 0,
            dtype: Dtype::F32,
        };
        for i in 0..batch.sequences.len() {
            let Sequence { query_start, query_len, key_start, key_len, .. } = batch.sequences[i];
            batch.query.fill(query_start..query_start + query_len, || 2.0 * random.value());
            batch.key.fill(key_start..key_start + key_len, || 2.0 * random.value());
            batch.value.fill(key_start..key_start + key_len, || random.value());
        }
        batch
    }

    pub fn heads(&self) -> usize {
        self.query.shape[1]
    }

    pub fn kv_heads(&self) -> usize {
        self.key.shape[1]
    }

    pub fn head_dim(&self) -> usize {
        self.key.shape[2]
    }

    pub fn options(&self) -> AttentionOptions<'_> {
        AttentionOptions {
            scale: self.scale,
            causal: self.causal,
            bias: self.bias.as_ref().map(OwnedBias::view),
            fully_masked: self.fully_masked,
        }
    }

    /// Memory for the output and the weights.
    pub fn output(&self) -> Output {
        let keys = self.sequences.iter().map(|s| s.padded_len).max().unwrap_or(0) + 2;
        let query_stride = keys + 1;
        let head_stride = self.query.shape[0] * query_stride + 5;
        Output {
            out: Tensor::new(self.query.shape, self.out_layout),
            weights: vec![POISON; self.weight_heads.len() * head_stride],
            keys,
            query_stride,
            head_stride,
        }
    }

    fn weights<'a>(
        &'a self,
        output: &'a mut Output,
    ) -> (&'a mut Tensor, Option<AttentionWeights<'a>>) {
        let weights = AttentionWeights {
            data: &mut output.weights,
            heads: &self.weight_heads,
            head_stride: output.head_stride,
            query_stride: output.query_stride,
            keys: output.keys,
        };
        (&mut output.out, (!self.weight_heads.is_empty()).then_some(weights))
    }

    pub fn try_attention(
        &self,
        isa: Isa,
        output: &mut Output,
        parallelism: Parallelism<'_>,
    ) -> Result<(), Error> {
        let floats = attention_scratch(isa, &self.sequences, self.kv_heads(), self.head_dim())?;
        let mut scratch = vec![POISON; floats];
        let (out, weights) = self.weights(output);
        attention(
            isa,
            Qkv { query: self.query.view(), key: self.key.view(), value: self.value.view() },
            &self.sequences,
            &self.options(),
            AttentionOutput { weights, ..out.view_mut().into() },
            &mut scratch,
            parallelism,
        )
    }

    pub fn attention(&self, isa: Isa, parallelism: Parallelism<'_>) -> Output {
        let mut output = self.output();
        self.try_attention(isa, &mut output, parallelism).expect("a batch that fits");
        output
    }

    /// The same with keys and values that f16 represents exactly, in a cache in f16.
    pub fn in_halves(mut self) -> Self {
        self.dtype = Dtype::F16;
        for x in self.key.data.iter_mut().chain(&mut self.value.data) {
            if !x.is_nan() {
                *x = rounded_to_half(*x);
            }
        }
        self
    }

    /// The valid keys and values of each sequence in a slot of its own, the last sequence first,
    /// appended in two parts. Everything else in the cache is poison.
    pub fn cache(&self, isa: Isa) -> (CacheShape, Vec<f32>) {
        let longest = self.sequences.iter().map(|s| s.key_len).max().unwrap_or(0);
        let slots = self.sequences.len();
        let shape = CacheShape {
            dtype: self.dtype,
            ..CacheShape::new(slots, longest + 3, self.kv_heads(), self.head_dim())
        };
        let poison = if self.dtype == Dtype::F16 { POISONED_HALVES } else { POISON };
        let mut data = vec![poison; shape.len(isa).expect("a small size")];
        let mut cache = CacheMut::new(isa, shape, &mut data).expect("a buffer of that length");
        for (index, sequence) in self.sequences.iter().enumerate() {
            let slot = self.sequences.len() - 1 - index;
            let (start, len) = (sequence.key_start, sequence.key_len);
            let half = len / 3;
            for part in [0..half, half..len] {
                let tokens = start + part.start..start + part.end;
                let (key, value) = (self.key.tokens(tokens.clone()), self.value.tokens(tokens));
                cache.write(slot, part.start, key.view(), value.view()).expect("a place");
            }
        }
        (shape, data)
    }

    pub fn attention_cached(&self, isa: Isa, parallelism: Parallelism<'_>) -> Output {
        let (shape, data) = self.cache(isa);
        let cache = Cache::new(isa, shape, &data).expect("a buffer of that length");
        let sequences: Vec<CachedSequence> = self
            .sequences
            .iter()
            .enumerate()
            .map(|(index, s)| CachedSequence {
                query_start: s.query_start,
                query_len: s.query_len,
                slot: self.sequences.len() - 1 - index,
                key_len: s.key_len,
            })
            .collect();
        let mut output = self.output();
        let (out, weights) = self.weights(&mut output);
        attention_cached(
            self.query.view(),
            &cache,
            &sequences,
            &self.options(),
            AttentionOutput { weights, ..out.view_mut().into() },
            parallelism,
        )
        .expect("a batch that fits");
        output
    }

    /// The result of the oracle for each sequence.
    pub fn exact(&self) -> Vec<Exact> {
        self.sequences
            .iter()
            .map(|&sequence| {
                let rows = sequence.query_len * self.heads();
                let mut out = vec![f64::NAN; rows * self.head_dim()];
                let mut weights = vec![f64::NAN; rows * sequence.padded_len];
                reference::attention::attention(
                    Qkv {
                        query: self.query.view(),
                        key: self.key.view(),
                        value: self.value.view(),
                    },
                    sequence,
                    &self.options(),
                    &mut out,
                    &mut weights,
                )
                .expect("a batch that fits");
                Exact { out, weights }
            })
            .collect()
    }

    /// The documented bound, relative to the largest value: `8 u (head_dim scale max|q| max|k| +
    /// max|bias| + keys / 8 + 8)`.
    pub fn bound(&self) -> f64 {
        let largest = |values: &[f32]| {
            values
                .iter()
                .filter(|x| x.is_finite())
                .fold(0.0f64, |most, &x| most.max(f64::from(x.abs())))
        };
        let bias = self.bias.as_ref().map_or(0.0, |bias| largest(&bias.data));
        let keys = self.sequences.iter().map(|s| s.padded_len).max().unwrap_or(0);
        let score = self.head_dim() as f64
            * f64::from(self.scale.abs())
            * largest(&self.query.data)
            * largest(&self.key.data);
        8.0 * UNIT * (score + bias + keys as f64 / 8.0 + 8.0)
    }

    /// Panics if `output` is not within the bound of `exact`, or if a kernel wrote outside of its
    /// output.
    pub fn check(&self, output: &Output, exact: &[Exact], what: &str) {
        let bound = self.bound();
        let most = self
            .value
            .data
            .iter()
            .filter(|x| x.is_finite())
            .fold(0.0f64, |most, &x| most.max(f64::from(x.abs())));
        let (heads, head_dim) = (self.heads(), self.head_dim());
        let close = |found: f32, exact: f64, bound: f64| {
            if exact.is_nan() { found.is_nan() } else { (f64::from(found) - exact).abs() <= bound }
        };
        let mut owned = vec![false; self.query.shape[0]];
        for (sequence, exact) in self.sequences.iter().zip(exact) {
            let len = sequence.query_len;
            for i in 0..len {
                let token = sequence.query_start + i;
                owned[token] = true;
                for head in 0..heads {
                    for (c, &x) in output.out.row(token, head).iter().enumerate() {
                        let exact = exact.out[(i * heads + head) * head_dim + c];
                        assert!(
                            close(x, exact, bound * most + 1e-37),
                            "{what}: query {i} of {sequence:?}, head {head}, element {c}: {x:e}, \
                             exactly {exact:e}"
                        );
                    }
                }
                for (index, &head) in self.weight_heads.iter().enumerate() {
                    let row = output.weights(index, token);
                    let (row, rest) = row.split_at(sequence.padded_len);
                    let exact = &exact.weights[(head * len + i) * sequence.padded_len..];
                    for (j, (&x, &exact)) in row.iter().zip(exact).enumerate() {
                        assert!(
                            close(x, exact, bound * exact + 2e-38),
                            "{what}: weight of query {i}, key {j} of {sequence:?}, head {head}: \
                             {x:e}, exactly {exact:e}"
                        );
                    }
                    assert!(rest.iter().all(|&x| x == 0.0), "{what}: weights past the last key");
                    let sum: f64 = row.iter().map(|&x| f64::from(x)).sum();
                    let exact: f64 = exact[..sequence.padded_len].iter().sum();
                    assert!(close(sum as f32, exact, bound), "{what}: weights add up to {sum}");
                }
            }
        }
        output.out.check_untouched(|token| owned[token]);
        for (at, x) in output.weights.iter().enumerate() {
            let (token, column) = (
                at % output.head_stride / output.query_stride,
                at % output.head_stride % output.query_stride,
            );
            let inside = column < output.keys && token < owned.len() && owned[token];
            assert!(inside || x.to_bits() == POISON.to_bits(), "{what}: wrote beside the weights");
        }
    }
}

/// `batch` with a bias that is the same for all heads.
pub fn with_bias(mut batch: Batch, bias: impl Fn(usize, usize) -> f32) -> Batch {
    let (tokens, keys) = (batch.query.shape[0], batch.key.shape[0]);
    let data = (0..tokens * keys).map(|at| bias(at / keys, at % keys)).collect();
    batch.bias = Some(OwnedBias::dense(data, 0, keys));
    batch
}

/// `batch` with a relative bias of exactly the needed length: `value(head, distance)`, and poison where no
/// query reads. If it is `shared` by all heads, `value` is called for head 0.
pub fn with_relative_bias(
    mut batch: Batch,
    shared: bool,
    mut value: impl FnMut(usize, isize) -> f32,
) -> Batch {
    let both = || batch.sequences.iter().filter(|s| s.query_len > 0 && s.key_len > 0);
    let behind = both().map(|s| s.key_len - 1).max().unwrap_or(0);
    let ahead = match batch.causal {
        true => 0,
        false => both().map(|s| s.query_len - 1).max().unwrap_or(0),
    };
    // Three floats before each head that no query reads.
    let zero = 3 + behind;
    let head_stride = zero + ahead + 1;
    let heads = if shared { 1 } else { batch.heads() };
    let mut data = vec![POISON; heads * head_stride];
    for (at, x) in data.iter_mut().enumerate().filter(|(at, _)| at % head_stride >= 3) {
        *x = value(at / head_stride, (at % head_stride) as isize - zero as isize);
    }
    batch.bias = Some(OwnedBias::relative(data, if shared { 0 } else { head_stride }, zero));
    batch
}
