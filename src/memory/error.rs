//! Why there is no memory.

/// Why memory could not be planned or had.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum MemoryError {
    /// It does not fit the address space.
    TooLarge,
    /// The system does not give it.
    OutOfMemory {
        /// Bytes asked for.
        bytes: usize,
    },
}
