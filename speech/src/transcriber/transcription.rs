//! The results: segments, windows, and the transcription of a recording.

use crate::Incomplete;
use simdformer::search::Finish;

/// A word of a segment, with the punctuation around it.
#[derive(Clone, Debug, PartialEq)]
#[non_exhaustive]
pub struct Word {
    /// The start, in seconds of the recording, at least the end of the word before it.
    pub start: f64,
    /// The end, in seconds of the recording, at least the start.
    pub end: f64,
    /// The text. A space before the word is part of it: the texts of all words are that of the segment.
    pub text: String,
    /// How certain the model is: the mean probability of its tokens without the punctuation, among all tokens of texts.
    pub probability: f32,
}

/// A word of a window.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct TimedWord {
    /// Its first token among those of the window.
    pub(super) token: usize,
    pub(super) word: Word,
}

/// A part of the text with its times, as the model divides it: usually a sentence or a phrase.
#[derive(Clone, Debug, Default, PartialEq)]
#[non_exhaustive]
pub struct Segment {
    /// The start, in seconds of the recording.
    pub start: f64,
    /// The end, in seconds of the recording, at least the start.
    pub end: f64,
    /// The text. A space before the first word is part of it.
    pub text: String,
    /// Its words, with [`TranscribeOptions::words`](super::TranscribeOptions::words); then the segment begins with the first word
    /// and ends with the last one.
    pub words: Vec<Word>,
    /// The ids that the model wrote, its timestamps included.
    pub tokens: Vec<u32>,
    /// The index of its [`Window`] in the recording. All windows are counted, also those without text.
    pub window: usize,
    /// The mean log-probability of the tokens of its window, end token included; with beams, the score of the hypothesis.
    pub avg_logprob: f32,
    /// The probability that its window has no speech.
    pub no_speech_prob: f32,
    /// How repetitive the text of its window is: above 2.4, probably a loop. See [`Compression`](super::Compression).
    pub compression_ratio: f32,
    /// The temperature of the attempt that was taken.
    pub temperature: f64,
    /// The language, as the checkpoint names it (`en`); `None` for a model of one language.
    pub language: Option<String>,
    /// The channel of the recording, from 0, if channels were transcribed separately: [`Transcription::of_channels`].
    pub channel: Option<usize>,
}

/// The attempt that was taken for a part of the recording that the model read at once.
#[derive(Clone, Debug, PartialEq)]
#[non_exhaustive]
pub struct Window {
    /// The first frame; a frame is 10 ms.
    pub first_frame: usize,
    /// Frames of the recording, at most those of the model's input. The rest of the input is zeros.
    pub frames: usize,
    /// The prompt of the decoder, with its start token; empty if there was no sound.
    pub prompt: Vec<u32>,
    /// The ids that the model wrote, its timestamps included, without the end token.
    pub tokens: Vec<u32>,
    /// Its words, if they get times.
    pub(super) words: Vec<TimedWord>,
    /// Why the text ended.
    pub finish: Finish,
    /// The number of attempts; 0 if there was no sound.
    pub attempts: usize,
    /// Whether the text was dropped, because there is probably no speech.
    pub skipped: bool,
    /// As in [`Segment`].
    pub avg_logprob: f32,
    /// As in [`Segment`].
    pub no_speech_prob: f32,
    /// As in [`Segment`].
    pub compression_ratio: f32,
    /// As in [`Segment`].
    pub temperature: f64,
    /// As in [`Segment`]; `None` also if there was no sound.
    pub language: Option<String>,
    /// The probability of the language among those of the model, if it was detected in this window.
    pub language_probability: Option<f32>,
}

impl Window {
    /// A window without sound, which is not decoded.
    pub(super) fn silent(first_frame: usize, frames: usize) -> Self {
        Self {
            first_frame,
            frames,
            prompt: Vec::new(),
            tokens: Vec::new(),
            words: Vec::new(),
            finish: Finish::End,
            attempts: 0,
            skipped: true,
            avg_logprob: 0.0,
            no_speech_prob: 1.0,
            compression_ratio: 0.0,
            temperature: 0.0,
            language: None,
            language_probability: None,
        }
    }
}

/// What a transcription reports while it runs. The events of a recording come in order.
#[derive(Clone, Copy, Debug)]
#[non_exhaustive]
pub enum TranscribeEvent<'e> {
    /// A window is decoded. Its segments follow.
    Window(&'e Window),
    /// A segment is final.
    Segment(&'e Segment),
    /// What the unfinished window of a stream says so far, in place of the last such event. Only a
    /// [`StreamingTranscriber`](super::StreamingTranscriber) reports it.
    Tentative(&'e Tentative),
}

/// The text of audio whose window is not complete: later audio may change it.
#[derive(Clone, Debug, Default, PartialEq)]
#[non_exhaustive]
pub struct Tentative {
    /// The start, in seconds of the recording: where the last segment ends.
    pub start: f64,
    /// The end of the audio that was decoded, in seconds of the recording.
    pub end: f64,
    /// The text. A space before the first word is part of it.
    pub text: String,
    /// The bytes of the stable prefix: the words on which the last two decodings agree.
    pub stable: usize,
    /// The language, as in [`Segment::language`]; it is final with the first window.
    pub language: Option<String>,
}

impl Tentative {
    /// The stable prefix of the text.
    #[must_use]
    pub fn stable_text(&self) -> &str {
        self.text.get(..self.stable).unwrap_or(&self.text)
    }
}

/// What is known at the end of a recording.
#[derive(Clone, Debug, Default, PartialEq)]
#[non_exhaustive]
pub struct RecordingSummary {
    /// The length, in seconds.
    pub duration: f64,
    /// The language, as in [`Segment::language`]; `None` also if there was nothing to detect it in.
    pub language: Option<String>,
    /// The number of windows.
    pub windows: usize,
    /// Where sound is missing, because the file is cut or damaged: the first such place. The text is that of what there is.
    pub incomplete: Option<Incomplete>,
}

/// The transcription of a recording.
#[derive(Clone, Debug, Default, PartialEq)]
#[non_exhaustive]
pub struct Transcription {
    /// In order of their starts. Segments without text are left out.
    pub segments: Vec<Segment>,
    /// All windows, in order.
    pub windows: Vec<Window>,
    /// Duration and language.
    pub summary: RecordingSummary,
}

impl Transcription {
    /// Joins the transcriptions of the channels of a recording, each transcribed alone. Segments get the number of their channel,
    /// from 0, and are in order of their starts; windows are those of the first channel, then those of the next one.
    #[must_use]
    pub fn of_channels(channels: impl IntoIterator<Item = Self>) -> Self {
        let mut all = Self::default();
        for (channel, one) in channels.into_iter().enumerate() {
            let before = all.windows.len();
            all.segments.extend(one.segments.into_iter().map(|segment| Segment {
                window: before + segment.window,
                channel: Some(channel),
                ..segment
            }));
            all.windows.extend(one.windows);
            all.summary.duration = all.summary.duration.max(one.summary.duration);
            all.summary.windows += one.summary.windows;
            all.summary.language = all.summary.language.or(one.summary.language);
            all.summary.incomplete = all.summary.incomplete.or(one.summary.incomplete);
        }
        // Equal starts stay in order of their channels.
        all.segments.sort_by(|a, b| a.start.total_cmp(&b.start));
        all
    }

    /// The text of all segments, without space at its ends.
    #[must_use]
    pub fn text(&self) -> String {
        let all: String = self.segments.iter().map(|segment| segment.text.as_str()).collect();
        all.trim().to_owned()
    }
}
