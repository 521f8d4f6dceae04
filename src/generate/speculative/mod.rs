//! Speculative decoding: drafts of the next tokens, verified in one pass.
//!
//! | file | contents |
//! |---|---|
//! | `drafted_loop.rs` | the decoding loop with drafts: requests before a step, removal of rejected tokens after it |
//! | `draft_length.rs` | how many tokens are proposed |
//! | `drafter.rs` | the trait of drafters, a reference text, prompt lookup |
//! | `model_drafter.rs` | a drafter that uses another model |

pub(super) mod draft_length;
mod drafted_loop;
pub(super) mod drafter;
mod model_drafter;

pub use drafter::{DraftContext, DraftRequest, Drafter, PromptLookup, ReferenceDrafter};
pub use model_drafter::ModelDrafter;
