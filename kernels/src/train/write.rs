//! Whether a gradient is the first.

/// What happens to a gradient that is there already.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub enum Write {
    /// It is replaced, whatever the memory holds.
    #[default]
    Store,
    /// It is added to: `what is there + what is new`, each element rounded once.
    Add,
}
