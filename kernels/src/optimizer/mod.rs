//! From gradients to parameters: the norm of the gradients, Adam, the learning rate schedule, and averages.
//!
//! All functions except the norm are elementwise, so parameters may have any layout. No function uses fused
//! multiply-adds, so the bits are the same on every instruction set.
//!
//! An update takes three calls: [`sum_of_squares`] computes the norm of all gradients, after all micro-batches are
//! added; [`clip_factor`] computes their factor, or `None` if the update must be skipped; [`adam`] does the rest in
//! one pass over memory.

mod adam;
mod ema;
mod norm;
mod schedule;

pub use adam::{Adam, Moments, adam};
pub use ema::average;
pub use norm::{clip_factor, sum_of_squares, sum_of_squares_scratch};
pub use schedule::Schedule;
