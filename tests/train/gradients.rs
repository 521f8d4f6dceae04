//! The gradients of whole models compared with PyTorch's autograd.

use super::support::{OpenTrainer, limits, pairs};
use simdformer::kernels::Isa;
use simdformer::train::{Adam, Smoothing, StepOptions};
use simdformer_testing::gradient_goldens::{Golden, goldens};
use std::collections::{BTreeMap, BTreeSet};

fn smoothing(epsilon: f32) -> Smoothing {
    Smoothing { epsilon, ..Smoothing::default() }
}

/// For every parameter our f32 gradient differs from f64 by at most twice the difference of PyTorch's f32.
#[test]
fn gradients_are_as_close_to_f64_as_those_of_pytorch() {
    for golden in goldens() {
        for isa in Isa::available() {
            let mut trainer = golden.trainer(isa, limits());
            let sentences = pairs(&golden.sentences);
            let tokens = sentences.iter().map(|pair| pair.target.len() as u64).sum();
            assert_eq!(Some(tokens), golden.expected["target_tokens"].as_u64());
            let epsilon = golden.smoothing();
            let totals =
                trainer.accumulate(&sentences, smoothing(epsilon), tokens).expect("gradients");
            check_loss(&golden, totals.mean_loss(), epsilon);
            check_gradients(&golden, isa, &mut trainer);
        }
    }
}

fn check_loss(golden: &Golden, found: f64, epsilon: f32) {
    let key = if epsilon == 0.0 { "0" } else { "0.1" };
    let expected = golden.expected["loss"][key]["f64"].as_f64().expect("a loss");
    let error = (found - expected).abs();
    assert!(error <= 2e-6 * expected, "{}: {found} {expected}", golden.name);
}

fn check_gradients(golden: &Golden, isa: Isa, trainer: &mut simdformer::train::Trainer<'_>) {
    let known = &golden.expected["gradients"];
    let zero: BTreeSet<_> = golden.expected["zero_but_for_rounding"]
        .as_array()
        .expect("names")
        .iter()
        .map(|name| name.as_str().expect("a name").to_owned())
        .collect();
    // If a file has query, key and value in one tensor, they follow each other.
    let mut found: BTreeMap<String, Vec<f32>> = BTreeMap::new();
    let roles: Vec<_> = trainer
        .gradients()
        .expect("gradients")
        .map(|(role, _, numbers)| (role, numbers.to_vec()))
        .collect();
    for (role, numbers) in roles {
        found.entry(golden.name_of(role, trainer.model().config())).or_default().extend(numbers);
    }
    for (name, numbers) in &found {
        let expected = &golden.gradients[name];
        assert_eq!(numbers.len(), expected.len(), "{} {name}", golden.name);
        let (mut furthest, mut squares) = (0.0, 0.0);
        for (&a, &b) in numbers.iter().zip(expected) {
            let error = (f64::from(a) - b).abs();
            assert!(error.is_finite(), "{} {name} {isa}", golden.name);
            furthest = f64::max(furthest, error);
            squares += error * error;
        }
        let number = |name: &str, key: &str| known[name][key].as_f64().expect("a number");
        // The gradient of the key bias is 0. Its rounding errors have the magnitude of the key
        // weight's gradient.
        let scale = match zero.contains(name) {
            true => name.strip_suffix("bias").map(|stem| format!("{stem}weight")),
            false => None,
        };
        let measured = scale.as_ref().unwrap_or(name);
        let torch = |key| number(measured, key).max(number(name, key));
        let (distance, bound) = (squares.sqrt(), 2.0 * torch("f32_distance"));
        assert!(
            distance <= bound,
            "{} {name} {isa}: {distance:.2e} away, bound {bound:.2e}",
            golden.name
        );
        // The largest difference is one sample of many. In no tensor does it exceed three times
        // PyTorch's.
        let bound = 3.0 * torch("f32_error_worst") + 2f64.powi(-23) * number(measured, "largest");
        assert!(
            furthest <= bound,
            "{} {name} {isa}: {furthest:.2e}, bound {bound:.2e}",
            golden.name
        );
    }
    assert!(
        found.keys().eq(golden.gradients.keys()),
        "{}: every parameter that learns has a gradient",
        golden.name
    );
}

/// Ten losses with Adam from the same start, on the same data in the same order.
#[test]
fn ten_losses_are_those_of_pytorch() {
    for golden in goldens() {
        let run = &golden.expected["run"];
        let orders = run["orders"].as_array().expect("orders");
        let losses = run["losses"]["f64"].as_array().expect("losses");
        assert_eq!((orders.len(), losses.len()), (10, 10));
        for isa in Isa::available() {
            let mut trainer = golden.trainer(isa, limits());
            let options = StepOptions {
                smoothing: smoothing(golden.smoothing()),
                adam: Adam { rate: 1e-3, ..StepOptions::default().adam },
                clip_norm: None,
            };
            for (step, (order, loss)) in orders.iter().zip(losses).enumerate() {
                let order = order.as_array().expect("an order").iter();
                let sentences: Vec<_> = order
                    .map(|i| golden.sentences[i.as_u64().expect("a number") as usize].clone())
                    .collect();
                let made = trainer.step(&pairs(&sentences), &options).expect("a step");
                let (found, expected) = (made.totals.mean_loss(), loss.as_f64().expect("a loss"));
                let error = (found - expected).abs();
                assert!(error <= 1e-5, "{} {isa} step {step}: {found} {expected}", golden.name);
            }
        }
    }
}

/// Trainable parameters change. Frozen ones keep their bits.
#[test]
fn every_parameter_moves_but_the_frozen_ones() {
    for golden in goldens() {
        let mut trainer = golden.trainer(Isa::best(), limits());
        let before: Vec<_> =
            trainer.parameters().map(|(role, _, numbers)| (role, numbers.to_vec())).collect();
        let sentences = pairs(&golden.sentences);
        trainer.step(&sentences, &StepOptions::default()).expect("a step");
        let names: BTreeSet<_> = golden.gradients.keys().cloned().collect();
        for ((role, before), (_, _, after)) in before.iter().zip(trainer.parameters()) {
            let learns = role.names(trainer.model().config()).iter().any(|n| names.contains(n));
            let moved = before.iter().zip(after).any(|(a, b)| a.to_bits() != b.to_bits());
            assert_eq!(moved, learns, "{} {role}", golden.name);
        }
    }
}
