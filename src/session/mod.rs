//! One model, one planned memory: encode, step, fork, release. See [`Session`].
//!
//! `plan.rs` counts the memory from [`Limits`] and `plan_table.rs` prints it; `session.rs` holds it, with
//! a model that is borrowed or shared (`model_ref.rs`), and `threads.rs` says who computes on it.
//! `handles.rs` knows who is there, by tickets of `generations.rs`, and `kv_slots.rs` where each past lies.
//! `encode.rs` takes sentences in, `step.rs`, `prefill.rs` and `verify.rs` feed hypotheses,
//! all on the memory that `pass.rs` cuts up for them, and `argmax.rs` gives the best tokens of a step in
//! place of its logits, where `pruning_policy.rs` says that this pays. `generate.rs` is the loop around them,
//! which tells what happens (`event.rs`) and may guess ahead (`speculative.rs`, `drafter.rs`,
//! `model_drafter.rs`, `draft_length.rs`),
//! `defaults.rs` what a checkpoint asks of it, `check.rs` what it refuses, `traced.rs` a session that shows what it does, and `language.rs` asks
//! one step which language was heard.

// In the order of use, which is that of the documentation.
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
