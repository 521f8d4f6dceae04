//! One model, one planned memory: encode, step, fork, release. See [`Session`].
//!
//! `plan.rs` counts the memory from [`Limits`] and `plan_table.rs` prints it; `session.rs` holds it, and
//! `threads.rs` says who computes on it. `slots.rs` knows who is there, `encode.rs` takes sentences in,
//! `step.rs` and `prefill.rs` feed hypotheses, both on the memory that `pass.rs` cuts up for them, and
//! `best.rs` gives the best tokens of a step in place of its logits, where `screening.rs` says that this
//! pays. `generate.rs` is the loop around them, `defaults.rs` what a checkpoint asks of it, and
//! `watched.rs` a session that shows what it does.

mod best;
mod debug;
mod defaults;
mod encode;
mod error;
mod generate;
mod pass;
mod plan;
mod plan_table;
mod prefill;
mod screening;
#[expect(clippy::module_inception, reason = "the struct that the module is named after")]
mod session;
mod slots;
mod step;
mod threads;
mod watched;

pub use error::SessionError;
pub use generate::{Counts, Generated, Source};
pub use plan::{Limits, Plan};
pub use prefill::EachLogits;
pub use session::Session;
pub use slots::{Row, Sentence};
pub use step::StepRow;
pub use threads::Threads;
pub use watched::Watched;
