//! The options of a run, and the differences from the options of a saved run.

use crate::batch_sampler::{BatchSize, Batching};
use crate::checksummed_file::Hash;
use core::fmt;
use simdformer::checkpoint::TensorId;
use simdformer::train::{Adam, DropoutRates, Schedule, Smoothing, StepOptions, Trainer};
use std::collections::{BTreeMap, BTreeSet};

/// The options of a run.
#[derive(Clone, Debug, PartialEq)]
pub struct RunOptions {
    /// The options of a step. The schedule sets the learning rate.
    pub step: StepOptions,
    /// The learning rate of each step.
    pub schedule: Schedule,
    /// How the corpus is cut into batches.
    pub batching: Batching,
    /// Batches per step, at least 1. The last step of an epoch uses the remaining batches.
    pub accumulate: usize,
    /// The seed of the order of sentences.
    pub seed: u64,
    /// Ends the run after this many steps, including skipped steps.
    pub steps: Option<u64>,
    /// Ends the run after this many epochs.
    pub epochs: Option<u64>,
    /// Steps between validations; with 0, the only validation is at the end.
    pub validate_every: u64,
    /// Steps between saves; with 0, the only save is at the end.
    pub save_every: u64,
    /// The number of newest saves to keep; at least 1.
    pub keep: usize,
    /// The metric that selects the best model.
    pub metric: Metric,
    /// Ends the run after this many consecutive validations without a better one.
    pub patience: Option<u64>,
}

impl Default for RunOptions {
    /// Batches of 4,096 tokens in shuffled order, a constant learning rate of 1e-3, no end of the run, validation and
    /// saving only at the end, the loss as the metric, and five saves kept.
    fn default() -> Self {
        let size = BatchSize::Tokens(4096);
        Self {
            step: StepOptions::default(),
            schedule: Schedule::Constant { peak: 1e-3, warmup: 0 },
            batching: Batching::Shuffled { size, pool: 0 },
            accumulate: 1,
            seed: 0,
            steps: None,
            epochs: None,
            validate_every: 0,
            save_every: 0,
            keep: 5,
            metric: Metric::Loss,
            patience: None,
        }
    }
}

/// The metric by which validations are compared.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub enum Metric {
    /// The training loss, including label smoothing; lower is better.
    #[default]
    Loss,
    /// The negative log-probability per token; lower is better.
    Nll,
    /// The fraction of tokens that have the largest logit; higher is better.
    Accuracy,
    /// The value of the caller's [judge](super::TrainingRun::set_judge); higher is better.
    Judged,
}

/// An option whose value differs between a resumed run and the run that was saved.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct OptionChange {
    /// The path of the field in [`RunOptions`], such as `step.adam.beta1`. `dropout.hidden`, `average` and `learned`
    /// are settings of the [`Trainer`], and `held_out` is the validation corpus.
    pub option: String,
    /// The value that the saved run had.
    pub saved: String,
    /// The value that the run has now.
    pub given: String,
}

impl fmt::Display for OptionChange {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { option, saved, given } = self;
        write!(f, "{option}: saved {saved}, given {given}")
    }
}

/// Options by name, as texts that differ if the options differ.
pub(crate) type Options = BTreeMap<String, String>;

/// The key of the validation corpus.
pub(crate) const HELD_OUT: &str = "held_out";
const ABSENT: &str = "none";

/// All options that may change when a run is resumed. Options that must not change, because the bits would, are in
/// [`Same`](super::saved_checkpoint::Same).
pub(crate) fn describe(options: &RunOptions, trainer: &Trainer<'_>, held_out: &str) -> Options {
    // Fields are named one by one, so that the compiler reports a new field that is missing here.
    let RunOptions {
        step: StepOptions { smoothing, adam, clip_norm },
        schedule,
        batching: _,
        accumulate: _,
        seed: _,
        steps,
        epochs,
        validate_every,
        save_every,
        keep,
        metric,
        patience,
    } = options;
    let Smoothing { epsilon, over } = smoothing;
    // The rate is part of the schedule; the trainer sets the step and the clip factor.
    let Adam { rate: _, beta1, beta2, epsilon: adam_epsilon, weight_decay, step: _, clip: _ } =
        adam;
    let DropoutRates { hidden, attention, activation, seed } = &trainer.dropout();
    let all: [(&str, String); 21] = [
        ("step.smoothing.epsilon", exact(epsilon)),
        ("step.smoothing.over", exact(over)),
        ("step.adam.beta1", exact(beta1)),
        ("step.adam.beta2", exact(beta2)),
        ("step.adam.epsilon", exact(adam_epsilon)),
        ("step.adam.weight_decay", exact(weight_decay)),
        ("step.clip_norm", optional(clip_norm.as_ref())),
        ("schedule", exact(schedule)),
        ("steps", optional(steps.as_ref())),
        ("epochs", optional(epochs.as_ref())),
        ("validate_every", exact(validate_every)),
        ("save_every", exact(save_every)),
        ("keep", exact(keep)),
        ("metric", exact(metric)),
        ("patience", optional(patience.as_ref())),
        ("dropout.hidden", exact(hidden)),
        ("dropout.attention", exact(attention)),
        ("dropout.activation", exact(activation)),
        ("dropout.seed", exact(seed)),
        ("average", optional(trainer.average_decay().as_ref())),
        ("learned", learned(trainer)),
    ];
    let mut all: Options = all.into_iter().map(|(name, text)| (name.to_owned(), text)).collect();
    let held_out = if held_out.is_empty() { ABSENT } else { held_out };
    all.insert(HELD_OUT.to_owned(), held_out.to_owned());
    all
}

/// `Debug` prints a float with enough digits to restore it exactly.
fn exact(value: &impl fmt::Debug) -> String {
    format!("{value:?}")
}

fn optional(value: Option<&impl fmt::Debug>) -> String {
    value.map_or_else(|| ABSENT.to_owned(), exact)
}

/// The number of trained tensors, and a checksum of their ids.
fn learned(trainer: &Trainer<'_>) -> String {
    let own: Vec<TensorId> = trainer.parameters().map(|(role, ..)| role).collect();
    let learned: Vec<TensorId> =
        own.iter().copied().filter(|&role| trainer.is_learned(role)).collect();
    let mut hash = Hash::default();
    learned.iter().for_each(|role| hash.text(&role.to_string()));
    format!("{} of {} tensors ({:016x})", learned.len(), own.len(), hash.value())
}

/// The options that differ, sorted by name.
pub(crate) fn changes(saved: &Options, given: &Options) -> Vec<OptionChange> {
    let names: BTreeSet<&String> = saved.keys().chain(given.keys()).collect();
    let text =
        |options: &Options, name| options.get(name).map_or(ABSENT, String::as_str).to_owned();
    let all = names.into_iter().map(|name| OptionChange {
        option: name.clone(),
        saved: text(saved, name),
        given: text(given, name),
    });
    all.filter(|change| change.saved != change.given).collect()
}
