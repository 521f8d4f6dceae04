//! `PegasusForConditionalGeneration`: as M2M100, with a bias of the logits.

use super::hugging_face::{self, stack_part};
use super::location::Location;
use crate::network::Role;

pub(super) fn locate(role: Role, shared: bool) -> Vec<Location> {
    match role {
        Role::OutputBias => vec![Location::whole("final_logits_bias")],
        Role::FinalNorm(side, affine) => stack_part(side, "layer_norm", affine),
        _ => hugging_face::locate(role, shared),
    }
}
