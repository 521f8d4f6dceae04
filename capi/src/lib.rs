//! The C interface of [`simdformer`]. The functions, the structs and the constants of this crate are those of
//! `include/simdformer.h`, which cbindgen makes of it; `docs/c.md` is the page for users.
//!
//! | file | contents |
//! |---|---|
//! | `errors.rs` | error codes, the text of the last error, and `enter`, which every function begins with |
//! | `pointers.rs` | references and slices of pointers, each with its checks; structs that begin with their size |
//! | `library.rs` | versions, errors, instruction sets |
//! | `model.rs` | models: from a directory, from memory, from tensors |
//! | `options.rs` | the options of a search, by the names of `generation_config.json` |
//! | `sources.rs` | sources, events and hypotheses |
//! | `engine.rs` | many sources at a time, in memory that the library plans |
//! | `session.rs`, `session_memory.rs` | sessions: limits, the caller's memory, how a call takes a session |
//! | `steps.rs` | a session step by step: sentences, hypotheses, logits |
//! | `generate.rs` | the complete decoding loop on a session |
//! | `kernels.rs` | products, attention, layer normalization and softmax on strided matrices |
//! | `executor.rs`, `cancel.rs` | the caller's threads, and the flag that ends calls |
//!
//! # Safety
//!
//! Unsafe code is in this crate because pointers come from C. All its functions have one contract, which is in the
//! header: a pointer is null or points to as many valid elements as its argument says, an opaque pointer came from this
//! library and was not closed, and nothing that a call reads is written by another thread during it. What can be checked
//! is checked, and is an error: null, alignment, sizes that overflow, sizes of structs, handles, ids, UTF-8, and a session
//! that is in use.

#![allow(non_camel_case_types, reason = "the names of C")]
#![allow(
    clippy::missing_safety_doc,
    reason = "the contract of all functions is in the page of the crate"
)]

mod cancel;
mod engine;
mod errors;
mod executor;
mod generate;
mod kernels;
mod library;
mod model;
mod options;
mod pointers;
mod session;
mod session_memory;
mod sources;
mod steps;

pub use cancel::*;
pub use engine::*;
pub use errors::*;
pub use executor::*;
pub use generate::*;
pub use kernels::*;
pub use library::*;
pub use model::*;
pub use options::*;
pub use session::*;
pub use sources::*;
pub use steps::*;

/// What the header says about threads.
const _: () = {
    const fn used_by_any_threads<T: Send + Sync>() {}
    used_by_any_threads::<sf_model>();
    used_by_any_threads::<sf_engine>();
    used_by_any_threads::<sf_options>();
    used_by_any_threads::<sf_cancel>();
    const fn used_by_one_thread_at_a_time<T: Send>() {}
    used_by_one_thread_at_a_time::<simdformer::Session<'static>>();
};

/// The page of the package.
#[cfg(doctest)]
#[doc = include_str!("../README.md")]
struct Readme;
