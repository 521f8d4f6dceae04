//! Kernels for encoder-decoder Transformers that compute in the caller's buffers. The crate has no allocator and no
//! global state, and starts no threads except those of a [`ThreadPool`] that the caller makes.
//!
//! The shortest program is a layer that owns its weight:
//!
//! ```
//! use simdformer_kernels::{Dtype, Isa, Linear, Matrix, MatrixMut};
//!
//! let (weight, bias) = ([1.0, 2.0, 3.0, 4.0, 5.0, 6.0], [0.5; 3]); // the weight is [out, in]
//! let linear = Linear::new(Isa::best(), Dtype::F32, Matrix::new(&weight, 3, 2)?, Some(&bias))?;
//! let (x, mut y) = ([1.0, 10.0], [0.0; 3]);
//! linear.forward(Matrix::new(&x, 1, 2)?, MatrixMut::new(&mut y, 1, 3)?)?;
//! assert_eq!(y, [21.5, 43.5, 65.5]);
//! # Ok::<(), simdformer_kernels::Error>(())
//! ```
//!
//! All other kernels are safe functions on checked views ([`Matrix`], [`Heads`]) of the caller's memory. The caller passes
//! an [`Exec`]: an [`Isa`] (the instruction set) and a [`Parallelism`] (the threads). If a kernel needs scratch memory, a
//! function with the kernel's name and `_scratch` returns its size; `buffer_len` returns that of a prepared operand. Each
//! kernel is written once, over a small vector trait, and runs on four instruction sets:
//!
//! | kernel | AVX-512 | AVX2 + FMA | NEON | scalar |
//! |---|---|---|---|---|
//! | [`gemm`] on a [`PackedMatrix`], [`gemm_unpacked`], fused epilogue | 6 x 64 tile | 6 x 16 | 6 x 16 | 6 x 8 |
//! | [`gemm`] with bf16 or f16 weights ([`Dtype`]), converted exactly to f32 | 6 x 64 | 5 x 16 | 6 x 16 | 5 x 8 |
//! | [`gemm_int8`] on a [`QuantizedMatrix`] and [`QuantizedActivations`], int8 weights | 12 x 32 with VNNI, 6 x 32 without; many rows 32 x 32 with AMX | 6 x 16 with AVX-VNNI, 4 x 16 without | 6 x 16 with dot products, 3 x 16 without; many rows 12 x 8 with I8MM | plain Rust |
//! | [`pruned_argmax`]: the largest element of each row of a product | 12 x 32 int8 with VNNI, 6 x 32 without | 2 x 32 | 2 x 32 with dot products, 1 x 32 without | plain Rust |
//! | [`attention`], [`attention_cached`], [`attention_decode`] | 16 keys per vector | 8 | 4 | 8 |
//! | [`fn@attention`] in int8 ([`AttentionPrecision`]), quantized to bytes within the call | 32 queries per tile | 16 | 16 | 32 |
//! | [`norm`], [`mod@softmax`], [`activation`], [`embedding`], [`topk`], [`position`], [`relative`] | yes | yes | yes | yes |
//!
//! The scalar path is plain Rust that the compiler vectorizes for the target. It rounds a multiply-add once, as the
//! other instruction sets do, so it returns the same bits. On x86-64 compiled without FMA this makes a product about
//! seven times slower than with two roundings. The [`pruned_argmax`] in plain Rust returns the same answers but is not
//! faster than the full product; [`pruned_argmax::PruningTable::is_profitable`] returns whether it is faster.
//!
//! # Choosing an instruction set
//!
//! [`Isa::best`] returns the best set of this machine. [`Isa::detect`] returns the set that the environment variable
//! [`ISA_VARIABLE`] names, or the best one if the variable is not set. [`Isa::from_name`] selects a set by name.
//! `detect` and `from_name` fail if the name is unknown or the machine lacks the set.
//!
//! # Use in another engine
//!
//! * Tensors: views take strides. They are made from slices, or from pointers ([`Matrix::from_raw_parts`]) where no
//!   slice can be borrowed: column-major matrices with padding, or parts of a buffer that several threads write. Only
//!   matrices with negative strides must be copied.
//! * Weights: packed once into a float buffer that the engine owns ([`PackedMatrix`], [`PackOptions`]), from f32, bf16
//!   or f16 ([`PackSource`]), or multiplied in their original layout ([`gemm_unpacked`]).
//! * Threads: an [`Executor`] with two functions, without rayon or std, or a [`ThreadPool`]. [`Parallelism`] explains
//!   when which kind of threads is best.
//! * Decoding: [`CacheMut::append`] and [`attention_decode`] on any number of hypotheses, [`attention_cached`] for
//!   their source.
//!
//! # First steps
//!
//! | task | start with |
//! |---|---|
//! | a linear layer that owns its weight | [`Linear`] |
//! | a linear layer in your own memory | [`PackedMatrix`] and [`gemm`], or for a quarter of the memory [`QuantizedMatrix`], [`QuantizedActivations`] and [`gemm_int8`] |
//! | a product of two activations | [`gemm_unpacked`] |
//! | attention over concatenated sentences | [`fn@attention`], with f32 or int8 products ([`AttentionPrecision`]) |
//! | a decoding step | [`CacheMut`], then [`attention_decode`] and [`attention_cached`] |
//! | T5's relative position bias | [`relative::RelativeBuckets`], then [`Bias::Relative`] in any attention |
//! | a gated feed-forward block | [`PostOp::MultiplyOutput`] |
//! | your own threads | [`Executor`]; without a pool of your own [`ThreadPool`] |
//! | programs of sixty lines, in the repository | `examples/first_hour/kernels.rs` (on a `ThreadPool`), `examples/first_hour/decode.rs` (KV cache and slot table), `tests/no_std/src/lib.rs` |
//!
//! # Guarantees
//!
//! * Wrong shapes, strides, lengths and ids return an `Err` with the expected and the actual value. No argument makes
//!   a kernel read or write outside a slice.
//! * The bits of a row do not depend on the other rows, on threads, on how the work was split, or on the instruction
//!   set.
//! * Masked keys, padding and gaps between strided elements never influence a result, whatever they contain.
//! * Errors are bounded: each kernel documents its bound, and the tests check it against the f64 oracle in
//!   [`mod@reference`].
//!
//! # Process and thread state
//!
//! * **Floating-point mode.** The bits are those of IEEE 754 arithmetic in its default mode: round to nearest, no
//!   flushing of subnormal numbers, no exception trapped (MXCSR on x86, FPCR on AArch64). A host may have changed the
//!   mode on the calling thread or on threads of a pool. Every kernel reads the register on each thread that computes.
//!   If another mode is set, the kernel sets the default mode and restores the old mode afterwards, also when a
//!   callback panics. Callbacks inside a kernel run in the default mode. Rust itself assumes the default mode
//!   everywhere: this protects hosts in other languages, and does not make it valid to run Rust code in another mode.
//!   The x87 unit is not used.
//! * **AMX.** On Linux a process must request permission from the operating system before it uses AMX tiles.
//!   [`gemm_int8`] and [`QuantizedActivations`] request it once, when many rows are first quantized on a CPU that has
//!   AMX; [`Isa::has_matrix_products`] requests it as well. The permission is for the whole process and permanent: all
//!   its threads have it from then on, no call revokes it, a fork inherits it (`exec` drops it), and the operating
//!   system then rejects signal stacks that are too small for the tile state. A program that does not want it uses
//!   [`Isa::without_matrix_products`], which requests nothing.
//!
//! # Stack
//!
//! The kernels do not use the heap. A thread needs this much free stack when the crate is compiled with optimization
//! (`opt-level` 2 or 3): 64 KiB for [`gemm`] and [`gemm_unpacked`], 32 KiB for [`attention`], [`attention_cached`],
//! [`attention_decode`], [`gemm_int8`] and [`pruned_argmax`], 40 KiB for int8 attention (72 KiB on AArch64), 16 KiB for everything else. The
//! sizes do not depend on shapes. Threads of a pool need as much as the calling thread. With debug
//! assertions and overflow checks it is up to 2 KiB more. There is no bound for builds without optimization, where the compiler
//! stores every intermediate vector in memory.
//!
//! # Features
//!
//! `std` (default): the environment variable, [`Linear`] and [`ThreadPool`]. `rayon` (default): [`Parallelism::Rayon`]
//! and [`Team`], on the caller's pool. With neither, the crate is `no_std` and needs no `alloc`; threads then come from
//! an [`Executor`]. Targets without vector registers, such as `x86_64-unknown-none`, UEFI and
//! `aarch64-unknown-none-softfloat`, have the scalar set only. `train` (off by default): the module `train`, with the kernels for gradients.
//!
//! # Rust
//!
//! Version 1.89 or later, as far as clippy's `incompatible_msrv` can check: this version has the AVX-512 intrinsics.
//! In your own debug builds, give the crate its own profile; see [`OPTIMIZED`].

#![no_std]
#[cfg(any(feature = "std", test))]
extern crate std;

pub mod activation;
mod arch;
mod attention;
mod debug_slice;
#[cfg(feature = "train")]
mod dropout;
mod dtype;
pub mod embedding;
mod error;
mod float_mode;
mod gemm;
mod input;
mod isa;
#[cfg(feature = "std")]
mod linear;
#[cfg(feature = "train")]
mod loss;
pub mod math;
mod matrix;
pub mod norm;
#[cfg(feature = "train")]
mod optimizer;
mod parallel;
pub mod position;
mod prefetch;
pub mod pruned_argmax;
pub mod reference;
pub mod relative;
mod row_prefetch;
mod row_tasks;
mod rows;
mod simd;
pub mod softmax;
mod sync_ptr;
pub mod topk;
#[cfg(feature = "train")]
pub mod train;
mod view_shape;

pub use activation::Activation;
pub use attention::{
    AttentionOptions, AttentionOutput, AttentionPrecision, AttentionWeights, Bias, Cache, CacheMut,
    CacheShape, CachedSequence, Heads, HeadsMut, Qkv, Sequence, SlotTable, attention,
    attention_cached, attention_decode, attention_scratch,
};
pub use dtype::Dtype;
pub use error::{Error, Expected, FoundName, ViewShape};
pub use gemm::{
    Epilogue, PackOptions, PackSource, PackedMatrix, PostOp, Quantization, QuantizedActivations,
    QuantizedMatrix, gemm, gemm_int8, gemm_unpacked, gemm_unpacked_scratch,
};
pub use input::Input;
pub use isa::auto_vectorize::AutoVectorize;
pub use isa::{ISA_NAMES, ISA_VARIABLE, Isa};
#[cfg(feature = "std")]
pub use linear::Linear;
pub use matrix::{Matrix, MatrixMut};
#[cfg(feature = "rayon")]
pub use parallel::Team;
#[cfg(feature = "std")]
pub use parallel::ThreadPool;
pub use parallel::{Exec, Executor, Parallelism};
pub use softmax::{FullyMasked, SoftmaxOptions};

/// Whether this crate was compiled with optimization; `None` if it was not compiled by cargo.
///
/// Without optimization (`opt-level = 0`, the default of the `dev` profile) every kernel works, but is hundreds of
/// times slower. These lines in the `Cargo.toml` at the root of a workspace turn optimization on:
///
/// ```toml
/// [profile.dev.package.simdformer-kernels]
/// opt-level = 3
/// debug = false
/// debug-assertions = false
/// overflow-checks = false
/// ```
///
/// `opt-level` alone is enough to use the kernels. Without the other three lines they take 1.7 times as long to
/// compile, and their loops check every address and every sum.
pub const OPTIMIZED: Option<bool> = match option_env!("SIMDFORMER_KERNELS_OPT_LEVEL") {
    Some(level) => Some(!matches!(level.as_bytes(), b"0")),
    None => None,
};

/// The program of the README, compiled and run by the tests.
#[cfg(doctest)]
#[doc = include_str!("../README.md")]
struct Readme;
