//! Parses the command line of `train`.
//!
//! No argument is ignored. An option is rejected if it does not exist, is repeated, or has an invalid value.

use simdformer::train::{BatchSize, Metric, SavedActivations};
use std::ffi::OsString;
use std::path::PathBuf;
use std::str::FromStr;

/// Text of `--help`.
pub(crate) const HELP: &str = "\
Trains an encoder-decoder, on a CPU, with the same bits every time.

    train                                  the demo: French to English, from nothing, in minutes
    train --data FILE.jsonl --model DIR    DIR is a checkpoint: go on from its weights
    train --data FILE.jsonl --model DIR --config DIR_OR_FILE    from nothing

A line of FILE.jsonl is {\"source_ids\": [...], \"target_ids\": [...]}, end tokens included and the
decoder's start left out, or {\"source\": \"...\", \"target\": \"...\"}, tokens between spaces, whose ids are in
vocab.json (and source_vocab.json) of the model's directory. Ctrl-C saves and ends; the same command
goes on, to the same bits, and a command with other options prints which of them differ. DIR is locked by the run
that writes there. Where the encoder reads features (Whisper), lines have no source, and --features has it.

What, and from where:
    --data FILE             sentences to learn from (the demo's own)
    --features FILE         safetensors: features.{i} [frames, bins] of line i, counted from 0; blank lines do not
                            count
    --validate FILE         sentences to look at, never to learn from
    --test FILE             sentences that are translated when all is done
    --model DIR             where everything goes: the model in the end, best/, checkpoints/step-N,
                            metrics.jsonl, loss.svg (target/train/fr-en)
    --init-from DIR         weights to begin from; default those of --model, if it has any
    --config DIR_OR_FILE    a config.json to begin from nothing with; files beside it go along
    --init normal|glorot    first weights then: init_std of the configuration, or the paper's code
    --resume yes|no         go on from the newest of DIR/checkpoints (yes)

How:
    --steps N, --epochs N, --minutes X     when to end, whichever comes first (10000 steps; demo 2800)
    --batch-tokens N        tokens of the larger side a step (4096)
    --batch-sentences N     sentences a step instead (demo 192)
    --batches FILE          lines of numbers of sentences instead, [0, 5, 7], from 0
    --sort-pool N           sort as many sentences by length before they are cut (0)
    --accumulate N          batches a step (1)
    --longest N             sentences with more tokens on a side are left out (the model's positions,
                            512 at most)
    --learning-rate X       the largest rate (5e-4; demo 2e-3; of paper: its factor, 1)
    --schedule NAME         paper, inverse-square-root, linear, cosine, constant (linear)
    --warmup-steps N        steps up to it (a twelfth of all steps)
    --final-fraction X      of the largest rate, in the end of linear and cosine (0)
    --label-smoothing X     (0.1; demo 0.05)
    --clip-norm X           norm of all gradients together, 0 for any (1)
    --betas X,X             (0.9,0.98)
    --epsilon X             (1e-9)
    --weight-decay X        of matrices, not of norms and biases (0)
    --dropout X, --attention-dropout X, --activation-dropout X    (those of config.json)
    --seed N                of the order, first weights and dropout (2017)

Looking and keeping:
    --validate-every N      steps (500)
    --save-every N          steps (500)
    --keep N                saves (3)
    --best-metric NAME      loss, nll, accuracy, exact (loss; demo exact)
    --patience N            validations without a better one before it ends (any number)
    --ema X                 keep an average of the weights, with this decay; it is what is looked at and
                            kept (no)
    --report-every N        steps (50)
    --keep-activations everything|projections|context|inputs    less memory, more work; the same bits
    --pass-tokens N         tokens of a side that go through the model at a time (4096)
    --threads N             (1)
    --isa NAME              scalar, avx2, avx512 or neon (the best of this machine)

Instead of a run:
    --gradients FILE        learn from the first --batch-sentences lines, in their order, once, update
                            nothing, and write loss and every gradient as safetensors
    --benchmark             --steps steps, timed, as a line of JSON; nothing is written
    --average DIR,DIR,...   write the mean of these checkpoints to --model

Exits with 2 for a wrong command line and 1 for anything else that is wrong.
";

/// The command to run.
#[derive(Debug)]
pub(crate) enum Command {
    Help,
    TrainingRun(Box<Arguments>),
}

/// The shape of the learning rate schedule.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) enum Shape {
    Paper,
    InverseSquareRoot,
    Linear,
    Cosine,
    Constant,
}

/// The initialization of the weights.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) enum First {
    Normal,
    Glorot,
}

/// The given arguments; `None` for an option that was not given.
#[derive(Debug, Default)]
pub(crate) struct Arguments {
    pub(crate) data: Option<PathBuf>,
    pub(crate) features: Option<PathBuf>,
    pub(crate) validate: Option<PathBuf>,
    pub(crate) test: Option<PathBuf>,
    pub(crate) model: Option<PathBuf>,
    pub(crate) init_from: Option<PathBuf>,
    pub(crate) config: Option<PathBuf>,
    pub(crate) init: Option<First>,
    pub(crate) resume: Option<bool>,
    pub(crate) steps: Option<u64>,
    pub(crate) epochs: Option<u64>,
    pub(crate) minutes: Option<f64>,
    pub(crate) batch: Option<BatchSize>,
    pub(crate) batches: Option<PathBuf>,
    pub(crate) sort_pool: Option<usize>,
    pub(crate) accumulate: Option<usize>,
    pub(crate) longest: Option<usize>,
    pub(crate) learning_rate: Option<f64>,
    pub(crate) schedule: Option<Shape>,
    pub(crate) warmup_steps: Option<u64>,
    pub(crate) final_fraction: Option<f64>,
    pub(crate) label_smoothing: Option<f32>,
    pub(crate) clip_norm: Option<f64>,
    pub(crate) betas: Option<[f64; 2]>,
    pub(crate) epsilon: Option<f64>,
    pub(crate) weight_decay: Option<f64>,
    pub(crate) dropout: Option<f32>,
    pub(crate) attention_dropout: Option<f32>,
    pub(crate) activation_dropout: Option<f32>,
    pub(crate) seed: Option<u64>,
    pub(crate) validate_every: Option<u64>,
    pub(crate) save_every: Option<u64>,
    pub(crate) keep: Option<usize>,
    pub(crate) best_metric: Option<Metric>,
    pub(crate) patience: Option<u64>,
    pub(crate) ema: Option<f32>,
    pub(crate) report_every: Option<u64>,
    pub(crate) keep_activations: Option<SavedActivations>,
    pub(crate) pass_tokens: Option<usize>,
    pub(crate) threads: Option<usize>,
    pub(crate) isa: Option<String>,
    pub(crate) gradients: Option<PathBuf>,
    pub(crate) benchmark: bool,
    pub(crate) average: Option<Vec<PathBuf>>,
}

impl Arguments {
    /// Whether the sentences come from the grammar.
    pub(crate) fn is_demo(&self) -> bool {
        self.data.is_none()
    }
}

/// Parses the arguments after the program's name.
pub(crate) fn parse(arguments: impl Iterator<Item = OsString>) -> Result<Command, String> {
    let mut found = Arguments::default();
    let mut arguments = arguments;
    while let Some(option) = arguments.next() {
        let option = option.to_string_lossy().into_owned();
        match option.as_str() {
            "--help" | "-h" => return Ok(Command::Help),
            "--benchmark" => {
                found.benchmark = true;
                continue;
            }
            _ => {}
        }
        let Some(name) = option.strip_prefix("--") else {
            return Err(format!("expected an option, found `{option}`; see --help"));
        };
        // Check the name before the value, so that the error names a wrong option.
        if !HELP.contains(&format!("--{name} ")) {
            return Err(format!("unknown option `{option}`; see --help"));
        }
        let value = arguments.next().ok_or_else(|| format!("{option} expects a value"))?;
        set(&mut found, name, &option, value)?;
    }
    check(&found)?;
    Ok(Command::TrainingRun(Box::new(found)))
}

fn set(found: &mut Arguments, name: &str, option: &str, value: OsString) -> Result<(), String> {
    let text = value.to_string_lossy().into_owned();
    let text = text.as_str();
    match name {
        "data" => put(&mut found.data, option, value.into()),
        "features" => put(&mut found.features, option, value.into()),
        "validate" => put(&mut found.validate, option, value.into()),
        "test" => put(&mut found.test, option, value.into()),
        "model" => put(&mut found.model, option, value.into()),
        "init-from" => put(&mut found.init_from, option, value.into()),
        "config" => put(&mut found.config, option, value.into()),
        "batches" => put(&mut found.batches, option, value.into()),
        "gradients" => put(&mut found.gradients, option, value.into()),
        "average" => {
            let all = text.split(',').map(PathBuf::from).collect();
            put(&mut found.average, option, all)
        }
        "init" => {
            let names = [("normal", First::Normal), ("glorot", First::Glorot)];
            put(&mut found.init, option, choice(option, text, &names)?)
        }
        "resume" => {
            let names = [("yes", true), ("no", false)];
            put(&mut found.resume, option, choice(option, text, &names)?)
        }
        "schedule" => {
            let names = [
                ("paper", Shape::Paper),
                ("inverse-square-root", Shape::InverseSquareRoot),
                ("linear", Shape::Linear),
                ("cosine", Shape::Cosine),
                ("constant", Shape::Constant),
            ];
            put(&mut found.schedule, option, choice(option, text, &names)?)
        }
        "best-metric" => {
            let names = [
                ("loss", Metric::Loss),
                ("nll", Metric::Nll),
                ("accuracy", Metric::Accuracy),
                ("exact", Metric::Judged),
            ];
            put(&mut found.best_metric, option, choice(option, text, &names)?)
        }
        "keep-activations" => {
            let names = [
                ("everything", SavedActivations::Everything),
                ("projections", SavedActivations::Projections),
                ("context", SavedActivations::Context),
                ("inputs", SavedActivations::Inputs),
            ];
            put(&mut found.keep_activations, option, choice(option, text, &names)?)
        }
        "batch-tokens" => put(&mut found.batch, option, BatchSize::Tokens(number(option, text)?)),
        "batch-sentences" => {
            put(&mut found.batch, option, BatchSize::Sentences(number(option, text)?))
        }
        "betas" => {
            let parts: Option<(&str, &str)> = text.split_once(',');
            let Some((first, second)) = parts else {
                return Err(format!("{option} expects two numbers with a comma, found `{text}`"));
            };
            put(&mut found.betas, option, [number(option, first)?, number(option, second)?])
        }
        "isa" => put(&mut found.isa, option, text.to_owned()),
        "minutes" => put(&mut found.minutes, option, number(option, text)?),
        "learning-rate" => put(&mut found.learning_rate, option, number(option, text)?),
        "final-fraction" => put(&mut found.final_fraction, option, number(option, text)?),
        "label-smoothing" => put(&mut found.label_smoothing, option, number(option, text)?),
        "clip-norm" => put(&mut found.clip_norm, option, number(option, text)?),
        "epsilon" => put(&mut found.epsilon, option, number(option, text)?),
        "weight-decay" => put(&mut found.weight_decay, option, number(option, text)?),
        "dropout" => put(&mut found.dropout, option, number(option, text)?),
        "attention-dropout" => put(&mut found.attention_dropout, option, number(option, text)?),
        "activation-dropout" => put(&mut found.activation_dropout, option, number(option, text)?),
        "ema" => put(&mut found.ema, option, number(option, text)?),
        "steps" => put(&mut found.steps, option, number(option, text)?),
        "epochs" => put(&mut found.epochs, option, number(option, text)?),
        "warmup-steps" => put(&mut found.warmup_steps, option, number(option, text)?),
        "seed" => put(&mut found.seed, option, number(option, text)?),
        "validate-every" => put(&mut found.validate_every, option, number(option, text)?),
        "save-every" => put(&mut found.save_every, option, number(option, text)?),
        "patience" => put(&mut found.patience, option, number(option, text)?),
        "report-every" => put(&mut found.report_every, option, number(option, text)?),
        "sort-pool" => put(&mut found.sort_pool, option, number(option, text)?),
        "accumulate" => put(&mut found.accumulate, option, positive(option, text)?),
        "longest" => put(&mut found.longest, option, positive(option, text)?),
        "keep" => put(&mut found.keep, option, positive(option, text)?),
        "pass-tokens" => put(&mut found.pass_tokens, option, positive(option, text)?),
        "threads" => put(&mut found.threads, option, positive(option, text)?),
        _ => Err(format!("unknown option `{option}`; see --help")),
    }
}

fn put<T>(place: &mut Option<T>, option: &str, value: T) -> Result<(), String> {
    match place.replace(value) {
        None => Ok(()),
        Some(_) => Err(format!("{option} comes twice, or beside another that says the same")),
    }
}

fn number<T: FromStr>(option: &str, text: &str) -> Result<T, String> {
    text.parse().map_err(|_| format!("{option} expects a number, found `{text}`"))
}

fn positive(option: &str, text: &str) -> Result<usize, String> {
    match number(option, text)? {
        0 => Err(format!("{option} expects at least 1, found `{text}`")),
        found => Ok(found),
    }
}

fn choice<T: Copy>(option: &str, text: &str, names: &[(&str, T)]) -> Result<T, String> {
    let known = names.iter().find(|(name, _)| *name == text);
    known.map(|&(_, value)| value).ok_or_else(|| {
        let names: Vec<&str> = names.iter().map(|(name, _)| *name).collect();
        format!("{option} expects one of {}, found `{text}`", names.join(", "))
    })
}

/// Rejects options that have no effect with the others.
fn check(found: &Arguments) -> Result<(), String> {
    let both = |one: bool, other: bool, text: &str| {
        if one && other { Err(text.to_owned()) } else { Ok(()) }
    };
    both(
        found.init_from.is_some(),
        found.config.is_some(),
        "--init-from and --config both say what to begin from",
    )?;
    both(
        found.batch.is_some() && found.gradients.is_none(),
        found.batches.is_some(),
        "--batches says already what a batch has",
    )?;
    both(
        found.init.is_some(),
        found.init_from.is_some(),
        "--init is for models from nothing, and --init-from names one",
    )?;
    let others = found.data.is_none() || found.validate.is_some() || found.test.is_some();
    both(found.features.is_some(), others, "--features is of the lines of --data alone")?;
    both(found.gradients.is_some(), found.benchmark, "--gradients and --benchmark are two things")?;
    if found.data.is_none() && (found.gradients.is_some() || found.benchmark) {
        return Err("--data is needed, the sentences".to_owned());
    }
    if found.data.is_some()
        && found.model.is_none()
        && found.gradients.is_none()
        && !found.benchmark
    {
        return Err("--model is needed, where everything goes".to_owned());
    }
    Ok(())
}
