//! The tests of training. Each file is a module of this one program.

#[path = "../support/digest.rs"]
#[allow(dead_code, reason = "logits are for other tests")]
mod digest;
#[path = "../support/scoped.rs"]
mod scoped;

mod architectures;
mod bits;
mod command;
mod data;
mod directories;
mod encoder;
mod faults;
mod features;
mod gradients;
mod runs;
mod support;
mod traps;
