//! The encoder-decoder Transformer of "Attention Is All You Need" on CPUs.

pub mod search;
