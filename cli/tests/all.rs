//! The integration tests. Each file is a module of this one program.

#![allow(missing_docs, clippy::unwrap_used, clippy::expect_used, clippy::panic, unreachable_pub)]

mod argos;
mod bulk_command;
mod command;
mod copy_model;
mod embedder;
mod encoders;
#[cfg(feature = "transcribe")]
mod error_texts_kept;
mod explain;
mod failed_sentences;
mod generate;
#[cfg(all(feature = "hub", feature = "serve", feature = "transcribe"))]
mod help;
#[cfg(feature = "hub")]
mod hub;
#[cfg(all(feature = "hub", unix))]
mod hub_caches;
#[cfg(feature = "hub")]
mod hub_failures;
#[cfg(feature = "hub")]
mod hub_server;
#[cfg(all(feature = "transcribe", target_os = "linux"))]
mod outputs;
mod pack;
#[cfg(unix)]
mod pages;
#[cfg(feature = "transcribe")]
mod products;
mod rerank;
#[cfg(all(feature = "serve", unix))]
mod serve;
mod task_prefixes;
#[cfg(feature = "transcribe")]
mod transcribe;
#[cfg(feature = "transcribe")]
mod transcribe_stream;
mod translate_documents;
mod unknown_words;
