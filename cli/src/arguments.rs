//! Options that several commands have, and how their values are parsed.

use clap::builder::PossibleValuesParser;
use clap::{ArgGroup, Args, ValueHint};
use simdformer::kernels::Isa;
use simdformer::{Dtype, EngineBuilder, Model, WeightDtypes};
use simdformer_text::embedder::{Precision, Prompt};
use std::fmt;
use std::path::PathBuf;
use std::str::FromStr;

#[derive(Debug, Args)]
#[command(next_help_heading = "Model")]
pub(crate) struct Directory {
    /// The directory of a model as it is published (config.json, weights, tokenizer files), or its name, ORG/NAME or
    /// ORG/NAME@REVISION, which is downloaded once
    #[arg(long, value_name = "DIR", value_hint = ValueHint::DirPath)]
    pub(crate) model: PathBuf,
}

/// The options of every command that runs a model.
#[derive(Debug, Args)]
#[command(next_help_heading = "Model")]
pub(crate) struct ModelArguments {
    #[command(flatten)]
    pub(crate) directory: Directory,
    /// The dtype of the weights: stored (as in the checkpoint), f32, bf16, f16, int8x16 or int8
    ///
    /// int8 takes a quarter of the memory of f32 and is faster. Exceptions are written by name, for example
    /// int8,decoder.layers.*.feed_forward.outer=int8x16
    #[arg(long, value_name = "DTYPES", default_value = "stored")]
    pub(crate) weights: WeightDtypes,
    /// The number of threads (the physical cores); the results do not depend on it
    #[arg(long, value_name = "N", value_parser = at_least_one)]
    threads: Option<usize>,
    /// The instruction set: scalar, avx2, avx512 or neon; without this option, the best one of this CPU
    #[arg(long, value_name = "NAME", value_parser = Isa::from_name)]
    pub(crate) isa: Option<Isa>,
}

impl ModelArguments {
    /// The number of threads: as many as the caller asks for, or the physical cores that the process may use. A second
    /// thread of a core has no arithmetic of its own.
    pub(crate) fn thread_count(&self) -> usize {
        let cores = || {
            let usable = std::thread::available_parallelism().map_or(1, usize::from);
            num_cpus::get_physical().clamp(1, usable)
        };
        self.threads.unwrap_or_else(cores)
    }
}

/// The arguments of `pack`.
#[derive(Debug, Args)]
pub(crate) struct Pack {
    #[command(flatten)]
    pub(crate) directory: Directory,
    /// The directory to write; it must not exist or be empty
    #[arg(value_name = "OUT", value_hint = ValueHint::DirPath)]
    pub(crate) out: PathBuf,
    /// The dtype of the weights: stored (as in the checkpoint), f32, bf16, f16, int8x16 or int8, with exceptions by name
    #[arg(long, value_name = "DTYPES", default_value = "stored", help_heading = "Model")]
    pub(crate) weights: WeightDtypes,
    /// The instruction sets, for example avx512,avx2; without this option, the best one of this CPU
    #[arg(long, value_name = "NAMES", value_parser = Isa::from_name, value_delimiter = ',')]
    #[arg(help_heading = "Model")]
    pub(crate) isa: Vec<Isa>,
    /// Show no progress
    #[arg(long, help_heading = "Reports")]
    pub(crate) quiet: bool,
}

/// What a command reports on standard error.
#[derive(Debug, Default, Args)]
#[command(next_help_heading = "Reports")]
pub(crate) struct ReportArguments {
    /// Describe the loaded model on standard error
    #[arg(long)]
    pub(crate) summary: bool,
    /// Show no progress
    #[arg(long)]
    pub(crate) quiet: bool,
}

/// The texts of a command.
#[derive(Debug, Args)]
#[command(next_help_heading = "Texts")]
pub(crate) struct TextArguments {
    /// The texts; without them and without --file, standard input is read
    #[arg(value_name = "TEXT", help_heading = None)]
    pub(crate) texts: Vec<String>,
    /// Read texts from FILE; may be repeated
    #[arg(long = "file", value_name = "FILE", conflicts_with = "texts")]
    pub(crate) files: Vec<PathBuf>,
    /// A line is one text
    #[arg(long, overrides_with = "whole")]
    pub(crate) lines: bool,
    /// A file is one text
    #[arg(long, overrides_with = "lines")]
    pub(crate) whole: bool,
    /// Cut texts that are longer than the model accepts, and report it
    ///
    /// Without this option such a text is not run, and this is reported.
    #[arg(long)]
    pub(crate) truncate: bool,
    /// The number of texts that a session runs at a time
    #[arg(long, value_name = "N", default_value = "32", value_parser = at_least_one)]
    pub(crate) slots: usize,
    /// The number of sessions, each on one thread with its own memory (the number of threads)
    ///
    /// Long lists of texts are fastest with as many sessions as threads. 1 takes the least memory: one session on all
    /// threads. The results do not depend on it.
    #[arg(long, value_name = "N", value_parser = at_least_one)]
    sessions: Option<usize>,
}

impl TextArguments {
    /// The engine of `model`, with the threads of `arguments`.
    pub(crate) fn engine(&self, arguments: &ModelArguments, model: Model) -> EngineBuilder {
        let builder = arguments.engine(model).slots(self.slots);
        match self.sessions {
            Some(sessions) => builder.sessions(sessions),
            None => builder,
        }
    }

    /// Whether a file is one text; `default` if the options do not say.
    pub(crate) fn whole(&self, default: bool) -> bool {
        self.whole || (default && !self.lines)
    }
}

/// The prompt before a text or a query.
#[derive(Debug, Args)]
#[command(next_help_heading = "Texts")]
pub(crate) struct PromptArguments {
    /// The prompt of the directory to put first; without it, the one that the directory names as default
    #[arg(long, value_name = "NAME", conflicts_with = "prompt_text")]
    prompt: Option<String>,
    /// The text to put first instead of a prompt of the directory
    #[arg(long, value_name = "TEXT")]
    prompt_text: Option<String>,
}

impl PromptArguments {
    pub(crate) fn choice(&self) -> Prompt {
        match (&self.prompt, &self.prompt_text) {
            (Some(name), _) => Prompt::Named(name.clone()),
            (None, Some(text)) => Prompt::Text(text.clone()),
            (None, None) => Prompt::Default,
        }
    }
}

#[derive(Debug, Args)]
pub(crate) struct Embed {
    #[command(flatten)]
    pub(crate) model: ModelArguments,
    #[command(flatten)]
    pub(crate) texts: TextArguments,
    #[command(flatten)]
    pub(crate) prompt: PromptArguments,
    /// Keep the first N dimensions and scale them to length 1, for models that were trained for it
    #[arg(long, value_name = "N", help_heading = "Output", value_parser = at_least_one)]
    pub(crate) dims: Option<usize>,
    /// The form of the numbers, as quantize_embeddings of sentence-transformers makes it
    ///
    /// int8 and uint8 divide the range of each dimension into 256 steps. Without --ranges it is the range over all
    /// texts, which are kept in memory until the last one. binary and ubinary are a bit for each dimension, eight in a
    /// byte.
    #[arg(long, value_name = "FORM", help_heading = "Output", default_value = "f32", value_parser = precision())]
    pub(crate) to: Precision,
    /// Read the ranges of int8 and uint8 from FILE of NumPy: float32, [2, dimensions]
    #[arg(long, value_name = "FILE", help_heading = "Output")]
    pub(crate) ranges: Option<PathBuf>,
    /// Write the ranges of the vectors to FILE for NumPy
    #[arg(long, value_name = "FILE", help_heading = "Output")]
    pub(crate) save_ranges: Option<PathBuf>,
    /// Write the cosine of every text with every other instead of vectors
    #[arg(long, help_heading = "Output", conflicts_with_all = ["npy", "to"])]
    pub(crate) table: bool,
    /// Write the vectors to FILE for NumPy: float32, int8 or uint8, [texts, width]
    #[arg(long, value_name = "FILE", help_heading = "Output")]
    pub(crate) npy: Option<PathBuf>,
    #[command(flatten)]
    pub(crate) reports: ReportArguments,
}

#[derive(Debug, Args)]
#[command(group(ArgGroup::new("asked").required(true).args(["query", "queries"])))]
pub(crate) struct Rerank {
    #[command(flatten)]
    pub(crate) model: ModelArguments,
    #[command(flatten)]
    pub(crate) texts: TextArguments,
    /// The query that the texts answer; may be repeated
    #[arg(long, value_name = "QUERY", help_heading = "Texts")]
    pub(crate) query: Vec<String>,
    /// Read queries from the lines of FILE
    #[arg(long, value_name = "FILE", help_heading = "Texts")]
    pub(crate) queries: Option<PathBuf>,
    #[command(flatten)]
    pub(crate) prompt: PromptArguments,
    /// Write only the best N texts of each query
    #[arg(long, value_name = "N", help_heading = "Output", value_parser = at_least_one)]
    pub(crate) top_k: Option<usize>,
    /// Write the output of the classifier without the activation of the directory
    #[arg(long, help_heading = "Output")]
    pub(crate) raw: bool,
    #[command(flatten)]
    pub(crate) reports: ReportArguments,
}

#[derive(Debug, Args)]
pub(crate) struct CacheArguments {
    /// The dtype of the KV cache; without this option f16 if the decoder attends in int8, otherwise f32
    ///
    /// f16 takes half the memory, is faster for long sources, and rounds keys and values to 11 bits.
    #[arg(long = "cache", value_name = "DTYPE", help_heading = "Model", value_parser = cache_dtype())]
    pub(crate) dtype: Option<Dtype>,
}

fn precision() -> impl clap::builder::TypedValueParser<Value = Precision> {
    use clap::builder::TypedValueParser as _;
    PossibleValuesParser::new(Precision::ALL.map(Precision::name))
        .try_map(|name| Precision::from_name(&name).ok_or("expected the form of a number"))
}

fn cache_dtype() -> impl clap::builder::TypedValueParser<Value = Dtype> {
    use clap::builder::TypedValueParser as _;
    PossibleValuesParser::new(["f32", "f16"])
        .try_map(|name| Dtype::from_name(&name).ok_or("expected f32 or f16"))
}

/// An error in a command line that clap cannot see, because it depends on the model.
#[derive(Debug)]
pub(crate) struct UsageError(pub(crate) String);

impl fmt::Display for UsageError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

impl std::error::Error for UsageError {}

/// Parses a value; the error says what is expected.
pub(crate) fn parsed<T: FromStr>(text: &str, expected: &str) -> Result<T, String> {
    text.parse().map_err(|_| format!("expected {expected}"))
}

pub(crate) fn at_least_one(text: &str) -> Result<usize, String> {
    const EXPECTED: &str = "a whole number from 1 up";
    match parsed(text, EXPECTED)? {
        0 => Err(format!("expected {EXPECTED}")),
        count => Ok(count),
    }
}

pub(crate) fn token_id(text: &str) -> Result<u32, String> {
    parsed(text, "a token id")
}

pub(crate) fn fraction(text: &str) -> Result<f64, String> {
    const EXPECTED: &str = "a number from 0 to 1";
    let found: f64 = parsed(text, EXPECTED)?;
    if (0.0..=1.0).contains(&found) { Ok(found) } else { Err(format!("expected {EXPECTED}")) }
}
