//! What is read of a trainer from outside a step.

use super::trainer::Trainer;
use crate::checkpoint::TensorId;

impl Trainer<'_> {
    /// The numbers of a role, row after row, also of one that is tied to another; `None` if the model has no such part.
    pub fn parameter(&self, role: TensorId) -> Option<&[f32]> {
        let tensor = self.tensors.iter().find(|tensor| tensor.role == role)?;
        self.state.floats()[self.plan.values.clone()].get(tensor.range.clone())
    }

    /// The role under which [`Trainer::gradients`] and [`Trainer::parameters`] have the tensor of `role`: another one if
    /// it is tied.
    pub(super) fn owner(&self, role: TensorId) -> Option<TensorId> {
        let range = &self.tensors.iter().find(|tensor| tensor.role == role)?.range;
        let mut own = self.tensors.iter().filter(|tensor| !tensor.shared);
        own.find(|tensor| tensor.range == *range).map(|tensor| tensor.role)
    }

    /// Whether it has room for an average of the parameters.
    pub fn has_average(&self) -> bool {
        !self.plan.average.is_empty()
    }
}
