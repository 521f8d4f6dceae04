//! The same bits on any number of threads, for any limits, for every `SavedActivations`, in one pass or in
//! several.

use super::support::{OpenTrainer, limits, pairs};
use crate::digest::Digest;
use crate::scoped::Scoped;
use simdformer::config::Side;
use simdformer::kernels::train::{RowLoss, cross_entropy_loss};
use simdformer::kernels::{Exec, Executor, Isa, Matrix};
use simdformer::train::{
    DropoutRates, Initial, SavedActivations, Smoothing, StepOptions, TrainLimits, Trainer,
};
use simdformer::{Limits, Session, Threads};
use simdformer_testing::gradient_goldens::{Golden, OwnedExample, goldens};
use std::path::Path;
use std::sync::atomic::{AtomicUsize, Ordering};

/// Sentences for several reduction chunks.
fn corpus(golden: &Golden, count: usize) -> Vec<OwnedExample> {
    let mut seed = 11u64;
    let mut random = |below: usize| {
        seed = seed.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        (seed >> 33) as usize % below
    };
    let each = &golden.sentences;
    (0..count)
        .map(|id| {
            let from = each[random(each.len())].clone();
            let target = each[random(each.len())].target.clone();
            OwnedExample { target, id: id as u32, ..from }
        })
        .collect()
}

/// Every n-th golden, and the one that reads features.
fn some(step: usize) -> Vec<Golden> {
    let goldens = goldens().into_iter().enumerate();
    let some = goldens.filter(|(index, golden)| index % step == 0 || golden.name == "whisper");
    some.map(|(_, golden)| golden).collect()
}

fn bits(trainer: &Trainer<'_>) -> Vec<u32> {
    trainer.parameters().flat_map(|(_, _, x)| x.iter().map(|x| x.to_bits())).collect()
}

/// Three steps over `sentences`: the losses and the parameters.
fn run(trainer: &mut Trainer<'_>, sentences: &[OwnedExample]) -> (Vec<u64>, Vec<u32>) {
    let options = StepOptions {
        smoothing: Smoothing { epsilon: 0.1, ..Smoothing::default() },
        ..StepOptions::default()
    };
    let third = sentences.len() / 3;
    let mut losses = Vec::new();
    for part in sentences.chunks(third) {
        let step = trainer.step(&pairs(part), &options).expect("a step");
        losses.push(step.totals.loss.to_bits());
        losses.push(step.update.norm.to_bits());
    }
    (losses, bits(trainer))
}

#[test]
fn trap_19_threads_do_not_change_a_bit() {
    for golden in some(2) {
        let sentences = corpus(&golden, 60);
        let expected = run(&mut golden.trainer(Isa::best(), limits()), &sentences);
        for threads in [1, 2, 3, 7] {
            let pool =
                rayon::ThreadPoolBuilder::new().num_threads(threads).build().expect("a pool");
            let mut trainer = golden.trainer(Isa::best(), limits());
            trainer.set_threads(Threads::Rayon);
            let found = pool.install(|| run(&mut trainer, &sentences));
            assert!(found == expected, "{} on {threads} threads", golden.name);
        }
    }
}

/// A pool of three threads whose `threads` gives another number each time.
struct Changing(AtomicUsize);

impl Executor for Changing {
    fn threads(&self) -> usize {
        [3, 1, 3, 1, 2][self.0.fetch_add(1, Ordering::Relaxed) % 5]
    }

    fn for_each(&self, tasks: usize, task: &(dyn Fn(usize) + Sync)) {
        Scoped(3).for_each(tasks, task);
    }
}

#[test]
fn a_changing_number_of_threads_does_not_change_a_bit() {
    let executor = Changing(AtomicUsize::new(0));
    for golden in some(3) {
        let sentences = corpus(&golden, 24);
        let expected = run(&mut golden.trainer(Isa::best(), limits()), &sentences);
        let mut trainer = golden.trainer(Isa::best(), limits());
        trainer.set_threads(Threads::Executor(&executor));
        assert!(run(&mut trainer, &sentences) == expected, "{}", golden.name);
    }
}

/// All goldens on all instruction sets: one pass or several, and every `SavedActivations`.
#[test]
fn passes_and_saved_activations_do_not_change_a_bit() {
    for golden in goldens() {
        let sentences = corpus(&golden, 270);
        for isa in Isa::available() {
            let large = TrainLimits::new(4096, 24);
            let expected = run(&mut golden.trainer(isa, large), &sentences);
            for keep in [
                SavedActivations::Everything,
                SavedActivations::Projections,
                SavedActivations::Context,
                SavedActivations::Inputs,
            ] {
                for limits in [limits(), TrainLimits::new(1100, 24), large] {
                    let limits = TrainLimits { keep, ..limits };
                    let found = run(&mut golden.trainer(isa, limits), &sentences);
                    assert!(found == expected, "{} {isa} {limits:?}", golden.name);
                }
            }
        }
    }
}

/// The digest of each golden after three steps from its weights, and after three steps from initial weights
/// with dropout. It is the same on every instruction set and on other machines, whose digests are in
/// `tests/golden/trained.txt`. `SIMDFORMER_WRITE_BITS=1` writes the file again.
#[test]
fn digests_of_training() {
    let mut numbers = String::new();
    for golden in goldens() {
        let sentences = corpus(&golden, 30);
        let mut first = None;
        for isa in Isa::available() {
            let mut digest = Digest::default();
            let mut learn = |mut trainer: Trainer<'_>| {
                let (losses, parameters) = run(&mut trainer, &sentences);
                losses.into_iter().for_each(|loss| digest.word(loss));
                parameters.into_iter().for_each(|bits| digest.word(bits.into()));
            };
            learn(golden.trainer(isa, limits()));
            let checkpoint = golden.checkpoint();
            let initial =
                Initial::from_hugging_face(checkpoint.config(), "{}").expect("the defaults");
            let fill = initial.weights(checkpoint.config(), 5);
            let config = checkpoint.config().clone();
            let mut trainer = Trainer::new_on(isa, config, limits(), fill).expect("a trainer");
            trainer
                .set_dropout(DropoutRates {
                    activation: 0.1,
                    hidden: 0.2,
                    ..DropoutRates::default()
                })
                .expect("rates");
            learn(trainer);
            let number = format!("{:016x}", digest.0);
            assert_eq!(*first.get_or_insert(number.clone()), number, "{} on {isa}", golden.name);
        }
        numbers += &format!("{} {}\n", first.expect("an instruction set"), golden.name);
    }
    let file = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/golden/trained.txt");
    if std::env::var_os("SIMDFORMER_WRITE_BITS").is_some() {
        std::fs::write(&file, &numbers).expect("written");
    }
    let expected = std::fs::read_to_string(&file).expect("tests/golden/trained.txt");
    for (found, expected) in numbers.lines().zip(expected.lines()) {
        assert_eq!(found, expected, "SIMDFORMER_WRITE_BITS=1 writes them again, if that was meant");
    }
    assert_eq!(numbers.lines().count(), expected.lines().count(), "models");
}

/// The losses are those of the logits of a session, each sentence alone and with the KV cache, after some
/// steps, on every instruction set.
#[test]
fn the_forward_pass_has_the_bits_of_a_session() {
    for golden in goldens() {
        for isa in Isa::available() {
            let mut trainer = golden.trainer(isa, limits());
            trainer.step(&pairs(&golden.sentences), &StepOptions::default()).expect("a step");
            let smoothing = Smoothing { epsilon: 0.1, ..Smoothing::default() };
            let found = trainer.evaluate(&pairs(&golden.sentences), smoothing).expect("losses");

            let (loss, nll) = of_session(&trainer, &golden.sentences, smoothing);
            let (expected, found) = ((loss, nll), (found.loss, found.nll));
            assert_eq!(found.0.to_bits(), expected.0.to_bits(), "{} {isa}", golden.name);
            assert_eq!(found.1.to_bits(), expected.1.to_bits(), "{} {isa}", golden.name);
        }
    }
}

/// The sums of the losses that a session gives, each sentence alone and with the KV cache: with smoothing
/// and without.
pub(crate) fn of_session(
    trainer: &Trainer<'_>,
    sentences: &[OwnedExample],
    smoothing: Smoothing,
) -> (f64, f64) {
    let model = trainer.model();
    let (start, vocabulary) = (model.config().tokens.decoder_start, model.config().target_vocab);
    let longest = model.config().max_positions(Side::Encoder).unwrap_or(24).min(24);
    let mut session = Session::new(model, Limits::new(1, longest, 24)).expect("a session");
    let (mut loss, mut nll) = (0.0, 0.0);
    for example @ OwnedExample { source, target, .. } in sentences {
        let mut sentence = [simdformer::SourceId::default()];
        match example.features() {
            Some(features) => session.encode_features(&[features], &mut sentence),
            None => session.encode(&[source], &mut sentence),
        }
        .expect("encoded");
        let row = session.start(sentence[0]).expect("a row");
        let last = target[target.len() - 1];
        let mut fed = vec![start.unwrap_or(last)];
        fed.extend(&target[..target.len() - 1]);
        let mut logits = Vec::new();
        let mut each = |_: usize, of_one: &[f32]| logits.extend_from_slice(of_one);
        session.prefill(row, &fed, Some(&mut each)).expect("logits");
        session.release(row).expect("released");
        session.release_sentence(sentence[0]).expect("released");
        let mut losses = vec![RowLoss::default(); target.len()];
        let logits = Matrix::new(&logits, target.len(), vocabulary).expect("a matrix");
        cross_entropy_loss(Exec::serial(model.isa()), logits, target, smoothing, &mut losses)
            .expect("losses");
        for of_token in losses {
            loss += of_token.loss;
            nll += of_token.nll;
        }
    }
    (loss, nll)
}

/// With all three kinds of dropout: threads, passes and `SavedActivations`.
#[test]
fn dropout_depends_neither_on_threads_nor_on_passes() {
    let rates = DropoutRates { hidden: 0.1, attention: 0.2, activation: 0.1, seed: 4 };
    for golden in some(3) {
        let sentences = corpus(&golden, 270);
        let large = TrainLimits::new(4096, 24);
        let run = |limits: TrainLimits, rates: DropoutRates, threads: usize| {
            let mut trainer = golden.trainer(Isa::best(), limits);
            trainer.set_dropout(rates).expect("rates");
            trainer.set_threads(Threads::Rayon);
            let pool =
                rayon::ThreadPoolBuilder::new().num_threads(threads).build().expect("a pool");
            pool.install(|| run(&mut trainer, &sentences))
        };
        let expected = run(large, rates, 1);
        for without in [
            DropoutRates { hidden: 0.0, ..rates },
            DropoutRates { attention: 0.0, ..rates },
            DropoutRates { activation: 0.0, ..rates },
            DropoutRates { seed: 5, ..rates },
        ] {
            assert!(run(large, without, 1) != expected, "{} {without:?}", golden.name);
        }
        for keep in [
            SavedActivations::Everything,
            SavedActivations::Projections,
            SavedActivations::Context,
            SavedActivations::Inputs,
        ] {
            for (limits, threads) in [(TrainLimits::new(1100, 24), 1), (limits(), 3), (large, 2)] {
                let limits = TrainLimits { keep, ..limits };
                let found = run(limits, rates, threads);
                assert!(found == expected, "{} {limits:?} {threads}", golden.name);
            }
        }
    }
}
