//! The frames of a recording that is read in order: all frames of a short one, or those that are still needed, in memory
//! that does not grow with the length.

use super::options::MINUTE;
use super::samples::SampleSource;
use super::segments::FRAME;
use crate::FeatureExtractor;
use crate::error::Error;
use crate::features::{FrameTransform, HOP, Loudest, REACH, scaled};
use crate::vad::SpeechFinder;
use core::task::Poll;

/// The `log10` of power below which there is no sound: noise of one unit of 16 bits has about -8.5, quiet speech -4.
const SILENCE: f32 = -7.0;
/// Samples that are read at a time.
pub(super) const BLOCK: usize = 16_000;

/// The frames of a span in seconds: those that have some of it.
pub(super) fn frames_of((start, end): (f64, f64)) -> (usize, usize) {
    let first = (start / FRAME).floor() as usize;
    (first, if start < end { (end / FRAME).ceil() as usize } else { first })
}

/// Frames of `log10` of the power in mel bins, from the first one that is still needed, or an earlier one. A recording of `n` samples has
/// `n / 160` frames, and is mirrored at its first and at its last sample.
pub(super) struct Frames {
    transform: FrameTransform,
    bins: usize,
    /// Samples from index `first_sample` on.
    samples: Vec<f32>,
    first_sample: usize,
    /// Whether there are no further samples.
    ended: bool,
    /// Frames from index `first_frame` on.
    frames: Vec<f32>,
    first_frame: usize,
    /// The largest value of all frames before `maximum_end`.
    maximum: f32,
    maximum_end: usize,
    /// The largest value of the whole recording, if the caller knows it.
    known: Option<f32>,
    /// In a pass that looks for the largest value only: that of the frames so far. No further frame is kept then.
    loudest: Option<Loudest>,
    /// Finds the spans of speech of what is read.
    finder: Option<SpeechFinder>,
    /// A span that was found but is not yet asked for.
    span: Option<(usize, usize)>,
}

impl Frames {
    pub(super) fn new(
        extractor: &FeatureExtractor,
        known: Option<f32>,
        finder: Option<SpeechFinder>,
    ) -> Self {
        Self {
            transform: FrameTransform::new(extractor),
            bins: extractor.bins(),
            samples: Vec::new(),
            first_sample: 0,
            ended: false,
            frames: Vec::new(),
            first_frame: 0,
            maximum: f32::NEG_INFINITY,
            maximum_end: 0,
            known,
            loudest: None,
            finder,
            span: None,
        }
    }

    /// The number of frames known so far; all of them once the source has ended.
    pub(super) fn end(&self) -> usize {
        self.first_frame + self.frames.len() / self.bins
    }

    /// The number of samples read.
    pub(super) fn read_samples(&self) -> usize {
        self.first_sample + self.samples.len()
    }

    /// The largest value so far.
    pub(super) fn maximum(&self) -> f32 {
        self.maximum
    }

    /// Whether all frames are known.
    pub(super) fn ended(&self) -> bool {
        self.ended
    }

    /// Reads until there are `until` frames, or the source ends. Returns the number of frames, at most `until`.
    pub(super) fn read_until(
        &mut self,
        extractor: &FeatureExtractor,
        source: &mut dyn SampleSource,
        until: usize,
    ) -> Result<usize, Error> {
        while self.end() < until && !self.ended {
            self.read_block(extractor, source)?;
        }
        Ok(self.end().min(until))
    }

    /// Reads some samples, and computes the frames that they complete.
    pub(super) fn read_block(
        &mut self,
        extractor: &FeatureExtractor,
        source: &mut dyn SampleSource,
    ) -> Result<(), Error> {
        let at = self.samples.len();
        self.samples.resize(at + BLOCK, 0.0);
        let read = source.read(&mut self.samples[at..]);
        let count = *read.as_ref().unwrap_or(&0);
        self.samples.truncate(at + count);
        read?;
        check_finite(&self.samples[at..], self.first_sample + at)?;
        self.accept(extractor, at, count < BLOCK)
    }

    /// Appends samples, which [`check_finite`] has seen, and computes the frames that they complete; at the end of the
    /// recording also those that are mirrored at its last sample.
    pub(super) fn push(
        &mut self,
        extractor: &FeatureExtractor,
        samples: &[f32],
        ended: bool,
    ) -> Result<(), Error> {
        let at = self.samples.len();
        self.samples.extend_from_slice(samples);
        self.accept(extractor, at, ended)
    }

    /// Takes the samples from index `at` of the buffer on.
    fn accept(
        &mut self,
        extractor: &FeatureExtractor,
        at: usize,
        ended: bool,
    ) -> Result<(), Error> {
        self.ended = ended;
        if let Some(finder) = &mut self.finder {
            finder.push(&self.samples[at..])?;
            if ended {
                finder.finish()?;
            }
        }
        self.transform(extractor)
    }

    /// Computes all frames whose samples are known.
    fn transform(&mut self, extractor: &FeatureExtractor) -> Result<(), Error> {
        let known = self.read_samples();
        let end = if self.ended { known / HOP } else { known.saturating_sub(REACH).div_ceil(HOP) };
        let (samples, first, last) = (&self.samples, self.first_sample, known.saturating_sub(1));
        let sample = |i: isize| {
            let i = i.unsigned_abs();
            let i = if i > last { (2 * last).saturating_sub(i) } else { i };
            i.checked_sub(first).and_then(|i| samples.get(i)).copied().unwrap_or(0.0)
        };
        let begin = self.first_frame + self.frames.len() / self.bins;
        for frame in begin..end {
            if let Some(loudest) = &mut self.loudest {
                self.transform.raise(extractor, frame, sample, loudest)?;
                self.first_frame = frame + 1;
                continue;
            }
            let at = self.frames.len();
            if self.frames.capacity() < at + self.bins {
                // Doubling all frames of a recording would take twice the memory.
                self.frames.reserve_exact(at.clamp(self.bins, MINUTE / HOP * self.bins));
            }
            self.frames.resize(at + self.bins, 0.0);
            self.transform.frame(extractor, frame, sample, &mut self.frames[at..])?;
        }
        // The next frame needs samples before its middle, and a mirrored one as many before the end.
        let needed = (begin.max(end) * HOP).saturating_sub(2 * REACH).min(known);
        if needed > self.first_sample + 4 * BLOCK {
            self.samples.drain(..needed - self.first_sample);
            self.first_sample = needed;
        }
        Ok(())
    }

    /// Reads up to frame `first` and forgets the frames before it. Returns false if the source ends before it.
    pub(super) fn skip_to(
        &mut self,
        extractor: &FeatureExtractor,
        source: &mut dyn SampleSource,
        first: usize,
    ) -> Result<bool, Error> {
        loop {
            let until = first.min(self.end() + BLOCK / HOP);
            let end = self.read_until(extractor, source, until)?;
            self.forget_before(end);
            if end < until || end == first {
                return Ok(end == first);
            }
        }
    }

    /// The first and the last frame of the next span of speech, if it begins at frame `limit` at the latest. `Pending` if that
    /// is not known yet: then forgets the frames before `keep` that no span needs.
    pub(super) fn poll_span(
        &mut self,
        (keep, limit): (usize, usize),
    ) -> Poll<Option<(usize, usize)>> {
        let Some(finder) = &mut self.finder else { return Poll::Ready(None) };
        let span = self.span.take().or_else(|| finder.next_span().map(frames_of));
        if span.is_some_and(|(first, _)| first > limit) {
            self.span = span;
            return Poll::Ready(None);
        }
        let known = (finder.known_until() / FRAME).floor() as usize;
        if span.is_some() || self.ended || known > limit {
            return Poll::Ready(span);
        }
        self.forget_before(keep.min(known));
        Poll::Pending
    }

    /// Whether `count` frames from `first` on have no sound but the rounding of their samples.
    pub(super) fn are_silent(&self, first: usize, count: usize) -> bool {
        let from = (first.saturating_sub(self.first_frame) * self.bins).min(self.frames.len());
        let to = (from + count * self.bins).min(self.frames.len());
        self.frames[from..to].iter().all(|&value| value < SILENCE)
    }

    /// The frame from `first` to `end` around which there is least power.
    pub(super) fn quietest(&self, first: usize, end: usize) -> usize {
        const AROUND: usize = 10;
        let power = |frame: usize| {
            let at = frame.saturating_sub(self.first_frame) * self.bins;
            let values = self.frames.get(at..at + self.bins).unwrap_or(&[]);
            values.iter().copied().map(f64::from).sum::<f64>()
        };
        let around = |frame: usize| {
            let near = frame.saturating_sub(AROUND)..frame + AROUND;
            near.map(power).sum::<f64>()
        };
        let inside = first + AROUND..end.saturating_sub(AROUND);
        inside.min_by(|&a, &b| around(a).total_cmp(&around(b))).unwrap_or(end)
    }

    /// The frames before `first`, which must have been read, are not needed any more.
    pub(super) fn forget_before(&mut self, first: usize) {
        // The running maximum must have seen them.
        self.update_maximum(first);
        let first = first.clamp(self.first_frame, self.end());
        // They are removed when they are at least half of all, so that no more frames are moved than removed.
        if first - self.first_frame >= self.end() - first {
            self.frames.drain(..(first - self.first_frame) * self.bins);
            self.first_frame = first;
        }
    }

    /// Writes `count` frames from `first` on to `out`, `[frames, bins]`, in the scale of the model's input, and zeros
    /// after them, as transformers pads a last window.
    pub(super) fn window(&mut self, first: usize, count: usize, out: &mut [f32]) {
        self.update_maximum(first + count);
        let largest = self.known.unwrap_or(self.maximum);
        let from = (first.saturating_sub(self.first_frame) * self.bins).min(self.frames.len());
        let to = (from + count * self.bins).min(self.frames.len());
        let values = self.frames[from..to].iter().map(|&value| scaled(value, largest));
        let zeros = core::iter::repeat(0.0);
        out.iter_mut().zip(values.chain(zeros)).for_each(|(out, value)| *out = value);
    }

    fn update_maximum(&mut self, end: usize) {
        let end = end.min(self.end());
        if end > self.maximum_end {
            let from = self.maximum_end.saturating_sub(self.first_frame) * self.bins;
            let new = &self.frames[from..(end - self.first_frame) * self.bins];
            self.maximum = new.iter().copied().fold(self.maximum, f32::max);
            self.maximum_end = end;
        }
    }

    /// Reads a recording to its end. Keeps the frames if it has at most `most` samples.
    pub(super) fn first_pass(
        extractor: &FeatureExtractor,
        source: &mut dyn SampleSource,
        finder: Option<SpeechFinder>,
        most: usize,
    ) -> Result<FirstPass, Error> {
        let mut frames = Self::new(extractor, None, finder);
        while !frames.ended && frames.read_samples() <= most {
            frames.read_block(extractor, source)?;
        }
        let end = frames.end();
        frames.update_maximum(end);
        if frames.read_samples() <= most {
            return Ok(FirstPass::All(Box::new(frames)));
        }
        (frames.finder, frames.frames, frames.first_frame) = (None, Vec::new(), end);
        frames.loudest = Some(Loudest::from_value(frames.maximum));
        while !frames.ended {
            frames.read_block(extractor, source)?;
        }
        Ok(FirstPass::Maximum(frames.loudest.map_or(frames.maximum, |loudest| loudest.value)))
    }
}

/// What a first pass over a recording finds.
pub(super) enum FirstPass {
    /// All frames.
    All(Box<Frames>),
    /// Of a long recording the largest value of all frames.
    Maximum(f32),
}

/// Checks samples, the first of which has index `first` in the recording.
pub(super) fn check_finite(samples: &[f32], first: usize) -> Result<(), Error> {
    match samples.iter().position(|sample| !sample.is_finite()) {
        None => Ok(()),
        Some(i) => {
            let what = format!("sample {}", first + i);
            Err(Error::corrupt(what, "a finite number", samples[i]))
        }
    }
}
