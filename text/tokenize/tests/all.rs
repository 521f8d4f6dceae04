//! The integration tests. Each file is a module of this one program.

#![allow(missing_docs, clippy::unwrap_used, clippy::expect_used, clippy::panic, unreachable_pub)]

mod golden;
mod languages;
mod malicious_input;
mod moses;
mod spans;
mod streams;
mod task_prefixes;
