//! Training: teacher forcing from sentences to an optimizer step, in planned memory, with reproducible bits.
//!
//! The decoder reads the target, shifted by one. The loss of each token is propagated backward through every block,
//! and an optimizer updates the parameters. The visitor that places the weights of a [`Model`](crate::Model) also
//! places the parameters, so every architecture that can be loaded can be trained.
//!
//! | file | what it does |
//! |---|---|
//! | `params.rs`, `frozen.rs` | the ranges of the parameters, and which of them no update changes |
//! | `limits.rs`, `plan.rs` | the number of bytes, computed from limits |
//! | `batch.rs` | concatenated sentences, shifted targets, reduction chunks |
//! | `forward.rs`, `backward.rs` | the layers in both directions: what the forward pass saves, the order of the backward pass |
//! | `blocks/` | the backward pass of each block, in a file with the name of its forward pass in `model/blocks` |
//! | `pass.rs`, `dropout.rs` | the context of a pass, linear maps, and dropout |
//! | `loss_step.rs` | one pass: forward, the loss, backward, gradients of lookups |
//! | `trainer.rs` | the state of a trainer, and read access to it |
//! | `accumulate.rs`, `optimizer_step.rs` | a step: passes, and an update |
//! | `averaging.rs` | exchanging the parameters with their average, and the mean of checkpoints |
//! | `init.rs` | initial weights |
//! | `vocab.rs`, `corpus.rs`, `batches.rs` | sentences, and the selection of sentences for a batch |
//! | `atomic_write.rs`, `checkpoint_layout.rs` | atomic file writes, the files of a model |
//! | `state.rs` | the files of a checkpoint |
//! | `checkpoints.rs` | the checkpoints of a run |
//! | `run_directory.rs` | the lock of a directory, and checking which run owns it |
//! | `options.rs` | the options of a run, and their changes at a resume |
//! | `run.rs` | the event loop of a run, and validation |
//!
//! # Reproducible bits
//!
//! Every sum over tokens is computed in reduction chunks of whole sentences ([`REDUCTION_CHUNK`]), and the chunks are
//! added in order. So a batch gives the same bits in one pass or in several, for any limits, any [`SavedActivations`]
//! and any number of threads. The forward pass calls the kernels that a [`Session`](crate::Session) calls, and its
//! losses equal the scores of the session.

mod accumulate;
mod atomic_write;
mod averaging;
mod backward;
mod batch;
mod batches;
mod blocks;
mod checkpoint_layout;
mod checkpoints;
mod corpus;
mod dropout;
mod error;
mod forward;
mod frozen;
mod init;
mod limits;
mod loss_step;
mod optimizer_step;
mod options;
mod params;
mod pass;
mod plan;
mod run;
mod run_directory;
mod run_error;
mod state;
mod trainer;
mod vocab;

pub use averaging::average;
pub use batch::{Example, REDUCTION_CHUNK};
pub use batches::{BatchSize, Batching};
pub use checkpoint_layout::Layout;
pub use corpus::{Corpus, Reading};
pub use dropout::DropoutRates;
pub use error::TrainError;
pub use init::Initial;
pub use limits::{SavedActivations, TrainLimits};
pub use loss_step::Totals;
pub use optimizer_step::{Step, StepOptions, Update};
pub use options::{Metric, OptionChange, RunOptions};
pub use plan::TrainPlan;
pub use run::{Reason, StepRecord, TrainEvent, TrainingRun, Validation};
pub use run_error::RunError;
pub use simdformer_kernels::train::{Adam, Schedule, Smoothing, SmoothingOver};
pub use trainer::{EncoderLoss, Trainer};
pub use vocab::Words;
