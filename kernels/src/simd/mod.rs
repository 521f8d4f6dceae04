//! The vector trait that every kernel is written against, once.
//!
//! A value of a type that implements [`SimdF32`] is proof that the CPU has the instruction set: the
//! arithmetic is safe because holding the value is the check. Loads and stores take pointers and
//! are `unsafe`. The trait holds what some kernel calls and nothing else.
//!
//! Everything here is `#[inline(always)]` and is only ever reached from inside
//! [`crate::Isa::dispatch`], which enters the `target_feature` region; a helper that is not
//! inlined into that region would turn each operation into a call.

pub(crate) mod half;
pub(crate) mod int8;
pub(crate) mod matrix_unit;
pub(crate) mod quantize;
mod reduce;
pub(crate) mod vector;

pub(crate) use reduce::{MOST_PARTS, sum_of_parts};
#[cfg(feature = "train")]
pub(crate) use reduce::{MOST_VECTORS, VIRTUAL, sum_of_lanes};
pub(crate) use vector::{
    CACHE_LINE_F32, HW_PREFETCH_DISTANCE, MAX_LANES, MAX_PANEL, SimdF32, SimdOp, TileOp,
};

#[cfg(test)]
mod tests;
