//! Windows that follow each other: the next one begins where the last segment ends.

use super::frames::Frames;
use super::options::TranscribeOptions;
use super::prompt::Prompt;
use super::samples::SampleSource;
use super::segments::{Part, split};
use super::transcriber::{OnEvent, Spans, Transcriber, report};
use super::transcription::{RecordingSummary, Window};
use super::window_decoder::Task;
use crate::error::Error;
use core::ops::ControlFlow;
use core::task::Poll;

/// Above this temperature a text is too uncertain to be the prompt of the next window; as in transformers.
const LOW_TEMPERATURE: f64 = 0.5;

/// What a window leaves to the next one. A file that is read and a stream of samples have the same windows, because both
/// ask [`Sequence::next`], and decode with [`Transcriber::advance`].
pub(super) struct Sequence<'s> {
    spans: Spans<'s>,
    /// The first frame of the next window and the end of its span.
    span: Option<(usize, usize)>,
    /// The language of the last window, once it is given or detected, and that of the first one.
    language: Option<u32>,
    spoken: Option<u32>,
    /// The tokens of earlier windows, as far as they fit into a prompt.
    earlier: Vec<u32>,
    /// Whether there are any, apart from the caller's, and whether the next window may read them.
    said: bool,
    condition: bool,
    /// The number of windows so far.
    windows: usize,
    /// What the last window says after its last segment; the next window says it again.
    rest: Vec<u32>,
}

/// What a [`Sequence`] needs to go on.
pub(super) enum Next {
    /// More samples, or the end of the recording.
    Samples,
    /// The first frame and the number of frames of a window, which are known.
    Window(usize, usize),
    /// Nothing: there is no further window.
    End,
}

impl<'s> Sequence<'s> {
    pub(super) fn new(spans: Spans<'s>, options: &TranscribeOptions, prompt: &Prompt) -> Self {
        Self {
            spans,
            span: None,
            language: prompt.language,
            spoken: prompt.language,
            earlier: prompt.initial().to_vec(),
            said: false,
            condition: options.condition_on_previous_text,
            windows: 0,
            rest: Vec::new(),
        }
    }

    /// Whether the next window is complete. Forgets the frames before it. `longest`: frames of the model's input.
    pub(super) fn next(&mut self, frames: &mut Frames, longest: usize) -> Next {
        loop {
            let (first, end) = match self.span {
                Some(span) => span,
                None => match self.spans.poll(frames, (usize::MAX, usize::MAX)) {
                    Poll::Ready(Some(span)) => span,
                    Poll::Ready(None) => return Next::End,
                    Poll::Pending => return Next::Samples,
                },
            };
            self.span = Some((first, end));
            frames.forget_before(first.min(frames.end()));
            let until = first.saturating_add(longest).min(end);
            if frames.end() < until && !frames.ended() {
                return Next::Samples;
            }
            match frames.end().min(until).saturating_sub(first) {
                0 => self.span = None,
                count => return Next::Window(first, count),
            }
        }
    }

    /// The first frame of the window that is next.
    pub(super) fn first(&self) -> usize {
        self.span.map_or(0, |(first, _)| first)
    }

    /// What the last window says after its last segment.
    pub(super) fn rest(&self) -> &[u32] {
        &self.rest
    }

    /// Takes the text of a window, and goes on to the next one. Returns its segments.
    fn accept(
        &mut self,
        window: &Window,
        options: &TranscribeOptions,
        prompt: &Prompt,
    ) -> Vec<Part> {
        let (first, count) = (window.first_frame, window.frames);
        let silent = window.attempts == 0;
        let (parts, advance) = match window.skipped {
            true => (Vec::new(), count),
            false => split(&window.tokens, prompt, first, count),
        };
        if options.condition_on_previous_text && !silent {
            self.condition = window.temperature < LOW_TEMPERATURE;
            for part in &parts {
                let tokens = &window.tokens[part.tokens.clone()];
                let time =
                    |at: usize| tokens.get(at).is_some_and(|&id| prompt.timestamp(id).is_some());
                // The second of two timestamps at the end begins the next segment.
                let twice = tokens.len() > 2 && time(tokens.len() - 2);
                self.earlier.extend_from_slice(&tokens[..tokens.len() - usize::from(twice)]);
                self.said = true;
            }
            self.earlier.drain(..self.earlier.len().saturating_sub(prompt.positions));
        }
        self.rest.clear();
        if advance < count {
            let said = parts.last().map_or(0, |part| part.tokens.end);
            self.rest.extend_from_slice(&window.tokens[said..]);
        }
        self.span = self.span.map(|(_, end)| (first + advance.max(1), end));
        self.windows += 1;
        parts
    }
}

impl Transcriber {
    /// Transcribes window by window.
    pub(super) fn sequential(
        &self,
        mut frames: Frames,
        source: &mut dyn SampleSource,
        spans: Spans<'_>,
        on_event: OnEvent<'_>,
    ) -> Result<RecordingSummary, Error> {
        let mut sequence = Sequence::new(spans, &self.options, &self.prompt);
        loop {
            match sequence.next(&mut frames, self.extractor.frames()) {
                Next::Samples => frames.read_block(&self.extractor, source)?,
                Next::Window(first, count) => {
                    if self.advance(&mut sequence, &mut frames, (first, count), on_event)? {
                        break;
                    }
                }
                Next::End => {
                    frames.skip_to(&self.extractor, source, usize::MAX)?;
                    break;
                }
            }
        }
        Ok(self.summary(&sequence, &frames))
    }

    pub(super) fn summary(&self, sequence: &Sequence<'_>, frames: &Frames) -> RecordingSummary {
        RecordingSummary {
            duration: frames.read_samples() as f64 / f64::from(self.extractor.rate()),
            language: sequence.spoken.and_then(|id| self.prompt.name(id)),
            windows: sequence.windows,
            incomplete: None,
        }
    }

    /// Decodes the next window of a sequence and reports it. Returns whether the caller ends the transcription.
    pub(super) fn advance(
        &self,
        sequence: &mut Sequence<'_>,
        frames: &mut Frames,
        window: (usize, usize),
        on_event: OnEvent<'_>,
    ) -> Result<bool, Error> {
        let (window, language) = self.decode(sequence, frames, window, None)?;
        sequence.language = language;
        sequence.spoken = sequence.spoken.or(language);
        let index = sequence.windows;
        let parts = sequence.accept(&window, &self.options, &self.prompt);
        let report_of = (index, &window, &parts[..]);
        Ok(report(report_of, &self.prompt, &self.tokenizer, on_event))
    }

    /// Decodes the frames of a window with what the sequence has so far, and returns its language, too. `other`: options that
    /// differ only in the attempts and their checks.
    pub(super) fn decode(
        &self,
        sequence: &Sequence<'_>,
        frames: &mut Frames,
        (first, count): (usize, usize),
        other: Option<&TranscribeOptions>,
    ) -> Result<(Window, Option<u32>), Error> {
        let Self { options, prompt, decoder, tokenizer, .. } = self;
        let options = other.unwrap_or(options);
        let mut window = Window::silent(first, count);
        if !options.decodes_silence() && frames.are_silent(first, count) {
            return Ok((window, sequence.language));
        }
        let earlier = (sequence.condition && sequence.said).then_some(&sequence.earlier[..]);
        let task = Task { options, prompt, tokenizer, earlier };
        let detects = options.detect_each_window && prompt.to_detect().is_some();
        let language = sequence.language.filter(|_| !detects);
        let mut one = Some((first, count));
        let mut next = |features: &mut [f32]| {
            frames.window(first, count, features);
            Ok(one.take())
        };
        let language = decoder.decode_windows(&task, language, &mut next, &mut |_, decoded| {
            window = decoded;
            ControlFlow::Continue(())
        })?;
        Ok((window, language))
    }
}
