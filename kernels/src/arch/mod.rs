//! The instruction sets: for each CPU architecture the vectors of [`crate::simd`] and its int8 instructions.
//!
//! | module | instruction set |
//! |---|---|
//! | `x86_64` | AVX2, AVX-512, VNNI, AMX; `int8_madd` where VNNI is missing |
//! | `aarch64` | NEON, its dot products, I8MM |
//! | `scalar` | plain Rust; on x86-64 with SSE2 registers, which every program may use |

#[cfg(vectors = "aarch64")]
pub(crate) mod aarch64;
pub(crate) mod scalar;
// On other CPUs the tests use the AMX emulator.
#[cfg(any(vectors = "x86_64", test))]
pub(crate) mod x86_64;
