//! The integration tests. Each file is a module of this one program.

#![allow(missing_docs, clippy::unwrap_used, clippy::expect_used, clippy::panic, unreachable_pub)]

#[cfg(feature = "audio")]
mod audio;
#[cfg(feature = "audio-files")]
mod audio_files;
#[cfg(feature = "translate")]
mod batcher;
#[cfg(feature = "translate")]
mod cancel;
use simdformer_testing::directories;
// This file of the workspace decides how many cases the tests run.
use simdformer_testing::effort;
#[cfg(all(feature = "json", feature = "models"))]
mod embedder;
#[cfg(feature = "translate")]
mod failed_sentences;
#[cfg(feature = "audio-files")]
mod heard_sound;
#[cfg(feature = "audio-files")]
mod joined_sound;
mod language_codes;
mod model_files;
#[cfg(all(feature = "json", feature = "models"))]
mod packed;
mod pairs;
mod placement_model;
#[cfg(feature = "audio-files")]
mod recorded_sound;
mod repetition;
#[cfg(feature = "audio")]
use simdformer_testing::riff;
#[cfg(all(feature = "json", feature = "transcribe"))]
mod streaming;
#[cfg(feature = "translate")]
mod subtitle_sentences;
#[cfg(feature = "translate")]
mod task_prefixes;
#[cfg(all(feature = "json", feature = "transcribe"))]
mod transcriber;
#[cfg(all(feature = "json", feature = "transcribe"))]
mod transcriber_properties;
#[cfg(feature = "translate")]
mod translate_documents;
#[cfg(feature = "translate")]
mod translator;
#[cfg(feature = "translate")]
mod unknown_words;
#[cfg(feature = "vad")]
mod vad;
