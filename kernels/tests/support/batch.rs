//! A batch for attention: tensors, sequences and options, the ways to run it, and the comparison with the
//! oracle.

use super::{POISON, Random, Tensor, UNIT, poisoned};
use simdformer_kernels::{
    AttentionOptions, AttentionOutput, AttentionWeights, Bias, Cache, CacheMut, CacheShape,
    CachedSequence, Dtype, Error, Exec, FullyMasked, Heads, HeadsMut, Isa, Parallelism, Qkv,
    Sequence, SlotTable, attention, attention_cached, attention_decode, attention_scratch,
    reference,
};

/// `attention` with a scratch of exactly the documented length, which holds poison.
pub fn attend<'o>(
    isa: Isa,
    qkv: Qkv<'_>,
    sequences: &[Sequence],
    options: &AttentionOptions<'_>,
    output: impl Into<AttentionOutput<'o>>,
    parallelism: Parallelism<'_>,
) -> Result<(), Error> {
    let floats = attention_scratch(isa, sequences, qkv.key.heads(), qkv.key.head_dim())?;
    let mut scratch = poisoned(floats);
    attention(Exec::new(isa, parallelism), qkv, sequences, options, output.into(), &mut scratch)
}

/// A cache of poison into which `fill` has written.
pub fn cache_with(isa: Isa, shape: CacheShape, fill: impl FnOnce(&mut CacheMut<'_>)) -> Vec<f32> {
    let poison = if shape.dtype == Dtype::F16 { POISONED_HALVES } else { POISON };
    let mut data = vec![poison; shape.buffer_len(isa).expect("a small size")];
    fill(&mut CacheMut::new(isa, shape, &mut data).expect("the length"));
    data
}

/// `attention_cached` of one sequence, whose queries begin at token 0.
pub fn attend_slot(
    query: Heads<'_>,
    cache: &Cache<'_>,
    (slot, key_len): (usize, usize),
    options: &AttentionOptions<'_>,
    out: HeadsMut<'_>,
) {
    let of = CachedSequence { query_start: 0, query_len: query.tokens(), slot, key_len };
    attention_cached(query, cache, &[of], options, out.into(), Parallelism::Serial).expect("a fit");
}

/// `attention_decode` of one hypothesis whose keys are in `slots`.
pub fn attend_step(
    query: Heads<'_>,
    cache: &Cache<'_>,
    slots: &[u32],
    options: &AttentionOptions<'_>,
    out: HeadsMut<'_>,
) {
    let table = SlotTable { lens: &[slots.len() as u32], slots, stride: slots.len() };
    attention_decode(query, cache, table, options, out, Parallelism::Serial).expect("a fit");
}

/// The largest magnitude of the finite values.
pub fn largest(values: &[f32]) -> f64 {
    let finite = values.iter().filter(|x| x.is_finite());
    finite.fold(0.0, |most, &x| most.max(f64::from(x.abs())))
}

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

    pub fn qkv(&self) -> Qkv<'_> {
        Qkv { query: self.query.view(), key: self.key.view(), value: self.value.view() }
    }

    /// The most keys that a sequence has, with and without padding.
    fn longest(&self) -> (usize, usize) {
        let most = |of: fn(&Sequence) -> usize| self.sequences.iter().map(of).max().unwrap_or(0);
        (most(|s| s.padded_len), most(|s| s.key_len))
    }

    pub fn options(&self) -> AttentionOptions<'_> {
        AttentionOptions {
            scale: self.scale,
            causal: self.causal,
            bias: self.bias.as_ref().map(OwnedBias::view),
            fully_masked: self.fully_masked,
            ..AttentionOptions::new(1)
        }
    }

    /// Memory for the output and the weights.
    pub fn output(&self) -> Output {
        let keys = self.longest().0 + 2;
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

    pub fn attention(&self, isa: Isa, parallelism: Parallelism<'_>) -> Output {
        let mut output = self.output();
        let (out, weights) = self.weights(&mut output);
        let to = AttentionOutput { weights, ..out.view_mut().into() };
        attend(isa, self.qkv(), &self.sequences, &self.options(), to, parallelism)
            .expect("a batch that fits");
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
        let shape = CacheShape {
            dtype: self.dtype,
            ..CacheShape::new(
                self.sequences.len(),
                self.longest().1 + 3,
                self.kv_heads(),
                self.head_dim(),
            )
        };
        let data = cache_with(isa, shape, |cache| {
            for (sequence, cached) in self.sequences.iter().zip(self.cached_sequences()) {
                let (start, len) = (sequence.key_start, sequence.key_len);
                for part in [0..len / 3, len / 3..len] {
                    let tokens = start + part.start..start + part.end;
                    let (key, value) = (self.key.tokens(tokens.clone()), self.value.tokens(tokens));
                    cache
                        .write(cached.slot, part.start, key.view(), value.view())
                        .expect("a place");
                }
            }
        });
        (shape, data)
    }

    /// The sequences on [`Batch::cache`].
    pub fn cached_sequences(&self) -> Vec<CachedSequence> {
        let slots = (0..self.sequences.len()).rev();
        let cached =
            |(slot, &Sequence { query_start, query_len, key_len, .. }): (usize, &Sequence)| {
                CachedSequence { query_start, query_len, slot, key_len }
            };
        slots.zip(&self.sequences).map(cached).collect()
    }

    pub fn attention_cached(&self, isa: Isa, parallelism: Parallelism<'_>) -> Output {
        let (shape, data) = self.cache(isa);
        self.attention_in(&Cache::new(isa, shape, &data).expect("that length"), parallelism)
    }

    /// On a cache that has the keys and values of [`Batch::cache`].
    pub fn attention_in(&self, cache: &Cache<'_>, parallelism: Parallelism<'_>) -> Output {
        let mut output = self.output();
        let (out, weights) = self.weights(&mut output);
        let to = AttentionOutput { weights, ..out.view_mut().into() };
        let (query, sequences, options) =
            (self.query.view(), self.cached_sequences(), self.options());
        attention_cached(query, cache, &sequences, &options, to, parallelism)
            .expect("a batch that fits");
        output
    }

    /// The result of the oracle for each sequence.
    pub fn exact(&self) -> Vec<Exact> {
        let exact = |&sequence: &Sequence| {
            let rows = sequence.query_len * self.heads();
            let mut out = vec![f64::NAN; rows * self.head_dim()];
            let mut weights = vec![f64::NAN; rows * sequence.padded_len];
            let (qkv, options) = (self.qkv(), self.options());
            reference::attention::attention(qkv, sequence, &options, &mut out, &mut weights)
                .expect("a batch that fits");
            Exact { out, weights }
        };
        self.sequences.iter().map(exact).collect()
    }

    /// The documented bound, relative to the largest value: `8 u (head_dim scale max|q| max|k| +
    /// max|bias| + keys / 8 + 8)`.
    pub fn bound(&self) -> f64 {
        let bias = self.bias.as_ref().map_or(0.0, |bias| largest(&bias.data));
        let keys = self.longest().0;
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
        let most = largest(&self.value.data);
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
