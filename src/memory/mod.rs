//! Planned memory: one buffer cut into ranges, and the caches of keys and values in it.

mod arena;
mod cache;
mod error;

pub(crate) use arena::{Buffer, Planner, cut, words, words_mut};
pub(crate) use cache::{Caches, CachesShape};
pub(crate) use error::MemoryError;
