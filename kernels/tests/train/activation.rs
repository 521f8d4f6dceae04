//! The derivatives of activations, and gates, on every instruction set.

use crate::support::gemm::Packed;
use crate::support::*;
use proptest::prelude::*;
use simdformer_kernels::activation::apply;
use simdformer_kernels::reference::activation_derivative::derivative;
use simdformer_kernels::train::{activation_backward, gate, gate_backward};
use simdformer_kernels::{
    Activation, Epilogue, Error, Exec, Input, Isa, MatrixMut, Parallelism, PostOp, reference,
};

/// The documented bounds of the derivatives.
fn bound(activation: Activation, exact: f64) -> f64 {
    match activation {
        Activation::Gelu => 8e-7,
        Activation::GeluTanh | Activation::Silu => 4e-7,
        Activation::Tanh | Activation::Sigmoid => 4e-7 * exact.abs() + 1e-37,
        _ => 0.0,
    }
}

fn backward(isa: Isa, activation: Activation, pre: &[f32], d: f32) -> Vec<f32> {
    let mut found = vec![d; pre.len()];
    let view = view_matrix_mut(&mut found, 1, pre.len());
    let pre = view_matrix(pre, 1, pre.len());
    activation_backward(Exec::serial(isa), activation, pre, view).expect("shapes that fit");
    found
}

fn applied(isa: Isa, activation: Activation, x: &[f32]) -> Vec<f32> {
    let mut y = x.to_vec();
    let view = view_matrix_mut(&mut y, 1, x.len());
    apply(Exec::serial(isa), activation, Input::Output, view).expect("contiguous");
    y
}

#[test]
fn the_oracle_matches_central_differences() {
    let mut random = Random::new(1);
    for activation in Activation::ALL {
        for _ in 0..2000 {
            let x = 6.0 * f64::from(random.value());
            // ReLU has no derivative at 0.
            if activation == Activation::Relu && x.abs() < 1e-3 {
                continue;
            }
            let h = 1e-6 * x.abs().max(1.0);
            let at = |x| reference::activation(activation, x);
            let found = (at(x + h) - at(x - h)) / (2.0 * h);
            let exact = derivative(activation, x);
            assert!((found - exact).abs() <= 1e-6 * exact.abs() + 1e-9, "{activation:?}({x})");
        }
    }
    assert_eq!(derivative(Activation::Relu, 0.0), 0.0);
}

fn check(isa: Isa, activation: Activation, x: f32, found: f32) {
    let exact = derivative(activation, x.into());
    if x.is_nan() && activation != Activation::Identity {
        assert!(found.is_nan(), "{activation:?}'({x}) is {found} on {isa}");
        return;
    }
    let error = (f64::from(found) - if x.is_nan() { 1.0 } else { exact }).abs();
    let bound = bound(activation, exact);
    assert!(error <= bound, "{activation:?}'({x:e}) is {found} for {exact} on {isa}: {error:e}");
}

fn sweep(step: usize) {
    let mut bits = (0..=u32::MAX).step_by(step).peekable();
    while bits.peek().is_some() {
        let x: Vec<f32> = bits.by_ref().take(1 << 16).map(f32::from_bits).collect();
        for isa in all_isas() {
            for activation in Activation::ALL {
                for (&x, &y) in x.iter().zip(&backward(isa, activation, &x, 1.0)) {
                    check(isa, activation, x, y);
                }
            }
        }
    }
}

#[test]
fn bounds_hold_on_a_sample_of_all_floats() {
    sweep(if brief() { 1_000_003 } else { 32_749 });
}

#[test]
#[ignore = "sweeps one float in 509: a minute in release"]
fn bounds_hold_on_a_dense_sample() {
    sweep(509);
}

#[test]
fn bounds_hold_where_the_curve_bends() {
    let mut random = Random::new(1);
    let x: Vec<f32> = (0..60_000).map(|_| 13.0 * random.value()).collect();
    for activation in Activation::ALL {
        let mut first: Option<Vec<f32>> = None;
        for isa in all_isas() {
            let found = backward(isa, activation, &x, 1.0);
            for (&x, &y) in x.iter().zip(&found) {
                check(isa, activation, x, y);
            }
            let first = first.get_or_insert_with(|| found.clone());
            assert_eq!(difference(&found, first), None, "{activation:?} on {isa}");
        }
    }
}

#[test]
fn tails_are_limits_and_never_nan() {
    use Activation::{Gelu, GeluTanh, Relu, Sigmoid, Silu, Tanh};
    for isa in all_isas() {
        for x in [100.0, 1e4, 1e19, 1e20, 1e30, f32::MAX, f32::INFINITY] {
            for activation in [Relu, Gelu, GeluTanh, Silu] {
                let found = backward(isa, activation, &[x, -x], 3.0);
                assert_eq!(found, [3.0, 0.0], "{activation:?}({x}) on {isa}");
            }
            for activation in [Sigmoid, Tanh] {
                assert_eq!(backward(isa, activation, &[x, -x], 3.0), [0.0; 2], "{activation:?}");
            }
        }
        for activation in Activation::ALL {
            let nan = backward(isa, activation, &[f32::NAN], 1.0)[0].is_nan();
            assert_eq!(nan, activation != Activation::Identity, "{activation:?} on {isa}");
            assert!(backward(isa, activation, &[0.5], f32::NAN)[0].is_nan(), "{activation:?}");
        }
        // The gradient is 0 at and below 0, even if the incoming gradient is NaN.
        for d in [2.0, f32::NAN, f32::INFINITY] {
            let found = bits(&backward(isa, Relu, &[0.0, -0.0, -1.0, f32::NEG_INFINITY], d));
            assert_eq!(found, [0; 4], "{isa}");
        }
    }
}

fn random(seed: u64, rows: usize, columns: usize, gap: usize, size: f32) -> Strided {
    let mut random = Random::new(seed);
    Strided::new(rows, columns, gap, |_, _| size * random.value())
}

/// A gated block, computed by two products.
fn two_products(isa: Isa, activation: Activation, pre: &Strided, inner: &Strided) -> Vec<f32> {
    let (rows, columns) = (pre.rows, pre.columns);
    let mut hidden = vec![POISON; rows * columns];
    let identity = Strided::new(columns, columns, (columns, 1), |i, j| f32::from(u8::from(i == j)));
    let weight = Packed::new(isa, identity.view());
    for (x, epilogue) in [
        (pre, Epilogue { activation, ..Epilogue::default() }),
        (inner, Epilogue { post_op: PostOp::MultiplyOutput, ..Epilogue::default() }),
    ] {
        let c = view_matrix_mut(&mut hidden, rows, columns);
        weight.multiply(x.view(), &epilogue, c, SERIAL);
    }
    hidden
}

proptest! {
    #[test]
    fn every_element_and_nothing_else(
        rows in 0usize..5,
        columns in 0usize..140,
        gap in 0usize..4,
        which in 0usize..Activation::ALL.len(),
        seed: u64,
    ) {
        let activation = Activation::ALL[which];
        let pre = random(seed, rows, columns, gap, 5.0);
        let inner = random(seed ^ 1, rows, columns, gap + 1, 2.0);
        let d = random(seed ^ 2, rows, columns, gap + 2, 2.0);
        let mut first: Option<Vec<f32>> = None;
        for isa in all_isas() {
            let mut out = Strided::nan(rows, columns, gap);
            apply(Exec::serial(isa), activation, Input::Matrix(pre.view()), out.view_mut()).expect("fits");
            out.assert_gaps_untouched();
            let active = applied(isa, activation, &pre.dense());
            prop_assert_eq!(difference(&out.dense(), &active), None);

            let mut found = d.clone();
            activation_backward(Exec::serial(isa), activation, pre.view(), found.view_mut()).expect("fits");
            found.assert_gaps_untouched();
            let derivatives = pre.dense().iter().map(|&x| derivative(activation, x.into())).collect::<Vec<_>>();
            for ((&found, &d), &exact_derivative) in found.dense().iter().zip(&d.dense()).zip(&derivatives) {
                let exact = f64::from(d) * exact_derivative;
                let bound = f64::from(d.abs()) * bound(activation, exact_derivative);
                let bound = bound + UNIT * exact.abs() + 1e-37;
                prop_assert!((f64::from(found) - exact).abs() <= bound, "{} for {}", found, exact);
            }

            let mut hidden = Strided::nan(rows, columns, gap + 3);
            gate(Exec::serial(isa), activation, pre.view(), inner.view(), hidden.view_mut()).expect("fits");
            hidden.assert_gaps_untouched();
            let products = two_products(isa, activation, &pre, &inner);
            prop_assert_eq!(difference(&hidden.dense(), &products), None);

            let (mut d_gate, mut d_inner) = (pre.clone(), inner.clone());
            let (to, and) = (d_gate.view_mut(), d_inner.view_mut());
            gate_backward(Exec::serial(isa), activation, to, and, d.view()).expect("fits");
            d_gate.assert_gaps_untouched();
            d_inner.assert_gaps_untouched();
            // The two gradients computed by the separate kernels.
            let product = |(a, b): (&f32, &f32)| a * b;
            let through: Vec<f32> = d.dense().iter().zip(&inner.dense()).map(product).collect();
            let mut expected = through;
            let view = view_matrix_mut(&mut expected, rows, columns);
            activation_backward(Exec::serial(isa), activation, pre.view(), view).expect("fits");
            prop_assert_eq!(difference(&d_gate.dense(), &expected), None);
            let expected: Vec<f32> = d.dense().iter().zip(&active).map(product).collect();
            prop_assert_eq!(difference(&d_inner.dense(), &expected), None);

            let all = [out.dense(), found.dense(), hidden.dense(), d_gate.dense()].concat();
            let first = first.get_or_insert_with(|| all.clone());
            prop_assert_eq!(difference(&all, first), None);
        }
    }
}

#[test]
fn every_crew_has_the_same_bits() {
    let (rows, columns) = (301, 173);
    let (pre, inner, d) = (
        random(1, rows, columns, 0, 4.0),
        random(2, rows, columns, 0, 1.0),
        random(3, rows, columns, 0, 1.0),
    );
    for isa in all_isas() {
        for activation in [Activation::Gelu, Activation::Silu] {
            let all = |crew: Parallelism<'_>| {
                let (mut a, mut b) = (d.clone(), Strided::nan(rows, columns, 0));
                let (mut c, mut e, mut f) = (b.clone(), pre.clone(), inner.clone());
                activation_backward(Exec::new(isa, crew), activation, pre.view(), a.view_mut())
                    .expect("fits");
                apply(Exec::new(isa, crew), activation, Input::Matrix(pre.view()), b.view_mut())
                    .expect("fits");
                gate(Exec::new(isa, crew), activation, pre.view(), inner.view(), c.view_mut())
                    .expect("fits");
                gate_backward(
                    Exec::new(isa, crew),
                    activation,
                    e.view_mut(),
                    f.view_mut(),
                    d.view(),
                )
                .expect("fits");
                [a, b, c, e, f].map(|m| m.dense()).concat()
            };
            let expected = all(SERIAL);
            for crew in CREWS {
                assert_eq!(
                    difference(&crew.with_parallelism(all), &expected),
                    None,
                    "{isa} {crew:?}"
                );
            }
        }
    }
}

#[test]
fn wrong_calls_are_errors_and_write_nothing() {
    let (isa, relu) = (Isa::best(), Activation::Relu);
    let data = [1.0; 12];
    let (m, turned) = (view_matrix(&data, 3, 4), view_matrix(&data, 4, 3));
    let shape = |operand| errors::shape(operand, [3, 4], [4, 3]);
    let stride = |operand| errors::strided(operand, 3);
    type Expect = fn(&'static str) -> Error;
    let (mut a, mut b) = ([POISON; 12], [POISON; 12]);
    for (wrong, expected) in [(turned, shape as Expect), (turned.transposed(), stride as Expect)] {
        for (call, operand) in ["pre", "x", "gate", "inner"].into_iter().enumerate() {
            let to = view_matrix_mut(&mut a, 3, 4);
            let found = match call {
                0 => activation_backward(Exec::serial(isa), relu, wrong, to),
                1 => apply(Exec::serial(isa), relu, Input::Matrix(wrong), to),
                2 => gate(Exec::serial(isa), relu, wrong, m, to),
                _ => gate(Exec::serial(isa), relu, m, wrong, to),
            };
            assert_eq!(found, Err(expected(operand)));
        }
        let [gate, inner] = [&mut a, &mut b].map(|m| view_matrix_mut(m, 3, 4));
        let found = gate_backward(Exec::serial(isa), relu, gate, inner, wrong);
        assert_eq!(found, Err(expected("d_hidden")));
    }
    let (gate, inner) = (MatrixMut::new(&mut a, 3, 4), MatrixMut::new(&mut b, 4, 3));
    let found = gate_backward(Exec::serial(isa), relu, gate.expect("a"), inner.expect("b"), m);
    assert_eq!(found, Err(shape("inner")));
    assert_eq!(bits(&[a, b].concat()), bits(&[POISON; 24]));
}
