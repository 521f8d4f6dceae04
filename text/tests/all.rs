//! The integration tests. Each file is a module of this one program.

#![allow(missing_docs, clippy::unwrap_used, clippy::expect_used, clippy::panic, unreachable_pub)]

#[cfg(feature = "audio")]
mod audio;
#[cfg(feature = "audio-files")]
mod audio_files;
#[cfg(feature = "cli")]
mod batcher;
#[cfg(feature = "bulk")]
mod bulk;
#[cfg(feature = "cli")]
mod bulk_command;
#[cfg(feature = "bulk")]
mod bulk_resume;
#[cfg(all(feature = "bulk", feature = "cli", feature = "document", feature = "json"))]
mod cancel;
#[cfg(feature = "cli")]
mod command;
#[cfg(all(feature = "cli", feature = "audio", feature = "json"))]
use simdformer_testing::compare_texts;
#[cfg(all(feature = "cli", feature = "json"))]
mod copy_model;
use simdformer_testing::cpu_time;
use simdformer_testing::directories;
#[cfg(feature = "document")]
mod document_parts;
#[cfg(feature = "document")]
mod documents;
#[cfg(feature = "document")]
mod documents_hostile;
mod malicious_input;
// This file of the workspace decides how many cases the tests run.
use simdformer_testing::effort;
#[cfg(all(feature = "cli", feature = "json"))]
mod embedder;
#[cfg(all(feature = "cli", feature = "json"))]
mod encoders;
#[cfg(all(feature = "cli", feature = "audio", feature = "json"))]
mod error_texts_kept;
#[cfg(feature = "cli")]
mod explain;
#[cfg(all(feature = "cli", feature = "document"))]
mod failed_sentences;
#[cfg(feature = "cli")]
mod generate;
mod golden;
#[cfg(feature = "audio-files")]
mod heard_sound;
#[cfg(all(feature = "transcribe", feature = "hub"))]
mod help;
#[cfg(feature = "hub")]
mod hub;
#[cfg(all(feature = "hub", feature = "json", unix))]
mod hub_caches;
#[cfg(feature = "hub")]
mod hub_failures;
#[cfg(feature = "hub")]
mod hub_server;
#[cfg(feature = "audio-files")]
mod joined_sound;
mod languages;
mod marks;
mod model_files;
#[cfg(all(feature = "cli", feature = "json", feature = "transcribe", target_os = "linux"))]
mod outputs;
#[cfg(all(feature = "cli", feature = "json"))]
mod packed;
#[cfg(all(feature = "cli", feature = "json", feature = "transcribe"))]
mod page_models;
mod placement;
mod placement_model;
#[cfg(all(feature = "cli", feature = "json", feature = "transcribe"))]
mod products;
#[cfg(feature = "audio-files")]
mod recorded_sound;
mod repetition;
#[cfg(feature = "cli")]
mod rerank;
#[cfg(feature = "audio")]
use simdformer_testing::riff;
mod sentences;
mod spans;
#[cfg(all(feature = "cli", feature = "json", feature = "transcribe"))]
mod streaming;
mod streams;
#[cfg(feature = "cli")]
mod subtitle_sentences;
mod task_prefixes;
#[cfg(all(feature = "cli", feature = "json", feature = "transcribe"))]
mod transcribe;
#[cfg(all(feature = "cli", feature = "json", feature = "transcribe"))]
mod transcriber;
#[cfg(all(feature = "cli", feature = "json", feature = "transcribe"))]
mod transcriber_properties;
#[cfg(feature = "cli")]
mod translate_documents;
#[cfg(feature = "cli")]
mod translator;
#[cfg(feature = "cli")]
mod unknown_words;
#[cfg(feature = "vad")]
mod vad;
