//! The command line of `train`, as clap reads it.

use clap::builder::{PossibleValuesParser, TypedValueParser};
use clap::{ArgAction, ArgGroup, Parser, ValueEnum, ValueHint};
use simdformer::kernels::Isa;
use simdformer::train::SavedActivations;
use simdformer_train::{BatchSize, Metric};
use std::path::PathBuf;
use std::str::FromStr;

/// The schedule of the learning rate.
#[derive(Clone, Copy, Debug, PartialEq, ValueEnum)]
pub(crate) enum Shape {
    Paper,
    InverseSquareRoot,
    Linear,
    Cosine,
    Constant,
}

/// The initialization of the weights.
#[derive(Clone, Copy, Debug, PartialEq, ValueEnum)]
pub(crate) enum First {
    Normal,
    Glorot,
}

/// Trains an encoder-decoder Transformer on a CPU, with the same bits every time
///
/// Without --data, the demo: French to English, from scratch, in minutes. With --data FILE --model DIR, training continues
/// from the weights of DIR, or starts from scratch with --config.
///
/// A line of FILE is {"source_ids": [...], "target_ids": [...]}, end tokens included and the decoder start left out, or
/// {"source": "...", "target": "..."}, tokens between spaces, whose ids are in vocab.json (and source_vocab.json) of the
/// model's directory. If the encoder reads features (Whisper), lines have no source, and --features has the features.
///
/// Ctrl-C saves and ends; the same command resumes, to the same bits, and reports which options differ. DIR is locked by
/// the run that writes there. Exits with 2 for a wrong command line and with 1 for any other error.
#[derive(Debug, Parser)]
#[command(name = "train", no_binary_name = true, max_term_width = 100)]
#[command(group(ArgGroup::new("output").args(["model", "gradients", "benchmark"]).multiple(true)))]
pub(crate) struct Arguments {
    /// Training sentences (the demo's own)
    #[arg(long, value_name = "FILE", help_heading = DATA, requires = "output")]
    pub(crate) data: Option<PathBuf>,
    /// A safetensors file: features.{i}, [frames, bins], of line i of --data, from 0; blank lines do not count
    #[arg(long, value_name = "FILE", help_heading = DATA)]
    #[arg(requires = "data", conflicts_with_all = ["validate", "test"])]
    pub(crate) features: Option<PathBuf>,
    /// Validation sentences
    #[arg(long, value_name = "FILE", help_heading = DATA)]
    pub(crate) validate: Option<PathBuf>,
    /// Sentences that are translated after training
    #[arg(long, value_name = "FILE", help_heading = DATA)]
    pub(crate) test: Option<PathBuf>,
    /// The output: the model, best/, checkpoints/step-N, metrics.jsonl, loss.svg (demo: target/train/fr-en)
    #[arg(long, value_name = "DIR", help_heading = DATA, value_hint = ValueHint::DirPath)]
    pub(crate) model: Option<PathBuf>,
    /// The checkpoint with the first weights (--model, if it has any)
    #[arg(long, value_name = "DIR", help_heading = DATA, conflicts_with_all = ["config", "init"])]
    pub(crate) init_from: Option<PathBuf>,
    /// Start from scratch with this config.json; files beside it are copied
    #[arg(long, value_name = "DIR_OR_FILE", help_heading = DATA)]
    pub(crate) config: Option<PathBuf>,
    /// The first weights: init_std of the configuration, or as in the code of the paper
    #[arg(long, help_heading = DATA)]
    pub(crate) init: Option<First>,
    /// Resume from the newest of DIR/checkpoints
    #[arg(long, help_heading = DATA, action = ArgAction::Set)]
    #[arg(default_value = "yes", value_parser = yes_or_no())]
    pub(crate) resume: bool,

    /// End after N steps (10000, if --epochs and --minutes are not given; demo: 2800)
    #[arg(long, value_name = "N", help_heading = TRAINING)]
    pub(crate) steps: Option<u64>,
    /// End after N epochs
    #[arg(long, value_name = "N", help_heading = TRAINING)]
    pub(crate) epochs: Option<u64>,
    /// End after X minutes
    #[arg(long, value_name = "X", help_heading = TRAINING)]
    pub(crate) minutes: Option<f64>,
    /// Tokens of the larger side per step (4096)
    #[arg(long, value_name = "N", help_heading = TRAINING, conflicts_with = "batch_sentences")]
    batch_tokens: Option<usize>,
    /// Sentences per step instead (demo: 192)
    #[arg(long, value_name = "N", help_heading = TRAINING)]
    batch_sentences: Option<usize>,
    /// The batches: lines of sentence numbers, [0, 5, 7], from 0
    #[arg(long, value_name = "FILE", help_heading = TRAINING)]
    #[arg(conflicts_with_all = ["batch_tokens", "batch_sentences"])]
    pub(crate) batches: Option<PathBuf>,
    /// Sort N sentences by length before they are cut into batches
    #[arg(long, value_name = "N", help_heading = TRAINING, default_value = "0")]
    pub(crate) sort_pool: usize,
    /// Batches per step
    #[arg(long, value_name = "N", help_heading = TRAINING)]
    #[arg(default_value = "1", value_parser = positive)]
    pub(crate) accumulate: usize,
    /// Leave out sentences with more tokens on a side (the positions of the model, at most 512)
    #[arg(long, value_name = "N", help_heading = TRAINING, value_parser = positive)]
    pub(crate) longest: Option<usize>,
    /// The largest learning rate (5e-4; demo: 2e-3; schedule paper: its factor, 1)
    #[arg(long, value_name = "X", help_heading = TRAINING)]
    pub(crate) learning_rate: Option<f64>,
    /// The schedule of the learning rate
    #[arg(long, value_name = "NAME", help_heading = TRAINING, default_value = "linear")]
    pub(crate) schedule: Shape,
    /// Steps until the largest learning rate (a twelfth of all steps)
    #[arg(long, value_name = "N", help_heading = TRAINING)]
    pub(crate) warmup_steps: Option<u64>,
    /// The last learning rate of linear and cosine, divided by the largest
    #[arg(long, value_name = "X", help_heading = TRAINING, default_value = "0")]
    pub(crate) final_fraction: f64,
    /// Label smoothing (0.1; demo: 0.05)
    #[arg(long, value_name = "X", help_heading = TRAINING)]
    pub(crate) label_smoothing: Option<f32>,
    /// The largest norm of all gradients; 0 does not clip
    #[arg(long, value_name = "X", help_heading = TRAINING, default_value = "1")]
    pub(crate) clip_norm: f64,
    /// The decays of Adam's moments
    #[arg(long, value_name = "X,X", help_heading = TRAINING)]
    #[arg(default_value = "0.9,0.98", value_parser = two_numbers)]
    pub(crate) betas: [f64; 2],
    /// The epsilon of Adam
    #[arg(long, value_name = "X", help_heading = TRAINING, default_value = "1e-9")]
    pub(crate) epsilon: f64,
    /// Weight decay of matrices; norms and biases have none
    #[arg(long, value_name = "X", help_heading = TRAINING, default_value = "0")]
    pub(crate) weight_decay: f64,
    /// Dropout (config.json)
    #[arg(long, value_name = "X", help_heading = TRAINING)]
    pub(crate) dropout: Option<f32>,
    /// Dropout of attention weights (config.json)
    #[arg(long, value_name = "X", help_heading = TRAINING)]
    pub(crate) attention_dropout: Option<f32>,
    /// Dropout after the activation function (config.json)
    #[arg(long, value_name = "X", help_heading = TRAINING)]
    pub(crate) activation_dropout: Option<f32>,
    /// The seed of the order, of the first weights and of dropout
    #[arg(long, value_name = "N", help_heading = TRAINING, default_value = "2017")]
    pub(crate) seed: u64,

    /// Steps between validations
    #[arg(long, value_name = "N", help_heading = REPORTS, default_value = "500")]
    pub(crate) validate_every: u64,
    /// Steps between saves
    #[arg(long, value_name = "N", help_heading = REPORTS, default_value = "500")]
    pub(crate) save_every: u64,
    /// Saves that are not deleted
    #[arg(long, value_name = "N", help_heading = REPORTS)]
    #[arg(default_value = "3", value_parser = positive)]
    pub(crate) keep: usize,
    /// What the best validation is best in (loss; demo: exact)
    #[arg(long, value_name = "NAME", help_heading = REPORTS, value_parser = metric())]
    pub(crate) best_metric: Option<Metric>,
    /// End after N validations without a better one
    #[arg(long, value_name = "N", help_heading = REPORTS)]
    pub(crate) patience: Option<u64>,
    /// Validate and save an exponential moving average of the weights, with this decay
    #[arg(long, value_name = "X", help_heading = REPORTS)]
    pub(crate) ema: Option<f32>,
    /// Steps between reports
    #[arg(long, value_name = "N", help_heading = REPORTS, default_value = "50")]
    pub(crate) report_every: u64,
    /// What is saved for the backward pass: less memory needs more computation; the same bits
    #[arg(long, value_name = "WHAT", help_heading = REPORTS)]
    #[arg(default_value = "everything", value_parser = saved_activations())]
    pub(crate) keep_activations: SavedActivations,
    /// Tokens of a side in one pass through the model
    #[arg(long, value_name = "N", help_heading = REPORTS)]
    #[arg(default_value = "4096", value_parser = positive)]
    pub(crate) pass_tokens: usize,
    /// The number of threads
    #[arg(long, value_name = "N", help_heading = REPORTS)]
    #[arg(default_value = "1", value_parser = positive)]
    pub(crate) threads: usize,
    /// The instruction set: scalar, avx2, avx512 or neon; without this option, the best one of this CPU
    #[arg(long, value_name = "NAME", help_heading = REPORTS, value_parser = Isa::from_name)]
    pub(crate) isa: Option<Isa>,

    /// Compute the gradients of the first --batch-sentences lines once, and write loss and gradients as safetensors
    #[arg(long, value_name = "FILE", help_heading = OTHER)]
    #[arg(requires = "data", conflicts_with = "benchmark")]
    pub(crate) gradients: Option<PathBuf>,
    /// Measure --steps steps and write a line of JSON; nothing is saved
    #[arg(long, help_heading = OTHER, requires = "data")]
    pub(crate) benchmark: bool,
    /// Print N sentences of the demo under --seed, a line of JSON each: source, target
    #[arg(long, value_name = "N", help_heading = OTHER)]
    #[arg(conflicts_with_all = ["data", "model", "average"])]
    pub(crate) sentences: Option<usize>,
    /// Write the mean of these checkpoints to --model
    #[arg(long, value_name = "DIR,DIR,...", help_heading = OTHER)]
    #[arg(value_delimiter = ',', requires = "model")]
    pub(crate) average: Option<Vec<PathBuf>>,
}

const DATA: &str = "Data and weights";
const TRAINING: &str = "Training";
const REPORTS: &str = "Reports, saves and memory";
const OTHER: &str = "Instead of a run";

impl Arguments {
    /// Whether the sentences come from the grammar.
    pub(crate) fn is_demo(&self) -> bool {
        self.data.is_none()
    }

    /// The size of a batch, if it is given.
    pub(crate) fn batch(&self) -> Option<BatchSize> {
        let tokens = self.batch_tokens.map(BatchSize::Tokens);
        tokens.or(self.batch_sentences.map(BatchSize::Sentences))
    }
}

fn yes_or_no() -> impl TypedValueParser<Value = bool> {
    PossibleValuesParser::new(["yes", "no"]).map(|name| name == "yes")
}

fn metric() -> impl TypedValueParser<Value = Metric> {
    PossibleValuesParser::new(["loss", "nll", "accuracy", "exact"]).map(|name| match &*name {
        "loss" => Metric::Loss,
        "nll" => Metric::Nll,
        "accuracy" => Metric::Accuracy,
        _ => Metric::Judged,
    })
}

fn saved_activations() -> impl TypedValueParser<Value = SavedActivations> {
    let names = ["everything", "projections", "context", "inputs"];
    PossibleValuesParser::new(names).map(|name| match &*name {
        "everything" => SavedActivations::Everything,
        "projections" => SavedActivations::Projections,
        "context" => SavedActivations::Context,
        _ => SavedActivations::Inputs,
    })
}

fn parsed<T: FromStr>(text: &str, expected: &str) -> Result<T, String> {
    text.parse().map_err(|_| format!("expected {expected}"))
}

fn positive(text: &str) -> Result<usize, String> {
    const EXPECTED: &str = "a whole number from 1 up";
    match parsed(text, EXPECTED)? {
        0 => Err(format!("expected {EXPECTED}")),
        count => Ok(count),
    }
}

fn two_numbers(text: &str) -> Result<[f64; 2], String> {
    const EXPECTED: &str = "two numbers with a comma between";
    let (first, second) = text.split_once(',').ok_or(format!("expected {EXPECTED}"))?;
    Ok([parsed(first, EXPECTED)?, parsed(second, EXPECTED)?])
}
