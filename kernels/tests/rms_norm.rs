//! RMSNorm compared with the f64 reference on every instruction set.

use crate::common::{Grid, Random, assert_close};
use crate::support::errors;
use proptest::prelude::*;
use simdformer_kernels::norm::{
    RmsNorm, add_into_rms_norm, add_rms_norm, add_rms_norm_in_place, rms_norm, rms_norm_in_place,
};
use simdformer_kernels::{Isa, Matrix, MatrixMut, Parallelism, reference};

const SERIAL: Parallelism<'_> = Parallelism::Serial;
const U: f64 = 5.960_464_477_539_063e-8;
/// The smallest positive f32.
const LEAST: f64 = 1.401_298_464_324_817e-45;

/// The documented bound.
fn check_row(isa: Isa, norm: RmsNorm<'_>, x: &[f32], y: &[f32]) {
    let factor = (x.len() / 128) as f64 + 12.0;
    for (column, &y) in y.iter().enumerate() {
        let weight = f64::from(norm.weight[column]);
        let exact = reference::rms_normalized(x, norm.eps, column) * weight;
        let bound = U * factor * exact.abs() + LEAST * (1.0 + weight.abs());
        assert_close(y, exact, bound, &format!("column {column} of {} on {isa}", x.len()));
    }
}

proptest! {
    #[test]
    fn rows_match_the_reference(
        rows in 0usize..5,
        columns in 0usize..300,
        gap in 0usize..5,
        mean in prop_oneof![Just(0.0f32), Just(-10.0), Just(1e3)],
        outlier in any::<bool>(),
        eps in prop_oneof![Just(0.0f32), Just(1e-12), Just(1e-6), Just(1.0)],
        seed: u64,
    ) {
        let mut random = Random(seed);
        let mut x = Grid::new(rows, columns, gap, |_, _| mean + random.normal());
        if outlier && columns > 2 {
            for row in 0..rows {
                x.row_mut(row)[columns - 1] = 1000.0;
            }
        }
        let residual = Grid::new(rows, columns, gap + 2, |_, _| random.normal());
        let sum = Grid::new(rows, columns, gap, |i, j| x.row(i)[j] + residual.row(i)[j]);
        let weight: Vec<f32> = (0..columns).map(|_| random.normal()).collect();
        let norm = RmsNorm { weight: &weight, eps };
        for isa in Isa::available() {
            let mut y = Grid::nan(rows, columns, gap + 1);
            rms_norm(isa, norm, x.view(), y.view_mut(), SERIAL).unwrap();
            y.assert_gaps_untouched();
            let mut same = x.clone();
            rms_norm_in_place(isa, norm, same.view_mut(), SERIAL).unwrap();
            same.assert_gaps_untouched();
            same.assert_same_rows(&y);
            for row in 0..rows {
                check_row(isa, norm, x.row(row), y.row(row));
            }

            // The fused forms have the bits of the plain one applied to the rounded sum.
            let mut plain = Grid::nan(rows, columns, gap);
            rms_norm(isa, norm, sum.view(), plain.view_mut(), SERIAL).unwrap();
            let mut y = Grid::nan(rows, columns, gap + 3);
            add_rms_norm(isa, norm, x.view(), residual.view(), y.view_mut(), SERIAL).unwrap();
            y.assert_gaps_untouched();
            y.assert_same_rows(&plain);
            let mut same = residual.clone();
            add_rms_norm_in_place(isa, norm, x.view(), same.view_mut(), SERIAL).unwrap();
            same.assert_gaps_untouched();
            same.assert_same_rows(&plain);
            let mut kept = residual.clone();
            let mut y = Grid::nan(rows, columns, gap);
            add_into_rms_norm(isa, norm, x.view(), kept.view_mut(), y.view_mut(), SERIAL).unwrap();
            kept.assert_gaps_untouched();
            y.assert_gaps_untouched();
            kept.assert_same_rows(&sum);
            y.assert_same_rows(&plain);
        }
    }
}

fn one_row(isa: Isa, x: &[f32], norm: RmsNorm<'_>) -> Vec<f32> {
    let mut y = vec![9.0; x.len()];
    let view = MatrixMut::new(&mut y, 1, x.len()).unwrap();
    rms_norm(isa, norm, Matrix::new(x, 1, x.len()).unwrap(), view, SERIAL).unwrap();
    y
}

#[test]
fn rows_of_zeros_give_zeros() {
    for n in [1, 2, 15, 64, 100, 1000] {
        let weight: Vec<f32> = (0..n).map(|i| 3.0 - i as f32).collect();
        for eps in [0.0, 1e-12, 1e-6] {
            for isa in Isa::available() {
                let y = one_row(isa, &vec![0.0; n], RmsNorm { weight: &weight, eps });
                assert_eq!(y, vec![0.0; n], "{n}, {eps}, {isa}");
            }
        }
    }
}

#[test]
fn rows_of_1e30_and_of_1e_30_are_normalized() {
    let mut random = Random(5);
    for n in [1, 2, 17, 300] {
        for magnitude in [1e17, 1e19, 1e30, 3e38, 1e-16, 1e-20, 1e-30, 1e-44] {
            let x: Vec<f32> = (0..n).map(|_| magnitude * (random.unit() * 2.0 - 1.0)).collect();
            let norm = RmsNorm { weight: &vec![2.0; n], eps: 0.0 };
            for isa in Isa::available() {
                check_row(isa, norm, &x, &one_row(isa, &x, norm));
                let mut same = x.clone();
                let view = MatrixMut::new(&mut same, 1, n).unwrap();
                rms_norm_in_place(isa, norm, view, SERIAL).unwrap();
                check_row(isa, norm, &x, &same);
            }
        }
    }
}

#[test]
fn values_that_are_not_finite_stay_in_their_row() {
    for isa in Isa::available() {
        for n in [1, 5, 33, 100] {
            for bad in [f32::NAN, f32::INFINITY, f32::NEG_INFINITY] {
                for at in [0, n / 2, n - 1] {
                    let clean: Vec<f32> = (0..n).map(|i| (i as f32).sin()).collect();
                    let mut x = [clean.clone(), clean.clone()].concat();
                    x[at] = bad;
                    let ones = vec![1.0; n];
                    let norm = RmsNorm { weight: &ones, eps: 1e-6 };
                    let mut y = vec![9.0; 2 * n];
                    let view = MatrixMut::new(&mut y, 2, n).unwrap();
                    rms_norm(isa, norm, Matrix::new(&x, 2, n).unwrap(), view, SERIAL).unwrap();
                    for (column, y) in y[..n].iter().enumerate() {
                        let right =
                            if bad.is_nan() || column == at { y.is_nan() } else { *y == 0.0 };
                        assert!(right, "{bad} at {at} of {n} on {isa}: {y} at {column}");
                    }
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
        let norm = RmsNorm { weight: &weight, eps: 1e-6 };
        let matrix = Matrix::new(&data, rows, columns).unwrap();
        for isa in Isa::available() {
            let all = |parallelism: Parallelism<'_>| {
                let mut y = vec![f32::NAN; data.len()];
                let view = MatrixMut::new(&mut y, rows, columns).unwrap();
                rms_norm(isa, norm, matrix, view, parallelism).unwrap();
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

/// Rows at every offset from a cache line: no code may assume an alignment.
#[test]
fn misaligned_rows_give_the_same_bits() {
    let mut random = Random(9);
    let x: Vec<f32> = (0..100).map(|_| random.normal()).collect();
    let ones = [1.0f32; 116];
    for isa in Isa::available() {
        let norm = |at: usize| RmsNorm { weight: &ones[at..][..100], eps: 1e-6 };
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
    let good = RmsNorm { weight: &four, eps: 1e-6 };
    let call = |norm: RmsNorm<'_>, x: Matrix<'_>, rows: usize, columns: usize| {
        let mut out = [7.0; 12];
        let view = MatrixMut::new(&mut out, rows, columns).unwrap();
        let error = rms_norm(isa, norm, x, view, SERIAL).unwrap_err();
        assert_eq!(out, [7.0; 12]);
        error
    };
    assert_eq!(call(good, x, 4, 3), errors::shape("x", [4, 3], [3, 4]));
    assert_eq!(call(good, x.transposed(), 4, 3), errors::strided("x", 4));
    let norm = RmsNorm { weight: &four[1..], ..good };
    assert_eq!(call(norm, x, 3, 4), errors::len("weight", 4, 3));
    for eps in [-1e-6, f32::INFINITY] {
        let error = call(RmsNorm { eps, ..good }, x, 3, 4);
        assert!(error.to_string().ends_with(&format!("found {eps}")), "{error}");
    }
    let error = call(RmsNorm { eps: f32::NAN, ..good }, x, 3, 4);
    assert!(error.to_string().ends_with("found NaN"), "{error}");

    // The sum is not written either.
    let (mut sum, mut out) = ([5.0; 12], [7.0; 12]);
    let to = MatrixMut::new(&mut sum, 3, 4).unwrap();
    let view = MatrixMut::new(&mut out, 3, 4).unwrap();
    let other = Matrix::new(&data, 2, 4).unwrap();
    let error = add_into_rms_norm(isa, good, other, to, view, SERIAL).unwrap_err();
    assert_eq!(error, errors::shape("x", [3, 4], [2, 4]));
    assert_eq!((sum, out), ([5.0; 12], [7.0; 12]));
}
