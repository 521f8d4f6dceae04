//! The vector trait that every kernel is written against, once.
//!
//! A value of a type that implements [`Lanes`] is proof that the CPU has the instruction set: the
//! arithmetic is safe because holding the value is the check. Loads and stores take pointers and
//! are `unsafe`. The trait holds what some kernel calls and nothing else.
//!
//! Everything here is `#[inline(always)]` and is only ever reached from inside
//! [`crate::Isa::dispatch`], which enters the `target_feature` region; a helper that is not
//! inlined into that region would turn each operation into a call.

#[cfg(target_arch = "x86_64")]
pub(crate) mod amx;
#[cfg(target_arch = "x86_64")]
mod asked;
#[cfg(target_arch = "x86_64")]
mod avx2;
#[cfg(target_arch = "x86_64")]
mod avx512;
pub(crate) mod bytes;
#[cfg(test)]
pub(crate) mod emulation;
#[cfg(target_arch = "x86_64")]
mod features;
mod fused;
pub(crate) mod halves;
pub(crate) mod matrices;
#[cfg(target_arch = "aarch64")]
mod neon;
#[cfg(target_arch = "aarch64")]
pub(crate) mod neon_bytes;
#[cfg(target_arch = "aarch64")]
pub(crate) mod neon_matrices;
pub(crate) mod rounds;
#[cfg(target_arch = "x86_64")]
mod rounds_x86;
#[cfg(not(target_arch = "x86_64"))]
mod scalar;
#[cfg(target_arch = "x86_64")]
mod scalar_sse2;
#[cfg(target_arch = "x86_64")]
mod streams;
#[cfg(target_arch = "x86_64")]
pub(crate) mod system;
#[cfg(any(target_arch = "x86_64", test))]
pub(crate) mod tiles;
mod vector;
mod virtual_lanes;
#[cfg(target_arch = "x86_64")]
pub(crate) mod vnni;
#[cfg(target_arch = "x86_64")]
pub(crate) mod widening;

pub(crate) use vector::{Kernel, LINE, Lanes, MAX_LANES, MAX_PANEL, PAGES_AHEAD, PanelKernel};
pub(crate) use virtual_lanes::{MOST_PARTS, sum_of_parts};
#[cfg(feature = "train")]
pub(crate) use virtual_lanes::{MOST_VECTORS, VIRTUAL, sum_of_lanes};

#[cfg(test)]
mod tests;
