//! The tests of the training kernels.

mod activation;
mod attention;
mod attention_dropout;
mod attention_oracle;
mod attention_rules;
mod derivative;
mod dropout;
mod embedding;
#[cfg(any(target_arch = "x86_64", target_arch = "aarch64"))]
mod float_mode;
mod gemm_oracle;
mod loss;
mod norm;
mod norm_sums;
mod optimizer;
mod reduction_chunks;
mod relative;
mod schedule;
#[cfg(target_os = "linux")]
mod stack;
mod weight_gradient;
mod weight_gradient_bits;
