//! What a checkpoint has that its model does not use, or uses in another way than the configuration says.

use core::fmt;

/// A fact about a checkpoint that is no error, and that its user may not expect: [`Checkpoint::notes`] and
/// [`Model::notes`](crate::Model::notes) return all of them. A program should print them.
///
/// [`Checkpoint::notes`]: super::Checkpoint::notes
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum CheckpointNote {
    /// The configuration ties two matrices, but the checkpoint has both, with different numbers: for example an
    /// `lm_head` that was trained apart. The model uses each as it is stored.
    NotTied {
        /// The name of the table.
        first: String,
        /// The name of the other matrix.
        second: String,
    },
    /// Two names of one matrix have different numbers, for example `model.shared.weight` and
    /// `model.encoder.embed_tokens.weight`. The model uses the first.
    DifferentCopies {
        /// The name of the tensor that the model uses.
        used: String,
        /// The name of the other.
        unused: String,
    },
    /// Tensors that no part of the model is.
    Unused {
        /// Their names, sorted.
        tensors: Vec<String>,
    },
    /// Tensors in the files of shards that their index does not list. The model does not use them.
    NotInIndex {
        /// Their names, sorted.
        tensors: Vec<String>,
    },
}

impl fmt::Display for CheckpointNote {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::NotTied { first, second } => write!(
                f,
                "the configuration ties {first} and {second}, but their numbers or dtypes differ: each is used as it is"
            ),
            Self::DifferentCopies { used, unused } => write!(
                f,
                "{used} and {unused} are two names of one matrix, but their numbers or dtypes differ: {used} is used"
            ),
            Self::Unused { tensors } => {
                f.write_str("tensors that no part of the model is: ")?;
                list(f, tensors)
            }
            Self::NotInIndex { tensors } => {
                f.write_str("tensors that the index of the shards does not list: ")?;
                list(f, tensors)
            }
        }
    }
}

/// The first names, and how many more there are.
fn list(f: &mut fmt::Formatter<'_>, names: &[String]) -> fmt::Result {
    const LISTED: usize = 5;
    for (i, name) in names.iter().take(LISTED).enumerate() {
        write!(
            f,
            "{}{}",
            if i > 0 { ", " } else { "" },
            crate::printable_text::sanitized(name, 400)
        )?;
    }
    match names.len().saturating_sub(LISTED) {
        0 => Ok(()),
        more => write!(f, " and {more} more"),
    }
}
