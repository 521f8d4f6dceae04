//! The options of `generate`.

use crate::arguments::{
    CacheArguments, ModelArguments, UsageError, at_least_one, fraction, token_id,
};
use crate::search_arguments::{HEADING as SEARCH, SearchArguments, needs};
use clap::Args;
use simdformer::config::Config;
use simdformer::search::{SearchOptions, Strategy, Timestamps};
use std::path::PathBuf;

/// The end of `simdformer generate --help`.
const FORMAT: &str = "\
Input:
  A line of standard input is a JSON object, {\"input_ids\": [...]} with optional \"decoder_input_ids\": [...]. All \
lines are run as one batch. decoder_input_ids are a forced prefix: the search continues them, and they are part of \
every sequence, but not of scores and counts. They may begin with the decoder start, which is not repeated. A model \
that reads features (Whisper) takes them from --features, and its lines have no input_ids. A line without \
decoder_input_ids then begins as generation_config.json says, in the language that the model detects if the \
checkpoint names none.

Output:
  A line of standard output is a JSON object, {\"sequences\": [[...]], \"scores\": [...]}, best first: ids after the \
decoder start, the end token included. A score is the sum of the log-probabilities of the new tokens, in beam search \
divided by length^penalty. A model with only an encoder has no sequences; --logits writes its hidden states.

Statistics:
  Standard error gets one JSON object. load_seconds. plan_bytes: all memory of the session. encode_seconds: the \
encoder and the keys and values of cross-attention, measured in a call of its own after the run. decode_seconds: the \
whole run, which also encodes, minus encode_seconds. new_tokens: of the sequences that are written. \
tokens_per_second: new_tokens divided by the sum of both times. allocations: on the heap during encoding and decoding, \
over all repeats. model_bytes. peak_rss_bytes, if the system reports it. isa. threads. defaults: values of keys that \
config.json lacks. unsupported: settings of generation_config.json that have no effect. With drafts also steps of the \
decoder, drafted tokens, and accepted tokens.

Examples:
  echo '{\"input_ids\": [6, 11, 0]}' | simdformer generate --model models/fr-en --beams 4
  simdformer generate --model DIR --sample --top-p 0.9 --num-return-sequences 5 < requests.jsonl
  simdformer generate --model DIR --compare-weights < requests.jsonl";

/// Options that only a search has; with `--score` there is none.
const OF_SEARCH: [&str; 7] = [
    "SearchArguments",
    "num_return_sequences",
    "forced_bos_token_id",
    "no_scores",
    "timestamps",
    "draft",
    "ngrams",
];

#[derive(Debug, Args)]
#[command(after_long_help = FORMAT)]
pub(crate) struct Generate {
    #[command(flatten)]
    pub(crate) model: ModelArguments,
    #[command(flatten)]
    pub(crate) cache: CacheArguments,
    /// Save the packed weights to FILE; they are for this instruction set
    #[arg(long, value_name = "FILE", help_heading = "Model")]
    pub(crate) save_packed: Option<PathBuf>,
    /// Read packed weights from FILE instead of the weights of the checkpoint
    #[arg(long, value_name = "FILE", help_heading = "Model")]
    #[arg(conflicts_with_all = ["weights", "save_packed"])]
    pub(crate) packed: Option<PathBuf>,

    #[command(flatten)]
    pub(super) search: SearchArguments,
    /// The number of sequences of each line: at most the beams, or any number of samples (1)
    ///
    /// If the rules leave fewer hypotheses, the best one is repeated with the score -1e9 / length^penalty, as in
    /// transformers.
    #[arg(long, value_name = "N", help_heading = SEARCH, value_parser = at_least_one)]
    num_return_sequences: Option<usize>,
    /// The first token after the decoder start
    #[arg(long, value_name = "ID", help_heading = SEARCH, value_parser = token_id)]
    forced_bos_token_id: Option<u32>,
    /// Greedy search: compute no scores; the tokens are the same, and faster on some CPUs
    #[arg(long, help_heading = SEARCH)]
    no_scores: bool,
    /// Whisper: write time tokens, by the rule for them
    #[arg(long, help_heading = SEARCH)]
    timestamps: bool,
    /// Use the answers of FILE, the output of an earlier run, as drafts
    ///
    /// For greedy search or one sample a line. The output is the same, and comes faster if the drafts are accepted.
    #[arg(long, value_name = "FILE", help_heading = SEARCH)]
    pub(crate) draft: Option<PathBuf>,
    /// Prompt lookup: draft what followed the last N tokens before, in the output or in the source
    ///
    /// For greedy search or one sample a line; used after the drafts of --draft. The source is searched if it has the
    /// vocabulary of the target.
    #[arg(long, value_name = "N", help_heading = SEARCH, value_parser = at_least_one)]
    pub(crate) ngrams: Option<usize>,

    /// Audio features, a safetensors file: features.{i}, [frames, bins], for line i, counted from 0
    #[arg(long, value_name = "FILE", help_heading = "Input and output")]
    pub(crate) features: Option<PathBuf>,
    /// Write a safetensors file: encoder.{i}, [length, d_model], and logits.{i}, [length, vocabulary]
    ///
    /// logits.{i} exists for a line with decoder_input_ids, which are the input of the decoder.
    #[arg(long, value_name = "FILE", help_heading = "Input and output")]
    pub(crate) logits: Option<PathBuf>,
    /// Instead of a search, compute the "log_probabilities" of the decoder_input_ids of each line
    #[arg(long, help_heading = "Input and output", conflicts_with_all = OF_SEARCH)]
    pub(crate) score: bool,
    /// Run the batch N times and report the medians of the times
    #[arg(long, value_name = "N", help_heading = "Input and output")]
    #[arg(default_value = "1", value_parser = at_least_one)]
    pub(crate) repeat: usize,

    /// Compare the weight dtypes on this model instead of writing answers
    ///
    /// Each dtype predicts the targets of the lines; without decoder_input_ids, these are the greedy output of the f32
    /// model. The report has the agreement with f32, the error of each matrix, and the smallest dtypes with the
    /// requested agreement.
    #[arg(long, help_heading = "Comparison")]
    #[arg(conflicts_with_all = ["weights", "packed", "save_packed", "score", "logits"])]
    pub(crate) compare_weights: bool,
    /// The requested fraction of positions at which the most probable token is that of f32
    #[arg(long, value_name = "X", help_heading = "Comparison", requires = "compare_weights")]
    #[arg(default_value = "0.995", value_parser = fraction)]
    pub(crate) agreement: f64,
}

impl Generate {
    /// The search options of the checkpoint, with the changes of the command line.
    ///
    /// # Errors
    /// An option has no effect with the strategy of the search.
    pub(crate) fn search_options(&self, config: &Config) -> Result<SearchOptions, UsageError> {
        let mut options = self.search.options(config)?;
        options.scores &= !self.no_scores;
        options.num_return_sequences =
            self.num_return_sequences.unwrap_or(options.num_return_sequences);
        options.forced_bos = self.forced_bos_token_id.or(options.forced_bos);
        if options.max_new_tokens.is_none() && options.max_length.is_none() {
            // The default of transformers.
            options.max_length = Some(20);
        }
        Ok(options)
    }

    /// Rejects options that have no effect with this model or with this search.
    pub(crate) fn check(&self, config: &Config, options: &SearchOptions) -> Result<(), UsageError> {
        if config.decoder.is_none() {
            needs(
                &[("--score", self.score), ("--compare-weights", self.compare_weights)],
                "a decoder, which this model does not have",
            )?;
        }
        // Drafts are for one hypothesis a line.
        if options.sequences() > 1 || matches!(options.strategy, Strategy::Beam(_)) {
            needs(
                &[("--draft", self.draft.is_some()), ("--ngrams", self.ngrams.is_some())],
                "--beams 1, or one sample a line",
            )?;
        }
        match (&self.features, config.bins) {
            (None, Some(_)) => Err(UsageError("--features is missing".to_owned())),
            (Some(_), None) => needs(&[("--features", true)], "a model that reads features"),
            _ => Ok(()),
        }
    }

    /// The timestamp rule, if timestamps are requested.
    pub(crate) fn timestamp_rule(&self, config: &Config) -> Result<Option<Timestamps>, UsageError> {
        let transcription = &config.transcription;
        let eos = config.tokens.eos.first();
        match (transcription.no_timestamps, eos) {
            (Some(no_timestamps), Some(&eos)) => {
                let max_initial = transcription.max_initial_timestamp;
                Ok(self.timestamps.then_some(Timestamps { no_timestamps, eos, max_initial }))
            }
            _ => {
                let needed = "a checkpoint that has no_timestamps_token_id and eos_token_id";
                needs(&[("--timestamps", self.timestamps)], needed).map(|()| None)
            }
        }
    }
}
