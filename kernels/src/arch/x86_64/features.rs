//! CPU features: what the operating system saves, the cache of queries, and the features that functions are compiled
//! with.

use core::sync::atomic::{AtomicU8, Ordering};
use pulp::x86::{V3, V4};

/// A property of the CPU or the operating system that does not change, cached once it is known: a query takes
/// microseconds under a hypervisor.
pub(crate) struct CachedCpuFlag(AtomicU8);

const UNKNOWN: u8 = 0;
const NO: u8 = 1;
const YES: u8 = 2;

impl CachedCpuFlag {
    /// A flag whose value is not known yet.
    pub(crate) const fn new() -> Self {
        Self(AtomicU8::new(UNKNOWN))
    }

    /// The value. The first call runs `query`; several threads may run it if they call this at the same time.
    #[inline]
    pub(crate) fn answer(&self, query: impl FnOnce() -> bool) -> bool {
        match self.0.load(Ordering::Relaxed) {
            UNKNOWN => self.init(query),
            known => known == YES,
        }
    }

    #[cold]
    #[inline(never)]
    fn init(&self, query: impl FnOnce() -> bool) -> bool {
        let answer = query();
        self.0.store(if answer { YES } else { NO }, Ordering::Relaxed);
        answer
    }
}

/// Whether the operating system saves all register state in `wanted`, bits of XCR0. CPUID alone does not show this:
/// hypervisors and boot options can leave the state disabled.
pub(crate) fn system_saves(wanted: u64) -> bool {
    use core::arch::x86_64::{__cpuid, _xgetbv};

    #[target_feature(enable = "xsave")]
    fn state() -> u64 {
        // SAFETY: XCR0 exists wherever XGETBV does.
        unsafe { _xgetbv(0) }
    }

    // Miri has no CPUID, so it runs only the scalar set.
    if cfg!(miri) {
        return false;
    }
    const XSAVE_AND_OSXSAVE: u32 = 0b11 << 26;
    let features = __cpuid(1).ecx;
    if features & XSAVE_AND_OSXSAVE != XSAVE_AND_OSXSAVE {
        return false;
    }
    // SAFETY: CPUID reports XSAVE, and the operating system has enabled it.
    unsafe { state() & wanted == wanted }
}

/// Compiles a function with the features of pulp's token [`V3`] and the features after the `+`.
macro_rules! compiled_for_v3 {
    (+ $more:literal $($function:tt)*) => {
        compiled_for_v3! { #[target_feature(enable = $more)] $($function)* }
    };
    ($($function:tt)*) => {
        #[target_feature(
            enable = "sse,sse2,fxsr,sse3,ssse3,sse4.1,sse4.2,popcnt,avx,avx2,bmi1,bmi2,fma,lzcnt"
        )]
        $($function)*
    };
}
pub(crate) use compiled_for_v3;

/// Compiles a function with the features of [`V4`] and the features after the `+`.
macro_rules! compiled_for_v4 {
    (+ $more:literal $($function:tt)*) => {
        compiled_for_v4! { #[target_feature(enable = $more)] $($function)* }
    };
    ($($function:tt)*) => {
        $crate::arch::x86_64::features::compiled_for_v3! {
            #[target_feature(enable = "avx512f,avx512bw,avx512cd,avx512dq,avx512vl")]
            $($function)*
        }
    };
}
pub(crate) use compiled_for_v4;

/// Destructures the tokens, so that a token that gains or loses a feature no longer compiles.
const _: fn(V3, V4) = |v3, v4| {
    macro_rules! is_all_of {
        ($token:ident: $set:ident $($feature:ident)*) => {
            let $set { $($feature: _),* } = $token;
        };
    }
    is_all_of!(v3: V3 sse sse2 fxsr sse3 ssse3 sse4_1 sse4_2 popcnt avx avx2 bmi1 bmi2 fma lzcnt);
    is_all_of!(v4: V4 sse sse2 fxsr sse3 ssse3 sse4_1 sse4_2 popcnt avx avx2 bmi1 bmi2 fma lzcnt
        avx512f avx512bw avx512cd avx512dq avx512vl);
};

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn both_answers_are_cached() {
        for answer in [false, true] {
            let (flag, mut times) = (CachedCpuFlag::new(), 0);
            for _ in 0..3 {
                let found = flag.answer(|| {
                    times += 1;
                    answer
                });
                assert_eq!(found, answer);
            }
            assert_eq!(times, 1);
        }
    }
}
