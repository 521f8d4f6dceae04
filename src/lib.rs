//! The encoder-decoder Transformer of "Attention Is All You Need" on CPUs.

mod arena;
mod cache;
pub mod checkpoint;
pub mod config;
mod decoder;
mod defaults;
mod encoder;
mod error;
mod generate;
mod layers;
mod model;
mod plan;
pub mod search;
mod session;
pub mod trace;
mod watch;

pub use error::{KernelError, SessionError};
pub use generate::{Counts, Generated, Source};
pub use model::{Model, ModelError};
pub use plan::{Limits, Plan};
pub use session::{EachLogits, Row, Sentence, Session, StepRow, Threads};
pub use simdformer_kernels as kernels;
pub use watch::Watched;
