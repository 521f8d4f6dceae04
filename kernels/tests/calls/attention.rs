//! Attention, its cache and its gradient.

use super::{Calls, Results, bits, poisoned, values};
use simdformer_kernels::train::{
    AttentionGradients, AttentionInputs, Dropout, SavedAttention, WeightDropout,
    attention_backward, attention_backward_scratch, attention_forward_save,
};
use simdformer_kernels::{
    AttentionOptions, Bias, Cache, CacheMut, CacheShape, CachedSequence, Dtype, Heads, HeadsMut,
    Qkv, Sequence, SlotTable, attention, attention_cached, attention_decode, attention_scratch,
};

pub(super) fn calls(call: &Calls<'_>, results: &mut Results) {
    let Calls { size, .. } = *call;
    let fused = values(10, 3 * size.tokens * size.width());
    prefill(call, &fused, results);
    cached(call, &fused, results);
}

/// One sentence and several, with all weights and with dropout, forward and backward.
fn prefill(call: &Calls<'_>, fused: &[f32], results: &mut Results) {
    let Calls { isa, size, parallelism } = *call;
    let (tokens, heads, head_dim) = (size.tokens, size.heads, size.head_dim);
    let shape = [tokens, heads, head_dim];
    let qkv = || Qkv::fused(fused, shape).expect("as many numbers");
    let distances = values(11, heads * (2 * tokens - 1));
    let relative =
        Bias::Relative { data: &distances, head_stride: 2 * tokens - 1, zero: tokens - 1 };
    let plain = AttentionOptions::new(head_dim);
    let biased = AttentionOptions { causal: true, bias: Some(relative), ..plain };
    let third = tokens / 3;
    let several = [Sequence::packed(0, third), Sequence::packed(third, tokens - third)];
    let numbers: Vec<u32> = (0..tokens).map(|i| 7 + u32::from(i >= third)).collect();
    let dropout = Dropout { seed: 1, step: 2, site: 3, probability: 0.25 };
    let dropout = WeightDropout::new(&dropout, &numbers).expect("a probability");
    for (sequences, options, dropout) in [
        (&[Sequence::packed(0, tokens)][..], plain, None),
        (&[Sequence::packed(0, tokens)], biased, None),
        (&several, biased, Some(dropout)),
    ] {
        let floats = attention_scratch(isa, sequences, heads, head_dim).expect("small");
        let mut scratch = poisoned(floats);
        let mut context = poisoned(tokens * size.width());
        let to = HeadsMut::new(&mut context, shape).expect("as many numbers").into();
        attention(isa, qkv(), sequences, &options, to, &mut scratch, parallelism).expect("fits");
        results.push(("attention", bits(&context)));

        let mut sums = poisoned(2 * tokens * heads);
        let to = HeadsMut::new(&mut context, shape).expect("as many numbers");
        let scratch = &mut scratch;
        let inputs = AttentionInputs { qkv: qkv(), sequences, options: &options, dropout };
        attention_forward_save(isa, &inputs, to, &mut sums, scratch, parallelism).expect("fits");
        results.push(("attention_forward_save", [bits(&context), bits(&sums)].concat()));

        let d_context = values(12, tokens * size.width());
        let mut gradient = poisoned(fused.len());
        let mut d_bias = values(13, distances.len());
        let floats = attention_backward_scratch(isa, sequences, heads, heads, head_dim);
        let context = Heads::new(&context, shape).expect("as many numbers");
        let gradients = AttentionGradients {
            bias: options.bias.map(|_| &mut d_bias[..]),
            ..AttentionGradients::fused(&mut gradient, shape).expect("as many numbers")
        };
        attention_backward(
            isa,
            &inputs,
            SavedAttention { context, sums: &sums },
            Heads::new(&d_context, shape).expect("as many numbers"),
            gradients,
            &mut poisoned(floats.expect("small")),
            parallelism,
        )
        .expect("fits");
        results.push(("attention_backward", [bits(&gradient), bits(&d_bias)].concat()));
    }
}

/// Keys and values in a cache of each dtype.
fn cached(call: &Calls<'_>, fused: &[f32], results: &mut Results) {
    let Calls { isa, size, parallelism } = *call;
    let (tokens, heads, head_dim) = (size.tokens, size.heads, size.head_dim);
    let shape = [tokens, heads, head_dim];
    let Qkv { query, key, value } = Qkv::fused(fused, shape).expect("as many numbers");
    let options = AttentionOptions { causal: true, ..AttentionOptions::new(head_dim) };
    for dtype in [Dtype::F32, Dtype::F16] {
        let slots = CacheShape { dtype, ..CacheShape::new(2, tokens, heads, head_dim) };
        let mut data = vec![0.0; slots.len(isa).expect("small")];
        let mut cache = CacheMut::new(isa, slots, &mut data).expect("the length");
        let positions: Vec<u32> = (0..tokens as u32).collect();
        let places = vec![1; tokens];
        cache.append_with(&places, &positions, key, value, parallelism).expect("places");
        cache.write(0, 0, value, key).expect("a place");
        results.push(("append_with", bits(&data)));
        let cache = Cache::new(isa, slots, &data).expect("the length");
        let whole = CachedSequence { query_start: 0, query_len: tokens, slot: 1, key_len: tokens };
        let mut context = poisoned(tokens * size.width());
        let to = HeadsMut::new(&mut context, shape).expect("as many numbers").into();
        attention_cached(query, &cache, &[whole], &options, to, parallelism).expect("fits");
        results.push(("attention_cached", bits(&context)));

        let past: Vec<u32> = (0..tokens as u32).map(|j| j / 5 % 2).collect();
        let lens = vec![tokens as u32; tokens];
        let ancestry = SlotTable { lens: &lens, slots: &past, stride: 0 };
        let mut context = poisoned(tokens * size.width());
        let to = HeadsMut::new(&mut context, shape).expect("as many numbers");
        attention_decode(query, &cache, ancestry, &options, to, parallelism).expect("fits");
        results.push(("attention_decode", bits(&context)));
    }
}
