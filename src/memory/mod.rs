//! Planned memory: one buffer divided into ranges, the KV caches in it, and a table of the bytes of each part.

mod arena;
mod cache;
mod error;
mod table;

pub(crate) use arena::{Buffer, Planner, bytes, bytes_mut, cut, words, words_mut, zeros};
pub(crate) use cache::{Caches, CachesShape};
pub(crate) use error::MemoryError;
pub(crate) use table::ByteTable;
