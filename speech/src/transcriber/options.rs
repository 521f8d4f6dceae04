//! The settings of a transcriber.

use crate::vad::VadOptions;
use simdformer::config::Config;
use simdformer::search::{SampleOptions, SearchOptions, Strategy};

/// The settings of a [`Transcriber`](super::Transcriber). [`TranscribeOptions::new`] makes them from a checkpoint; change
/// the fields of the result.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct TranscribeOptions {
    /// The spoken language, as `fr` or `french`; `None` for the checkpoint's default. A multilingual model without one
    /// detects the language, see [`detect_each_window`](Self::detect_each_window).
    pub language: Option<String>,
    /// `transcribe`, or `translate` for text in English; `None` for the checkpoint's default.
    pub task: Option<String>,
    /// How tokens are chosen at temperature 0: greedy search or beam search. The transcriber replaces the lengths so that
    /// prompt and text fit the model's positions.
    pub search: SearchOptions,
    /// How a recording is divided into windows.
    pub windows: Windows,
    /// The number of windows that are decoded at the same time with [`Windows::Batched`], at least 1 (4). Has no effect on
    /// the text.
    pub slots: usize,
    /// Whether the model writes timestamps, which divide the text into segments. Without them a segment is a window, and
    /// [`Windows::Sequential`] cuts a recording every 30 s. True if the checkpoint has timestamps.
    pub timestamps: bool,
    /// Whether words get times: [`Segment::words`](super::Segment::words) (false). The text does not depend on it. Each text is
    /// read once more by the decoder, in one pass.
    pub words: bool,
    /// Whether the text of earlier windows precedes that of a window as a prompt, as in OpenAI's `transcribe`
    /// (`condition_on_prev_tokens` of transformers, which is off there). True if the checkpoint has a token for it. Only with
    /// [`Windows::Sequential`].
    pub condition_on_previous_text: bool,
    /// A text that precedes that of every window: names and the spelling of the domain. `prompt_ids` of transformers with
    /// the condition type `first-segment`.
    pub initial_prompt: Option<String>,
    /// How spans of speech are found where [`Recording::speech`](super::Recording::speech) does not give them; only they are
    /// transcribed. `None`: everything is transcribed, as transformers does. By default only pauses of ten seconds are left out,
    /// and a second at both ends of a span stays, so that the windows of speech are what they are without it. A span is held
    /// in memory, so [`max_speech`](VadOptions::max_speech) limits the memory (300 s, 10 MB). Streams ignore this option.
    pub vad: Option<VadOptions>,
    /// Words that the recording may have, as names in their spelling: they precede the text of every window, before any earlier
    /// text. `hotwords` of faster-whisper.
    pub hotwords: Option<String>,
    /// Whether a language that is not given is detected in each window instead of the first one, for recordings in which it
    /// changes (false). The window is not encoded again. `multilingual` of faster-whisper.
    pub detect_each_window: bool,
    /// The temperatures of the attempts at a window (0.0, 0.2, 0.4, 0.6, 0.8, 1.0); each in [0, 10], the first attempt of
    /// temperature 0 uses [`search`](Self::search), the others draw one random sample. An attempt that fails one of the
    /// checks below is followed by the next one; the last attempt is taken in any case.
    pub temperatures: Vec<f64>,
    /// The text of a window is dropped if the probability of the no-speech token exceeds this number and the mean
    /// log-probability is below [`logprob_threshold`](Self::logprob_threshold) (0.6). `None` keeps it. A window
    /// without any sound has probability 1 and is not decoded.
    pub no_speech_threshold: Option<f32>,
    /// An attempt fails if the mean log-probability of its tokens is below this number (-1.0).
    pub logprob_threshold: Option<f32>,
    /// An attempt fails if its [compression ratio](super::Segment::compression_ratio) exceeds this number (2.4): it repeats
    /// itself.
    pub compression_ratio_threshold: Option<f32>,
    /// Of what the compression ratio is computed.
    pub compression: Compression,
    /// The seed and the filters of random samples (0, none). The temperature is that of the attempt.
    pub sample: SampleOptions,
    /// The most samples of a recording that [`Transcriber::transcribe_reopened`](super::Transcriber::transcribe_reopened)
    /// reads in a single pass, with all of its features in memory (9,600,000: ten minutes, 19 MB with 80 mel bins). Has no
    /// effect on the text.
    pub single_pass_samples: usize,
}

/// How a recording is divided into windows of at most 30 s (the length that the checkpoint defines).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub enum Windows {
    /// A window begins where the last complete segment of the one before it ends, as in OpenAI's `transcribe` and in the
    /// long-form generation of transformers 5.23. Windows depend on each other and are decoded one after the other.
    #[default]
    Sequential,
    /// Spans of speech are packed into windows that begin and end in pauses, and many windows are decoded together. Without
    /// spans, windows follow each other without a gap.
    Batched,
}

/// Of what a compression ratio is computed: the number of bytes divided by their number after DEFLATE (in zlib's
/// container).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub enum Compression {
    /// The text in UTF-8, as in OpenAI's `transcribe`, whose threshold is 2.4.
    #[default]
    Text,
    /// The ids of the tokens, in as many bytes each as the vocabulary needs, as in transformers 5.23. Published thresholds
    /// for it are about 1.35.
    Tokens,
}

impl TranscribeOptions {
    /// Greedy search with the rules of the checkpoint, its default language, sequential windows, and the thresholds and
    /// temperatures of OpenAI's `transcribe`.
    #[must_use]
    pub fn new(config: &Config) -> Self {
        let mut search = config.search_options();
        if matches!(search.strategy, Strategy::Sample(_)) {
            search.strategy = Strategy::Greedy;
        }
        search.num_return_sequences = 1;
        Self {
            language: None,
            task: None,
            search,
            windows: Windows::Sequential,
            slots: 4,
            timestamps: config.transcription.no_timestamps.is_some(),
            words: false,
            condition_on_previous_text: previous_token(config).is_some(),
            initial_prompt: None,
            vad: Some(long_pauses()),
            hotwords: None,
            detect_each_window: false,
            temperatures: vec![0.0, 0.2, 0.4, 0.6, 0.8, 1.0],
            no_speech_threshold: Some(0.6),
            logprob_threshold: Some(-1.0),
            compression_ratio_threshold: Some(2.4),
            compression: Compression::Text,
            sample: SampleOptions::default(),
            single_pass_samples: 10 * MINUTE,
        }
    }

    /// Whether windows without sound are decoded.
    pub(super) fn decodes_silence(&self) -> bool {
        self.no_speech_threshold.is_none_or(|threshold| threshold >= 1.0)
    }

    /// These options with one attempt per window and no check: no fallback, and no text is dropped, nor a pause.
    #[must_use]
    pub fn without_fallback(self) -> Self {
        Self {
            vad: None,
            temperatures: vec![0.0],
            no_speech_threshold: None,
            logprob_threshold: None,
            compression_ratio_threshold: None,
            ..self
        }
    }
}

/// Samples of a minute.
pub(super) const MINUTE: usize = 60 * 16_000;

/// Leaves long pauses out and changes nothing else.
fn long_pauses() -> VadOptions {
    let mut options = VadOptions::default();
    (options.min_silence, options.speech_pad, options.max_speech) = (10.0, 1.0, 300.0);
    options
}

/// The token that begins earlier text. If the file does not name it, transformers takes the last but one of the suppressed
/// tokens.
pub(super) fn previous_token(config: &Config) -> Option<u32> {
    let suppressed = &config.settings.options.suppress;
    let last_but_one = suppressed.len().checked_sub(2).map(|i| suppressed[i]);
    config.transcription.previous.or(last_but_one)
}
