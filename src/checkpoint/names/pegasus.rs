//! `PegasusForConditionalGeneration`: as M2M100, with a bias for the logits.

use super::hugging_face::{self, stack_part};
use super::tensor_location::Location;
use crate::network::TensorId;

pub(super) fn locate(role: TensorId, shared: bool) -> Vec<Location> {
    match role {
        TensorId::OutputBias => vec![Location::whole("final_logits_bias")],
        TensorId::FinalNorm(side, affine) => stack_part(side, "layer_norm", affine),
        _ => hugging_face::locate(role, shared),
    }
}
