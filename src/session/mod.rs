//! A session: one model and one planned buffer. See [`Session`].
//!
//! | file | contents |
//! |---|---|
//! | `session.rs`, `threads.rs` | the session, its model, borrowed or shared, and its threads |
//! | `memory_plan.rs` | computes the buffers from [`Limits`], and lists them |
//! | `hypotheses.rs` | starts, forks, rewinds and releases sentences and hypotheses |
//! | `encode.rs` | runs the encoder |
//! | `step.rs` | steps, and the path of every pass through the decoder |
//! | `prefill.rs`, `verify_draft.rs` | many known tokens in one pass; a draft and its acceptance |
//! | `pruning_policy.rs` | when a step uses the pruned argmax, and how undecided rows are completed |
//! | `traced_session.rs` | a session with a probe; alignments |

// The order of these modules is the order of the methods in the documentation.
#[expect(clippy::module_inception, reason = "the struct that the module is named after")]
mod session;

mod encode;

mod hypotheses;

mod step;

mod prefill;

mod verify_draft;

mod traced_session;

mod memory_plan;
mod pruning_policy;
mod threads;

pub(crate) use encode::{Inputs, SOURCES_PER_CALL};
pub(crate) use memory_plan::{DRAFT_LENGTH_WORDS, LoopBuffers};
pub use memory_plan::{Limits, Plan};
pub(crate) use pruning_policy::StepOutput;
pub use session::Session;
pub(crate) use session::{check_limit, check_tokens};
pub use step::StepRow;
pub(crate) use step::{Keys, Output};
pub use threads::Threads;
pub use verify_draft::Verified;
