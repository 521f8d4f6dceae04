//! Training: teacher forcing from sentences to an update, on planned memory, with the same bits every time.
//!
//! The other half of the paper. A target is fed to the decoder one to the right, the loss of each token goes back
//! through every block, and an optimizer moves the parameters. The walk over the network that places the weights of a
//! [`Model`](crate::Model) places parameters here, so every architecture that loads is one that learns.
//!
//! | file | what it does |
//! |---|---|
//! | `params.rs`, `frozen.rs` | where parameters lie, and which of them no update touches |
//! | `limits.rs`, `plan.rs` | from limits to bytes |
//! | `batch.rs` | sentences end to end, targets shifted, leaves |
//! | `forward.rs`, `backward.rs`, `attention.rs`, `pass.rs` | the blocks, in both directions |
//! | `conv.rs` | the convolutions under an encoder that reads features |
//! | `dropout.rs`, `dropout_pass.rs` | where numbers are dropped, and that it happens |
//! | `loss_step.rs` | one pass: forward, the loss, backward, lookups |
//! | `trainer.rs`, `accessors.rs` | what a trainer holds; what is read of it |
//! | `accumulate.rs`, `optimizer_step.rs`, `metrics.rs`, `update.rs` | a step: passes and an update, and what they tell |
//! | `averaged_params.rs` | the average in the place of the parameters |
//! | `init.rs` | first weights |
//! | `vocab.rs`, `corpus.rs`, `batches.rs` | sentences, and which of them a batch has |
//! | `atomic_write.rs`, `checkpoint_layout.rs`, `state.rs` | files that are there as a whole, a model's files, a checkpoint's files |
//! | `checkpoints.rs`, `lock.rs`, `run_directory.rs` | the checkpoints of a run, the lock, and whose directory it is |
//! | `options.rs` | what a run is told, and what differs when it is resumed |
//! | `run.rs`, `validate.rs`, `checkpoint_average.rs` | all of it together, one event after the other; means of saves |
//!
//! # The same bits
//!
//! Whatever is summed over tokens is summed in leaves of whole sentences ([`REDUCTION_CHUNK`]), and leaves in order; so a batch
//! learned in one pass or in several gives the same bits, and so do any limits, any [`SavedActivations`] and any number of threads.
//! The forward pass is made of the kernels that a [`Session`](crate::Session) calls, and its losses are the scores there.

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
