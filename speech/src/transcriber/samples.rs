//! Where the samples of a recording come from.

use crate::error::Error;
use crate::{AudioReader, Incomplete, Wav};
use simdformer::Cancel;
use std::io::Read;

/// Samples of one channel at the rate of the model (16 kHz), which are read in order and once.
pub trait SampleSource {
    /// Writes the next samples to `out` and returns their number, which is less than `out.len()` only at the end.
    ///
    /// # Errors
    /// The recording cannot be read on.
    fn read(&mut self, out: &mut [f32]) -> Result<usize, Error>;

    /// Where sound of the recording is missing, among what was read: see [`RecordingSummary::incomplete`].
    ///
    /// [`RecordingSummary::incomplete`]: super::RecordingSummary::incomplete
    fn incomplete(&self) -> Option<&Incomplete> {
        None
    }
}

/// All samples; what was read is cut off.
impl SampleSource for &[f32] {
    fn read(&mut self, out: &mut [f32]) -> Result<usize, Error> {
        let (now, rest) = self.split_at(out.len().min(self.len()));
        out[..now.len()].copy_from_slice(now);
        *self = rest;
        Ok(now.len())
    }
}

/// A file at the rate of the model: see [`FeatureExtractor::takes`](crate::FeatureExtractor::takes).
impl<R: Read> SampleSource for Wav<R> {
    fn read(&mut self, out: &mut [f32]) -> Result<usize, Error> {
        self.read_present(out)
    }

    fn incomplete(&self) -> Option<&Incomplete> {
        Wav::incomplete(self)
    }
}

/// A file or a pipe of any format and rate.
impl SampleSource for AudioReader<'_> {
    fn read(&mut self, out: &mut [f32]) -> Result<usize, Error> {
        self.read_present(out)
    }

    fn incomplete(&self) -> Option<&Incomplete> {
        AudioReader::incomplete(self)
    }
}

impl<S: SampleSource + ?Sized> SampleSource for &mut S {
    fn read(&mut self, out: &mut [f32]) -> Result<usize, Error> {
        (**self).read(out)
    }

    fn incomplete(&self) -> Option<&Incomplete> {
        (**self).incomplete()
    }
}

/// A source that ends with an error when a flag is set. What reads it asks for a bounded number of samples at a time.
pub(super) struct Cancellable<'c, S> {
    pub(super) source: S,
    pub(super) cancel: &'c Cancel,
}

impl<S: SampleSource> SampleSource for Cancellable<'_, S> {
    fn read(&mut self, out: &mut [f32]) -> Result<usize, Error> {
        if self.cancel.is_cancelled() {
            return Err(Error::Cancelled);
        }
        self.source.read(out)
    }

    fn incomplete(&self) -> Option<&Incomplete> {
        self.source.incomplete()
    }
}

/// A recording to transcribe.
///
/// Samples are read in order, and only as far as the next window needs them: memory does not grow with the length.
#[expect(missing_debug_implementations, reason = "the source is any type")]
pub struct Recording<'r> {
    /// The samples.
    pub source: &'r mut dyn SampleSource,
    /// The largest feature of the whole recording, [`Transcriber::maximum`](super::Transcriber::maximum): the features of
    /// all windows then have the scale that transformers gives them. With `None`, features are scaled by the largest one up
    /// to the end of their window, which needs one pass: for pipes and streams.
    pub maximum: Option<f32>,
    /// Spans of speech, in seconds, ascending and not overlapping; what is between them is not transcribed. `None`:
    /// [`TranscribeOptions::vad`](super::TranscribeOptions::vad) decides.
    pub speech: Option<&'r [(f64, f64)]>,
}

impl<'r> Recording<'r> {
    /// A recording that is read once, and whose speech is transcribed.
    pub fn new(source: &'r mut dyn SampleSource) -> Self {
        Self { source, maximum: None, speech: None }
    }
}
