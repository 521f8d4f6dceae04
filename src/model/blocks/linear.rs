//! Where the weights of a projection and of a norm are in the model's memory.

use crate::error::KernelError;
use crate::model::Model;
use core::ops::Range;
use simdformer_kernels::PackedMatrix;

/// `y = x W + b`, `W` packed.
#[derive(Clone, Debug)]
pub(crate) struct Linear {
    pub(crate) weight: Range<usize>,
    pub(crate) bias: Option<Range<usize>>,
    /// Length of a row of `x`.
    pub(crate) depth: usize,
    /// Length of a row of `y`.
    pub(crate) columns: usize,
}

impl Linear {
    pub(crate) fn packed<'m>(&self, model: &'m Model) -> Result<PackedMatrix<'m>, KernelError> {
        let data = model.weights(self.weight.clone());
        Ok(PackedMatrix::from_packed(model.isa(), self.depth, self.columns, data)?)
    }
}

/// Scale and shift of a LayerNorm.
#[derive(Clone, Debug)]
pub(crate) struct Norm {
    pub(crate) weight: Range<usize>,
    pub(crate) bias: Range<usize>,
}
