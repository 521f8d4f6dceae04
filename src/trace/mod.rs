//! Seeing inside: every intermediate of the architecture, named, while it is computed.
//!
//! A [`Probe`] is lent to a session with [`Session::traced`](crate::Session::traced) and receives a
//! [`View`] of each intermediate as soon as the block that made it is done: nothing is copied, nothing is
//! kept, nothing is allocated. [`Stage`] is the list of them, in the order in which data flows.
//!
//! Results with a probe are bitwise those without. Nobody pays for probes that nobody lends: the
//! stacks are compiled twice, and in the copy that runs without a probe the calls after each block are
//! empty. No block knows of probes: what is shown of its numbers, and in which order, is written here,
//! in `context.rs`.
//!
//! Two things are computed for the probe alone, in the scratch that it brings: flash attention never
//! forms the matrix of scores, so [`Stage::Scores`] and [`Stage::Weights`] are computed anew from the
//! very queries and keys that the kernel read (within the kernel's error bound of what it used); and
//! [`Stage::Probabilities`], which no search asks for.

mod context;
mod probe;
mod sequence_span;
mod stage;

pub(crate) use context::Watch;
pub use probe::{Probe, View};
pub use stage::{Block, Place, Stage};
