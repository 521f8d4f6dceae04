//! The ops compared with candle's own, in every layout.

#[path = "../support/mod.rs"]
mod support;

mod attention;
mod linear;
mod norm;
mod rejections;
mod threads;
