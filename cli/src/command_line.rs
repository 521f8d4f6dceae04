//! The command line: every command, as clap reads it.
//!
//! An option that several commands have is declared once, in a struct of [`arguments`](crate::arguments) that these commands
//! flatten. The options of the search are in [`search_arguments`](crate::search_arguments), those of `generate` in
//! [`generate`](crate::generate), and those of documents and tables in
//! [`translate::arguments`](crate::translate::arguments).

use crate::arguments::{Directory, Embed, Pack, Rerank};
use crate::generate::Generate;
#[cfg(feature = "hub")]
use crate::hub::Get;
#[cfg(feature = "serve")]
use crate::serve::Serve;
#[cfg(feature = "transcribe")]
use crate::transcribe::arguments::Transcribe;
use crate::translate::arguments::{TextToText, Translate};
use clap::{ArgAction, CommandFactory, FromArgMatches, Parser, Subcommand};
use clap_complete::Shell;
use simdformer::kernels::Isa;
use std::ffi::OsString;
#[cfg(feature = "hub")]
use std::path::PathBuf;
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
  simdformer serve --model Helsinki-NLP/opus-mt-en-fr --also all-MiniLM-L6-v2
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
    /// becomes one line of output; so with --whole, --explain and --stream every text is one sentence. --model may be a package of Argos Translate (FILE.argosmodel), too.
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
    /// The text of a file becomes one line. A file is WAV, AIFF, FLAC, MP3, AAC, M4A, Ogg or WebM, of any sample rate, any
    /// number of channels and any length. A file that is cut gives its text, a note and exit code 1. Windows of 30 s begin where the last sentence of the one before ends. For other
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
    /// Answer requests of HTTP, in the dialects of LibreTranslate, OpenAI, Cohere and TEI
    ///
    /// A model is recognized by its files: one that translates, one that embeds, one that ranks and one that transcribes may
    /// be served together. A browser shows a page at the address; docs/serve.md lists the routes. SIGTERM and Ctrl-C end
    /// the server after the requests that have begun.
    #[cfg(feature = "serve")]
    Serve(Box<Serve>),
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
    /// The directories of the models that the command runs, and whether it hides progress.
    pub(crate) fn directories(&mut self) -> (Vec<&mut PathBuf>, bool) {
        let (directory, quiet) = match self {
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
            #[cfg(feature = "serve")]
            Self::Serve(arguments) => {
                let first = &mut arguments.model.directory.model;
                let all = std::iter::once(first).chain(&mut arguments.also);
                return (all.collect(), arguments.reports.quiet);
            }
            Self::Pack(arguments) => (&mut arguments.directory, arguments.quiet),
            Self::Languages(directory) | Self::Show(directory) => (directory, false),
            Self::Get(_) | Self::Completions { .. } | Self::Man { .. } => {
                return (Vec::new(), false);
            }
        };
        (vec![&mut directory.model], quiet)
    }
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
                "'0' for '--beams <N>': expected a whole number of at least 1",
            ),
            ("embed --model x --weights", "a value is required for '--weights <DTYPES>'"),
            (
                "translate --model x --weights int4",
                "dtype: expected stored, f32, bf16, f16, int8x16, int8, found \"int4\"",
            ),
            ("show --model x --weights int8", "unexpected argument '--weights' found"),
            ("embed --model x --cache f16", "unexpected argument '--cache' found"),
            (
                "translate --model x --cache int8",
                "invalid value 'int8' for '--cache <DTYPE>'\n  [possible values: f32, f16]",
            ),
            (
                "translate --model x --sample --temperature 0",
                "'0' for '--temperature <X>': expected a number above 0 (0 is greedy search) and finite",
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
            (
                "transcribe --model x --stream --vad true",
                "'--stream' cannot be used with '--vad <BOOL>'",
            ),
            (
                "transcribe --model x --stream --speech y",
                "'--stream' cannot be used with '--speech <FILE>'",
            ),
            (
                "transcribe --model x --stream --batched",
                "'--stream' cannot be used with '--batched'",
            ),
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
