//! What `Debug` shows of a slice: its length. A line that is to be read says which shapes meet, not what
//! ten million weights are.

use core::fmt;

/// A slice of so many elements.
pub(crate) struct Elements(usize);

impl Elements {
    pub(crate) const fn of<T>(slice: &[T]) -> Self {
        Self(slice.len())
    }
}

impl fmt::Debug for Elements {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "[{} elements]", self.0)
    }
}
