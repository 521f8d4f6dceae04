//! `BartForConditionalGeneration` and `MBartForConditionalGeneration`: Marian's names, and learned positions, a norm
//! after the embeddings, and in mBART one after the last layer.

use super::hugging_face::{self, stack_part};
use super::location::Location;
use crate::network::{Affine, Role};

pub(super) fn locate(role: Role, shared: bool) -> Vec<Location> {
    match role {
        Role::OutputBias => vec![Location::whole("final_logits_bias")],
        Role::Positions(side) => stack_part(side, "embed_positions", Affine::Weight),
        Role::EmbeddingNorm(side, affine) => stack_part(side, "layernorm_embedding", affine),
        Role::FinalNorm(side, affine) => stack_part(side, "layer_norm", affine),
        _ => hugging_face::locate(role, shared),
    }
}
