//! The order in which sums over the rows of a batch are added.

use core::fmt;
use core::ops::Range;

/// Rows cut into leaves: leaf `i` ends before row `ends[i]` and begins where the one before it ends. A sum
/// over rows is that of leaf 0, plus that of leaf 1, and so on; within a leaf, rows are added in order.
///
/// Leaves of about 500 rows keep rounding small (errors grow with the rows of a leaf plus the number of
/// leaves) and cost a per cent; a micro-batch that holds whole leaves has the bits of the batch.
///
/// ```
/// use simdformer_kernels::train::ReductionChunks;
///
/// let leaves = ReductionChunks::new(&[500, 1000, 1203])?;
/// assert_eq!((leaves.len(), leaves.rows()), (3, 1203));
/// assert!(leaves.ranges().eq([0..500, 500..1000, 1000..1203]));
/// assert!(ReductionChunks::new(&[500, 500]).is_err());
/// # Ok::<(), simdformer_kernels::train::ReductionChunksError>(())
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ReductionChunks<'a> {
    ends: &'a [u32],
}

/// Leaves that are none.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum ReductionChunksError {
    /// A leaf ends where it begins, or before.
    Empty {
        /// Which leaf.
        leaf: usize,
        /// Where it begins.
        start: u32,
        /// Where it should end.
        end: u32,
    },
}

impl<'a> ReductionChunks<'a> {
    /// Leaves that end before the rows `ends`, each after the one before it. None at all are no rows.
    ///
    /// # Errors
    /// A leaf has no row.
    pub const fn new(ends: &'a [u32]) -> Result<Self, ReductionChunksError> {
        let (mut leaf, mut start) = (0, 0);
        while leaf < ends.len() {
            let end = ends[leaf];
            if end <= start {
                return Err(ReductionChunksError::Empty { leaf, start, end });
            }
            (leaf, start) = (leaf + 1, end);
        }
        Ok(Self { ends })
    }

    /// Number of leaves.
    pub const fn len(&self) -> usize {
        self.ends.len()
    }

    /// Whether there is no row.
    pub const fn is_empty(&self) -> bool {
        self.ends.is_empty()
    }

    /// Rows of all leaves.
    pub const fn rows(&self) -> usize {
        match self.ends.last() {
            Some(&end) => end as usize,
            None => 0,
        }
    }

    /// The rows of each leaf.
    pub fn ranges(&self) -> impl ExactSizeIterator<Item = Range<usize>> + 'a {
        let ends = self.ends;
        (0..ends.len()).map(move |leaf| self::range(ends, leaf))
    }
}

/// The rows of leaf `leaf`.
fn range(ends: &[u32], leaf: usize) -> Range<usize> {
    let start = if leaf == 0 { 0 } else { ends[leaf - 1] };
    start as usize..ends[leaf] as usize
}

impl fmt::Display for ReductionChunksError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self::Empty { leaf, start, end } = self;
        write!(
            f,
            "leaf {leaf} begins at row {start} and should end after it, found an end at {end}"
        )
    }
}

impl core::error::Error for ReductionChunksError {}
