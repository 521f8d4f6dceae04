//! The integration tests. Each file is a module of this one program.

#![allow(missing_docs, clippy::unwrap_used, clippy::expect_used, clippy::panic, unreachable_pub)]

mod client;
mod embeddings;
mod hostile;
mod open_api;
mod pages;
mod rerank;
mod status;
mod stream;
#[cfg(feature = "transcribe")]
mod transcriptions;
mod translate;
