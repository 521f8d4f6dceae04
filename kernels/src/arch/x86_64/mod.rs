//! AVX2, AVX-512, VNNI and AMX.

#[cfg(vectors = "x86_64")]
pub(crate) mod amx;
#[cfg(test)]
pub(crate) mod amx_emulator;
pub(crate) mod amx_tile;
#[cfg(vectors = "x86_64")]
mod avx2;
#[cfg(vectors = "x86_64")]
mod avx512;
#[cfg(vectors = "x86_64")]
mod detect_hw_prefetcher;
#[cfg(vectors = "x86_64")]
pub(crate) mod features;
#[cfg(vectors = "x86_64")]
pub(crate) mod int8_madd;
#[cfg(vectors = "x86_64")]
mod int8_sums;
#[cfg(vectors = "x86_64")]
mod quantize;
#[cfg(vectors = "x86_64")]
pub(crate) mod vnni;
#[cfg(vectors = "x86_64")]
mod widths;
