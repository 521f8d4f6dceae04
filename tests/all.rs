//! The tests of the model layer. Each file is a module of this one program: it is linked once, and its
//! tests run in parallel. Tests that count the allocations of the whole process are programs of their own.

#[path = "support/compare_texts.rs"]
mod compare_texts;
#[path = "support/digest.rs"]
mod digest;
#[path = "support/effort.rs"]
mod effort;
#[path = "support/golden_options.rs"]
mod golden_options;
#[path = "support/naive_search.rs"]
mod naive;
#[path = "support/naive_options.rs"]
mod naive_options;
#[path = "support/random_model.rs"]
#[allow(dead_code, reason = "an example writes files, too")]
mod random_model;
#[path = "support/rejections.rs"]
mod rejections;
#[path = "support/scoped.rs"]
mod scoped;
#[path = "support/soak.rs"]
mod soak;
#[path = "support/tiny_marian.rs"]
mod tiny_marian;
#[cfg(feature = "torch")]
#[path = "support/torch_file.rs"]
#[allow(dead_code, reason = "what is wrong in a file is for malicious_torch_files.rs")]
mod torch_file;
#[path = "support/toy.rs"]
mod toy;

mod broken_checkpoint;
#[cfg(feature = "rayon")]
mod callbacks;
mod cancel;
mod checkpoint;
mod checkpoint_errors;
mod config;
mod continuous_batching;
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
mod example_first_hour;
mod example_grammar;
mod example_navigate;
mod example_vocabulary;
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
mod request_queue;
mod requests;
mod retired_words;
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
