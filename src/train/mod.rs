//! Training: teacher forcing from sentences to an update, on planned memory, with the same bits every time.
//!
//! The other half of the paper. A target is fed to the decoder one to the right, the loss of each token goes back
//! through every block, and an optimiser moves the parameters. The walk over the network that places the weights of a
//! [`Model`](crate::Model) places parameters here, so every architecture that loads is one that learns.
//!
//! | file | what it does |
//! |---|---|
//! | `flat.rs`, `frozen.rs` | where parameters lie, and which of them no update touches |
//! | `limits.rs`, `plan.rs` | from limits to bytes |
//! | `batch.rs` | sentences end to end, targets shifted, leaves |
//! | `forward.rs`, `backward.rs`, `attention.rs`, `pass.rs` | the blocks, in both directions |
//! | `stem.rs` | the convolutions under an encoder that reads features |
//! | `drops.rs`, `dropping.rs` | where numbers are dropped, and that it happens |
//! | `learn.rs` | one pass: forward, the loss, backward, lookups |
//! | `trainer.rs`, `parts.rs` | what a trainer holds; what is read of it |
//! | `accumulate.rs`, `apply.rs`, `totals.rs`, `update.rs` | a step: passes and an update, and what they tell |
//! | `averaged.rs` | the average in the place of the parameters |
//! | `initial.rs` | first weights |
//! | `words.rs`, `corpus.rs`, `batches.rs` | sentences, and which of them a batch has |
//! | `durable.rs`, `layout.rs`, `state.rs` | files that are there as a whole, a model's files, a checkpoint's files |
//! | `checkpoints.rs`, `lock.rs`, `run_directory.rs` | the checkpoints of a run, the lock, and whose directory it is |
//! | `options.rs` | what a run is told, and what differs when it is resumed |
//! | `run.rs`, `validate.rs`, `average.rs` | all of it together, one event after the other; means of saves |
//!
//! # The same bits
//!
//! Whatever is summed over tokens is summed in leaves of whole sentences ([`LEAF`]), and leaves in order; so a batch
//! learned in one pass or in several gives the same bits, and so do any limits, any [`Keep`] and any number of threads.
//! The forward pass is made of the kernels that a [`Session`](crate::Session) calls, and its losses are the scores there.

mod accumulate;
mod apply;
mod attention;
mod average;
mod averaged;
mod backward;
mod batch;
mod batches;
mod checkpoints;
mod corpus;
mod dropping;
mod drops;
mod durable;
mod error;
mod flat;
mod forward;
mod frozen;
mod initial;
mod layout;
mod learn;
mod limits;
mod lock;
mod options;
mod parts;
mod pass;
mod plan;
mod run;
mod run_directory;
mod run_error;
mod state;
mod stem;
mod totals;
mod trainer;
mod update;
mod validate;
mod words;

pub use average::average;
pub use batch::{LEAF, Pair};
pub use batches::{BatchSize, Batching};
pub use corpus::{Corpus, Reading};
pub use drops::DropoutRates;
pub use error::TrainError;
pub use initial::Initial;
pub use layout::Layout;
pub use limits::{Keep, TrainLimits};
pub use options::{Metric, OptionChange, RunOptions};
pub use plan::TrainPlan;
pub use run::{Event, Reason, Run, StepRecord, Validation};
pub use run_error::RunError;
pub use simdformer_kernels::train::{Adam, Schedule, Smoothing, SmoothingOver};
pub use totals::Totals;
pub use trainer::{EncoderLoss, Trainer};
pub use update::{Step, StepOptions, Update};
pub use words::Words;
