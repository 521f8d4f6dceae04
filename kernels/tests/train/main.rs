//! The tests of what training needs, one module a file, in one program.

#[path = "../support/mod.rs"]
mod support;

mod attention;
mod attention_oracle;
mod attention_rules;
mod leaves;
mod relative;
