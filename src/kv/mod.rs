//! The KV cache of a session: keys and values, the slots in which they lie, and the handles of their owners.
//!
//! | file | contents |
//! |---|---|
//! | `cache.rs` | the keys and values of each layer, and the KV slots of hypotheses: which slot holds the key of each position |
//! | `handles.rs` | handles of sentences and hypotheses, and their generation numbers |

mod cache;
mod handles;

pub(crate) use cache::{Caches, CachesShape, KvSlots};
pub(crate) use handles::{HandleGenerations, has_generation, read_generation, write_generation};
pub use handles::{HypothesisId, SourceId};
