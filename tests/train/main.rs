//! The tests of training. Each file is a module of this one program.

use simdformer_testing::{digest, scoped};

// The examples that train. `all.rs` has the same files, for what they do without the feature.
#[path = "../example_first_hour.rs"]
mod example_first_hour;
#[path = "../example_navigate.rs"]
mod example_navigate;

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
