//! The tests of the C interface. Each file is a module of this one program.

#![allow(missing_docs, clippy::unwrap_used, clippy::expect_used, clippy::panic, unreachable_pub)]

// How many cases the tests run.
use simdformer_testing::effort;

mod c_programs;
mod header;
mod models_in_memory;
mod symbols;
