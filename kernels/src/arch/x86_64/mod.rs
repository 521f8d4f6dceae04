//! AVX2, AVX-512, VNNI and AMX.

#[cfg(target_arch = "x86_64")]
pub(crate) mod amx;
#[cfg(test)]
pub(crate) mod amx_emulator;
pub(crate) mod amx_tile;
#[cfg(target_arch = "x86_64")]
mod avx2;
#[cfg(target_arch = "x86_64")]
mod avx512;
#[cfg(target_arch = "x86_64")]
mod detect_hw_prefetcher;
#[cfg(target_arch = "x86_64")]
pub(crate) mod features;
#[cfg(target_arch = "x86_64")]
pub(crate) mod int8_madd;
#[cfg(target_arch = "x86_64")]
mod quantize;
#[cfg(target_arch = "x86_64")]
pub(crate) mod vnni;
