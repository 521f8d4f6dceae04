//! The same bits every time: alone or in a batch, on any number of threads, prefilled or decoded token by
//! token, in one KV slot or spread over several.
use crate::support::batch::{
    Batch, OwnedBias, attend_slot, attend_step, cache_with, with_relative_bias,
};
use crate::support::*;
use simdformer_kernels::{
    AttentionOptions, Cache, CacheShape, CachedSequence, Dtype, Isa, Parallelism, Sequence,
    SlotTable, attention_cached, attention_decode,
};

const STORAGES: [Dtype; 2] = [Dtype::F32, Dtype::F16];

/// Every instruction set with every dtype of a cache.
fn sets() -> impl Iterator<Item = (Isa, Dtype)> {
    all_isas().into_iter().flat_map(|isa| STORAGES.map(|dtype| (isa, dtype)))
}

#[derive(Clone, Copy, PartialEq)]
enum With {
    Nothing,
    /// A dense bias with some minus infinities.
    Dense,
    /// A relative bias.
    Relative,
    /// A relative bias with some minus infinities.
    Hiding,
}

/// Several sequences, some of them large enough to be split into tasks.
fn large(causal: bool, bias: With, head_dim: usize) -> Batch {
    let lens = [(130, 130, 4), (1, 300, 0), (0, 9, 1), (65, 300, 0), (300, 41, 2)];
    let mut batch = Batch::new(&lens, [6, 3, head_dim], [0, 1, 2], head_dim as u64);
    batch.causal = causal;
    batch.weight_heads = vec![4, 0];
    let mut random = Random::new(5);
    let mut value = |hides: bool| {
        if hides && random.below(9) == 0 { f32::NEG_INFINITY } else { random.value() }
    };
    match bias {
        With::Nothing => batch,
        With::Dense => {
            let data = (0..batch.query.shape[0] * 300).map(|_| value(true)).collect();
            batch.bias = Some(OwnedBias::dense(data, 0, 300));
            batch
        }
        With::Relative | With::Hiding => {
            with_relative_bias(batch, false, |_, _| value(bias == With::Hiding))
        }
    }
}

#[test]
fn threads_do_not_change_a_bit() {
    let all = [
        (false, With::Nothing, 64),
        (true, With::Nothing, 64),
        (true, With::Nothing, 37),
        (true, With::Dense, 20),
        (false, With::Relative, 64),
        (true, With::Hiding, 20),
    ];
    for (case, (causal, bias, head_dim)) in all.into_iter().enumerate() {
        let floats = large(causal, bias, head_dim);
        for (isa, dtype) in sets() {
            let halves = dtype == Dtype::F16;
            let some = brief() || (!full() && isa != Isa::best());
            if some && halves != case.is_multiple_of(2) {
                continue;
            }
            let batch = in_storage(&floats, dtype);
            let serial = batch.attention(isa, SERIAL).bits();
            for crew in crews_of(isa, case) {
                // Only a cache can be f16.
                if full() || !halves {
                    let found = crew
                        .with_parallelism(|parallelism| batch.attention(isa, parallelism).bits());
                    assert!(found == serial, "{isa}, head size {head_dim}, {crew:?}");
                }
                let found = crew.with_parallelism(|parallelism| {
                    batch.attention_cached(isa, parallelism).bits()
                });
                assert!(found == serial, "{isa}, head size {head_dim}, {crew:?}, cached");
            }
        }
    }
}

/// Some of the queries of one sequence, with the keys that the last of them sees.
fn rows(batch: &Batch, sequence: Sequence, first: usize, count: usize) -> Option<Batch> {
    let hidden_after = sequence.query_len - first - count;
    let key_len = match batch.causal {
        true => sequence.key_len.checked_sub(hidden_after)?,
        false => sequence.key_len,
    };
    let from = sequence.query_start + first;
    let mut part = batch.clone();
    part.query = batch.query.tokens(from..from + count);
    part.sequences = vec![Sequence { query_start: 0, query_len: count, key_len, ..sequence }];
    if let Some(bias) = &mut part.bias {
        match &mut bias.zero {
            None => drop(bias.data.drain(..from * bias.query_stride)),
            // Alone, these queries would be aligned to the end of the keys.
            Some(zero) if !batch.causal => *zero += hidden_after,
            Some(_) => {}
        }
    }
    Some(part)
}

#[test]
fn a_row_alone_has_the_bits_it_has_in_the_batch() {
    for (causal, bias, head_dim) in [
        (false, With::Nothing, 64),
        (true, With::Nothing, 21),
        (true, With::Dense, 8),
        (false, With::Relative, 64),
        (true, With::Relative, 21),
        (false, With::Hiding, 8),
        (true, With::Hiding, 33),
    ] {
        let batch = large(causal, bias, head_dim);
        for isa in all_isas() {
            let together = batch.attention(isa, SERIAL);
            for &sequence in &batch.sequences {
                let mut random = Random::new(head_dim as u64);
                let few = brief() || !full() && isa != Isa::best();
                for _ in 0..if few { 2 } else { cases(6, 12) } {
                    if sequence.query_len == 0 {
                        continue;
                    }
                    let first = random.below(sequence.query_len);
                    let count = 1 + random.below((sequence.query_len - first).min(60));
                    for (first, count) in [(first, 1), (first, count)] {
                        let Some(part) = rows(&batch, sequence, first, count) else { continue };
                        let alone = part.attention(isa, SERIAL);
                        for i in 0..count {
                            let token = sequence.query_start + first + i;
                            for head in 0..batch.heads() {
                                let (left, right) =
                                    (alone.out.row(i, head), together.out.row(token, head));
                                let row = first + i;
                                let what = format!("{isa}: row {row} of {sequence:?}");
                                assert_eq!(difference(left, right), None, "{what}");
                            }
                            for index in 0..batch.weight_heads.len() {
                                let n = sequence.key_len;
                                let (left, right) =
                                    (alone.weights(index, i), together.weights(index, token));
                                assert_eq!(difference(&left[..n], &right[..n]), None, "{isa}");
                            }
                        }
                    }
                }
            }
        }
    }
}

/// The keys or values of one token.
fn token(tensor: &Tensor, at: usize) -> Tensor {
    tensor.tokens(at..at + 1)
}

/// The batch with keys and values that a cache in `storage` represents exactly.
fn in_storage(batch: &Batch, dtype: Dtype) -> Batch {
    match dtype {
        Dtype::F16 => batch.clone().in_halves(),
        _ => batch.clone(),
    }
}

/// Threads append the keys and values of a step where one thread does. If a position is named twice, the
/// last token stays.
#[test]
fn threads_append_the_keys_that_one_thread_appends() {
    for (tokens, heads, head_dim) in [(40, 8, 16), (33, 3, 64), (2, 8, 300), (70, 2, 17), (3, 8, 4)]
    {
        let mut random = Random::new(tokens as u64);
        let shape = [tokens, heads, head_dim];
        let key = Tensor::filled(shape, 0, &mut random);
        let value = Tensor::filled(shape, 0, &mut random);
        let places =
            |of: usize| -> Vec<u32> { (0..tokens).map(|i| (i * 7919 % 31 % of) as u32).collect() };
        let (slots, positions) = (places(9), places(5));
        for (isa, dtype) in sets() {
            let shape = CacheShape { dtype, ..CacheShape::new(9, 5, heads, head_dim) };
            let append = |threads: Parallelism<'_>| {
                bits(&cache_with(isa, shape, |cache| {
                    let (key, value) = (key.view(), value.view());
                    cache.append_with(&slots, &positions, key, value, threads).expect("places");
                }))
            };
            let expected = bits(&cache_with(isa, shape, |cache| {
                for i in 0..tokens {
                    let (key, value) = (token(&key, i), token(&value, i));
                    let (slot, position) = (&[slots[i]], &[positions[i]]);
                    cache.append(slot, position, key.view(), value.view()).expect("a place");
                }
            }));
            for crew in crews_of(isa, tokens) {
                assert!(
                    crew.with_parallelism(append) == expected,
                    "{isa}, {crew:?}: {tokens} tokens"
                );
            }
        }
    }
}

/// A causal prefill of `T` tokens has the bits of `T` decode steps, row by row: with `attention_cached`
/// over a growing length, with `attention_decode`, and with prefills that continue a cache.
#[test]
fn a_prefill_has_the_bits_of_its_decode_steps() {
    for (tokens, head_dim, heads, kv_heads, bias) in [
        (70, 64, 2, 1, With::Nothing),
        (300, 10, 2, 2, With::Nothing),
        (530, 16, 1, 1, With::Nothing),
        (33, 80, 3, 1, With::Nothing),
        (70, 64, 2, 1, With::Relative),
        (530, 16, 1, 1, With::Relative),
        (300, 10, 2, 2, With::Hiding),
    ] {
        let mut batch =
            Batch::new(&[(tokens, tokens, 0)], [heads, kv_heads, head_dim], [0, 0, 0], 3);
        batch.causal = true;
        if bias != With::Nothing {
            let mut random = Random::new(9);
            batch = with_relative_bias(batch, false, |_, _| {
                let hidden = bias == With::Hiding && random.below(4) == 0;
                if hidden { f32::NEG_INFINITY } else { random.value() }
            });
        }
        for (isa, dtype) in sets() {
            let batch = in_storage(&batch, dtype);
            let options = batch.options();
            let prefill = batch.attention(isa, SERIAL);
            let shape = CacheShape { dtype, ..CacheShape::new(3, tokens + 1, kv_heads, head_dim) };
            let data = cache_with(isa, shape, |cache| {
                for at in 0..tokens {
                    let (key, value) = (token(&batch.key, at), token(&batch.value, at));
                    cache.append(&[1], &[at as u32], key.view(), value.view()).expect("a place");
                    if at > 70 && !chosen(isa, at, 5) {
                        continue;
                    }
                    let query = token(&batch.query, at);
                    let expected = token(&prefill.out, at).data;
                    let mut out = Tensor::new(query.shape, 0);
                    let (len, to) = (at + 1, out.view_mut());
                    attend_slot(query.view(), &cache.as_view(), (1, len), &options, to);
                    assert_eq!(difference(&out.data, &expected), None, "{isa}: row {at}");
                    out.data.fill(POISON);
                    let to = out.view_mut();
                    attend_step(query.view(), &cache.as_view(), &vec![1; len], &options, to);
                    assert_eq!(difference(&out.data, &expected), None, "{isa}: step {at}");
                }
            });
            let cache = Cache::new(isa, shape, &data).expect("the length");
            // The rest of a prefill that stopped anywhere.
            for start in [1, 15, 16, 17, tokens / 2, tokens - 1] {
                let query = batch.query.tokens(start..tokens);
                let mut rest = Tensor::new(query.shape, 0);
                attend_slot(query.view(), &cache, (1, tokens), &options, rest.view_mut());
                let expected = prefill.out.tokens(start..tokens);
                assert_eq!(difference(&rest.data, &expected.data), None, "{isa}: from {start}");
            }
        }
    }
}

/// Rows whose keys are spread at random over several KV slots, some with a common beginning, compared with
/// the same keys gathered into one slot.
fn spread(isa: Isa, dtype: Dtype, random: &mut Random, [heads, kv_heads, head_dim]: [usize; 3]) {
    let (slots, capacity) = (4, [7, 40, 300, 520][random.below(4)]);
    let shape = CacheShape { dtype, ..CacheShape::new(slots, capacity, kv_heads, head_dim) };
    let tensors: Vec<(Tensor, Tensor)> = (0..slots)
        .map(|_| {
            let shape = [capacity, kv_heads, head_dim];
            (Tensor::filled(shape, 0, random), Tensor::filled(shape, 1, random))
        })
        .collect();
    let rows = 1 + random.below(5);
    let stride = capacity + random.below(3);
    let mut lens: Vec<u32> = (0..rows).map(|_| random.below(capacity + 1) as u32).collect();
    // Hypotheses of one sentence: of the same length, with a common beginning.
    let related = random.below(3) > 0;
    if related {
        let len = lens[0];
        lens.fill(len);
    }
    // Runs of random lengths. After the length of a row its slot numbers are invalid.
    let mut ancestry = vec![u32::MAX; rows * stride];
    let mut used = vec![[false; 4]; capacity];
    for (row, &len) in lens.iter().enumerate() {
        let longest = [1, 3, 20, 200][random.below(4)];
        let mut at = 0;
        if related && row > 0 {
            at = random.below(len as usize + 1);
            ancestry.copy_within((row - 1) * stride..(row - 1) * stride + at, row * stride);
        }
        while at < len as usize {
            let (run, slot) = (1 + random.below(longest), random.below(slots));
            for position in at..(at + run).min(len as usize) {
                ancestry[row * stride + position] = slot as u32;
                used[position][slot] = true;
            }
            at += run;
        }
    }
    // A position that belongs to no row is never written, and stays poison.
    let data = cache_with(isa, shape, |cache| {
        for (position, used) in used.iter().enumerate() {
            for (slot, (key, value)) in tensors.iter().enumerate().filter(|&(slot, _)| used[slot]) {
                let (key, value) = (token(key, position), token(value, position));
                let (slot, position) = (&[slot as u32], &[position as u32]);
                cache.append(slot, position, key.view(), value.view()).expect("a place");
            }
        }
    });
    let query = Tensor::filled([rows, heads, head_dim], 2, random);
    let longest = lens.iter().max().map_or(0, |&len| len as usize);
    let kind = random.below(5);
    let mut values = |count: usize| -> Vec<f32> {
        let hides = kind % 2 == 1;
        let value = |_| {
            if hides && random.below(4) == 0 { f32::NEG_INFINITY } else { random.value() }
        };
        (0..count).map(value).collect()
    };
    let bias = match kind {
        0 => None,
        1 | 2 => Some(OwnedBias::dense(values(heads * rows * longest), rows * longest, longest)),
        _ => Some(OwnedBias::relative(values(heads * longest), longest, longest.saturating_sub(1))),
    };
    let options = AttentionOptions {
        bias: bias.as_ref().map(OwnedBias::view),
        ..AttentionOptions::new(head_dim)
    };
    let mut found = Tensor::new(query.shape, 1);
    let step = |found: &mut Tensor, parallelism: Parallelism<'_>| {
        let cache = Cache::new(isa, shape, &data).expect("the length");
        let table = SlotTable { lens: &lens, slots: &ancestry, stride };
        attention_decode(query.view(), &cache, table, &options, found.view_mut(), parallelism)
            .expect("a fit");
    };
    step(&mut found, SERIAL);
    found.check_untouched(|_| true);
    for crew in [CREWS[3], CREWS[7], CREWS[11]] {
        let mut other = Tensor::new(query.shape, 1);
        crew.with_parallelism(|parallelism| step(&mut other, parallelism));
        assert_eq!(difference(&found.data, &other.data), None, "{isa}: {crew:?}");
    }

    for (row, &len) in lens.iter().enumerate() {
        let len = len as usize;
        // f32 values that such a cache represents exactly.
        let mut batch = Batch::new(&[(1, len, 0)], [heads, kv_heads, head_dim], [0, 0, 0], 0);
        batch.query = token(&query, row);
        batch.bias = bias.clone();
        if let Some(OwnedBias { data, query_stride, zero: None, .. }) = &mut batch.bias {
            data.drain(..row * *query_stride);
        }
        for position in 0..len {
            let (key, value) = &tensors[ancestry[row * stride + position] as usize];
            for head in 0..kv_heads {
                batch.key.row_mut(position, head).copy_from_slice(key.row(position, head));
                batch.value.row_mut(position, head).copy_from_slice(value.row(position, head));
            }
        }
        let mut batch = in_storage(&batch, dtype);
        batch.dtype = Dtype::F32;
        let gathered = batch.attention_cached(isa, SERIAL).out;
        let found = token(&found, row);
        let difference = difference(&found.data, &gathered.data);
        assert_eq!(difference, None, "{isa}: row {row} of {rows}, {len} keys");
    }
}

#[test]
fn keys_in_several_slots_have_the_bits_of_one_slot() {
    for isa in all_isas() {
        let mut random = Random::new(12);
        for _ in 0..if brief() { 4 } else { cases(24, 40) } {
            let (kv_heads, group) = (1 + random.below(2), [1, 2, 3][random.below(3)]);
            let head_dim = [1, 5, 16, 33, 64, 70, 128][random.below(7)];
            for dtype in STORAGES {
                let sizes = [kv_heads * group, kv_heads, head_dim];
                spread(isa, dtype, &mut random, sizes);
            }
        }
    }
}

/// Appending in runs, token by token, in any order, and over earlier contents gives the same cache.
#[test]
fn the_order_of_appending_does_not_matter() {
    for (isa, dtype) in sets() {
        for head_dim in [1, 7, 16, 40] {
            let (tokens, heads) = (45, 2);
            let mut random = Random::new(head_dim as u64);
            let key = Tensor::filled([tokens, heads, head_dim], 1, &mut random);
            let value = Tensor::filled([tokens, heads, head_dim], 2, &mut random);
            let shape = CacheShape { dtype, ..CacheShape::new(2, tokens, heads, head_dim) };
            let at_once = cache_with(isa, shape, |cache| {
                cache.write(1, 0, key.view(), value.view()).expect("a place");
            });
            let singly = cache_with(isa, shape, |cache| {
                for (round, i) in [0, 1].into_iter().flat_map(|n| (0..tokens).map(move |i| (n, i)))
                {
                    let at = (i * 17 + round) % tokens;
                    let (k, v) = (token(&key, at), token(&value, at));
                    let wrong = if round == 0 { &v } else { &k };
                    cache.append(&[1], &[at as u32], wrong.view(), v.view()).expect("a place");
                }
            });
            assert_eq!(difference(&at_once, &singly), None, "{isa}: token by token");

            let in_pieces = cache_with(isa, shape, |cache| {
                let mut first = 0;
                while first < tokens {
                    let end = (first + 1 + random.below(30)).min(tokens);
                    let (k, v) = (key.tokens(first..end), value.tokens(first..end));
                    cache.write(1, first, k.view(), v.view()).expect("a place");
                    first = end;
                }
            });
            assert_eq!(difference(&at_once, &in_pieces), None, "{isa}: in pieces");

            let positions: Vec<u32> = (0..tokens as u32).rev().collect();
            let reversed = [&key, &value].map(|tensor| {
                let mut reversed = Tensor::new(tensor.shape, 0);
                for (i, head) in (0..tokens).flat_map(|i| (0..heads).map(move |head| (i, head))) {
                    let row = tensor.row(tokens - 1 - i, head);
                    reversed.row_mut(i, head).copy_from_slice(row);
                }
                reversed
            });
            let many = cache_with(isa, shape, |cache| {
                let [key, value] = reversed.each_ref().map(|tensor| tensor.view());
                cache.append(&vec![1; tokens], &positions, key, value).expect("places");
            });
            assert_eq!(difference(&at_once, &many), None, "{isa}: many at once");
        }
    }
}

/// The beams of a sentence share the keys of its source. One slot that all beams read gives the bits of a
/// copy for each, in both kinds of attention.
#[test]
fn beams_may_share_a_slot() {
    let (beams, keys, head_dim) = (5, 290, 24);
    let mut batch = Batch::new(&[(beams, keys, 0)], [4, 2, head_dim], [0, 0, 0], 55);
    batch.weight_heads = vec![3];
    for isa in all_isas() {
        let together = batch.attention_cached(isa, SERIAL);
        let mut apart = batch.clone();
        let one = batch.sequences[0];
        apart.sequences =
            (0..beams).map(|beam| Sequence { query_start: beam, query_len: 1, ..one }).collect();
        // Sequences that name the same keys, and slots that have copies of them.
        assert!(apart.attention(isa, SERIAL).bits() == together.bits(), "{isa}");
        assert!(apart.attention_cached(isa, SERIAL).bits() == together.bits(), "{isa}");
        let (shape, data) = batch.cache(isa);
        let cache = Cache::new(isa, shape, &data).expect("the length");
        let sequences: Vec<CachedSequence> = (0..beams)
            .map(|beam| CachedSequence { query_start: beam, query_len: 1, slot: 0, key_len: keys })
            .collect();
        let mut out = Tensor::new(batch.query.shape, 0);
        let (query, options, to) = (batch.query.view(), batch.options(), out.view_mut().into());
        attention_cached(query, &cache, &sequences, &options, to, SERIAL).expect("a fit");
        assert_eq!(difference(&out.data, &together.out.data), None, "{isa}");
    }
}

/// The contents of other slots and of later positions do not affect the result.
#[test]
fn the_rest_of_a_cache_does_not_matter() {
    for isa in all_isas() {
        let mut batch = Batch::new(&[(5, 37, 0), (1, 20, 0)], [2, 1, 12], [0, 0, 0], 9);
        batch.causal = true;
        let clean = batch.attention(isa, SERIAL).bits();
        // The same cache, with poison, zeros or infinities after its contents.
        assert!(batch.attention_cached(isa, SERIAL).bits() == clean, "{isa}");
        for filling in [0.0, f32::INFINITY, 7.5] {
            let (shape, data) = batch.cache(isa);
            let fill = |x: f32| if x.to_bits() == POISON.to_bits() { filling } else { x };
            let data: Vec<f32> = data.into_iter().map(fill).collect();
            let cache = Cache::new(isa, shape, &data).expect("the length");
            let output = batch.attention_in(&cache, SERIAL);
            assert!(output.bits() == clean, "{isa}: filled with {filling}");
        }
    }
}
