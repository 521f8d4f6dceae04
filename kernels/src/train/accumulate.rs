//! How gradients are added up: the order of the rows of a batch, and the content of the memory before.

use crate::error::{Error, Expected};
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
/// # Ok::<(), simdformer_kernels::Error>(())
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ReductionChunks<'a> {
    ends: &'a [u32],
}

impl<'a> ReductionChunks<'a> {
    /// Chunks that end before the rows `ends`, in increasing order. An empty slice means no rows.
    ///
    /// # Errors
    /// A chunk has no row.
    pub fn new(ends: &'a [u32]) -> Result<Self, Error> {
        let mut start = 0;
        for (chunk, &end) in ends.iter().enumerate() {
            let (end, later) = (end as usize, Expected::AtLeast(start + 1));
            Error::check_item("end", "reduction chunk", Some(chunk), later, end)?;
            start = end;
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
        (0..ends.len()).map(move |chunk| {
            let start = if chunk == 0 { 0 } else { ends[chunk - 1] };
            start as usize..ends[chunk] as usize
        })
    }
}

/// Whether a new gradient replaces the content of the memory or is added to it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub enum WriteMode {
    /// Replaces the content, whatever it is.
    #[default]
    Store,
    /// Adds to the content: `old + new`, each element rounded once.
    Add,
}

impl WriteMode {
    /// Stores or adds `new`, which is as long as `to`.
    pub(crate) fn all(self, to: &mut [f32], new: &[f32]) {
        for (to, new) in to.iter_mut().zip(new) {
            *to = match self {
                Self::Store => *new,
                Self::Add => *to + *new,
            };
        }
    }
}
