//! Windows that follow each other: the next one begins where the last segment ends.

use super::error::TranscribeError;
use super::frames::Frames;
use super::samples::SampleSource;
use super::segments::split;
use super::transcriber::{OnEvent, Spans, Transcriber, report};
use super::transcription::{RecordingSummary, Window};
use super::window_decoder::{EncodedWindow, Task, WindowDecoder};
use simdformer::{Features, SessionError};

/// Above this temperature a text is too uncertain to be the prompt of the next window; as in transformers.
const LOW_TEMPERATURE: f64 = 0.5;

impl Transcriber<'_> {
    /// Transcribes window by window.
    pub(super) fn sequential(
        &mut self,
        mut frames: Frames,
        source: &mut dyn SampleSource,
        mut spans: Spans<'_>,
        on_event: OnEvent<'_>,
    ) -> Result<RecordingSummary, TranscribeError> {
        let Self { extractor, options, prompt, decoder, features, tokenizer, .. } = self;
        let decoder = decoder.as_mut().ok_or(SessionError::NoDecoder)?;
        let bins = extractor.bins();
        let mut language = prompt.language;
        let mut earlier = prompt.initial().to_vec();
        let mut condition = options.condition_on_previous_text;
        let (mut said, mut stopped) = (false, false);
        let mut summary = RecordingSummary::default();
        'spans: while let Some((mut seek, end)) = spans.next() {
            if !frames.skip_to(extractor, source, seek)? {
                break;
            }
            loop {
                let until = seek.saturating_add(extractor.frames()).min(end);
                let count = frames.read(extractor, source, until)?.saturating_sub(seek);
                if count == 0 {
                    break;
                }
                frames.forget_before(seek);
                if !options.decodes_silence() && frames.are_silent(seek, count) {
                    let window = Window::silent(seek, count);
                    let reported = (summary.windows, &window, &[][..]);
                    summary.windows += 1;
                    if report(reported, None, prompt, tokenizer, on_event) {
                        stopped = true;
                        break 'spans;
                    }
                    seek += count;
                    continue;
                }
                frames.window(seek, count, features);
                let session = decoder.cleared();
                let encoded = WindowDecoder::encode(session, Features::new(features, bins))?;
                if let (None, Some(known)) = (language, prompt.to_detect()) {
                    language = Some(session.detect_language(encoded, prompt.start, known)?);
                    if !stopped {
                        frames.skip_to(extractor, source, usize::MAX)?;
                    }
                    summary.language = language.and_then(|id| prompt.name(id));
                }
                let (tokens, start) =
                    prompt.tokens((condition && said).then_some(&earlier[..]), language);
                let task = Task { options, prompt, tokenizer, tokens: &tokens, start };
                let first = EncodedWindow { source: encoded, first: seek, frames: count };
                let mut decoded = None;
                decoder.run(&task, Some(first), &mut |_| Ok(None), &mut |window| {
                    decoded = Some(window);
                    Ok(())
                })?;
                let Some(window) = decoded else { break };
                condition =
                    options.condition_on_previous_text && window.temperature < LOW_TEMPERATURE;
                let (parts, advance) = match window.skipped {
                    true => (Vec::new(), count),
                    false => split(&window.tokens, prompt, seek, count),
                };
                if options.condition_on_previous_text {
                    for part in &parts {
                        let tokens = &window.tokens[part.tokens.clone()];
                        let time = |at: usize| {
                            tokens.get(at).is_some_and(|&id| prompt.timestamp(id).is_some())
                        };
                        // The second of two timestamps at the end begins the next segment.
                        let twice = tokens.len() > 2 && time(tokens.len() - 2);
                        earlier.extend_from_slice(&tokens[..tokens.len() - usize::from(twice)]);
                        said = true;
                    }
                    earlier.drain(..earlier.len().saturating_sub(prompt.positions));
                }
                let name = language.and_then(|id| prompt.name(id));
                let reported = (summary.windows, &window, &parts[..]);
                summary.windows += 1;
                if report(reported, name.as_deref(), prompt, tokenizer, on_event) {
                    stopped = true;
                    break 'spans;
                }
                seek += advance.max(1);
            }
        }
        if !stopped {
            frames.skip_to(extractor, source, usize::MAX)?;
        }
        summary.language = language.and_then(|id| prompt.name(id));
        summary.duration = frames.read_samples() as f64 / f64::from(extractor.rate());
        Ok(summary)
    }
}
