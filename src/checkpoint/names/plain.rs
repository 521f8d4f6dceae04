//! Checkpoints without a library: the name of a tensor is the printed form of its role.

use super::tensor_location::Location;
use crate::network::TensorId;

pub(super) fn locate(role: TensorId) -> Vec<Location> {
    vec![Location::whole(role.to_string())]
}
