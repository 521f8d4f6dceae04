//! Plain Rust, eight floats at a time.

#[cfg(not(target_arch = "x86_64"))]
mod portable;
mod soft_fma;
#[cfg(target_arch = "x86_64")]
mod sse2;
