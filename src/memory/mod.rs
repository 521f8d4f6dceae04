//! Planned memory: one buffer, divided into ranges before anything runs, and a table of the bytes of each part.

mod arena;
mod buffer;

pub(crate) use arena::{ByteTable, MemoryError, Planner, Span, Splitter, arena};
pub use buffer::SharedBytes;
pub(crate) use buffer::{Buffer, bytes, bytes_mut, zeros};
