//! The tests of what training needs, one module a file, in one program.

#[path = "../support/mod.rs"]
mod support;

mod gemm_oracle;
mod leaves;
mod weight_gradient;
mod weight_gradient_bits;
mod attention;
mod attention_oracle;
mod attention_rules;
mod leaves;
mod relative;
mod activation;
mod leaves;
mod norm;
mod norm_sums;
