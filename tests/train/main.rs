//! The tests of training. Each file is a module of this one program.

use simdformer_testing::{digest, scoped};

// The example that trains. `all.rs` has the same file, for what it does without the feature.
#[path = "../example_navigate.rs"]
mod example_navigate;

mod architectures;
mod bits;
mod encoder;
mod features;
mod gradients;
mod initial;
mod support;
mod traps;
