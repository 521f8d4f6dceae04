//! Twenty-five errors that have made trainers wrong without a crash, what this code does instead, and the test that fails
//! if the same error is made here. Tests without a file are in this file, files with `train/` in `kernels/tests`. The test
//! `the_tests_of_known_trainer_errors_exist` in `tests/documents.rs` checks the names.
//!
//! | # | error | here | test |
//! |---|---|---|---|
//! | 1 | the mean of the means of micro-batches is not the mean over tokens | one denominator for the whole update | `trap_01_parts_of_a_batch_share_one_denominator` |
//! | 2 | padding is counted in the denominator or by smoothing | there is no padding; an ignored row has no effect | `train/loss.rs`: `trap_02_ignored_rows_are_as_if_absent` |
//! | 3 | smoothing over V, V - 1 or V - 2 tokens | a setting, named after the frameworks that do so | `train/loss.rs`: `trap_03_smoothing_conventions_are_those_of_the_frameworks` |
//! | 4 | the end token is in the loss and not in the token count | it is in both | `trap_04_the_end_counts` |
//! | 5 | gradients are clipped too early, or each tensor by itself | one norm per update | `trap_05_gradients_are_clipped_together` |
//! | 6 | a gradient is cut off without notice | a test requires that every parameter changes | `trap_06_every_parameter_gets_a_gradient` |
//! | 7 | a tied matrix: one use forgotten, updated twice, or scaled wrongly | the sum of the three uses | `trap_07_a_tied_matrix_learns_from_its_three_uses` |
//! | 8 | the row of the pad token, frozen biases or sinusoids change | they keep every bit | `trap_08_pad_and_buffers_stay` |
//! | 9 | a row without visible keys makes everything NaN | it gives exactly 0 | `train/attention_rules.rs`: `trap_09_a_length_of_0_beside_a_length_of_5` |
//! | 10 | lanes after the last key overflow | their weights are 0 before the product | `train/attention_rules.rs`: `trap_10_padded_lanes_do_not_overflow_under_very_negative_maxima` |
//! | 11 | strides of a gradient are ignored | views hold them | `train/attention_rules.rs`: `trap_11_strides_of_the_contexts_gradient_do_not_matter` |
//! | 12 | dropout in validation, or no dropout after it | evaluation changes no state | `trap_12_evaluation_leaves_no_trace` |
//! | 13 | the same mask at every step | the mask is a function of the step, too | `train/dropout.rs`: `trap_13_seed_step_site_sentence_and_position_each_make_another_mask` |
//! | 14 | the backward pass uses another epsilon in norms | both use that of the configuration | `trap_14_epsilon_is_that_of_the_configuration` |
//! | 15 | weight decay on norms and biases | on matrices only | `initial.rs`: `trap_15_norms_and_biases_do_not_decay` |
//! | 16 | Adam's epsilon is at another place in the formula | as in PyTorch | `train/optimizer.rs`: `trap_16_three_updates_are_pytorchs` |
//! | 17 | steps are counted from 0, so the first step is zero or infinite | they are counted from 1 | `data.rs`: `trap_17_the_first_step_has_a_rate` |
//! | 18 | moments of unused tokens become subnormal, which is slow | they become 0 | `train/optimizer.rs`: `trap_18_moments_of_unused_rows_become_zero` |
//! | 19 | the number of threads changes bits | tasks and reduction chunks do not depend on threads | `train/weight_gradient_bits.rs`: `trap_19_threads_do_not_change_a_bit`; `train/norm_sums.rs`: `trap_19_threads_do_not_change_a_bit`; `train/attention_rules.rs`: `trap_19_threads_do_not_change_a_bit`; `bits.rs`: `trap_19_threads_do_not_change_a_bit` |
//! | 20 | a resumed run sees the same data again, or loses state | random numbers are functions of counters | `runs.rs`: `trap_20_a_run_that_was_interrupted_is_one_that_was_not` |
//! | 21 | gradients are cleared at the wrong time | the first write stores, later writes add | `trap_21_nothing_is_left_of_an_earlier_update` |
//! | 22 | losses of millions of tokens are summed in f32 | in f64, in order | `trap_22_losses_are_summed_in_f64_in_order` |
//! | 23 | labels are shifted wrongly; mBART's language token | as in each family's own library | `trap_23_targets_are_shifted` |
//! | 24 | one model is validated and another one is saved | the same one | `runs.rs`: `trap_24_the_saved_model_is_the_validated_one` |
//! | 25 | products of sizes overflow | checked; an overflow is an error | `trap_25_sizes_that_do_not_fit_are_errors` |

use super::support::{OpenTrainer, limits, pairs};
use simdformer::Error;
use simdformer::checkpoint::TensorId;
use simdformer::config::{Config, Dimensions, SpecialTokens, TiedWeights};
use simdformer::kernels::Isa;
use simdformer::train::{
    Adam, DropoutRates, Example, REDUCTION_CHUNK, Smoothing, StepOptions, TrainLimits, TrainPlan,
    Trainer,
};
use simdformer_testing::gradient_goldens::{OwnedExample, goldens};
use std::collections::BTreeMap;

fn random(seed: &mut u64) -> f32 {
    *seed = seed.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
    (*seed >> 40) as f32 / (1u64 << 24) as f32 - 0.5
}

fn config(ties: TiedWeights) -> Config {
    let small = Dimensions { d_model: 12, heads: 3, layers: 2, ffn_dim: 20, vocabulary: 23 };
    Config {
        ties,
        tokens: SpecialTokens { decoder_start: Some(1), eos: vec![0], ..SpecialTokens::default() },
        ..Config::transformer(small)
    }
}

const TIED: TiedWeights = TiedWeights { source_target: true, target_output: true };

/// Weights that depend only on the `TensorId` and the element. The three tables of a model without ties are
/// equal.
fn trainer(config: Config) -> Trainer<'static> {
    trainer_within(config, TrainLimits::new(64, 32))
}

fn trainer_within(config: Config, limits: TrainLimits) -> Trainer<'static> {
    let made = Trainer::new(config, limits, |role, shape, out| {
        let name = match role {
            TensorId::TargetEmbedding | TensorId::Output => TensorId::SourceEmbedding.to_string(),
            other => other.to_string(),
        };
        let start = name.bytes().fold(17u64, |all, byte| all.wrapping_mul(31) + u64::from(byte));
        let mut seed = start;
        match *shape {
            [_] if name.ends_with("norm.weight") => out.fill_with(|| 1.0 + 0.2 * random(&mut seed)),
            _ => out.fill_with(|| 0.8 * random(&mut seed)),
        }
        Ok(())
    });
    made.expect("a trainer")
}

fn sentences(count: usize, longest: usize) -> Vec<OwnedExample> {
    let mut seed = 5;
    let mut below = |n: usize| ((random(&mut seed) + 0.5) * n as f32) as usize % n;
    let mut ids = |len: usize| {
        let mut ids: Vec<u32> = (0..len).map(|_| 2 + below(21) as u32).collect();
        ids.push(0);
        ids
    };
    (0..count)
        .map(|id| OwnedExample {
            source: ids(id * 7 % longest),
            target: ids(id * 5 % longest),
            id: id as u32,
            ..OwnedExample::default()
        })
        .collect()
}

fn gradients(trainer: &mut Trainer<'_>) -> BTreeMap<String, Vec<f32>> {
    let all = trainer.gradients().expect("gradients");
    all.map(|(role, _, numbers)| (role.to_string(), numbers.to_vec())).collect()
}

/// The mean over the tokens of a batch is not the mean of the means of its parts. The parts use one
/// denominator, and their sum has the bits of the batch.
#[test]
fn trap_01_parts_of_a_batch_share_one_denominator() {
    // Four groups of sentences whose sources are a reduction chunk each.
    let quarter = || sentences(30, 20);
    let mut all = Vec::new();
    for part in 0..4 {
        let mut some = quarter();
        let tokens: usize = some.iter().map(|s| s.source.len()).sum();
        let (source, target) = (vec![3; REDUCTION_CHUNK - tokens], vec![4, 0]);
        some.push(OwnedExample { source, target, ..OwnedExample::default() });
        some.iter_mut().for_each(|s| s.target.resize(s.target.len() + part, 5));
        all.push(some);
    }
    let make = || trainer_within(config(TIED), TrainLimits::new(64, REDUCTION_CHUNK));
    let whole: Vec<_> = all.concat();
    let tokens: usize = whole.iter().map(|s| s.target.len()).sum();
    let mut one = make();
    let totals =
        one.accumulate(&pairs(&whole), Smoothing::default(), tokens as u64).expect("gradients");
    let mut four = make();
    let mut means = 0.0;
    for part in &all {
        let so_far = four.accumulate(&pairs(part), Smoothing::default(), tokens as u64);
        let so_far = so_far.expect("gradients");
        let of_part = make().evaluate(&pairs(part), Smoothing::default()).expect("losses");
        means += of_part.mean_loss() / 4.0;
        assert!(so_far.tokens <= totals.tokens);
    }
    assert_eq!(gradients(&mut one), gradients(&mut four));
    assert!((means - totals.mean_loss()).abs() > 1e-4, "the two differ: {means}");
}

/// The end token counts in the loss and in the number of tokens.
#[test]
fn trap_04_the_end_counts() {
    for golden in goldens() {
        let mut trainer = golden.trainer(Isa::best(), limits());
        let totals =
            trainer.evaluate(&pairs(&golden.sentences), Smoothing::default()).expect("losses");
        let expected: usize = golden.sentences.iter().map(|sentence| sentence.target.len()).sum();
        assert_eq!(totals.tokens, expected as u64);
        let loss = golden.expected["loss"]["0"]["f64"].as_f64().expect("a loss");
        assert!((totals.mean_nll() - loss).abs() <= 2e-6 * loss, "{}", golden.name);
    }
}

/// One norm of all gradients is computed after all of them are complete, and it scales all of them by one
/// factor.
#[test]
fn trap_05_gradients_are_clipped_together() {
    let sentences = sentences(9, 8);
    let tokens: u64 = sentences.iter().map(|s| s.target.len() as u64).sum();
    let mut learner = trainer(config(TIED));
    let before: Vec<_> = learner.parameters().map(|(role, _, x)| (role, x.to_vec())).collect();
    for half in [&sentences[..4], &sentences[4..]] {
        learner.accumulate(&pairs(half), Smoothing::default(), tokens).expect("gradients");
    }
    let gradients = gradients(&mut learner);
    let squares = gradients.values().flatten().map(|&g| f64::from(g) * f64::from(g)).sum::<f64>();
    let norm = squares.sqrt();
    // With an epsilon of 1 the first update depends on the size of the gradient, not only on its sign.
    let (rate, clip) = (0.5, 0.25 * norm);
    let adam = Adam { rate, epsilon: 1.0, ..StepOptions::default().adam };
    let made = learner.update(&adam, Some(clip)).expect("an update");
    assert!(made.clipped && !made.skipped);
    assert!((made.norm - norm).abs() <= 1e-6 * norm, "{} {norm}", made.norm);
    for ((role, before), (_, _, after)) in before.iter().zip(learner.parameters()) {
        let Some(gradient) = gradients.get(&role.to_string()) else { continue };
        for ((&before, &after), &gradient) in before.iter().zip(after).zip(gradient) {
            let g = 0.25 * f64::from(gradient);
            let expected = f64::from(before) - rate * g / (g.abs() + 1.0);
            let error = (f64::from(after) - expected).abs();
            assert!(error <= 1e-6 * (1.0 + expected.abs()), "{role}: {after} {expected}");
        }
    }
}

/// No gradient is cut off: every parameter gets one that is not zero, and changes.
#[test]
fn trap_06_every_parameter_gets_a_gradient() {
    for (ties, gated) in
        [(TIED, false), (TiedWeights { source_target: false, target_output: false }, true)]
    {
        let mut learner = trainer(Config { gated, ..config(ties) });
        let sentences = sentences(9, 8);
        learner.accumulate(&pairs(&sentences), Smoothing::default(), 40).expect("gradients");
        let config = learner.model().config().clone();
        let found = gradients(&mut learner);
        for role in TensorId::all(&config) {
            let shared =
                matches!(role, TensorId::TargetEmbedding | TensorId::Output) && ties == TIED;
            let gradient = found.get(&role.to_string());
            assert_eq!(gradient.is_none(), shared, "{role}");
            let Some(gradient) = gradient else { continue };
            assert!(gradient.iter().any(|&g| g != 0.0), "{role}");
            assert!(gradient.iter().all(|g| g.is_finite()), "{role}");
        }
    }
}

/// A tied matrix gets the gradients of its three uses, each with its own scale.
#[test]
fn trap_07_a_tied_matrix_learns_from_its_three_uses() {
    let sentences = sentences(12, 9);
    let of = |ties| {
        let mut learner = trainer(config(ties));
        learner.accumulate(&pairs(&sentences), Smoothing::default(), 60).expect("gradients");
        gradients(&mut learner)
    };
    let tied = of(TIED);
    let apart = of(TiedWeights { source_target: false, target_output: false });
    let shared = &tied[&TensorId::SourceEmbedding.to_string()];
    let uses = [TensorId::SourceEmbedding, TensorId::TargetEmbedding, TensorId::Output];
    let uses = uses.map(|role| &apart[&role.to_string()]);
    for index in 0..shared.len() {
        let sum: f64 = uses.iter().map(|of_use| f64::from(of_use[index])).sum();
        let size: f64 = uses.iter().map(|of_use| f64::from(of_use[index]).abs()).sum();
        let error = (f64::from(shared[index]) - sum).abs();
        assert!(error <= 4e-7 * size + 1e-9, "{index}: {} {sum}", shared[index]);
    }
    for (role, gradient) in &tied {
        if *role != TensorId::SourceEmbedding.to_string() {
            assert_eq!(gradient, &apart[role], "{role}");
        }
    }
}

/// Lookups give the row of the pad token no gradient. Frozen tensors keep their bits.
#[test]
fn trap_08_pad_and_buffers_stay() {
    let goldens = goldens();
    let golden = goldens.iter().find(|golden| golden.name == "marian_relu_untied").expect("it");
    let mut learner = golden.trainer(Isa::best(), limits());
    let config = learner.model().config().clone();
    let pad = config.tokens.pad.expect("a pad") as usize;
    let row = |learner: &Trainer<'_>, role: TensorId| {
        let (_, shape, x) = learner.parameters().find(|(r, ..)| *r == role).expect("a tensor");
        let columns = shape.get(1).copied().unwrap_or(1);
        let first = if shape.len() == 2 { pad * columns } else { 0 };
        x[first..if shape.len() == 2 { first + columns } else { x.len() }].to_vec()
    };
    let before = [TensorId::SourceEmbedding, TensorId::OutputBias].map(|role| row(&learner, role));
    // The decoder starts with the pad token, and here the source contains it too.
    let mut sentences = golden.sentences.clone();
    sentences[0].source.insert(0, pad as u32);
    for _ in 0..3 {
        learner.step(&pairs(&sentences), &StepOptions::default()).expect("a step");
    }
    let after = [TensorId::SourceEmbedding, TensorId::OutputBias].map(|role| row(&learner, role));
    assert_eq!(before, after);
}

/// Evaluation changes nothing, and gives the same values twice.
#[test]
fn trap_12_evaluation_leaves_no_trace() {
    let golden = &goldens()[0];
    let make = || {
        let mut trainer = golden.trainer(Isa::best(), limits());
        let rates = DropoutRates { hidden: 0.3, attention: 0.1, activation: 0.2, seed: 0 };
        trainer.set_dropout(rates).expect("rates");
        trainer
    };
    let (mut one, mut other) = (make(), make());
    let sentences = pairs(&golden.sentences);
    for _ in 0..3 {
        let a = one.evaluate(&sentences, Smoothing::default()).expect("losses");
        let b = one.evaluate(&sentences, Smoothing::default()).expect("losses");
        assert_eq!(a, b);
        let a = one.step(&sentences, &StepOptions::default()).expect("a step");
        let b = other.step(&sentences, &StepOptions::default()).expect("a step");
        assert_eq!(a, b);
    }
}

/// The norms of the backward pass use the epsilon of the configuration. With a large epsilon, the loss
/// along the gradient changes as the gradient predicts.
#[test]
fn trap_14_epsilon_is_that_of_the_configuration() {
    let sentences = sentences(6, 8);
    let tokens: u64 = sentences.iter().map(|s| s.target.len() as u64).sum();
    for eps in [1e-12, 0.3] {
        let config = || Config { layer_norm_eps: eps, ..config(TIED) };
        let mut learner = trainer(config());
        learner.accumulate(&pairs(&sentences), Smoothing::default(), tokens).expect("gradients");
        let gradient = gradients(&mut learner);
        // Along the gradient, where the loss changes most.
        let squares = gradient.values().flatten().map(|&g| f64::from(g) * f64::from(g));
        let expected = squares.sum::<f64>().sqrt();
        let direction: BTreeMap<_, Vec<f32>> = gradient
            .iter()
            .map(|(role, g)| (role.clone(), g.iter().map(|&g| g / expected as f32).collect()))
            .collect();
        let h = 2e-3;
        let loss = |h: f32| {
            let base = trainer(config());
            let base: BTreeMap<_, _> =
                base.parameters().map(|(role, _, x)| (role.to_string(), x.to_vec())).collect();
            let moved = Trainer::new(config(), TrainLimits::new(64, 32), |role, _, out| {
                let name = role.to_string();
                for (i, out) in out.iter_mut().enumerate() {
                    *out = base[&name][i] + h * direction.get(&name).map_or(0.0, |d| d[i]);
                }
                Ok(())
            });
            let totals =
                moved.expect("a trainer").evaluate(&pairs(&sentences), Smoothing::default());
            totals.expect("losses").mean_loss()
        };
        let slope = (loss(h) - loss(-h)) / (2.0 * f64::from(h));
        let error = (slope - expected).abs();
        assert!(error <= 2e-3 * expected, "eps {eps}: {slope} {expected}");
    }
}

/// The gradient is that of this update alone: earlier updates leave nothing in it.
#[test]
fn trap_21_nothing_is_left_of_an_earlier_update() {
    let sentences = sentences(9, 8);
    let mut learner = trainer(config(TIED));
    let options = StepOptions {
        adam: Adam { rate: 0.0, ..StepOptions::default().adam },
        ..StepOptions::default()
    };
    let first = learner.step(&pairs(&sentences), &options).expect("a step");
    let again = learner.step(&pairs(&sentences), &options).expect("a step");
    // A learning rate of zero changes nothing, so the second step equals the first.
    assert_eq!(first, again);
}

/// Sums of losses are in f64, one token after the other in the order of the sentences, in any number of
/// passes.
#[test]
fn trap_22_losses_are_summed_in_f64_in_order() {
    let sentences = sentences(300, 30);
    let mut learner = trainer(config(TIED));
    let all = learner.evaluate(&pairs(&sentences), Smoothing::default()).expect("losses");
    let mut sum = 0.0;
    let mut tokens = 0;
    for pair in pairs(&sentences) {
        let one = learner.evaluate(&[pair], Smoothing::default()).expect("losses");
        sum += one.nll;
        tokens += one.tokens;
    }
    assert_eq!(all.tokens, tokens);
    assert!((all.nll - sum).abs() <= 1e-12 * sum, "{} {sum}", all.nll);
}

/// The decoder inputs are those of each family's own library: the loss of each target equals that of a
/// prefix shifted by one, and mBART's language token comes first. The unit tests of `batch.rs` check the
/// ids.
#[test]
fn trap_23_targets_are_shifted() {
    for golden in goldens() {
        let trainer = golden.trainer(Isa::best(), limits());
        let config = trainer.model().config();
        let inputs = golden.expected["decoder_input_ids"].as_array().expect("ids");
        for (sentence, expected) in golden.sentences.iter().zip(inputs) {
            let last = *sentence.target.last().expect("a token");
            let mut ids = vec![config.tokens.decoder_start.unwrap_or(last)];
            ids.extend(&sentence.target[..sentence.target.len() - 1]);
            let expected: Vec<u32> = expected
                .as_array()
                .expect("ids")
                .iter()
                .map(|id| id.as_u64().expect("an id") as u32)
                .collect();
            assert_eq!(ids, expected, "{}", golden.name);
        }
    }
}

/// Sizes that do not fit are an error, even if their product overflows to a small number.
#[test]
fn trap_25_sizes_that_do_not_fit_are_errors() {
    let config = Config::base(32_000);
    for tokens in [1 << 29, u32::MAX as usize, usize::MAX / 4, usize::MAX] {
        let made = TrainPlan::new(&config, Isa::best(), TrainLimits::new(tokens, 64));
        match made {
            Err(Error::OutOfMemory { bytes: None, .. } | Error::Kernel(_)) => {}
            Ok(plan) => assert!(plan.bytes() > tokens, "{tokens}"),
            Err(other) => panic!("{other}"),
        }
    }
}

/// Sentences that cannot be used are an error before anything is computed.
#[test]
fn bad_sentences_are_errors() {
    let mut learner = trainer(config(TIED));
    let good = Example::new(&[3, 0], &[4, 0], 0);
    let cases: [(Example<'_>, &str); 5] = [
        (Example { source: &[], ..good }, "the source: expected at least one token, found none"),
        (Example { target: &[], ..good }, "the target: expected at least one token, found none"),
        (Example { source: &[3; 33], ..good }, "the source: expected at most 32 tokens, found 33"),
        (
            Example { target: &[4, 23, 0], ..good },
            "the target, token 1: expected a token id below 23, the size of the vocabulary, found 23",
        ),
        (
            Example { source: &[23], ..good },
            "the source, token 0: expected a token id below 23, the size of the vocabulary, found 23",
        ),
    ];
    for (pair, text) in cases {
        let error =
            learner.accumulate(&[good, pair], Smoothing::default(), 4).expect_err("refused");
        let error = error.to_string();
        assert!(error.starts_with("source 1: ") && error.contains(text), "{error}");
    }
    assert!(learner.gradients().is_err(), "nothing was accumulated");
    assert!(learner.evaluate(&[], Smoothing::default()).is_err());
    let nothing = learner.update(&StepOptions::default().adam, None);
    assert!(matches!(nothing, Err(Error::InvalidInput { .. })));
}
