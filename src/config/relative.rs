//! Relative positions: from a distance to the row of a table.

use super::{ConfigError, RelativeBias, Side};
use simdformer_kernels::relative::RelativeBuckets;

impl RelativeBias {
    /// Which row of the table each distance has: in both directions for the encoder, backwards for the decoder.
    ///
    /// # Errors
    /// Fewer buckets, or a shorter longest distance, than the formula has room for.
    ///
    /// ```
    /// use simdformer::config::{RelativeBias, Side};
    ///
    /// let t5 = RelativeBias { buckets: 32, max_distance: 128, per_layer: false };
    /// let encoder = t5.of(Side::Encoder)?;
    /// assert_eq!([-200, -16, -8, 0, 1, 200].map(|distance| encoder.bucket(distance)), [15, 10, 8, 0, 17, 31]);
    /// let decoder = t5.of(Side::Decoder)?;
    /// assert_eq!([-200, -16, -1, 0].map(|distance| decoder.bucket(distance)), [31, 16, 1, 0]);
    /// # Ok::<(), simdformer::config::ConfigError>(())
    /// ```
    pub fn of(&self, side: Side) -> Result<RelativeBuckets, ConfigError> {
        RelativeBuckets::new(self.buckets, self.max_distance, side == Side::Encoder)
            .map_err(|error| ConfigError::Relative { side, error })
    }
}
