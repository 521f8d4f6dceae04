//! The ops against candle's own, on every layout.

#[path = "../support/mod.rs"]
mod support;

mod attention;
mod linear;
mod norm;
mod refusals;
mod threads;
