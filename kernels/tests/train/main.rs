//! The tests of what training needs, one module a file, in one program.

#[path = "../support/mod.rs"]
mod support;

mod activation;
mod leaves;
mod norm;
mod norm_sums;
