//! `Debug` output of a slice: its length. Shapes make a readable line; ten million weights do not.

use core::fmt;

/// The number of elements of a slice.
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
