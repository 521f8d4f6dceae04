//! One row of the table of parameters.

use super::packed_weight::{PackedWeight, PruningTableRange, StorageKind};
use crate::network::TensorId;
use core::fmt;
use core::ops::Range;

/// A tensor of a model: its role, its shape, its storage and its size. See [`crate::Model::parameters`].
#[derive(Clone, Debug)]
pub struct Parameter {
    pub(crate) role: TensorId,
    pub(crate) shape: Vec<usize>,
    pub(crate) place: Place,
    pub(crate) floats: usize,
}

/// The location of a parameter, in floats of the model's memory.
#[derive(Clone, Debug)]
pub(crate) enum Place {
    /// The rows of the tensor, starting with row `skip`.
    Rows { range: Range<usize>, skip: usize },
    /// The rows of the tensor are the columns of `matrix`, starting with column `first`.
    Columns { matrix: PackedWeight, first: usize },
    /// Built from the matrix of the same tensor.
    PruningTable(PruningTableRange),
    /// Shares the memory of the tensor with this role.
    Shared(TensorId),
}

impl Parameter {
    /// The role of the tensor in the network.
    pub fn role(&self) -> TensorId {
        self.role
    }

    /// The shape in a checkpoint, that of [`TensorId::shape`](crate::checkpoint::TensorId::shape): rows first.
    pub fn shape(&self) -> &[usize] {
        &self.shape
    }

    /// The storage of the tensor.
    pub fn form(&self) -> StorageKind {
        match self.place {
            Place::Rows { .. } => StorageKind::Rows,
            Place::Columns { ref matrix, .. } => matrix.form.into(),
            Place::PruningTable(_) => StorageKind::PruningTable,
            Place::Shared(_) => StorageKind::Shared,
        }
    }

    /// The tensor whose memory this one shares, if [`Parameter::form`] is [`StorageKind::Shared`].
    pub fn shared_with(&self) -> Option<TensorId> {
        match self.place {
            Place::Shared(role) => Some(role),
            _ => None,
        }
    }

    /// Size in bytes with the padding after the tensor; 0 if it is [`StorageKind::Shared`].
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
