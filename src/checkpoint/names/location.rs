//! A place where a tensor may be found.

use core::ops::Range;

/// A place where a role may be found: a tensor, or one of several equal blocks of its rows.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Location {
    pub(crate) name: String,
    /// Which block of how many.
    pub(crate) block: (usize, usize),
}

impl Location {
    pub(crate) fn whole(name: impl Into<String>) -> Self {
        Self { name: name.into(), block: (0, 1) }
    }

    /// The shape of the stored tensor, given that of the role.
    pub(crate) fn stored_shape(&self, mut role: Vec<usize>) -> Vec<usize> {
        if let Some(rows) = role.first_mut() {
            *rows *= self.block.1;
        }
        role
    }

    /// The rows of the stored tensor that are the role, which has `rows` of them.
    pub(crate) fn rows(&self, rows: usize) -> Range<usize> {
        let begin = rows * self.block.0;
        begin..begin + rows
    }
}
