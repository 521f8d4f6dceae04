//! Plain Rust, eight floats at a time.

#[cfg(not(vectors = "x86_64"))]
mod portable;
mod soft_fma;
#[cfg(vectors = "x86_64")]
mod sse2;

/// The token of the scalar set, which needs nothing of a CPU.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Scalar;
