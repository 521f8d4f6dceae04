//! Cross-entropy compared with the f64 oracle, and the oracle with central differences.

use crate::support::*;
use proptest::prelude::*;
use simdformer_kernels::reference::loss as oracle;
use simdformer_kernels::train::{
    IGNORED, RowLoss, Smoothing, SmoothingOver, cross_entropy, cross_entropy_loss,
};
use simdformer_kernels::{Exec, Expected, Isa, Parallelism};

const NONE: Smoothing = Smoothing { epsilon: 0.0, over: SmoothingOver::All };

fn smoothing(epsilon: f32, over: SmoothingOver) -> Smoothing {
    Smoothing { epsilon, over }
}

#[test]
fn the_oracle_is_the_derivative_of_its_loss() {
    let mut random = Random::new(5);
    for columns in 1..9 {
        for epsilon in [0.0, 0.1, 0.7] {
            for over in [SmoothingOver::All, SmoothingOver::Others] {
                if columns == 1 && over == SmoothingOver::Others {
                    continue;
                }
                let smoothing = smoothing(epsilon, over);
                let z: Vec<f64> = (0..columns).map(|_| 3.0 * f64::from(random.value())).collect();
                let target = random.below(columns);
                let gradient = |j| oracle::cross_entropy_gradient(&z, target, smoothing, j);
                let size = (0..columns).map(|j| gradient(j).abs()).fold(1e-3, f64::max);
                for j in 0..columns {
                    let at = |step: f64| {
                        let mut z = z.clone();
                        z[j] += step;
                        oracle::cross_entropy(&z, target, smoothing)
                    };
                    let step = 1e-5;
                    let slope = (at(step) - at(-step)) / (2.0 * step);
                    let error = (slope - gradient(j)).abs();
                    assert!(error <= 1e-6 * size, "{j} of {columns}: {slope}, {}", gradient(j));
                }
            }
        }
    }
}

/// Compares the gradient of a row, and its losses, with the documented bounds.
fn check_row(
    what: &str,
    logits: &[f32],
    target: usize,
    smoothing: Smoothing,
    scale: f32,
    found: (&[f32], RowLoss),
) {
    let (gradient, losses) = found;
    let z: Vec<f64> = logits.iter().map(|&z| f64::from(z)).collect();
    let max = z.iter().copied().fold(f64::NEG_INFINITY, f64::max);
    let exact_nll = oracle::cross_entropy(&z, target, NONE);
    let log_sum = z.iter().map(|z| (z - max).exp()).sum::<f64>().ln();
    let p: Vec<f64> = z.iter().map(|z| (z - max - log_sum).exp()).collect();
    let q = |j| oracle::wanted(smoothing, z.len(), target, j);
    let weighted = |weight: f64, j: usize| if weight == 0.0 { 0.0 } else { weight * (max - z[j]) };
    let mean_distance: f64 = (0..z.len()).map(|j| weighted(p[j], j)).sum();
    let least = if z.len() > 1 { q(usize::from(target == 0)) } else { 0.0 };
    let wanted_distance: f64 = (0..z.len()).map(|j| weighted(q(j).max(least), j)).sum();
    let below: f64 = (0..z.len()).filter(|&j| z[j] < max).map(|j| p[j]).sum();
    let tiny = (-125f64).exp2();

    let bound = UNIT * (26.0 * below + mean_distance) + z.len() as f64 * tiny;
    // The oracle adds the same number of terms in f64.
    let of_oracle = (z.len() as f64 + 64.0) * (-53f64).exp2();
    let close = |found: f64, exact: f64, bound: f64| {
        (exact == f64::INFINITY && found == exact)
            || (found - exact).abs() <= bound * 1.001 + of_oracle * exact.abs()
    };
    assert!(close(losses.nll, exact_nll, bound), "{what}: nll {} for {exact_nll}", losses.nll);
    let exact = oracle::cross_entropy(&z, target, smoothing);
    let bound = bound + 26.0 * UNIT * wanted_distance;
    assert!(close(losses.loss, exact, bound), "{what}: loss {} for {exact}", losses.loss);
    let first = z.iter().position(|&z| z == max);
    assert_eq!(losses.correct, first == Some(target), "{what}");
    for (j, &found) in gradient.iter().enumerate() {
        let s = f64::from(scale);
        // The oracle needs a whole row for each element.
        let exact = if z.len() < 200 {
            oracle::cross_entropy_gradient(&z, target, smoothing, j)
        } else {
            p[j] - q(j)
        };
        let exact = s * exact;
        let distance = weighted(p[j], j);
        let bound = UNIT * s.abs() * (p[j] * (30.0 + mean_distance) + distance + 2.0 * q(j))
            + tiny * (s.abs() + 1.0);
        let error = (f64::from(found) - exact).abs();
        assert!(
            error <= bound * 1.001,
            "{what}: gradient {j} is {found} for {exact}, bound {bound}"
        );
        assert!(found == 0.0 || found.is_normal(), "{what}: gradient {j} is {found:e}");
    }
}

proptest! {
    #[test]
    fn rows_match_the_oracle(
        rows in 0usize..5,
        columns in 1usize..200,
        gap in 0usize..5,
        spread in prop_oneof![Just(0.0f32), Just(1.0), Just(20.0), Just(150.0), Just(1e30)],
        offset in prop_oneof![Just(0.0f32), Just(-1e6), Just(1e4)],
        epsilon in prop_oneof![Just(0.0f32), Just(0.1), Just(0.6)],
        others in any::<bool>(),
        scale in prop_oneof![Just(1.0f32), Just(1.0 / 37.0), Just(-3.0), Just(1e-6), Just(0.0)],
        holes in any::<bool>(),
        seed: u64,
    ) {
        let mut random = Random::new(seed);
        let others = others && columns > 1;
        let over = if others { SmoothingOver::Others } else { SmoothingOver::All };
        let smoothing = smoothing(epsilon, over);
        let targets: Vec<u32> = (0..rows)
            .map(|_| if random.below(4) == 0 { IGNORED } else { random.below(columns) as u32 })
            .collect();
        let logits = Strided::new(rows, columns, gap, |row, column| {
            if targets[row] == IGNORED {
                POISON
            } else if holes && column > 0 && random.below(4) == 0 {
                f32::NEG_INFINITY
            } else {
                offset + spread * random.value()
            }
        });
        for isa in all_isas() {
            let mut gradient = logits.clone();
            let mut losses = vec![RowLoss { loss: f64::NAN, nll: f64::NAN, correct: true }; rows];
            cross_entropy(Exec::serial(isa), gradient.view_mut(), &targets, smoothing, scale, &mut losses)
                .expect("a fit");
            gradient.assert_gaps_untouched();
            for row in 0..rows {
                let found = gradient.row(row);
                if targets[row] == IGNORED {
                    assert!(found.iter().all(|x| x.to_bits() == 0));
                    assert_eq!(losses[row], RowLoss::default());
                } else {
                    let row_of = logits.row(row);
                    let (what, target) = (format!("{isa}, row {row}"), targets[row] as usize);
                    check_row(&what, row_of, target, smoothing, scale, (found, losses[row]));
                }
            }
            let mut again = vec![RowLoss::default(); rows];
            cross_entropy_loss(Exec::serial(isa), logits.view(), &targets, smoothing, &mut again)
                .expect("a fit");
            assert_eq!(again, losses);
        }
    }
}

/// Replaces rows of logits by their gradient.
fn replace(
    isa: Isa,
    logits: &mut [f32],
    targets: &[u32],
    smoothing: Smoothing,
    scale: f32,
) -> Vec<RowLoss> {
    let mut losses = vec![RowLoss { loss: f64::NAN, nll: f64::NAN, correct: true }; targets.len()];
    let rows = view_rows(logits, targets.len());
    cross_entropy(Exec::serial(isa), rows, targets, smoothing, scale, &mut losses).expect("a fit");
    losses
}

/// The gradient of one row.
fn one(isa: Isa, logits: &[f32], target: u32, smoothing: Smoothing) -> (Vec<f32>, RowLoss) {
    let mut gradient = logits.to_vec();
    let losses = replace(isa, &mut gradient, &[target], smoothing, 1.0);
    (gradient, losses[0])
}

/// Rows of many blocks with the maximum anywhere, and rows with one probability near 1.
#[test]
fn long_and_certain_rows_are_within_a_millionth() {
    let mut random = Random::new(9);
    for columns in [2, 1023, 1024, 1025, 2318, 4097, 32_000] {
        for peak in [0.0, 4.0, 14.0, 40.0] {
            for at in [0, columns / 2, columns - 1] {
                let mut row: Vec<f32> = (0..columns).map(|_| 2.0 * random.value()).collect();
                row[at] += peak;
                for epsilon in [0.0, 0.1] {
                    let smoothing = smoothing(epsilon, SmoothingOver::All);
                    for target in [at, random.below(columns)] {
                        for isa in all_isas() {
                            let (gradient, losses) = one(isa, &row, target as u32, smoothing);
                            let what = format!("{columns} columns, {peak} at {at}, {isa}");
                            let found = (&gradient[..], losses);
                            check_row(&what, &row, target, smoothing, 1.0, found);
                            let z: Vec<f64> = row.iter().map(|&z| z.into()).collect();
                            let exact = oracle::cross_entropy(&z, target, smoothing);
                            let error = (losses.loss - exact).abs();
                            assert!(error <= 1e-6 * exact, "{what}: {} for {exact}", losses.loss);
                        }
                    }
                }
            }
        }
    }
}

/// PyTorch 2.15: `cross_entropy(z, y, label_smoothing=0.25)` and its gradient, in f64.
const TORCH: f64 = 3.387_419_232_832_457_3;
const TORCH_GRADIENT: [f64; 5] = [
    0.109_227_826_251_676_35,
    -0.772_330_352_725_203_9,
    0.663_609_608_605_826_3,
    0.046_576_558_501_037_81,
    -0.047_083_640_633_336_19,
];
/// `(1 - epsilon - epsilon_i) * nll + epsilon_i * smooth`, as in fairseq.
const FAIRSEQ: f64 = 3.337_419_232_832_458;
const NLL: f64 = 3.587_419_232_832_457_4;

/// The losses of PyTorch's `cross_entropy` and fairseq's `label_smoothed_nll_loss` for the same row in f64.
#[test]
fn trap_03_smoothing_conventions_are_those_of_the_frameworks() {
    let row = [0.5, -1.25, 2.0, 0.0, -3.5];
    for isa in all_isas() {
        for (over, expected) in [(SmoothingOver::All, TORCH), (SmoothingOver::Others, FAIRSEQ)] {
            let (_, losses) = one(isa, &row, 1, smoothing(0.25, over));
            assert!((losses.loss - expected).abs() <= 1e-6 * expected, "{over:?}: {losses:?}");
            assert!((losses.nll - NLL).abs() <= 1e-6 * NLL, "{losses:?}");
        }
        let (gradient, _) = one(isa, &row, 1, smoothing(0.25, SmoothingOver::All));
        for (found, expected) in gradient.iter().zip(TORCH_GRADIENT) {
            assert!((f64::from(*found) - expected).abs() <= 1e-6, "{found} for {expected}");
        }
    }
}

#[test]
fn a_banned_column_has_no_probability_and_an_infinite_smoothing_loss() {
    let infinite = f32::NEG_INFINITY;
    for isa in all_isas() {
        let (gradient, losses) = one(isa, &[infinite, 0.0, 0.0], 1, NONE);
        assert_eq!((gradient[0].to_bits(), gradient[1..].to_vec()), (0, vec![-0.5, 0.5]));
        assert!((losses.nll - 2f64.ln()).abs() < 1e-9 && losses.loss == losses.nll);
        for over in [SmoothingOver::All, SmoothingOver::Others] {
            let (gradient, losses) = one(isa, &[infinite, 0.0, 0.0], 1, smoothing(0.5, over));
            let others = if over == SmoothingOver::All { 3.0 } else { 2.0 };
            assert_eq!(gradient[0], (-0.5f64 / others) as f32, "{isa}");
            assert!(losses.loss == f64::INFINITY && (losses.nll - 2f64.ln()).abs() < 1e-9);
            // The target is banned.
            let (gradient, losses) = one(isa, &[infinite, 0.0], 0, smoothing(0.5, over));
            assert!(losses.loss == f64::INFINITY && losses.nll == f64::INFINITY);
            assert!(gradient[0] < 0.0 && gradient[0] + gradient[1] == 0.0, "{gradient:?}");
        }
    }
}

#[test]
fn nan_infinity_and_emptiness_make_their_row_nan_and_no_other() {
    for isa in all_isas() {
        for columns in [1usize, 5, 64, 100, 2500] {
            let fine: Vec<f32> = (0..columns).map(|i| (i % 7) as f32).collect();
            let (expected, losses_expected) =
                one(isa, &fine, 0, smoothing(0.1, SmoothingOver::All));
            for bad in [f32::NAN, f32::INFINITY] {
                for at in [0, columns / 2, columns - 1] {
                    for rest in [0.5, f32::NEG_INFINITY, -1e30] {
                        let mut rows = vec![rest; 2 * columns];
                        rows[at] = bad;
                        rows[columns..].copy_from_slice(&fine);
                        let smoothing = smoothing(0.1, SmoothingOver::All);
                        let losses = replace(isa, &mut rows, &[0, 0], smoothing, 1.0);
                        let (first, second) = rows.split_at(columns);
                        assert!(
                            first.iter().all(|x| x.is_nan()),
                            "{isa}: {bad} at {at}: {first:?}"
                        );
                        assert!(losses[0].loss.is_nan() && losses[0].nll.is_nan());
                        assert!(!losses[0].correct);
                        assert_eq!(bits(second), bits(&expected));
                        assert_eq!(losses[1], losses_expected);
                    }
                }
            }
            let (gradient, losses) = one(isa, &vec![f32::NEG_INFINITY; columns], 0, NONE);
            assert!(gradient.iter().all(|x| x.is_nan()) && losses.loss.is_nan());
        }
    }
}

/// Rows without a target, which are padding in other engines, change nothing for the others. They have no
/// loss and no gradient, whatever they hold, with and without smoothing.
#[test]
fn trap_02_ignored_rows_are_as_if_absent() {
    let columns = 37;
    let mut random = Random::new(2);
    let logits = random.values(4 * columns);
    for isa in all_isas() {
        for smoothing in [NONE, smoothing(0.1, SmoothingOver::All)] {
            let targets = [5, 36, 0, 7];
            let mut alone = logits.clone();
            let expected = replace(isa, &mut alone, &targets, smoothing, 0.25);
            for padding in [0.0, 3.0, f32::NAN, f32::INFINITY, f32::NEG_INFINITY] {
                // Two rows of padding after each of the others.
                let (mut all, mut padded) = (Vec::new(), Vec::new());
                for (row, &target) in logits.chunks(columns).zip(&targets) {
                    all.extend_from_slice(row);
                    all.extend(vec![padding; 2 * columns]);
                    padded.extend([target, IGNORED, IGNORED]);
                }
                let losses = replace(isa, &mut all, &padded, smoothing, 0.25);
                for (i, row) in all.chunks(columns).enumerate() {
                    if i % 3 == 0 {
                        assert_eq!(bits(row), bits(&alone[i / 3 * columns..][..columns]), "{isa}");
                        assert_eq!(losses[i], expected[i / 3], "{isa}");
                    } else {
                        assert!(row.iter().all(|x| x.to_bits() == 0), "{isa}: {padding}");
                        assert_eq!(losses[i], RowLoss::default(), "{isa}: {padding}");
                    }
                }
            }
        }
    }
}

#[test]
fn of_equal_logits_the_first_is_the_argmax() {
    for isa in all_isas() {
        for columns in [3, 70, 3000] {
            let mut row = vec![0.0; columns];
            for (at, value) in [(1, 1.0), (columns - 1, 1.0), (0, f32::NEG_INFINITY)] {
                row[at] = value;
            }
            for target in 0..columns as u32 {
                if columns < 100 || target < 2 || target as usize == columns - 1 {
                    let (_, losses) = one(isa, &row, target, NONE);
                    assert_eq!(losses.correct, target == 1, "{target} of {columns}");
                }
            }
        }
    }
}

/// For logits far below the maximum the gradient would be subnormal, and is 0.
#[test]
fn no_gradient_is_subnormal() {
    let row: Vec<f32> = (0..4000).map(|i| -0.025 * i as f32).collect();
    for isa in all_isas() {
        for scale in [1.0, 1e-4, 1e-20, 1e-37, 1e-40, 1e30] {
            let mut gradient = row.clone();
            replace(isa, &mut gradient, &[7], NONE, scale);
            assert!(gradient.iter().all(|x| *x == 0.0 || x.is_normal()), "{isa}, {scale}");
            assert!(scale < 1e-30 || gradient[0] > 0.0 && gradient[7] < 0.0);
        }
    }
}

#[test]
fn bits_depend_neither_on_threads_nor_on_other_rows_nor_on_the_vector_length() {
    let mut random = Random::new(3);
    for (rows, columns) in [(300, 131), (21, 2318), (3, 9001)] {
        let logits: Vec<f32> = (0..rows * columns).map(|_| 6.0 * random.value()).collect();
        let targets: Vec<u32> = (0..rows).map(|_| random.below(columns) as u32).collect();
        let smoothing = smoothing(0.1, SmoothingOver::All);
        let run = |isa, parallelism: Parallelism<'_>, range: core::ops::Range<usize>| {
            let mut gradient = logits[range.start * columns..range.end * columns].to_vec();
            let mut losses = vec![RowLoss::default(); range.len()];
            let view = view_matrix_mut(&mut gradient, range.len(), columns);
            let targets = &targets[range];
            cross_entropy(Exec::new(isa, parallelism), view, targets, smoothing, 0.01, &mut losses)
                .expect("a fit");
            (bits(&gradient), losses)
        };
        let mut first = None;
        for isa in all_isas() {
            let (gradient, losses) = run(isa, SERIAL, 0..rows);
            for crew in CREWS {
                let found = crew.with_parallelism(|parallelism| run(isa, parallelism, 0..rows));
                assert!(found == (gradient.clone(), losses.clone()), "{isa}, {crew:?}");
            }
            for row in [0, rows / 2, rows - 1] {
                let (alone, loss) = run(isa, SERIAL, row..row + 1);
                assert!(alone == gradient[row * columns..][..columns] && loss[0] == losses[row]);
            }
            let first = first.get_or_insert_with(|| (gradient.clone(), losses.clone()));
            assert!(*first == (gradient, losses), "{isa} differs from another set");
        }
    }
}

#[test]
fn no_rows_and_no_columns_are_valid() {
    for isa in all_isas() {
        for (rows, columns) in [(0, 5), (3, 0), (0, 0)] {
            let mut losses = vec![RowLoss { loss: 1.0, nll: 1.0, correct: true }; rows];
            let view = view_matrix_mut(&mut [], rows, columns);
            let targets = vec![IGNORED; rows];
            cross_entropy(Exec::serial(isa), view, &targets, NONE, 1.0, &mut losses)
                .expect("a fit");
            assert!(losses.iter().all(|loss| *loss == RowLoss::default()));
        }
    }
}

#[test]
fn wrong_calls_are_errors_that_write_nothing() {
    let isa = Isa::best();
    let mut data = [0.25; 12];
    let mut losses = [RowLoss { loss: 7.0, nll: 7.0, correct: true }; 3];
    let before = losses;
    let mut call = |targets: &[u32], smoothing, count: usize| {
        let view = view_matrix_mut(&mut data, 3, 4);
        let result =
            cross_entropy(Exec::serial(isa), view, targets, smoothing, 1.0, &mut losses[..count]);
        let view = view_matrix(&data, 3, 4);
        let again =
            cross_entropy_loss(Exec::serial(isa), view, targets, smoothing, &mut losses[..count]);
        let error = result.expect_err("refused");
        assert_eq!(again.expect_err("refused").to_string(), error.to_string());
        assert_eq!((data, losses), ([0.25; 12], before));
        error
    };
    let fine = [0, 1, 2];
    assert_eq!(call(&fine[..2], NONE, 3), errors::len("targets", 3, 2));
    assert_eq!(call(&fine, NONE, 2), errors::len("losses", 3, 2));
    let error = call(&[0, 4, 9], NONE, 3);
    assert_eq!(error.to_string(), "target of row 1: expected less than 4, found 4");
    for found in [1.0, -0.1, f32::INFINITY] {
        let error = call(&fine, smoothing(found, SmoothingOver::All), 3);
        assert_eq!(error.to_string(), format!("label smoothing: expected in 0..1, found {found}"));
    }
    let error = call(&fine, smoothing(f32::NAN, SmoothingOver::All), 3);
    assert!(error.to_string().ends_with("found NaN"), "{error}");

    let mut data = [0.25; 12];
    let view = view_matrix_mut(&mut data, 4, 3).transposed();
    let error =
        cross_entropy(Exec::serial(isa), view, &fine, NONE, 1.0, &mut losses).expect_err("refused");
    assert_eq!(error, errors::strided("logits", 3));
    let view = view_matrix_mut(&mut data, 3, 1);
    let others = smoothing(0.1, SmoothingOver::Others);
    let error = cross_entropy(Exec::serial(isa), view, &[0; 3], others, 1.0, &mut losses);
    assert_eq!(
        error.expect_err("refused"),
        errors::size("columns", "logits", Expected::AtLeast(2), 1)
    );
    assert_eq!((data, losses), ([0.25; 12], before));
}
