//! `FSMTForConditionalGeneration`: the common layers, separate embeddings for each side, and an output with its
//! own name.

use super::hugging_face;
use super::tensor_location::Location;
use crate::network::TensorId;

pub(super) fn locate(role: TensorId) -> Vec<Location> {
    match role {
        TensorId::Output => vec![Location::whole("model.decoder.output_projection.weight")],
        _ => hugging_face::locate(role, false),
    }
}
