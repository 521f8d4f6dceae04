//! One model, one planned memory: encode, step, fork, release. See [`Session`].
//!
//! `plan.rs` counts the memory from [`Limits`] and `plan_table.rs` prints it; `session.rs` holds it, with
//! a model that is borrowed or shared (`model_ref.rs`), and `threads.rs` says who computes on it.
//! `slots.rs` knows who is there, by tickets of `tickets.rs`, and `pasts.rs` where each past lies.
//! `encode.rs` takes sentences in, `step.rs`, `prefill.rs` and `verify.rs` feed hypotheses,
//! all on the memory that `pass.rs` cuts up for them, and `best.rs` gives the best tokens of a step in
//! place of its logits, where `screening.rs` says that this pays. `generate.rs` is the loop around them,
//! which tells what happens (`event.rs`) and may guess ahead (`drafted.rs`, `drafter.rs`,
//! `model_drafter.rs`, `pace.rs`),
//! `defaults.rs` what a checkpoint asks of it, `check.rs` what it refuses, `watched.rs` a session that shows what it does, and `language.rs` asks
//! one step which language was heard.

// In the order of use, which is that of the documentation.
#[expect(clippy::module_inception, reason = "the struct that the module is named after")]
mod session;

mod defaults;

mod check;

mod generate;

mod drafted;

mod encode;

mod slots;

mod step;

mod best;

mod prefill;

mod verify;

mod watched;

mod language;

mod threads;

mod debug;
mod drafter;
mod error;
mod event;
mod model_drafter;
mod model_ref;
mod pace;
mod pass;
mod pasts;
mod plan;
mod plan_table;
mod screening;
mod tickets;

pub use drafter::{Asked, DraftContext, Drafter, Given, NGrams};
pub use error::{SessionError, SourceError};
pub use event::{Counts, Event, Generated, Stop};
pub use generate::Source;
pub use model_drafter::ModelDrafter;
pub use model_ref::ModelRef;
pub use plan::{Limits, Plan};
pub use prefill::EachLogits;
pub use session::Session;
pub use slots::{Row, Sentence};
pub use step::StepRow;
pub use threads::Threads;
pub use verify::{Choose, DraftRow, Verified};
pub use watched::Watched;
