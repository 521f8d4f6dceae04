//! Windows that do not depend on each other: spans of speech, packed and cut at pauses, many decoded at a time.

use super::error::TranscribeError;
use super::frames::Frames;
use super::samples::SampleSource;
use super::segments::split_all;
use super::transcriber::{OnEvent, Spans, Transcriber, report};
use super::transcription::{RecordingSummary, Window};
use super::window_decoder::{EncodedWindow, Task, WindowDecoder, WindowSession};
use crate::audio::FeatureExtractor;
use core::cell::Cell;
use simdformer::{Features, SessionError};
use std::collections::BTreeMap;

/// The part of a full window in which its end is looked for: the last third.
const LATEST_CUT: usize = 3;

/// The windows of a recording, in order.
struct Cutter<'s> {
    spans: Spans<'s>,
    /// What is left of a span.
    rest: Option<(usize, usize)>,
}

impl Cutter<'_> {
    /// The first frame and the number of frames of the next window, which has been read.
    fn next(
        &mut self,
        frames: &mut Frames,
        (extractor, source): (&FeatureExtractor, &mut dyn SampleSource),
        longest: usize,
    ) -> Result<Option<(usize, usize)>, TranscribeError> {
        let all = (usize::MAX, usize::MAX);
        let Some((first, mut end)) = (match self.rest.take() {
            None => self.spans.next(frames, (extractor, &mut *source), all)?,
            rest => rest,
        }) else {
            return Ok(None);
        };
        frames.skip_to(extractor, source, first)?;
        let limit = first.saturating_add(longest);
        // Whole spans, as many as fit.
        while end <= limit {
            match self.spans.next(frames, (extractor, &mut *source), (first, limit))? {
                Some((_, next_end)) if next_end <= limit => end = next_end,
                rest => {
                    self.rest = rest;
                    break;
                }
            }
        }
        let known = frames.read(extractor, source, end.min(limit))?;
        if known <= first {
            // The recording ends before this span, and so before all later ones.
            return Ok(None);
        }
        if end > limit && known == limit {
            // A longer span is cut where it is quietest.
            let cut = frames.quietest(limit - longest / LATEST_CUT, limit);
            self.rest = Some((cut, end));
            return Ok(Some((first, cut - first)));
        }
        Ok(Some((first, known.min(end) - first)))
    }
}

impl Transcriber<'_> {
    /// Transcribes many windows at a time.
    pub(super) fn batched(
        &mut self,
        mut frames: Frames,
        source: &mut dyn SampleSource,
        spans: Spans<'_>,
        on_event: OnEvent<'_>,
    ) -> Result<RecordingSummary, TranscribeError> {
        let Self { extractor, options, prompt, decoder, features, tokenizer, .. } = self;
        let decoder = decoder.as_mut().ok_or(SessionError::NoDecoder)?;
        let (bins, longest) = (extractor.bins(), extractor.frames());
        let skips = !options.decodes_silence();
        let mut cutter = Cutter { spans, rest: None };
        let mut encoded = 0;
        let mut encode = |session: &mut WindowSession<'_>| {
            let (first, count) = loop {
                match cutter.next(&mut frames, (extractor, &mut *source), longest)? {
                    None => return Ok(None),
                    Some((first, count)) if skips && frames.are_silent(first, count) => continue,
                    Some(window) => break window,
                }
            };
            frames.window(first, count, features);
            let source = WindowDecoder::encode(session, Features::new(features, bins))?;
            let language = match prompt.to_detect() {
                Some(known) if options.detect_each_window => {
                    Some(session.detect_language(source, prompt.start, known)?)
                }
                _ => None,
            };
            let window = EncodedWindow { source, number: encoded, first, frames: count, language };
            encoded += 1;
            Ok::<_, TranscribeError>(Some(window))
        };
        let mut language = prompt.language;
        let session = decoder.cleared();
        let first = encode(session)?;
        if let (Some(window), None, Some(known)) = (&first, language, prompt.to_detect()) {
            language = match window.language {
                None => Some(session.detect_language(window.source, prompt.start, known)?),
                found => found,
            };
        }
        let name = language.and_then(|id| prompt.name(id));
        let (tokens, start) = prompt.tokens(None, language);
        let task = Task { options, prompt, tokenizer, tokens: &tokens, start };
        // The windows that are decoded before one that precedes them.
        let mut decoded = BTreeMap::new();
        let stopped = Cell::new(false);
        let mut reported = 0;
        decoder.run(
            &task,
            first,
            &mut |session| {
                if stopped.get() { Ok(None) } else { encode(session) }
            },
            &mut |number, window: Window| {
                decoded.insert(number, window);
                while !stopped.get()
                    && let Some(window) = decoded.remove(&reported)
                {
                    let parts = match window.skipped {
                        true => Vec::new(),
                        false => {
                            split_all(&window.tokens, prompt, window.first_frame, window.frames)
                        }
                    };
                    let report_of = (reported, &window, &parts[..]);
                    reported += 1;
                    stopped.set(report(report_of, prompt, tokenizer, on_event));
                }
                Ok(())
            },
        )?;
        if !stopped.get() {
            frames.skip_to(extractor, source, usize::MAX)?;
        }
        let duration = frames.read_samples() as f64 / f64::from(extractor.rate());
        Ok(RecordingSummary { duration, language: name, windows: reported, incomplete: None })
    }
}
