//! The tests of the kernels. Each file is a module of this one program: it is linked once, and its tests
//! run in parallel. The test that counts the allocations of the whole process is a program of its own.

#[cfg(feature = "rayon")]
mod calls;
mod support;

mod activation;
#[cfg(feature = "rayon")]
mod attention;
#[cfg(feature = "rayon")]
mod attention_bitwise;
mod attention_errors;
#[cfg(all(feature = "rayon", feature = "int8"))]
mod attention_int8;
mod attention_rules;
mod embedding;
#[cfg(feature = "std")]
mod environment;
#[cfg(feature = "rayon")]
mod error_texts;
#[cfg(feature = "rayon")]
mod executor;
#[cfg(feature = "rayon")]
mod gemm;
#[cfg(feature = "rayon")]
mod gemm_bitwise;
#[cfg(feature = "rayon")]
mod gemm_dtype;
#[cfg(feature = "rayon")]
mod gemm_errors;
#[cfg(feature = "rayon")]
mod gemm_int8;
#[cfg(feature = "rayon")]
mod gemm_unpacked;
#[cfg(feature = "rayon")]
mod heads_first;
#[cfg(feature = "rayon")]
mod linear;
#[cfg(feature = "rayon")]
mod memory;
mod norm;
mod operand_names;
#[cfg(feature = "rayon")]
mod pruned_argmax;
#[cfg(feature = "rayon")]
mod pruned_argmax_errors;
#[cfg(feature = "rayon")]
mod regressions;
mod relative;
#[cfg(feature = "rayon")]
mod same_bits;
mod softmax;
#[cfg(target_os = "linux")]
mod stack;
mod strides;
#[cfg(feature = "rayon")]
mod team;
#[cfg(feature = "std")]
mod thread_pool;
mod topk;
#[cfg(all(feature = "rayon", feature = "train"))]
mod train;
#[cfg(feature = "rayon")]
mod views;
mod walkthrough;
#[cfg(feature = "rayon")]
mod zero_sizes;
