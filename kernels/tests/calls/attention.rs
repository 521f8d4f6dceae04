//! Attention, its cache and its gradient.

use super::{Calls, Results, bits, poisoned, values};
#[cfg(feature = "train")]
use crate::support::data::view_heads;
use crate::support::data::view_heads_mut;
#[cfg(feature = "train")]
use simdformer_kernels::train::{
    AttentionGradients, AttentionInputs, Dropout, SavedAttention, WeightDropout,
    attention_backward, attention_backward_scratch, attention_forward_save,
};
use simdformer_kernels::{
    AttentionOptions, AttentionPrecision, Bias, Cache, CacheMut, CacheShape, CachedSequence, Dtype,
    Exec, Qkv, Sequence, SlotTable, attention, attention_cached, attention_decode,
    attention_scratch,
};

pub(super) fn calls(call: &Calls<'_>, results: &mut Results) {
    let Calls { size, .. } = *call;
    let fused = values(10, 3 * size.tokens * size.width());
    prefill(call, &fused, results);
    cached(call, &fused, results);
}

/// One sentence and several, with all weights and with dropout, forward and backward.
fn prefill(call: &Calls<'_>, fused: &[f32], results: &mut Results) {
    let Calls { exec, size } = *call;
    let Exec { isa, .. } = exec;
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
    for (sequences, options) in [
        (&[Sequence::packed(0, tokens)][..], plain),
        (&[Sequence::packed(0, tokens)], biased),
        (&several, biased),
    ] {
        let floats = attention_scratch(isa, sequences, heads, head_dim).expect("small");
        let mut scratch = poisoned(floats);
        let mut context = poisoned(tokens * size.width());
        let to = view_heads_mut(&mut context, shape).into();
        attention(exec, qkv(), sequences, &options, to, &mut scratch).expect("fits");
        results.push(("attention", bits(&context)));
        let int8 = AttentionOptions { bias: None, precision: AttentionPrecision::Int8, ..options };
        let floats = int8.scratch(isa, sequences, heads, heads, head_dim).expect("small");
        let (mut scratch, mut context) = (poisoned(floats), poisoned(context.len()));
        let to = view_heads_mut(&mut context, shape).into();
        attention(exec, qkv(), sequences, &int8, to, &mut scratch).expect("fits");
        results.push(("attention", bits(&context)));
        #[cfg(feature = "train")]
        gradient(call, qkv(), sequences, &options, results);
    }
}

/// Several sentences have dropout.
#[cfg(feature = "train")]
fn gradient(
    call: &Calls<'_>,
    qkv: Qkv<'_>,
    sequences: &[Sequence],
    options: &AttentionOptions<'_>,
    results: &mut Results,
) {
    let Calls { exec, size } = *call;
    let Exec { isa, .. } = exec;
    let (tokens, heads, head_dim) = (size.tokens, size.heads, size.head_dim);
    let shape = [tokens, heads, head_dim];
    let numbers: Vec<u32> = (0..tokens).map(|i| 7 + u32::from(i >= tokens / 3)).collect();
    let dropout = Dropout { seed: 1, step: 2, site: 3, probability: 0.25 };
    let dropout = WeightDropout::new(&dropout, &numbers).expect("a probability");
    let dropout = (sequences.len() > 1).then_some(dropout);
    let floats = attention_scratch(isa, sequences, heads, head_dim).expect("small");
    let (mut context, mut sums) = (poisoned(tokens * size.width()), poisoned(2 * tokens * heads));
    let (to, scratch) = (view_heads_mut(&mut context, shape), &mut poisoned(floats));
    let inputs = AttentionInputs { qkv, sequences, options, dropout };
    attention_forward_save(exec, &inputs, to, &mut sums, scratch).expect("fits");
    results.push(("attention_forward_save", [bits(&context), bits(&sums)].concat()));

    let d_context = values(12, tokens * size.width());
    let mut gradient = poisoned(3 * tokens * size.width());
    let mut d_bias = values(13, heads * (2 * tokens - 1));
    let floats = attention_backward_scratch(isa, sequences, heads, heads, head_dim);
    let scratch = &mut poisoned(floats.expect("small"));
    let gradients = AttentionGradients {
        bias: options.bias.map(|_| &mut d_bias[..]),
        ..AttentionGradients::fused(&mut gradient, shape).expect("as many numbers")
    };
    let saved = SavedAttention { context: view_heads(&context, shape), sums: &sums };
    let d_context = view_heads(&d_context, shape);
    attention_backward(exec, &inputs, saved, d_context, gradients, scratch).expect("fits");
    results.push(("attention_backward", [bits(&gradient), bits(&d_bias)].concat()));
}

/// Keys and values in a cache of each dtype.
fn cached(call: &Calls<'_>, fused: &[f32], results: &mut Results) {
    let Calls { exec: Exec { isa, threads }, size } = *call;
    let (tokens, heads, head_dim) = (size.tokens, size.heads, size.head_dim);
    let shape = [tokens, heads, head_dim];
    let Qkv { query, key, value } = Qkv::fused(fused, shape).expect("as many numbers");
    let options = AttentionOptions { causal: true, ..AttentionOptions::new(head_dim) };
    for dtype in [Dtype::F32, Dtype::F16] {
        let slots = CacheShape { dtype, ..CacheShape::new(2, tokens, heads, head_dim) };
        let mut data = vec![0.0; slots.buffer_len(isa).expect("small")];
        let mut cache = CacheMut::new(isa, slots, &mut data).expect("the length");
        let positions: Vec<u32> = (0..tokens as u32).collect();
        let places = vec![1; tokens];
        cache.append_with(&places, &positions, key, value, threads).expect("places");
        cache.write(0, 0, value, key).expect("a place");
        results.push(("append_with", bits(&data)));
        let cache = Cache::new(isa, slots, &data).expect("the length");
        let whole = CachedSequence { query_start: 0, query_len: tokens, slot: 1, key_len: tokens };
        let mut context = poisoned(tokens * size.width());
        let to = view_heads_mut(&mut context, shape).into();
        attention_cached(query, &cache, &[whole], &options, to, threads).expect("fits");
        results.push(("attention_cached", bits(&context)));

        let past: Vec<u32> = (0..tokens as u32).map(|j| j / 5 % 2).collect();
        let lens = vec![tokens as u32; tokens];
        let ancestry = SlotTable { lens: &lens, slots: &past, stride: 0 };
        let mut context = poisoned(tokens * size.width());
        let to = view_heads_mut(&mut context, shape);
        attention_decode(query, &cache, ancestry, &options, to, threads).expect("fits");
        results.push(("attention_decode", bits(&context)));
    }
}
