//! `FSMTForConditionalGeneration`: layers as everywhere, embeddings of each side and an output of its own.

use super::hugging_face;
use super::location::Location;
use crate::network::Role;

pub(super) fn locate(role: Role) -> Vec<Location> {
    match role {
        Role::Output => vec![Location::whole("model.decoder.output_projection.weight")],
        _ => hugging_face::locate(role, false),
    }
}
