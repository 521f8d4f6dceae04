//! What masks leave.

/// What a softmax makes of a row with nothing left to weigh, where the formula is 0 / 0: no valid
/// entry, or none above minus infinity.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub enum FullyMasked {
    /// Every probability 0 (logarithm negative infinity): nothing is attended to.
    #[default]
    Zeros,
    /// Every one of the row's columns, masked or not, gets `1 / columns`: what comes of filling
    /// masked scores with a large negative number, as textbooks do.
    Uniform,
}
