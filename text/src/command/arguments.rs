//! The command line: every command with its options, as clap reads it.
//!
//! An option that several commands have is declared once, in a struct that these commands flatten. The options of the
//! search are in [`search_arguments`](crate::search_arguments), those of `generate` in [`generate`](crate::generate), and
//! those of documents and tables in [`translate_arguments`](crate::translate_arguments).

use crate::generate::Generate;
#[cfg(feature = "hub")]
use crate::hub::Get;
#[cfg(feature = "transcribe")]
use crate::transcribe_arguments::Transcribe;
use crate::translate_arguments::{TextToText, Translate};
use clap::builder::PossibleValuesParser;
use clap::{
    ArgAction, ArgGroup, Args, CommandFactory, FromArgMatches, Parser, Subcommand, ValueHint,
};
use clap_complete::Shell;
use simdformer::kernels::Isa;
use simdformer::{Dtype, WeightDtypes};
use simdformer_text::embedder::{Precision, Prompt};
use std::ffi::OsString;
use std::fmt;
use std::path::PathBuf;
use std::str::FromStr;
use std::sync::LazyLock;

/// The end of `simdformer --help`.
const EXAMPLES: &str = "\
Examples:
  simdformer get Helsinki-NLP/opus-mt-en-fr
  simdformer translate --model Helsinki-NLP/opus-mt-en-fr \"How are you?\"
  simdformer translate --model nllb-200-distilled-600M --from eng_Latn --to fra_Latn < lines.txt
  simdformer summarize --model bart-large-cnn --file article.txt
  simdformer embed --model all-MiniLM-L6-v2 --table \"How are you?\" \"Comment vas-tu ?\"
  simdformer transcribe --model whisper-base talk.wav
  echo '{\"input_ids\": [6, 11, 0]}' | simdformer generate --model models/fr-en
  simdformer pack --model whisper-base --weights int8 whisper-base-int8
  simdformer completions bash > ~/.local/share/bash-completion/completions/simdformer
  simdformer man translate | man -l -

Results are written to standard output, everything else to standard error. The results are the same on any number of \
threads. The exit code is 0; 1 if something could not be run; 2 for a wrong command line.";

/// Runs published Transformer models on text, audio or token ids
#[derive(Debug, Parser)]
#[command(name = "simdformer", version, after_help = EXAMPLES, max_term_width = 100)]
struct CommandLine {
    #[command(subcommand)]
    command: Command,
}

/// The command to run.
#[derive(Debug, Subcommand)]
pub(crate) enum Command {
    /// Translate texts and documents
    ///
    /// Documents are the arguments, the files, or standard input. Their sentences are translated one by one, and everything
    /// else stays: paragraphs, lists, code, links, tags, times of subtitles. With --lines every line is one sentence and
    /// becomes one line of output; so with --whole, --explain and --stream every text is one sentence.
    Translate(Box<Translate>),
    /// Summarize texts
    ///
    /// Texts are the arguments, the files, or standard input: a file is one text. Every text becomes one line of
    /// output, in order. A blank text becomes a blank line.
    Summarize(Box<TextToText>),
    /// Generate sequences of token ids from token ids or audio features
    Generate(Box<Generate>),
    /// Compute a vector for each text
    ///
    /// A line is one text. Its vector is a line of JSON, computed as modules.json defines (without this file, it is
    /// the mean of the hidden states of the tokens). A blank text has the vector of its special tokens. A text that is
    /// longer than max_seq_length of the directory is cut, and this is reported. The prompt of the directory is put before
    /// every text, if config_sentence_transformers.json names a default; --prompt selects another one.
    Embed(Box<Embed>),
    /// Score how well each text answers a query, best first
    ///
    /// A line is one text. A cross-encoder scores it together with the query. Each line of output is a JSON object
    /// with the index of the text, from 0, and its score: the output of the classifier after the activation of the
    /// directory, a sigmoid if it names none. With several queries also the index of the query, from 0.
    Rerank(Box<Rerank>),
    /// Transcribe audio files
    ///
    /// The text of a file becomes one line. A file is WAV, AIFF, FLAC, MP3, AAC, M4A or Ogg Vorbis, of any sample rate, any
    /// number of channels and any length. Windows of 30 s begin where the last sentence of the one before ends. For other
    /// formats: ffmpeg -i FILE -ac 1 -ar 16000 -f wav - | simdformer transcribe --model DIR
    #[cfg(feature = "transcribe")]
    Transcribe(Box<Transcribe>),
    /// Download a model, or find it in the cache, and print its directory
    ///
    /// Only the files that are needed are downloaded, into the cache that Python programs use. A download that was
    /// interrupted continues. Wherever a command takes --model DIR, it takes the name of a model, too.
    #[cfg(feature = "hub")]
    Get(Get),
    /// Pack the weights of a model, so that it opens in milliseconds
    ///
    /// Writes a directory with the packed weights, the settings and the tokenizer, which every command takes as --model.
    /// Commands map the file of the weights: all processes of a machine share one copy. The file is for one instruction
    /// set and one table of dtypes; --isa names several sets, with a file for each.
    Pack(Pack),
    /// List the languages of a model
    Languages(Directory),
    /// Show the architecture of a model, its memory and its search options
    Show(Directory),
    /// Print a completion script
    Completions {
        /// The shell that will read the script
        shell: Shell,
    },
    /// Print the manual page of simdformer or of one of its commands
    Man {
        /// The command; without it, simdformer
        command: Option<String>,
    },
}

#[cfg(feature = "hub")]
impl Command {
    /// The model that the command runs, and whether it hides progress.
    pub(crate) fn directory(&mut self) -> Option<(&mut Directory, bool)> {
        Some(match self {
            Self::Translate(arguments) => {
                let common = &mut arguments.common;
                (&mut common.model.directory, common.reports.quiet)
            }
            Self::Summarize(arguments) => (&mut arguments.model.directory, arguments.reports.quiet),
            Self::Generate(arguments) => (&mut arguments.model.directory, false),
            Self::Embed(arguments) => (&mut arguments.model.directory, arguments.reports.quiet),
            Self::Rerank(arguments) => (&mut arguments.model.directory, arguments.reports.quiet),
            #[cfg(feature = "transcribe")]
            Self::Transcribe(arguments) => {
                (&mut arguments.model.directory, arguments.reports.quiet)
            }
            Self::Pack(arguments) => (&mut arguments.directory, arguments.quiet),
            Self::Languages(directory) | Self::Show(directory) => (directory, false),
            Self::Get(_) | Self::Completions { .. } | Self::Man { .. } => return None,
        })
    }
}

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
    /// The number of sessions: one for each thread, unless the options say otherwise.
    pub(crate) fn sessions(&self, model: &ModelArguments) -> usize {
        self.sessions.unwrap_or_else(|| model.thread_count())
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
fn parsed<T: FromStr>(text: &str, expected: &str) -> Result<T, String> {
    text.parse().map_err(|_| format!("expected {expected}"))
}

pub(crate) fn at_least_one(text: &str) -> Result<usize, String> {
    const EXPECTED: &str = "a whole number from 1 up";
    match parsed(text, EXPECTED)? {
        0 => Err(format!("expected {EXPECTED}")),
        count => Ok(count),
    }
}

pub(crate) fn whole(text: &str) -> Result<usize, String> {
    parsed(text, "a whole number")
}

pub(crate) fn seed(text: &str) -> Result<u64, String> {
    parsed(text, "a whole number below 2^64")
}

pub(crate) fn token_id(text: &str) -> Result<u32, String> {
    parsed(text, "a token id")
}

pub(crate) fn number(text: &str) -> Result<f64, String> {
    parsed(text, "a number")
}

/// A temperature that the scores are divided by.
pub(crate) fn temperature(text: &str) -> Result<f64, String> {
    match number(text)? {
        0.0 => Err("at 0 only the most probable token is left: use --strategy greedy".to_owned()),
        other => Ok(other),
    }
}

pub(crate) fn fraction(text: &str) -> Result<f64, String> {
    const EXPECTED: &str = "a number from 0 to 1";
    let found: f64 = parsed(text, EXPECTED)?;
    if (0.0..=1.0).contains(&found) { Ok(found) } else { Err(format!("expected {EXPECTED}")) }
}

/// The definition of the command line, from which clap parses and prints help, completions and manual pages.
pub(crate) fn definition() -> clap::Command {
    // `-1` is the value of an option, so that the error names what the option expects.
    fn negative(command: clap::Command) -> clap::Command {
        let has_value = |arg: &clap::Arg| matches!(arg.get_action(), ArgAction::Set);
        command.mut_subcommands(negative).mut_args(|arg| match has_value(&arg) {
            true => arg.allow_negative_numbers(true),
            false => arg,
        })
    }
    negative(CommandLine::command())
}

/// The version, the commit, and the instruction set that is used on this machine.
fn version() -> String {
    let isa = match Isa::detect() {
        Ok(isa) => isa.name().to_owned(),
        Err(error) => error.to_string(),
    };
    let (version, commit) = (env!("CARGO_PKG_VERSION"), env!("SIMDFORMER_COMMIT"));
    format!("{version}\ncommit: {commit}\ninstruction set: {isa}")
}

pub(crate) fn parse(arguments: impl IntoIterator<Item = OsString>) -> Result<Command, clap::Error> {
    // Not part of the definition, because manual pages are the same on all machines.
    static VERSION: LazyLock<String> = LazyLock::new(version);
    let mut definition = definition().long_version(VERSION.as_str());
    let found = definition.try_get_matches_from_mut(arguments)?;
    CommandLine::from_arg_matches(&found)
        .map(|line| line.command)
        .map_err(|error| error.format(&mut definition))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parsed(line: &str) -> Result<Command, String> {
        let words = std::iter::once("simdformer").chain(line.split_whitespace());
        parse(words.map(OsString::from)).map_err(|error| {
            assert_eq!(error.exit_code(), 2, "{line}");
            error.to_string()
        })
    }

    #[test]
    fn definition_is_consistent() {
        definition().debug_assert();
    }

    #[test]
    fn errors_name_what_is_expected_and_found() {
        let commands = "Commands:\n  translate ";
        let no_model = "required arguments were not provided:\n  --model <DIR>";
        for (line, part) in [
            ("", commands),
            ("translat", "unrecognized subcommand 'translat'\n\n  tip: "),
            ("translate", no_model),
            ("translate --model", "a value is required for '--model <DIR>' but none was supplied"),
            (
                "translate --model x --beams 0",
                "'0' for '--beams <N>': expected a whole number from 1 up",
            ),
            ("embed --model x --weights", "a value is required for '--weights <DTYPES>'"),
            (
                "translate --model x --weights int4",
                "a dtype of weights must be stored, f32, bf16, f16, int8x16, int8, found \"int4\"",
            ),
            ("show --model x --weights int8", "unexpected argument '--weights' found"),
            ("embed --model x --cache f16", "unexpected argument '--cache' found"),
            (
                "translate --model x --cache int8",
                "invalid value 'int8' for '--cache <DTYPE>'\n  [possible values: f32, f16]",
            ),
            (
                "translate --model x --sample --temperature 0",
                "'0' for '--temperature <X>': at 0 only the most probable token is left: use --strategy greedy",
            ),
            (
                "translate --model x --strategy best",
                "'best' for '--strategy <NAME>'\n  [possible values: greedy, beam, sample, top-k, top-p]",
            ),
            (
                "translate --model x --strategy greedy --sample",
                "'--strategy <NAME>' cannot be used with '--sample'",
            ),
            (
                "translate --model x --explain --stream",
                "'--explain[=<N>]' cannot be used with '--stream'",
            ),
            ("generate --model x --explain", "unexpected argument '--explain' found"),
            ("translate --model x --bogus", "unexpected argument '--bogus' found"),
            ("embed --model x --json", "unexpected argument '--json' found"),
            ("translate --model x --table", "unexpected argument '--table' found"),
            ("embed --model x --table --npy y", "'--table' cannot be used with '--npy <FILE>'"),
            ("embed --model x --table --to int8", "'--table' cannot be used with '--to <FORM>'"),
            ("embed --model x --prompt a --prompt-text b", "'--prompt <NAME>' cannot be used with"),
            ("embed --model x --to int4", "[possible values: f32, int8, uint8, binary, ubinary]"),
            ("embed --model x --dims 0", "'0' for '--dims <N>': expected a whole number from 1 up"),
            (
                "rerank --model x --query y --queries z",
                "'--query <QUERY>' cannot be used with '--queries",
            ),
            (
                "rerank --model x",
                "required arguments were not provided:\n  <--query <QUERY>|--queries <FILE>>",
            ),
            ("rerank --model x --query", "a value is required for '--query <QUERY>'"),
            ("embed --model x --query y", "unexpected argument '--query' found"),
            ("rerank --model x --query y --beams 2", "unexpected argument '--beams' found"),
            ("show --model x --json", "unexpected argument '--json' found"),
            ("translate --model x --timestamps", "unexpected argument '--timestamps' found"),
            ("translate --model x --stream --json", "'--stream' cannot be used with '--json'"),
            ("translate --model x --file y z", "'--file <FILE>' cannot be used with '[TEXT]...'"),
            ("completions csh", "invalid value 'csh' for '<SHELL>'\n  [possible values: bash,"),
        ] {
            let found = parsed(line).err();
            assert!(found.as_ref().is_some_and(|error| error.contains(part)), "{line}: {found:?}");
        }
    }

    #[test]
    #[cfg(feature = "transcribe")]
    fn errors_of_transcribe_name_what_is_expected_and_found() {
        for (line, part) in [
            ("transcribe", "required arguments were not provided:\n  --model <DIR>"),
            ("transcribe --model x --truncate", "unexpected argument '--truncate' found"),
            ("transcribe --model x --stream", "unexpected argument '--stream' found"),
            ("transcribe --model x --query y", "unexpected argument '--query' found"),
            (
                "transcribe --model x --task guess",
                "'guess' for '--task <TASK>'\n  [possible values: transcribe, translate]",
            ),
        ] {
            let found = parsed(line).err();
            assert!(found.as_ref().is_some_and(|error| error.contains(part)), "{line}: {found:?}");
        }
    }

    #[test]
    fn a_line_or_a_file_is_a_text() {
        let whole = |line: &str| match parsed(line) {
            Ok(Command::Translate(arguments)) => arguments.common.texts.whole(false),
            Ok(Command::Summarize(arguments)) => arguments.texts.whole(true),
            other => unreachable!("{other:?}"),
        };
        assert!(!whole("translate --model x"));
        assert!(whole("summarize --model x"));
        assert!(!whole("summarize --model x --lines"));
        assert!(whole("translate --model x --whole"));
        assert!(!whole("translate --model x --whole --lines"));
    }

    #[test]
    fn negative_numbers_are_values() {
        for command in ["translate", "summarize", "generate"] {
            let line = format!("{command} --model x --beams 2 --length-penalty -1");
            assert!(parsed(&line).is_ok(), "{line}: {:?}", parsed(&line));
        }
    }
}
