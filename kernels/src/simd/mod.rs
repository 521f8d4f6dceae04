//! The vector trait for which every kernel is written once.
//!
//! A value of a type that implements [`SimdF32`] is the proof that the CPU has the instruction set, so the arithmetic
//! is safe. Loads and stores take pointers and are `unsafe`. The trait contains only operations that some kernel
//! calls.
//!
//! Everything here is `#[inline(always)]` and is called only from inside [`crate::Isa::dispatch`], which enters the
//! `target_feature` region. A helper that is not inlined into that region would make each operation a function call.

pub(crate) mod half;
pub(crate) mod int8;
mod ladders;
pub(crate) mod matrix_unit;
pub(crate) mod op;
pub(crate) mod quantize;
mod reduce;
pub(crate) mod vector;

pub(crate) use ladders::{tile_heights, vector_groups};
pub(crate) use op::simd_op;
pub(crate) use reduce::{MOST_PARTS, sum_of_parts};
#[cfg(feature = "train")]
pub(crate) use reduce::{MOST_VECTORS, VIRTUAL, sum_by_halving, sum_of_lanes};
pub(crate) use vector::{CACHE_LINE_F32, MAX_LANES, MAX_MR, MAX_PANEL, SimdF32, SimdOp, TileOp};

#[cfg(test)]
mod tests;
