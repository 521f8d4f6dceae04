//! Which keys count, in limit cases: rows whose scores are all minus infinity, and visible keys whose
//! weight underflows in f32. The rules are the same for every entry and for the oracle.

use crate::support::batch::{Batch, attend_step, cache_with, with_bias};
use crate::support::*;
use simdformer_kernels::{Cache, CacheShape, FullyMasked, Isa};

const SLOTS: usize = 3;

/// `batch`, which has one sequence with one query, as a decode step whose keys are spread over several
/// slots. All other positions of the slots are poison.
fn step(batch: &Batch, isa: Isa) -> Tensor {
    let keys = batch.key.shape[0];
    let shape = CacheShape::new(SLOTS, keys + 2, batch.kv_heads(), batch.head_dim());
    let slots: Vec<u32> = (0..keys).map(|j| (j / 5 % SLOTS) as u32).collect();
    let data = cache_with(isa, shape, |cache| {
        for (position, &slot) in slots.iter().enumerate() {
            let token = position..position + 1;
            let (key, value) = (batch.key.tokens(token.clone()), batch.value.tokens(token));
            cache.append(&[slot], &[position as u32], key.view(), value.view()).expect("a place");
        }
    });
    let mut out = Tensor::new(batch.query.shape, 0);
    let cache = Cache::new(isa, shape, &data).expect("the length");
    attend_step(batch.query.view(), &cache, &slots, &batch.options(), out.view_mut());
    out
}

/// The result of every entry is within the bound of the oracle, and all results have the same bits.
fn check(batch: &Batch, what: &str) {
    let exact = batch.exact();
    for isa in all_isas() {
        let what = format!("{isa}: {what}");
        let output = batch.attention(isa, SERIAL);
        batch.check(&output, &exact, &what);
        let cached = batch.attention_cached(isa, SERIAL);
        batch.check(&cached, &exact, &what);
        assert!(cached.bits() == output.bits(), "{what}: the cache has other bits");
        let halves = batch.clone().in_halves();
        let cached = halves.attention_cached(isa, SERIAL);
        let floats = halves.attention(isa, SERIAL);
        assert!(cached.bits() == floats.bits(), "{what}: a cache of halves has other bits");
        if batch.query.shape[0] == 1 {
            let step = step(batch, isa);
            assert_eq!(difference(&step.data, &output.out.data), None, "{what}: the step");
        }
    }
}

/// One sequence with `len` queries and keys, and two heads that share one key-value head.
fn batch(queries: usize, keys: usize, head_dim: usize) -> Batch {
    let mut batch = Batch::new(&[(queries, keys, 0)], [2, 1, head_dim], [0, 0, 0], keys as u64);
    batch.weight_heads = vec![0, 1];
    batch
}

/// A row whose scores are all minus infinity is treated as a row without a visible key. More than 256 keys
/// are more than one block.
#[test]
fn rows_of_minus_infinity_are_fully_masked() {
    for fully_masked in [FullyMasked::Zeros, FullyMasked::Uniform] {
        for (queries, keys) in [(1, 1), (1, 7), (1, 33), (1, 256), (1, 300), (1, 530), (9, 40)] {
            for head_dim in [1, 8, 19] {
                let mut batch = batch(queries, keys, head_dim);
                batch.fully_masked = fully_masked;
                batch.query.data.fill(f32::INFINITY);
                batch.key.data.fill(-1.0);
                let what = format!("{fully_masked:?}, {queries} queries, {keys} keys");
                check(&batch, &what);
                // The values of such a row count in the mean, and in nothing else.
                batch.value.row_mut(keys / 2, 0).fill(f32::NAN);
                check(&batch, &format!("{what}, a value that is NaN"));
            }
        }
    }
}

/// Products that overflow in f32, so that the oracle in f64 has other scores.
#[test]
fn scores_that_overflow_are_the_same_everywhere() {
    for isa in all_isas() {
        for keys in [1, 12, 300] {
            let mut batch = batch(1, keys, 8);
            batch.fully_masked = FullyMasked::Uniform;
            batch.query.data.fill(1e30);
            batch.key.data.fill(-1e30);
            batch.value.data.fill(2.5);
            let output = batch.attention(isa, SERIAL);
            assert!(output.out.data.iter().all(|&x| x == 2.5), "{isa}: {:?}", output.out.data);
            let cached = batch.attention_cached(isa, SERIAL);
            assert!(cached.bits() == output.bits(), "{isa}: {keys} keys in a cache");
            let step = step(&batch, isa);
            assert_eq!(difference(&step.data, &output.out.data), None, "{isa}: {keys} keys");
        }
    }
}

/// Blocks of minus infinity beside keys with a weight.
#[test]
fn minus_infinity_beside_a_finite_score_weighs_nothing() {
    for finite in [0, 13, 255, 256, 299, 520] {
        let mut batch = batch(1, 530, 8);
        batch.query.data.fill(1e30);
        batch.key.data.fill(-1e30);
        batch.key.row_mut(finite, 0).fill(1e-30);
        check(&batch, &format!("key {finite}"));
    }
}

/// A visible key is multiplied even if its weight underflows to 0, so that a value that is not finite
/// reaches the output. A key under a bias of minus infinity is hidden, and its value does not.
#[test]
fn a_visible_value_counts_even_with_weight_zero() {
    for isa in all_isas() {
        for (queries, keys) in [(1, 2), (4, 9), (7, 300)] {
            for value in [f32::NAN, f32::INFINITY] {
                let mut batch = batch(queries, keys, 8);
                batch.scale = 1.0;
                batch.query.data.fill(1.0);
                batch.key.data.fill(0.0);
                let far = keys - 1;
                batch.key.row_mut(far, 0).fill(-50.0);
                batch.value.row_mut(far, 0).fill(value);
                let plain = batch.attention(isa, SERIAL);
                assert_eq!(plain.weights(0, 0)[far], 0.0, "the weight underflows");
                let zero = with_bias(batch.clone(), |_, _| 0.0);
                let hidden =
                    with_bias(batch.clone(), |_, j| if j == far { f32::NEG_INFINITY } else { 0.0 });
                let outputs = [
                    (plain, true),
                    (batch.attention_cached(isa, SERIAL), true),
                    (zero.attention(isa, SERIAL), true),
                    (zero.attention_cached(isa, SERIAL), true),
                    (hidden.attention(isa, SERIAL), false),
                    (hidden.attention_cached(isa, SERIAL), false),
                ];
                for (index, (output, shows)) in outputs.iter().enumerate() {
                    let found = output.out.data.iter().all(|x| x.is_nan() == *shows);
                    assert!(found, "{isa}: {value}, call {index}: {:?}", output.out.data);
                }
                if queries == 1 {
                    assert!(step(&batch, isa).data.iter().all(|x| x.is_nan()), "{isa}: {value}");
                }
            }
        }
    }
}
