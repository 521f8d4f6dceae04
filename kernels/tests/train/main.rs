//! The tests of what training needs, one module a file, in one program.

#[path = "../support/mod.rs"]
mod support;

mod dropout;
mod embedding;
mod leaves;
mod loss;
mod optimiser;
mod schedule;
