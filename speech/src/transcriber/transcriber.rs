//! The transcriber: what it holds, and what all kinds of windows share.

use super::alignment::alignment_heads;
use super::frames::{FirstPass, Frames, frames_of};
use super::options::{TranscribeOptions, Windows};
use super::prompt::Prompt;
use super::samples::{Cancellable, Recording, SampleSource};
use super::segments::{Part, seconds_of};
use super::transcription::{
    RecordingSummary, Segment, TimedWord, TranscribeEvent, Transcription, Window, Word,
};
use super::window_decoder::WindowDecoder;
use crate::FeatureExtractor;
use crate::error::Error;
use crate::vad::{SpeechDetector, SpeechFinder};
use core::fmt;
use core::ops::ControlFlow;
use core::task::Poll;
use simdformer::checkpoint::Checkpoint;
use simdformer::config::{Config, Side};
use simdformer::search::Strategy;
use simdformer::{Cancel, Engine, Model, OnDone, Plan, Product, ProductBuilder};
use simdformer_tokenize::Tokenizer;
use std::path::Path;
use std::sync::Arc;

/// Gets each event; `Break` ends the transcription after it.
pub(super) type OnEvent<'e> = &'e mut dyn FnMut(TranscribeEvent<'_>) -> ControlFlow<()>;

/// Transcribes recordings of any length with a Whisper model. The [crate] has an example.
///
/// Calls may run at the same time, each in a session of its own. A clone shares the weights and the planned sessions; it can
/// have a [`Cancel`] and a [progress](Self::set_on_done) of its own.
#[derive(Clone)]
pub struct Transcriber {
    pub(super) tokenizer: Arc<Tokenizer>,
    pub(super) extractor: FeatureExtractor,
    pub(super) options: TranscribeOptions,
    pub(super) prompt: Prompt,
    /// At the start of a recording; if the options ask for it.
    detector: Option<SpeechDetector>,
    pub(super) decoder: WindowDecoder,
}

impl fmt::Debug for Transcriber {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Transcriber")
            .field("options", &self.options)
            .field("extractor", &self.extractor)
            .finish_non_exhaustive()
    }
}

impl Transcriber {
    /// The transcriber of a published directory, with its default options, on the calling thread.
    ///
    /// # Errors
    /// The model, the tokenizer or the settings of the features cannot be read; as [`new`](Self::new).
    pub fn open(directory: impl AsRef<Path>) -> Result<Self, Error> {
        Self::builder(directory).open()
    }

    /// How to open a directory with other options, weights, threads or memory.
    pub fn builder<'b>(directory: impl AsRef<Path>) -> ProductBuilder<'b, Self> {
        ProductBuilder::new(directory)
    }

    /// A transcriber of a model and the tokenizer of its directory. `engine` is an [`Engine`], a [`Model`], or an `Arc` of
    /// one; [`Engine::builder`] sets the threads and the dtype of the KV cache, and the options the slots. `tokenizer` is a
    /// [`Tokenizer`] or an `Arc` of one. It plans its memory when the first recording arrives; from then on only texts and results allocate.
    ///
    /// # Errors
    /// The features do not fit the model; the model lacks the language, the task or the timestamps of the options, or has
    /// no decoder; the search options or a temperature are invalid.
    pub fn new(
        engine: impl Into<Engine>,
        tokenizer: impl Into<Arc<Tokenizer>>,
        extractor: FeatureExtractor,
        options: TranscribeOptions,
    ) -> Result<Self, Error> {
        let (engine, tokenizer) = (engine.into(), tokenizer.into());
        let prompt = Self::check(engine.model().config(), &tokenizer, &extractor, &options)?;
        let detector = options.vad.is_some().then(SpeechDetector::new).transpose()?;
        let decoder = WindowDecoder::new(engine, &options, &prompt, &extractor);
        Ok(Self { tokenizer, extractor, options, prompt, detector, decoder })
    }

    /// The checks of [`new`](Self::new), before the weights are read.
    ///
    /// # Errors
    /// As [`new`](Self::new).
    pub fn fits(
        config: &Config,
        tokenizer: &Tokenizer,
        extractor: &FeatureExtractor,
        options: &TranscribeOptions,
    ) -> Result<(), Error> {
        Self::check(config, tokenizer, extractor, options).map(|_| ())
    }

    fn check(
        config: &Config,
        tokenizer: &Tokenizer,
        extractor: &FeatureExtractor,
        options: &TranscribeOptions,
    ) -> Result<Prompt, Error> {
        if config.decoder.is_none() {
            return Err(simdformer::Error::NO_DECODER.into());
        }
        let Some(bins) = config.bins else {
            return Err(Error::unsupported(
                "model",
                "an encoder that reads features",
                "one that reads text",
            ));
        };
        if bins != extractor.bins() {
            let expected = format!("the {bins} mel bins of the model");
            return Err(Error::corrupt("feature_size", expected, extractor.bins()));
        }
        let positions = extractor.frames().div_ceil(2);
        if let Some(most) = config.max_positions(Side::Encoder).filter(|&most| most != positions) {
            let expected = format!("the {} frames of the model", 2 * most);
            return Err(Error::corrupt("chunk_length", expected, extractor.frames()));
        }
        let outside = |&&temperature: &&f64| !(0.0..=10.0).contains(&temperature);
        if let Some(found) = options.temperatures.iter().find(outside) {
            return Err(Error::invalid_option("temperatures", "numbers from 0 to 10", found));
        }
        if options.temperatures.iter().skip(1).any(|&temperature| temperature == 0.0) {
            return Err(Error::invalid_option(
                "temperatures",
                "only the first one is 0",
                "another 0",
            ));
        }
        if options.slots == 0 {
            return Err(Error::invalid_option("slots", "at least 1", 0));
        }
        if matches!(options.search.strategy, Strategy::Sample(_)) {
            return Err(Error::invalid_option(
                "search",
                "greedy search or beam search",
                "sampling",
            ));
        }
        if let Some(vad) = &options.vad {
            vad.check()?;
        }
        let prompt = Prompt::new(options, config, tokenizer)?;
        if options.words {
            alignment_heads(config)?;
        }
        config.check_search(&options.search)?;
        Ok(prompt)
    }

    /// The engine in which the transcriber runs.
    #[must_use]
    pub fn engine(&self) -> &Engine {
        self.decoder.engine()
    }

    /// Runs later calls in another engine of the same model, with sessions and settings of its own. The text stays the same.
    pub fn set_engine(&mut self, engine: impl Into<Engine>) {
        self.decoder.set_engine(engine.into());
    }

    /// Ends later calls when `cancel` is set, some milliseconds after that, with [`Error::Cancelled`]; events that
    /// were reported before stay valid. The flag is read before each second of sound and between the steps of the model. A
    /// source that waits for samples is not interrupted.
    pub fn set_cancel(&mut self, cancel: Cancel) {
        self.decoder.set_cancel(cancel);
    }

    /// Calls `on_done` during later calls, each time a window is finished, with the number of those that are finished since
    /// this call. A stream finishes its last window several times.
    pub fn set_on_done(&mut self, on_done: impl Fn(u64) + Send + Sync + 'static) {
        self.decoder.set_on_done(OnDone::new(on_done));
    }

    /// A source that reads the flag of [`set_cancel`](Self::set_cancel).
    fn cancellable<S: SampleSource>(&self, source: S) -> Cancellable<'_, S> {
        Cancellable { source, cancel: self.engine().cancel() }
    }

    /// The memory of the session that the first recording plans.
    ///
    /// # Errors
    /// The model lacks the positions for a window and its text, or the memory does not fit the address space.
    pub fn plan(&self) -> Result<Plan, Error> {
        Ok(self.decoder.plan()?)
    }

    /// The model.
    #[must_use]
    pub fn model(&self) -> &Model {
        self.decoder.engine().model()
    }

    /// The tokenizer.
    #[must_use]
    pub fn tokenizer(&self) -> &Tokenizer {
        &self.tokenizer
    }

    /// The extractor of the features.
    #[must_use]
    pub fn extractor(&self) -> &FeatureExtractor {
        &self.extractor
    }

    /// The options.
    #[must_use]
    pub fn options(&self) -> &TranscribeOptions {
        &self.options
    }

    /// The largest feature of a recording before scaling, for [`Recording::maximum`]. Reads the source to its end;
    /// `-inf` for one without frames.
    ///
    /// # Errors
    /// The source cannot be read, a sample is not finite, or the call is [cancelled](Self::set_cancel).
    pub fn maximum(&self, source: &mut dyn SampleSource) -> Result<f32, Error> {
        let source = &mut self.cancellable(source);
        match Frames::first_pass(&self.extractor, source, None, 0)? {
            FirstPass::All(frames) => Ok(frames.maximum()),
            FirstPass::Maximum(maximum) => Ok(maximum),
        }
    }

    /// Transcribes `samples`, one channel at the rate of [`extractor`](Self::extractor), with the scale of the features
    /// that transformers gives them: that of the whole recording.
    ///
    /// # Errors
    /// A sample is not finite, there is no memory for the session, or a score of the model is not finite.
    pub fn transcribe(&self, samples: &[f32]) -> Result<Transcription, Error> {
        self.transcribe_spans(samples, None)
    }

    /// As [`transcribe`](Self::transcribe), but only the spans of `speech`, in seconds, ascending and not overlapping.
    ///
    /// # Errors
    /// As [`transcribe`](Self::transcribe); a span is not after the one before it.
    pub fn transcribe_spans(
        &self,
        samples: &[f32],
        speech: Option<&[(f64, f64)]>,
    ) -> Result<Transcription, Error> {
        let mut transcription = Transcription::default();
        let summary = self.transcribe_reopened(&mut || Ok(samples), speech, &mut |event| {
            match event {
                TranscribeEvent::Window(window) => transcription.windows.push(window.clone()),
                TranscribeEvent::Segment(segment) => transcription.segments.push(segment.clone()),
                TranscribeEvent::Tentative(_) => (),
            }
            ControlFlow::Continue(())
        })?;
        Ok(Transcription { summary, ..transcription })
    }

    /// Transcribes a recording that `open` opens, with the scale of the features that transformers gives them, which
    /// the largest feature of the whole recording defines. A recording of at most ten minutes
    /// ([`single_pass_samples`](TranscribeOptions::single_pass_samples)) is read once, and its features stay in memory. A longer
    /// one is opened and read again after that, so that memory does not grow with its length. `speech` and `on_event` are
    /// those of [`transcribe_recording`](Self::transcribe_recording).
    ///
    /// # Errors
    /// As [`transcribe_recording`](Self::transcribe_recording); the recording cannot be opened.
    ///
    /// ```no_run
    /// # use simdformer::Model;
    /// # use simdformer_speech::Tokenizer;
    /// use simdformer_speech::{TranscribeEvent, TranscribeOptions, Transcriber};
    /// use simdformer_speech::{AudioReader, FeatureExtractor, InputOptions};
    /// use std::ops::ControlFlow;
    ///
    /// # fn main() -> Result<(), Box<dyn std::error::Error>> {
    /// # let (model, tokenizer) = (Model::open("m")?, Tokenizer::from_dir("m")?);
    /// # let options = TranscribeOptions::new(model.config());
    /// # let transcriber = Transcriber::new(model, tokenizer, FeatureExtractor::whisper(80, 30)?, options)?;
    /// let mut open = || AudioReader::open("talk.mp3", InputOptions::default());
    /// transcriber.transcribe_reopened(&mut open, None, &mut |event| {
    ///     if let TranscribeEvent::Segment(segment) = event {
    ///         println!("{:.2} to {:.2}:{}", segment.start, segment.end, segment.text);
    ///     }
    ///     ControlFlow::Continue(())
    /// })?;
    /// # Ok(()) }
    /// ```
    pub fn transcribe_reopened<S: SampleSource>(
        &self,
        open: &mut dyn FnMut() -> Result<S, Error>,
        speech: Option<&[(f64, f64)]>,
        on_event: &mut dyn FnMut(TranscribeEvent<'_>) -> ControlFlow<()>,
    ) -> Result<RecordingSummary, Error> {
        let (finder, spans) = self.speech(speech)?;
        let mut source = self.cancellable(open()?);
        let most = self.options.single_pass_samples;
        match Frames::first_pass(&self.extractor, &mut source, finder, most)? {
            FirstPass::All(frames) => self.transcribe_frames(*frames, &mut source, spans, on_event),
            FirstPass::Maximum(maximum) => {
                drop(source);
                let source = &mut open()?;
                let recording = Recording { source, maximum: Some(maximum), speech };
                self.transcribe_recording(recording, on_event)
            }
        }
    }

    /// Transcribes a recording that is read in order, in memory that does not grow with its length. Calls `on_event` with
    /// each window and each segment as soon as it is final; `Break` ends the transcription.
    ///
    /// # Errors
    /// As [`transcribe_spans`](Self::transcribe_spans); the source cannot be read.
    pub fn transcribe_recording(
        &self,
        recording: Recording<'_>,
        on_event: &mut dyn FnMut(TranscribeEvent<'_>) -> ControlFlow<()>,
    ) -> Result<RecordingSummary, Error> {
        let (finder, spans) = self.speech(recording.speech)?;
        let frames = Frames::new(&self.extractor, recording.maximum, finder);
        self.transcribe_frames(frames, &mut self.cancellable(recording.source), spans, on_event)
    }

    /// The spans of speech that the caller gives, or what finds them.
    fn speech<'s>(
        &self,
        given: Option<&'s [(f64, f64)]>,
    ) -> Result<(Option<SpeechFinder>, Spans<'s>), Error> {
        let finder = match (&self.options.vad, &self.detector, given) {
            (Some(vad), Some(detector), None) => {
                Some(SpeechFinder::new(detector.clone(), vad.clone())?)
            }
            _ => None,
        };
        let spans = Spans::new(given, finder.is_some())?;
        Ok((finder, spans))
    }

    /// Transcribes `frames` and what `source` has after them.
    fn transcribe_frames(
        &self,
        frames: Frames,
        source: &mut dyn SampleSource,
        spans: Spans<'_>,
        on_event: OnEvent<'_>,
    ) -> Result<RecordingSummary, Error> {
        let summary = match self.options.windows {
            Windows::Sequential => self.sequential(frames, source, spans, on_event),
            Windows::Batched => self.batched(frames, source, spans, on_event),
        }?;
        Ok(RecordingSummary { incomplete: source.incomplete().cloned(), ..summary })
    }
}

impl Product for Transcriber {
    type Options = TranscribeOptions;
    type Setup = (Tokenizer, FeatureExtractor, TranscribeOptions);
    type Error = Error;

    fn default_options(config: &Config) -> TranscribeOptions {
        TranscribeOptions::new(config)
    }

    fn read_setup(
        directory: &Path,
        checkpoint: &Checkpoint<'_>,
        options: TranscribeOptions,
    ) -> Result<Self::Setup, Error> {
        let (tokenizer, extractor) =
            (Tokenizer::from_dir(directory)?, FeatureExtractor::from_dir(directory)?);
        Self::fits(checkpoint.config(), &tokenizer, &extractor, &options)?;
        Ok((tokenizer, extractor, options))
    }

    fn build(engine: Engine, setup: Self::Setup) -> Result<Self, Error> {
        let (tokenizer, extractor, options) = setup;
        Self::new(engine, tokenizer, extractor, options)
    }
}

/// Spans of speech in frames, ascending. Each has frames, and none has a frame of the one before it: ends in seconds are
/// rounded up and starts down, so that two spans may name the same frame.
pub(super) struct Spans<'s> {
    origin: Origin<'s>,
    /// The end of the last span.
    end: usize,
}

/// Where spans come from.
enum Origin<'s> {
    /// The whole recording, which has not been asked for.
    All,
    /// Those that the caller gives.
    Provided(&'s [(f64, f64)]),
    /// Those that the frames find.
    Found,
}

impl<'s> Spans<'s> {
    fn new(given: Option<&'s [(f64, f64)]>, found: bool) -> Result<Self, Error> {
        let mut last = 0.0;
        for &(start, end) in given.unwrap_or(&[]) {
            if !(last <= start && start <= end && end.is_finite()) {
                let expected = format!("seconds that ascend from {last}");
                return Err(Error::invalid_input("speech", expected, format!("{start} to {end}")));
            }
            last = end;
        }
        let origin = match given {
            Some(given) => Origin::Provided(given),
            None if found => Origin::Found,
            None => Origin::All,
        };
        Ok(Self { origin, end: 0 })
    }

    /// A recording that is one span.
    pub(super) fn whole() -> Self {
        Self { origin: Origin::All, end: 0 }
    }

    /// The first and the last frame of the next span, if it begins at frame `limit` at the latest; `None` after the last one.
    /// `Pending` if more samples must be read first. Frames from `keep` on are not forgotten.
    pub(super) fn poll(
        &mut self,
        frames: &mut Frames,
        (keep, limit): (usize, usize),
    ) -> Poll<Option<(usize, usize)>> {
        loop {
            let span = match &mut self.origin {
                Origin::All => {
                    self.origin = Origin::Provided(&[]);
                    (0, usize::MAX)
                }
                Origin::Provided(spans) => {
                    let Some((&span, rest)) = spans.split_first() else { return Poll::Ready(None) };
                    let span = frames_of(span);
                    if span.0.max(self.end) > limit {
                        return Poll::Ready(None);
                    }
                    *spans = rest;
                    span
                }
                Origin::Found => match frames.poll_span((keep, limit)) {
                    Poll::Ready(Some(span)) => span,
                    other => return other,
                },
            };
            let first = span.0.max(self.end);
            if first < span.1 {
                self.end = span.1;
                return Poll::Ready(Some((first, span.1)));
            }
        }
    }

    /// [`poll`](Self::poll), and reads as far as that takes.
    pub(super) fn next(
        &mut self,
        frames: &mut Frames,
        (extractor, source): (&FeatureExtractor, &mut dyn SampleSource),
        (keep, limit): (usize, usize),
    ) -> Result<Option<(usize, usize)>, Error> {
        loop {
            if let Poll::Ready(span) = self.poll(frames, (keep, limit)) {
                return Ok(span);
            }
            frames.read_block(extractor, source)?;
        }
    }
}

/// The text of tokens, without their timestamps.
pub(super) fn text_of(tokens: &[u32], prompt: &Prompt, tokenizer: &Tokenizer) -> String {
    let words = tokens.iter().copied().filter(|&id| prompt.timestamp(id).is_none());
    tokenizer.decode(&words.collect::<Vec<u32>>())
}

/// Reports a window and its segments. Returns whether the caller ends the transcription.
pub(super) fn report(
    (index, window, parts): (usize, &Window, &[Part]),
    prompt: &Prompt,
    tokenizer: &Tokenizer,
    on_event: OnEvent<'_>,
) -> bool {
    if on_event(TranscribeEvent::Window(window)).is_break() {
        return true;
    }
    parts.iter().any(|part| {
        let tokens = &window.tokens[part.tokens.clone()];
        let text = text_of(tokens, prompt, tokenizer);
        if text.trim().is_empty() {
            return false;
        }
        let inside = |word: &&TimedWord| part.tokens.contains(&word.token);
        let words: Vec<Word> =
            window.words.iter().filter(inside).map(|word| word.word.clone()).collect();
        let segment = Segment {
            start: words.first().map_or(seconds_of(part.span.0), |word| word.start),
            end: words.last().map_or(seconds_of(part.span.1), |word| word.end),
            text,
            words,
            tokens: tokens.to_vec(),
            window: index,
            avg_logprob: window.avg_logprob,
            no_speech_prob: window.no_speech_prob,
            compression_ratio: window.compression_ratio,
            temperature: window.temperature,
            language: window.language.clone(),
            channel: None,
        };
        on_event(TranscribeEvent::Segment(&segment)).is_break()
    })
}
