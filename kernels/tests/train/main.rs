//! The tests of what training needs, one module a file, in one program.

#[path = "../support/mod.rs"]
mod support;

mod leaves;
mod loss;
