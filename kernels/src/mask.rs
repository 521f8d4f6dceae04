//! Rows in which a mask leaves no entry.

/// The softmax of a row in which the formula is 0 / 0: no entry is valid, or no valid entry is above minus infinity.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub enum FullyMasked {
    /// Every probability is 0 (log-probability minus infinity): the row attends to nothing.
    #[default]
    Zeros,
    /// Every column of the row, masked or not, gets `1 / columns`: the result of filling masked scores with a large
    /// negative number, as textbooks do.
    Uniform,
}
