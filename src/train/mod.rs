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
//! | `forward.rs`, `backward.rs`, `attention.rs`, `pass.rs` | the blocks, in both directions |
//! | `conv.rs` | the convolutions of an encoder that reads features |
//! | `dropout.rs`, `dropout_pass.rs` | the dropout sites, and applying dropout |
//! | `loss_step.rs` | one pass: forward, the loss, backward, gradients of lookups |
//! | `trainer.rs`, `accessors.rs` | the state of a trainer, and read access to it |
//! | `accumulate.rs`, `optimizer_step.rs`, `metrics.rs`, `update.rs` | a step: passes, an update, and their results |
//! | `averaged_params.rs` | exchanging the parameters with their average |
//! | `init.rs` | initial weights |
//! | `vocab.rs`, `corpus.rs`, `batches.rs` | sentences, and the selection of sentences for a batch |
//! | `atomic_write.rs`, `checkpoint_layout.rs` | atomic file writes, the files of a model |
//! | `state.rs` | the files of a checkpoint |
//! | `checkpoints.rs`, `lock.rs` | the checkpoints of a run, the directory lock |
//! | `run_directory.rs` | checking which run owns a directory |
//! | `options.rs` | the options of a run, and their changes at a resume |
//! | `run.rs`, `validate.rs`, `checkpoint_average.rs` | the event loop of a run, validation, the mean of checkpoints |
//!
//! # Reproducible bits
//!
//! Every sum over tokens is computed in reduction chunks of whole sentences ([`REDUCTION_CHUNK`]), and the chunks are
//! added in order. So a batch gives the same bits in one pass or in several, for any limits, any [`SavedActivations`]
//! and any number of threads. The forward pass calls the kernels that a [`Session`](crate::Session) calls, and its
//! losses equal the scores of the session.

mod accessors;
mod accumulate;
mod atomic_write;
mod attention;
mod averaged_params;
mod backward;
mod batch;
mod batches;
mod checkpoint_average;
mod checkpoint_layout;
mod checkpoints;
mod conv;
mod corpus;
mod dropout;
mod dropout_pass;
mod error;
mod forward;
mod frozen;
mod init;
mod limits;
mod lock;
mod loss_step;
mod metrics;
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
mod update;
mod validate;
mod vocab;

pub use batch::{Example, REDUCTION_CHUNK};
pub use batches::{BatchSize, Batching};
pub use checkpoint_average::average;
pub use checkpoint_layout::Layout;
pub use corpus::{Corpus, Reading};
pub use dropout::DropoutRates;
pub use error::TrainError;
pub use init::Initial;
pub use limits::{SavedActivations, TrainLimits};
pub use metrics::Totals;
pub use options::{Metric, OptionChange, RunOptions};
pub use plan::TrainPlan;
pub use run::{Reason, StepRecord, TrainEvent, TrainingRun, Validation};
pub use run_error::RunError;
pub use simdformer_kernels::train::{Adam, Schedule, Smoothing, SmoothingOver};
pub use trainer::{EncoderLoss, Trainer};
pub use update::{Step, StepOptions, Update};
pub use vocab::Words;
