//! The tests of training, one module a file, in one program.

mod bits;
mod gradients;
mod support;
mod traps;
