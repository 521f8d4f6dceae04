//! Relative position buckets: the attention bias of T5 (Raffel et al. 2020, section 2.1) and of MPNet, which depends
//! only on the distance from query to key.
//!
//! Each small distance has its own bucket; large distances share buckets whose width grows with the logarithm.
//! Attention should not compute logarithms: [`RelativeBuckets::fill`] writes the bias of every distance once, `2 T -
//! 1` values per head for an encoder of `T` positions and `T` for a causal decoder. [`RelativeBuckets::bias`] returns
//! the [`Bias::Relative`] that reads these values. A bias for every query and key would need `T T` values per head.

use crate::attention::Bias;
use crate::float_mode::in_default_mode;
use crate::matrix::Matrix;
#[cfg(feature = "train")]
use crate::matrix::MatrixMut;
#[cfg(feature = "train")]
use crate::train::WriteMode;
use core::fmt;

/// Why buckets or a table of them are rejected. Nothing is written.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum RelativeError {
    /// There are too few buckets for a near and a far one in each direction.
    Buckets {
        /// The smallest number: 4 for two directions, 2 for one.
        expected: usize,
        /// Buckets given.
        found: usize,
    },
    /// The maximum distance is in the range in which each distance has its own bucket.
    MaxDistance {
        /// The smallest valid value.
        expected: usize,
        /// The distance given.
        found: usize,
    },
    /// The number of rows of the weight differs from the number of buckets.
    Weight {
        /// Buckets.
        expected: usize,
        /// Rows of the weight.
        found: usize,
    },
    /// The length of the table is not heads times distances.
    Table {
        /// Floats needed.
        expected: usize,
        /// Floats given.
        found: usize,
    },
    /// A size overflows.
    TooLarge,
}

impl fmt::Display for RelativeError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Buckets { expected, found } => {
                write!(f, "relative positions need at least {expected} buckets; found {found}")
            }
            Self::MaxDistance { expected, found } => {
                write!(
                    f,
                    "the largest relative distance must be at least {expected}; found {found}"
                )
            }
            Self::Weight { expected, found } => {
                write!(f, "the weight must have {expected} rows, one a bucket; found {found}")
            }
            Self::Table { expected, found } => {
                write!(f, "the table of relative positions takes {expected} floats; found {found}")
            }
            Self::TooLarge => f.write_str("heads times distances overflows"),
        }
    }
}

impl core::error::Error for RelativeError {}

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
    pub const fn new(
        buckets: usize,
        max_distance: usize,
        bidirectional: bool,
    ) -> Result<Self, RelativeError> {
        let new = Self { buckets, max_distance, bidirectional };
        if new.near() == 0 {
            let expected = if bidirectional { 4 } else { 2 };
            return Err(RelativeError::Buckets { expected, found: buckets });
        }
        if max_distance <= new.near() {
            let expected = new.near() + 1;
            return Err(RelativeError::MaxDistance { expected, found: max_distance });
        }
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
    pub fn table_len(&self, heads: usize, positions: usize) -> Result<usize, RelativeError> {
        self.distances(positions)
            .and_then(|distances| distances.checked_mul(heads))
            .filter(|&floats| floats <= isize::MAX as usize / size_of::<f32>())
            .ok_or(RelativeError::TooLarge)
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
    ) -> Result<(), RelativeError> {
        let (found, heads) = (weight.rows(), weight.columns());
        if found != self.buckets {
            return Err(RelativeError::Weight { expected: self.buckets, found });
        }
        let (expected, found) = (self.table_len(heads, positions)?, table.len());
        if expected != found {
            return Err(RelativeError::Table { expected, found });
        }
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
    ) -> Result<(), RelativeError> {
        let (found, heads) = (gradient.rows(), gradient.columns());
        if found != self.buckets {
            return Err(RelativeError::Weight { expected: self.buckets, found });
        }
        let (expected, found) = (self.table_len(heads, positions)?, d_table.len());
        if expected != found {
            return Err(RelativeError::Table { expected, found });
        }
        let (row, column) = (gradient.row_stride(), gradient.column_stride());
        let to = gradient.shared();
        let add = |bucket: usize, head: usize, sum: Option<f32>| {
            let at = to.as_ptr().wrapping_add(bucket * row + head * column);
            // SAFETY: the checks above: every bucket has a row and every head a column. `gradient` is borrowed
            // exclusively.
            unsafe { at.write(sum.map_or(0.0, |sum| at.read() + sum)) };
        };
        if write == WriteMode::Store {
            for bucket in 0..self.buckets {
                for head in 0..heads {
                    add(bucket, head, None);
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
                    add(current, head, Some(run.iter().fold(0.0, |sum, x| sum + x)))
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
