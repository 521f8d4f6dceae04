//! Which CPUs bring what is read in order sooner by themselves than when each line of it is asked for.

use crate::arch::x86_64::cpu_flag::CachedCpuFlag;
use core::arch::x86_64::__cpuid;

static FOLLOWED: CachedCpuFlag = CachedCpuFlag::new();

/// Of those with AVX-512 Zen 4: a request for each line takes a quarter of what the outer caches give, and as
/// much of what memory does. Elsewhere requests help, or it was not measured.
#[inline]
pub(crate) fn prefers_hw_prefetch() -> bool {
    FOLLOWED.answer(|| {
        let vendor = __cpuid(0);
        let words = [vendor.ebx, vendor.edx, vendor.ecx].map(u32::to_le_bytes);
        let version = __cpuid(1).eax;
        let family = (version >> 8 & 0xf) + (version >> 20 & 0xff);
        words.as_flattened() == b"AuthenticAMD" && family == 0x19
    })
}
