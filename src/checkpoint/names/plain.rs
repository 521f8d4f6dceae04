//! Checkpoints of no library: a tensor is called what its role prints.

use super::location::Location;
use crate::network::TensorId;

pub(super) fn locate(role: TensorId) -> Vec<Location> {
    vec![Location::whole(role.to_string())]
}
