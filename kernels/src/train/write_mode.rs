//! Whether a gradient is the first.

/// What happens to a gradient that is there already.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub enum WriteMode {
    /// It is replaced, whatever the memory holds.
    #[default]
    Store,
    /// It is added to: `what is there + what is new`, each element rounded once.
    Add,
}

impl WriteMode {
    /// Stores or adds `new`, as long as `to`.
    pub(crate) fn all(self, to: &mut [f32], new: &[f32]) {
        for (to, new) in to.iter_mut().zip(new) {
            *to = match self {
                Self::Store => *new,
                Self::Add => *to + *new,
            };
        }
    }
}
