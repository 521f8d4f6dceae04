//! The command line.

use core::fmt;
use simdformer::search::{BeamOptions, Strategy};
use simdformer::{Dtype, WeightDtypes, WeightDtypesError};
use std::ffi::OsString;
use std::path::PathBuf;

pub(crate) const HELP: &str = "\
Runs a published model on text.

    simdformer translate --model DIR [--from CODE] [--to CODE] [OPTIONS] [TEXT...]
    simdformer summarize --model DIR [OPTIONS] [TEXT...]
    simdformer embed --model DIR [OPTIONS] [TEXT...]
    simdformer rerank --model DIR --query QUERY [OPTIONS] [TEXT...]
    simdformer transcribe --model DIR [--language CODE] [OPTIONS] [FILE.wav...]
    simdformer languages --model DIR
    simdformer show --model DIR

DIR is a directory as it is published: config.json, *.safetensors, tokenizer files.

Texts are the arguments, or what the files hold, or standard input. translate takes a line as one text,
summarize a whole file; every text becomes one line of output, in order. Blank texts become blank lines.

embed takes a line as one text and writes its vector as a line of JSON, made as modules.json says (the mean of
its tokens where there is none). Blank texts have one as well: that of their special tokens.

rerank takes a line as one text and scores it beside the query with a cross-encoder; the best come first, each
a JSON object of the text's index, from 0, and its score, as the classifier gives it.

transcribe writes what is said in each file as one line: WAV, of the rate that the model takes (16 kHz), any
number of channels; without files, or for -, standard input. Longer audio is heard in windows of 30 s, and said
so. `ffmpeg -i FILE -ac 1 -ar 16000 -f wav - | simdformer transcribe --model DIR` hears any other file.

    --from CODE, --to CODE    languages; `simdformer languages` lists them
    --file FILE               read texts from FILE; may come several times
    --lines                   summarize: a line is one text
    --whole                   translate, embed, rerank: a file is one text
    --beams N                 hypotheses of the search, if not what the checkpoint asks for; 1 is greedy
    --max-new-tokens N        the longest output
    --truncate                cut texts that are longer than the model takes, and say so; without it they
                              are not run, and said so; embed cuts, and says so, where the directory's
                              max_seq_length wants it
    --stream                  greedy only: write the text while it comes, one text at a time
    --json                    one JSON object a text: text, score, tokens, finish, truncated, or error;
                              transcribe: a file: file, text, language, seconds, windows, segments, or error
    --weights FORMS           how matrices are kept: stored (as in the checkpoint, the default), f32, bf16, f16, int8x16 or
                              int8: a quarter of the memory, and faster; with exceptions by name, as
                              int8,decoder.layers.*.feed_forward.outer=int8x16
    --cache f32|f16           translate, summarize, transcribe: how keys and values are kept; f16 is half the memory,
                              faster for long texts and audio, and rounds them to 11 bits; unless said otherwise it
                              goes with --weights int8, and f32 with all others
    --threads N               1 unless said otherwise; the output is the same on any number
    --slots N                 texts that are run at a time, 32; windows of audio, 4
    --query QUERY             rerank: what the texts are to answer
    --language CODE           transcribe: what is spoken, fr or french; without it a model of several
                              languages hears which
    --task TASK               transcribe: transcribe, or translate into English
    --timestamps              transcribe: a line a phrase, with its times: [0.00 -> 2.50] ...
    --table                   embed: the cosine of every text with every other, instead of vectors
    --npy FILE                embed: vectors into FILE, for NumPy: float32, [texts, numbers]
    --summary                 what was loaded, on standard error
    --quiet                   no progress

Exits with 1 if a text could not be run, 2 for a wrong command line.
";

/// The command to run.
#[derive(Debug, PartialEq)]
pub(crate) enum Command {
    Help,
    Languages(PathBuf),
    Show(PathBuf),
    Generate(Box<Arguments>),
    Embed(Box<Arguments>),
    Rerank(Box<Arguments>),
    Transcribe(Box<Arguments>),
}

/// The arguments of the commands that process texts.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Arguments {
    pub(crate) model: PathBuf,
    pub(crate) from: Option<String>,
    pub(crate) to: Option<String>,
    pub(crate) files: Vec<PathBuf>,
    pub(crate) texts: Vec<String>,
    /// Whether each file is one text.
    pub(crate) whole: bool,
    pub(crate) beams: Option<usize>,
    pub(crate) max_new_tokens: Option<usize>,
    pub(crate) truncate: bool,
    pub(crate) stream: bool,
    pub(crate) json: bool,
    pub(crate) weights: WeightDtypes,
    pub(crate) cache: Option<Dtype>,
    pub(crate) threads: usize,
    pub(crate) slots: usize,
    pub(crate) summary: bool,
    pub(crate) quiet: bool,
    /// Whether to print a table of cosines.
    pub(crate) table: bool,
    pub(crate) npy: Option<PathBuf>,
    /// The query of `rerank`.
    pub(crate) query: String,
    /// The spoken language.
    pub(crate) language: Option<String>,
    pub(crate) task: Option<String>,
    pub(crate) timestamps: bool,
}

impl Arguments {
    /// Sets the number of beams in the search strategy; without an argument, the checkpoint's setting stays.
    pub(crate) fn choose_beams(&self, strategy: &mut Strategy) {
        match (self.beams, strategy) {
            (Some(1), strategy) => *strategy = Strategy::Greedy,
            (Some(beams), Strategy::Beam(beam)) => beam.beams = beams,
            (Some(beams), strategy) => {
                *strategy = Strategy::Beam(BeamOptions { beams, ..BeamOptions::default() });
            }
            (None, _) => (),
        }
    }
}

/// An error in a command line.
#[derive(Debug, PartialEq)]
pub(crate) enum ArgumentError {
    NoCommand,
    Command(String),
    Option { command: String, option: String },
    NoValue(&'static str),
    Number { option: &'static str, found: String },
    Weights(WeightDtypesError),
    Cache(String),
    NoModel,
    NoQuery,
    Task(String),
    Both(&'static str, &'static str),
}

impl fmt::Display for ArgumentError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::NoCommand => {
                write!(
                    f,
                    "expected translate, summarize, embed, rerank, transcribe, languages or show"
                )
            }
            Self::Command(found) => {
                write!(
                    f,
                    "expected translate, summarize, embed, rerank, transcribe, languages or show, found {found:?}"
                )
            }
            Self::Option { command, option } => write!(f, "{command} has no option {option}"),
            Self::NoValue(option) => write!(f, "{option} needs a value"),
            Self::Number { option, found } => {
                write!(f, "{option}: expected a number above 0, found {found:?}")
            }
            Self::Weights(error) => write!(f, "--weights: {error}"),
            Self::Cache(found) => write!(f, "--cache: expected f32 or f16, found {found:?}"),
            Self::NoModel => write!(f, "expected --model DIR"),
            Self::NoQuery => write!(f, "expected --query QUERY"),
            Self::Task(found) => {
                write!(f, "--task: expected transcribe or translate, found {found:?}")
            }
            Self::Both(a, b) => write!(f, "expected {a} or {b}, found both"),
        }
    }
}

impl std::error::Error for ArgumentError {}

pub(crate) fn parse(
    arguments: impl IntoIterator<Item = OsString>,
) -> Result<Command, ArgumentError> {
    let mut arguments = arguments.into_iter();
    let Some(command) = arguments.next() else { return Err(ArgumentError::NoCommand) };
    let command = command.to_string_lossy().into_owned();
    let whole = match command.as_str() {
        "--help" | "-h" | "help" => return Ok(Command::Help),
        "translate" | "embed" | "rerank" | "transcribe" | "languages" | "show" => false,
        "summarize" => true,
        _ => return Err(ArgumentError::Command(command)),
    };
    let mut wanted = Arguments {
        model: PathBuf::new(),
        from: None,
        to: None,
        files: Vec::new(),
        texts: Vec::new(),
        whole,
        beams: None,
        max_new_tokens: None,
        truncate: false,
        stream: false,
        json: false,
        weights: WeightDtypes::as_stored(),
        cache: None,
        threads: 1,
        // For the decoder, one window of audio costs as much as fifty sentences.
        slots: if command == "transcribe" { 4 } else { 32 },
        summary: false,
        quiet: false,
        table: false,
        npy: None,
        query: String::new(),
        language: None,
        task: None,
        timestamps: false,
    };
    let generates = matches!(command.as_str(), "translate" | "summarize");
    let embeds = command == "embed";
    let reranks = command == "rerank";
    let hears = command == "transcribe";
    let runs = generates || embeds || reranks || hears;
    let mut query = None;
    let mut only_texts = false;
    while let Some(argument) = arguments.next() {
        let text = argument.to_string_lossy().into_owned();
        if only_texts || !text.starts_with("--") {
            if !runs {
                return Err(ArgumentError::Option { command, option: text });
            }
            if hears {
                wanted.files.push(argument.into());
            } else {
                wanted.texts.push(text);
            }
            continue;
        }
        let mut value = |option| arguments.next().ok_or(ArgumentError::NoValue(option));
        let mut number = |option| {
            let found = value(option)?.to_string_lossy().into_owned();
            match found.parse() {
                Ok(number @ 1..) => Ok(number),
                _ => Err(ArgumentError::Number { option, found }),
            }
        };
        match text.as_str() {
            "--help" => return Ok(Command::Help),
            "--model" => wanted.model = value("--model")?.into(),
            _ if !runs => return Err(ArgumentError::Option { command, option: text }),
            "--" => only_texts = true,
            "--query" if reranks => query = Some(value("--query")?.to_string_lossy().into_owned()),
            "--table" if embeds => wanted.table = true,
            "--npy" if embeds => wanted.npy = Some(value("--npy")?.into()),
            "--file" => wanted.files.push(value("--file")?.into()),
            "--lines" | "--whole" | "--truncate" if hears => {
                return Err(ArgumentError::Option { command, option: text });
            }
            "--lines" => wanted.whole = false,
            "--whole" => wanted.whole = true,
            "--truncate" => wanted.truncate = true,
            "--weights" => {
                let forms = value("--weights")?.to_string_lossy().into_owned();
                wanted.weights = forms.parse().map_err(ArgumentError::Weights)?;
            }
            "--threads" => wanted.threads = number("--threads")?,
            "--slots" => wanted.slots = number("--slots")?,
            "--summary" => wanted.summary = true,
            "--quiet" => wanted.quiet = true,
            "--language" if hears => {
                wanted.language = Some(value("--language")?.to_string_lossy().into_owned());
            }
            "--task" if hears => {
                let task = value("--task")?.to_string_lossy().into_owned();
                if !matches!(task.as_str(), "transcribe" | "translate") {
                    return Err(ArgumentError::Task(task));
                }
                wanted.task = Some(task);
            }
            "--timestamps" if hears => wanted.timestamps = true,
            _ if !generates && !hears => {
                return Err(ArgumentError::Option { command, option: text });
            }
            "--beams" => wanted.beams = Some(number("--beams")?),
            "--max-new-tokens" => wanted.max_new_tokens = Some(number("--max-new-tokens")?),
            "--cache" => {
                let found = value("--cache")?.to_string_lossy().into_owned();
                let dtype = Dtype::from_name(&found).filter(|&dtype| dtype != Dtype::Bf16);
                wanted.cache = Some(dtype.ok_or(ArgumentError::Cache(found))?);
            }
            "--json" => wanted.json = true,
            _ if !generates => return Err(ArgumentError::Option { command, option: text }),
            "--from" => wanted.from = Some(value("--from")?.to_string_lossy().into_owned()),
            "--to" => wanted.to = Some(value("--to")?.to_string_lossy().into_owned()),
            "--stream" => wanted.stream = true,
            _ => return Err(ArgumentError::Option { command, option: text }),
        }
    }
    if wanted.model.as_os_str().is_empty() {
        return Err(ArgumentError::NoModel);
    }
    match query {
        Some(query) => wanted.query = query,
        None if reranks => return Err(ArgumentError::NoQuery),
        None => (),
    }
    if wanted.stream && wanted.json {
        return Err(ArgumentError::Both("--stream", "--json"));
    }
    if wanted.table && wanted.npy.is_some() {
        return Err(ArgumentError::Both("--table", "--npy"));
    }
    if !wanted.texts.is_empty() && !wanted.files.is_empty() {
        return Err(ArgumentError::Both("--file", "texts"));
    }
    Ok(match command.as_str() {
        "languages" => Command::Languages(wanted.model),
        "show" => Command::Show(wanted.model),
        "rerank" => Command::Rerank(Box::new(wanted)),
        "embed" => Command::Embed(Box::new(wanted)),
        "transcribe" => Command::Transcribe(Box::new(wanted)),
        _ => Command::Generate(Box::new(wanted)),
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parsed(line: &str) -> Result<Command, ArgumentError> {
        parse(line.split_whitespace().map(OsString::from))
    }

    #[test]
    fn says_what_is_wrong() {
        for (line, error) in [
            ("", "expected translate, summarize, embed, rerank, transcribe, languages or show"),
            (
                "translat",
                "expected translate, summarize, embed, rerank, transcribe, languages or show, found \"translat\"",
            ),
            ("translate", "expected --model DIR"),
            ("translate --model", "--model needs a value"),
            ("translate --model x --beams 0", "--beams: expected a number above 0, found \"0\""),
            ("embed --model x --weights", "--weights needs a value"),
            (
                "translate --model x --weights int4",
                "--weights: a form of weights must be stored, f32, bf16, f16, int8x16, int8, found \"int4\"",
            ),
            ("show --model x --weights int8", "show has no option --weights"),
            ("embed --model x --cache f16", "embed has no option --cache"),
            ("translate --model x --cache int8", "--cache: expected f32 or f16, found \"int8\""),
            ("translate --model x --bogus", "translate has no option --bogus"),
            ("embed --model x --json", "embed has no option --json"),
            ("translate --model x --table", "translate has no option --table"),
            ("embed --model x --table --npy y", "expected --table or --npy, found both"),
            ("rerank --model x", "expected --query QUERY"),
            ("rerank --model x --query", "--query needs a value"),
            ("embed --model x --query y", "embed has no option --query"),
            ("rerank --model x --query y --beams 2", "rerank has no option --beams"),
            ("transcribe", "expected --model DIR"),
            ("transcribe --model x --truncate", "transcribe has no option --truncate"),
            ("transcribe --model x --stream", "transcribe has no option --stream"),
            ("transcribe --model x --query y", "transcribe has no option --query"),
            (
                "transcribe --model x --task guess",
                "--task: expected transcribe or translate, found \"guess\"",
            ),
            ("translate --model x --timestamps", "translate has no option --timestamps"),
            ("show --model x --json", "show has no option --json"),
            ("translate --model x --stream --json", "expected --stream or --json, found both"),
            ("translate --model x --file y z", "expected --file or texts, found both"),
        ] {
            let found = parsed(line).map_err(|error| error.to_string());
            assert_eq!(found, Err(error.to_owned()), "{line}");
        }
    }

    #[test]
    fn a_line_or_a_file_is_a_text() {
        let whole = |line: &str| match parsed(line) {
            Ok(Command::Generate(arguments)) => arguments.whole,
            other => unreachable!("{other:?}"),
        };
        assert!(!whole("translate --model x"));
        assert!(whole("summarize --model x"));
        assert!(!whole("summarize --model x --lines"));
        assert!(whole("translate --model x --whole"));
    }
}
