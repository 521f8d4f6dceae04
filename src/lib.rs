//! The encoder-decoder Transformer of "Attention Is All You Need" on CPUs: as fast as the silicon
//! allows, without touching the heap, the same bits every time.
//!
//! # Five minutes
//!
//! ```
//! use simdformer::search::Hooks;
//! use simdformer::{Event, Limits, Model, Session, Source};
//!
//! # if !std::path::Path::new("models/fr-en").exists() { return Ok(()) } // not in the published package
//! // 1. Load: weights are packed once for this machine's instruction set.
//! let model = Model::open("models/fr-en")?;
//! // 2. Plan: from limits to the exact number of bytes, allocated here and never again.
//! let mut session = Session::new(&model, Limits::new(4, 32, 32))?;
//! // 3. TrainingRun: ids in, ids out, each sentence reported as it finishes.
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
//! # The first hour
//!
//! Programs of at most sixty lines, in the repository: `cargo run --release --example first_hour -- translate`.
//! Their tests run them and compare what they find with what each sentence becomes alone.
//!
//! | to do | begin from | with |
//! |---|---|---|
//! | kernels on buffers and threads of one's own | `examples/first_hour/kernels.rs`, `examples/first_hour/pool.rs` | [`kernels::gemm`], [`kernels::attention`], [`kernels::Executor`] |
//! | translate: the best, the best few, samples | `examples/first_hour/translate.rs` | [`Session::generate`], [`search::SearchOptions`] |
//! | stream; end one source, or everything | `examples/first_hour/stream.rs` | [`Event`], [`Stop`], [`Session::check`] |
//! | admit a sentence while others are under way | `examples/first_hour/admit.rs` | [`search::Search`], [`Session::step`] |
//! | guess what comes next, checked in one pass | `examples/support/drafts.rs` | [`Session::generate_drafted`], [`Session::verify`], [`Drafter`] |
//! | a service of threads that share the weights | `examples/first_hour/service.rs` | [`ModelRef`]: a session that owns an `Arc` |
//! | an architecture by hand, weights from memory | `examples/first_hour/by_hand.rs` | [`Model::from_fn`], [`config::Config::transformer`] |
//! | what one head looks at | `examples/first_hour/one_head.rs` | [`Session::align`] |
//!
//! # How the data flows
//!
//! 1. [`checkpoint`]: safetensors bytes and `config.json`, or [tensors that somebody
//!    holds](checkpoint::Checkpoint::from_tensors) -> named tensors and a [`config::Config`].
//! 2. [`Model`]: weights packed once (query, key and value side by side), immutable, shared by any
//!    number of sessions on any threads. [`Model::from_fn`] takes weights without any file.
//! 3. [`Plan`]: a model and [`Limits`] -> where everything will lie in one buffer.
//! 4. [`Session`]: [`encode`](Session::encode) sentences laid end to end, [`step`](Session::step) any
//!    set of hypotheses, [`fork`](Session::fork) and [`release`](Session::release) them; or
//!    [`generate`](Session::generate), the loop around it.
//! 5. [`search`]: logits -> tokens, knowing nothing of models.
//!
//! Every hot loop is in [`kernels`], which stands alone.
//!
//! # What it says of itself
//!
//! A [`Model`] and a [`Plan`] print what takes how many bytes, [`Model::requirements`] what a checkpoint will
//! take before it is read; [`Model::defaults`] lists what was assumed
//! for keys that a `config.json` lacks. Errors say what was expected and what came, in one sentence: what
//! their text has said, [`source`](core::error::Error::source) does not say again. With the feature `log`
//! one line tells, when a model is loaded, which instruction set it was packed for and why. Nothing else
//! is ever printed.
//!
//! # Debug builds
//!
//! In a workspace of yours the profiles of this one do not apply, and kernels without optimization are
//! hundreds of times slower. Put this into the `Cargo.toml` at its root:
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
//! # Where things are
//!
//! From the ground up: a room knows those that come before it here, and none that comes after.
//!
//! | room | what it knows |
//! |---|---|
//! | `counted_threads.rs` | an executor whose threads are counted once for a whole call |
//! | `object.rs` | objects of JSON as structs |
//! | `sanitize.rs` | text out of a file, as an error may quote it |
//! | `object.rs` | structs out of JSON objects, without procedural macros |
//! | `features.rs` | what an encoder reads in place of ids |
//! | `search/` | greedy, beams, sampling, logits processors: logits and tokens, nothing else |
//! | `config/` | an architecture as data |
//! | `memory/` | one buffer cut into ranges; keys and values that never move |
//! | `network/` | the network written down once: every tensor, its shape, the block it belongs to |
//! | `checkpoint/` | files to tensors; one file a family holds that family's names |
//! | `heads/` | from hidden states to one vector for a text, or to scores |
//! | `model/` | weights, each with a place and a form; blocks, each a few kernel calls; the two stacks |
//! | `trace/` | what is shown of a pass to a probe, and in which order |
//! | `session/` | from limits to bytes; the pure step; the decoding loop |
//! | `train/` | with the feature `train`: loss, backward pass, updates, on planned memory |

mod atomic_file;
pub mod checkpoint;
mod checksum;
pub mod config;
mod counted_threads;
mod error;
mod features;
mod memory;
mod model;
mod network;
mod object;
mod sanitize;
pub mod search;
mod session;
pub mod task_heads;
pub mod trace;
#[cfg(feature = "train")]
pub mod train;

pub use error::KernelError;
pub use features::Features;
pub use model::{
    IntoControlFlow, Loading, Model, ModelError, PackedError, Parameter, Requirements, StorageKind,
    WeightDtype, WeightDtypes, WeightDtypesError,
};
pub use session::{
    DecodeStats, DraftContext, DraftRequest, DraftRow, Drafter, Event, Generated, HypothesisId,
    Limits, ModelDrafter, ModelRef, OnLogits, Plan, PromptLookup, ReferenceDrafter, Session,
    SessionError, Source, SourceError, SourceId, StepRow, Stop, Threads, TokenSelector,
    TracedSession, Verified,
};
pub use simdformer_kernels as kernels;
pub use simdformer_kernels::CacheDtype;

/// The program of the package's page, which is README's too, compiled by the tests.
#[cfg(doctest)]
#[doc = include_str!("../docs/package.md")]
struct Package;
