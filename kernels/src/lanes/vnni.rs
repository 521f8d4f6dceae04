//! AVX-512 with VNNI: sixty-four products of bytes in one instruction, four times those of f32.

use super::bytes::{Bytes, BytesKernel};
use core::arch::x86_64::{
    __m512, __m512i, _mm512_cvtepi32_ps, _mm512_dpbusd_epi32, _mm512_loadu_si512, _mm512_set1_epi32,
};
use pulp::core_arch::x86::Avx512vnni;
use pulp::x86::V4;

/// Proof of AVX-512 and of VNNI beside it.
#[derive(Clone, Copy)]
pub(crate) struct Vnni {
    floats: V4,
    /// Never read: holding it is the check.
    _vnni: Avx512vnni,
}

impl Vnni {
    pub(crate) fn beside(floats: V4) -> Option<Self> {
        Avx512vnni::try_new().map(|vnni| Self { floats, _vnni: vnni })
    }

    /// Runs `kernel` with everything that is inlined into it compiled for this set.
    #[inline]
    pub(crate) fn enter<K: BytesKernel>(self, kernel: K) -> K::Output {
        // What V4 stands for, and VNNI. A feature that V4 gained would be missing here: then its
        // operations would become calls, which the guard on the assembly finds.
        #[target_feature(
            enable = "sse,sse2,fxsr,sse3,ssse3,sse4.1,sse4.2,popcnt,avx,avx2,bmi1,bmi2,fma,lzcnt"
        )]
        #[target_feature(enable = "avx512f,avx512bw,avx512cd,avx512dq,avx512vl,avx512vnni")]
        fn inside<K: BytesKernel>(vnni: Vnni, kernel: K) -> K::Output {
            kernel.run::<Vnni, 2>(vnni)
        }
        // SAFETY: both tokens exist, so this CPU has all of these.
        unsafe { inside(self, kernel) }
    }
}

// SAFETY: sixteen lanes, as in V4.
unsafe impl Bytes for Vnni {
    type Floats = V4;
    type I32 = __m512i;

    #[inline(always)]
    fn floats(self) -> V4 {
        self.floats
    }
    #[inline(always)]
    fn splat(self, x: i32) -> __m512i {
        // SAFETY: `self` is the proof.
        unsafe { _mm512_set1_epi32(x) }
    }
    #[inline(always)]
    unsafe fn load(self, from: *const i32) -> __m512i {
        // SAFETY: the caller's contract; `self` is the proof of the instruction set.
        unsafe { _mm512_loadu_si512(from.cast()) }
    }
    #[inline(always)]
    fn dot(self, sum: __m512i, a: __m512i, b: __m512i) -> __m512i {
        // SAFETY: `self` is the proof.
        unsafe { _mm512_dpbusd_epi32(sum, a, b) }
    }
    #[inline(always)]
    fn to_f32(self, a: __m512i) -> __m512 {
        // SAFETY: `self` is the proof.
        unsafe { _mm512_cvtepi32_ps(a) }
    }
}
