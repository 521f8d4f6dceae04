//! Kernels on the caller's buffers.
#![no_std]
#[cfg(feature = "std")]
extern crate std;
