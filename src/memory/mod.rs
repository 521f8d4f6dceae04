//! Planned memory: one buffer cut into ranges, the caches of keys and values in it, and a table of what takes how
//! much.

mod arena;
mod cache;
mod error;
mod table;

pub(crate) use arena::{Buffer, Planner, bytes, bytes_mut, cut, words, words_mut, zeros};
pub(crate) use cache::{Caches, CachesShape};
pub(crate) use error::MemoryError;
pub(crate) use table::ByteTable;
