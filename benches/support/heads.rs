//! Attention on operands in the layout `[tokens, heads, head_dim]`.

use crate::buffer::Buffer;
use crate::work::Work;
#[cfg(feature = "train")]
use simdformer_kernels::train;
use simdformer_kernels::{
    AttentionOptions, AttentionPrecision, Bias, Cache, CacheMut, CacheShape, CachedSequence, Dtype,
    Exec, Heads, HeadsMut, Isa, Qkv, Sequence, SlotTable, attention, attention_cached,
    attention_decode, attention_scratch,
};
use std::hint::black_box;

/// Sentences, heads, queries and keys of a sentence, head size.
#[derive(Clone, Copy)]
pub(crate) struct Shape {
    pub(crate) batch: usize,
    pub(crate) heads: usize,
    pub(crate) queries: usize,
    pub(crate) keys: usize,
    pub(crate) head_dim: usize,
}

/// Which keys a query sees.
#[derive(Clone, Copy, PartialEq)]
pub(crate) enum Mask {
    /// All keys.
    None,
    /// The keys up to its own position.
    Causal,
    /// All keys but the last quarter.
    Padded,
}

/// The bias that is added to the scores.
#[derive(Clone, Copy, PartialEq)]
pub(crate) enum Under {
    Nothing,
    /// A relative bias with a table for each head.
    Relative,
}

impl Under {
    /// A table for `shape`, and the options that use it.
    fn table(self, shape: Shape) -> Buffer {
        let distances = 2 * shape.keys.max(shape.queries) - 1;
        Buffer::random(if self == Self::Nothing { 0 } else { shape.heads * distances }, 7)
    }

    fn bias(self, shape: Shape, table: &[f32]) -> Option<Bias<'_>> {
        let positions = shape.keys.max(shape.queries);
        (self == Self::Relative).then_some(Bias::Relative {
            data: table,
            head_stride: 2 * positions - 1,
            zero: positions - 1,
        })
    }
}

impl Shape {
    /// Eight heads of 64.
    pub(crate) const fn new(batch: usize, queries: usize, keys: usize) -> Self {
        Self { batch, heads: 8, queries, keys, head_dim: 64 }
    }

    /// `batch x heads x queries x keys x head_dim`.
    pub(crate) fn name(self) -> String {
        let Self { batch, heads, queries, keys, head_dim } = self;
        format!("{batch}x{heads}x{queries}x{keys}x{head_dim}")
    }

    fn tokens(self, per_sentence: usize) -> [usize; 3] {
        [self.batch * per_sentence, self.heads, self.head_dim]
    }

    fn floats(self, per_sentence: usize) -> usize {
        self.tokens(per_sentence).iter().product()
    }

    /// Multiplications and additions of both products, for visible keys only.
    pub(crate) fn flops(self, mask: Mask) -> f64 {
        let Self { queries, keys, .. } = self;
        let seen = match mask {
            Mask::None => queries * keys,
            Mask::Padded => queries * (keys - keys / 4),
            Mask::Causal => (0..queries).map(|i| (i + 1 + keys).saturating_sub(queries)).sum(),
        };
        4.0 * (self.batch * self.heads * self.head_dim) as f64 * seen as f64
    }

    /// One sequence for each sentence.
    fn sequences(self, mask: Mask) -> Vec<Sequence> {
        let Self { batch, queries, keys, .. } = self;
        let seen = if mask == Mask::Padded { keys - keys / 4 } else { keys };
        let sequence = |i| Sequence {
            query_start: i * queries,
            query_len: queries,
            key_start: i * keys,
            key_len: seen,
            padded_len: keys,
        };
        (0..batch).map(sequence).collect()
    }

    /// The bytes of keys and values.
    pub(crate) fn key_value_bytes(self) -> f64 {
        8.0 * self.floats(self.keys) as f64
    }
}

/// Prefill: the keys are packed into panels within the call.
pub(crate) fn prefill(isa: Isa, shape: Shape, mask: Mask, under: Under) -> Work {
    let table = under.table(shape);
    let Shape { heads, queries, keys, head_dim, .. } = shape;
    let query = Buffer::random(shape.floats(queries), 1);
    let key = Buffer::random(shape.floats(keys), 2);
    let value = Buffer::random(shape.floats(keys), 3);
    let mut out = Buffer::zeros(shape.floats(queries));
    let sequences = shape.sequences(mask);
    let needed = attention_scratch(isa, &sequences, heads, head_dim).expect("scratch");
    let mut scratch = Buffer::zeros(needed);
    let causal = mask == Mask::Causal;
    Work::new(shape.flops(mask), shape.key_value_bytes(), move |parallelism| {
        let bias = under.bias(shape, &table);
        let options = AttentionOptions { causal, bias, ..AttentionOptions::new(head_dim) };
        attention(
            Exec::new(isa, parallelism),
            Qkv {
                query: Heads::new(black_box(&query), shape.tokens(queries)).expect("query"),
                key: Heads::new(&key, shape.tokens(keys)).expect("key"),
                value: Heads::new(&value, shape.tokens(keys)).expect("value"),
            },
            &sequences,
            &options,
            HeadsMut::new(&mut out, shape.tokens(queries)).expect("out").into(),
            &mut scratch,
        )
        .expect("attention");
    })
}

/// [`prefill`] with int8 products. The floating-point operations are those of f32.
pub(crate) fn prefill_int8(isa: Isa, shape: Shape, mask: Mask) -> Work {
    let Shape { heads, queries, keys, head_dim, .. } = shape;
    let query = Buffer::random(shape.floats(queries), 1);
    let key = Buffer::random(shape.floats(keys), 2);
    let value = Buffer::random(shape.floats(keys), 3);
    let mut out = Buffer::zeros(shape.floats(queries));
    let sequences = shape.sequences(mask);
    let options = AttentionOptions {
        causal: mask == Mask::Causal,
        precision: AttentionPrecision::Int8,
        ..AttentionOptions::new(head_dim)
    };
    let needed = options.scratch(isa, &sequences, heads, heads, head_dim).expect("scratch");
    let mut scratch = Buffer::zeros(needed);
    Work::new(shape.flops(mask), shape.key_value_bytes(), move |parallelism| {
        attention(
            Exec::new(isa, parallelism),
            Qkv {
                query: Heads::new(black_box(&query), shape.tokens(queries)).expect("query"),
                key: Heads::new(&key, shape.tokens(keys)).expect("key"),
                value: Heads::new(&value, shape.tokens(keys)).expect("value"),
            },
            &sequences,
            &options,
            HeadsMut::new(&mut out, shape.tokens(queries)).expect("out").into(),
            &mut scratch,
        )
        .expect("attention");
    })
}

/// The part of a training step: the forward pass, which saves statistics, the gradient, or both.
#[cfg(feature = "train")]
#[derive(Clone, Copy, PartialEq)]
pub(crate) enum Part {
    Forward,
    Gradient,
    Both,
}

/// Self-attention of training on one fused buffer. The gradient has five products, the forward pass two.
#[cfg(feature = "train")]
pub(crate) fn training(isa: Isa, shape: Shape, mask: Mask, under: Under, part: Part) -> Work {
    let table = under.table(shape);
    let mut d_table = under.table(shape);
    let Shape { heads, keys, head_dim, .. } = shape;
    let (tokens, floats) = (shape.tokens(keys), shape.floats(keys));
    let fused = Buffer::random(3 * floats, 1);
    let d_context = Buffer::random(floats, 2);
    let (mut gradient, mut context) = (Buffer::zeros(3 * floats), Buffer::zeros(floats));
    let mut sums = Buffer::zeros(2 * tokens[0] * heads);
    let sequences = shape.sequences(mask);
    let needed = attention_scratch(isa, &sequences, heads, head_dim).expect("scratch");
    let mut scratch = Buffer::zeros(needed);
    let needed = train::attention_backward_scratch(isa, &sequences, heads, heads, head_dim);
    let mut backward_scratch = Buffer::zeros(needed.expect("scratch"));
    let causal = mask == Mask::Causal;
    let products = match part {
        Part::Forward => 2.0,
        Part::Gradient => 5.0,
        Part::Both => 7.0,
    };
    let mut kept = false;
    Work::new(0.5 * products * shape.flops(mask), 0.0, move |parallelism| {
        let bias = under.bias(shape, &table);
        let options = AttentionOptions { causal, bias, ..AttentionOptions::new(head_dim) };
        let qkv = Qkv::fused(black_box(&fused), tokens).expect("fused");
        let (sequences, options) = (&sequences[..], &options);
        let inputs = train::AttentionInputs { qkv, sequences, options, dropout: None };
        if !kept || part != Part::Gradient {
            let context = HeadsMut::new(&mut context, tokens).expect("context");
            let (sums, scratch) = (&mut sums, &mut scratch);
            train::attention_forward_save(
                Exec::new(isa, parallelism),
                &inputs,
                context,
                sums,
                scratch,
            )
            .expect("attention");
            kept = true;
        }
        if part == Part::Forward {
            return;
        }
        let context = Heads::new(&context, tokens).expect("context");
        let gradients = train::AttentionGradients {
            bias: (under == Under::Relative).then_some(&mut d_table),
            ..train::AttentionGradients::fused(&mut gradient, tokens).expect("gradients")
        };
        train::attention_backward(
            Exec::new(isa, parallelism),
            &inputs,
            train::SavedAttention { context, sums: &sums },
            Heads::new(&d_context, tokens).expect("gradient"),
            gradients,
            &mut backward_scratch,
        )
        .expect("gradient");
    })
}

/// A cache of `slots` slots, filled up to `keys`.
fn filled(isa: Isa, dtype: Dtype, slots: usize, shape: Shape) -> (CacheShape, Buffer) {
    let Shape { heads, keys, head_dim, .. } = shape;
    let layout = CacheShape { dtype, ..CacheShape::new(slots, keys, heads, head_dim) };
    let mut data = Buffer::zeros(layout.buffer_len(isa).expect("length"));
    let mut cache = CacheMut::new(isa, layout, &mut data).expect("cache");
    for slot in 0..slots {
        let key = Buffer::random(keys * heads * head_dim, 2 * slot as u64 + 2);
        let value = Buffer::random(keys * heads * head_dim, 2 * slot as u64 + 3);
        let tokens = [keys, heads, head_dim];
        let key = Heads::new(&key, tokens).expect("key");
        let value = Heads::new(&value, tokens).expect("value");
        cache.write(slot, 0, key, value).expect("write");
    }
    (layout, data)
}

/// Decoding: the queries of each sentence attend to the keys of its KV slot.
pub(crate) fn cached(isa: Isa, dtype: Dtype, shape: Shape, under: Under) -> Work {
    let table = under.table(shape);
    let Shape { batch, queries, keys, head_dim, .. } = shape;
    let query = Buffer::random(shape.floats(queries), 1);
    let mut out = Buffer::zeros(shape.floats(queries));
    let (layout, data) = filled(isa, dtype, batch, shape);
    let sequences: Vec<_> = (0..batch)
        .map(|slot| CachedSequence {
            query_start: slot * queries,
            query_len: queries,
            slot,
            key_len: keys,
        })
        .collect();
    let bytes = in_storage(shape.key_value_bytes(), dtype);
    Work::new(shape.flops(Mask::None), bytes, move |parallelism| {
        let bias = under.bias(shape, &table);
        let options = AttentionOptions { bias, ..AttentionOptions::new(head_dim) };
        attention_cached(
            Heads::new(black_box(&query), shape.tokens(queries)).expect("query"),
            &Cache::new(isa, layout, &data).expect("cache"),
            &sequences,
            &options,
            HeadsMut::new(&mut out, shape.tokens(queries)).expect("out").into(),
            parallelism,
        )
        .expect("attention");
    })
}

/// A step of beam search. The hypotheses of a sentence (`queries` of them, for `batch` sentences) share the
/// first half of their keys, and each has the second half for itself.
pub(crate) fn step(isa: Isa, dtype: Dtype, shape: Shape, under: Under) -> Work {
    let table = under.table(shape);
    let Shape { batch, queries: beams, keys, head_dim, .. } = shape;
    let rows = batch * beams;
    let query = Buffer::random(shape.floats(beams), 1);
    let mut out = Buffer::zeros(shape.floats(beams));
    let (layout, data) = filled(isa, dtype, rows, shape);
    let lens = vec![keys as u32; rows];
    let ancestry: Vec<u32> = (0..rows)
        .flat_map(|row| (0..keys).map(move |j| if j < keys / 2 { row - row % beams } else { row }))
        .map(|slot| slot as u32)
        .collect();
    let bytes = in_storage(step_bytes(shape), dtype);
    Work::new(shape.flops(Mask::None), bytes, move |parallelism| {
        let bias = under.bias(shape, &table);
        let options = AttentionOptions { bias, ..AttentionOptions::new(head_dim) };
        attention_decode(
            Heads::new(black_box(&query), shape.tokens(beams)).expect("query"),
            &Cache::new(isa, layout, &data).expect("cache"),
            SlotTable { lens: &lens, slots: &ancestry, stride: keys },
            &options,
            HeadsMut::new(&mut out, shape.tokens(beams)).expect("out"),
            parallelism,
        )
        .expect("attention");
    })
}

/// The bytes of values that would take `bytes` in f32.
pub(crate) fn in_storage(bytes: f64, dtype: Dtype) -> f64 {
    if dtype == Dtype::F16 { bytes / 2.0 } else { bytes }
}

/// The bytes of keys and values in f32 that a [`step`] reads, shared ones counted once.
pub(crate) fn step_bytes(shape: Shape) -> f64 {
    let shared = shape.keys / 2;
    let positions = shape.batch * (shared + shape.queries * (shape.keys - shared));
    8.0 * (positions * shape.heads * shape.head_dim) as f64
}
