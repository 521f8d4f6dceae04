//! The options of the search, for every command whose model has a decoder.

use crate::arguments::{UsageError, at_least_one, number, seed, temperature, whole};
use clap::builder::{PossibleValuesParser, TypedValueParser};
use clap::{Args, ValueEnum};
use simdformer::config::Config;
use simdformer::search::{EarlyStopping, SampleOptions, SearchOptions, Strategy};

/// The heading of these options in the help.
pub(crate) const HEADING: &str =
    "Search (default: generation_config.json, then the value in parentheses)";

/// The beams of `--strategy beam`, the tokens of `--strategy top-k` and the mass of `--strategy top-p`, unless given.
const BEAMS: usize = 4;
const TOP_K: usize = 50;
const TOP_P: f64 = 0.9;

/// A way to choose tokens, without the settings of the checkpoint for it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
enum Choice {
    Greedy,
    Beam,
    Sample,
    TopK,
    TopP,
}

/// Changes of the checkpoint's search options; `None` and `false` change nothing.
#[derive(Debug, Default, Args)]
#[command(next_help_heading = HEADING)]
pub(crate) struct SearchArguments {
    /// How tokens are chosen: greedy, beam, sample, top-k or top-p (what generation_config.json says)
    ///
    /// greedy takes the most probable token. beam keeps the best --beams (4) hypotheses. sample draws from all tokens,
    /// top-k from the --top-k (50) most probable ones, top-p from the most probable ones that have --top-p (0.9) of the
    /// probability. The filters of generation_config.json are then off; the other options of samples can be added.
    #[arg(long, value_name = "NAME", conflicts_with = "sample", hide_possible_values = true)]
    strategy: Option<Choice>,
    /// The number of beams; 1 is greedy search (1)
    #[arg(long, value_name = "N", value_parser = at_least_one)]
    beams: Option<usize>,
    /// The maximum number of new tokens (max_length, bounded by the positions of the model)
    #[arg(long, value_name = "N", value_parser = at_least_one)]
    pub(crate) max_new_tokens: Option<usize>,
    /// The minimum number of new tokens (0)
    #[arg(long, value_name = "N", value_parser = whole)]
    min_new_tokens: Option<usize>,
    /// Beams: the exponent of the length by which a score is divided (1)
    #[arg(long, value_name = "X", value_parser = number)]
    length_penalty: Option<f64>,
    /// Beams: stop as soon as there are enough finished hypotheses, never, or by the heuristic of transformers (false)
    #[arg(long, value_name = "WHEN", value_parser = early_stopping())]
    early_stopping: Option<EarlyStopping>,
    /// Never write an n-gram of N tokens twice; 0 is off (0)
    #[arg(long, value_name = "N", value_parser = whole)]
    no_repeat_ngram_size: Option<usize>,
    /// Divide the scores of tokens that were written before; 1 is off (1)
    #[arg(long, value_name = "X", value_parser = number)]
    repetition_penalty: Option<f64>,
    /// Draw tokens at random, or, with beams, the continuations of beams
    ///
    /// Source i of the input draws from random stream i.
    #[arg(long)]
    sample: bool,
    /// Samples: divide the logits by X (1)
    #[arg(long, value_name = "X", value_parser = temperature)]
    temperature: Option<f64>,
    /// Samples: keep the most probable tokens, while their entropy is at most X times that of the best hundred (off)
    #[arg(long, value_name = "X", value_parser = number)]
    top_h: Option<f64>,
    /// Samples: keep the N most probable tokens; 0 keeps all (50)
    #[arg(long, value_name = "N", value_parser = whole)]
    top_k: Option<usize>,
    /// Samples: keep the most probable tokens, up to the sum X of their probabilities (1)
    #[arg(long, value_name = "X", value_parser = number)]
    top_p: Option<f64>,
    /// Samples: keep tokens with at least X times the largest probability (0)
    #[arg(long, value_name = "X", value_parser = number)]
    min_p: Option<f64>,
    /// Samples: the seed of the random numbers (0)
    #[arg(long, value_name = "N", value_parser = seed)]
    seed: Option<u64>,
}

fn early_stopping() -> impl TypedValueParser<Value = EarlyStopping> {
    PossibleValuesParser::new(["true", "false", "never"]).map(|name| match name.as_str() {
        "true" => EarlyStopping::WhenFull,
        "false" => EarlyStopping::Heuristic,
        _ => EarlyStopping::Never,
    })
}

/// An error if one of `options` is given although it has no effect without `needed`.
pub(crate) fn needs(options: &[(&str, bool)], needed: &str) -> Result<(), UsageError> {
    match options.iter().find(|(_, given)| *given) {
        Some((option, _)) => Err(UsageError(format!("{option} has no effect without {needed}"))),
        None => Ok(()),
    }
}

impl SearchArguments {
    /// The search options of the checkpoint, with the changes of the command line.
    ///
    /// # Errors
    /// An option has no effect with the strategy of the search.
    pub(crate) fn options(&self, config: &Config) -> Result<SearchOptions, UsageError> {
        let mut config = config.clone();
        let generation = &mut config.generation;
        let (one, beams) = (self.beams.unwrap_or(1), self.beams.unwrap_or(generation.num_beams));
        (generation.do_sample, generation.num_beams) = match self.strategy {
            None if self.sample => (true, one),
            None => (generation.do_sample, beams),
            Some(Choice::Greedy) => (false, 1),
            Some(Choice::Beam) if beams == 1 => (false, self.beams.unwrap_or(BEAMS)),
            Some(Choice::Beam) => (false, beams),
            Some(Choice::Sample | Choice::TopK | Choice::TopP) => (true, one),
        };
        if self.strategy == Some(Choice::Greedy) {
            needs(&[("--beams", one > 1)], "--strategy beam")?;
        }
        let mut options = config.search_options();
        self.change_strategy(&mut options.strategy)?;
        if self.max_new_tokens.is_some() {
            (options.max_new_tokens, options.max_length) = (self.max_new_tokens, None);
        }
        options.min_new_tokens = self.min_new_tokens.unwrap_or(options.min_new_tokens);
        if let Some(size) = self.no_repeat_ngram_size {
            options.no_repeat_ngram = (size > 0).then_some(size);
        }
        options.repetition_penalty = self.repetition_penalty.unwrap_or(options.repetition_penalty);
        Ok(options)
    }

    fn change_strategy(&self, strategy: &mut Strategy) -> Result<(), UsageError> {
        let of_samples = [
            ("--temperature", self.temperature.is_some()),
            ("--top-h", self.top_h.is_some()),
            ("--top-k", self.top_k.is_some()),
            ("--top-p", self.top_p.is_some()),
            ("--min-p", self.min_p.is_some()),
            ("--seed", self.seed.is_some()),
        ];
        let of_beams = [
            ("--length-penalty", self.length_penalty.is_some()),
            ("--early-stopping", self.early_stopping.is_some()),
        ];
        let change = |sample: &mut SampleOptions| {
            if let Some(choice) = self.strategy {
                *sample = SampleOptions {
                    top_k: (choice == Choice::TopK).then_some(TOP_K),
                    top_p: (choice == Choice::TopP).then_some(TOP_P),
                    ..SampleOptions::default()
                };
            }
            sample.seed = self.seed.unwrap_or(sample.seed);
            sample.temperature = self.temperature.unwrap_or(sample.temperature);
            sample.top_h = self.top_h.or(sample.top_h);
            if let Some(k) = self.top_k {
                sample.top_k = (k > 0).then_some(k);
            }
            sample.top_p = self.top_p.or(sample.top_p);
            sample.min_p = self.min_p.or(sample.min_p);
        };
        match strategy {
            Strategy::Sample(sample) => {
                needs(&of_beams, "--beams")?;
                change(sample);
            }
            Strategy::Beam(beam) => {
                match &mut beam.sample {
                    Some(sample) => change(sample),
                    None => needs(&of_samples, "--sample")?,
                }
                beam.length_penalty = self.length_penalty.unwrap_or(beam.length_penalty);
                beam.early_stopping = self.early_stopping.unwrap_or(beam.early_stopping);
            }
            Strategy::Greedy => {
                needs(&of_samples, "--sample")?;
                // With an explicit `--beams 1`, beam options are allowed, for scripts that vary the number of beams.
                if self.beams.is_none() {
                    needs(&of_beams, "--beams")?;
                }
            }
        }
        Ok(())
    }
}

/// Rejects options that are invalid for every input, before anything is run.
pub(crate) fn check(options: &SearchOptions, config: &Config) -> Result<(), UsageError> {
    let mut options = options.clone();
    if config.decoder.is_none() && options.start == SearchOptions::NO_START {
        // A model with only an encoder needs no decoder start token.
        options.start = 0;
    }
    // The target length is checked with the inputs.
    config.check_search(&options).map_err(|error| UsageError(error.to_string()))
}
