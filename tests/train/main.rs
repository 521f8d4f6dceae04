//! The tests of training. Each file is a module of this one program.

use simdformer_testing::{digest, scoped};

mod architectures;
mod bits;
mod encoder;
mod features;
mod gradients;
mod initial;
mod support;
mod traps;
