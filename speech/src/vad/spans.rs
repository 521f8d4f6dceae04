//! From probabilities to spans of speech.

use super::detector::{CHUNK, SpeechDetector};
use crate::error::Error;
use std::collections::VecDeque;

/// Seconds of a chunk.
const SECONDS: f64 = CHUNK as f64 / SpeechDetector::RATE as f64;
/// A span that becomes too long is cut at a pause of this length, if it has one; as in Silero's own rule.
const CUT: f64 = 0.098;

/// Which chunks are speech, and how they become spans. The names are those of faster-whisper's `VadOptions`, in seconds.
#[derive(Clone, Debug, PartialEq)]
#[non_exhaustive]
pub struct VadOptions {
    /// Speech begins at a chunk of at least this probability (0.5).
    pub threshold: f32,
    /// Speech ends at a chunk below this probability; `None` is the threshold less 0.15, at least 0.01.
    pub neg_threshold: Option<f32>,
    /// Spans of at most this length are dropped (0).
    pub min_speech: f64,
    /// The shortest pause between two spans (2).
    pub min_silence: f64,
    /// What is added at both ends of a span; in a shorter pause, half of it (0.4).
    pub speech_pad: f64,
    /// A longer span is cut at its last pause of at least 0.1 s, or else at this length (infinity).
    pub max_speech: f64,
}

impl Default for VadOptions {
    fn default() -> Self {
        Self {
            threshold: 0.5,
            neg_threshold: None,
            min_speech: 0.0,
            min_silence: 2.0,
            speech_pad: 0.4,
            max_speech: f64::INFINITY,
        }
    }
}

impl VadOptions {
    /// Checks the options.
    ///
    /// # Errors
    /// A threshold is not from 0 to 1, or a length is negative, or one chunk and its padding are longer than `max_speech`.
    pub fn check(&self) -> Result<(), Error> {
        let probability = |what, found: f32| match (0.0..=1.0).contains(&found) {
            true => Ok(()),
            false => Err(Error::invalid_option(what, "0 to 1", found)),
        };
        probability("the threshold of speech", self.threshold)?;
        probability("the threshold of the end of speech", self.negative())?;
        for (what, found) in [
            ("the shortest speech", self.min_speech),
            ("the shortest pause", self.min_silence),
            ("the padding of speech", self.speech_pad),
        ] {
            if !(found >= 0.0 && found.is_finite()) {
                return Err(Error::invalid_option(what, "a number of seconds from 0 on", found));
            }
        }
        if self.max_speech.is_nan() || self.longest() < SECONDS {
            let expected =
                format!("more than {:.2} s, its padding", 2.0 * self.speech_pad + 2.0 * SECONDS);
            return Err(Error::invalid_option("the longest speech", expected, self.max_speech));
        }
        Ok(())
    }

    fn negative(&self) -> f32 {
        self.neg_threshold.unwrap_or((self.threshold - 0.15).max(0.01))
    }

    /// The longest span before it is padded.
    fn longest(&self) -> f64 {
        self.max_speech - SECONDS - 2.0 * self.speech_pad
    }
}

/// Finds the spans of speech in a stream of samples: those that faster-whisper finds, and as early as they are final.
///
/// ```
/// use simdformer_speech::vad::{SpeechDetector, SpeechFinder, VadOptions};
///
/// # fn main() -> Result<(), Box<dyn std::error::Error>> {
/// let mut finder = SpeechFinder::new(SpeechDetector::new()?, VadOptions::default())?;
/// finder.push(&[0.0; 16_000])?;
/// finder.finish()?;
/// assert_eq!(finder.next_span(), None); // silence
/// # Ok(()) }
/// ```
#[derive(Clone, Debug)]
pub struct SpeechFinder {
    detector: SpeechDetector,
    rule: Rule,
    /// Samples so far.
    samples: u64,
}

impl SpeechFinder {
    /// Begins with a detector at the start of a recording.
    ///
    /// # Errors
    /// As [`VadOptions::check`].
    pub fn new(mut detector: SpeechDetector, options: VadOptions) -> Result<Self, Error> {
        options.check()?;
        detector.reset();
        Ok(Self { detector, rule: Rule::new(options), samples: 0 })
    }

    /// Takes the next samples, one channel at 16 kHz.
    ///
    /// # Errors
    /// A sample is not finite.
    pub fn push(&mut self, samples: &[f32]) -> Result<(), Error> {
        let Self { detector, rule, samples: count, .. } = self;
        *count += samples.len() as u64;
        detector.push(samples, &mut |probability| rule.chunk(probability))
    }

    /// Ends the recording: all spans are final.
    ///
    /// # Errors
    /// None.
    pub fn finish(&mut self) -> Result<(), Error> {
        let Self { detector, rule, samples, .. } = self;
        detector.finish(&mut |probability| rule.chunk(probability))?;
        rule.finish(*samples as f64 / f64::from(SpeechDetector::RATE));
        Ok(())
    }

    /// The next span that is final: its start and its end, in seconds of the recording.
    pub fn next_span(&mut self) -> Option<(f64, f64)> {
        self.rule.ready.pop_front()
    }

    /// The time before which all spans are known, in seconds: those that [`next_span`](Self::next_span) returns later begin
    /// after it. Infinite after [`finish`](Self::finish).
    #[must_use]
    pub fn known_until(&self) -> f64 {
        self.rule.known_until()
    }
}

/// faster-whisper's `get_speech_timestamps`, one chunk at a time.
#[derive(Clone, Debug)]
struct Rule {
    options: VadOptions,
    /// Chunks so far.
    chunks: u64,
    /// Where speech began, if it has not ended.
    start: Option<f64>,
    /// Where a pause began that may end it.
    pause: Option<f64>,
    /// The last pause at which a long span may be cut, and where the speech after it began.
    cut: Option<f64>,
    after_cut: Option<f64>,
    /// A span with its padding at the start, and without that at its end.
    last: Option<(f64, f64)>,
    ready: VecDeque<(f64, f64)>,
    ended: bool,
}

impl Rule {
    fn new(options: VadOptions) -> Self {
        Self {
            options,
            chunks: 0,
            start: None,
            pause: None,
            cut: None,
            after_cut: None,
            last: None,
            ready: VecDeque::new(),
            ended: false,
        }
    }

    fn chunk(&mut self, probability: f32) {
        let (options, now) = (&self.options, self.chunks as f64 * SECONDS);
        self.chunks += 1;
        let speaks = probability >= options.threshold;
        if speaks && self.pause.take().is_some() && self.cut.is_some() {
            self.after_cut.get_or_insert(now);
        }
        let Some(start) = self.start else {
            if speaks {
                self.start = Some(now);
            } else if let Some((start, end)) = self.last
                && now - end >= 2.0 * options.speech_pad
            {
                self.ready.push_back((start, end + options.speech_pad));
                self.last = None;
            }
            return;
        };
        if now - start > options.longest() {
            match self.cut {
                Some(cut) => {
                    let after = self.after_cut;
                    self.end(start, cut);
                    self.start = after;
                    if after.is_none() {
                        return;
                    }
                }
                None => {
                    self.end(start, now);
                    return;
                }
            }
        }
        if probability < self.options.negative() {
            let pause = *self.pause.get_or_insert(now);
            if now - pause > CUT {
                self.cut = Some(pause);
                self.after_cut = None;
            }
            if now - pause >= self.options.min_silence
                && let Some(start) = self.start
            {
                // A span that ends in its own pause needs a check of its length.
                if pause - start > self.options.min_speech {
                    self.end(start, pause);
                } else {
                    self.forget();
                }
            }
        }
    }

    /// Ends a span, and the one before it with what the pause between them gives it.
    fn end(&mut self, start: f64, end: f64) {
        let pad = self.options.speech_pad;
        let mut before = pad;
        if let Some((first, last)) = self.last.take() {
            let silence = start - last;
            let half = if silence < 2.0 * pad { silence / 2.0 } else { pad };
            self.ready.push_back((first, last + half));
            before = half;
        }
        self.last = Some(((start - before).max(0.0), end));
        self.forget();
    }

    fn forget(&mut self) {
        (self.start, self.pause, self.cut, self.after_cut) = (None, None, None, None);
    }

    fn finish(&mut self, seconds: f64) {
        if let Some(start) = self.start
            && seconds - start > self.options.min_speech
        {
            self.end(start, seconds);
        }
        self.forget();
        if let Some((start, end)) = self.last.take() {
            self.ready.push_back((start, (end + self.options.speech_pad).min(seconds)));
        }
        self.ended = true;
    }

    fn known_until(&self) -> f64 {
        if self.ended {
            return f64::INFINITY;
        }
        // A span that is not final begins at most the padding before it.
        let now = self.chunks as f64 * SECONDS;
        let first = self.last.map(|(start, _)| start);
        let speech = self.start.unwrap_or(now) - self.options.speech_pad;
        first.unwrap_or(speech).max(0.0)
    }
}
