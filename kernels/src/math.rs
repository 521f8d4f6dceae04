//! Elementary functions on lanes.
use crate::lanes::Lanes;

/// `e^x` for `x <= 0`; exactly 0 below about -87.3 and at minus infinity; NaN stays NaN.
#[inline(always)]
pub(crate) fn exp_nonpositive<S: Lanes>(s: S, x: S::F32) -> S::F32 {
    let tiny = s.less(x, s.splat(-87.336_54));
    let xx = s.max(s.splat(-88.0), x);
    let n = s.round(s.mul(xx, s.splat(core::f32::consts::LOG2_E)));
    let t = s.mul_add(n, s.splat(-0.693_145_75), xx);
    let t = s.mul_add(n, s.splat(-1.428_606_8e-6), t);
    let mut p = s.splat(1.378_059_4e-3);
    for c in [8.373_124_5e-3, 4.166_953_6e-2, 1.666_647_2e-1, 4.999_998_5e-1, 1.0, 1.0] {
        p = s.mul_add(p, t, s.splat(c));
    }
    s.select(tiny, s.splat(0.0), s.scale(p, n))
}
