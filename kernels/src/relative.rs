//! Relative position buckets: the attention bias of T5 (Raffel et al. 2020, section 2.1) and of MPNet, which depends
//! only on the distance from query to key.
//!
//! Each small distance has its own bucket; large distances share buckets whose width grows with the logarithm.
//! Attention should not compute logarithms: [`RelativeBuckets::fill`] writes the bias of every distance once, `2 T -
//! 1` values per head for an encoder of `T` positions and `T` for a causal decoder. [`RelativeBuckets::bias`] returns
//! the [`Bias::Relative`] that reads these values. A bias for every query and key would need `T T` values per head.

use crate::attention::Bias;
use crate::error::{Error, Expected};
use crate::float_mode::in_default_mode;
use crate::matrix::Matrix;
#[cfg(feature = "train")]
use crate::matrix::MatrixMut;
#[cfg(feature = "train")]
use crate::train::WriteMode;

/// Maps the distance from query to key to a bucket.
///
/// ```
/// use simdformer_kernels::relative::RelativeBuckets;
/// use simdformer_kernels::{Bias, Matrix};
///
/// let buckets = RelativeBuckets::new(32, 128, true)?;
/// assert_eq!((buckets.bucket(-3), buckets.bucket(3), buckets.bucket(-500)), (3, 19, 15));
///
/// // A learned value for each bucket and head, `[32, 2]`; sentences of up to 100 tokens.
/// let weight = [0.25; 32 * 2];
/// let mut table = vec![0.0; buckets.table_len(2, 100)?];
/// buckets.fill(Matrix::new(&weight, 32, 2)?, 100, &mut table)?;
/// let bias = buckets.bias(100, &table);
/// assert!(matches!(bias, Bias::Relative { head_stride: 199, zero: 99, .. }));
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct RelativeBuckets {
    buckets: usize,
    max_distance: usize,
    bidirectional: bool,
}

impl RelativeBuckets {
    /// `buckets` in total; distances from `max_distance` on are in the last one. T5 uses 32 and 128. If
    /// `bidirectional`, as in an encoder, half of the buckets are for keys after their query; otherwise, as in a
    /// causal decoder, such keys have distance 0.
    ///
    /// # Errors
    /// There are fewer buckets than the formula needs, or `max_distance` is a distance with its own bucket.
    pub fn new(buckets: usize, max_distance: usize, bidirectional: bool) -> Result<Self, Error> {
        let new = Self { buckets, max_distance, bidirectional };
        let fewest = Expected::AtLeast(if bidirectional { 4 } else { 2 });
        let farther = Expected::AtLeast(new.near() + 1);
        Error::check_size("number", "the relative buckets", fewest, buckets)?;
        Error::check_size("largest distance", "the relative buckets", farther, max_distance)?;
        Ok(new)
    }

    /// Buckets in one direction.
    const fn side(&self) -> usize {
        if self.bidirectional { self.buckets / 2 } else { self.buckets }
    }

    /// Distances with their own bucket, in one direction.
    const fn near(&self) -> usize {
        self.side() / 2
    }

    /// The bucket of a key `distance` positions after its query, below the number of buckets.
    ///
    /// The steps are those of transformers, in f32, so that distances at the edge of a bucket get the same bucket as
    /// there: `near + trunc(ln(n / near) / ln(max_distance / near) * (side - near))`, at most `side - 1`.
    pub fn bucket(&self, distance: isize) -> usize {
        let (side, near) = (self.side(), self.near());
        let (base, n) = match distance {
            1.. if self.bidirectional => (side, distance.unsigned_abs()),
            1.. => (0, 0),
            _ => (0, distance.unsigned_abs()),
        };
        if n < near {
            return base + n;
        }
        // The f64 logarithm rounded to f32 equals the f32 logarithm, except for one argument in some hundred million.
        in_default_mode(|| {
            let logarithm = libm::log(f64::from(n as f32 / near as f32)) as f32;
            let whole = libm::log(self.max_distance as f64 / near as f64) as f32;
            let far = logarithm / whole * (side - near) as f32;
            base + (near + far as usize).min(side - 1)
        })
    }

    /// The number of distances in a table of `positions`: `2 positions - 1`, or `positions` in one direction; `None`
    /// if that overflows.
    const fn distances(&self, positions: usize) -> Option<usize> {
        match (self.bidirectional, positions) {
            (_, 0) => Some(0),
            (true, _) => (positions - 1).checked_add(positions),
            (false, _) => Some(positions),
        }
    }

    /// Floats of a table for `heads` heads and sequences of at most `positions` tokens.
    ///
    /// # Errors
    /// The size overflows.
    pub fn table_len(&self, heads: usize, positions: usize) -> Result<usize, Error> {
        self.distances(positions)
            .and_then(|distances| distances.checked_mul(heads))
            .filter(|&floats| floats <= isize::MAX as usize / size_of::<f32>())
            .ok_or(Error::TooLarge { operand: "the table of relative positions" })
    }

    /// Fills `table`, `[heads, distances]`, from the learned `weight`, `[buckets, heads]`: the value of each distance
    /// that occurs among `positions` tokens, starting with `-(positions - 1)`.
    ///
    /// # Errors
    /// The number of rows of the weight or the length of the table is wrong.
    pub fn fill(
        &self,
        weight: Matrix<'_>,
        positions: usize,
        table: &mut [f32],
    ) -> Result<(), Error> {
        let (rows, heads) = (weight.rows(), weight.columns());
        Error::check_size("rows", "weight", Expected::Exactly(self.buckets), rows)?;
        let expected = self.table_len(heads, positions)?;
        Error::check_len("table", expected, table)?;
        let distances = expected / heads.max(1);
        for index in 0..distances {
            // Both are at most `distances`, which fits `isize`.
            let bucket = self.bucket(index as isize - (positions - 1) as isize);
            for head in 0..heads {
                table[head * distances + index] = weight.at(bucket, head);
            }
        }
        Ok(())
    }

    /// The gradient of the learned weight of [`RelativeBuckets::fill`], `[buckets, heads]`, from `d_table`, the
    /// gradient of its table for `positions`. Each bucket gets the sum over its distances, added in order of
    /// increasing distance from `-(positions - 1)`. With `WriteMode::Store` a bucket without a distance gets 0.
    ///
    /// Error: for a bucket with `n` distances, at most `n` roundings of the sum of their magnitudes.
    ///
    /// # Errors
    /// The number of rows of the weight's gradient or the length of the table's gradient is wrong. Nothing is written
    /// then.
    ///
    /// ```
    /// use simdformer_kernels::MatrixMut;
    /// use simdformer_kernels::relative::RelativeBuckets;
    /// use simdformer_kernels::train::WriteMode;
    ///
    /// // Four buckets: distances 0, -1, -2, and -3 together with all distances below.
    /// let buckets = RelativeBuckets::new(4, 4, false)?;
    /// let d_table = [8.0, 4.0, 2.0, 1.0, 0.5]; // Distances -4 to 0.
    /// let mut gradient = [f32::NAN; 4];
    /// buckets.gradient(5, &d_table, WriteMode::Store, MatrixMut::new(&mut gradient, 4, 1)?)?;
    /// assert_eq!(gradient, [0.5, 1.0, 2.0, 12.0]);
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    #[cfg(feature = "train")]
    pub fn gradient(
        &self,
        positions: usize,
        d_table: &[f32],
        write: WriteMode,
        mut gradient: MatrixMut<'_>,
    ) -> Result<(), Error> {
        let (rows, heads) = (gradient.rows(), gradient.columns());
        Error::check_size("rows", "gradient", Expected::Exactly(self.buckets), rows)?;
        let expected = self.table_len(heads, positions)?;
        Error::check_len("d_table", expected, d_table)?;
        if heads == 0 {
            return Ok(());
        }
        if write == WriteMode::Store {
            for bucket in 0..self.buckets {
                for head in 0..heads {
                    *gradient.at_mut(bucket, head) = 0.0;
                }
            }
        }
        let distances = expected / heads.max(1);
        let bucket = |index: usize| self.bucket(index as isize - (positions - 1) as isize);
        // The distances of a bucket are contiguous.
        let mut start = 0;
        while start < distances {
            let current = bucket(start);
            let mut end = start + 1;
            while end < distances && bucket(end) == current {
                end += 1;
            }
            for head in 0..heads {
                let run = &d_table[head * distances..][start..end];
                in_default_mode(|| {
                    *gradient.at_mut(current, head) += run.iter().fold(0.0, |sum, x| sum + x);
                });
            }
            start = end;
        }
        Ok(())
    }

    /// The [`Bias`] for attention, from a table that [`RelativeBuckets::fill`] has filled for `positions`.
    ///
    /// If `table` is too short, the attention that would read past its end returns an error.
    pub fn bias<'a>(&self, positions: usize, table: &'a [f32]) -> Bias<'a> {
        Bias::Relative {
            data: table,
            head_stride: self.distances(positions).unwrap_or(usize::MAX),
            zero: positions.saturating_sub(1),
        }
    }
}
