//! One row of the table of parameters.

use super::packed_weight::{PackedWeight, ScreenBytes, StorageKind};
use crate::network::TensorId;
use core::fmt;
use core::ops::Range;

/// A tensor of a model: what it is for, its shape, the form in which it is stored, and what that takes.
/// See [`crate::Model::parameters`].
#[derive(Clone, Debug)]
pub struct Parameter {
    pub(crate) role: TensorId,
    pub(crate) shape: Vec<usize>,
    pub(crate) place: Place,
    pub(crate) floats: usize,
}

/// Where a parameter is, in floats of the model's memory.
#[derive(Clone, Debug)]
pub(crate) enum Place {
    /// The rows of the tensor from row `skip` on.
    Rows { range: Range<usize>, skip: usize },
    /// The rows of the tensor are the columns of `matrix` from column `first` on.
    Columns { matrix: PackedWeight, first: usize },
    /// Made of the columns of the same tensor.
    PruningTable(ScreenBytes),
    /// The tensor of this role has the same numbers.
    Shared(TensorId),
}

impl Parameter {
    /// What it is for.
    pub fn role(&self) -> TensorId {
        self.role
    }

    /// Its shape in a checkpoint, that of [`TensorId::shape`](crate::checkpoint::TensorId::shape): rows first.
    pub fn shape(&self) -> &[usize] {
        &self.shape
    }

    /// How it is stored.
    pub fn form(&self) -> StorageKind {
        match self.place {
            Place::Rows { .. } => StorageKind::Rows,
            Place::Columns { ref matrix, .. } => matrix.form.into(),
            Place::PruningTable(_) => StorageKind::PruningTable,
            Place::Shared(_) => StorageKind::Shared,
        }
    }

    /// The tensor in whose memory it is, where [`Parameter::form`] is [`StorageKind::Shared`].
    pub fn shared_with(&self) -> Option<TensorId> {
        match self.place {
            Place::Shared(role) => Some(role),
            _ => None,
        }
    }

    /// Bytes of memory, with the padding that comes after it; 0 where it is [`StorageKind::Shared`].
    pub fn bytes(&self) -> usize {
        self.floats * size_of::<f32>()
    }
}

impl fmt::Display for Parameter {
    /// `role shape form bytes`, on one line.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} {:?} {} {}", self.role, self.shape, self.form(), self.bytes())
    }
}
