//! `WhisperForConditionalGeneration`: BART's names for the layers, convolutions for an encoder's embedding, positions
//! on both sides.

use super::hugging_face::{self, affine, stack_part};
use super::location::Location;
use crate::network::{Affine, Role};

pub(super) fn locate(role: Role) -> Vec<Location> {
    match role {
        Role::SourceEmbedding => Vec::new(),
        Role::Output => vec![Location::whole("proj_out.weight")],
        Role::Convolution(index, of) => {
            vec![Location::whole(format!("model.encoder.conv{}.{}", index + 1, affine(of)))]
        }
        Role::Positions(side) => stack_part(side, "embed_positions", Affine::Weight),
        Role::FinalNorm(side, affine) => stack_part(side, "layer_norm", affine),
        _ => hugging_face::locate(role, false),
    }
}
