//! One row of the table of parameters.

use super::packed_weight::{PackedWeight, PruningTableRange};
use crate::model::weight_dtypes::WeightDtype;
use crate::network::TensorId;
use core::fmt;
use core::ops::Range;
use simdformer_kernels::Dtype;

/// The storage of a tensor in memory; see [`Parameter::storage`].
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum Storage {
    /// f32, row-major as in the checkpoint: tables and vectors. Position tables begin with the first position that
    /// the model uses.
    Rows,
    /// A matrix in panels: floats in those of the model's instruction set
    /// ([`PackedMatrix`](simdformer_kernels::PackedMatrix)), int8 in panels that are the same on every instruction set
    /// ([`QuantizedMatrix`](simdformer_kernels::QuantizedMatrix)). Projections of the same input share a matrix.
    Packed(WeightDtype),
    /// int8 copy of a matrix, in addition to its panels, with which the pruned argmax excludes most outputs; see
    /// [`simdformer_kernels::pruned_argmax`].
    PruningTable,
    /// Stored in the memory of this tensor, which has the same numbers.
    SharedWith(TensorId),
}

impl fmt::Display for Storage {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Rows => "rows",
            Self::Packed(WeightDtype::Float(Dtype::F32)) => "panels",
            Self::Packed(dtype) => dtype.name(),
            Self::PruningTable => "pruning table",
            Self::SharedWith(_) => "shared",
        })
    }
}

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
    pub fn storage(&self) -> Storage {
        match self.place {
            Place::Rows { .. } => Storage::Rows,
            Place::Columns { ref matrix, .. } => Storage::Packed(matrix.dtype),
            Place::PruningTable(_) => Storage::PruningTable,
            Place::Shared(role) => Storage::SharedWith(role),
        }
    }

    /// Size in bytes with the padding after the tensor; 0 if it is [`Storage::SharedWith`] another.
    pub fn bytes(&self) -> usize {
        self.floats * size_of::<f32>()
    }
}

impl fmt::Display for Parameter {
    /// `role shape storage bytes`, on one line.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} {:?} {} {}", self.role, self.shape, self.storage(), self.bytes())
    }
}
