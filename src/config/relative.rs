//! Relative positions: from a distance to the row of a table.

use super::{ConfigError, RelativeBias, Side};

impl RelativeBias {
    /// The row of the table for a key that stands `distance = key - query` tokens after its query, where both
    /// directions are told apart (an encoder) or where no query sees a later key (a decoder).
    ///
    /// Half of the rows of a direction are for one distance each; in the other half the width grows with the logarithm
    /// of the distance, up to [`max_distance`](Self::max_distance). The order of operations is that of Mesh TensorFlow,
    /// since distances such as 16 and 32 land on whole numbers.
    ///
    /// ```
    /// use simdformer::config::{RelativeBias, Side};
    ///
    /// let t5 = RelativeBias { buckets: 32, max_distance: 128, per_layer: false };
    /// let encoder = [-200, -16, -8, -1, 0, 1, 8, 200].map(|distance| t5.bucket(Side::Encoder, distance));
    /// assert_eq!(encoder, [15, 10, 8, 1, 0, 17, 24, 31]);
    /// let decoder = [-200, -16, -1, 0, 1].map(|distance| t5.bucket(Side::Decoder, distance));
    /// assert_eq!(decoder, [31, 16, 1, 0, 0]);
    /// ```
    pub fn bucket(&self, side: Side, distance: isize) -> usize {
        let (buckets, base, distance) = match side {
            Side::Encoder => {
                let half = self.buckets / 2;
                (half, if distance > 0 { half } else { 0 }, distance.unsigned_abs())
            }
            Side::Decoder => (self.buckets, 0, distance.min(0).unsigned_abs()),
        };
        let exact = buckets / 2;
        if distance < exact {
            return base + distance;
        }
        // Single precision as in the libraries; double precision gives the same rows.
        let ratio = (distance as f32 / exact as f32).ln()
            / (self.max_distance as f64 / exact as f64).ln() as f32;
        let row = exact + (ratio * (buckets - exact) as f32) as usize;
        base + row.min(buckets - 1)
    }

    /// Checks that the formula is defined.
    pub(super) fn validate(&self, side: Side) -> Result<(), ConfigError> {
        let (expected_at_least, exact) = match side {
            Side::Encoder => (4, self.buckets / 4),
            Side::Decoder => (2, self.buckets / 2),
        };
        if self.buckets < expected_at_least {
            let found = self.buckets;
            return Err(ConfigError::TooFewBuckets { side, expected_at_least, found });
        }
        if self.max_distance <= exact {
            let found = self.max_distance;
            return Err(ConfigError::ShortDistance { side, exact, found });
        }
        super::at_most("relative buckets", self.buckets, super::MAX_DIMENSION)?;
        super::at_most("relative max distance", self.max_distance, super::MAX_DIMENSION)
    }
}
