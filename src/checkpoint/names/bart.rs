//! `BartForConditionalGeneration` and `MBartForConditionalGeneration`: Marian's names, plus learned positions,
//! a norm after the embeddings, and in mBART a norm after the last layer.

use super::hugging_face::{self, stack_part};
use super::tensor_location::Location;
use crate::network::{ParamKind, TensorId};

pub(super) fn locate(role: TensorId, shared: bool) -> Vec<Location> {
    match role {
        TensorId::OutputBias => vec![Location::whole("final_logits_bias")],
        TensorId::Positions(side) => stack_part(side, "embed_positions", ParamKind::Weight),
        TensorId::EmbeddingNorm(side, affine) => stack_part(side, "layernorm_embedding", affine),
        TensorId::FinalNorm(side, affine) => stack_part(side, "layer_norm", affine),
        _ => hugging_face::locate(role, shared),
    }
}
