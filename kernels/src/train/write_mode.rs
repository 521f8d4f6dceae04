//! Storing or adding a gradient.

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
