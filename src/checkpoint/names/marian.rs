//! `MarianMTModel`: post-norm and sinusoidal positions, so only layers, embeddings and the bias of the logits.

use super::hugging_face;
use super::tensor_location::Location;
use crate::network::TensorId;

pub(super) fn locate(role: TensorId, shared: bool) -> Vec<Location> {
    match role {
        // `[1, vocabulary]`: a buffer of the library, not a parameter.
        TensorId::OutputBias => vec![Location::whole("final_logits_bias")],
        _ => hugging_face::locate(role, shared),
    }
}
