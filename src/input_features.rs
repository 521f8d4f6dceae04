//! Features: the input of an encoder that does not read token ids.

use crate::error::{Error, ErrorValue};
use core::fmt;

/// Features of one source: frames of numbers, such as a mel spectrogram of audio, for a model whose configuration has a
/// [`Config::bins`](crate::config::Config::bins).
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

impl Features<'_> {
    /// Checks the features of a source for an encoder that reads frames of `bins` numbers (`None`: it reads ids) and at
    /// most `positions` positions.
    pub(crate) fn check(&self, bins: Option<usize>, positions: usize) -> Result<(), Error> {
        let &Self { values, bins: found } = self;
        let refused = |expected, found| Err(Error::invalid_input("", expected, found));
        let Some(bins) = bins else {
            return refused("token ids, which the encoder reads".into(), "features".into());
        };
        if bins != found {
            let expected =
                ErrorValue::new(&"frames of {} numbers, which the encoder reads", [bins, 0]);
            return refused(expected, ErrorValue::new(&"frames of {}", [found, 0]));
        }
        if values.is_empty() {
            return refused("at least one frame".into(), "none".into());
        }
        if !values.len().is_multiple_of(bins) {
            let expected = ErrorValue::new(&"whole frames of {} numbers", [bins, 0]);
            return refused(expected, ErrorValue::new(&"{} numbers", [values.len(), 0]));
        }
        if self.positions() > positions {
            let limit = Some(("source_tokens", positions));
            let expected = ErrorValue::at_most_planned(positions.saturating_mul(Self::STRIDE));
            let (operand, found) = ("frames", self.frames());
            return Err(Error::BeyondLimit { index: None, operand, limit, expected, found });
        }
        let Some(at) = values.iter().position(|x| !x.is_finite()) else { return Ok(()) };
        let text = &"a finite number at place {} of frame {}";
        let expected = ErrorValue::new(text, [at % bins, at / bins]);
        Err(Error::invalid_input("features", expected, f64::from(values[at])))
    }
}

/// The encoder reads features, and the source has token ids.
pub(crate) fn expected_features(bins: usize) -> Error {
    let text = &"features, frames of {} numbers, which the encoder reads";
    Error::invalid_input("", ErrorValue::new(text, [bins, 0]), "token ids")
}

/// The source has both token ids and features.
pub(crate) fn tokens_and_features() -> Error {
    Error::invalid_input("", "token ids or features", "both")
}

impl fmt::Debug for Features<'_> {
    /// Prints the shape, not the numbers.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { bins, .. } = self;
        f.debug_struct("Features").field("frames", &self.frames()).field("bins", bins).finish()
    }
}
