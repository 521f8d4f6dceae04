//! Kernels on the caller's buffers.
#![no_std]
#[cfg(any(feature = "std", test))]
extern crate std;

pub mod activation;
pub mod embedding;
pub mod math;
pub mod norm;
pub mod position;
pub mod reference;
mod rows;
pub mod softmax;
pub mod topk;

mod isa;
pub(crate) mod lanes;
mod matrix;
mod parallel;

pub use isa::{ISA_NAMES, ISA_VARIABLE, Isa, IsaError, REQUIRE_ISA_VARIABLE};
pub use matrix::{Matrix, MatrixMut, ViewError};
pub use parallel::Parallelism;
#[cfg(feature = "rayon")]
pub use parallel::Team;
