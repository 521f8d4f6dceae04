//! An HTTP service of models on CPUs, in the dialects of existing clients.
//!
//! [`Server`] has an example. The routes:
//!
//! | route | dialect | what it does |
//! |---|---|---|
//! | `POST /translate`, `GET /languages`, `POST /detect` | LibreTranslate | translates texts and HTML |
//! | `POST /translate/stream` | its own | a translation while it is written, as server-sent events |
//! | `POST /v1/embeddings`, `GET /v1/models` | OpenAI | vectors of texts or token ids |
//! | `POST /rerank` | Text Embeddings Inference | scores of texts for a query |
//! | `POST /v1/rerank`, `POST /v2/rerank` | Cohere | the same |
//! | `POST /v1/audio/transcriptions` | OpenAI | the text of a recording; feature `transcribe` |
//! | `GET /health`, `/ready`, `/info`, `/metrics` | | the state of the server, and counters for Prometheus |
//! | `GET /`, `/openapi.json` | | a page for people, and a description of all this for programs |
//!
//! # How requests are run
//!
//! Sentences of all requests are decoded in one batch, by one thread in one session: they join it before its next step, and have
//! the translations that they have alone. Texts of several requests are embedded and ranked together. Recordings are
//! transcribed one after the other.
//!
//! # What limits them
//!
//! [`Config`] has the limits. A queue that is full refuses with status 429 and `Retry-After`. A request whose client leaves, or
//! whose time is over, is cancelled before the next step. Whatever is wrong is an error in the form of the dialect: an item
//! that cannot be run is an error of its request.

mod batched_translator;
mod body;
mod config;
mod connection;
mod embeddings;
mod error;
mod metrics;
mod queue;
mod rerank;
mod server;
mod shared;
mod status;
mod stream;
#[cfg(feature = "transcribe")]
mod transcriptions;
mod translate;
mod worker;

pub use config::{Config, Models};
pub use error::Error;
pub use server::Server;

/// The program of the README, compiled by the tests.
#[cfg(doctest)]
#[doc = include_str!("../README.md")]
struct Package;
