//! `M2M100ForConditionalGeneration`, which is also NLLB: pre-norm with a norm after the last layer, no bias for
//! the logits.

use super::hugging_face::{self, stack_part};
use super::tensor_location::Location;
use crate::network::TensorId;

pub(super) fn locate(role: TensorId, shared: bool) -> Vec<Location> {
    match role {
        TensorId::FinalNorm(side, affine) => stack_part(side, "layer_norm", affine),
        _ => hugging_face::locate(role, shared),
    }
}
