//! The tests of the model layer, one module a file, in one program: linked once, and its tests run side
//! by side. What counts the allocations of the whole process is a program of its own.

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
#[path = "support/toy.rs"]
mod toy;

mod api_misuse;
mod argmax_steps;
mod bad_files;
mod bad_input;
mod bad_operands;
mod broken_checkpoint;
#[cfg(feature = "rayon")]
mod callbacks;
mod checkpoint;
mod config;
mod continuous;
mod determinism;
mod display;
mod documents;
mod drafts;
mod error_chains;
mod events;
mod executor;
mod families;
mod features;
mod first_hour;
#[cfg(target_os = "linux")]
mod giant_files;
mod golden_bits;
mod golden_gradients;
mod golden_models;
mod golden_search;
mod grammar;
mod handles;
mod heads;
mod hypotheses;
mod layering;
mod loading;
mod navigate;
mod not_finite;
mod packed_files;
mod parameters;
#[cfg(unix)]
mod plan;
mod requests;
mod retired_words;
mod search;
mod search_guarantees;
mod search_processors;
mod trace;
mod verify;
mod vocabulary;
mod weight_dtypes;
mod weights;
