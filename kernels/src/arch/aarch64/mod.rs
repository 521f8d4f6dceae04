//! NEON, its dot products and I8MM.

pub(crate) mod dotprod;
pub(crate) mod i8mm;
mod neon;
