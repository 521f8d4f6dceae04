//! LayerNorm with and without a bias compared with the f64 reference on every instruction set.

use crate::common::{Grid, Random, assert_close};
use crate::support::errors;
use proptest::prelude::*;
use simdformer_kernels::norm::{
    LayerNorm, add_into_layer_norm, add_layer_norm, add_layer_norm_in_place, layer_norm,
    layer_norm_in_place,
};
use simdformer_kernels::{Isa, Matrix, MatrixMut, Parallelism, reference};

const SERIAL: Parallelism<'_> = Parallelism::Serial;
const U: f64 = 5.960_464_477_539_063e-8;

/// The documented bound.
fn check_row(isa: Isa, norm: LayerNorm<'_>, x: &[f32], y: &[f32]) {
    let k = (x.len() / 64) as f64 + 8.0;
    let (mean, variance) = reference::moments(x);
    let scale = 1.0 / (variance + f64::from(norm.eps)).sqrt();
    for (column, &y) in y.iter().enumerate() {
        let z = if variance == 0.0 { 0.0 } else { (f64::from(x[column]) - mean) * scale };
        let weight = f64::from(norm.weight[column]);
        let bias = norm.bias.map_or(0.0, |bias| f64::from(bias[column]));
        let exact = z * weight + bias;
        let bound = U * (k * (z.abs() + 2.0) * weight.abs() + 2.0 * exact.abs());
        assert_close(y, exact, bound, &format!("column {column} of {} on {isa}", x.len()));
    }
}

proptest! {
    #[test]
    fn rows_match_the_reference(
        rows in 0usize..5,
        columns in 0usize..200,
        gap in 0usize..5,
        mean in prop_oneof![Just(0.0f32), Just(-10.0), Just(1e3), Just(1e5)],
        outlier in any::<bool>(),
        eps in prop_oneof![Just(0.0f32), Just(1e-12), Just(1e-5)],
        biased: bool,
        seed: u64,
    ) {
        let mut random = Random(seed);
        let mut x = Grid::new(rows, columns, gap, |_, _| mean + random.normal());
        if outlier && columns > 2 {
            for row in 0..rows {
                x.row_mut(row)[0] = mean + 1000.0;
            }
        }
        let residual = Grid::new(rows, columns, gap + 2, |_, _| random.normal());
        let sum = Grid::new(rows, columns, gap, |i, j| x.row(i)[j] + residual.row(i)[j]);
        let weight: Vec<f32> = (0..columns).map(|_| random.normal()).collect();
        let bias: Vec<f32> = (0..columns).map(|_| random.normal()).collect();
        let norm = LayerNorm { weight: &weight, bias: biased.then_some(&bias), eps };
        for isa in Isa::available() {
            let mut y = Grid::nan(rows, columns, gap + 1);
            layer_norm(isa, norm, x.view(), y.view_mut(), SERIAL).unwrap();
            y.assert_gaps_untouched();
            let mut same = x.clone();
            layer_norm_in_place(isa, norm, same.view_mut(), SERIAL).unwrap();
            same.assert_gaps_untouched();
            same.assert_same_rows(&y);
            for row in 0..rows {
                check_row(isa, norm, x.row(row), y.row(row));
            }

            // The fused forms have the bits of the plain one applied to the rounded sum.
            let mut plain = Grid::nan(rows, columns, gap);
            layer_norm(isa, norm, sum.view(), plain.view_mut(), SERIAL).unwrap();
            let mut y = Grid::nan(rows, columns, gap + 3);
            add_layer_norm(isa, norm, x.view(), residual.view(), y.view_mut(), SERIAL).unwrap();
            y.assert_gaps_untouched();
            y.assert_same_rows(&plain);
            let mut same = residual.clone();
            add_layer_norm_in_place(isa, norm, x.view(), same.view_mut(), SERIAL).unwrap();
            same.assert_gaps_untouched();
            same.assert_same_rows(&plain);
            let mut kept = residual.clone();
            let mut y = Grid::nan(rows, columns, gap);
            add_into_layer_norm(isa, norm, x.view(), kept.view_mut(), y.view_mut(), SERIAL).unwrap();
            kept.assert_gaps_untouched();
            y.assert_gaps_untouched();
            kept.assert_same_rows(&sum);
            y.assert_same_rows(&plain);
        }
    }
}

fn one_row(isa: Isa, x: &[f32], norm: LayerNorm<'_>) -> Vec<f32> {
    let mut y = vec![9.0; x.len()];
    let view = MatrixMut::new(&mut y, 1, x.len()).unwrap();
    layer_norm(isa, norm, Matrix::new(x, 1, x.len()).unwrap(), view, SERIAL).unwrap();
    y
}

#[test]
fn constant_rows_give_exactly_the_bias() {
    for n in [1, 2, 3, 15, 64, 100, 511, 512, 1000, 4097] {
        let bias: Vec<f32> = (0..n).map(|i| i as f32 * 0.37 - 5.0).collect();
        let weight: Vec<f32> = (0..n).map(|i| 3.0 - i as f32).collect();
        for c in [0.0, 1234.0, 0.1, -1e-3, 1e5, 1e30, f32::MAX, f32::MIN_POSITIVE] {
            for eps in [0.0, 1e-12, 1e-5] {
                for isa in Isa::available() {
                    let norm = LayerNorm { weight: &weight, bias: Some(&bias), eps };
                    assert_eq!(one_row(isa, &vec![c; n], norm), bias, "{n} of {c}, {eps}, {isa}");
                    let zeros = one_row(isa, &vec![c; n], LayerNorm { bias: None, ..norm });
                    assert_eq!(zeros, vec![0.0; n], "{n} of {c}, {eps}, {isa}, no bias");
                }
            }
        }
    }
}

#[test]
fn a_large_mean_keeps_the_variance() {
    for isa in Isa::available() {
        for x in [[40000.0, 40001.0, 40002.0, 40003.0], [1000.0, 1001.0, 999.0, 1002.0]] {
            let norm = LayerNorm { weight: &[1.0; 4], bias: Some(&[0.0; 4]), eps: 1e-5 };
            check_row(isa, norm, &x, &one_row(isa, &x, norm));
        }
        // With a mean of a million standard deviations the variance keeps six digits.
        let mut random = Random(11);
        let x: Vec<f32> = (0..512).map(|_| 1e6 + random.normal()).collect();
        let norm = LayerNorm { weight: &[1.0; 512], bias: None, eps: 0.0 };
        check_row(isa, norm, &x, &one_row(isa, &x, norm));
    }
}

#[test]
fn rows_of_1e30_and_of_1e_30_are_normalized() {
    let mut random = Random(5);
    for n in [2, 17, 300] {
        for magnitude in [1e17, 1e19, 1e30, 3e38, 1e-16, 1e-20, 1e-30] {
            let x: Vec<f32> = (0..n).map(|_| magnitude * (random.unit() * 2.0 - 1.0)).collect();
            let ones = vec![1.0; n];
            let halves = vec![0.5; n];
            let norm = LayerNorm { weight: &ones, bias: Some(&halves), eps: 0.0 };
            for isa in Isa::available() {
                check_row(isa, norm, &x, &one_row(isa, &x, norm));
                let mut same = x.clone();
                let view = MatrixMut::new(&mut same, 1, n).unwrap();
                layer_norm_in_place(isa, norm, view, SERIAL).unwrap();
                check_row(isa, norm, &x, &same);
            }
        }
    }
}

#[test]
fn a_row_that_is_not_finite_is_nan_and_no_other() {
    for isa in Isa::available() {
        for n in [1, 5, 33, 100] {
            for bad in [f32::NAN, f32::INFINITY, f32::NEG_INFINITY] {
                for at in [0, n / 2, n - 1] {
                    let clean: Vec<f32> = (0..n).map(|i| (i as f32).sin()).collect();
                    let mut x = [clean.clone(), clean.clone()].concat();
                    x[at] = bad;
                    let ones = vec![1.0; n];
                    let norm = LayerNorm { weight: &ones, bias: Some(&ones), eps: 1e-5 };
                    let mut y = vec![9.0; 2 * n];
                    let view = MatrixMut::new(&mut y, 2, n).unwrap();
                    layer_norm(isa, norm, Matrix::new(&x, 2, n).unwrap(), view, SERIAL).unwrap();
                    assert!(y[..n].iter().all(|y| y.is_nan()), "{bad} at {at} of {n} on {isa}");
                    assert_eq!(y[n..], one_row(isa, &clean, norm));
                }
            }
        }
    }
}

#[test]
fn a_row_has_the_same_bits_alone_in_a_batch_and_on_any_threads() {
    let mut random = Random(3);
    for columns in [7, 100, 513, 5000] {
        let rows = 40_000 / columns;
        let data: Vec<f32> = (0..rows * columns).map(|_| random.normal()).collect();
        let weight: Vec<f32> = (0..columns).map(|_| random.normal()).collect();
        let norm = LayerNorm { weight: &weight, bias: Some(&weight), eps: 1e-5 };
        let matrix = Matrix::new(&data, rows, columns).unwrap();
        for isa in Isa::available() {
            let all = |parallelism: Parallelism<'_>| {
                let mut y = vec![f32::NAN; data.len()];
                let view = MatrixMut::new(&mut y, rows, columns).unwrap();
                layer_norm(isa, norm, matrix, view, parallelism).unwrap();
                y
            };
            let batch = all(SERIAL);
            for row in [0, 1, rows / 2, rows - 1] {
                let range = row * columns..(row + 1) * columns;
                assert_eq!(one_row(isa, &data[range.clone()], norm), batch[range]);
            }
            #[cfg(feature = "rayon")]
            for pool in crate::common::pools() {
                assert_eq!(pool.install(|| all(Parallelism::Rayon)), batch);
            }
        }
    }
}

/// A row without a bias equals a row with a bias of zeros, except for the sign of a zero.
#[test]
fn a_missing_bias_is_a_bias_of_zeros() {
    let mut random = Random(4);
    for n in [1, 3, 16, 100, 257, 1000] {
        let x: Vec<f32> = (0..n).map(|_| random.normal()).collect();
        let weight: Vec<f32> = (0..n).map(|_| random.normal()).collect();
        for isa in Isa::available() {
            let none = LayerNorm { weight: &weight, bias: None, eps: 1e-5 };
            let zeros = vec![0.0; n];
            let zeros = LayerNorm { bias: Some(&zeros), ..none };
            // Equal as numbers: 0 equals -0.
            assert_eq!(one_row(isa, &x, none), one_row(isa, &x, zeros), "{n} on {isa}");
        }
    }
}

/// Rows at every offset from a cache line: no code may assume an alignment.
#[test]
fn misaligned_rows_give_the_same_bits() {
    let mut random = Random(9);
    let x: Vec<f32> = (0..100).map(|_| random.normal()).collect();
    let ones = [1.0f32; 116];
    for isa in Isa::available() {
        let norm = |at: usize| LayerNorm {
            weight: &ones[at..][..100],
            bias: Some(&ones[at..][..100]),
            eps: 1e-5,
        };
        let want = one_row(isa, &x, norm(0));
        for at in 0..16 {
            let mut moved = vec![0.0; at];
            moved.extend(&x);
            assert_eq!(one_row(isa, &moved[at..], norm(at)), want);
        }
    }
}

#[test]
fn wrong_calls_are_errors() {
    let isa = Isa::best();
    let data = [0.0; 12];
    let x = Matrix::new(&data, 3, 4).unwrap();
    let four = [1.0; 4];
    let good = LayerNorm { weight: &four, bias: Some(&four), eps: 1e-5 };
    let call = |norm: LayerNorm<'_>, x: Matrix<'_>, rows: usize, columns: usize| {
        let mut out = [7.0; 12];
        let view = MatrixMut::new(&mut out, rows, columns).unwrap();
        let error = layer_norm(isa, norm, x, view, SERIAL).unwrap_err();
        assert_eq!(out, [7.0; 12]);
        error
    };
    assert_eq!(call(good, x, 4, 3), errors::shape("x", [4, 3], [3, 4]));
    assert_eq!(call(good, x.transposed(), 4, 3), errors::strided("x", 4));
    let norm = LayerNorm { weight: &four[1..], ..good };
    assert_eq!(call(norm, x, 3, 4), errors::len("weight", 4, 3));
    let norm = LayerNorm { bias: Some(&[]), ..good };
    assert_eq!(call(norm, x, 3, 4), errors::len("bias", 4, 0));
    for eps in [-1e-5, f32::INFINITY] {
        let error = call(LayerNorm { eps, ..good }, x, 3, 4);
        let text = format!("eps: expected finite and at least 0, found {eps}");
        assert_eq!(error.to_string(), text);
    }
    let error = call(LayerNorm { eps: f32::NAN, ..good }, x, 3, 4);
    assert!(error.to_string().ends_with("found NaN"), "{error}");

    let mut out = [7.0; 12];
    let view = MatrixMut::new(&mut out, 3, 4).unwrap();
    let other = Matrix::new(&data, 2, 4).unwrap();
    let error = add_layer_norm(isa, good, x, other, view, SERIAL).unwrap_err();
    assert_eq!(error, errors::shape("residual", [3, 4], [2, 4]));
    assert_eq!(out, [7.0; 12]);
}
