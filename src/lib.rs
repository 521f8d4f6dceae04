//! Encoder-decoder Transformer ("Attention Is All You Need") on CPUs. After planning, no call allocates heap memory,
//! and the same input always gives the same bits.
//!
//! # Quick start
//!
//! ```
//! use simdformer::Engine;
//!
//! # if !std::path::Path::new("models/fr-en").exists() { return Ok(()) } // not in the published package
//! let engine = Engine::open("models/fr-en")?;
//! let found = engine.generate(&[6, 11, 0])?;
//! println!("{:?}, score {}", found.tokens(), found.score());
//! # assert!(!found.tokens().is_empty());
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```
//!
//! An [`Engine`] owns a model and plans sessions for what its calls need. A program with its own scheduler uses a
//! [`Session`] below it:
//!
//! ```
//! use simdformer::search::Hooks;
//! use simdformer::{Event, Limits, Model, Session, Source};
//!
//! # if !std::path::Path::new("models/fr-en").exists() { return Ok(()) } // not in the published package
//! // 1. Load: weights are packed once for the instruction set of this CPU.
//! let model = Model::open("models/fr-en")?;
//! // 2. Plan: computes the exact number of bytes from the limits and allocates them once.
//! let mut session = Session::new(&model, Limits::new(4, 32, 32))?;
//! // 3. Run: token ids in, token ids out; each sentence is reported when it finishes.
//! let options = session.search_options();
//! let mut best = Vec::new();
//! session.generate(&[Source::new(&[6, 11, 0])], &options, &mut Hooks::default(), &mut |event| {
//!     if let Event::Done(done) = event {
//!         best.extend(done.hypotheses().next().map(|hypothesis| hypothesis.tokens.to_vec()));
//!     }
//! })?;
//! assert_eq!(best.len(), 1);
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```
//!
//! # Examples
//!
//! Programs of at most sixty lines, in the repository: `cargo run --release --example first_hour -- n_best`.
//! Their tests run them and compare the results with those of each sentence decoded alone.
//!
//! | task | example | interface |
//! |---|---|---|
//! | kernels on your own buffers and threads | `examples/first_hour/kernels.rs` | [`kernels::gemm`], [`kernels::attention`], [`kernels::ThreadPool`] |
//! | a decode loop on the kernels alone | `examples/first_hour/decode.rs` | [`kernels::CacheMut`], [`kernels::SlotTable`], [`kernels::attention_decode`] |
//! | a function without std and allocator | `tests/no_std/src/lib.rs` | [`kernels::PackedMatrix`] |
//! | translate: best hypothesis, n-best, samples | `examples/first_hour/n_best.rs` | [`Session::generate`], [`search::SearchOptions`] |
//! | int8 weights, packed files | `examples/first_hour/int8.rs` | [`WeightDtypes`], [`Model::save_packed`] |
//! | fine-tune and save | `train/examples/fine_tune.rs` | `train::Trainer`, `simdformer_train::Layout` |
//! | stream tokens; stop one source or all | `examples/first_hour/stream.rs` | [`Event`], [`Stop`], [`Cancel`], [`Session::check`] |
//! | admit a sentence while others are decoded | `examples/first_hour/admit.rs` | [`search::Search`], [`Session::step`] |
//! | requests that arrive while others are decoded | [`Session::serve`] | [`RequestQueue`] |
//! | speculative decoding | `cli/src/generate/drafts.rs` | [`Session::generate_drafted`], [`Session::verify`], [`Drafter`] |
//! | a list of sources on all cores, or one source | [`Engine`] | [`Engine::generate`], [`Engine::stream`], [`Engine::encode`] |
//! | one session on each core, with limits of your own | [`SessionPool`] | [`SessionPool::generate`] |
//! | a service: requests of any threads in one batch | `examples/first_hour/service.rs` | [`Engine::submit`], [`Engine::run`] |
//! | a custom architecture, weights from memory | `examples/first_hour/by_hand.rs` | [`Model::from_fn`], [`config::Config::transformer`] |
//! | attention weights of one head | `examples/first_hour/one_head.rs` | [`Session::align`] |
//!
//! # Data flow
//!
//! 1. [`checkpoint`]: safetensors bytes and `config.json`, or [tensors that the caller
//!    holds](checkpoint::Checkpoint::from_tensors), become named tensors and a [`config::Config`].
//! 2. [`Model`]: packs the weights once (query, key and value in one matrix). It is immutable. Any number of sessions
//!    on any threads can share it. [`Model::from_fn`] takes weights without a file.
//! 3. [`Plan`]: computes the ranges of one buffer from a model and [`Limits`].
//! 4. [`Session`]: [`encode`](Session::encode) sources, [`step`](Session::step) any set of hypotheses,
//!    [`fork`](Session::fork) and [`release`](Session::release) them. [`generate`](Session::generate) is the complete
//!    decoding loop, [`serve`](Session::serve) the same over requests that arrive at any time.
//! 5. [`search`]: chooses tokens from logits. It does not depend on the model.
//!
//! All inner loops are in [`kernels`], a crate that can be used alone.
//!
//! # Diagnostics
//!
//! A [`Model`] and a [`Plan`] print the bytes of each part. [`Model::requirements`] gives the bytes of a checkpoint
//! before it is read. [`Model::defaults`] lists the values that were assumed for keys that a `config.json` lacks.
//! An error states the expected and the found value in one sentence; its
//! [`source`](core::error::Error::source) does not repeat that text. With the feature `log`, one line per loaded model
//! states the instruction set of its packed weights and the reason. The library prints nothing else.
//!
//! # Debug builds
//!
//! The profiles of this workspace do not apply in your workspace, and kernels without optimization are hundreds of
//! times slower. Put this into the `Cargo.toml` at the root of your workspace:
//!
//! ```toml
//! [profile.dev.package.simdformer-kernels]
//! opt-level = 3
//! debug = false
//! debug-assertions = false
//! overflow-checks = false
//! [profile.dev.package.simdformer]
//! opt-level = 3
//! ```
//!
//! # Modules
//!
//! | module | contents |
//! |---|---|
//! | [`atomic_file`] | files that appear when they are complete |
//! | [`checkpoint`] | reads safetensors files (with the feature `torch`, also those of `torch.save`) and `config.json`; tensor names of each family |
//! | [`config`] | the architecture as data |
//! | [`search`] | greedy and beam search, sampling, logits processors; works on logits and tokens only |
//! | [`task_heads`] | sentence embeddings and classification scores from hidden states |
//! | [`trace`] | intermediate tensors of a pass, for a probe |
//! | `train` | with the feature `train`: loss, backward pass, optimizer step, in planned memory |
//! | [`kernels`] | the SIMD kernels |
//!
//! The engine, the model, the plan, the session and the drafters are at the root of the crate.

mod cancel;
pub mod checkpoint;
pub mod config;
mod engine;
mod error;
mod fixed_thread_count;
mod generate;
mod input_features;
mod json_object;
mod kv;
mod memory;
mod model;
mod network;
mod printable_text;
mod ref_or_arc;
pub mod search;
mod session;
pub mod task_heads;
pub mod trace;
#[cfg(feature = "train")]
pub mod train;

pub use cancel::Cancel;
pub use engine::{
    Engine, EngineBuilder, EngineReport, Generation, Input, OnDone, Product, ProductBuilder,
    Request, RequestHandle, Workload,
};
pub use error::{Error, ErrorValue};
pub use generate::{
    DecodeStats, DraftContext, DraftRequest, Drafter, Event, Generated, ModelDrafter, PromptLookup,
    ReferenceDrafter, RequestQueue, SessionPool, Source, Stop,
};
pub use input_features::Features;
pub use kv::{HypothesisId, SourceId};
pub use memory::SharedBytes;
pub use model::{
    BITS_VERSION, IntoControlFlow, LoadOptions, Loading, Model, Parameter, Requirements, Storage,
    WeightDtype, WeightDtypes,
};
pub use ref_or_arc::RefOrArc;
pub use session::{Limits, Plan, Session, StepRow, Threads, Verified};
pub use simdformer_atomic_file as atomic_file;
pub use simdformer_kernels as kernels;
pub use simdformer_kernels::{Dtype, Error as KernelError, Quantization};

/// The programs of these pages, which the documentation tests compile. README's is that of the package.
#[cfg(doctest)]
mod pages {
    #[doc = include_str!("../docs/package.md")]
    struct Package;
    #[doc = include_str!("../docs/models.md")]
    struct Models;
    #[cfg(feature = "train")]
    #[doc = include_str!("../docs/training.md")]
    struct Training;
}
