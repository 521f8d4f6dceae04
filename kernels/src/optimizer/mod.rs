//! From gradients to parameters: the norm of the gradients, Adam, the schedule of its rate, and averages.
//!
//! All of it is elementwise but the norm, so parameters may lie in whatever layout the caller has them, and
//! everything is written without fused multiply-adds, so the bits are the same on every instruction set.
//!
//! An update in three steps: [`sum_of_squares`] of all gradients, once all micro-batches have added to them,
//! tells their norm; [`clip_factor`] what they are multiplied by, or that the update is to be left out;
//! [`adam`] does the rest in one pass over memory.

mod adam;
mod ema;
mod error;
mod norm;
mod schedule;

pub use adam::{Adam, adam};
pub use ema::average;
pub use error::OptimizerError;
pub use norm::{clip_factor, sum_of_squares, sum_of_squares_scratch};
pub use schedule::Schedule;
