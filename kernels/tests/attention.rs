//! Attention compared with its oracle on every instruction set: every head size, every length, every mask,
//! in strided memory that holds NaN wherever a query may not read.
use crate::support::batch::{Batch, OwnedBias, attend, with_relative_bias};
use crate::support::batches::{batches, head_sizes, pairs_of_lengths};
use crate::support::*;
use proptest::prelude::*;
use simdformer_kernels::{
    AttentionOptions, AttentionOutput, AttentionWeights, Dtype, FullyMasked, Heads, Isa, Qkv,
    Sequence, attention_scratch, reference,
};

/// Lengths, with the edges of vectors, query blocks and key blocks among them.
fn length() -> impl Strategy<Value = usize> + Clone {
    prop_oneof![
        6 => 0usize..=20,
        3 => prop::sample::select(vec![
            31usize, 32, 33, 47, 48, 49, 63, 64, 65, 127, 128, 129, 255, 256, 257, 511, 512, 513,
        ]),
        1 => 0usize..=600,
    ]
}

/// Batches with an output of any layout and the weights of some heads.
fn any_batch() -> impl Strategy<Value = Batch> {
    let all = batches(length(), &[1, 2, 3, 5, 8], cases(500_000, 4_000_000));
    (all, 0usize..=2).prop_map(|((mut batch, seed), out_layout)| {
        let mut random = Random::new(seed ^ 1);
        batch.out_layout = out_layout;
        batch.weight_heads = (0..batch.heads()).rev().filter(|_| random.below(3) == 0).collect();
        batch
    })
}

fn check(batch: &Batch, what: &str) {
    check_on(&all_isas(), true, batch, what);
}

/// Checks the sets in `isas`, and caches in f16 if `halves`.
fn check_on(isas: &[Isa], halves: bool, batch: &Batch, what: &str) {
    let exact = batch.exact();
    for &isa in isas {
        let output = batch.attention(isa, SERIAL);
        batch.check(&output, &exact, &format!("{isa}, {what}"));
        // A cache does not know the padding, which only a uniform mean includes.
        if batch.fully_masked == FullyMasked::Zeros {
            let cached = batch.attention_cached(isa, SERIAL);
            assert!(cached.bits() == output.bits(), "{isa}, {what}: cached and uncached differ");
            if !halves {
                continue;
            }
            let halves = batch.clone().in_halves();
            let cached = halves.attention_cached(isa, SERIAL);
            let output = halves.attention(isa, SERIAL);
            assert!(cached.bits() == output.bits(), "{isa}, {what}: in halves they differ");
            // A cache in f16 is compared with attention over the rounded keys and values.
            let rounding = Batch { dtype: Dtype::F16, ..batch.clone() };
            let cached = rounding.attention_cached(isa, SERIAL);
            assert!(cached.bits() == output.bits(), "{isa}, {what}: rounded otherwise");
        }
    }
}

proptest! {
    #![proptest_config(property(64))]

    #[test]
    fn any_batch_is_within_its_bound_and_reads_nothing_hidden(batch in any_batch()) {
        check(&batch, "any batch");
    }
}

#[test]
fn every_head_size_up_to_70_and_some_beyond() {
    for (head_dim, causal) in head_sizes() {
        // With more keys than a block has, so that sums continue over a block in every head size.
        let lens = [(7, 21, 2), (3, 3, 0), (1, 40, 0), (7, 300, 0)];
        let mut batch = Batch::new(&lens, [2, 2, head_dim], [1, 2, 0], head_dim as u64);
        batch.causal = causal;
        batch.weight_heads = vec![1];
        let isas = isas_of(head_dim + usize::from(causal), 2);
        let what = format!("head size {head_dim}, causal {causal}");
        check_on(&isas, causal || full(), &batch, &what);
    }
}

#[test]
fn every_length_around_the_edges_of_blocks() {
    let edges =
        [1, 2, 15, 16, 17, 47, 48, 49, 63, 64, 65, 96, 97, 255, 256, 257, 300, 511, 512, 513, 600];
    for ([i, j], [query_len, key_len], causal) in pairs_of_lengths(&edges) {
        let mut batch =
            Batch::new(&[(query_len, key_len, 3)], [1, 1, 5], [0, 0, 0], key_len as u64);
        batch.causal = causal;
        batch.weight_heads = vec![0];
        // Every set and every f16 cache has each length once.
        let case = i + 3 * j;
        let what = format!("{query_len} x {key_len}, causal {causal}");
        check_on(&isas_of(case, 7), full() || case % 5 == 0, &batch, &what);
    }
}

/// Aligned to the end of the keys, for more queries than keys, as many, and fewer.
#[test]
fn causal_masks_are_aligned_to_the_end_of_the_keys() {
    for query_len in 0..=9 {
        for key_len in 0..=9 {
            let mut batch = Batch::new(&[(query_len, key_len, 1)], [2, 1, 3], [0, 1, 2], 77);
            batch.causal = true;
            batch.weight_heads = vec![0, 1];
            check(&batch, &format!("{query_len} x {key_len}"));
            for isa in all_isas() {
                let output = batch.attention(isa, SERIAL);
                for i in 0..query_len {
                    let sees = (i + 1 + key_len).saturating_sub(query_len);
                    let weights = output.weights(1, i);
                    assert!(weights[..sees].iter().all(|&x| x > 0.0), "{isa}: {weights:?}");
                    assert!(weights[sees..].iter().all(|&x| x == 0.0), "{isa}: {weights:?}");
                }
            }
        }
    }
}

/// Fills the keys and values from each `cut` on with NaN: queries that do not see them keep their bits.
#[test]
fn nan_in_later_keys_does_not_reach_earlier_queries() {
    let edges = [1, 2, 15, 16, 17, 40, 63, 64, 65, 255, 256, 257, 290];
    for head_dim in [5, 16, 64] {
        for (query_len, key_len) in [(300, 300), (40, 300), (310, 300)] {
            let mut batch = Batch::new(&[(query_len, key_len, 0)], [1, 1, head_dim], [0, 0, 0], 4);
            batch.causal = true;
            batch.weight_heads = vec![0];
            for isa in all_isas() {
                let clean = batch.attention(isa, SERIAL);
                for (index, cut) in edges.into_iter().enumerate() {
                    if !chosen(isa, index + query_len / 10 + head_dim, 4) {
                        continue;
                    }
                    let mut poisoned = batch.clone();
                    poisoned.key.fill(cut..key_len, || f32::NAN);
                    poisoned.value.fill(cut..key_len, || f32::NAN);
                    let found = poisoned.attention(isa, SERIAL);
                    for i in 0..query_len {
                        let sees = (i + 1 + key_len).saturating_sub(query_len);
                        if sees <= cut {
                            let what = format!("{isa}: query {i}, cut {cut}");
                            let same = |found: &[f32], clean| {
                                assert_eq!(difference(found, clean), None, "{what}");
                            };
                            same(found.out.row(i, 0), clean.out.row(i, 0));
                            same(found.weights(0, i), clean.weights(0, i));
                        } else {
                            assert!(found.out.row(i, 0).iter().all(|x| x.is_nan()), "{isa}: {i}");
                        }
                    }
                }
            }
        }
    }
}

/// Query, key and value are parts of one `[tokens, 3 * heads * head_dim]` buffer.
#[test]
fn a_fused_buffer_is_read_in_place() {
    for (heads, kv_heads, head_dim) in [(3, 3, 16), (2, 2, 7), (4, 2, 64), (1, 1, 33)] {
        let tokens = 37;
        let width = (heads + 2 * kv_heads) * head_dim;
        let mut random = Random::new(6);
        let fused = random.values(tokens * width);
        let part = |first: usize, heads: usize| {
            Heads::strided(&fused[first * head_dim..], [tokens, heads, head_dim], width, head_dim)
                .expect("a part of the buffer")
        };
        let (query, key, value) =
            (part(0, heads), part(heads, kv_heads), part(heads + kv_heads, kv_heads));
        let sequences = [Sequence::packed(0, 20), Sequence::packed(20, 17)];
        let options = AttentionOptions { causal: true, ..AttentionOptions::new(head_dim) };
        let mut batch = Batch::new(&[], [heads, kv_heads, head_dim], [0, 0, 0], 0);
        [batch.query, batch.key, batch.value] = [query, key, value].map(Tensor::copy_of);
        batch.sequences = sequences.to_vec();
        batch.causal = true;
        check(&batch, "copies of a fused buffer");
        for isa in all_isas() {
            let floats = attention_scratch(isa, &sequences, kv_heads, head_dim).expect("small");
            let most = options.scratch_bound(isa, 2, tokens, kv_heads, head_dim).expect("small");
            assert!(floats <= most);
            let mut out = poisoned(tokens * heads * head_dim);
            let to = view_heads_mut(&mut out, [tokens, heads, head_dim]);
            attend(isa, Qkv { query, key, value }, &sequences, &options, to, SERIAL)
                .expect("a fit");
            let copied = batch.attention(isa, SERIAL).out.dense();
            assert_eq!(difference(&out, &copied), None, "{isa}");
        }
    }
}

/// Two batches have outputs with the same bits on every instruction set.
fn assert_same_output(batch: &Batch, other: &Batch, what: &str) {
    for isa in all_isas() {
        let [found, expected] = [batch, other].map(|batch| batch.attention(isa, SERIAL).bits());
        assert!(found == expected, "{isa}, {what}");
    }
}

#[test]
fn grouped_heads_read_their_own_keys() {
    for group in [1, 2, 3, 5, 8] {
        for kv_heads in [1, 2, 3] {
            let lens = [(9, 30, 0), (1, 70, 2)];
            let mut batch = Batch::new(&lens, [kv_heads * group, kv_heads, 12], [1, 1, 1], 8);
            batch.weight_heads = (0..kv_heads * group).collect();
            check(&batch, &format!("{kv_heads} heads in groups of {group}"));
            // The same bits as with every key-value head repeated.
            let mut repeated = batch.clone();
            let repeat = |from: &Tensor| {
                let mut to = Tensor::new([from.shape[0], kv_heads * group, 12], 0);
                for token in 0..from.shape[0] {
                    for head in 0..kv_heads * group {
                        to.row_mut(token, head).copy_from_slice(from.row(token, head / group));
                    }
                }
                to
            };
            (repeated.key, repeated.value) = (repeat(&batch.key), repeat(&batch.value));
            assert_same_output(&batch, &repeated, &format!("groups of {group}"));
        }
    }
}

/// A request for the weights of some heads changes no bit of the output, and nothing is written for other
/// heads.
#[test]
fn weights_of_chosen_heads_only() {
    let mut plain = Batch::new(&[(11, 270, 4), (2, 33, 0)], [4, 2, 20], [0, 0, 0], 21);
    plain.causal = true;
    for chosen in [vec![], vec![2], vec![3, 0], vec![1, 0, 3, 2]] {
        let batch = Batch { weight_heads: chosen.clone(), ..plain.clone() };
        check(&batch, &format!("weights of {chosen:?}"));
        for isa in all_isas() {
            let (with, without) =
                (batch.attention(isa, SERIAL).out, plain.attention(isa, SERIAL).out);
            assert_eq!(bits(&with.data), bits(&without.data), "{isa}: weights of {chosen:?}");
        }
    }
}

/// Rows without a visible key, beside rows with keys: zeros, or the mean of all values with the padding.
#[test]
fn rows_without_a_key_get_zeros_or_the_mean() {
    let lens = [(3, 0, 0), (3, 0, 6), (9, 5, 2), (2, 4, 0)];
    for head_dim in [6, 32] {
        for causal in [false, true] {
            for fully_masked in [FullyMasked::Zeros, FullyMasked::Uniform] {
                let mut batch = Batch::new(&lens, [2, 1, head_dim], [0, 1, 1], 31);
                batch.causal = causal;
                batch.fully_masked = fully_masked;
                batch.weight_heads = vec![1, 0];
                if fully_masked == FullyMasked::Uniform {
                    let mut random = Random::new(32);
                    batch.value.fill(0..batch.value.shape[0], || random.value());
                }
                check(&batch, &format!("{fully_masked:?}, causal {causal}"));
                for isa in all_isas() {
                    let output = batch.attention(isa, SERIAL);
                    let zeros = fully_masked == FullyMasked::Zeros;
                    for token in 0..3 {
                        // Without any key: zeros in both modes.
                        assert!(output.out.row(token, 0).iter().all(|&x| x.to_bits() == 0));
                    }
                    let padded_only = batch.sequences[1].query_start;
                    let row = output.out.row(padded_only, 1);
                    assert_eq!(row.iter().all(|&x| x.to_bits() == 0), zeros, "{isa}: {row:?}");
                    if !zeros {
                        let weights = &output.weights(0, padded_only)[..6];
                        assert!(weights.iter().all(|&x| x == 1.0 / 6.0), "{isa}: {weights:?}");
                    }
                }
            }
        }
    }
}

/// A bias of minus infinity for every key of a query is a full mask, too.
#[test]
fn a_bias_of_minus_infinity_everywhere_masks_fully() {
    for fully_masked in [FullyMasked::Zeros, FullyMasked::Uniform] {
        let mut batch = Batch::new(&[(4, 300, 0)], [1, 1, 9], [0, 0, 0], 1);
        let mut data = vec![0.0; 4 * 300];
        data[300..600].fill(f32::NEG_INFINITY);
        // Row 2 sees no key of the first block, row 3 none of the second.
        data[600..600 + 256].fill(f32::NEG_INFINITY);
        data[900 + 256..].fill(f32::NEG_INFINITY);
        batch.bias = Some(OwnedBias::dense(data, 0, 300));
        batch.fully_masked = fully_masked;
        batch.weight_heads = vec![0];
        check(&batch, &format!("{fully_masked:?}"));
    }
}

/// Keys that a relative bias hides are not read: here all keys more than ten positions before the query.
#[test]
fn a_relative_bias_of_minus_infinity_hides() {
    for head_dim in [5, 16, 64] {
        let batch = Batch::new(&[(5, 20, 0), (7, 300, 2)], [2, 1, head_dim], [0, 1, 2], 3);
        let mut batch = with_relative_bias(batch, false, |head, distance| {
            if distance < -10 { f32::NEG_INFINITY } else { (head as isize + distance) as f32 / 8.0 }
        });
        batch.weight_heads = vec![1, 0];
        for i in 0..2 {
            let Sequence { query_len, key_start, key_len, .. } = batch.sequences[i];
            // The first query has position `key_len - query_len`.
            let hidden = key_start..key_start + (key_len - query_len - 10);
            batch.key.fill(hidden.clone(), || f32::NAN);
            batch.value.fill(hidden, || f32::INFINITY);
        }
        check(&batch, "a window");
    }
}

/// A dense bias with the same values gives the same bits, finite or not.
#[test]
fn a_relative_bias_is_a_dense_one() {
    for (causal, hides) in [(false, false), (true, false), (false, true), (true, true)] {
        let lens = [(40, 40, 0), (1, 290, 3), (0, 4, 0), (7, 7, 0), (30, 9, 0), (300, 300, 0)];
        let mut batch = Batch::new(&lens, [3, 1, 21], [0, 0, 0], 8);
        batch.causal = causal;
        batch.weight_heads = vec![0, 2];
        let mut random = Random::new(4);
        let relative = with_relative_bias(batch.clone(), false, |_, _| {
            if hides && random.below(6) == 0 { f32::NEG_INFINITY } else { random.value() }
        });
        let table = relative.bias.as_ref().expect("a bias");
        let (tokens, keys) = (batch.query.shape[0], 300);
        let mut data = vec![POISON; 3 * tokens * keys];
        for &Sequence { query_start, query_len, key_len, .. } in &batch.sequences {
            for (head, i) in (0..3).flat_map(|head| (0..query_len).map(move |i| (head, i))) {
                for j in 0..key_len {
                    let at =
                        (table.zero.expect("relative") + j + query_len).checked_sub(key_len + i);
                    // A causal query has no value for keys after it.
                    let value = at.and_then(|at| {
                        (at < table.head_stride).then(|| table.data[head * table.head_stride + at])
                    });
                    data[(head * tokens + query_start + i) * keys + j] = value.unwrap_or(POISON);
                }
            }
        }
        batch.bias = Some(OwnedBias::dense(data, tokens * keys, keys));
        assert_same_output(&batch, &relative, &format!("causal {causal}, hides {hides}"));
    }
}

#[test]
fn nan_in_one_query_stays_in_its_row() {
    for (causal, bias) in [(false, false), (true, false), (false, true)] {
        let mut batch = Batch::new(&[(14, 290, 0)], [2, 2, 19], [0, 0, 0], 11);
        batch.causal = causal;
        batch.weight_heads = vec![0];
        if bias {
            let data = vec![0.25; 290];
            batch.bias = Some(OwnedBias::dense(data, 0, 0));
        }
        for isa in all_isas() {
            let clean = batch.attention(isa, SERIAL);
            for token in 0..14 {
                let mut poisoned = batch.clone();
                poisoned.query.row_mut(token, 0)[18] = f32::NAN;
                let found = poisoned.attention(isa, SERIAL);
                for i in 0..14 {
                    for head in 0..2 {
                        let row = found.out.row(i, head);
                        if (i, head) == (token, 0) {
                            assert!(row.iter().all(|x| x.is_nan()), "{isa}: NaN was lost");
                            let sees = if causal { 290 - 13 + i } else { 290 };
                            let weights = &found.weights(0, i)[..sees];
                            assert!(weights.iter().all(|x| x.is_nan()), "{isa}: {weights:?}");
                        } else {
                            assert_eq!(difference(row, clean.out.row(i, head)), None, "{isa}: {i}");
                        }
                    }
                }
            }
        }
    }
}

/// One query and keys whose scores are exactly `scores`, with head size 1.
fn scored(scores: &[f32]) -> Batch {
    let mut batch = Batch::new(&[(1, scores.len(), 0)], [1, 1, 1], [0, 0, 0], 2);
    batch.scale = 1.0;
    batch.query.fill(0..1, || 1.0);
    let mut next = scores.iter();
    batch.key.fill(0..scores.len(), || *next.next().expect("as many keys as scores"));
    batch.weight_heads = vec![0];
    batch
}

#[test]
fn scores_far_from_zero_have_the_usual_bound() {
    let mut random = Random::new(44);
    for offset in [0.0, -1e6, 1e6, -3e38, 3e38, -5e4, -1e4, f32::MIN, f32::MAX] {
        for len in [1, 5, 40, 256, 257, 600] {
            let scores: Vec<f32> = (0..len).map(|i| offset + (i % 7) as f32 * 0.5).collect();
            let batch = scored(&scores);
            let exact = batch.exact();
            // The scores are exact at any size, so the bound is that of small scores.
            let small = scored(&vec![1.0; len]).bound();
            for isa in all_isas() {
                let output = batch.attention(isa, SERIAL);
                let found = output.out.row(0, 0)[0];
                assert!(
                    (f64::from(found) - exact[0].out[0]).abs() <= small,
                    "{isa}: {len} scores at {offset:e}: {found}, exactly {}",
                    exact[0].out[0]
                );
                let sum: f32 = output.weights(0, 0).iter().sum();
                assert!((sum - 1.0).abs() <= 1e-5, "{isa}: weights add up to {sum}");
            }
        }
    }
    // A late maximum far above all earlier scores, and a maximum at the first key.
    for (len, place) in [(600, 0), (600, 255), (600, 256), (600, 599), (257, 256)] {
        let mut scores: Vec<f32> = (0..len).map(|_| -1e6 + random.value()).collect();
        scores[place] = 1e6;
        let batch = scored(&scores);
        for isa in all_isas() {
            let output = batch.attention(isa, SERIAL);
            assert_eq!(output.out.row(0, 0)[0], batch.value.row(place, 0)[0], "{isa}: {place}");
            assert_eq!(output.weights(0, 0)[place], 1.0);
        }
    }
}

#[test]
fn infinite_scores() {
    let (inf, nan) = (f32::INFINITY, f32::NAN);
    // A score of minus infinity has weight 0. Plus infinity gives NaN, as the formula does.
    for (scores, expected) in [
        (vec![0.0, -inf, 0.0, -inf], Some(vec![0.5, 0.0, 0.5, 0.0])),
        (vec![-inf, -inf, 1.0], Some(vec![0.0, 0.0, 1.0])),
        (vec![-inf, -inf], Some(vec![0.0, 0.0])),
        (vec![0.0, inf, 0.0], None),
        (vec![inf, inf], None),
        (vec![0.0, nan, 1.0], None),
        (vec![nan, nan], None),
        (vec![nan, -inf], None),
    ] {
        // At the start and at the end of a block, and in a second block after hidden keys.
        for shift in [0, 3, 253, 256, 300] {
            let mut all = vec![-inf; shift];
            all.extend(&scores);
            let batch = scored(&all);
            let exact = batch.exact();
            for isa in all_isas() {
                let output = batch.attention(isa, SERIAL);
                let (out, weights) = (output.out.row(0, 0)[0], &output.weights(0, 0)[shift..]);
                match &expected {
                    Some(expected) => {
                        assert_eq!(&weights[..expected.len()], expected, "{isa}: {scores:?}");
                        assert!((f64::from(out) - exact[0].out[0]).abs() <= 1e-6, "{isa}: {out}");
                    }
                    None => {
                        assert!(
                            out.is_nan() && exact[0].out[0].is_nan(),
                            "{isa}: {scores:?}: {out}"
                        );
                    }
                }
            }
        }
    }
}

#[test]
fn the_oracle_implements_the_masks() {
    let sequence = Sequence { query_len: 5, key_len: 3, padded_len: 4, ..Sequence::default() };
    let seen: Vec<usize> =
        (0..5).map(|i| reference::attention::visible(sequence, true, i)).collect();
    assert_eq!(seen, [0, 0, 1, 2, 3]);
    assert_eq!(reference::attention::visible(sequence, false, 0), 3);
}

/// Heads without elements: the scale is finite, and a call writes nothing.
#[test]
fn heads_without_elements_have_a_finite_scale() {
    assert_eq!([0, 1, 4, 64].map(|dim| AttentionOptions::new(dim).scale), [1.0, 1.0, 0.5, 0.125]);
    let (shape, options) = ([3, 2, 0], AttentionOptions::new(0));
    let empty = view_heads(&[], shape);
    let qkv = Qkv { query: empty, key: empty, value: empty };
    for isa in all_isas() {
        let mut weights = [POISON; 18];
        let weights_to = AttentionWeights {
            data: &mut weights,
            heads: &[0, 1],
            head_stride: 9,
            query_stride: 3,
            keys: 3,
        };
        let context = view_heads_mut(&mut [], shape);
        let output = AttentionOutput { context, weights: Some(weights_to) };
        attend(isa, qkv, &[Sequence::packed(0, 3)], &options, output, SERIAL).expect("accepted");
        assert!(is_poison(&weights), "{isa}");
    }
    // The oracle writes the weights, which are all equal.
    let mut weights = [f64::NAN; 18];
    reference::attention::attention(qkv, Sequence::packed(0, 3), &options, &mut [], &mut weights)
        .expect("accepted");
    assert_eq!(weights, [1.0 / 3.0; 18]);
}
