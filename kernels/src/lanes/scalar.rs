//! Plain Rust in groups of eight, for the compiler to vectorise with what the target has.
//!
//! `mul_add` is a multiplication and an addition: `f32::mul_add` would call a library routine on
//! targets without FMA. Results therefore differ from the other instruction sets in the last bits.

use super::vector::{Kernel, Lanes, PanelKernel, panels};
use pulp::Scalar;

#[derive(Clone, Copy)]
pub(crate) struct Eight([f32; 8]);

#[derive(Clone, Copy)]
pub(crate) struct EightBools([bool; 8]);

/// An array of what `$lane` gives for each lane `$i`, written out: as a loop it would be rolled up and
/// unrolled again at every operation of every kernel, which is most of what compiling them takes.
macro_rules! lanes {
    ($i:ident => $lane:expr) => {
        [
            lanes!($i = 0 => $lane),
            lanes!($i = 1 => $lane),
            lanes!($i = 2 => $lane),
            lanes!($i = 3 => $lane),
            lanes!($i = 4 => $lane),
            lanes!($i = 5 => $lane),
            lanes!($i = 6 => $lane),
            lanes!($i = 7 => $lane),
        ]
    };
    ($i:ident = $index:literal => $lane:expr) => {{
        const $i: usize = $index;
        $lane
    }};
}
pub(super) use lanes;

// SAFETY: 8 lanes, panels of 8; partial accesses go lane by lane.
unsafe impl Lanes for Scalar {
    const LANES: usize = 8;
    const PANEL: usize = 8;
    const FUSED: bool = false;
    const REGISTERS: usize = 16;
    const PREFETCHES: bool = false;
    type F32 = Eight;
    type Mask = EightBools;

    #[inline(always)]
    fn with_panels<K: PanelKernel>(self, kernel: K) -> K::Output {
        panels::<Self, K, 1>(self, kernel)
    }

    #[inline(never)]
    fn outlined<K: Kernel>(self, kernel: K) -> K::Output {
        kernel.run(self)
    }

    #[inline(always)]
    fn splat(self, x: f32) -> Eight {
        Eight(lanes!(_I => x))
    }
    #[inline(always)]
    unsafe fn load(self, from: *const f32) -> Eight {
        // SAFETY: the caller vouches for eight floats; arrays of f32 have the alignment of f32.
        Eight(unsafe { from.cast::<[f32; 8]>().read_unaligned() })
    }
    #[inline(always)]
    unsafe fn load_first(self, from: *const f32, count: usize) -> Eight {
        // SAFETY: the first `count` floats are the caller's.
        Eight(lanes!(I => if I < count { unsafe { from.add(I).read_unaligned() } } else { 0.0 }))
    }
    #[inline(always)]
    unsafe fn store(self, to: *mut f32, v: Eight) {
        // SAFETY: the caller vouches for eight floats.
        unsafe { to.cast::<[f32; 8]>().write_unaligned(v.0) }
    }
    #[inline(always)]
    unsafe fn store_first(self, to: *mut f32, v: Eight, count: usize) {
        lanes!(I => if I < count {
            // SAFETY: the first `count` floats are the caller's.
            unsafe { to.add(I).write_unaligned(v.0[I]) }
        });
    }
    #[inline(always)]
    fn prefetch(self, _at: *const f32) {}
    #[inline(always)]
    fn prefetch_outer(self, _at: *const f32) {}

    #[inline(always)]
    fn add(self, a: Eight, b: Eight) -> Eight {
        Eight(lanes!(I => a.0[I] + b.0[I]))
    }
    #[inline(always)]
    fn sub(self, a: Eight, b: Eight) -> Eight {
        Eight(lanes!(I => a.0[I] - b.0[I]))
    }
    #[inline(always)]
    fn mul(self, a: Eight, b: Eight) -> Eight {
        Eight(lanes!(I => a.0[I] * b.0[I]))
    }
    #[inline(always)]
    fn div(self, a: Eight, b: Eight) -> Eight {
        Eight(lanes!(I => a.0[I] / b.0[I]))
    }
    #[inline(always)]
    fn mul_add(self, a: Eight, b: Eight, c: Eight) -> Eight {
        Eight(lanes!(I => a.0[I] * b.0[I] + c.0[I]))
    }
    #[inline(always)]
    fn max(self, a: Eight, b: Eight) -> Eight {
        Eight(lanes!(I => if a.0[I] > b.0[I] { a.0[I] } else { b.0[I] }))
    }
    #[inline(always)]
    fn min(self, a: Eight, b: Eight) -> Eight {
        Eight(lanes!(I => if a.0[I] < b.0[I] { a.0[I] } else { b.0[I] }))
    }
    #[inline(always)]
    fn abs(self, a: Eight) -> Eight {
        Eight(lanes!(I => a.0[I].abs()))
    }
    #[inline(always)]
    fn copy_sign(self, magnitude: Eight, sign: Eight) -> Eight {
        Eight(lanes!(I => magnitude.0[I].copysign(sign.0[I])))
    }
    #[inline(always)]
    fn scale(self, a: Eight, n: Eight) -> Eight {
        Eight(
            lanes!(I => a.0[I] * f32::from_bits(((n.0[I] as i32).wrapping_add(127) as u32) << 23)),
        )
    }
    #[inline(always)]
    fn scale_where(self, mask: EightBools, a: Eight, n: Eight) -> Eight {
        self.select(mask, self.scale(a, n), self.splat(0.0))
    }

    #[inline(always)]
    fn less(self, a: Eight, b: Eight) -> EightBools {
        EightBools(lanes!(I => a.0[I] < b.0[I]))
    }
    #[inline(always)]
    fn not_less(self, a: Eight, b: Eight) -> EightBools {
        let less = self.less(a, b);
        EightBools(lanes!(I => !less.0[I]))
    }
    #[inline(always)]
    fn first(self, count: usize) -> EightBools {
        EightBools(lanes!(I => I < count))
    }
    #[inline(always)]
    fn select(self, mask: EightBools, yes: Eight, no: Eight) -> Eight {
        Eight(lanes!(I => if mask.0[I] { yes.0[I] } else { no.0[I] }))
    }
    #[inline(always)]
    fn any(self, mask: EightBools) -> bool {
        lanes!(I => mask.0[I]) != [false; 8]
    }

    #[inline(always)]
    fn reduce_add(self, a: Eight) -> f32 {
        let a = a.0;
        ((a[0] + a[4]) + (a[2] + a[6])) + ((a[1] + a[5]) + (a[3] + a[7]))
    }
    #[inline(always)]
    fn reduce_max(self, a: Eight) -> f32 {
        a.0.iter().fold(f32::NEG_INFINITY, |m, &x| if x > m { x } else { m })
    }

    #[inline(always)]
    unsafe fn transpose(
        self,
        from: *const f32,
        from_stride: usize,
        to: *mut f32,
        to_stride: usize,
    ) {
        for i in 0..8 {
            for j in 0..8 {
                // SAFETY: the caller vouches for 8 rows of 8 floats on both sides.
                unsafe { *to.add(j * to_stride + i) = *from.add(i * from_stride + j) };
            }
        }
    }
}
