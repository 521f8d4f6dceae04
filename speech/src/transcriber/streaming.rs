//! Transcription of samples as they arrive: final segments, and a text that may still change.

use super::frames::{BLOCK, Frames, check_finite};
use super::options::{TranscribeOptions, Windows};
use super::segments::{FRAME, seconds_of};
use super::sequential::{Next, Sequence};
use super::transcriber::{Spans, Transcriber, text_of};
use super::transcription::{RecordingSummary, Tentative, TranscribeEvent};
use crate::error::Error;
use core::fmt;
use core::ops::ControlFlow;
use unicode_segmentation::UnicodeSegmentation;

/// Seconds of new audio after which the unfinished window is decoded again.
const DELAY: f64 = 1.0;

/// Gets each event of a stream.
type OnEvent<'e> = &'e mut dyn FnMut(TranscribeEvent<'_>);

/// Transcribes samples as they arrive, in chunks of any size.
///
/// ```no_run
/// use simdformer::Model;
/// use simdformer_speech::Tokenizer;
/// use simdformer_speech::FeatureExtractor;
/// use simdformer_speech::{
///     StreamingTranscriber, TranscribeEvent, TranscribeOptions, Transcriber,
/// };
///
/// # fn main() -> Result<(), Box<dyn std::error::Error>> {
/// # let chunks = || core::iter::once(vec![0.0; 1600]);
/// let (model, tokenizer) = (Model::open("whisper-tiny.en")?, Tokenizer::from_dir("whisper-tiny.en")?);
/// let extractor = FeatureExtractor::from_dir("whisper-tiny.en")?;
/// let options = TranscribeOptions::new(model.config());
/// let transcriber = Transcriber::new(model, tokenizer, extractor, options)?;
/// let mut stream = StreamingTranscriber::new(transcriber)?;
/// let mut show = |event: TranscribeEvent<'_>| match event {
///     TranscribeEvent::Segment(segment) => println!("final: {}", segment.text),
///     TranscribeEvent::Tentative(now) => println!("stable: {}, so far: {}", now.stable_text(), now.text),
///     _ => (),
/// };
/// // Chunks of one channel at 16 kHz, for example from a microphone.
/// for chunk in chunks() {
///     stream.push(&chunk, &mut show)?;
/// }
/// stream.finish(&mut show)?;
/// # Ok(()) }
/// ```
///
/// # What is final
///
/// A window is decoded for good when all its samples are there, which is 30 s after its start, or at the end of the stream.
/// Its segments are then final, and the next window begins where the last one ends. For any division into chunks, windows and
/// segments equal those of [`Transcriber::transcribe_recording`] with the same samples and
/// [`Recording::maximum`](super::Recording::maximum) and [`TranscribeOptions::vad`] `None`: ids, times and all bits. (A stream
/// takes everything as speech: the end of a span is known only ten seconds after it.) Both run the same code, and a window
/// depends on nothing but the samples before its end: its features are scaled by the largest one from the start of the
/// recording to the end of the window. They differ from a transcription with the maximum of the whole recording, which is known only at
/// the end, if a later part is louder.
///
/// # What may still change
///
/// When `delay` seconds of new audio are there, [`push`](Self::push) decodes the unfinished window up to its last known frame,
/// padded with zeros, with the scale and the prompt so far, and reports a [`Tentative`]: the text after the last final
/// segment. It has one attempt, of the first temperature; a text that repeats itself is not reported. The words on which the last
/// two decodings agree are marked as stable (LocalAgreement-2 of Macháček, Dabre and Bojar, 2023), punctuation apart. Nothing of
/// a tentative text enters a later decoding, so it cannot change what is final. Stable words are not always final: they
/// were decoded without the audio that follows.
///
/// # Costs
///
/// A call encodes at most one unfinished window and those that it completes. Each costs one run of the encoder on the input of
/// 30 s, however short the audio is, and the decoding of at most [`max_length`](simdformer::search::SearchOptions) tokens; a
/// complete window that fails the checks is decoded at up to all temperatures. A caller that is late should pass all samples
/// that have arrived in one call: then the unfinished window is decoded once for all of them, and the work that remains is
/// that of a transcription. [`behind`](Self::behind) is the audio that no text covers yet. Memory does not grow with the
/// length of the stream: samples and features of the last window are kept. Encoder and decoder do not allocate.
///
/// The time until a word is final is at most 30 s plus the time of two decodings; until it is stable, usually two delays plus
/// the time of a decoding.
pub struct StreamingTranscriber {
    transcriber: Transcriber,
    /// The options of the decodings that are not final.
    once: TranscribeOptions,
    /// Seconds of new audio after which the unfinished window is decoded again.
    delay: f64,
    frames: Frames,
    sequence: Sequence<'static>,
    /// The frame up to which the audio was decoded.
    decoded: usize,
    /// What the last decoding said of the audio after the last segment.
    last: String,
}

impl fmt::Debug for StreamingTranscriber {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("StreamingTranscriber")
            .field("transcriber", &self.transcriber)
            .field("delay", &self.delay())
            .field("received", &self.received())
            .finish_non_exhaustive()
    }
}

impl StreamingTranscriber {
    /// A stream at its start, with a delay of one second. Plans the memory of the session.
    ///
    /// # Errors
    /// The windows of the options are not [`Windows::Sequential`], or there is no memory for the session.
    pub fn new(transcriber: Transcriber) -> Result<Self, Error> {
        let options = transcriber.options.clone();
        if options.windows != Windows::Sequential {
            let found = format!("{:?}", options.windows);
            return Err(Error::invalid_option("windows", "Sequential for a stream", found));
        }
        transcriber.decoder.prepare()?;
        let mut once = options;
        once.temperatures.truncate(1);
        once.words = false;
        let frames = Frames::new(&transcriber.extractor, None, None);
        let sequence = start(&transcriber);
        Ok(Self {
            transcriber,
            once,
            delay: DELAY,
            frames,
            sequence,
            decoded: 0,
            last: String::new(),
        })
    }

    /// Sets how many seconds of new audio there must be before the unfinished window is decoded again: 0 for each call of
    /// [`push`](Self::push), infinity for no text but the final one.
    ///
    /// # Errors
    /// `seconds` is negative or NaN.
    pub fn set_delay(&mut self, seconds: f64) -> Result<(), Error> {
        if seconds.is_nan() || seconds < 0.0 {
            return Err(Error::invalid_option("delay", "seconds, at least 0", seconds));
        }
        self.delay = seconds;
        Ok(())
    }

    /// The seconds of new audio before the unfinished window is decoded again.
    #[must_use]
    pub fn delay(&self) -> f64 {
        self.delay
    }

    /// The transcriber. What it transcribes between two calls of [`push`](Self::push) does not change the stream.
    pub fn transcriber(&mut self) -> &mut Transcriber {
        &mut self.transcriber
    }

    /// Ends the stream and returns the transcriber.
    #[must_use]
    pub fn into_transcriber(self) -> Transcriber {
        self.transcriber
    }

    /// The audio that has arrived, in seconds.
    #[must_use]
    pub fn received(&self) -> f64 {
        self.frames.read_samples() as f64 / f64::from(self.transcriber.extractor.rate())
    }

    /// The audio that has arrived and of which there is no text yet, final or not, in seconds.
    #[must_use]
    pub fn behind(&self) -> f64 {
        (self.received() - seconds_of(self.decoded)).max(0.0)
    }

    /// Takes the next samples, of one channel at the rate of the transcriber's extractor, any number of them. Reports the
    /// windows that they complete, then the text so far of the unfinished one.
    ///
    /// # Errors
    /// A sample is not finite: then no sample of the call is taken, and the stream goes on. A score of the model is not
    /// finite, or the call is [cancelled](Transcriber::set_cancel): then the stream is at its start again.
    pub fn push(&mut self, samples: &[f32], on_event: OnEvent<'_>) -> Result<(), Error> {
        check_finite(samples, self.frames.read_samples())?;
        let mut blocks = samples.chunks(BLOCK);
        let done = blocks
            .try_for_each(|block| self.complete(block, false, on_event))
            .and_then(|()| self.tentative(on_event));
        if done.is_err() {
            self.reset();
        }
        done
    }

    /// Ends the stream: decodes what is left, reports it, and is at the start of another stream.
    ///
    /// # Errors
    /// As [`push`](Self::push).
    pub fn finish(&mut self, on_event: OnEvent<'_>) -> Result<RecordingSummary, Error> {
        let done = self.complete(&[], true, on_event);
        let summary = self.transcriber.summary(&self.sequence, &self.frames);
        self.reset();
        done.map(|()| summary)
    }

    /// Forgets all samples, and is at the start of another stream.
    pub fn reset(&mut self) {
        self.frames = Frames::new(&self.transcriber.extractor, None, None);
        self.sequence = start(&self.transcriber);
        self.decoded = 0;
        self.last.clear();
    }

    /// Takes samples, and decodes the windows that are complete.
    fn complete(
        &mut self,
        samples: &[f32],
        ended: bool,
        on_event: OnEvent<'_>,
    ) -> Result<(), Error> {
        let Self { transcriber, frames, sequence, decoded, last, .. } = self;
        if transcriber.engine().cancel().is_cancelled() {
            return Err(Error::Cancelled);
        }
        frames.push(&transcriber.extractor, samples, ended)?;
        let longest = transcriber.extractor.frames();
        while let Next::Window(first, count) = sequence.next(frames, longest) {
            let (mut tokens, mut language) = (Vec::new(), None);
            transcriber.advance(sequence, frames, (first, count), &mut |event| {
                match event {
                    TranscribeEvent::Window(window) if !window.skipped => {
                        tokens.extend_from_slice(&window.tokens);
                    }
                    TranscribeEvent::Segment(segment) => language.clone_from(&segment.language),
                    _ => (),
                }
                on_event(event);
                ControlFlow::Continue(())
            })?;
            *decoded = first + count;
            // The next window decodes again what is after the last segment: it is heard once already.
            let text =
                |tokens: &[u32]| text_of(tokens, &transcriber.prompt, &transcriber.tokenizer);
            let (all, rest) = (text(&tokens), text(sequence.rest()));
            let stable = agreement(last, &all);
            let stable =
                all.strip_suffix(&rest[..]).map_or(0, |said| stable.saturating_sub(said.len()));
            if !ended {
                let end = seconds_of(*decoded);
                let start = seconds_of(sequence.first()).min(end);
                let now = Tentative { start, end, text: rest.clone(), stable, language };
                on_event(TranscribeEvent::Tentative(&now));
            }
            *last = rest;
        }
        Ok(())
    }

    /// Decodes the unfinished window, if there is enough new audio.
    fn tentative(&mut self, on_event: OnEvent<'_>) -> Result<(), Error> {
        let (first, end) = (self.sequence.first(), self.frames.end());
        if end <= self.decoded.max(first)
            || end - self.decoded < (self.delay / FRAME).round() as usize
        {
            return Ok(());
        }
        let window = (first, end - first);
        let Self { transcriber, frames, sequence, once, .. } = self;
        let (window, language) = transcriber.decode(sequence, frames, window, Some(once))?;
        self.decoded = end;
        let repeats = once.compression_ratio_threshold;
        if !window.skipped && repeats.is_some_and(|most| window.compression_ratio > most) {
            return Ok(());
        }
        let text = match window.skipped {
            true => String::new(),
            false => text_of(&window.tokens, &transcriber.prompt, &transcriber.tokenizer),
        };
        let now = Tentative {
            start: seconds_of(first),
            end: seconds_of(end),
            stable: agreement(&self.last, &text),
            text,
            language: language.and_then(|id| transcriber.prompt.name(id)),
        };
        on_event(TranscribeEvent::Tentative(&now));
        self.last = now.text;
        Ok(())
    }
}

/// A recording that is one span.
fn start(transcriber: &Transcriber) -> Sequence<'static> {
    Sequence::new(Spans::whole(), &transcriber.options, &transcriber.prompt)
}

/// The end, in `text`, of the first words on which two texts agree. A mark of punctuation is a word.
fn agreement(before: &str, text: &str) -> usize {
    let words = |text| {
        UnicodeSegmentation::split_word_bound_indices(text)
            .filter(|(_, word)| !word.trim().is_empty())
    };
    let pairs = words(before).zip(words(text));
    let same = pairs.take_while(|((_, before), (_, now))| before == now);
    same.last().map_or(0, |(_, (at, word))| at + word.len())
}
