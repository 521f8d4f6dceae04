//! Attention with the options that models do not use: biases, key-value groups, padding, weights.

use crate::Digest;
use crate::random_model::Random;
use simdformer::kernels::{
    AttentionOptions, AttentionOutput, AttentionWeights, Bias, Exec, FullyMasked, Heads, HeadsMut,
    Isa, Parallelism, Qkv, Sequence, attention, attention_scratch,
};

pub(crate) fn attention_bits(isa: Isa, random: &mut Random, digest: &mut Digest) {
    for case in 0..300 {
        let head_dim = 1 + random.below(70);
        let kv_heads = 1 + random.below(3);
        let heads = kv_heads * (1 + random.below(3));
        let long = case % 12 == 0;
        let lens: Vec<(usize, usize, usize)> = (0..1 + random.below(3))
            .map(|_| {
                let queries = 1 + random.below(if long { 300 } else { 20 });
                let keys = random.below(if long { 700 } else { 40 });
                (queries, keys, keys + random.below(5))
            })
            .collect();
        let (mut tokens, mut keys) = (0, 0);
        let sequences: Vec<Sequence> = lens
            .iter()
            .map(|&(query_len, key_len, padded_len)| {
                let sequence = Sequence {
                    query_start: tokens,
                    query_len,
                    key_start: keys,
                    key_len,
                    padded_len,
                };
                tokens += query_len;
                keys += padded_len;
                sequence
            })
            .collect();
        let mut floats = |n: usize| -> Vec<f32> { (0..n).map(|_| random.symmetric()).collect() };
        let query = floats(tokens * heads * head_dim);
        let (key, value) = (floats(keys * kv_heads * head_dim), floats(keys * kv_heads * head_dim));
        let columns = keys.max(1);
        let mut bias = floats(tokens * columns);
        for (i, x) in bias.iter_mut().enumerate() {
            if i % 5 == 0 {
                *x = f32::NEG_INFINITY;
            }
        }
        let options = AttentionOptions {
            causal: random.below(2) == 0,
            bias: (random.below(3) == 0).then_some(Bias::Dense {
                data: &bias,
                head_stride: 0,
                query_stride: columns,
            }),
            fully_masked: if random.below(2) == 0 {
                FullyMasked::Zeros
            } else {
                FullyMasked::Uniform
            },
            ..AttentionOptions::new(head_dim)
        };
        let mut out = vec![f32::NAN; tokens * heads * head_dim];
        let mut shown = vec![f32::NAN; tokens * columns];
        let mut scratch =
            vec![f32::NAN; attention_scratch(isa, &sequences, kv_heads, head_dim).expect("a size")];
        let chosen = [heads - 1];
        let weights = (random.below(2) == 0).then_some(AttentionWeights {
            data: &mut shown,
            heads: &chosen,
            head_stride: 0,
            query_stride: columns,
            keys: columns,
        });
        let context = HeadsMut::new(&mut out, [tokens, heads, head_dim]).expect("heads");
        attention(
            Exec::new(
                isa,
                if random.below(2) == 0 { Parallelism::Serial } else { Parallelism::Rayon },
            ),
            Qkv {
                query: Heads::new(&query, [tokens, heads, head_dim]).expect("heads"),
                key: Heads::new(&key, [keys, kv_heads, head_dim]).expect("heads"),
                value: Heads::new(&value, [keys, kv_heads, head_dim]).expect("heads"),
            },
            &sequences,
            &options,
            AttentionOutput { weights, ..context.into() },
            &mut scratch,
        )
        .expect("attention");
        digest.floats(&out);
        digest.floats(&shown);
    }
}
