//! Attention on `[batch, heads, tokens, head_dim]` tensors with sequences of different lengths, in one call: the bits
//! of the same sequences one after the other, and what the oracle says.

use crate::support::batch::{Batch, attend, largest};
use crate::support::*;
use proptest::prelude::*;
use simdformer_kernels::{
    AttentionOptions, Cache, CacheMut, CacheShape, CachedSequence, Expected, Heads, HeadsMut, Isa,
    Qkv, Sequence, attention_cached,
};

/// A dense `[batch, heads, tokens, head_dim]`; poison where it has no token.
struct HeadsFirst {
    data: Vec<f32>,
    shape: [usize; 4],
}

impl HeadsFirst {
    /// Tokens `(start, len)` of `tensor`, each as the first tokens of a batch element.
    fn new(tensor: &Tensor, ranges: &[(usize, usize)], tokens: usize) -> Self {
        let [_, heads, head_dim] = tensor.shape;
        let shape = [ranges.len(), heads, tokens, head_dim];
        let mut all = Self { data: vec![POISON; shape.iter().product()], shape };
        for (element, &(start, len)) in ranges.iter().enumerate() {
            for (token, head) in (0..len).flat_map(|token| (0..heads).map(move |h| (token, h))) {
                let at = all.start(element, token, head);
                all.data[at..][..head_dim].copy_from_slice(tensor.row(start + token, head));
            }
        }
        all
    }

    fn start(&self, element: usize, token: usize, head: usize) -> usize {
        let [_, heads, tokens, head_dim] = self.shape;
        ((element * heads + head) * tokens + token) * head_dim
    }

    fn view(&self) -> Heads<'_> {
        Heads::heads_first(&self.data, self.shape).expect("space")
    }

    fn view_mut(&mut self) -> HeadsMut<'_> {
        HeadsMut::heads_first(&mut self.data, self.shape).expect("space")
    }
}

/// Sequences `(queries, keys, padding)`, and spare tokens of a batch element.
type Lens = (Vec<(usize, usize, usize)>, usize);

fn lens() -> impl Strategy<Value = Lens> {
    (prop::collection::vec((0usize..20, 0usize..40, 0usize..4), 1..5), 0usize..3)
}

proptest! {
    #![proptest_config(property(64))]

    #[test]
    fn ragged_sequences_have_the_bits_of_packed_ones(
        (lens, spare) in lens(),
        (kv_heads, group, head_dim) in (1usize..4, 1usize..4, 1usize..40),
        (causal, crew, seed) in (any::<bool>(), 0..CREWS.len(), any::<u64>()),
    ) {
        let sizes = [kv_heads * group, kv_heads, head_dim];
        let batch = Batch { causal, ..Batch::new(&lens, sizes, [0, 1, 2], seed) };
        let queries: Vec<_> = batch.sequences.iter().map(|s| (s.query_start, s.query_len)).collect();
        let keys: Vec<_> = batch.sequences.iter().map(|s| (s.key_start, s.padded_len)).collect();
        let longest = |of: &[(usize, usize)]| of.iter().map(|&(_, len)| len).max().unwrap_or(0);
        let [query_tokens, key_tokens] = [longest(&queries) + spare, longest(&keys) + spare];
        let query = HeadsFirst::new(&batch.query, &queries, query_tokens);
        let key = HeadsFirst::new(&batch.key, &keys, key_tokens);
        let value = HeadsFirst::new(&batch.value, &keys, key_tokens);
        let sequences: Vec<Sequence> = (batch.sequences.iter().enumerate())
            .map(|(element, &sequence)| Sequence {
                query_start: element * query_tokens,
                key_start: element * key_tokens,
                ..sequence
            })
            .collect();
        let exact = batch.exact();
        let bound = batch.bound() * largest(&batch.value.data) + 1e-30;
        for isa in all_isas() {
            let expected = batch.attention(isa, SERIAL).out;
            let mut out = HeadsFirst::new(&expected, &vec![(0, 0); lens.len()], query_tokens);
            let qkv = Qkv { query: query.view(), key: key.view(), value: value.view() };
            let options = batch.options();
            CREWS[crew]
                .with_parallelism(|threads| attend(isa, qkv, &sequences, &options, out.view_mut(), threads))
                .expect("a batch that fits");
            let packed = HeadsFirst::new(&expected, &queries, query_tokens);
            prop_assert_eq!(bits(&out.data), bits(&packed.data), "{}", isa);
            for (element, exact) in exact.iter().enumerate() {
                for (row, exact) in exact.out.chunks_exact(head_dim).enumerate() {
                    let start = out.start(element, row / sizes[0], row % sizes[0]);
                    for (&y, exact) in out.data[start..][..head_dim].iter().zip(exact) {
                        assert_close(y, *exact, bound, isa);
                    }
                }
            }

            // The same queries on keys in a cache, of which they are not padded.
            let expected = batch.attention_cached(isa, SERIAL).out;
            let (shape, data) = batch.cache(isa);
            let starts = sequences.iter().map(|sequence| sequence.query_start);
            let cached: Vec<CachedSequence> = batch.cached_sequences().into_iter().zip(starts)
                .map(|(cached, query_start)| CachedSequence { query_start, ..cached })
                .collect();
            let cache = Cache::new(isa, shape, &data).expect("the length");
            out.data.fill(POISON);
            CREWS[crew]
                .with_parallelism(|threads| {
                    let to = out.view_mut().into();
                    attention_cached(query.view(), &cache, &cached, &options, to, threads)
                })
                .expect("a batch that fits");
            let packed = HeadsFirst::new(&expected, &queries, query_tokens);
            prop_assert_eq!(bits(&out.data), bits(&packed.data), "{}", isa);
        }
    }
}

#[test]
fn a_sequence_in_two_batch_elements_is_an_error() {
    let isa = Isa::best();
    let data = [0.5; 2 * 2 * 3 * 4];
    let ragged = Heads::heads_first(&data, [2, 2, 3, 4]).expect("space");
    let plain = view_heads(&data, [6, 2, 4]);
    let sequence = Sequence::packed(2, 2);
    let call = |query, key, value, ragged_out: bool| {
        let mut out = [POISON; 2 * 2 * 3 * 4];
        let to = match ragged_out {
            true => HeadsMut::heads_first(&mut out, [2, 2, 3, 4]),
            false => HeadsMut::new(&mut out, [6, 2, 4]),
        };
        let (qkv, options) = (Qkv { query, key, value }, AttentionOptions::new(4));
        let to = to.expect("space");
        let result = attend(isa, qkv, &[sequence], &options, to, SERIAL);
        assert!(result.is_ok() || is_poison(&out));
        result
    };
    assert_eq!(call(plain, plain, plain, false), Ok(()));
    let end = "end in a batch element";
    let error = Err(errors::item(end, ("sequence", 0), Expected::AtMost(3), 4));
    for (query, key, value, out) in [
        (ragged, plain, plain, false),
        (plain, ragged, plain, false),
        (plain, plain, ragged, false),
        (plain, plain, plain, true),
    ] {
        assert_eq!(call(query, key, value, out), error);
    }

    // So are a block in two elements, and a write of both elements to one slot.
    assert_eq!(ragged.block(3, 3).expect("the second element").row(1, 1), ragged.row(4, 1));
    let error = errors::size(end, "a block of tokens", Expected::AtMost(3), 4);
    assert_eq!(ragged.block(2, 2).err(), Some(error));
    let shape = CacheShape::new(2, 6, 2, 4);
    let mut memory = vec![POISON; shape.buffer_len(isa).expect("small")];
    let mut cache = CacheMut::new(isa, shape, &mut memory).expect("the length");
    let error = errors::size(end, "key", Expected::AtMost(3), 6);
    assert_eq!(cache.write(0, 0, ragged, ragged), Err(error));
    // A token each is written from wherever it is.
    cache.append(&[0, 0, 0, 1, 1, 1], &[0, 1, 2, 0, 1, 2], ragged, ragged).expect("it fits");
}

#[test]
fn appended_tokens_are_those_of_their_batch_element() {
    let data: Vec<f32> = (0..2 * 2 * 3 * 4).map(|i| i as f32).collect();
    let ragged = Heads::heads_first(&data, [2, 2, 3, 4]).expect("space");
    for isa in all_isas() {
        let shape = CacheShape::new(2, 3, 2, 4);
        let mut memory = vec![POISON; shape.buffer_len(isa).expect("small")];
        let mut cache = CacheMut::new(isa, shape, &mut memory).expect("the length");
        cache.append(&[0, 0, 0, 1, 1, 1], &[0, 1, 2, 0, 1, 2], ragged, ragged).expect("it fits");
        let mut out = [0.0; 4];
        for (token, head) in (0..6).flat_map(|token| [(token, 0), (token, 1)]) {
            cache.as_view().read_key(token / 3, token % 3, head, &mut out).expect("written");
            assert_eq!(out[0], (((token / 3 * 2 + head) * 3 + token % 3) * 4) as f32);
            assert_eq!(Some(&out[..]), ragged.row(token, head));
            cache.as_view().read_value(token / 3, token % 3, head, &mut out).expect("written");
            assert_eq!(Some(&out[..]), ragged.row(token, head));
        }
    }
}

#[test]
fn sizes_that_overflow_or_do_not_fit_are_errors() {
    let mut data = [0.0; 23];
    assert!(errors::is_short_view(Heads::heads_first(&data, [2, 2, 3, 2]).err(), 24, 23));
    assert!(errors::is_short_view(HeadsMut::heads_first(&mut data, [2, 2, 3, 2]).err(), 24, 23));
    const MAX: usize = usize::MAX;
    for shape in [[MAX, 1, 2, 1], [2, MAX, 1, 1], [2, 2, MAX, 0], [1, 1, 2, MAX]] {
        let found = Heads::heads_first(&data, shape).err();
        assert!(errors::is_large_view(found), "{shape:?}");
    }
    for shape in [[0, 2, 3, 2], [2, 0, 3, 2], [2, 2, 0, 2], [2, 2, 3, 0]] {
        let view = Heads::heads_first(&[], shape).expect("no element");
        assert_eq!([view.tokens(), view.heads()], [shape[0] * shape[2], shape[1]]);
    }
}
