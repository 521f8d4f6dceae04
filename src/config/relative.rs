//! Relative positions: the mapping from a distance to a row of a table.

use super::{RelativeBias, Side};
use crate::error::Error;
use simdformer_kernels::Error as KernelError;
use simdformer_kernels::relative::RelativeBuckets;

impl RelativeBias {
    /// The table row of each distance: in both directions for the encoder, only backwards for the decoder.
    ///
    /// # Errors
    /// There are fewer buckets, or the maximum distance is smaller, than the formula needs.
    ///
    /// ```
    /// use simdformer::config::{RelativeBias, Side};
    ///
    /// let t5 = RelativeBias { buckets: 32, max_distance: 128, per_layer: false };
    /// let encoder = t5.buckets_for(Side::Encoder)?;
    /// assert_eq!([-200, -16, -8, 0, 1, 200].map(|distance| encoder.bucket(distance)), [15, 10, 8, 0, 17, 31]);
    /// let decoder = t5.buckets_for(Side::Decoder)?;
    /// assert_eq!([-200, -16, -1, 0].map(|distance| decoder.bucket(distance)), [31, 16, 1, 0]);
    /// # Ok::<(), simdformer::Error>(())
    /// ```
    pub fn buckets_for(&self, side: Side) -> Result<RelativeBuckets, Error> {
        RelativeBuckets::new(self.buckets, self.max_distance, side == Side::Encoder).map_err(
            |error| match error {
                KernelError::Size { property, operand, expected, found, .. } => {
                    let operand = format!("{}: {property} of {operand}", side.name());
                    Error::invalid_option(operand, expected.to_string(), found.to_string())
                }
                error => error.into(),
            },
        )
    }
}
