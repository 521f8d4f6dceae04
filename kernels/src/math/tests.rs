//! Compares the functions with f64, over every f32 (in release builds, by name) or every thousandth one.

use super::*;
use crate::Isa;
use core::ops::RangeInclusive;

#[derive(Clone, Copy)]
enum Function {
    Exp,
    ExpNonpositive,
    Sigmoid,
    Silu,
    Tanh,
}

simd_op!(
    fn apply<S: SimdF32>(s: S, function: Function, data: &mut [f32]) {
        for chunk in data.chunks_mut(S::LANES) {
            // SAFETY: at most the chunk's elements.
            unsafe {
                let x = s.load_prefix(chunk.as_ptr(), chunk.len());
                let y = match function {
                    Function::Exp => exp(s, x),
                    Function::ExpNonpositive => exp_nonpositive(s, x),
                    Function::Sigmoid => sigmoid(s, x),
                    Function::Silu => silu(s, x),
                    Function::Tanh => tanh(s, x),
                };
                s.store_prefix(chunk.as_mut_ptr(), y, chunk.len());
            }
        }
    }
);

fn one(isa: Isa, function: Function, x: f32) -> f32 {
    let mut data = [x];
    isa.dispatch(apply(function, &mut data));
    data[0]
}

/// Distance from `exact` in units of the last place of `exact` as f32.
fn ulps(found: f32, exact: f64) -> f64 {
    let exponent = ((exact.to_bits() >> 52) & 0x7ff) as i32 - 1023;
    (f64::from(found) - exact).abs() / libm::exp2(f64::from(exponent.max(-126) - 23))
}

/// Below this range exp is 1 and the other functions are linear; above it all are constant. Outside it, a full test
/// checks one block of floats in 64.
const CURVED: RangeInclusive<f32> = 1e-9..=256.0;

/// Calls `check(x, y)` for every `step`-th f32 by bit pattern, including NaN.
fn for_every_float(isa: Isa, function: Function, step: usize, mut check: impl FnMut(f32, f32)) {
    let mut inputs = [0.0f32; 4096];
    let mut first = 0u64;
    while first < 1 << 32 {
        for (i, x) in inputs.iter_mut().enumerate() {
            *x = f32::from_bits((first + (i * step) as u64).min(u32::MAX.into()) as u32);
        }
        let bent = CURVED.contains(&inputs[0].abs()) || CURVED.contains(&inputs[4095].abs());
        first += (inputs.len() * step * if bent || step > 1 { 1 } else { 64 }) as u64;
        let mut results = inputs;
        isa.dispatch(apply(function, &mut results));
        for (&x, &y) in inputs.iter().zip(&results) {
            if x.is_nan() {
                assert!(y.is_nan(), "{isa} of NaN gives {y}");
            } else {
                check(x, y);
            }
        }
    }
}

/// The numbers whose exponential is neither 0 nor infinite.
const EXP_RANGE: RangeInclusive<f32> = EXP_ZERO.next_up()..=88.722_83;

fn check_exp(isa: Isa, step: usize) {
    let mut worst = 0.0f64;
    for_every_float(isa, Function::Exp, step, |x, y| {
        if x < *EXP_RANGE.start() {
            assert_eq!(y, 0.0, "exp({x})");
        } else if x > *EXP_RANGE.end() {
            assert_eq!(y, f32::INFINITY, "exp({x})");
        } else if x.abs() < 2.0f32.powi(-26) {
            assert_eq!(y, 1.0, "exp({x})");
        } else {
            worst = worst.max(ulps(y, f64::from(x).exp()));
        }
    });
    std::println!("exp on {isa}: {worst:.3} ULP");
    assert!(worst <= 1.2, "{worst} ULP on {isa}");
}

fn check_exp_nonpositive(isa: Isa, step: usize) {
    let mut worst = 0.0f64;
    for_every_float(isa, Function::ExpNonpositive, step, |x, y| {
        if x < *EXP_RANGE.start() {
            assert_eq!(y.to_bits(), 0, "exp({x})");
        } else if x <= -(2.0f32.powi(-26)) {
            worst = worst.max(ulps(y, f64::from(x).exp()));
        } else if x <= 0.0 {
            assert_eq!(y, 1.0, "exp({x})");
        }
    });
    std::println!("exp_nonpositive on {isa}: {worst:.3} ULP");
    assert!(worst <= 1.2, "{worst} ULP on {isa}");
}

fn check_others(isa: Isa, step: usize) {
    let mut worst = [0.0f64; 3];
    for_every_float(isa, Function::Sigmoid, step, |x, y| {
        if x <= EXP_ZERO {
            assert_eq!(y.to_bits(), 0, "sigmoid({x})");
        } else {
            let exact = 1.0 / (1.0 + f64::from(-x).exp());
            worst[0] = worst[0].max(ulps(y, exact));
        }
    });
    for_every_float(isa, Function::Silu, step, |x, y| {
        if x <= EXP_ZERO || x >= -EXP_ZERO {
            assert_eq!(y, x.max(0.0), "silu({x})");
        } else {
            let exact = f64::from(x) / (1.0 + f64::from(-x).exp());
            worst[1] = worst[1].max(ulps(y, exact));
        }
    });
    for_every_float(isa, Function::Tanh, step, |x, y| {
        assert!(y.abs() <= 1.0, "tanh({x}) = {y}");
        // The square of a subnormal argument is zero, so its lost bits do not matter.
        worst[2] = worst[2].max(ulps(y, f64::from(x).tanh()));
    });
    let [sigmoid, silu, tanh] = worst;
    std::println!("{isa}: sigmoid {sigmoid:.3}, silu {silu:.3}, tanh {tanh:.3} ULP");
    assert!(sigmoid <= 3.0 && silu <= 4.0 && tanh <= 5.0, "{worst:?} on {isa}");
}

#[test]
fn bounds_hold_on_a_sample() {
    for isa in Isa::available() {
        check_exp(isa, 1009);
        check_exp_nonpositive(isa, 1013);
        check_others(isa, 1019);
    }
}

#[test]
#[ignore = "sweeps every f32 where the functions bend: a minute in release"]
fn bounds_hold_for_every_f32() {
    std::thread::scope(|scope| {
        for isa in Isa::available() {
            scope.spawn(move || {
                check_exp(isa, 1);
                check_exp_nonpositive(isa, 1);
                check_others(isa, 1);
            });
        }
    });
}

/// The largest finite result, the first infinite one, the smallest normal one, and the next one below it.
#[test]
fn exp_at_the_ends_of_its_range() {
    for isa in Isa::available() {
        let last = f32::from_bits(0x42b1_7217);
        assert!(one(isa, Function::Exp, last).is_finite());
        assert_eq!(one(isa, Function::Exp, last.next_up()), f32::INFINITY);
        assert_eq!(one(isa, Function::Exp, f32::MAX), f32::INFINITY);
        assert_eq!(one(isa, Function::Exp, f32::INFINITY), f32::INFINITY);
        for function in [Function::Exp, Function::ExpNonpositive] {
            assert!(one(isa, function, EXP_ZERO.next_up()) >= f32::MIN_POSITIVE);
            for x in
                [EXP_ZERO, EXP_ZERO.next_down(), -90.0, -103.9, -1e6, f32::MIN, f32::NEG_INFINITY]
            {
                assert_eq!(one(isa, function, x).to_bits(), 0, "exp({x}) on {isa}");
            }
            assert!(one(isa, function, f32::NAN).is_nan());
            assert_eq!(one(isa, function, 0.0), 1.0);
            assert_eq!(one(isa, function, -0.0), 1.0);
        }
    }
}

#[test]
fn square_root_is_correctly_rounded() {
    for pattern in (0..=u32::MAX).step_by(65_521) {
        let x = f32::from_bits(pattern);
        if x >= 0.0 {
            assert_eq!(sqrt(x).to_bits(), x.sqrt().to_bits(), "{x}");
        } else {
            assert!(sqrt(x).is_nan() || x == 0.0, "{x}");
        }
    }
}
