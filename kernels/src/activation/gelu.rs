//! GELU by table: `x F(x)`, where `F` is the normal distribution function or its approximation by tanh.
//!
//! With `z = |x|` and the tail `1 - F(z)`, which is `F(-z)`, both signs of `x` have the formula `max(x, 0) - z (1 -
//! F(z))`. Polynomials of degree 6 approximate the tail around the multiples of 0.75, and each coefficient is looked up
//! by the number of the multiple. There is no division. The last polynomial is exactly 0 at 5.5.

use crate::simd::{SimdF32, Table};

/// The distance of the centers.
const STEP: f32 = 0.75;
/// The tail is 0 from here on.
const END: f32 = 5.5;
/// 1.5 * 2^23. Adding it rounds to the nearest integer, which is then in the lowest bits.
const MAGIC: f32 = 12_582_912.0;

/// The coefficients of `-(1 - F(z))` around 0, 0.75, ..., 5.25, the highest power first.
pub(crate) struct Tail([Table; 7]);

/// The normal distribution: GELU with erf.
pub(crate) static NORMAL: Tail = Tail([
    Table::new([
        -0.001_463_427_6,
        -0.002_946_404_3,
        6.297_118_4e-4,
        9.730_912e-4,
        -9.919_615e-5,
        -1.318_329_9e-4,
        -2.304_594e-5,
        6.887_667e-4,
    ]),
    Table::new([
        0.010_695_606,
        -6.513_181e-5,
        -0.005_733_376_4,
        -5.249_794_3e-4,
        0.001_086_934_4,
        3.492_569e-4,
        4.124_038_2e-5,
        2.547_494e-4,
    ]),
    Table::new([
        -1.769_353_3e-4,
        0.022_928_55,
        0.006_071_108,
        -0.006_134_421_6,
        -0.003_324_837_4,
        -6.095_930_6e-4,
        -5.163_180_3e-5,
        -6.483_857_6e-5,
    ]),
    Table::new([
        -0.066_468_36,
        -0.021_963_632,
        0.026_973_417,
        0.021_494_767,
        0.005_910_614,
        7.671_211_5e-4,
        5.111_154e-5,
        -1.955_128e-5,
    ]),
    Table::new([
        -1.263_348_3e-6,
        -0.112_926_21,
        -0.097_138_09,
        -0.035_707_23,
        -0.006_647_748_4,
        -6.611_104_5e-4,
        -3.596_502e-5,
        5.350_155e-7,
    ]),
    Table::new([
        0.398_942_3,
        0.301_137_54,
        0.129_517_76,
        0.031_739_578,
        0.004_431_822_3,
        3.526_045_8e-4,
        1.598_672_7e-5,
        7.701_687e-7,
    ]),
    Table::new([
        -0.5,
        -0.226_627_35,
        -0.066_807_2,
        -0.012_224_472,
        -0.001_349_898_2,
        -8.841_733_5e-5,
        -3.397_667_8e-6,
        -8.415_085_5e-8,
    ]),
]);

/// The approximation by tanh.
pub(crate) static TANH: Tail = Tail([
    Table::new([
        -0.001_533_606_4,
        -0.003_028_293_6,
        7.429_292_3e-4,
        8.790_525e-4,
        -5.489_501_2e-5,
        -1.394_774e-4,
        -2.480_494e-5,
        3.784_462e-5,
    ]),
    Table::new([
        0.010_958_604,
        -2.751_813_7e-4,
        -0.005_594_915_2,
        -5.334_776_4e-4,
        0.001_033_895_8,
        3.784_712_5e-4,
        3.890_441_8e-5,
        1.535_990_3e-5,
    ]),
    Table::new([
        -1.855_660_5e-4,
        0.023_098_413,
        0.005_740_026_5,
        -0.005_851_539_3,
        -0.003_399_709,
        -6.361_658_5e-4,
        -4.043_103e-5,
        -4.269_445_5e-6,
    ]),
    Table::new([
        -0.066_796_38,
        -0.021_565_007,
        0.026_715_552,
        0.021_364_4,
        0.006_111_560_4,
        7.394_440_5e-4,
        3.304_285_2e-5,
        -7.502_358e-7,
    ]),
    Table::new([
        -1.325_439_5e-6,
        -0.112_963_565,
        -0.096_689_61,
        -0.036_084_924,
        -0.006_716_445,
        -5.731_619e-4,
        -1.897_653_2e-5,
        -1.129_481_15e-7,
    ]),
    Table::new([
        0.398_942_3,
        0.300_876_8,
        0.129_775_52,
        0.032_001_715,
        0.004_265_517,
        2.692_948_3e-4,
        6.773_260_3e-6,
        7.685_014e-8,
    ]),
    Table::new([
        -0.5,
        -0.226_719_26,
        -0.066_952_28,
        -0.012_089_48,
        -0.001_212_464_1,
        -5.846_728_5e-5,
        -1.141_490_4e-6,
        -7.992_637e-9,
    ]),
]);

/// `z` and `-(1 - F(z))`, where `z` is `|x|`, at most 5.5; NaN for NaN.
#[inline(always)]
fn minus_tail<S: SimdF32>(s: S, tail: &'static Tail, x: S::F32) -> (S::F32, S::F32) {
    // `min` returns its second argument for NaN.
    let z = s.min(s.splat(END), s.abs(x));
    let magic = s.splat(MAGIC);
    let number = s.mul_add(z, s.splat(1.0 / STEP), magic);
    let t = s.mul_add(s.sub(number, magic), s.splat(-STEP), z);
    let mut p = s.lookup(&tail.0[0], number);
    for table in &tail.0[1..] {
        p = s.mul_add(p, t, s.lookup(table, number));
    }
    (z, p)
}

/// `x F(x)`: at most `1.1e-7 + 1.2e-7 |x F(x)|` off; 0 up to -5.5, `x` from 5.5 on; NaN for NaN.
#[inline(always)]
pub(crate) fn gelu<S: SimdF32>(s: S, tail: &'static Tail, x: S::F32) -> S::F32 {
    let (z, p) = minus_tail(s, tail, x);
    // If one argument of `max` is NaN, the result is the second.
    s.mul_add(z, p, s.max(s.splat(0.0), x))
}

/// The normal distribution function of `x`: at most 1.2e-7 off; exactly 0 up to -5.5 and 1 from 5.5 on; NaN for NaN.
#[cfg(feature = "train")]
#[inline(always)]
pub(super) fn distribution<S: SimdF32>(s: S, x: S::F32) -> S::F32 {
    let (_, p) = minus_tail(s, &NORMAL, x);
    let zero = s.splat(0.0);
    s.select(s.less(x, zero), s.sub(zero, p), s.add(s.splat(1.0), p))
}
