//! The tests of the model layer. Each file is a module of this one program: it is linked once, and its
//! tests run in parallel. Tests that count the allocations of the whole process are programs of their own.

mod support;

#[cfg(feature = "torch")]
use simdformer_testing::torch_file;
use simdformer_testing::{compare_texts, digest, effort, random_model, scoped, soak, toy};
use support::{golden_options, naive_options, naive_search as naive, rejections, tiny_marian};

mod broken_checkpoint;
#[cfg(feature = "rayon")]
mod callbacks;
mod cancel;
mod checkpoint;
mod checkpoint_errors;
mod config;
mod continuous_batching;
mod ctranslate2;
mod demo_model;
mod determinism;
mod determinism_forks;
mod display;
mod documents;
mod engine;
mod engine_submit;
mod error_chains;
mod error_texts;
mod error_texts_kept;
mod events;
mod executor;
mod families;
mod features;
mod fingerprint;
#[cfg(target_os = "linux")]
mod giant_files;
mod golden_bits;
mod golden_gradients;
mod golden_models;
mod golden_search;
mod handles;
mod hypotheses;
mod kernel_errors;
mod layering;
mod loading;
mod mixed_options;
mod not_finite;
mod packed_files;
mod parameters;
#[cfg(unix)]
mod plan;
mod pruned_argmax;
mod reading_lists;
mod request_queue;
mod requests;
mod saving;
mod search;
mod search_guarantees;
mod search_processors;
mod session_errors;
mod session_pool;
mod settings;
mod shared_weights;
mod speculative;
mod speculative_search;
mod speculative_verify;
mod started_requests;
mod task_heads;
#[cfg(feature = "torch")]
mod torch_files;
mod trace;
mod weight_dtypes;
mod weights_in_memory;
mod wrapped_names;
