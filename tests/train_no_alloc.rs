//! Training allocates nothing: fifty steps with validation in between, serial and on a pool of two threads,
//! for every `SavedActivations`. The memory is that of the plan. There is no test harness, because the
//! counter counts every thread.
//!
//! Writing a checkpoint is not counted, because the file system allocates.

use simdformer::checkpoint::Checkpoint;
use simdformer::kernels::Isa;
use simdformer::train::{Example, Initial, SavedActivations, StepOptions, TrainLimits, Trainer};
use simdformer::{Features, Threads, train};
use simdformer_testing::counting;
use std::path::Path;

#[global_allocator]
static ALLOCATOR: counting::CountingAllocator = counting::CountingAllocator;

/// Fifty steps over sentences of the demo, with a validation after every tenth step.
fn fifty_steps(trainer: &mut Trainer<'_>, pairs: &[Example<'_>], options: &StepOptions) -> u64 {
    let (held_out, learned) = pairs.split_at(8);
    let before = counting::allocations();
    for step in 0..50 {
        let start = step * 6 % (learned.len() - 24);
        trainer.step(&learned[start..start + 24], options).expect("a step");
        if step % 10 == 9 {
            trainer.evaluate(held_out, options.smoothing).expect("losses");
        }
    }
    counting::allocations() - before
}

fn main() {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("models/fr-en");
    let checkpoint = Checkpoint::open(&folder).expect("a checkpoint");
    let text = std::fs::read_to_string(folder.join("held_out.jsonl")).expect("sentences");
    let lines = text.lines().take(64).map(|line| {
        let line: serde_json::Value = serde_json::from_str(line).expect("JSON");
        let ids = |key: &str| -> Vec<u32> {
            let ids = line[key].as_array().expect("ids").iter();
            ids.map(|id| id.as_u64().expect("an id") as u32).collect()
        };
        (ids("source_ids"), ids("greedy_ids"))
    });
    let lines: Vec<_> = lines.collect();
    let pairs: Vec<_> = lines
        .iter()
        .enumerate()
        .map(|(id, (source, target))| Example::new(source, target, id as u32))
        .collect();

    let before = counting::allocations();
    drop(std::hint::black_box(vec![0u8; 100]));
    assert_eq!(counting::allocations() - before, 1, "the counter counts");

    let options = StepOptions::default();
    let pool = rayon::ThreadPoolBuilder::new().num_threads(2).build().expect("a pool");
    pool.broadcast(|_| ());
    for keep in [
        SavedActivations::Everything,
        SavedActivations::Projections,
        SavedActivations::Context,
        SavedActivations::Inputs,
    ] {
        let limits = TrainLimits { keep, ..TrainLimits::new(600, 32) };
        let mut trainer = Trainer::open(&checkpoint, Isa::best(), limits).expect("a trainer");
        assert_eq!(fifty_steps(&mut trainer, &pairs, &options), 0, "serial, {keep:?}");
        trainer.set_threads(Threads::Rayon);
        let counted = pool.install(|| {
            // The first call of a pool may allocate.
            trainer.step(&pairs[8..32], &options).expect("a step");
            fifty_steps(&mut trainer, &pairs, &options)
        });
        assert_eq!(counted, 0, "on a pool, {keep:?}");
    }
    let smoothed = StepOptions {
        smoothing: train::Smoothing { epsilon: 0.1, ..Default::default() },
        clip_norm: None,
        ..options
    };
    let mut trainer =
        Trainer::open(&checkpoint, Isa::best(), TrainLimits::new(600, 32)).expect("a trainer");
    assert_eq!(fifty_steps(&mut trainer, &pairs, &smoothed), 0, "smoothed");

    of_features(&pool, &options);
}

/// A model that reads features. Some sources are longer than the parts in which the backward pass of a
/// convolution runs.
fn of_features(pool: &rayon::ThreadPool, options: &StepOptions) {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/golden/gradients/whisper");
    let checkpoint = Checkpoint::open(&folder).expect("a checkpoint");
    let mut config = checkpoint.config().clone();
    config.encoder.max_positions = Some(300);
    let targets: Vec<Vec<u32>> =
        (0..64).map(|i| (0..=i % 9).map(|token| (3 + i + 5 * token) % 31).collect()).collect();
    let frames: Vec<f32> = (0..600 * 5).map(|i| (i * 37 % 101) as f32 / 50.0 - 1.0).collect();
    let long = |i: usize| if i.is_multiple_of(16) { 2 * 260 + i / 16 } else { 1 + 3 * i % 41 };
    let pairs: Vec<_> = targets
        .iter()
        .enumerate()
        .map(|(i, target)| {
            let features = Features::new(&frames[i * 5..][..long(i) * 5], 5);
            Example::of_features(features, target, i as u32)
        })
        .collect();
    for keep in [SavedActivations::Everything, SavedActivations::Inputs] {
        let limits =
            TrainLimits { keep, source_length: 262, target_length: 9, ..TrainLimits::new(600, 9) };
        let initial = Initial::from_hugging_face(&config, "{}").expect("the defaults");
        let fill = initial.weights(&config, 3);
        let mut trainer = Trainer::new(config.clone(), limits, fill).expect("a trainer");
        assert_eq!(fifty_steps(&mut trainer, &pairs, options), 0, "features, {keep:?}");
        trainer.set_threads(Threads::Rayon);
        let counted = pool.install(|| {
            trainer.step(&pairs[8..32], options).expect("a step");
            fifty_steps(&mut trainer, &pairs, options)
        });
        assert_eq!(counted, 0, "features, on a pool, {keep:?}");
    }
}
