//! Windows that do not depend on each other: spans of speech, packed and cut at pauses, many decoded at a time.

use super::frames::Frames;
use super::samples::SampleSource;
use super::segments::split_all;
use super::transcriber::{OnEvent, Spans, Transcriber, report};
use super::transcription::{RecordingSummary, Window};
use super::window_decoder::Task;
use crate::FeatureExtractor;
use crate::error::Error;
use core::ops::ControlFlow;
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
    ) -> Result<Option<(usize, usize)>, Error> {
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
        let known = frames.read_until(extractor, source, end.min(limit))?;
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

impl Transcriber {
    /// Transcribes many windows at a time.
    pub(super) fn batched(
        &self,
        mut frames: Frames,
        source: &mut dyn SampleSource,
        spans: Spans<'_>,
        on_event: OnEvent<'_>,
    ) -> Result<RecordingSummary, Error> {
        let Self { extractor, options, prompt, decoder, tokenizer, .. } = self;
        let longest = extractor.frames();
        let skips = !options.decodes_silence();
        let mut cutter = Cutter { spans, rest: None };
        let mut next = |features: &mut [f32]| {
            loop {
                match cutter.next(&mut frames, (extractor, &mut *source), longest)? {
                    None => return Ok(None),
                    Some((first, count)) if skips && frames.are_silent(first, count) => continue,
                    Some((first, count)) => {
                        frames.window(first, count, features);
                        return Ok(Some((first, count)));
                    }
                }
            }
        };
        // The windows that are decoded before one that precedes them.
        let mut decoded = BTreeMap::new();
        let (mut reported, mut stopped) = (0, false);
        let mut done = |number, window: Window| {
            decoded.insert(number, window);
            while let Some(window) = decoded.remove(&reported) {
                let parts = match window.skipped {
                    true => Vec::new(),
                    false => split_all(&window.tokens, prompt, window.first_frame, window.frames),
                };
                let report_of = (reported, &window, &parts[..]);
                reported += 1;
                if report(report_of, prompt, tokenizer, on_event) {
                    stopped = true;
                    return ControlFlow::Break(());
                }
            }
            ControlFlow::Continue(())
        };
        let task = Task { options, prompt, tokenizer, earlier: None };
        let language = decoder.decode_windows(&task, prompt.language, &mut next, &mut done)?;
        let name = language.and_then(|id| prompt.name(id));
        if !stopped {
            frames.skip_to(extractor, source, usize::MAX)?;
        }
        let duration = frames.read_samples() as f64 / f64::from(extractor.rate());
        Ok(RecordingSummary { duration, language: name, windows: reported, incomplete: None })
    }
}
