//! The options of `transcribe`.

use crate::arguments::{
    CacheArguments, ModelArguments, ReportArguments, UsageError, at_least_one, parsed,
};
use crate::search_arguments::{SearchArguments, needs};
use clap::Args;
use simdformer_speech::vad::VadOptions;
use simdformer_speech::{Channel, InputOptions, RawEncoding, RawFormat};
use std::path::PathBuf;

#[derive(Debug, Args)]
pub(crate) struct Transcribe {
    #[command(flatten)]
    pub(crate) model: ModelArguments,
    /// Audio files; without them, or for -, standard input is read
    #[arg(value_name = "FILE", default_value = "-")]
    pub(crate) files: Vec<PathBuf>,
    /// The spoken language, as fr or french
    ///
    /// Without this option it is that of generation_config.json; a multilingual model detects it in the first window.
    #[arg(long, value_name = "CODE", help_heading = "Audio")]
    pub(crate) language: Option<String>,
    /// Detect the language in each window, not only in the first one, if it is not given
    #[arg(long, help_heading = "Audio", conflicts_with = "language")]
    pub(crate) detect_each_window: bool,
    /// What is written: the text as spoken, or its translation to English
    #[arg(long, help_heading = "Audio", value_parser = ["transcribe", "translate"])]
    pub(crate) task: Option<String>,
    /// Decode --slots windows at a time, which are cut at pauses and do not depend on each other
    #[arg(long, help_heading = "Audio")]
    pub(crate) batched: bool,
    /// The number of windows that are decoded at a time with --batched; the text does not depend on it
    // For the decoder, one window costs as much as fifty sentences.
    #[arg(long, value_name = "N", default_value = "4", value_parser = at_least_one, help_heading = "Audio")]
    pub(crate) slots: usize,
    /// Write text while the audio arrives; without --json, what may still change is shown on a terminal only
    ///
    /// The final text is that of the same command on a pipe without --stream and with --vad false. With --json a line is a
    /// final segment, or the text of the unfinished window with its stable prefix.
    #[arg(long, help_heading = "Audio", conflicts_with_all = ["batched", "separate_channels", "srt", "vtt", "tsv", "max_line_width", "output", "speech", "vad", "vad_threshold", "vad_end_threshold", "vad_min_speech", "vad_min_silence", "vad_pad", "vad_max_speech"])]
    pub(crate) stream: bool,
    /// With --stream, decode the unfinished window again after SECONDS of new audio
    #[arg(long, value_name = "SECONDS", default_value = "1", requires = "stream", value_parser = delay, help_heading = "Audio")]
    pub(crate) delay: f64,
    /// Transcribe only the spans in FILE, instead of those that --vad finds: lines "start end" in seconds, or JSON
    ///
    /// JSON: [[start, end], ...]. The spans ascend, and hold for every file that is transcribed.
    #[arg(long, value_name = "FILE", help_heading = "Audio")]
    #[arg(conflicts_with_all = ["vad_threshold", "vad_end_threshold", "vad_min_speech", "vad_min_silence", "vad_pad", "vad_max_speech"])]
    pub(crate) speech: Option<PathBuf>,
    #[command(flatten)]
    pub(crate) vad: VadArguments,
    #[command(flatten)]
    pub(crate) input: InputArguments,
    #[command(flatten)]
    pub(crate) checks: CheckArguments,
    #[command(flatten)]
    pub(crate) search: SearchArguments,
    #[command(flatten)]
    pub(crate) cache: CacheArguments,
    #[command(flatten)]
    pub(crate) output: OutputArguments,
    #[command(flatten)]
    pub(crate) reports: ReportArguments,
}

/// How a file is read.
#[derive(Debug, Args)]
#[command(next_help_heading = "Audio")]
pub(crate) struct InputArguments {
    /// Read only channel N, from 0, instead of the mean of all channels
    #[arg(long, value_name = "N", value_parser = whole)]
    channel: Option<usize>,
    /// Transcribe each channel alone, and label what is said with its channel
    #[arg(long, conflicts_with = "channel")]
    pub(crate) separate_channels: bool,
    /// The files are samples without a header: u8, s16le, s24le, s32le, f32le or f64le
    #[arg(long, value_name = "ENCODING", value_parser = encoding)]
    raw_format: Option<RawEncoding>,
    /// The samples per second of --raw-format
    #[arg(long, value_name = "N", default_value = "16000", requires = "raw_format", value_parser = clap::value_parser!(u32).range(1..))]
    rate: u32,
    /// The channels of --raw-format
    #[arg(long, value_name = "N", default_value = "1", requires = "raw_format", value_parser = clap::value_parser!(u16).range(1..))]
    channels: u16,
    /// The input is one recording: WAV and AIFF end where their header says, and a writer that keeps a pipe open is not waited for
    #[arg(long)]
    single: bool,
}

impl InputArguments {
    pub(crate) fn options(&self) -> InputOptions {
        let (rate, channels) = (self.rate, self.channels);
        InputOptions {
            channel: self.channel.map_or(Channel::Mix, Channel::Index),
            raw: self.raw_format.map(|encoding| RawFormat { encoding, rate, channels }),
            single: self.single,
        }
    }
}

fn delay(text: &str) -> Result<f64, String> {
    let seconds = text.parse().ok().filter(|&seconds: &f64| seconds >= 0.0);
    seconds.ok_or_else(|| "expected seconds, at least 0".to_owned())
}

fn encoding(name: &str) -> Result<RawEncoding, String> {
    const EXPECTED: &str = "expected u8, s16le, s24le, s32le, f32le or f64le";
    RawEncoding::from_name(name).ok_or_else(|| EXPECTED.to_owned())
}

/// What is speech.
#[derive(Debug, Args)]
#[command(next_help_heading = "Audio")]
pub(crate) struct VadArguments {
    /// Whether voice activity detection finds the spans of speech, and nothing else is transcribed (true; with --stream everything is)
    #[arg(long, value_name = "BOOL")]
    vad: Option<bool>,
    /// Speech begins at this probability (0.5)
    #[arg(long, value_name = "X", value_parser = number)]
    vad_threshold: Option<f64>,
    /// Speech ends below this probability (that of --vad-threshold less 0.15)
    #[arg(long, value_name = "X", value_parser = number)]
    vad_end_threshold: Option<f64>,
    /// Spans of at most this length are dropped (0)
    #[arg(long, value_name = "SECONDS", value_parser = number)]
    vad_min_speech: Option<f64>,
    /// Shorter pauses are part of a span (10)
    #[arg(long, value_name = "SECONDS", value_parser = number)]
    vad_min_silence: Option<f64>,
    /// What is added at both ends of a span (1)
    #[arg(long, value_name = "SECONDS", value_parser = number)]
    vad_pad: Option<f64>,
    /// Longer spans are cut at a pause, if they have one (300)
    #[arg(long, value_name = "SECONDS", value_parser = number)]
    vad_max_speech: Option<f64>,
}

impl VadArguments {
    /// Changes the options of a transcriber.
    pub(crate) fn change(&self, vad: &mut Option<VadOptions>) -> Result<(), UsageError> {
        if self.vad == Some(false) {
            let given = [
                ("--vad-threshold", self.vad_threshold),
                ("--vad-end-threshold", self.vad_end_threshold),
                ("--vad-min-speech", self.vad_min_speech),
                ("--vad-min-silence", self.vad_min_silence),
                ("--vad-pad", self.vad_pad),
                ("--vad-max-speech", self.vad_max_speech),
            ];
            needs(&given.map(|(name, number)| (name, number.is_some())), "--vad true")?;
            *vad = None;
        }
        let Some(vad) = vad else { return Ok(()) };
        vad.threshold = self.vad_threshold.map_or(vad.threshold, |x| x as f32);
        vad.neg_threshold = self.vad_end_threshold.map(|x| x as f32).or(vad.neg_threshold);
        vad.min_speech = self.vad_min_speech.unwrap_or(vad.min_speech);
        vad.min_silence = self.vad_min_silence.unwrap_or(vad.min_silence);
        vad.speech_pad = self.vad_pad.unwrap_or(vad.speech_pad);
        vad.max_speech = self.vad_max_speech.unwrap_or(vad.max_speech);
        Ok(())
    }
}

/// When the text of a window is dropped or decoded again, and what precedes it.
#[derive(Debug, Args)]
#[command(next_help_heading = "Audio")]
pub(crate) struct CheckArguments {
    /// Decode each window once, not again at higher temperatures if its text is improbable or repeats itself
    #[arg(long, conflicts_with = "temperatures")]
    pub(crate) no_fallback: bool,
    /// The temperatures of the attempts at a window; only the first may be 0 (0,0.2,0.4,0.6,0.8,1)
    #[arg(long, value_name = "X,...", value_delimiter = ',', value_parser = number)]
    pub(crate) temperatures: Vec<f64>,
    /// Drop the text of a window if its probability of no speech is above X and the text is improbable (0.6)
    #[arg(long, value_name = "X", value_parser = number)]
    pub(crate) no_speech_threshold: Option<f64>,
    /// A text is improbable if the mean log-probability of its tokens is below X (-1)
    #[arg(long, value_name = "X", value_parser = number, allow_negative_numbers = true)]
    pub(crate) logprob_threshold: Option<f64>,
    /// A text repeats itself if DEFLATE makes it shorter than 1/X of its bytes (2.4)
    #[arg(long, value_name = "X", value_parser = number)]
    pub(crate) compression_ratio_threshold: Option<f64>,
    /// Whether the model reads the text of earlier windows as a prompt; not with --batched (true, if it can)
    #[arg(long, value_name = "BOOL")]
    pub(crate) condition_on_previous_text: Option<bool>,
    /// A text that precedes that of each window, for example names in their spelling
    #[arg(long, value_name = "TEXT")]
    pub(crate) initial_prompt: Option<String>,
    /// Words that may be said, for example names in their spelling: they precede the text of every window
    #[arg(long, value_name = "TEXT")]
    pub(crate) hotwords: Option<String>,
}

/// What is written, and where.
#[derive(Debug, Args)]
#[command(next_help_heading = "Output")]
pub(crate) struct OutputArguments {
    /// Write a line for each phrase, with its times: [0.00 -> 2.50] ...
    #[arg(long)]
    pub(crate) timestamps: bool,
    /// Find the times and probabilities of words, for --json and --timestamps, and for subtitles
    #[arg(long)]
    pub(crate) words: bool,
    /// Write subtitles as SubRip
    #[arg(long)]
    pub(crate) srt: bool,
    /// Write subtitles as WebVTT
    #[arg(long)]
    pub(crate) vtt: bool,
    /// Write a table: start and end in milliseconds, text
    #[arg(long)]
    pub(crate) tsv: bool,
    /// Write a JSON object for each file: file, text, language, seconds, segments, windows, or error
    #[arg(long)]
    pub(crate) json: bool,
    /// The most characters of a line of subtitles; with it, --words finds when a cue begins and ends
    #[arg(long, value_name = "N", value_parser = at_least_one)]
    pub(crate) max_line_width: Option<usize>,
    /// The most lines of a cue (2)
    #[arg(long, value_name = "N", value_parser = at_least_one, requires = "max_line_width")]
    pub(crate) max_line_count: Option<usize>,
    /// Write to FILE, whose name may say the format, or to DIR, under the names of the files; a file appears when it is
    /// complete
    #[arg(long, value_name = "FILE|DIR")]
    pub(crate) output: Option<PathBuf>,
}

fn whole(text: &str) -> Result<usize, String> {
    parsed(text, "a whole number")
}

fn number(text: &str) -> Result<f64, String> {
    parsed(text, "a number")
}
