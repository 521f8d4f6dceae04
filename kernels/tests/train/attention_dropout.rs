//! Dropout of attention weights: which weights are dropped, and on what this does not depend.

use super::attention::{Case, is_kept};
use super::attention_rules::{check_alone, check_threads, large};
use crate::support::batch::{Batch, with_bias};
use crate::support::*;
use simdformer_kernels::train::Dropout;
use simdformer_kernels::{Isa, Sequence};
use std::collections::BTreeSet;

/// Equal keys, and values and gradients that are unit vectors: the outputs, forward and backward, are the
/// weights themselves, each `1 / keys`.
fn bare(queries: usize, keys: usize, probability: f32) -> Case {
    let head_dim = queries.max(keys);
    let mut batch = Batch::new(&[(0, 1, 0), (queries, keys, 0)], [2, 1, head_dim], [0; 3], 1);
    let Sequence { query_start, key_start, .. } = batch.sequences[1];
    batch.key.fill(key_start..key_start + keys, || 1.0);
    batch.value.fill(key_start..key_start + keys, || 0.0);
    for key in 0..keys {
        batch.value.row_mut(key_start + key, 0)[key] = 1.0;
    }
    let mut case = Case::new(batch, [0; 4], 1).dropping(probability, 77);
    for query in 0..queries {
        for head in 0..2 {
            let row = case.d_context.row_mut(query_start + query, head);
            row.fill(0.0);
            row[query] = 1.0;
        }
    }
    case
}

#[test]
fn dropped_weights_match_the_definition() {
    for (queries, keys) in
        [(1, 1), (1, 300), (3, 8), (5, 9), (6, 16), (7, 17), (8, 8), (13, 260), (100, 31)]
    {
        let case = bare(queries, keys, 0.3);
        let start = case.batch.sequences[1].query_start;
        let dropout = case.dropout.expect("a dropout");
        let factor = (1.0 / dropout.keep().expect("in range")) as f32;
        let sentence = case.sentences[start];
        for isa in all_isas() {
            let kept = case.forward(isa, SERIAL);
            let gradients = case.backward(isa, &kept, SERIAL);
            let key_start = case.batch.sequences[1].key_start;
            for i in 0..queries {
                for j in 0..keys {
                    let what = format!("{isa}: query {i} of {queries}, key {j} of {keys}");
                    let of = |head| is_kept(&dropout, sentence, [head, i, j]);
                    for head in 0..2 {
                        let x = kept.context.row(start + i, head)[j] * keys as f32;
                        let expected = if of(head) { factor } else { 0.0 };
                        assert!((x - expected).abs() <= 1e-6 * factor, "{what}: {x}");
                    }
                    let x = gradients.value.row(key_start + j, 0)[i] * keys as f32;
                    let expected = (u8::from(of(0)) + u8::from(of(1))) as f32 * factor;
                    assert!((x - expected).abs() <= 1e-6 * factor, "{what}: {x}, gradient");
                }
            }
        }
    }
}

/// Computed by a program in another language from the table of counters alone.
#[test]
fn dropped_weights_match_another_implementation() {
    let dropout = Dropout { seed: 0x1_2345_6789, step: 7 + (1 << 32), site: 5, probability: 0.3 };
    let row: Vec<u8> = (0..20).map(|j| u8::from(is_kept(&dropout, 11, [2, 3, j]))).collect();
    assert_eq!(row, [1, 1, 1, 1, 0, 1, 1, 1, 1, 0, 1, 1, 1, 1, 1, 0, 1, 0, 0, 0]);
}

#[test]
fn the_kept_fraction_is_the_requested_one() {
    for probability in [0.1, 0.5, 0.9] {
        let case = bare(200, 200, probability);
        let start = case.batch.sequences[1].query_start;
        let kept = case.forward(Isa::best(), SERIAL);
        let p = case.dropout.and_then(|dropout| dropout.keep().ok()).expect("in range");
        let weights = |head: usize, i: usize| &kept.context.row(start + i, head)[..200];
        let count = |x: &[f32]| x.iter().filter(|&&x| x != 0.0).count() as f64;
        let all: f64 = (0..400).map(|row| count(weights(row % 2, row / 2))).sum();
        let sigma = |n: f64| (n * p * (1.0 - p)).sqrt();
        assert!((all - 80_000.0 * p).abs() <= 4.0 * sigma(80_000.0), "{all} at {p}");
        for i in 0..200 {
            let some = count(weights(0, i));
            assert!((some - 200.0 * p).abs() <= 5.0 * sigma(200.0), "{some} of query {i} at {p}");
        }
    }
}

/// Masks that differ in one counter agree only by chance.
#[test]
fn trap_13_every_part_of_the_name_makes_another_mask() {
    let half = Dropout { seed: 3, step: 9, site: 1, probability: 0.5 };
    let mask = |dropout: &Dropout, sentence, [head, i, j]: [usize; 3]| -> Vec<bool> {
        let places = (0..4096).map(|at| [head, i + at / 64, j + at % 64]);
        places.map(|place| is_kept(dropout, sentence, place)).collect()
    };
    let base = mask(&half, 4, [0, 0, 0]);
    let others = [
        mask(&Dropout { seed: 4, ..half }, 4, [0, 0, 0]),
        mask(&Dropout { seed: 3 | 1 << 40, ..half }, 4, [0, 0, 0]),
        mask(&Dropout { step: 10, ..half }, 4, [0, 0, 0]),
        mask(&Dropout { step: 9 | 1 << 40, ..half }, 4, [0, 0, 0]),
        mask(&Dropout { site: 2, ..half }, 4, [0, 0, 0]),
        mask(&half, 5, [0, 0, 0]),
        mask(&half, 4, [1, 0, 0]),
        mask(&half, 4, [0, 64, 0]),
        mask(&half, 4, [0, 1, 0]),
        mask(&half, 4, [0, 0, 64]),
        mask(&half, 4, [0, 0, 1]),
    ];
    for (which, other) in others.iter().enumerate() {
        let same = base.iter().zip(other).filter(|(a, b)| a == b).count() as f64;
        assert!((same - 2048.0).abs() <= 4.5 * 32.0, "{which}: {same} of 4096");
    }
}

#[test]
fn threads_do_not_change_a_bit() {
    for (causal, relative, head_dim) in [(false, false, 64), (true, true, 37)] {
        check_threads(&large(causal, relative, head_dim).dropping(0.1, 5));
    }
}

#[test]
fn a_sequence_has_the_mask_it_has_alone() {
    check_alone(&large(true, false, 33).dropping(0.25, 8));
}

/// From the same statistics and context, all sets with fused multiply-add give the same bits.
#[test]
fn instruction_sets_agree() {
    for (causal, relative, head_dim) in [(false, false, 64), (true, true, 20), (true, false, 32)] {
        let case = large(causal, relative, head_dim).dropping(0.1, 3);
        let isas: Vec<Isa> = all_isas().into_iter().filter(|&isa| isa != Isa::SCALAR).collect();
        let Some(&first) = isas.first() else { return };
        let kept = case.forward(first, SERIAL);
        let expected = case.backward(first, &kept, SERIAL);
        for isa in isas {
            let found = case.backward(isa, &kept, SERIAL);
            assert!(found.bits() == expected.bits(), "{isa} and {first}, head size {head_dim}");
        }
    }
}

#[test]
fn without_a_probability_the_bits_are_those_of_no_dropout() {
    for causal in [false, true] {
        let none = large(causal, false, 20);
        let mut zero = none.clone();
        zero.dropout = Some(Dropout { seed: 1, step: 1, site: 1, probability: 0.0 });
        for isa in all_isas() {
            let (kept, again) = (none.forward(isa, SERIAL), zero.forward(isa, SERIAL));
            assert!(bits(&kept.context.data) == bits(&again.context.data), "{isa}");
            let found = zero.backward(isa, &again, SERIAL);
            let expected = none.backward(isa, &kept, SERIAL);
            assert!(found.bits() == expected.bits(), "{isa}");
        }
    }
}

/// A hidden key and its value reach no query from which they are hidden: by the limits, where [`Batch`]
/// holds poison, and by a bias; in one block of keys and in two.
#[test]
fn a_hidden_key_has_no_effect() {
    for keys in [4, 20, 300] {
        for causal in [false, true] {
            let mut batch = Batch::new(&[(9, keys, 3)], [2, 1, 16], [0; 3], 2);
            batch.causal = causal;
            let batch = with_bias(batch, |_, j| if j == 3 { f32::NEG_INFINITY } else { 0.25 });
            let mut case = Case::new(batch, [0; 4], 1).dropping(0.4, 12);
            let clean = case.compute_gradients(Isa::best(), SERIAL);
            case.batch.key.fill(3..4, || f32::NAN);
            case.batch.value.fill(3..4, || f32::INFINITY);
            for isa in all_isas() {
                let kept = case.forward(isa, SERIAL);
                let found = case.backward(isa, &kept, SERIAL);
                case.check(&found, &format!("{isa}, {keys} keys"));
                case.check_context(&kept, &format!("{isa}, {keys} keys"));
                assert!(found.key.row(3, 0).iter().all(|&x| x == 0.0), "{isa}");
            }
            let found = case.compute_gradients(Isa::best(), SERIAL);
            assert!(found.bits() == clean.bits(), "{keys} keys, causal {causal}");
        }
    }
}

/// The forward and the backward pass of one step drop the same weights, another step drops others.
#[test]
fn steps_differ() {
    let case = bare(8, 8, 0.5);
    let mut contexts = BTreeSet::new();
    for step in 0..20 {
        let mut case = case.clone();
        case.dropout = case.dropout.map(|dropout| Dropout { step, ..dropout });
        contexts.insert(bits(&case.forward(Isa::best(), SERIAL).context.data));
    }
    assert_eq!(contexts.len(), 20);
}
