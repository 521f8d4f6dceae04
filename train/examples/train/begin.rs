//! Prepares a command: the start of the weights, the sentences, and the options of a run.

use super::arguments::{Arguments, First, Shape};
use super::demo;
use simdformer::Threads;
use simdformer::checkpoint::Checkpoint;
use simdformer::config::{Config, Side};
use simdformer::kernels::Isa;
use simdformer::train::{
    DropoutRates, Initial, Schedule, Smoothing, StepOptions, TrainLimits, Trainer,
};
use simdformer_train::{
    BatchSize, Batching, Corpus, Layout, Metric, Reading, RunOptions, TrainingRun, Words,
};
use std::error::Error;
use std::path::{Path, PathBuf};

pub(crate) type Failure = Box<dyn Error + Send + Sync>;

/// Tokens per sentence if neither the command nor the model sets a limit.
const LONGEST: usize = 512;

/// The start of the weights.
#[derive(Debug)]
pub(crate) enum From {
    /// A save of the same run.
    Save(PathBuf),
    /// Another checkpoint, or the one that is overwritten at the end.
    Checkpoint(PathBuf),
    /// A config without weights.
    Nothing(PathBuf),
}

impl From {
    /// Determined by the arguments and by the content of the run's directory.
    pub(crate) fn of(arguments: &Arguments, directory: Option<&Path>) -> Result<Self, Failure> {
        let demo = arguments.is_demo();
        if let Some(directory) = directory {
            let resume = arguments.resume;
            match (resume, directory.join("checkpoints")) {
                (true, _) => {
                    if let Some(save) = TrainingRun::last_save(directory)? {
                        return Ok(Self::Save(save));
                    }
                }
                (false, saves) if saves.exists() => {
                    let text = "is of another run: remove it, or say --resume yes";
                    return Err(format!("{} {text}", saves.display()).into());
                }
                _ => {}
            }
        }
        if let Some(from) = &arguments.init_from {
            return Ok(Self::Checkpoint(from.clone()));
        }
        if let Some(config) = &arguments.config {
            return Ok(Self::Nothing(config.clone()));
        }
        match directory {
            _ if demo => Ok(Self::Nothing(demo::folder())),
            Some(directory)
                if directory.join("config.json").exists() && arguments.init.is_none() =>
            {
                Ok(Self::Checkpoint(directory.to_owned()))
            }
            Some(directory) if directory.join("config.json").exists() => {
                Ok(Self::Nothing(directory.to_owned()))
            }
            _ => {
                Err("expected weights to begin from: --init-from DIR, --config DIR_OR_FILE for a \
                      model from nothing, or a checkpoint in --model"
                    .into())
            }
        }
    }

    /// The directory or file of the config and vocabularies.
    pub(crate) fn path(&self) -> &Path {
        match self {
            Self::Save(path) | Self::Checkpoint(path) | Self::Nothing(path) => path,
        }
    }

    pub(crate) fn layout(&self) -> Result<Layout, Failure> {
        Ok(match self {
            Self::Save(path) | Self::Checkpoint(path) => Layout::from_directory(path)?,
            Self::Nothing(path) => Layout::of_config(path)?,
        })
    }
}

/// The sentences for training, validation and test.
pub(crate) struct Data {
    pub(crate) training: Corpus,
    pub(crate) held_out: Option<Corpus>,
    pub(crate) test: Option<Corpus>,
    pub(crate) words: Option<Words>,
}

impl Data {
    pub(crate) fn read(
        arguments: &Arguments,
        from: &From,
        config: &Config,
    ) -> Result<Self, Failure> {
        let folder = if from.path().is_dir() {
            from.path()
        } else {
            from.path().parent().unwrap_or(Path::new("."))
        };
        let words = match folder.join("vocab.json").exists() {
            // If words are tokenizer pieces, the vocabulary file may have another format; then only ids are read.
            true => Words::from_directory(folder).ok(),
            false => None,
        };
        let positions = |side| config.max_positions(side).unwrap_or(LONGEST);
        let most = positions(Side::Encoder).min(positions(Side::Decoder)).min(LONGEST);
        let longest = arguments.longest.unwrap_or(most);
        let mut reading = Reading::for_config(config, words.as_ref(), longest);
        if config.bins.is_some() {
            reading.source_length = arguments.longest.unwrap_or(positions(Side::Encoder));
        }
        let read = |file: &PathBuf| Corpus::read_file(file, &reading);
        match (&arguments.features, config.bins) {
            (Some(_), Some(_)) | (None, None) => {}
            (Some(_), None) => return Err("--features needs a model that reads features".into()),
            (None, Some(_)) => return Err("--features is needed, what the encoder reads".into()),
        }
        let mut test = arguments.test.as_ref().map(read).transpose()?;
        let (training, held_out) = match &arguments.data {
            Some(file) => match &arguments.features {
                Some(features) => (Corpus::read_with_features(file, features, &reading)?, None),
                None => (read(file)?, None),
            },
            None => {
                test = match test {
                    Some(test) => Some(test),
                    None => Some(read(&demo::folder().join("held_out.jsonl"))?),
                };
                let (training, development) = demo::corpora(&reading, arguments.seed)?;
                (training, Some(development))
            }
        };
        let held_out = match &arguments.validate {
            Some(file) => Some(read(file)?),
            None => held_out,
        };
        Ok(Self { training, held_out, test, words })
    }

    /// Limits that fit every sentence.
    pub(crate) fn limits(&self, arguments: &Arguments) -> TrainLimits {
        let corpora = [Some(&self.training), self.held_out.as_ref()];
        let longest = |side: usize| {
            let lengths = corpora.into_iter().flatten().map(|corpus| corpus.longest()[side]);
            lengths.max().unwrap_or(1).max(1)
        };
        let [source_length, target_length] = [longest(0), longest(1)];
        TrainLimits {
            source_length,
            target_length,
            keep: arguments.keep_activations,
            average: arguments.ema.is_some(),
            ..TrainLimits::new(arguments.pass_tokens, 1)
        }
    }
}

/// Creates the trainer with its initial weights.
pub(crate) fn trainer<'t>(
    arguments: &Arguments,
    from: &From,
    layout: &Layout,
    limits: TrainLimits,
    threads: &Threads<'t>,
) -> Result<Trainer<'t>, Failure> {
    let isa = arguments.isa.map_or_else(Isa::detect, Ok)?;
    let mut trainer = match from {
        From::Save(path) | From::Checkpoint(path) => {
            let checkpoint = Checkpoint::open(path)?;
            Trainer::open(&checkpoint, isa, limits)?
        }
        From::Nothing(_) => {
            let config = layout.config().clone();
            let initial = match arguments.init {
                Some(First::Glorot) => Initial::Glorot,
                _ => Initial::from_hugging_face(&config, layout.config_text())?,
            };
            let weights = initial.weights(&config, arguments.seed);
            Trainer::new_on(isa, config, limits, weights)?
        }
    };
    trainer.set_threads(threads.clone());
    // A checkpoint of one file may have no `config.json`.
    let settings: serde_json::Value = match layout.config_text() {
        "" => serde_json::Value::Null,
        text => serde_json::from_str(text)?,
    };
    let rate = |given: Option<f32>, names: &[&str]| -> Result<f32, Failure> {
        let of_config = || names.iter().find_map(|name| Some((name, settings.get(*name)?)));
        match given.map_or_else(of_config, |_| None) {
            None => Ok(given.unwrap_or(0.0)),
            Some((name, value)) => match value.as_f64() {
                Some(rate) => Ok(rate as f32),
                None => {
                    Err(format!("config.json: {name}: expected a number, found {value}").into())
                }
            },
        }
    };
    trainer.set_dropout(DropoutRates {
        hidden: rate(arguments.dropout, &["dropout", "dropout_rate", "hidden_dropout_prob"])?,
        // T5 has one rate for all three.
        attention: rate(
            arguments.attention_dropout,
            &["attention_dropout", "attention_probs_dropout_prob", "dropout_rate"],
        )?,
        activation: rate(arguments.activation_dropout, &["activation_dropout", "dropout_rate"])?,
        seed: arguments.seed,
    })?;
    if arguments.ema.is_some() {
        trainer.set_average(arguments.ema)?;
    }
    Ok(trainer)
}

/// The options of a run.
pub(crate) fn options(arguments: &Arguments, config: &Config) -> Result<RunOptions, Failure> {
    let demo = arguments.is_demo();
    let bounded =
        arguments.steps.is_some() || arguments.epochs.is_some() || arguments.minutes.is_some();
    let usual = if demo { 2800 } else { 10_000 };
    let steps = arguments.steps.or((!bounded).then_some(usual));
    let expected = steps.unwrap_or(usual);
    let warmup = arguments.warmup_steps.unwrap_or((expected / 12).max(1));
    let peak = arguments.learning_rate.unwrap_or(if demo { 2e-3 } else { 5e-4 });
    let last = arguments.final_fraction;
    // The last step needs a nonzero rate too.
    let end = expected.max(warmup) + 1;
    let schedule = match arguments.schedule {
        Shape::Constant => Schedule::Constant { peak, warmup },
        Shape::Paper => {
            let factor = arguments.learning_rate.unwrap_or(1.0);
            Schedule::Paper { d_model: config.d_model, factor, warmup: warmup.max(1) }
        }
        Shape::InverseSquareRoot => Schedule::InverseSquareRoot { peak, warmup },
        Shape::Linear => Schedule::Linear { peak, warmup, steps: end, last },
        Shape::Cosine => Schedule::Cosine { peak, warmup, steps: end, last },
    };
    let usual_size = if demo { BatchSize::Sentences(192) } else { BatchSize::Tokens(4096) };
    let size = arguments.batch().unwrap_or(usual_size);
    let batching = match &arguments.batches {
        Some(file) => Batching::listed(file)?,
        None if arguments.benchmark => Batching::InOrder { size },
        None => Batching::Shuffled { size, pool: arguments.sort_pool },
    };
    let mut step = StepOptions::default();
    let epsilon = arguments.label_smoothing.unwrap_or(if demo { 0.05 } else { 0.1 });
    step.smoothing = Smoothing { epsilon, ..Smoothing::default() };
    [step.adam.beta1, step.adam.beta2] = arguments.betas;
    step.adam.epsilon = arguments.epsilon;
    step.adam.weight_decay = arguments.weight_decay;
    step.clip_norm = Some(arguments.clip_norm).filter(|&norm| norm != 0.0);
    let metric = arguments.best_metric.unwrap_or(if demo { Metric::Judged } else { Metric::Loss });
    Ok(RunOptions {
        step,
        schedule,
        batching,
        accumulate: arguments.accumulate,
        seed: arguments.seed,
        steps,
        epochs: arguments.epochs,
        validate_every: arguments.validate_every,
        save_every: arguments.save_every,
        keep: arguments.keep,
        metric,
        patience: arguments.patience,
    })
}
