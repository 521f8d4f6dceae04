//! GELU by table: `x F(x)`, where `F` is the normal distribution function or its approximation by tanh.
//!
//! With `z = |x|` and the tail `1 - F(z)`, which is `F(-z)`, both signs of `x` have the formula `max(x, 0) - z (1 -
//! F(z))`. Polynomials of degree 5 approximate the tail around the multiples of 0.75, and each coefficient is looked up
//! by the number of the multiple. There is no division. The last polynomial is exactly 0 at 5.5.

use crate::simd::{SimdF32, Table};

/// The distance of the centers.
const STEP: f32 = 0.75;
/// The tail is 0 from here on.
const END: f32 = 5.5;
/// 1.5 * 2^23. Adding it rounds to the nearest integer, which is then in the lowest bits.
const MAGIC: f32 = 12_582_912.0;

/// The coefficients of `-(1 - F(z))` around 0, 0.75, ..., 5.25, the highest power first.
pub(crate) struct Tail<const N: usize>([Table; N]);

/// The normal distribution: GELU with erf.
pub(crate) static NORMAL: Tail<6> = Tail([
    Table::new([
        0.008_898_835,
        -3.492_237_6e-4,
        -0.005_685_047_2,
        -5.032_973e-4,
        0.001_081_739_3,
        3.478_111_2e-4,
        4.122_565e-5,
        1.108_129e-4,
    ]),
    Table::new([
        6.664_203e-4,
        0.022_328_47,
        0.006_201_259,
        -0.005_929_723_4,
        -0.003_345_520_7,
        -6.373_776e-4,
        -5.649_281_6e-5,
        3.032_299_9e-5,
    ]),
    Table::new([
        -0.066_655_405,
        -0.021_915_14,
        0.026_965_048,
        0.021_490_967,
        0.005_911_517,
        7.673_749_4e-4,
        5.111_411_5e-5,
        -7.451_484e-6,
    ]),
    Table::new([
        1.802_467_9e-5,
        -0.112_896_35,
        -0.097_144_73,
        -0.035_717_98,
        -0.006_646_679,
        -6.596_473_4e-4,
        -3.570_869_7e-5,
        -3.206_923_3e-6,
    ]),
    Table::new([
        0.398_941_58,
        0.301_135_93,
        0.129_518_05,
        0.031_739_708,
        0.004_431_791,
        3.525_956_7e-4,
        1.598_663_6e-5,
        6.007_523_4e-7,
    ]),
    Table::new([
        -0.5,
        -0.226_627_56,
        -0.066_807_15,
        -0.012_224_388,
        -0.001_349_906_2,
        -8.842_873e-5,
        -3.399_67e-6,
        -5.999_087_4e-8,
    ]),
]);

/// The approximation by tanh.
pub(crate) static TANH: Tail<6> = Tail([
    Table::new([
        0.009_075_653,
        -5.652_826_5e-4,
        -0.005_542_886_4,
        -5.138_836_6e-4,
        0.001_029_871_8,
        3.767_378e-4,
        3.892_603e-5,
        7.616_691e-6,
    ]),
    Table::new([
        6.982_498e-4,
        0.022_481_492,
        0.005_894_074_7,
        -0.005_666_604_3,
        -0.003_411_029_5,
        -6.655_561e-4,
        -4.566_298e-5,
        9.794_977e-7,
    ]),
    Table::new([
        -0.066_992_4,
        -0.021_515_489,
        0.026_706_522,
        0.021_360_965,
        0.006_112_252,
        7.397_483e-4,
        3.303_903_2e-5,
        -1.059_953_8e-7,
    ]),
    Table::new([
        1.888_848_8e-5,
        -0.112_932_85,
        -0.096_697_5,
        -0.036_094_632,
        -0.006_715_87,
        -5.716_146_6e-4,
        -1.870_065_9e-5,
        -3.194_331_8e-7,
    ]),
    Table::new([
        0.398_941_55,
        0.300_875_16,
        0.129_775_84,
        0.032_001_834,
        0.004_265_493_7,
        2.692_841_5e-4,
        6.773_396_3e-6,
        6.809_922_6e-8,
    ]),
    Table::new([
        -0.5,
        -0.226_719_48,
        -0.066_952_22,
        -0.012_089_404,
        -0.001_212_468_3,
        -5.847_933e-5,
        -1.143_645_2e-6,
        -6.668_392e-9,
    ]),
]);

/// The normal distribution, for the derivative: one coefficient more.
#[cfg(feature = "train")]
static FINE: Tail<7> = Tail([
    Table::new([
        -0.001_463_427_7,
        -0.002_949_007_6,
        6.036_566e-4,
        9.810_318e-4,
        -9.716_576e-5,
        -1.323_820_2e-4,
        -2.320_027_9e-5,
        6.489_159e-4,
    ]),
    Table::new([
        0.010_695_606,
        -6.546_167_4e-5,
        -0.005_732_726_3,
        -5.252_03e-4,
        0.001_086_933_8,
        3.492_648_5e-4,
        4.124_051_3e-5,
        2.463_111_6e-4,
    ]),
    Table::new([
        -1.769_353_8e-4,
        0.022_929_057,
        0.006_076_58,
        -0.006_136_090_5,
        -0.003_325_265_4,
        -6.094_774_6e-4,
        -5.159_925_4e-5,
        -5.934_860_7e-5,
    ]),
    Table::new([
        -0.066_468_36,
        -0.021_963_578,
        0.026_973_303,
        0.021_494_806,
        0.005_910_614,
        7.671_197_5e-4,
        5.111_151_4e-5,
        -1.883_762_2e-5,
    ]),
    Table::new([
        -1.263_349_3e-6,
        -0.112_926_23,
        -0.097_138_38,
        -0.035_707_146,
        -0.006_647_726,
        -6.611_165e-4,
        -3.596_673_6e-5,
        3.193_523_2e-7,
    ]),
    Table::new([
        0.398_942_3,
        0.301_137_54,
        0.129_517_76,
        0.031_739_574,
        0.004_431_822_3,
        3.526_046e-4,
        1.598_672_7e-5,
        7.599_921e-7,
    ]),
    Table::new([
        -0.5,
        -0.226_627_35,
        -0.066_807_2,
        -0.012_224_472,
        -0.001_349_898_3,
        -8.841_728_4e-5,
        -3.397_654_4e-6,
        -8.275_418e-8,
    ]),
]);

/// `z` and `-(1 - F(z))`, where `z` is `|x|`, at most 5.5; NaN for NaN.
#[inline(always)]
fn minus_tail<S: SimdF32, const N: usize>(
    s: S,
    tail: &'static Tail<N>,
    x: S::F32,
) -> (S::F32, S::F32) {
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

/// `x F(x)`: at most `2.2e-7 + 1.2e-7 |x F(x)|` off; 0 up to -5.5, `x` from 5.5 on; NaN for NaN.
#[inline(always)]
pub(crate) fn gelu<S: SimdF32>(s: S, tail: &'static Tail<6>, x: S::F32) -> S::F32 {
    let (z, p) = minus_tail(s, tail, x);
    // If one argument of `max` is NaN, the result is the second.
    s.mul_add(z, p, s.max(s.splat(0.0), x))
}

/// The normal distribution function of `x`: at most 1.2e-7 off; exactly 0 up to -5.5 and 1 from 5.5 on; NaN for NaN.
#[cfg(feature = "train")]
#[inline(always)]
pub(super) fn distribution<S: SimdF32>(s: S, x: S::F32) -> S::F32 {
    let (_, p) = minus_tail(s, &FINE, x);
    let zero = s.splat(0.0);
    s.select(s.less(x, zero), s.sub(zero, p), s.add(s.splat(1.0), p))
}
