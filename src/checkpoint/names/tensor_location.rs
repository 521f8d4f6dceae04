//! The location of a tensor in a checkpoint.

use core::ops::Range;

/// A possible location of a role: a tensor, or one of several equal blocks of its rows.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Location {
    pub(crate) name: String,
    /// The index of the block, and the number of blocks.
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

    /// The rows of the stored tensor that belong to the role, which has `rows` rows.
    pub(crate) fn rows(&self, rows: usize) -> Range<usize> {
        let begin = rows * self.block.0;
        begin..begin + rows
    }
}
