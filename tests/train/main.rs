//! The tests of training, one module a file, in one program.

mod bits;
mod data;
mod example;
mod gradients;
mod runs;
mod support;
mod traps;
