//! Features: the input of an encoder that does not read token ids.

use core::fmt;

/// Features of one source: frames of numbers, such as a mel spectrogram of audio, for a model whose configuration has a
/// [`ConvFrontend`](crate::config::ConvFrontend).
///
/// Row-major `[frames, bins]`. (transformers' `input_features` are `[bins, frames]`: transpose them.) A source has at
/// least 1 frame and at most twice [`Limits::source_tokens`](crate::Limits::source_tokens); frames are not padded.
/// Published Whisper models were trained on exactly 3000 frames, including silence, and transformers requires 3000: pad
/// to 3000 frames to get the same output.
///
/// ```
/// use simdformer::Features;
///
/// let mel = vec![0.0; 3000 * 80];
/// let features = Features::new(&mel, 80);
/// assert_eq!((features.frames(), features.positions()), (3000, 1500));
/// ```
#[derive(Clone, Copy, Default, PartialEq)]
pub struct Features<'f> {
    /// `[frames, bins]`, row-major; finite.
    pub values: &'f [f32],
    /// Numbers in a frame.
    pub bins: usize,
}

impl<'f> Features<'f> {
    /// Frames from one position to the next.
    pub(crate) const STRIDE: usize = 2;

    /// Frames of `bins` numbers. They are checked against the model when they are encoded.
    pub const fn new(values: &'f [f32], bins: usize) -> Self {
        Self { values, bins }
    }

    /// Number of complete frames.
    pub const fn frames(&self) -> usize {
        match self.values.len().checked_div(self.bins) {
            Some(frames) => frames,
            None => 0,
        }
    }

    /// Number of encoder positions: half the frames, rounded up.
    pub const fn positions(&self) -> usize {
        self.frames().div_ceil(Self::STRIDE)
    }
}

impl fmt::Debug for Features<'_> {
    /// Prints the shape, not the numbers.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { bins, .. } = self;
        f.debug_struct("Features").field("frames", &self.frames()).field("bins", bins).finish()
    }
}
