//! Training runs of `simdformer`: corpora, batches, validation, and checkpoints from which a run resumes to the same bits.
//!
//! The mathematics is in [`simdformer::train`]: a [`Trainer`](simdformer::train::Trainer) makes steps on sentences that it
//! is given. This crate decides which sentences these are, writes what the steps have made, and continues it later.
//!
//! | file | what it does |
//! |---|---|
//! | `corpus.rs`, `vocabulary_file.rs`, `features_file.rs` | sentences in memory, from lines of ids, of words, or beside features |
//! | `batch_sampler.rs` | the sentences of each batch, as a function of the seed |
//! | `options.rs` | the options of a run, and their changes at a resume |
//! | `training_run.rs` | the events of a run, and validation |
//! | `run_directory.rs` | the lock of a directory, and checking which run owns it |
//! | `checkpoints.rs`, `saved_checkpoint.rs` | the checkpoints of a run, and the files of one |
//! | `layout.rs` | the files of a model: weights under the names of the first checkpoint, configuration, vocabularies |
//! | `mean.rs` | the mean of checkpoints |
//! | `checksummed_file.rs` | files that are replaced as a whole, with their checksums |

mod batch_sampler;
mod checkpoints;
mod checksummed_file;
mod corpus;
mod error;
mod features_file;
mod layout;
mod mean;
mod options;
mod run_directory;
mod saved_checkpoint;
mod training_run;
mod vocabulary_file;

pub use batch_sampler::{BatchSize, Batching};
pub use corpus::{Corpus, Reading};
pub use error::Error;
pub use layout::Layout;
pub use mean::average;
pub use options::{Metric, OptionChange, RunOptions};
pub use training_run::{Reason, StepRecord, TrainEvent, TrainingRun, Validation};
pub use vocabulary_file::Words;

/// The program of the README, compiled and run by the tests.
#[cfg(doctest)]
#[doc = include_str!("../README.md")]
struct Package;
