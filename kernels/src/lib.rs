//! Kernels on the caller's buffers.
#![no_std]
#[cfg(any(feature = "std", test))]
extern crate std;

pub mod activation;
mod attention;
pub mod embedding;
mod gemm;
mod isa;
pub(crate) mod lanes;
pub mod math;
mod matrix;
pub mod norm;
mod parallel;
pub mod position;
pub mod reference;
mod rows;
pub mod softmax;
pub mod topk;

pub use activation::Activation;
pub use attention::{
    AttentionError, AttentionOptions, Bias, Cache, CacheMut, CacheShape, CachedSequence, Heads,
    HeadsMut, Sequence, Weights, attention, attention_cached, attention_scratch,
    attention_scratch_bound, attention_step,
};
pub use gemm::{Epilogue, GemmError, PackedMatrix, Residual, gemm};
pub use isa::{ISA_NAMES, ISA_VARIABLE, Isa, IsaError, REQUIRE_ISA_VARIABLE};
pub use matrix::{Matrix, MatrixMut, ViewError};
pub use parallel::Parallelism;
#[cfg(feature = "rayon")]
pub use parallel::Team;
pub use softmax::FullyMasked;
