//! The order in which sums over the rows of a batch are added.

use core::fmt;
use core::ops::Range;

/// Rows split into reduction chunks: chunk `i` ends before row `ends[i]` and begins where the previous one ends. A sum
/// over rows is the sum of chunk 0, plus that of chunk 1, and so on; the rows of a chunk are added in order.
///
/// Chunks of about 500 rows keep rounding errors small (they grow with the rows of a chunk plus the number of chunks)
/// and cost one percent. A micro-batch that contains whole chunks gives the same bits as the batch.
///
/// ```
/// use simdformer_kernels::train::ReductionChunks;
///
/// let chunks = ReductionChunks::new(&[500, 1000, 1203])?;
/// assert_eq!((chunks.len(), chunks.rows()), (3, 1203));
/// assert!(chunks.ranges().eq([0..500, 500..1000, 1000..1203]));
/// assert!(ReductionChunks::new(&[500, 500]).is_err());
/// # Ok::<(), simdformer_kernels::train::ReductionChunksError>(())
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ReductionChunks<'a> {
    ends: &'a [u32],
}

/// Invalid reduction chunks.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum ReductionChunksError {
    /// A chunk has no rows: it ends where it begins, or before.
    Empty {
        /// Index of the chunk.
        leaf: usize,
        /// The row where it begins.
        start: u32,
        /// The row given as its end.
        end: u32,
    },
}

impl<'a> ReductionChunks<'a> {
    /// Chunks that end before the rows `ends`, in increasing order. An empty slice means no rows.
    ///
    /// # Errors
    /// A chunk has no row.
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

    /// Number of chunks.
    pub const fn len(&self) -> usize {
        self.ends.len()
    }

    /// Whether there is no row.
    pub const fn is_empty(&self) -> bool {
        self.ends.is_empty()
    }

    /// Rows of all chunks.
    pub const fn rows(&self) -> usize {
        match self.ends.last() {
            Some(&end) => end as usize,
            None => 0,
        }
    }

    /// The rows of each chunk.
    pub fn ranges(&self) -> impl ExactSizeIterator<Item = Range<usize>> + 'a {
        let ends = self.ends;
        (0..ends.len()).map(move |leaf| self::range(ends, leaf))
    }
}

/// The rows of chunk `leaf`.
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
