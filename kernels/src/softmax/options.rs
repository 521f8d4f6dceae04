//! What a softmax computes, and of which columns.

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

/// Options of [`softmax()`](super::softmax()). The default is the probabilities of whole rows.
#[derive(Clone, Copy, Debug, Default)]
pub struct SoftmaxOptions<'a> {
    /// Computes the logarithms of the probabilities. Masked columns get negative infinity, and so do rows without a
    /// valid entry with [`FullyMasked::Zeros`].
    pub logarithm: bool,
    /// One number for each row, `[rows]`: the number of its first columns that are valid. The other columns are not
    /// read and get 0. `None` if all columns are valid.
    pub lengths: Option<&'a [usize]>,
    /// The result of a row without a valid entry.
    pub fully_masked: FullyMasked,
}
