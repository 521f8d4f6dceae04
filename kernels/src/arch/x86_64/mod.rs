//! AVX2, AVX-512, VNNI and AMX.

/// Defines the items of [`SimdF32`](crate::simd::SimdF32) for prefetches.
#[cfg(vectors = "x86_64")]
macro_rules! prefetch_items {
    () => {
        const PREFETCHES: bool = true;

        lanewise! {
            // SAFETY: a prefetch never faults.
            prefetch(_s, at: *const f32) -> () = unsafe {
                core::arch::x86_64::_mm_prefetch::<{ core::arch::x86_64::_MM_HINT_T0 }>(at.cast())
            };
            // SAFETY: a prefetch never faults.
            prefetch_l2(_s, at: *const f32) -> () = unsafe {
                core::arch::x86_64::_mm_prefetch::<{ core::arch::x86_64::_MM_HINT_T1 }>(at.cast())
            };
        }
    };
}

/// Defines a function that loads a vector by one piece of assembly: `{0}` is the vector, `{1}` the address, `{2}` a mask.
#[cfg(vectors = "x86_64")]
macro_rules! asm_load {
    ($name:ident: $feature:literal, $register:ident -> $Floats:ty, $($line:literal),+
        $(, $mask:ident: $Mask:ty)?) => {
        #[target_feature(enable = $feature)]
        #[inline]
        unsafe fn $name(from: *const f32 $(, $mask: $Mask)?) -> $Floats {
            let floats;
            // SAFETY: the caller's contract.
            unsafe {
                core::arch::asm!($($line,)+ lateout($register) floats, in(reg) from,
                    $(in($register) $mask,)? options(pure, readonly, nostack, preserves_flags));
            }
            floats
        }
    };
}

#[cfg(vectors = "x86_64")]
pub(crate) mod amx;
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
mod int8_lanes;
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
