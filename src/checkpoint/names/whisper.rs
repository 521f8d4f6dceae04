//! `WhisperForConditionalGeneration`: BART's names for the layers, convolutions instead of the encoder's
//! embedding, positions on both sides.

use super::hugging_face::{self, affine, stack_part};
use super::tensor_location::Location;
use crate::network::{ParamKind, TensorId};

pub(super) fn locate(role: TensorId) -> Vec<Location> {
    match role {
        TensorId::SourceEmbedding => Vec::new(),
        TensorId::Output => vec![Location::whole("proj_out.weight")],
        TensorId::Convolution(index, of) => {
            vec![Location::whole(format!("model.encoder.conv{}.{}", index + 1, affine(of)))]
        }
        TensorId::Positions(side) => stack_part(side, "embed_positions", ParamKind::Weight),
        TensorId::FinalNorm(side, affine) => stack_part(side, "layer_norm", affine),
        _ => hugging_face::locate(role, false),
    }
}
