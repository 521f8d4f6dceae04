//! The native module of the Python package `simdformer`: private, small, and used only by the classes in Python.
//!
//! | file | contents |
//! |---|---|
//! | `errors.rs` | errors of the core as exceptions |
//! | `loaded.rs` | models and tokenizers, shared by the objects of a process |
//! | `pool.rs`, `signals.rs` | threads, `fork`, Ctrl-C |
//! | `options.rs` | options from the dataclasses of Python |
//! | `arrays.rs` | ragged arrays in and out |
//! | `id_session.rs`, `generate.rs`, `scoring.rs` | the calls with ids: their session, search, given targets |
//! | `model.rs`, `session.rs` | a model, step by step, with its intermediate tensors |
//! | `translator.rs`, `token_stream.rs` | texts in, texts out; one text, part by part |
//! | `embedder.rs`, `reranker.rs` | texts in, vectors or scores out |
//! | `transcriber.rs`, `recording.rs`, `segment_stream.rs` | recordings in, segments out, one by one |
//! | `batcher.rs` | sentences from any threads in one batch |
//!
//! # Python and threads
//!
//! Each call copies its arguments, detaches from Python for its whole work, and hands its result over without a copy.
//! Classes are frozen, with their state behind mutexes that are held only while Python is attached: threads can share
//! an object, also without a GIL, and a child of a fork never finds a mutex locked.

mod arrays;
mod batcher;
mod embedder;
mod errors;
mod generate;
mod loaded;
mod model;
mod options;
mod pool;
mod recording;
mod reranker;
mod scoring;
mod segment_stream;
mod session;
mod signals;
mod token_stream;
mod transcriber;
mod translated;
mod translator;

use pyo3::prelude::*;

#[pymodule(gil_used = false)]
mod _simdformer {
    #[pymodule_export]
    use crate::batcher::Batcher;
    #[pymodule_export]
    use crate::embedder::Embedder;
    #[pymodule_export]
    use crate::loaded::model_files;
    #[pymodule_export]
    use crate::model::Model;
    #[pymodule_export]
    use crate::reranker::Reranker;
    #[pymodule_export]
    use crate::segment_stream::SegmentStream;
    #[pymodule_export]
    use crate::session::{Hypothesis, Session, Source, stages};
    #[pymodule_export]
    use crate::token_stream::TokenStream;
    #[pymodule_export]
    use crate::transcriber::Transcriber;
    #[pymodule_export]
    use crate::translator::Translator;

    use super::{PyResult, loaded, options, pyfunction};
    use simdformer::kernels::Isa;

    /// The version of the package.
    #[pymodule_export]
    #[expect(non_upper_case_globals, reason = "Python's name")]
    const __version__: &str = env!("CARGO_PKG_VERSION");

    /// The instruction sets of this machine, from the simplest to the best.
    #[pyfunction]
    fn available_isas() -> Vec<&'static str> {
        Isa::available().map(Isa::name).collect()
    }

    /// The keywords of a search: the name of each, what it does, and what its value must be.
    #[pyfunction]
    fn settings() -> Vec<(&'static str, &'static str, String)> {
        options::keywords().collect()
    }

    /// The name of the instruction set that `SIMDFORMER_ISA` or this machine chooses.
    #[pyfunction]
    fn default_isa() -> PyResult<&'static str> {
        Ok(loaded::instruction_set(None)?.name())
    }
}
