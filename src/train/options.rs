//! What a run is told, and which of it differs from what a saved run was told.

use super::atomic_write::Hash;
use super::batches::{BatchSize, Batching};
use super::dropout::DropoutRates;
use super::trainer::Trainer;
use super::update::StepOptions;
use core::fmt;
use simdformer_kernels::train::{Adam, Schedule, Smoothing};
use std::collections::{BTreeMap, BTreeSet};

/// What a run is.
#[derive(Clone, Debug, PartialEq)]
pub struct RunOptions {
    /// How a step learns; the rate is the schedule's.
    pub step: StepOptions,
    /// The rate of each step.
    pub schedule: Schedule,
    /// How sentences come.
    pub batching: Batching,
    /// Batches of a step, at least 1; the last step of an epoch has what is left.
    pub accumulate: usize,
    /// Of the order of sentences.
    pub seed: u64,
    /// Ends the run after as many steps, those included that were skipped.
    pub steps: Option<u64>,
    /// Ends the run after as many times through the corpus.
    pub epochs: Option<u64>,
    /// Steps from one validation to the next; 0 for one at the end alone.
    pub validate_every: u64,
    /// Steps from one save to the next; 0 for one at the end alone.
    pub save_every: u64,
    /// Saves that are kept, the newest; at least 1.
    pub keep: usize,
    /// What the best is the best of.
    pub metric: Metric,
    /// Ends the run after as many validations without a better one.
    pub patience: Option<u64>,
}

impl Default for RunOptions {
    /// Batches of 4,096 tokens in a shuffled order, at a constant rate of 1e-3, without an end; nothing is validated or
    /// saved before it, the loss is what counts, and five saves are kept.
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

/// What validations are compared by.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub enum Metric {
    /// The loss that is learned from, smoothed as there; less is better.
    #[default]
    Loss,
    /// The negative log-probability of a token; less is better.
    Nll,
    /// The part of the tokens that were the likeliest; more is better.
    Accuracy,
    /// What the caller's [judge](super::TrainingRun::set_judge) says; more is better.
    Judged,
}

/// An option that a resumed run was given with another value than the run that was saved.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct OptionChange {
    /// The option, by the path of its field in [`RunOptions`], such as `step.adam.beta1`; `dropout.hidden`, `average` and
    /// `learned` are settings of the [`Trainer`], and `held_out` is the corpus of the validations.
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

/// Options by name, each as a text that differs where the option does.
pub(super) type Options = BTreeMap<String, String>;

/// The key of the corpus of the validations.
pub(super) const HELD_OUT: &str = "held_out";
const ABSENT: &str = "none";

/// Every option with which a run can go on when it changes. Options without which the bits of a saved run cannot be
/// continued are in [`Same`](super::state::Same).
pub(super) fn describe(options: &RunOptions, trainer: &Trainer<'_>, held_out: &str) -> Options {
    // Fields are named one by one, so that a new one cannot be left out.
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
    // The schedule has the rate; the trainer sets the step and the clip factor.
    let Adam { rate: _, beta1, beta2, epsilon: adam_epsilon, weight_decay, step: _, clip: _ } =
        adam;
    let DropoutRates { hidden, attention, activation, seed } = &trainer.dropout;
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
        ("average", optional(trainer.average_decay.as_ref())),
        ("learned", learned(trainer)),
    ];
    let mut all: Options = all.into_iter().map(|(name, text)| (name.to_owned(), text)).collect();
    let held_out = if held_out.is_empty() { ABSENT } else { held_out };
    all.insert(HELD_OUT.to_owned(), held_out.to_owned());
    all
}

/// `Debug` prints a number with as many digits as tell it from every other one.
fn exact(value: &impl fmt::Debug) -> String {
    format!("{value:?}")
}

fn optional(value: Option<&impl fmt::Debug>) -> String {
    value.map_or_else(|| ABSENT.to_owned(), exact)
}

/// How many tensors are learned, and a checksum of which.
fn learned(trainer: &Trainer<'_>) -> String {
    let own = || trainer.tensors.iter().filter(|tensor| !tensor.shared);
    let learned = own().filter(|tensor| tensor.learned);
    let mut hash = Hash::default();
    learned.clone().for_each(|tensor| hash.text(&tensor.role.to_string()));
    format!("{} of {} tensors ({:016x})", learned.count(), own().count(), hash.value())
}

/// The options that differ, in the order of their names.
pub(super) fn changes(saved: &Options, given: &Options) -> Vec<OptionChange> {
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
