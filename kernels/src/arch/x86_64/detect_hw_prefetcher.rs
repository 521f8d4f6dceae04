//! CPUs whose hardware prefetcher loads sequential data faster without a software prefetch for each cache line.

use crate::arch::x86_64::features::CachedCpuFlag;
use core::arch::x86_64::__cpuid;

static PREFERS_HW_PREFETCH: CachedCpuFlag = CachedCpuFlag::new();

/// Of the CPUs with AVX-512 these are Zen 4: a prefetch for each cache line costs a quarter of the bandwidth of the
/// outer caches, and as much of the memory bandwidth. On other CPUs prefetches help, or it was not measured.
#[inline]
pub(crate) fn prefers_hw_prefetch() -> bool {
    PREFERS_HW_PREFETCH.answer(|| {
        let vendor = __cpuid(0);
        let words = [vendor.ebx, vendor.edx, vendor.ecx].map(u32::to_le_bytes);
        let version = __cpuid(1).eax;
        let family = (version >> 8 & 0xf) + (version >> 20 & 0xff);
        words.as_flattened() == b"AuthenticAMD" && family == 0x19
    })
}
