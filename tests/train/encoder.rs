//! An encoder-only model is trained with a loss of the caller.

use simdformer::Error;
use simdformer::checkpoint::TensorId;
use simdformer::config::{Config, Dimensions, NormPlacement, Positions, Stack, TiedWeights};
use simdformer::train::{
    Example, Initial, REDUCTION_CHUNK, Smoothing, StepOptions, TrainLimits, Trainer,
};
use std::collections::BTreeMap;
use std::panic::{AssertUnwindSafe, catch_unwind};

type Weights = BTreeMap<String, Vec<f32>>;

/// As BERT is built: learned positions, token types, a norm after the embeddings. Or as the decoder of
/// Blenderbot-small: with the positions after the norm.
fn config(norm: NormPlacement, embedding: NormPlacement) -> Config {
    let small = Dimensions { d_model: 12, heads: 3, layers: 2, ffn_dim: 20, vocabulary: 23 };
    let paper = Config::transformer(small);
    Config {
        norm,
        decoder: None,
        encoder: Stack {
            embedding_norm: Some(embedding),
            final_norm: norm == NormPlacement::Pre,
            max_positions: Some(700),
            ..paper.encoder
        },
        positions: Positions::Learned { offset: 2 },
        token_types: 2,
        ties: TiedWeights { source_target: true, target_output: false },
        activation: simdformer::kernels::Activation::Gelu,
        ..paper
    }
}

fn trainer(config: Config, weights: Option<&Weights>) -> Trainer<'static> {
    let mut seed = 9u64;
    let mut random = || {
        seed = seed.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        (seed >> 40) as f32 / (1u64 << 24) as f32 - 0.5
    };
    let made = Trainer::new(config, TrainLimits::new(1024, 600), |role, shape, out| {
        match weights {
            Some(weights) => out.copy_from_slice(&weights[&role.to_string()]),
            None if shape.len() == 1 && role.to_string().ends_with("norm.weight") => {
                out.fill_with(|| 1.0 + 0.2 * random());
            }
            None => out.fill_with(|| 0.6 * random()),
        }
        Ok(())
    });
    made.expect("a trainer")
}

/// Half the sum of squared differences from targets that differ for each element. Its gradient is the
/// difference.
fn loss(first: usize, hidden: &[f32], d_hidden: &mut [f32]) -> f64 {
    let mut sum = 0.0;
    for (i, (d, &h)) in d_hidden.iter_mut().zip(hidden).enumerate() {
        *d = h - ((first + i) % 7) as f32 * 0.25;
        sum += 0.5 * f64::from(*d) * f64::from(*d);
    }
    sum
}

fn learn(trainer: &mut Trainer<'_>, sources: &[Vec<u32>]) -> f64 {
    let pairs: Vec<_> = sources
        .iter()
        .enumerate()
        .map(|(id, source)| Example::new(source, &[], id as u32))
        .collect();
    let (mut sentences, mut numbers) = (0, 0);
    let totals = trainer.accumulate_with(&pairs, &mut |range, hidden, d_hidden| {
        assert_eq!(range.start, sentences, "sentences come in order");
        sentences = range.end;
        let sum = loss(numbers, hidden, d_hidden);
        numbers += hidden.len();
        sum
    });
    let totals = totals.expect("gradients");
    assert_eq!(sentences, sources.len());
    assert_eq!(totals.tokens as usize * 12, numbers);
    totals.loss
}

fn sources(lengths: &[usize]) -> Vec<Vec<u32>> {
    let ids = |len: usize| (0..len).map(|i| ((i * i + 3 * len) % 23) as u32).collect();
    lengths.iter().map(|&len| ids(len)).collect()
}

/// Along the gradient the loss changes as the gradient predicts, for pre-norm and post-norm, in one pass
/// and in two.
#[test]
fn the_gradient_is_the_derivative_of_the_callers_loss() {
    let (before, after) = (NormPlacement::Pre, NormPlacement::Post);
    for (norm, embedding) in
        [(NormPlacement::Pre, after), (NormPlacement::Post, after), (NormPlacement::Post, before)]
    {
        for lengths in [&[5, 1, 9, 2][..], &[400, 120, REDUCTION_CHUNK + 8, 3]] {
            let sources = sources(lengths);
            let mut learner = trainer(config(norm, embedding), None);
            let start: Weights =
                learner.parameters().map(|(r, _, x)| (r.to_string(), x.to_vec())).collect();
            learn(&mut learner, &sources);
            let gradient: Weights = learner
                .gradients()
                .expect("gradients")
                .map(|(role, _, x)| (role.to_string(), x.to_vec()))
                .collect();
            // Parameters that are not used have no gradient. All others have one.
            for (role, x) in &gradient {
                assert!(x.iter().any(|&g| g != 0.0), "{role}");
            }
            let squares = gradient.values().flatten().map(|&g| f64::from(g) * f64::from(g));
            let length = squares.sum::<f64>().sqrt();
            let at = |h: f64| {
                let moved = start.iter().map(|(role, x)| {
                    let along = gradient.get(role);
                    let x = x.iter().enumerate().map(|(i, &x)| {
                        let g = along.map_or(0.0, |along| f64::from(along[i]));
                        (f64::from(x) + h * g / length) as f32
                    });
                    (role.clone(), x.collect())
                });
                learn(&mut trainer(config(norm, embedding), Some(&moved.collect())), &sources)
            };
            let h = 2e-3;
            let slope = (at(h) - at(-h)) / (2.0 * h);
            let error = (slope - length).abs();
            assert!(error <= 2e-3 * length, "{norm:?} {embedding:?} {lengths:?}: {slope} {length}");
        }
    }
}

/// Training works, and calls that need a target or a decoder are errors.
#[test]
fn an_encoder_trains_and_rejects_targets() {
    let mut learner = trainer(config(NormPlacement::Post, NormPlacement::Post), None);
    let sources = sources(&[5, 1, 9, 2]);
    let first = learn(&mut learner, &sources);
    let mut options = StepOptions::default();
    options.adam.rate = 1e-2;
    for _ in 0..150 {
        learner.update(&options.adam, options.clip_norm).expect("an update");
        learn(&mut learner, &sources);
    }
    learner.update(&options.adam, options.clip_norm).expect("an update");
    let last = learn(&mut learner, &sources);
    assert!(last < 0.2 * first, "{first} {last}");
    let pair = Example::new(&[3, 4], &[5], 0);
    let error = learner.accumulate(&[pair], Smoothing::default(), 1).expect_err("no decoder");
    assert!(matches!(error, Error::InvalidInput { .. }));
    let names: Vec<_> = learner.parameters().map(|(role, ..)| role).collect();
    assert!(names.contains(&TensorId::TokenTypes) && !names.contains(&TensorId::TargetEmbedding));
}

/// In an earlier version the partial sums of a pass that panicked stayed in the gradient.
#[test]
fn a_loss_that_panics_leaves_no_part_of_a_gradient() {
    let small = Dimensions { d_model: 16, heads: 2, layers: 1, ffn_dim: 32, vocabulary: 20 };
    let mut config = Config::transformer(small);
    config.decoder = None;
    let trainer = || {
        let weights = Initial::Glorot.weights(&config, 1);
        Trainer::new(config.clone(), TrainLimits::new(600, 600), weights).expect("a trainer")
    };
    let long: Vec<u32> = (0..500).map(|i| i % 20).collect();
    // One pass for each sentence, because two sentences exceed the plan.
    let pairs = [Example::new(&long, &[], 0), Example::new(&long[1..], &[], 1)];
    let learn = |trainer: &mut Trainer<'_>, panic_in: usize| {
        let mut calls = 0;
        let mut loss = |_: core::ops::Range<usize>, hidden: &[f32], d_hidden: &mut [f32]| {
            if calls == panic_in {
                std::panic::resume_unwind(Box::new("as planned"));
            }
            calls += 1;
            d_hidden.copy_from_slice(hidden);
            1.0
        };
        trainer.accumulate_with(&pairs, &mut loss).expect("gradients")
    };
    let gradients = |trainer: &mut Trainer<'_>| -> Vec<u32> {
        let all = trainer.gradients().expect("gradients");
        all.flat_map(|(_, _, numbers)| numbers).map(|x| x.to_bits()).collect()
    };
    let mut plain = trainer();
    let totals = learn(&mut plain, usize::MAX);
    let expected = gradients(&mut plain);
    for (panic_in, accumulated) in [(0, false), (1, false), (0, true), (1, true)] {
        let mut trainer = trainer();
        if accumulated {
            learn(&mut trainer, usize::MAX);
        }
        let payload =
            catch_unwind(AssertUnwindSafe(|| learn(&mut trainer, panic_in))).expect_err("a panic");
        assert_eq!(payload.downcast_ref::<&str>(), Some(&"as planned"), "{panic_in}");
        let error = trainer.gradients().map(|_| ()).expect_err("nothing was accumulated");
        assert!(error.to_string().contains("accumulated since the last update"), "{error}");
        let error = trainer.update(&StepOptions::default().adam, None).expect_err("nothing");
        assert!(error.to_string().contains("accumulated since the last update"), "{error}");
        assert_eq!(learn(&mut trainer, usize::MAX), totals);
        assert!(gradients(&mut trainer) == expected, "{panic_in} {accumulated}");
    }
}
