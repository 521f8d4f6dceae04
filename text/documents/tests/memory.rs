//! The memory of documents and tables. An allocator counts the bytes of each thread.

#![allow(missing_docs, clippy::unwrap_used, clippy::expect_used, clippy::panic, unreachable_pub)]

mod archive_memory;
mod document_memory;
#[allow(dead_code, reason = "the other program uses more of it")]
mod office;
#[allow(dead_code, reason = "the other program picks texts")]
mod random;
mod tables_memory;

use simdformer_testing::counting;

#[global_allocator]
static ALLOCATOR: counting::CountingAllocator = counting::CountingAllocator;
