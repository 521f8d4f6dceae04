//! Training: teacher forcing from sentences to an optimizer step, in planned memory, with reproducible bits.
//!
//! The decoder reads the target, shifted by one. The loss of each token is propagated backward through every block,
//! and an optimizer updates the parameters. The visitor that places the weights of a [`Model`](crate::Model) also
//! places the parameters, so every architecture that can be loaded can be trained.
//!
//! | file | what it does |
//! |---|---|
//! | `params.rs`, `frozen.rs` | the ranges of the parameters, and which of them no update changes |
//! | `limits.rs`, `memory_plan.rs` | the number of bytes, computed from limits |
//! | `activation_checkpointing.rs` | which activations are saved, and which are recomputed |
//! | `packed_batch.rs` | concatenated sentences, shifted targets, reduction chunks |
//! | `forward.rs`, `backward.rs` | the layers in both directions: what the forward pass saves, the order of the backward pass |
//! | `blocks/` | the backward pass of each block, in a file with the name of its forward pass in `model/blocks` |
//! | `pass_context.rs`, `dropout.rs` | the context of a pass, linear maps, and dropout |
//! | `loss_step.rs` | one pass: forward, the loss, backward, gradients of lookups |
//! | `trainer.rs` | the state of a trainer, and read access to it |
//! | `accumulate.rs`, `optimizer_step.rs` | a step: passes, and an update |
//! | `averaging.rs` | exchanging the parameters with their average for a time |
//! | `state.rs` | the moments and the average, to be saved and restored |
//! | `file_tensors.rs` | the tensors of a file of parameters |
//! | `init.rs` | initial weights |
//!
//! Corpora, the choice of sentences for a batch, validation, and runs that are saved and resumed are in the package
//! `simdformer-train`.
//!
//! # Reproducible bits
//!
//! Every sum over tokens is computed in reduction chunks of whole sentences ([`REDUCTION_CHUNK`]), and the chunks are
//! added in order. So a batch gives the same bits in one pass or in several, for any limits, any [`SavedActivations`]
//! and any number of threads. The forward pass calls the kernels that a [`Session`](crate::Session) calls, and its
//! losses equal the scores of the session.

mod accumulate;
mod activation_checkpointing;
mod averaging;
mod backward;
mod blocks;
mod dropout;
mod faults;
mod file_tensors;
mod forward;
mod frozen;
mod init;
mod limits;
mod loss_step;
mod memory_plan;
mod optimizer_step;
mod packed_batch;
mod params;
mod pass_context;
mod state;
mod trainer;

pub use activation_checkpointing::SavedActivations;
pub use averaging::Averaged;
pub use dropout::DropoutRates;
pub use file_tensors::FileTensor;
pub use init::Initial;
pub use limits::TrainLimits;
pub use loss_step::Totals;
pub use memory_plan::TrainPlan;
pub use optimizer_step::{Step, StepOptions, Update};
pub use packed_batch::{Example, REDUCTION_CHUNK};
pub use simdformer_kernels::train::{Adam, Schedule, Smoothing, SmoothingOver};
pub use state::StatePart;
pub use trainer::{EncoderLoss, Trainer};
