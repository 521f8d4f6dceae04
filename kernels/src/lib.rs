//! Kernels on the caller's buffers.
#![no_std]
#[cfg(any(feature = "std", test))]
extern crate std;

mod activation;
mod gemm;
mod isa;
pub(crate) mod lanes;
mod matrix;
mod parallel;

pub use activation::Activation;
pub use gemm::{Epilogue, GemmError, PackedMatrix, Residual, gemm};
pub use isa::{ISA_NAMES, ISA_VARIABLE, Isa, IsaError, REQUIRE_ISA_VARIABLE};
pub use matrix::{Matrix, MatrixMut, ViewError};
pub use parallel::Parallelism;
#[cfg(feature = "rayon")]
pub use parallel::Team;
