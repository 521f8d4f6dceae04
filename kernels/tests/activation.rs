//! Activations compared with the f64 reference on every instruction set.

use crate::support::*;
use proptest::prelude::*;
use simdformer_kernels::activation::{Activation, apply};
use simdformer_kernels::{Exec, Input, Isa, MatrixMut, Parallelism, reference};

/// The documented bounds.
fn bound(activation: Activation, exact: f64) -> f64 {
    let y = exact.abs();
    match activation {
        Activation::Gelu | Activation::GeluTanh => 1.1e-7 + 1.2e-7 * y,
        Activation::Silu => 2e-36 + 4.7e-7 * y,
        Activation::Tanh => 5.0 * 1.2e-7 * y + 1.5e-45,
        Activation::Sigmoid => 1.3e-38 + 3.6e-7 * y,
        _ => 0.0,
    }
}

fn apply_to(isa: Isa, activation: Activation, x: &[f32]) -> Vec<f32> {
    let mut y = x.to_vec();
    let view = view_matrix_mut(&mut y, 1, x.len());
    apply(Exec::serial(isa), activation, Input::Output, view).unwrap();
    y
}

fn check(isa: Isa, activation: Activation, x: f32, y: f32) {
    compare(isa, activation, x, reference::activation(activation, x.into()), y);
}

/// Checks every instruction set.
fn check_all(x: &[f32]) {
    for activation in Activation::ALL {
        let exact: Vec<f64> =
            x.iter().map(|&x| reference::activation(activation, x.into())).collect();
        for isa in Isa::available() {
            for ((&x, &exact), &y) in x.iter().zip(&exact).zip(&apply_to(isa, activation, x)) {
                compare(isa, activation, x, exact, y);
            }
        }
    }
}

fn compare(isa: Isa, activation: Activation, x: f32, exact: f64, y: f32) {
    if exact.is_nan() {
        assert!(y.is_nan(), "{activation:?}({x}) is {y} on {isa}");
    } else if exact.is_infinite() {
        assert_eq!(f64::from(y), exact, "{activation:?}({x}) on {isa}");
    } else {
        let what = format!("{activation:?}({x:e}) on {isa}");
        assert_close(y, exact, bound(activation, exact), &what);
    }
}

fn sweep(step: usize) {
    let mut x = Vec::with_capacity(1 << 16);
    let mut bits = (0..=u32::MAX).step_by(step).peekable();
    while bits.peek().is_some() {
        x.clear();
        x.extend(bits.by_ref().take(1 << 16).map(f32::from_bits));
        check_all(&x);
    }
}

#[test]
fn bounds_hold_on_a_sample_of_all_floats() {
    sweep(32_749);
}

#[test]
#[ignore = "sweeps one float in 509: half a minute in release"]
fn bounds_hold_on_a_dense_sample() {
    sweep(509);
}

#[test]
fn bounds_hold_where_the_curve_bends() {
    let mut random = Random(1);
    let x: Vec<f32> = (0..50_000).map(|_| 24.0 * random.unit() - 12.0).collect();
    check_all(&x);
}

#[test]
fn tails_are_limits_and_never_nan() {
    use Activation::{Gelu, GeluTanh, Relu, Sigmoid, Silu, Tanh};
    let huge = [1e4, 1e19, 1e20, 1e30, f32::MAX, f32::INFINITY];
    for isa in Isa::available() {
        for x in huge {
            for activation in [Relu, Gelu, GeluTanh, Silu] {
                assert_eq!(apply_to(isa, activation, &[x, -x]), [x, 0.0], "{activation:?} {isa}");
            }
            assert_eq!(apply_to(isa, Sigmoid, &[x, -x]), [1.0, 0.0]);
            assert_eq!(apply_to(isa, Tanh, &[x, -x]), [1.0, -1.0]);
        }
        for activation in Activation::ALL {
            assert!(apply_to(isa, activation, &[f32::NAN])[0].is_nan(), "{activation:?} {isa}");
        }
    }
}

/// A formula with exp / exp would give infinity / infinity where tanh is constant.
#[test]
fn tanh_forms_are_flat_where_exp_overflows() {
    for isa in Isa::available() {
        for x in [10.0f32, 20.0, 40.0, 90.0, 1e4, 1e30] {
            assert_eq!(apply_to(isa, Activation::Tanh, &[x, -x]), [1.0, -1.0]);
            let y = apply_to(isa, Activation::GeluTanh, &[x, -x]);
            assert!(y[0] == x && y[1] <= 0.0 && y[1] > -1e-20, "{y:?}");
        }
    }
}

/// With a distribution function that ends above 0 the result here would be far from 0.
#[test]
fn gelu_of_large_negative_numbers_is_zero() {
    for isa in Isa::available() {
        for x in [-5.5, -5.56, -6.0, -8.1, -40.0, -1e10, -1e30, f32::MIN] {
            assert_eq!(apply_to(isa, Activation::Gelu, &[x])[0], 0.0, "gelu({x}) on {isa}");
        }
    }
}

#[test]
fn subnormal_inputs_are_handled() {
    for isa in Isa::available() {
        for activation in Activation::ALL {
            for bits in [1u32, 0x8000_0001, 0x007f_ffff, 0x807f_ffff, 0x0040_0000] {
                let x = f32::from_bits(bits);
                check(isa, activation, x, apply_to(isa, activation, &[x])[0]);
            }
        }
    }
}

proptest! {
    #[test]
    fn every_element_and_nothing_else(
        rows in 0usize..5,
        columns in 0usize..140,
        gap in 0usize..5,
        which in 0usize..Activation::ALL.len(),
        seed: u64,
    ) {
        let activation = Activation::ALL[which];
        let mut random = Random(seed);
        let x = Strided::new(rows, columns, gap, |_, _| 3.0 * random.normal());
        for isa in Isa::available() {
            let mut y = x.clone();
            apply(Exec::serial(isa), activation, Input::Output, y.view_mut()).unwrap();
            y.assert_gaps_untouched();
            for row in 0..rows {
                for (&x, &y) in x.row(row).iter().zip(y.row(row)) {
                    check(isa, activation, x, y);
                    // An element has the same bits at every position of a row.
                    prop_assert_eq!(y.to_bits(), apply_to(isa, activation, &[x])[0].to_bits());
                }
            }
        }
    }
}

#[test]
#[cfg(feature = "rayon")]
fn the_same_bits_on_any_threads() {
    let mut random = Random(2);
    let x: Vec<f32> = (0..70_001).map(|_| 3.0 * random.normal()).collect();
    for isa in Isa::available() {
        let want = apply_to(isa, Activation::Gelu, &x);
        for pool in pools() {
            let mut y = x.clone();
            let view = view_matrix_mut(&mut y, 70_001, 1);
            pool.install(|| {
                apply(Exec::new(isa, Parallelism::Rayon), Activation::Gelu, Input::Output, view)
            })
            .unwrap();
            assert_eq!(y, want);
        }
    }
}

#[test]
fn wide_columns_are_an_error() {
    let mut data = [7.0; 6];
    let view = MatrixMut::strided(&mut data, 2, 3, 1, 2).unwrap();
    let error =
        apply(Exec::serial(Isa::best()), Activation::Relu, Input::Output, view).unwrap_err();
    assert_eq!(error.to_string(), "column stride of out: expected 1, found 2");
}
