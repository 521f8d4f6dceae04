//! Read access to a trainer between steps.

use super::trainer::Trainer;
use crate::checkpoint::TensorId;

impl Trainer<'_> {
    /// The values of a tensor in row order, also of a tied tensor; `None` if the model has no such tensor.
    pub fn parameter(&self, role: TensorId) -> Option<&[f32]> {
        let tensor = self.tensors.iter().find(|tensor| tensor.role == role)?;
        self.state.floats()[self.plan.values.clone()].get(tensor.range.clone())
    }

    /// The tensor id under which [`Trainer::gradients`] and [`Trainer::parameters`] return this tensor; it differs
    /// from `role` if the tensor is tied.
    pub(super) fn owner(&self, role: TensorId) -> Option<TensorId> {
        let range = &self.tensors.iter().find(|tensor| tensor.role == role)?.range;
        let mut own = self.tensors.iter().filter(|tensor| !tensor.shared);
        own.find(|tensor| tensor.range == *range).map(|tensor| tensor.role)
    }

    /// Whether memory for an average of the parameters is planned.
    pub fn has_average(&self) -> bool {
        !self.plan.average.is_empty()
    }
}
