//! LayerNorm with and without a bias, and RMSNorm, compared with the f64 reference on every instruction set.

use crate::support::{Random, Strided as Grid, assert_close, errors};
use proptest::prelude::*;
use simdformer_kernels::norm::{LayerNorm, Norm, NormInput, RmsNorm, norm};
use simdformer_kernels::reference::norm as oracle;
use simdformer_kernels::{Error, Exec, Isa, Matrix, MatrixMut, Parallelism};

const SERIAL: Parallelism<'_> = Parallelism::Serial;
const U: f64 = 5.960_464_477_539_063e-8;
/// The smallest positive f32.
const LEAST: f64 = 1.401_298_464_324_817e-45;

#[derive(Clone, Copy, Debug, PartialEq)]
enum Kind {
    Layer,
    Unbiased,
    Rms,
}

const KINDS: [Kind; 3] = [Kind::Layer, Kind::Unbiased, Kind::Rms];

impl Kind {
    /// The norm of this kind; only one has a bias.
    fn norm<'a>(self, weight: &'a [f32], bias: &'a [f32], eps: f32) -> Norm<'a> {
        match self {
            Self::Layer => Norm::Layer(LayerNorm { weight, bias: Some(bias), eps }),
            Self::Unbiased => Norm::Layer(LayerNorm { weight, bias: None, eps }),
            Self::Rms => Norm::Rms(RmsNorm { weight, eps }),
        }
    }
}

/// The documented bounds.
fn check_row(isa: Isa, norm: Norm<'_>, x: &[f32], y: &[f32]) {
    let what = |column| format!("column {column} of {} on {isa}, {norm:?}", x.len());
    let row: Vec<f64> = x.iter().map(|&x| x.into()).collect();
    match norm {
        Norm::Layer(LayerNorm { weight, bias, eps }) => {
            let k = (x.len() / 64) as f64 + 8.0;
            let (mean, scale) = oracle::center_and_scale(oracle::Norm::Layer, &row, eps.into());
            for (column, &y) in y.iter().enumerate() {
                let z = (row[column] - mean) * scale;
                let weight = f64::from(weight[column]);
                let exact = z * weight + bias.map_or(0.0, |bias| f64::from(bias[column]));
                let bound = U * (k * (z.abs() + 2.0) * weight.abs() + 2.0 * exact.abs());
                assert_close(y, exact, bound, what(column));
            }
        }
        Norm::Rms(RmsNorm { weight, eps }) => {
            let factor = (x.len() / 128) as f64 + 12.0;
            let (_, scale) = oracle::center_and_scale(oracle::Norm::Rms, &row, eps.into());
            for (column, &y) in y.iter().enumerate() {
                let weight = f64::from(weight[column]);
                let exact = row[column] * scale * weight;
                let bound = U * factor * exact.abs() + LEAST * (1.0 + weight.abs());
                assert_close(y, exact, bound, what(column));
            }
        }
    }
}

fn run(isa: Isa, of: Norm<'_>, input: NormInput<'_>, out: MatrixMut<'_>) {
    norm(Exec::serial(isa), of, input, out).unwrap();
}

fn one_row(isa: Isa, x: &[f32], of: Norm<'_>) -> Vec<f32> {
    let mut y = vec![9.0; x.len()];
    let input = NormInput::Matrix(Matrix::new(x, 1, x.len()).unwrap());
    run(isa, of, input, MatrixMut::new(&mut y, 1, x.len()).unwrap());
    y
}

proptest! {
    #[test]
    fn rows_match_the_reference(
        rows in 0usize..5,
        columns in 0usize..300,
        gap in 0usize..5,
        mean in prop_oneof![Just(0.0f32), Just(-10.0), Just(1e3), Just(1e5)],
        outlier in prop_oneof![Just(None), Just(Some(false)), Just(Some(true))],
        eps in prop_oneof![Just(0.0f32), Just(1e-12), Just(1e-6), Just(1e-5), Just(1.0)],
        seed: u64,
    ) {
        let mut random = Random(seed);
        let mut x = Grid::new(rows, columns, gap, |_, _| mean + random.normal());
        if let Some(last) = outlier && columns > 2 {
            for row in 0..rows {
                x.row_mut(row)[if last { columns - 1 } else { 0 }] = mean + 1000.0;
            }
        }
        let residual = Grid::new(rows, columns, gap + 2, |_, _| random.normal());
        let sum = Grid::new(rows, columns, gap, |i, j| x.row(i)[j] + residual.row(i)[j]);
        let weight: Vec<f32> = (0..columns).map(|_| random.normal()).collect();
        let bias: Vec<f32> = (0..columns).map(|_| random.normal()).collect();
        for (kind, isa) in KINDS.iter().flat_map(|kind| Isa::available().map(move |isa| (kind, isa))) {
            let of = kind.norm(&weight, &bias, eps);
            let mut y = Grid::nan(rows, columns, gap + 1);
            run(isa, of, NormInput::Matrix(x.view()), y.view_mut());
            y.assert_gaps_untouched();
            let mut same = x.clone();
            run(isa, of, NormInput::Output, same.view_mut());
            same.assert_gaps_untouched();
            same.assert_same_rows(&y);
            for row in 0..rows {
                check_row(isa, of, x.row(row), y.row(row));
            }

            // The fused forms have the bits of the plain one applied to the rounded sum.
            let mut plain = Grid::nan(rows, columns, gap);
            run(isa, of, NormInput::Matrix(sum.view()), plain.view_mut());
            let mut y = Grid::nan(rows, columns, gap + 3);
            let input = NormInput::Sum { x: x.view(), residual: residual.view() };
            run(isa, of, input, y.view_mut());
            y.assert_gaps_untouched();
            y.assert_same_rows(&plain);
            let mut same = residual.clone();
            run(isa, of, NormInput::SumWithOutput { x: x.view() }, same.view_mut());
            same.assert_gaps_untouched();
            same.assert_same_rows(&plain);
            let mut kept = residual.clone();
            let mut y = Grid::nan(rows, columns, gap);
            let input = NormInput::AddTo { x: x.view(), residual: kept.view_mut() };
            run(isa, of, input, y.view_mut());
            kept.assert_gaps_untouched();
            y.assert_gaps_untouched();
            kept.assert_same_rows(&sum);
            y.assert_same_rows(&plain);
        }
    }
}

/// For RMSNorm only rows of zeros, which give zeros.
#[test]
fn constant_rows_give_exactly_the_bias() {
    for n in [1, 2, 3, 15, 64, 100, 511, 512, 1000, 4097] {
        let bias: Vec<f32> = (0..n).map(|i| i as f32 * 0.37 - 5.0).collect();
        let weight: Vec<f32> = (0..n).map(|i| 3.0 - i as f32).collect();
        for c in [0.0, 1234.0, 0.1, -1e-3, 1e5, 1e30, f32::MAX, f32::MIN_POSITIVE] {
            for kind in KINDS.iter().filter(|&&kind| kind != Kind::Rms || c == 0.0) {
                for eps in [0.0, 1e-12, 1e-6, 1e-5] {
                    for isa in Isa::available() {
                        let y = one_row(isa, &vec![c; n], kind.norm(&weight, &bias, eps));
                        let zeros = vec![0.0; n];
                        let expected = if *kind == Kind::Layer { &bias } else { &zeros };
                        assert_eq!(&y, expected, "{n} of {c}, {eps}, {isa}, {kind:?}");
                    }
                }
            }
        }
    }
}

#[test]
fn a_large_mean_keeps_the_variance() {
    for isa in Isa::available() {
        for x in [[40000.0, 40001.0, 40002.0, 40003.0], [1000.0, 1001.0, 999.0, 1002.0]] {
            let norm = Kind::Layer.norm(&[1.0; 4], &[0.0; 4], 1e-5);
            check_row(isa, norm, &x, &one_row(isa, &x, norm));
        }
        // With a mean of a million standard deviations the variance keeps six digits.
        let mut random = Random(11);
        let x: Vec<f32> = (0..512).map(|_| 1e6 + random.normal()).collect();
        let norm = Kind::Unbiased.norm(&[1.0; 512], &[], 0.0);
        check_row(isa, norm, &x, &one_row(isa, &x, norm));
    }
}

#[test]
fn rows_of_1e30_and_of_1e_30_are_normalized() {
    let mut random = Random(5);
    for n in [1, 2, 17, 300] {
        for magnitude in [1e17, 1e19, 1e30, 3e38, 1e-16, 1e-20, 1e-30, 1e-44] {
            let x: Vec<f32> = (0..n).map(|_| magnitude * (random.unit() * 2.0 - 1.0)).collect();
            let (twos, halves) = (vec![2.0; n], vec![0.5; n]);
            for of in KINDS.map(|kind| kind.norm(&twos, &halves, 0.0)) {
                for isa in Isa::available() {
                    check_row(isa, of, &x, &one_row(isa, &x, of));
                    let mut same = x.clone();
                    let view = MatrixMut::new(&mut same, 1, n).unwrap();
                    run(isa, of, NormInput::Output, view);
                    check_row(isa, of, &x, &same);
                }
            }
        }
    }
}

/// LayerNorm makes the whole row NaN. RMSNorm of an infinity is NaN there and 0 elsewhere.
#[test]
fn values_that_are_not_finite_stay_in_their_row() {
    for (kind, isa) in KINDS.iter().flat_map(|kind| Isa::available().map(move |isa| (kind, isa))) {
        for n in [1, 5, 33, 100] {
            for bad in [f32::NAN, f32::INFINITY, f32::NEG_INFINITY] {
                for at in [0, n / 2, n - 1] {
                    let clean: Vec<f32> = (0..n).map(|i| (i as f32).sin()).collect();
                    let mut x = [clean.clone(), clean.clone()].concat();
                    x[at] = bad;
                    let ones = vec![1.0; n];
                    let of = kind.norm(&ones, &ones, 1e-5);
                    let mut y = vec![9.0; 2 * n];
                    let view = MatrixMut::new(&mut y, 2, n).unwrap();
                    run(isa, of, NormInput::Matrix(Matrix::new(&x, 2, n).unwrap()), view);
                    for (column, y) in y[..n].iter().enumerate() {
                        let zero = *kind == Kind::Rms && bad.is_infinite() && column != at;
                        let right = if zero { *y == 0.0 } else { y.is_nan() };
                        assert!(right, "{bad} at {at} of {n} on {isa}: {y} at {column}, {kind:?}");
                    }
                    assert_eq!(y[n..], one_row(isa, &clean, of));
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
        let matrix = Matrix::new(&data, rows, columns).unwrap();
        for of in KINDS.map(|kind| kind.norm(&weight, &weight, 1e-5)) {
            for isa in Isa::available() {
                let all = |parallelism: Parallelism<'_>| {
                    let mut y = vec![f32::NAN; data.len()];
                    let view = MatrixMut::new(&mut y, rows, columns).unwrap();
                    norm(Exec::new(isa, parallelism), of, NormInput::Matrix(matrix), view).unwrap();
                    y
                };
                let batch = all(SERIAL);
                for row in [0, 1, rows / 2, rows - 1] {
                    let range = row * columns..(row + 1) * columns;
                    assert_eq!(one_row(isa, &data[range.clone()], of), batch[range]);
                }
                #[cfg(feature = "rayon")]
                for pool in crate::support::pools() {
                    assert_eq!(pool.install(|| all(Parallelism::Rayon)), batch);
                }
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
        let zeros = vec![0.0; n];
        for isa in Isa::available() {
            let [zeros, none] = [Kind::Layer, Kind::Unbiased]
                .map(|kind| one_row(isa, &x, kind.norm(&weight, &zeros, 1e-5)));
            // Equal as numbers: 0 equals -0.
            assert_eq!(none, zeros, "{n} on {isa}");
        }
    }
}

/// Rows at every offset from a cache line: no code may assume an alignment.
#[test]
fn misaligned_rows_give_the_same_bits() {
    let mut random = Random(9);
    let x: Vec<f32> = (0..100).map(|_| random.normal()).collect();
    let ones = [1.0f32; 116];
    for (kind, isa) in KINDS.iter().flat_map(|kind| Isa::available().map(move |isa| (kind, isa))) {
        let of = |at: usize| kind.norm(&ones[at..][..100], &ones[at..][..100], 1e-5);
        let want = one_row(isa, &x, of(0));
        for at in 0..16 {
            let mut moved = vec![0.0; at];
            moved.extend(&x);
            assert_eq!(one_row(isa, &moved[at..], of(at)), want);
        }
    }
}

#[test]
fn wrong_calls_are_errors() {
    let data = [0.0; 12];
    let x = Matrix::new(&data, 3, 4).unwrap();
    let four = [1.0; 4];
    let call = |of: Norm<'_>, input: NormInput<'_>, rows: usize, columns: usize| -> Error {
        let mut out = [7.0; 12];
        let view = MatrixMut::new(&mut out, rows, columns).unwrap();
        let error = norm(Exec::serial(Isa::best()), of, input, view).unwrap_err();
        assert_eq!(out, [7.0; 12]);
        error
    };
    for kind in KINDS {
        let good = kind.norm(&four, &four, 1e-5);
        assert_eq!(call(good, NormInput::Matrix(x), 4, 3), errors::shape("x", [4, 3], [3, 4]));
        let turned = NormInput::Matrix(x.transposed());
        assert_eq!(call(good, turned, 4, 3), errors::strided("x", 4));
        let short = kind.norm(&four[1..], &four, 1e-5);
        assert_eq!(call(short, NormInput::Matrix(x), 3, 4), errors::len("weight", 4, 3));
        for eps in [-1e-5, f32::INFINITY, f32::NAN] {
            let error = call(kind.norm(&four, &four, eps), NormInput::Matrix(x), 3, 4);
            let text = format!("eps: expected finite and at least 0, found {eps}");
            assert_eq!(error.to_string(), text);
        }
        let other = Matrix::new(&data, 2, 4).unwrap();
        let residual = NormInput::Sum { x, residual: other };
        assert_eq!(call(good, residual, 3, 4), errors::shape("residual", [3, 4], [2, 4]));
        // The sum is not written either.
        let mut sum = [5.0; 12];
        let residual = MatrixMut::new(&mut sum, 3, 4).unwrap();
        let input = NormInput::AddTo { x: other, residual };
        assert_eq!(call(good, input, 3, 4), errors::shape("x", [3, 4], [2, 4]));
        assert_eq!(sum, [5.0; 12]);
    }
    let short = Kind::Layer.norm(&four, &[], 1e-5);
    assert_eq!(call(short, NormInput::Matrix(x), 3, 4), errors::len("bias", 4, 0));
}
