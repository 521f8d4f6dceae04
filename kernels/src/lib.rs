//! Kernels of the encoder-decoder Transformer on the caller's buffers: no allocator, no threads of
//! their own, no global state.
//!
//! Each kernel is a safe function on checked views ([`Matrix`], [`Heads`]) of the caller's memory,
//! with a function that says how much scratch it needs if it needs any, an [`Isa`] that says which
//! instructions to use, and a [`Parallelism`] that says who computes. It is written once, over a
//! small vector trait, and runs on four instruction sets:
//!
//! | kernel | AVX-512 | AVX2 + FMA | NEON | scalar |
//! |---|---|---|---|---|
//! | [`gemm`] on a [`PackedMatrix`], [`gemm_unpacked`], fused epilogue | 6 x 64 tile | 6 x 16 | 6 x 16 | 6 x 8 |
//! | [`gemm`] with weights of 16 bits ([`Dtype`]), widened exactly | 6 x 64 | 5 x 16 | 6 x 16 | 5 x 8 |
//! | [`gemm_int8`] on a [`QuantizedMatrix`] and [`QuantizedActivations`], weights in eight bits | 12 x 32 with VNNI, 6 x 32 without; many rows 32 x 32 with AMX | 6 x 16 with AVX-VNNI, 4 x 16 without | 6 x 16 with dot products, 3 x 16 without; many rows 12 x 8 with I8MM | plain Rust |
//! | [`pruned_argmax`]: the largest element of each row of a product | 12 x 32 bytes with VNNI, 6 x 32 without | 2 x 32 | 2 x 32 with dot products, 1 x 32 without | plain Rust |
//! | [`attention`], [`attention_cached`], [`attention_decode`] | 16 keys a vector | 8 | 4 | 8 |
//! | [`norm`], [`mod@softmax`], [`activation`], [`embedding`], [`topk`], [`position`], [`relative`] | yes | yes | yes | yes |
//!
//! The scalar path is plain Rust that the compiler vectorizes for whatever the target has. It rounds a
//! multiply-add once, as the others do, and so gives their bits; on x86-64 compiled without FMA that makes a
//! product some seven times slower than rounding twice would be. A [`pruned_argmax`] in plain Rust gives the same
//! answers and is not faster than the product; [`pruned_argmax::PruningTable::is_profitable`] tells.
//!
//! # Choosing an instruction set
//!
//! [`Isa::best`] is the best one of the machine. [`Isa::detect`] is that, or the one that the
//! environment variable [`ISA_VARIABLE`] names, and fails if that is none; [`Isa::from_name`] forces
//! one and fails if the machine lacks it.
//!
//! # In another engine
//!
//! * Its tensors: views take strides, and are made from slices, or from pointers
//!   ([`Matrix::from_raw_parts`]) where no slice can be borrowed: column-major matrices with padding,
//!   parts of a buffer that several threads write. Negative strides are the one layout to copy.
//! * Its weights: packed once into floats that the engine owns ([`PackedMatrix`]), or multiplied as
//!   they are ([`gemm_unpacked`]).
//! * Its threads: an [`Executor`] of two functions, without rayon or std. [`Parallelism`] says
//!   when which kind of threads is best.
//! * Its decoding: [`CacheMut::append`] and [`attention_decode`] on any number of hypotheses,
//!   [`attention_cached`] for their source.
//!
//! # The first hour
//!
//! | to do | begin from |
//! |---|---|
//! | a linear layer | [`gemm`], and [`PackedMatrix`] for a struct that owns its weight |
//! | a linear layer in a quarter of the memory | [`QuantizedMatrix`], [`QuantizedActivations`], [`gemm_int8`] |
//! | a product of two activations | [`gemm_unpacked`] |
//! | attention over sentences laid end to end | [`fn@attention`] |
//! | a decoding step | [`CacheMut`], then [`attention_decode`] and [`attention_cached`] |
//! | T5's bias of relative positions | [`relative::RelativeBuckets`], then [`Bias::Relative`] in any attention |
//! | a gated feed-forward block | [`Residual::Gate`] |
//! | threads of one's own | [`Executor`] |
//! | all of it in one program of sixty lines | `examples/first_hour/kernels.rs` in the repository, with a pool of std's threads in `examples/first_hour/pool.rs` |
//!
//! # What is promised
//!
//! * Bad shapes, strides, lengths and ids are an `Err` that says what was expected and what came;
//!   nothing outside a slice is read or written, whatever the arguments.
//! * The bits of a row do not depend on the other rows, on threads, on how the work was cut, or on the
//!   instruction set.
//! * Masked keys, padding and gaps between strided elements are never used, whatever they hold.
//! * Errors are bounded: each kernel states its bound, and the tests hold it to the f64 oracle in
//!   [`mod@reference`].
//!
//! # Process and thread state
//!
//! * **Floating-point mode.** The bits are those of IEEE 754 arithmetic in its default mode: to nearest, subnormal
//!   numbers kept, no exception trapped (MXCSR on x86, FPCR on AArch64). A host may have changed it on the calling
//!   thread or on threads of a pool. Every kernel reads the register on each thread that computes, sets the default
//!   mode if another one is set, and puts back what it found, also when a callback panics; callbacks inside a
//!   kernel run in the default mode. Rust itself assumes the default mode everywhere, so this protects hosts
//!   in other languages and is no leave to run Rust in another mode. The x87 unit is not used.
//! * **AMX.** On Linux a process has to ask the system before it uses tiles. [`gemm_int8`] and [`QuantizedActivations`] do, once,
//!   when many rows are first rounded on a CPU that has AMX ([`Isa::has_matrix_products`] as well). The permission is
//!   for the whole process and for good: all its threads have it from then on, no call gives it back, a fork inherits
//!   it (`exec` drops it), and the system then refuses signal stacks that are too small for the state of tiles. A
//!   program that does not want it uses [`Isa::without_matrix_products`], with which nothing is asked.
//!
//! # Stack
//!
//! There is no heap to fall back on, so this is what a thread must have to spare, in bytes of stack
//! when compiled with optimization (`opt-level` 2 or 3): 64 KiB for [`gemm`] and [`gemm_unpacked`], 32 KiB for
//! [`attention`], [`attention_cached`], [`attention_decode`] and a [`pruned_argmax`], 16 KiB for everything
//! else. It does not depend on shapes. Threads of a pool need as much as the caller's. Nothing is said
//! of builds without optimization, where the compiler keeps every intermediate vector in memory.
//!
//! # Features
//!
//! `std` (default): the environment variable. `rayon` (default): [`Parallelism::Rayon`] and
//! [`Team`], on the caller's pool. With neither, the crate is `no_std` and needs no `alloc`; threads are
//! then an [`Executor`]. `train` (off by default): the module `train`, with what gradients need.
//!
//! # Rust
//!
//! Version 1.89 or later, as far as clippy's `incompatible_msrv` can tell: it has the intrinsics of
//! AVX-512. In debug builds of yours, give the crate a profile of its own; see [`OPTIMIZED`].

#![no_std]
#[cfg(any(feature = "std", test))]
extern crate std;

pub mod activation;
mod arch;
mod attention;
mod debug;
#[cfg(feature = "train")]
mod dropout;
#[cfg(test)]
mod effort;
pub mod embedding;
mod float_mode;
mod gemm;
mod isa;
#[cfg(feature = "train")]
mod loss;
mod mask;
pub mod math;
mod matrix;
pub mod norm;
#[cfg(feature = "train")]
mod optimizer;
mod parallel;
pub mod position;
pub mod pruned_argmax;
pub mod reference;
pub mod relative;
mod rows;
mod shared;
mod simd;
pub mod softmax;
pub mod topk;
#[cfg(feature = "train")]
pub mod train;

pub use activation::Activation;
pub use attention::{
    AttentionError, AttentionOptions, AttentionOutput, Bias, Cache, CacheDtype, CacheMut,
    CacheShape, CachedSequence, Heads, HeadsMut, Qkv, Sequence, SlotTable, Weights, attention,
    attention_cached, attention_decode, attention_scratch, attention_scratch_bound,
};
pub use gemm::{
    ActivationBits, Dtype, Epilogue, GemmError, PackedMatrix, QuantizedActivations,
    QuantizedMatrix, Residual, gemm, gemm_int8, gemm_unpacked, gemm_unpacked_scratch,
};
pub use isa::{
    AutoVectorize, FoundName, ISA_NAMES, ISA_VARIABLE, Isa, IsaError, REQUIRE_ISA_VARIABLE,
};
pub use mask::FullyMasked;
pub use matrix::{Matrix, MatrixMut, ViewError};
#[cfg(feature = "rayon")]
pub use parallel::Team;
pub use parallel::{Executor, Parallelism};

/// Whether this crate was compiled with any optimization; `None` if it was not cargo that compiled it.
///
/// Without (`opt-level = 0`, as in a `dev` profile that says nothing) every kernel works, and is hundreds
/// of times slower. In the `Cargo.toml` at the root of a workspace this mends it:
///
/// ```toml
/// [profile.dev.package.simdformer-kernels]
/// opt-level = 3
/// debug = false
/// debug-assertions = false
/// overflow-checks = false
/// ```
///
/// `opt-level` alone is enough to use the kernels. Without the other three lines they compile for 1.7 times as
/// long, and their loops check every address and every sum.
pub const OPTIMIZED: Option<bool> = match option_env!("SIMDFORMER_KERNELS_OPT_LEVEL") {
    Some(level) => Some(!matches!(level.as_bytes(), b"0")),
    None => None,
};

/// The program of the package's page, compiled and run by the tests.
#[cfg(doctest)]
#[doc = include_str!("../README.md")]
struct Readme;
