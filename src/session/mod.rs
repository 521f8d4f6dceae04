//! A session: one model and one planned buffer. See [`Session`].
//!
//! | file | contents |
//! |---|---|
//! | `session.rs`, `model_ref.rs`, `threads.rs` | the session; its model, borrowed or shared; its threads |
//! | `plan.rs`, `plan_table.rs` | computes the buffer from [`Limits`]; prints the bytes of each part |
//! | `handles.rs`, `generations.rs`, `kv_slots.rs` | handles, their generation numbers, the KV slots of hypotheses |
//! | `encode.rs` | runs the encoder |
//! | `step.rs`, `prefill.rs`, `verify.rs`, `pass.rs` | run the decoder; `pass.rs` divides the buffer for one pass |
//! | `argmax.rs`, `pruning_policy.rs` | the pruned argmax of a step, and when it is used |
//! | `generate.rs`, `event.rs` | the decoding loop and its events |
//! | `speculative.rs`, `drafter.rs`, `model_drafter.rs`, `draft_length.rs` | speculative decoding |
//! | `defaults.rs`, `check.rs` | search options of a checkpoint; checks of a request before it runs |
//! | `traced.rs`, `language.rs` | a session with a probe; language detection by one step |

// The order of these modules is the order of the methods in the documentation.
#[expect(clippy::module_inception, reason = "the struct that the module is named after")]
mod session;

mod defaults;

mod check;

mod generate;

mod speculative;

mod encode;

mod handles;

mod step;

mod argmax;

mod prefill;

mod verify;

mod traced;

mod language;

mod threads;

mod debug;
mod draft_length;
mod drafter;
mod error;
mod event;
mod generations;
mod kv_slots;
mod model_drafter;
mod model_ref;
mod pass;
mod plan;
mod plan_table;
mod pruning_policy;

pub use drafter::{DraftContext, DraftRequest, Drafter, PromptLookup, ReferenceDrafter};
pub use error::{SessionError, SourceError};
pub use event::{DecodeStats, Event, Generated, Stop};
pub use generate::Source;
pub use handles::{HypothesisId, SourceId};
pub use model_drafter::ModelDrafter;
pub use model_ref::ModelRef;
pub use plan::{Limits, Plan};
pub use prefill::OnLogits;
pub use session::Session;
pub use step::StepRow;
pub use threads::Threads;
pub use traced::TracedSession;
pub use verify::{DraftRow, TokenSelector, Verified};
