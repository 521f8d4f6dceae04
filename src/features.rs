//! What an encoder reads in place of ids.

use core::fmt;

/// Features of one source: frames of numbers, such as the mel spectrogram of sound, for a model whose configuration has a
/// [`ConvFrontend`](crate::config::ConvFrontend).
///
/// Row-major `[frames, bins]`: frame after frame, each of `bins` numbers. (transformers' `input_features` are
/// `[bins, frames]`: transpose them.) Any number of frames from 1 on is read, up to twice
/// [`Limits::source_tokens`](crate::Limits::source_tokens); nothing is filled up. Published Whisper models were trained
/// on exactly 3000 frames, silence included, and transformers insists on them: whoever wants its answers pads.
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

    /// Frames of `bins` numbers. Whether they fit a model is checked when they are encoded.
    pub const fn new(values: &'f [f32], bins: usize) -> Self {
        Self { values, bins }
    }

    /// Whole frames.
    pub const fn frames(&self) -> usize {
        match self.values.len().checked_div(self.bins) {
            Some(frames) => frames,
            None => 0,
        }
    }

    /// Positions that the encoder makes of them: half as many as frames, rounded up.
    pub const fn positions(&self) -> usize {
        self.frames().div_ceil(Self::STRIDE)
    }
}

impl fmt::Debug for Features<'_> {
    /// How many, and not the numbers.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { bins, .. } = self;
        f.debug_struct("Features").field("frames", &self.frames()).field("bins", bins).finish()
    }
}
