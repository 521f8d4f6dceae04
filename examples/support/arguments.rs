//! Parses the command line of `generate`.
//!
//! No argument is ignored. An option is rejected if it does not exist, is repeated, has an invalid value, or has no
//! effect with the other options.

use simdformer::config::{Config, Side};
use simdformer::search::{EarlyStopping, SampleOptions, SearchOptions, Strategy, Timestamps};
use simdformer::{Dtype, WeightDtypes};
use std::ffi::OsString;
use std::fmt;
use std::path::PathBuf;
use std::str::FromStr;

/// Text of `--help`.
pub(crate) const HELP: &str = "\
Runs any encoder-decoder checkpoint on a batch of token ids, or of the features of sound.

    generate --model DIR [OPTION VALUE]... < REQUESTS

Reads JSON lines, {\"input_ids\": [...]} with optional \"decoder_input_ids\": [...], runs them all as one
batch and prints a JSON line for each, {\"sequences\": [[...]], \"scores\": [...]}, best first: ids after
the decoder start, end of sentence included. decoder_input_ids are a forced prefix: the search
continues them, and they are part of every sequence (not of scores or counts). A decoder start before
them is understood and not repeated. A model that reads features (Whisper) takes them from a file, and
lines without input_ids; a line without decoder_input_ids then begins as the checkpoint says, in the
language that is heard where it names none. Scores are sums of log-probabilities of the new tokens, divided
by length^penalty in beam search.

    --model DIR                 config.json, model.safetensors, generation_config.json (optional)
    --threads N                 a pool of N threads; default 1, the calling one
    --isa NAME                  scalar, avx2, avx512 or neon; default the best of this machine
    --weights FORMS             how matrices are kept: stored (as in the checkpoint, the default), f32, bf16,
                                f16, int8x16, int8; with exceptions by name, as
                                int8,output=int8,decoder.layers.*.feed_forward.outer=int8x16
    --cache f32|f16             how keys and values are kept: sooner in f16 where they are many, and rounded to
                                11 bits; f16 where the decoder attends in int8 (--weights), f32 otherwise
    --save-packed FILE          keep the weights as they lie in memory, for this instruction set
    --packed FILE               read them from there instead of the checkpoint's files
    --compare-weights           no answers: what each form does to this model, on the lines' targets or what
                                greedy search says, fed to all of them, f32 and int8 with keys and values
                                in f32 and in f16; and the smallest table of forms that chooses as f32
                                does at
    --agreement X               (0.995) of all positions
    --repeat N                  run the batch N times and report the medians of the seconds
    --logits FILE               write safetensors: encoder.{i} [len, d_model] and, for lines with
                                decoder_input_ids, logits.{i} [len, vocabulary], fed exactly those ids
    --features FILE             safetensors: features.{i} [frames, bins] of line i, counted from 0
    --score                     no search: the log-probability of each line's decoder_input_ids after
                                the decoder start; adds \"log_probabilities\": [[...]] to the line

Search; the default of each is that of generation_config.json, else the one named:
    --max-new-tokens N          (max_length, else 20 with the decoder start; the model's positions
                                bound it)
    --min-new-tokens N          (0)
    --beams N                   (1: greedy)
    --length-penalty X          (1)   beams only
    --early-stopping true|false|never   (false)   beams only
    --num-return-sequences N    (1)   at most the beams, any number of samples; where the rules leave
                                fewer hypotheses than that, the best is printed again, with the score
                                of a beam that never was: -1e9 / length^penalty
    --no-repeat-ngram-size N    (0: off)
    --repetition-penalty X      (1: off)
    --forced-bos-token-id ID    the first token
    --no-scores                 greedy only: scores are null; the same tokens, sooner on some CPUs
    --sample                    draw tokens, or, with beams, continuations of beams; line i of the
                                batch draws from random stream i
    --temperature X             (1)   samples only
    --top-h X                   (off)   samples only
    --top-k N                   (50; 0: all)   samples only
    --top-p X                   (1: all)   samples only
    --min-p X                   (0: all)   samples only
    --seed N                    (0)   samples only
    --timestamps                text with times, by Whisper's rule for them
    --draft FILE                guess that each line's answer is that of FILE, which an earlier run printed;
                                greedy search or one sample a line. The same answers, sooner where the guess
                                is right
    --ngrams N                  guess that what followed the last N tokens or more comes again, in the answer
                                or, with one vocabulary for both sides, the source; as --draft, and after it

Standard error gets one JSON object: load_seconds; plan_bytes, all memory of the session;
encode_seconds, the encoder and the cross keys and values, timed in a call of its own after the run;
decode_seconds, the whole run (which encodes too) less encode_seconds; new_tokens, of the sequences
printed; tokens_per_second, new_tokens over the sum of both; allocations, on the heap while encoding
and decoding, over all repeats; model_bytes; peak_rss_bytes where the system tells; isa; threads; and,
if there are any, defaults, what was taken for keys that config.json lacks, and unsupported settings of
generation_config.json; with --draft or --ngrams also steps of the decoder, drafted, tokens that were
guessed, and accepted, those of them that saved steps.

Exits with 2 for a wrong command line and 1 for anything else that is wrong.
";

/// The command to run.
#[derive(Debug, PartialEq)]
pub(crate) enum Command {
    /// Print [`HELP`].
    Help,
    /// Run a batch.
    Run(Box<Arguments>),
}

/// The arguments of a batch run; `None` for an option that was not given.
#[derive(Debug, Default, PartialEq)]
pub(crate) struct Arguments {
    pub(crate) model: PathBuf,
    pub(crate) threads: Option<usize>,
    pub(crate) isa: Option<String>,
    pub(crate) weights: Option<WeightDtypes>,
    pub(crate) cache: Option<Dtype>,
    pub(crate) save_packed: Option<PathBuf>,
    pub(crate) packed: Option<PathBuf>,
    pub(crate) compare_weights: bool,
    pub(crate) agreement: Option<f64>,
    pub(crate) repeat: Option<usize>,
    pub(crate) logits: Option<PathBuf>,
    pub(crate) features: Option<PathBuf>,
    pub(crate) score: bool,
    pub(crate) max_new_tokens: Option<usize>,
    pub(crate) min_new_tokens: Option<usize>,
    pub(crate) beams: Option<usize>,
    pub(crate) length_penalty: Option<f64>,
    pub(crate) early_stopping: Option<EarlyStopping>,
    pub(crate) num_return_sequences: Option<usize>,
    pub(crate) no_repeat_ngram_size: Option<usize>,
    pub(crate) repetition_penalty: Option<f64>,
    pub(crate) forced_bos_token_id: Option<u32>,
    pub(crate) no_scores: bool,
    pub(crate) sample: bool,
    pub(crate) temperature: Option<f64>,
    pub(crate) top_h: Option<f64>,
    pub(crate) top_k: Option<usize>,
    pub(crate) top_p: Option<f64>,
    pub(crate) min_p: Option<f64>,
    pub(crate) seed: Option<u64>,
    pub(crate) timestamps: bool,
    pub(crate) draft: Option<PathBuf>,
    pub(crate) ngrams: Option<usize>,
}

/// An error in a command line.
#[derive(Clone, Debug, PartialEq)]
pub(crate) enum UsageError {
    /// The option does not exist.
    Unknown { found: String },
    /// The argument is not an option.
    Positional { found: String },
    /// The option is repeated.
    Twice { option: &'static str },
    /// A required option is missing.
    Missing { option: &'static str },
    /// The value of an option is missing.
    NoValue { option: &'static str },
    /// A flag has a value.
    Flag { option: &'static str },
    /// The value does not parse or is out of range.
    Value { option: &'static str, expected: &'static str, found: String },
    /// The option has no effect without another one.
    Needs { option: &'static str, needed: &'static str },
    /// Two options exclude each other.
    Conflict { option: &'static str, other: &'static str },
}

impl fmt::Display for UsageError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Unknown { found } => write!(f, "unknown option `{found}`"),
            Self::Positional { found } => {
                write!(f, "expected an option that begins with `--`, found `{found}`")
            }
            Self::Twice { option } => write!(f, "{option} is given twice"),
            Self::Missing { option } => write!(f, "{option} is missing"),
            Self::NoValue { option } => write!(f, "{option}: expected a value, found the end"),
            Self::Flag { option } => write!(f, "{option} takes no value"),
            Self::Value { option, expected, found } => {
                write!(f, "{option}: expected {expected}, found `{found}`")
            }
            Self::Needs { option, needed } => {
                write!(f, "{option} has no effect without {needed}")
            }
            Self::Conflict { option, other } => {
                write!(f, "{option} and {other} exclude each other")
            }
        }
    }
}

impl std::error::Error for UsageError {}

/// Every option, in the order of [`HELP`].
const OPTIONS: [&str; 33] = [
    "--model",
    "--threads",
    "--isa",
    "--weights",
    "--cache",
    "--save-packed",
    "--packed",
    "--compare-weights",
    "--agreement",
    "--repeat",
    "--logits",
    "--features",
    "--score",
    "--max-new-tokens",
    "--min-new-tokens",
    "--beams",
    "--length-penalty",
    "--early-stopping",
    "--num-return-sequences",
    "--no-repeat-ngram-size",
    "--repetition-penalty",
    "--forced-bos-token-id",
    "--no-scores",
    "--sample",
    "--temperature",
    "--top-h",
    "--top-k",
    "--top-p",
    "--min-p",
    "--seed",
    "--timestamps",
    "--draft",
    "--ngrams",
];

/// The index of the first option of the search; these options cannot be combined with `--score`.
const FIRST_OF_SEARCH: usize = 13;

/// Parses the arguments after the program's name.
pub(crate) fn parse(arguments: impl IntoIterator<Item = OsString>) -> Result<Command, UsageError> {
    let mut given: Vec<&'static str> = Vec::new();
    let mut parsed = Arguments::default();
    let mut arguments = arguments.into_iter();
    while let Some(argument) = arguments.next() {
        let text = argument.to_string_lossy();
        if text == "--help" || text == "-h" {
            return Ok(Command::Help);
        }
        if !text.starts_with("--") {
            return Err(UsageError::Positional { found: text.into_owned() });
        }
        let (name, attached) = match argument.to_str().and_then(|text| text.split_once('=')) {
            Some((name, value)) => (name, Some(OsString::from(value))),
            None => (&*text, None),
        };
        let Some(&option) = OPTIONS.iter().find(|&&option| option == name) else {
            return Err(UsageError::Unknown { found: name.to_owned() });
        };
        if given.contains(&option) {
            return Err(UsageError::Twice { option });
        }
        given.push(option);
        let flag = match option {
            "--sample" => Some(&mut parsed.sample),
            "--compare-weights" => Some(&mut parsed.compare_weights),
            "--score" => Some(&mut parsed.score),
            "--no-scores" => Some(&mut parsed.no_scores),
            "--timestamps" => Some(&mut parsed.timestamps),
            _ => None,
        };
        if let Some(flag) = flag {
            if attached.is_some() {
                return Err(UsageError::Flag { option });
            }
            *flag = true;
            continue;
        }
        let value = attached.or_else(|| arguments.next()).ok_or(UsageError::NoValue { option })?;
        parsed.set(OptionValue { option, value })?;
    }
    if !given.contains(&"--model") {
        return Err(UsageError::Missing { option: "--model" });
    }
    if parsed.score
        && let Some(option) = given.iter().find(|o| OPTIONS[FIRST_OF_SEARCH..].contains(*o))
    {
        return Err(UsageError::Conflict { option, other: "--score" });
    }
    for (option, other) in [
        ("--packed", "--weights"),
        ("--packed", "--save-packed"),
        ("--compare-weights", "--weights"),
        ("--compare-weights", "--packed"),
        ("--compare-weights", "--save-packed"),
        ("--compare-weights", "--score"),
        ("--compare-weights", "--logits"),
    ] {
        if given.contains(&option) && given.contains(&other) {
            return Err(UsageError::Conflict { option, other });
        }
    }
    if given.contains(&"--agreement") && !parsed.compare_weights {
        return Err(UsageError::Needs { option: "--agreement", needed: "--compare-weights" });
    }
    Ok(Command::Run(Box::new(parsed)))
}

/// An option and its value.
struct OptionValue {
    option: &'static str,
    value: OsString,
}

impl OptionValue {
    fn wrong(&self, expected: &'static str) -> UsageError {
        let found = self.value.to_string_lossy().into_owned();
        UsageError::Value { option: self.option, expected, found }
    }

    fn parse<T: FromStr>(&self, expected: &'static str) -> Result<Option<T>, UsageError> {
        let value = self.value.to_str().and_then(|text| text.parse().ok());
        value.map(Some).ok_or_else(|| self.wrong(expected))
    }

    fn count(&self) -> Result<Option<usize>, UsageError> {
        self.parse("a whole number")
    }

    fn at_least_one(&self) -> Result<Option<usize>, UsageError> {
        const EXPECTED: &str = "a whole number from 1 up";
        match self.parse(EXPECTED)? {
            Some(0) => Err(self.wrong(EXPECTED)),
            count => Ok(count),
        }
    }

    fn number(&self) -> Result<Option<f64>, UsageError> {
        self.parse("a number")
    }
}

impl Arguments {
    fn set(&mut self, given: OptionValue) -> Result<(), UsageError> {
        match given.option {
            "--model" => self.model = given.value.into(),
            "--threads" => self.threads = given.at_least_one()?,
            "--isa" => self.isa = given.parse("a name")?,
            "--weights" => self.weights = given.parse("a form, and exceptions as path=form")?,
            "--cache" => {
                let dtype = given.value.to_str().and_then(Dtype::from_name);
                let dtype = dtype.filter(|&dtype| dtype != Dtype::Bf16);
                self.cache = Some(dtype.ok_or_else(|| given.wrong("f32 or f16"))?);
            }
            "--save-packed" => self.save_packed = Some(given.value.into()),
            "--packed" => self.packed = Some(given.value.into()),
            "--agreement" => {
                const EXPECTED: &str = "a number from 0 to 1";
                self.agreement = given.parse(EXPECTED)?.filter(|part| (0.0..=1.0).contains(part));
                if self.agreement.is_none() {
                    return Err(given.wrong(EXPECTED));
                }
            }
            "--repeat" => self.repeat = given.at_least_one()?,
            "--logits" => self.logits = Some(given.value.into()),
            "--features" => self.features = Some(given.value.into()),
            "--max-new-tokens" => self.max_new_tokens = given.at_least_one()?,
            "--min-new-tokens" => self.min_new_tokens = given.count()?,
            "--beams" => self.beams = given.at_least_one()?,
            "--length-penalty" => self.length_penalty = given.number()?,
            "--early-stopping" => {
                self.early_stopping = Some(match given.value.to_str() {
                    Some("true") => EarlyStopping::WhenFull,
                    Some("false") => EarlyStopping::Heuristic,
                    Some("never") => EarlyStopping::Never,
                    _ => return Err(given.wrong("true, false or never")),
                });
            }
            "--num-return-sequences" => self.num_return_sequences = given.at_least_one()?,
            "--no-repeat-ngram-size" => self.no_repeat_ngram_size = given.count()?,
            "--repetition-penalty" => self.repetition_penalty = given.number()?,
            "--forced-bos-token-id" => self.forced_bos_token_id = given.parse("a token id")?,
            "--temperature" => self.temperature = given.number()?,
            "--top-h" => self.top_h = given.number()?,
            "--top-k" => self.top_k = given.count()?,
            "--top-p" => self.top_p = given.number()?,
            "--min-p" => self.min_p = given.number()?,
            "--draft" => self.draft = Some(given.value.into()),
            "--ngrams" => self.ngrams = given.at_least_one()?,
            "--seed" => self.seed = given.parse("a whole number below 2^64")?,
            other => return Err(UsageError::Unknown { found: other.to_owned() }),
        }
        Ok(())
    }

    /// The timestamp rule, if timestamps are requested.
    pub(crate) fn timestamps(&self, config: &Config) -> Result<Option<Timestamps>, UsageError> {
        if !self.timestamps {
            return Ok(None);
        }
        let transcription = &config.generation.transcription;
        let (Some(no_timestamps), Some(&eos)) =
            (transcription.no_timestamps, config.tokens.eos.first())
        else {
            let needed = "a checkpoint that has no_timestamps_token_id and eos_token_id";
            return Err(UsageError::Needs { option: "--timestamps", needed });
        };
        let max_initial = transcription.max_initial_timestamp;
        Ok(Some(Timestamps { no_timestamps, eos, max_initial }))
    }

    /// Features are required if the model reads them, and rejected otherwise.
    pub(crate) fn check_features(&self, config: &Config) -> Result<(), UsageError> {
        match (&self.features, config.stem) {
            (None, Some(_)) => Err(UsageError::Missing { option: "--features" }),
            (Some(_), None) => {
                let needed = "a model that reads features";
                Err(UsageError::Needs { option: "--features", needed })
            }
            _ => Ok(()),
        }
    }

    /// Drafts are allowed only if each line has one hypothesis.
    pub(crate) fn check_drafts(&self, options: &SearchOptions) -> Result<(), UsageError> {
        let given = [("--draft", self.draft.is_some()), ("--ngrams", self.ngrams.is_some())];
        let one = options.sequences() == 1 && !matches!(options.strategy, Strategy::Beam(_));
        match given.into_iter().find(|&(_, given)| given && !one) {
            Some((option, _)) => {
                Err(UsageError::Needs { option, needed: "--beams 1, or one sample a line" })
            }
            None => Ok(()),
        }
    }

    /// The search options of the checkpoint, with the changes of the command line.
    pub(crate) fn search_options(&self, config: &Config) -> Result<SearchOptions, UsageError> {
        let mut config = config.clone();
        if let Some(beams) = self.beams {
            config.generation.num_beams = beams;
        }
        if self.sample {
            config.generation.do_sample = true;
            config.generation.num_beams = self.beams.unwrap_or(1);
        }
        let mut options = config.search_options();
        self.shape_strategy(&mut options.strategy)?;
        options.scores &= !self.no_scores;
        if let Some(count) = self.num_return_sequences {
            options.num_return_sequences = count;
        }
        if let Some(most) = self.max_new_tokens {
            options.max_new_tokens = Some(most);
            options.max_length = None;
        }
        if options.max_new_tokens.is_none() && options.max_length.is_none() {
            // The default of transformers.
            options.max_length = Some(20);
        }
        let positions = config.max_positions(Side::Decoder);
        if let (None, Some(positions)) = (self.max_new_tokens, positions) {
            // The checkpoint's length limits are ignored if they exceed its positions; the target is then cut there.
            options.max_new_tokens = options.max_new_tokens.filter(|&new| new <= positions);
            options.max_length = options.max_length.filter(|&length| length <= positions + 1);
        }
        if let Some(least) = self.min_new_tokens {
            options.min_new_tokens = least;
        }
        if let Some(size) = self.no_repeat_ngram_size {
            options.no_repeat_ngram = (size > 0).then_some(size);
        }
        if let Some(penalty) = self.repetition_penalty {
            options.repetition_penalty = penalty;
        }
        if self.forced_bos_token_id.is_some() {
            options.forced_bos = self.forced_bos_token_id;
        }
        Ok(options)
    }

    fn shape_strategy(&self, strategy: &mut Strategy) -> Result<(), UsageError> {
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
        let without = |options: &[(&'static str, bool)], needed| {
            let option = options.iter().find(|(_, given)| *given);
            option.map_or(Ok(()), |&(option, _)| Err(UsageError::Needs { option, needed }))
        };
        let shape = |sample: &mut SampleOptions| {
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
                without(&of_beams, "--beams")?;
                shape(sample);
            }
            Strategy::Beam(beam) => {
                match &mut beam.sample {
                    Some(sample) => shape(sample),
                    None => without(&of_samples, "--sample")?,
                }
                beam.length_penalty = self.length_penalty.unwrap_or(beam.length_penalty);
                beam.early_stopping = self.early_stopping.unwrap_or(beam.early_stopping);
            }
            Strategy::Greedy => {
                without(&of_samples, "--sample")?;
                // With an explicit `--beams 1`, beam options are allowed, for scripts that vary the number of beams.
                if self.beams.is_none() {
                    without(&of_beams, "--beams")?;
                }
            }
        }
        Ok(())
    }
}
