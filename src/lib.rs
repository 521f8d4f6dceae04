//! The encoder-decoder Transformer of "Attention Is All You Need" on CPUs.

pub mod arena;
pub mod checkpoint;
pub mod config;
