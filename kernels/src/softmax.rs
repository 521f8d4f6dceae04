//! Softmax over rows.

/// What a row in which every entry is masked becomes.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum FullyMasked {
    /// All weights are zero.
    #[default]
    Zeros,
    /// All weights are equal, as when masked scores are filled with -1e9.
    Uniform,
}
