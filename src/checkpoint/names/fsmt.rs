//! `FSMTForConditionalGeneration`: layers as everywhere, embeddings of each side and an output of its own.

use super::hugging_face;
use super::location::Location;
use crate::network::TensorId;

pub(super) fn locate(role: TensorId) -> Vec<Location> {
    match role {
        TensorId::Output => vec![Location::whole("model.decoder.output_projection.weight")],
        _ => hugging_face::locate(role, false),
    }
}
