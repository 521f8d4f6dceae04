//! The peak resident memory of training is what the plan and the model state, within one percent, while a
//! trainer learns from batches that fill its limits, on a pool of two threads, for every
//! `SavedActivations`. Each trainer has a process of its own, because the allocator keeps memory that an
//! earlier trainer has freed. There is no test harness, whose threads take memory too. The numbers are
//! those of Linux.

use simdformer::config::{Config, Dimensions, SpecialTokens, TiedWeights};
use simdformer::train::{
    DropoutRates, Example, SavedActivations, StepOptions, TrainLimits, Trainer,
};
use simdformer::{Features, Threads};
use std::fs;
use std::process::Command;

const SENTENCES: usize = 48;
const LENGTH: usize = 32;

/// A value of `/proc/self/status` in bytes.
fn status(name: &str) -> usize {
    let text = fs::read_to_string("/proc/self/status").expect("a status");
    let line = text.lines().find(|line| line.starts_with(name)).expect("a line");
    let kib = line.split_whitespace().nth(1).expect("a figure");
    1024 * kib.parse::<usize>().expect("a number")
}

/// What is saved, and the number of values in a frame of features.
const KEEPS: [(&str, SavedActivations, Option<usize>); 4] = [
    ("everything", SavedActivations::Everything, None),
    ("inputs", SavedActivations::Inputs, None),
    ("everything-of-features", SavedActivations::Everything, Some(80)),
    ("inputs-of-features", SavedActivations::Inputs, Some(80)),
];

fn main() {
    if !cfg!(target_os = "linux") {
        return;
    }
    // Arguments of a test runner are none of these names.
    let asked = std::env::args().nth(1).unwrap_or_default();
    if let Some(&(_, keep, bins)) = KEEPS.iter().find(|(name, ..)| *name == asked) {
        return learn(keep, bins);
    }
    for (name, ..) in KEEPS {
        let program = std::env::current_exe().expect("this program");
        let status = Command::new(program).arg(name).status().expect("it starts");
        assert!(status.success(), "{name}: {status}");
    }
}

fn learn(keep: SavedActivations, bins: Option<usize>) {
    let shape = Dimensions { d_model: 256, heads: 8, layers: 2, ffn_dim: 1024, vocabulary: 8000 };
    let plain = Config::transformer(shape);
    let config = Config {
        bins,
        source_vocab: if bins.is_some() { 0 } else { plain.source_vocab },
        ties: TiedWeights {
            source_target: bins.is_none() && plain.ties.source_target,
            ..plain.ties
        },
        tokens: SpecialTokens { decoder_start: Some(1), eos: vec![0], ..SpecialTokens::default() },
        ..plain
    };
    let frames = vec![0.25; 2 * LENGTH * bins.unwrap_or(0)];
    let ids: Vec<Vec<u32>> = (0..SENTENCES)
        .map(|i| (0..LENGTH).map(|j| 2 + ((i * 7919 + j * 104_729) % 7998) as u32).collect())
        .collect();
    let pairs: Vec<_> = ids
        .iter()
        .enumerate()
        .map(|(id, ids)| match bins {
            Some(bins) => Example::of_features(Features::new(&frames, bins), ids, id as u32),
            None => Example::new(ids, ids, id as u32),
        })
        .collect();
    let pool = rayon::ThreadPoolBuilder::new().num_threads(2).build().expect("a pool");
    pool.broadcast(|_| ());
    let tokens = SENTENCES * LENGTH;
    let limits = TrainLimits { sentences: SENTENCES, keep, ..TrainLimits::new(tokens, LENGTH) };
    let before = status("VmRSS:");
    let mut seed = 1u64;
    let made = Trainer::new(config, limits, |_, _, out| {
        out.fill_with(|| {
            seed = seed.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
            ((seed >> 40) as f32 / (1u64 << 24) as f32 - 0.5) / 8.0
        });
        Ok(())
    });
    let mut trainer = made.expect("a trainer");
    trainer.set_threads(Threads::Rayon);
    let rates = DropoutRates { hidden: 0.1, attention: 0.1, activation: 0.1, seed: 1 };
    trainer.set_dropout(rates).expect("rates");
    let expected = trainer.plan().bytes() + trainer.model().bytes();
    pool.install(|| {
        for _ in 0..2 {
            trainer.step(&pairs, &StepOptions::default()).expect("a step");
            trainer.evaluate(&pairs, StepOptions::default().smoothing).expect("losses");
        }
    });
    let found = status("VmHWM:") - before;
    println!("{keep:?}: {found} bytes where {expected} are planned\n{}", trainer.plan());
    let off = found.abs_diff(expected) as f64;
    assert!(off <= 0.01 * expected as f64, "{keep:?}: {found} bytes, {expected} planned");
}
