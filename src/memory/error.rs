//! Errors of planning and allocating memory.

/// Why memory could not be planned or allocated.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum MemoryError {
    /// The memory does not fit the address space.
    TooLarge,
    /// The system cannot allocate it.
    OutOfMemory {
        /// Bytes requested.
        bytes: usize,
    },
}
