//! Philox, the masks made from it, and the random numbers of a run.

use crate::support::*;
use proptest::prelude::*;
use simdformer_kernels::train::{
    Dropout, Philox, WriteMode, dropout, normal, permutation, uniform,
};
use simdformer_kernels::{Error, Exec, Input, Isa, MatrixMut};

/// The known answers of Random123, the reference implementation of the generator.
#[test]
fn philox_gives_the_known_answers() {
    let pi = [0x243f_6a88, 0x85a3_08d3, 0x1319_8a2e, 0x0370_7344];
    let known = [
        ([0; 4], 0, [0x6627_e8d5, 0xe169_c58d, 0xbc57_ac4c, 0x9b00_dbd8]),
        ([u32::MAX; 4], u64::MAX, [0x408f_276d, 0x41c8_3b0e, 0xa20b_c7c6, 0x6d54_51fd]),
        (pi, 0x299f_31d0_a409_3822, [0xd16c_fe09, 0x94fd_cceb, 0x5001_e420, 0x2412_6ea1]),
    ];
    for (counter, key, expected) in known {
        assert_eq!(Philox::new(key).block(counter), expected);
    }
}

/// Computed by a program in another language from the table of counters alone.
#[test]
fn random_numbers_match_another_implementation() {
    let mut order = [0; 10];
    permutation(0x1_2345_6789, 2, &mut order);
    assert_eq!(order, [8, 6, 1, 4, 2, 0, 3, 5, 9, 7]);
    let settings = Dropout { seed: 0x1_2345_6789, step: 7 + (1 << 32), site: 5, probability: 0.3 };
    for isa in all_isas() {
        let mut x = [1.0; 10];
        let view = view_matrix_mut(&mut x, 1, 10);
        in_place(Exec::serial(isa), &settings, &[11], &[3], view).expect("a fit");
        assert_eq!(x.map(|x| u8::from(x > 0.0)), [1, 1, 1, 1, 1, 1, 0, 0, 1, 1]);
    }
    let expected = [-0.587_667_8f32, -0.326_429_2, -1.218_586_8, 2.238_636_3];
    let mut numbers = [0.0; 4];
    normal(0x1_2345_6789, 9, 0, 1.0, &mut numbers);
    assert_eq!(numbers, expected);
    uniform(0x1_2345_6789, 9, 0, 1.0, &mut numbers);
    assert_eq!(numbers, [0.595_508_4, 0.161_392_55, -0.922_313_7, -0.341_325_73]);
}

/// [`dropout`] in place.
fn in_place(
    exec: Exec<'_>,
    settings: &Dropout,
    sentences: &[u32],
    positions: &[u32],
    x: MatrixMut<'_>,
) -> Result<(), Error> {
    dropout(exec, settings, sentences, positions, Input::Output, WriteMode::Store, x)
}

/// Whether an element is kept, by the definition.
fn kept(settings: &Dropout, sentence: u32, element: u64) -> bool {
    let step = [settings.step as u32, (settings.step >> 32) as u32];
    let philox = Philox::new(settings.seed).branch([1, settings.site, step[0], step[1]]);
    let block = element / 8;
    let words = philox.block([block as u32, (block >> 32) as u32, sentence, 0]);
    let decision = words[(element % 8 / 2) as usize] >> (16 * (element % 2)) & 0xffff;
    f64::from(decision) >= (f64::from(settings.probability) * 65536.0).round()
}

proptest! {
    #[test]
    fn masks_are_as_defined(
        rows in 0usize..6,
        columns in prop_oneof![0usize..40, 500usize..1100],
        gaps in (0usize..4, 0usize..4),
        probability in prop_oneof![Just(0.1f32), Just(0.5), Just(0.999), Just(1e-4)],
        (seed, step, site) in any::<(u64, u64, u32)>(),
        wide: bool,
        shuffle: u64,
    ) {
        let settings = Dropout { seed, step, site, probability };
        let keep = settings.keep().expect("in range");
        let mut random = Random::new(shuffle);
        let sentences: Vec<u32> = (0..rows).map(|_| random.bits() as u32).collect();
        let most = if wide { u32::MAX as usize } else { 100 };
        let positions: Vec<u32> = (0..rows).map(|_| random.below(most) as u32).collect();
        let is_kept = |row: usize, column: usize| {
            let element = u64::from(positions[row]) * columns as u64 + column as u64;
            kept(&settings, sentences[row], element)
        };
        // A dropped element is 0 even if it was NaN.
        let x = Strided::new(rows, columns, gaps.0, |row, column| {
            if is_kept(row, column) { random.value() } else { f32::NAN }
        });
        let other = Strided::new(rows, columns, gaps.1, |_, _| random.value());
        for isa in all_isas() {
            for (input, old, write) in [
                (Input::Output, &x, WriteMode::Store),
                (Input::Output, &x, WriteMode::Add),
                (Input::Matrix(x.view()), &other, WriteMode::Store),
                (Input::Matrix(x.view()), &other, WriteMode::Add),
            ] {
                let (exec, mut out) = (Exec::serial(isa), old.clone());
                dropout(exec, &settings, &sentences, &positions, input, write, out.view_mut())
                    .expect("a fit");
                out.assert_gaps_untouched();
                for row in 0..rows {
                    for column in 0..columns {
                        let mut expected = if is_kept(row, column) {
                            x.at(row, column) * (1.0 / keep) as f32
                        } else {
                            0.0
                        };
                        if write == WriteMode::Add {
                            expected += old.at(row, column);
                        }
                        let found = out.at(row, column);
                        let same = found.to_bits() == expected.to_bits()
                            || found.is_nan() && expected.is_nan();
                        assert!(same, "{isa} {write:?} ({row}, {column}): {found}, {expected}");
                    }
                }
            }
        }
    }
}

/// The result of dropout on ones.
fn mask(settings: &Dropout, sentences: &[u32], positions: &[u32], columns: usize) -> Vec<f32> {
    let mut x = vec![1.0; sentences.len() * columns];
    let view = view_matrix_mut(&mut x, sentences.len(), columns);
    in_place(Exec::serial(Isa::best()), settings, sentences, positions, view).expect("a fit");
    x
}

const SETTINGS: Dropout = Dropout { seed: 3, step: 9, site: 1, probability: 0.1 };

#[test]
fn the_kept_fraction_is_the_requested_one() {
    let (sentences, positions): (Vec<u32>, Vec<u32>) = (0..2000).map(|i| (i / 40, i % 40)).unzip();
    for probability in [0.05, 0.1, 0.3, 0.5, 0.9] {
        let settings = Dropout { probability, ..SETTINGS };
        let x = mask(&settings, &sentences, &positions, 512);
        let (n, p) = (x.len() as f64, settings.keep().expect("in range"));
        let kept = x.iter().filter(|&&x| x != 0.0).count() as f64;
        let sigma = (n * p * (1.0 - p)).sqrt();
        assert!((kept - n * p).abs() <= 4.0 * sigma, "{kept} of {n} at {p}");
        // In every column and every row, too.
        for column in [0, 7, 8, 511] {
            let kept = x.iter().skip(column).step_by(512).filter(|&&x| x != 0.0).count() as f64;
            let sigma = (2000.0 * p * (1.0 - p)).sqrt();
            assert!((kept - 2000.0 * p).abs() <= 5.0 * sigma, "{kept} in column {column}");
        }
    }
}

/// Masks that differ in one counter agree only by chance.
#[test]
fn trap_13_seed_step_site_sentence_and_position_each_make_another_mask() {
    let half = Dropout { probability: 0.5, ..SETTINGS };
    let base = mask(&half, &[4; 64], &(0..64).collect::<Vec<_>>(), 512);
    let positions: Vec<u32> = (0..64).collect();
    let others = [
        mask(&Dropout { seed: 4, ..half }, &[4; 64], &positions, 512),
        mask(&Dropout { seed: 3 | 1 << 40, ..half }, &[4; 64], &positions, 512),
        mask(&Dropout { step: 10, ..half }, &[4; 64], &positions, 512),
        mask(&Dropout { step: 9 | 1 << 40, ..half }, &[4; 64], &positions, 512),
        mask(&Dropout { site: 2, ..half }, &[4; 64], &positions, 512),
        mask(&half, &[5; 64], &positions, 512),
        mask(&half, &[4; 64], &(64..128).collect::<Vec<_>>(), 512),
    ];
    for (which, other) in others.iter().enumerate() {
        let same = base.iter().zip(other).filter(|(a, b)| a == b).count() as f64;
        let n = base.len() as f64;
        assert!((same - n / 2.0).abs() <= 4.5 * (n / 4.0).sqrt(), "{which}: {same} of {n}");
    }
}

/// On any threads and instruction set, and in any batch.
#[test]
fn the_mask_of_a_sentence_depends_only_on_it() {
    let (columns, tokens) = (259, 600);
    let sentences: Vec<u32> = (0..tokens).map(|i| i / 30).collect();
    let positions: Vec<u32> = (0..tokens).map(|i| i % 30).collect();
    let all = mask(&SETTINGS, &sentences, &positions, columns);
    for isa in all_isas() {
        for crew in CREWS {
            let mut x = vec![1.0; all.len()];
            crew.with_parallelism(|parallelism| {
                let view = view_matrix_mut(&mut x, tokens as usize, columns);
                in_place(Exec::new(isa, parallelism), &SETTINGS, &sentences, &positions, view)
                    .expect("a fit");
            });
            assert!(bits(&x) == bits(&all), "{isa}, {crew:?}");
        }
    }
    let backwards: Vec<u32> = sentences.iter().rev().copied().collect();
    let places: Vec<u32> = positions.iter().rev().copied().collect();
    let turned = mask(&SETTINGS, &backwards, &places, columns);
    for (row, turned) in all.chunks(columns).zip(turned.chunks(columns).rev()) {
        assert_eq!(row, turned);
    }
}

#[test]
fn without_a_probability_nothing_is_touched() {
    let none = Dropout { probability: 0.0, ..SETTINGS };
    let x = [1.0, -0.0, f32::MIN_POSITIVE / 4.0, f32::INFINITY, POISON];
    for isa in all_isas() {
        let mut same = x;
        let view = view_matrix_mut(&mut same, 1, 5);
        in_place(Exec::serial(isa), &none, &[1], &[1], view).expect("a fit");
        assert_eq!(bits(&same), bits(&x));
        let mut sum = [0.5, 3.0, 0.0, 1.0, 2.0];
        let to = view_matrix_mut(&mut sum, 1, 5);
        let from = view_matrix(&x, 1, 5);
        dropout(Exec::serial(isa), &none, &[1], &[1], Input::Matrix(from), WriteMode::Add, to)
            .expect("a fit");
        assert_eq!(sum[..4], [1.5, 3.0, f32::MIN_POSITIVE / 4.0, f32::INFINITY]);
        assert!(sum[4].is_nan());
    }
}

#[test]
fn wrong_calls_are_errors_that_write_nothing() {
    let isa = Isa::best();
    let mut data = [0.5; 12];
    let mut call = |settings: &Dropout, sentences: &[u32], positions: &[u32]| {
        let view = view_matrix_mut(&mut data, 3, 4);
        let result = in_place(Exec::serial(isa), settings, sentences, positions, view);
        let other = [2.0; 12];
        let x = view_matrix(&other, 3, 4);
        let view = view_matrix_mut(&mut data, 3, 4);
        let again = dropout(
            Exec::serial(isa),
            settings,
            sentences,
            positions,
            Input::Matrix(x),
            WriteMode::Add,
            view,
        );
        assert_eq!(data, [0.5; 12]);
        let error = result.expect_err("refused");
        assert_eq!(again.expect_err("refused").to_string(), error.to_string());
        error
    };
    let rows = [0, 1, 2];
    let error = call(&SETTINGS, &rows[..2], &rows);
    assert_eq!(error, errors::len("sentences", 3, 2));
    let error = call(&SETTINGS, &rows, &rows[..1]);
    assert_eq!(error, errors::len("positions", 3, 1));
    for found in [1.0, 0.999_999, -0.1, f32::INFINITY] {
        let error = call(&Dropout { probability: found, ..SETTINGS }, &rows, &rows);
        let text = format!("dropout probability: expected at least 0 and below 1, found {found}");
        assert_eq!(error.to_string(), text);
    }
    let error = call(&Dropout { probability: f32::NAN, ..SETTINGS }, &rows, &rows);
    assert!(error.to_string().ends_with("found NaN"), "{error}");
    let view = view_matrix_mut(&mut data, 4, 3).transposed();
    let error = in_place(Exec::serial(isa), &SETTINGS, &rows, &rows, view).expect_err("refused");
    assert_eq!(error, errors::strided("out", 3));
    let other = [2.0; 12];
    let x = view_matrix(&other, 4, 3);
    let view = view_matrix_mut(&mut data, 3, 4);
    let error =
        dropout(Exec::serial(isa), &SETTINGS, &rows, &rows, Input::Matrix(x), WriteMode::Add, view)
            .expect_err("refused");
    assert_eq!(error, errors::shape("x", [3, 4], [4, 3]));
}

#[test]
fn random_numbers_have_their_distribution() {
    let n = 200_000;
    let moments = |x: &[f32], power: i32| {
        x.iter().map(|&x| f64::from(x).powi(power)).sum::<f64>() / x.len() as f64
    };
    let mut x = vec![0.0; n];
    normal(1, 2, 0, 1.0, &mut x);
    // The variances of the first four moments of n normal numbers: 1, 2, 15, 96, divided by n.
    for (power, expected, variance) in
        [(1, 0.0, 1.0), (2, 1.0, 2.0), (3, 0.0, 15.0), (4, 3.0, 96.0)]
    {
        let found = moments(&x, power);
        let sigma = (variance / n as f64).sqrt();
        assert!((found - expected).abs() <= 4.0 * sigma, "moment {power} is {found}");
    }
    assert!(x.iter().all(|x| x.abs() < 6.7));
    // Neighbors are independent, and so are tensors.
    let mut y = vec![0.0; n];
    normal(1, 3, 0, 1.0, &mut y);
    let product =
        |x: &[f32], y: &[f32]| x.iter().zip(y).map(|(x, y)| f64::from(x * y)).sum::<f64>();
    for found in [product(&x, &y), product(&x, &x[1..]), product(&x, &x[2..])] {
        assert!(found.abs() <= 4.5 * (n as f64).sqrt(), "{found}");
    }
    uniform(1, 2, 0, 0.5, &mut x);
    assert!(x.iter().all(|x| x.abs() <= 0.5));
    assert!(moments(&x, 1).abs() <= 4.0 * (1.0 / 12.0 / n as f64).sqrt());
    assert!((moments(&x, 2) - 1.0 / 12.0).abs() <= 4.0 * (1.0 / 180.0 / n as f64).sqrt());
    // In parts that begin anywhere.
    for (start, len) in [(0, 1), (3, 2), (5, 11), (n - 3, 3)] {
        let mut part = vec![0.0; len];
        uniform(1, 2, start as u64, 0.5, &mut part);
        assert_eq!(part, x[start..start + len]);
        normal(1, 3, start as u64, 1.0, &mut part);
        assert_eq!(part, y[start..start + len]);
    }
}

#[test]
fn every_order_is_a_permutation_and_all_are_equally_likely() {
    for len in [0, 1, 2, 3, 100, 1001] {
        let mut order = vec![9; len];
        permutation(5, 1, &mut order);
        order.sort_unstable();
        assert!(order.iter().copied().eq(0..len as u32));
    }
    let order = |seed, epoch| {
        let mut order = [0; 4];
        permutation(seed, epoch, &mut order);
        order
    };
    let mut counts = std::collections::BTreeMap::new();
    for epoch in 0..24_000 {
        *counts.entry(order(5, epoch << 20)).or_insert(0) += 1;
    }
    assert_eq!(counts.len(), 24);
    assert!(counts.values().all(|&count: &i32| (count - 1000).abs() <= 140), "{counts:?}");
    assert!((0..20).any(|epoch| order(5, epoch) != order(6, epoch)));
}
