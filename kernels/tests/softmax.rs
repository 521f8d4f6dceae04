//! Softmax, log-softmax and log-sum-exp compared with the f64 reference on every instruction set.

use crate::support::{Random, Strided as Grid, assert_close, errors};
use proptest::prelude::*;
use simdformer_kernels::softmax::{FullyMasked, SoftmaxOptions, log_sum_exp, softmax};
use simdformer_kernels::{Exec, Expected, Input, Isa, Matrix, MatrixMut, Parallelism, reference};

const SERIAL: Parallelism<'_> = Parallelism::Serial;
/// The probabilities of whole rows, and their logarithms.
const PLAIN: SoftmaxOptions<'_> =
    SoftmaxOptions { logarithm: false, lengths: None, fully_masked: FullyMasked::Zeros };
const LOG: SoftmaxOptions<'_> = SoftmaxOptions { logarithm: true, ..PLAIN };
const U: f64 = 5.960_464_477_539_063e-8;

/// `d` of the documented bounds, and the constant 4 beside it.
fn depth(columns: usize) -> f64 {
    (columns.min(4096) / 64) as f64 + 4.0
}

fn check_row(isa: Isa, row: &[f32], length: usize, masked: FullyMasked, p: &[f32], log: &[f32]) {
    let d = depth(row.len());
    let valid = &row[..length];
    let max = valid.iter().copied().fold(f32::NEG_INFINITY, f32::max);
    for column in 0..row.len() {
        let exact = reference::softmax(row, length, masked, column);
        // `x - max` is rounded once, which changes its exponential by |x - max| u.
        let distance =
            if column < length { f64::from((max - row[column]).min(90.0)).max(0.0) } else { 0.0 };
        let bound = exact * (d + 8.0 + distance) * U + 2.0 * f64::from(f32::MIN_POSITIVE);
        assert_close(
            p[column],
            exact,
            bound,
            format_args!("p[{column}] of {} on {isa}", row.len()),
        );
        let exact = reference::log_softmax(row, length, masked, column);
        if exact == f64::NEG_INFINITY {
            assert_eq!(log[column], f32::NEG_INFINITY);
        } else {
            // With `Uniform` even a row of negative infinities has finite logarithms.
            let distance = if column < length && max > f32::NEG_INFINITY {
                f64::from(max) - f64::from(row[column])
            } else {
                0.0
            };
            let bound = (d + 4.0 + distance + 2.0 * exact.abs()) * U;
            assert_close(log[column], exact, bound, format_args!("log p[{column}] on {isa}"));
        }
    }
}

proptest! {
    #[test]
    fn rows_match_the_reference(
        rows in 0usize..6,
        columns in 0usize..150,
        gap in 0usize..5,
        spread in prop_oneof![Just(0.0f32), Just(1.0), Just(30.0), Just(200.0), Just(1e30)],
        offset in prop_oneof![Just(0.0f32), Just(-1e6), Just(1e4)],
        masked in prop_oneof![Just(FullyMasked::Zeros), Just(FullyMasked::Uniform)],
        hole in any::<bool>(),
        seed: u64,
    ) {
        let mut random = Random(seed);
        let mut scores = Grid::nan(rows, columns, gap);
        let lengths: Vec<usize> = (0..rows).map(|_| random.below(columns + 1)).collect();
        for (row, &length) in lengths.iter().enumerate() {
            for x in &mut scores.row_mut(row)[..length] {
                let lucky = hole && random.below(4) == 0;
                *x = if lucky { f32::NEG_INFINITY } else { offset + spread * random.normal() };
            }
        }
        for isa in Isa::available() {
            let (from, lengths) = (Input::Matrix(scores.view()), Some(&lengths[..]));
            let plain = SoftmaxOptions { lengths, fully_masked: masked, ..PLAIN };
            let logarithm = SoftmaxOptions { logarithm: true, ..plain };
            let mut p = Grid::nan(rows, columns, gap + 1);
            softmax(Exec::serial(isa), from, plain, p.view_mut()).unwrap();
            let mut log = Grid::nan(rows, columns, gap);
            softmax(Exec::serial(isa), from, logarithm, log.view_mut()).unwrap();
            let mut total = vec![f32::NAN; rows];
            log_sum_exp(Exec::serial(isa), scores.view(), lengths, &mut total).unwrap();
            let lengths = lengths.unwrap();
            for row in 0..rows {
                // The reference does not read masked columns either.
                check_row(isa, scores.row(row), lengths[row], masked, p.row(row), log.row(row));
                let exact = reference::log_sum_exp(&scores.row(row)[..lengths[row]]);
                let bound = (depth(columns) + 4.0 + exact.abs()) * U;
                if exact == f64::NEG_INFINITY {
                    assert_eq!(total[row], f32::NEG_INFINITY);
                } else {
                    assert_close(total[row], exact, bound, "log-sum-exp");
                }
            }
            p.assert_gaps_untouched();
            log.assert_gaps_untouched();

            for (options, expected) in [(plain, &p), (logarithm, &log)] {
                let mut same = scores.clone();
                softmax(Exec::serial(isa), Input::Output, options, same.view_mut()).unwrap();
                same.assert_same_rows(expected);
            }
        }
    }
}

/// Rows longer than a block, with the maximum at the start, in the middle or at the end.
#[test]
fn long_rows_are_as_accurate_as_short_ones() {
    let mut random = Random(7);
    for columns in [4096, 4097, 8191, 32_000, 256_001] {
        for peak in [0, columns / 2, columns - 1] {
            let mut row: Vec<f32> = (0..columns).map(|_| random.normal()).collect();
            row[peak] = 12.0;
            let matrix = Input::Matrix(Matrix::new(&row, 1, columns).unwrap());
            let exact = reference::log_sum_exp(&row);
            for isa in Isa::available() {
                let (mut p, mut log) = (vec![f32::NAN; columns], vec![f32::NAN; columns]);
                let view = MatrixMut::new(&mut p, 1, columns).unwrap();
                softmax(Exec::serial(isa), matrix, PLAIN, view).unwrap();
                let view = MatrixMut::new(&mut log, 1, columns).unwrap();
                softmax(Exec::serial(isa), matrix, LOG, view).unwrap();
                let d = depth(columns);
                for (i, &x) in row.iter().enumerate() {
                    let want = f64::from(x) - exact;
                    let bound = (d + 4.0 + 20.0 + 2.0 * want.abs()) * U;
                    assert_close(log[i], want, bound, "log p");
                    let want = want.exp();
                    assert_close(p[i], want, want * (d + 8.0 + 20.0) * U, "p");
                }
                let sum: f64 = p.iter().map(|&p| f64::from(p)).sum();
                assert_close(sum as f32, 1.0, (d + 8.0) * U, "sum of probabilities");
            }
        }
    }
}

/// Increasing maxima: the sum is rescaled at every block.
#[test]
fn rescaling_at_every_block_keeps_the_bound() {
    let columns = 40_960;
    let row: Vec<f32> = (0..columns).map(|i| (i / 4096) as f32 * 0.5).collect();
    let matrix = Matrix::new(&row, 1, columns).unwrap();
    for isa in Isa::available() {
        let mut out = [f32::NAN];
        log_sum_exp(Exec::serial(isa), matrix, None, &mut out).unwrap();
        let exact = reference::log_sum_exp(&row);
        assert_close(out[0], exact, (depth(columns) + 4.0 + exact.abs()) * U, "log-sum-exp");
    }
}

fn row_of(isa: Isa, scores: &[f32], masked: FullyMasked) -> (Vec<f32>, Vec<f32>, f32) {
    let n = scores.len();
    let matrix = Matrix::new(scores, 1, n).unwrap();
    let (mut p, mut log, mut total) = (vec![9.0; n], vec![9.0; n], [9.0]);
    for (logarithm, to) in [(false, &mut p), (true, &mut log)] {
        let options = SoftmaxOptions { logarithm, fully_masked: masked, ..PLAIN };
        let to = MatrixMut::new(to, 1, n).unwrap();
        softmax(Exec::serial(isa), Input::Matrix(matrix), options, to).unwrap();
    }
    log_sum_exp(Exec::serial(isa), matrix, None, &mut total).unwrap();
    (p, log, total[0])
}

#[test]
fn a_masked_first_block_does_not_make_nan() {
    let mut row = vec![f32::NEG_INFINITY; 9000];
    row[8500] = 3.0;
    for isa in Isa::available() {
        let (p, log, total) = row_of(isa, &row, FullyMasked::Zeros);
        assert_eq!((p[8500], p[0], log[8500], log[0]), (1.0, 0.0, 0.0, f32::NEG_INFINITY));
        assert_eq!(total, 3.0);
    }
}

#[test]
fn a_fully_masked_row_gives_zeros_or_the_mean_of_all() {
    for isa in Isa::available() {
        for n in [1, 7, 16, 100, 5000] {
            let row = vec![f32::NEG_INFINITY; n];
            let (p, log, total) = row_of(isa, &row, FullyMasked::Zeros);
            assert!(p.iter().all(|&p| p.to_bits() == 0));
            assert!(log.iter().all(|&l| l == f32::NEG_INFINITY) && total == f32::NEG_INFINITY);
            let (p, log, _) = row_of(isa, &row, FullyMasked::Uniform);
            assert!(p.iter().all(|&p| p == 1.0 / n as f32));
            assert!(log.iter().all(|&l| (l + (n as f32).ln()).abs() <= 1e-6));
        }
        // A row with visible columns beside it has the bits that it has alone.
        let scores = [f32::NAN, f32::NAN, 1.0, 2.0];
        let mut p = [9.0; 4];
        let view = MatrixMut::new(&mut p, 2, 2).unwrap();
        let matrix = Input::Matrix(Matrix::new(&scores, 2, 2).unwrap());
        let options = SoftmaxOptions { lengths: Some(&[0, 2]), ..PLAIN };
        softmax(Exec::serial(isa), matrix, options, view).unwrap();
        assert_eq!(p[..2], [0.0, 0.0]);
        assert_eq!(p[2..], row_of(isa, &[1.0, 2.0], FullyMasked::Zeros).0);
    }
}

#[test]
fn masked_nan_and_infinity_do_not_leak() {
    for isa in Isa::available() {
        for poison in [f32::NAN, f32::INFINITY, f32::MAX] {
            let mut row = vec![poison; 40];
            row[..21].copy_from_slice(&[0.25; 21]);
            let mut p = vec![9.0; 40];
            let view = MatrixMut::new(&mut p, 1, 40).unwrap();
            let matrix = Input::Matrix(Matrix::new(&row, 1, 40).unwrap());
            let options = SoftmaxOptions { lengths: Some(&[21]), ..PLAIN };
            softmax(Exec::serial(isa), matrix, options, view).unwrap();
            assert!(p[..21].iter().all(|&p| p == 1.0 / 21.0) && p[21..] == [0.0; 19]);
        }
    }
}

#[test]
fn a_nan_makes_its_row_nan_and_no_other() {
    for isa in Isa::available() {
        for n in [5, 16, 33, 4100] {
            for bad in [f32::NAN, f32::INFINITY] {
                for at in [0, n / 2, n - 1] {
                    for rest in [0.5, f32::NEG_INFINITY] {
                        let mut scores = vec![0.5; 2 * n];
                        scores[..n].fill(rest);
                        scores[at] = bad;
                        let mut p = vec![9.0; 2 * n];
                        let view = MatrixMut::new(&mut p, 2, n).unwrap();
                        let matrix = Input::Matrix(Matrix::new(&scores, 2, n).unwrap());
                        softmax(Exec::serial(isa), matrix, PLAIN, view).unwrap();
                        assert!(p[..n].iter().all(|p| p.is_nan()), "{isa} {n} {bad} {at}");
                        assert_eq!(p[n..], row_of(isa, &scores[n..], FullyMasked::Zeros).0);
                    }
                }
            }
        }
    }
}

#[test]
fn finite_sentinels_and_huge_scores_are_ordinary_numbers() {
    for isa in Isa::available() {
        let zeros = FullyMasked::Zeros;
        assert_eq!(row_of(isa, &[-1e6, -1e6, f32::MIN], zeros).0, [0.5, 0.5, 0.0]);
        assert_eq!(row_of(isa, &[f32::MIN, f32::MIN], zeros).0, [0.5, 0.5]);
        assert_eq!(row_of(isa, &[f32::MIN, f32::NEG_INFINITY], zeros).0, [1.0, 0.0]);
        assert_eq!(row_of(isa, &[f32::MAX, f32::MIN, f32::MAX], zeros).0, [0.5, 0.0, 0.5]);
        assert_eq!(row_of(isa, &[-1e4, -5e4, -1e9], zeros).0, [1.0, 0.0, 0.0]);
        let (_, log, total) = row_of(isa, &[1e6, 1e6], zeros);
        assert!(log.iter().all(|&l| l == -std::f32::consts::LN_2), "{log:?}");
        assert_eq!(total, 1e6 + std::f32::consts::LN_2);
    }
}

/// Where exp would be subnormal, the probability is exactly 0.
#[test]
fn scores_far_below_the_maximum_are_exactly_zero() {
    for isa in Isa::available() {
        let row: Vec<f32> =
            (0..50).map(|i| if i == 0 { 0.0 } else { -87.4 - 0.4 * i as f32 }).collect();
        let (p, ..) = row_of(isa, &row, FullyMasked::Zeros);
        assert_eq!(p[0], 1.0);
        assert!(p[1..].iter().all(|&p| p == 0.0));
    }
}

#[test]
fn a_row_has_the_same_bits_alone_in_a_batch_and_on_any_threads() {
    let mut random = Random(3);
    for columns in [7, 100, 513, 5000] {
        let rows = 40_000 / columns;
        let data: Vec<f32> = (0..rows * columns).map(|_| 4.0 * random.normal()).collect();
        let matrix = Input::Matrix(Matrix::new(&data, rows, columns).unwrap());
        for isa in Isa::available() {
            let all = |parallelism: Parallelism<'_>| {
                let mut p = vec![f32::NAN; data.len()];
                let view = MatrixMut::new(&mut p, rows, columns).unwrap();
                softmax(Exec::new(isa, parallelism), matrix, PLAIN, view).unwrap();
                p
            };
            let batch = all(SERIAL);
            for row in [0, 1, rows / 2, rows - 1] {
                let range = row * columns..(row + 1) * columns;
                let (alone, ..) = row_of(isa, &data[range.clone()], FullyMasked::Zeros);
                assert_eq!(alone, batch[range]);
            }
            #[cfg(feature = "rayon")]
            for pool in crate::support::pools() {
                assert_eq!(pool.install(|| all(Parallelism::Rayon)), batch);
            }
        }
    }
}

#[test]
fn wrong_calls_are_errors() {
    let isa = Isa::best();
    let data = [0.0; 12];
    let mut out = [7.0; 12];
    let scores = Matrix::new(&data, 3, 4).unwrap();
    let lengths = |lengths| SoftmaxOptions { lengths: Some(lengths), ..PLAIN };
    for (scores, options, [rows, columns], expected) in [
        (scores, PLAIN, [4, 3], errors::shape("out", [3, 4], [4, 3])),
        (scores, lengths(&[1, 2]), [3, 4], errors::len("lengths", 3, 2)),
        (
            scores,
            lengths(&[1, 5, 9]),
            [3, 4],
            errors::item("length", ("row", 1), Expected::AtMost(4), 5),
        ),
        (scores.transposed(), PLAIN, [4, 3], errors::strided("scores", 4)),
    ] {
        let view = MatrixMut::new(&mut out, rows, columns).unwrap();
        let found = softmax(Exec::serial(isa), Input::Matrix(scores), options, view);
        assert_eq!(found, Err(expected));
    }
    let error = log_sum_exp(Exec::serial(isa), scores, None, &mut out[..2]).unwrap_err();
    assert_eq!(error, errors::len("out", 3, 2));
    assert_eq!(out, [7.0; 12]);
}

#[test]
fn no_rows_and_no_columns_are_fine() {
    for isa in Isa::available() {
        for (rows, columns) in [(0, 5), (3, 0), (0, 0)] {
            let view = MatrixMut::new(&mut [], rows, columns).unwrap();
            let options = SoftmaxOptions { fully_masked: FullyMasked::Uniform, ..PLAIN };
            softmax(Exec::serial(isa), Input::Output, options, view).unwrap();
        }
        let mut total = [9.0; 3];
        let scores = Matrix::new(&[], 3, 0).unwrap();
        log_sum_exp(Exec::serial(isa), scores, None, &mut total).unwrap();
        assert_eq!(total, [f32::NEG_INFINITY; 3]);
    }
}
