//! The integration tests. Each file is a module of this one program.

#![allow(missing_docs, clippy::unwrap_used, clippy::expect_used, clippy::panic, unreachable_pub)]

use simdformer_testing::directories;
// How many cases the tests run.
use simdformer_testing::effort;

mod batched;
mod batcher;
#[cfg(feature = "json")]
mod cancel;
mod ctranslate2;
#[cfg(feature = "json")]
mod embedder;
mod failed_sentences;
#[cfg(feature = "json")]
mod language_codes;
mod model_files;
#[cfg(feature = "json")]
mod packed;
#[cfg(feature = "json")]
mod pairs;
mod placement_model;
mod repetition;
mod subtitle_sentences;
#[cfg(feature = "json")]
mod task_prefixes;
mod translate_documents;
mod translator;
mod unknown_words;
