//! The tests of training, one module a file, in one program.

mod architectures;
mod bits;
mod command;
mod data;
mod encoder;
mod gradients;
mod runs;
mod support;
mod traps;
