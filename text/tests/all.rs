//! The integration tests: one program, its parts in files of their own.

#![allow(missing_docs, clippy::unwrap_used, clippy::expect_used, clippy::panic, unreachable_pub)]

#[cfg(feature = "audio")]
mod audio;
mod command;
mod directories;
mod malicious_input;
// How much is tested, and when, is decided for the whole workspace in one file.
#[path = "../../kernels/src/effort.rs"]
mod effort;
#[cfg(feature = "json")]
mod encoders;
mod golden;
mod languages;
mod rerank;
#[cfg(feature = "audio")]
mod riff;
mod streams;
#[cfg(all(feature = "audio", feature = "json"))]
mod transcribe;
