//! The gradient of an embedding lookup compared with the f64 oracle.

use crate::support::*;
use proptest::prelude::*;
use simdformer_kernels::reference::{self, optimizer as oracle};
use simdformer_kernels::train::{Lookup, embedding_gradient, embedding_gradient_scratch};
use simdformer_kernels::{Exec, Expected, Isa};

fn scratch(rows: usize, tokens: usize) -> Vec<u32> {
    vec![0xdead_beef; embedding_gradient_scratch(rows, tokens).expect("small")]
}

#[test]
fn the_oracle_is_the_derivative_of_the_lookup() {
    let mut random = Random::new(2);
    let (ids, scale) = ([1u32, 3, 1, 0], 1.75f32);
    let (table, d_x) = (random.values(4 * 3), random.values(4 * 3));
    let gradient = view_matrix(&d_x, 4, 3);
    // A weighted sum of the results of the lookup.
    let loss = |table: &[f64]| -> f64 {
        let weight = |i: usize, c: usize| f64::from(gradient.at(i, c)) * f64::from(scale);
        let token = |(i, &id): (usize, &u32)| {
            (0..3).map(|c| weight(i, c) * table[id as usize * 3 + c]).sum::<f64>()
        };
        ids.iter().enumerate().map(token).sum()
    };
    // The lookup equals that of the forward oracle.
    assert_eq!(reference::embedding(table[0], scale, 0.0), f64::from(table[0]) * f64::from(scale));
    let table: Vec<f64> = table.iter().map(|&x| x.into()).collect();
    for at in 0..12 {
        let moved = |step: f64| {
            let mut table = table.clone();
            table[at] += step;
            loss(&table)
        };
        let slope = (moved(1e-3) - moved(-1e-3)) / 2e-3;
        let (row, column) = ((at / 3) as u32, at % 3);
        let [exact, _] = oracle::embedding_gradient(&ids, gradient, scale, None, row, column);
        assert!((slope - exact).abs() <= 1e-6 * exact.abs() + 1e-12, "{at}: {slope}, {exact}");
    }
}

proptest! {
    #[test]
    fn rows_match_the_oracle(
        rows in 1usize..12,
        tokens in 0usize..60,
        columns in 0usize..70,
        gaps in (0usize..4, 0usize..4),
        scale in prop_oneof![Just(1.0f32), Just(22.627_417), Just(-0.3)],
        skips in any::<bool>(),
        seed: u64,
    ) {
        let mut random = Random::new(seed);
        // Rows of tokens that do not occur, and tokens of a skipped row, hold NaN, which a kernel
        // may not read.
        let ids: Vec<u32> =
            (0..tokens).map(|_| (random.below(rows) / 2 * 2).min(rows - 1) as u32).collect();
        let skip = (skips && tokens > 0).then(|| ids[random.below(tokens)]);
        let d_x = Strided::new(tokens, columns, gaps.0, |token, _| {
            if Some(ids[token]) == skip { POISON } else { random.value() }
        });
        let taught = |row: usize| ids.contains(&(row as u32)) && Some(row as u32) != skip;
        let before = Strided::new(rows, columns, gaps.1, |row, _| {
            if taught(row) { random.value() } else { POISON }
        });
        let mut first: Option<Vec<f32>> = None;
        for isa in all_isas() {
            let mut table = before.clone();
            let mut buffer = scratch(rows, tokens);
            let lookup = Lookup { ids: &ids, scale, skip };
            embedding_gradient(Exec::serial(isa), lookup, d_x.view(), table.view_mut(), &mut buffer)
                .expect("a fit");
            table.assert_gaps_untouched();
            for row in 0..rows {
                for column in 0..columns {
                    let (found, was) = (table.at(row, column), before.at(row, column));
                    if !taught(row) {
                        assert_eq!(found.to_bits(), POISON.to_bits());
                        continue;
                    }
                    let [sum, absolute] = oracle::embedding_gradient(
                        &ids, d_x.view(), scale, skip, row as u32, column,
                    );
                    let exact = f64::from(was) + sum;
                    let n = ids.iter().filter(|&&id| id as usize == row).count() as f64;
                    let bound = (n + 1.0) * UNIT * (f64::from(was).abs() + absolute);
                    assert_close(found, exact, bound * 1.001, format_args!("{isa} ({row}, {column})"));
                }
            }
            let first = first.get_or_insert_with(|| table.data.clone());
            assert_eq!(bits(first), bits(&table.data), "{isa}");
        }
    }
}

#[test]
fn bits_are_those_of_one_thread_in_the_order_of_the_tokens() {
    let mut random = Random::new(8);
    for (rows, tokens, columns) in [(2318, 3000, 40), (7, 900, 129), (50, 40, 3), (1, 5000, 64)] {
        // Most tokens have few different ids.
        let ids: Vec<u32> =
            (0..tokens).map(|_| (random.below(rows) * random.below(rows) / rows) as u32).collect();
        let d_x = random.values(tokens * columns);
        let before = random.values(rows * columns);
        let scale = 1.3;
        let mut expected = before.clone();
        for (&id, d_x) in ids.iter().zip(d_x.chunks(columns)) {
            for (sum, x) in expected[id as usize * columns..].iter_mut().zip(d_x) {
                *sum += x * scale;
            }
        }
        for isa in all_isas() {
            for crew in CREWS {
                let mut table = before.clone();
                let mut buffer = scratch(rows, tokens);
                crew.with_parallelism(|parallelism| {
                    let d_x = view_matrix(&d_x, tokens, columns);
                    let view = view_matrix_mut(&mut table, rows, columns);
                    let lookup = Lookup { ids: &ids, scale, skip: None };
                    embedding_gradient(Exec::new(isa, parallelism), lookup, d_x, view, &mut buffer)
                        .expect("a fit");
                });
                assert!(bits(&table) == bits(&expected), "{isa}, {crew:?}");
            }
        }
    }
}

#[test]
fn wrong_calls_are_errors_that_write_nothing() {
    let d_x = [0.5; 12];
    let mut table = [0.25; 20];
    let mut buffer = [3; 8];
    let mut call = |ids: &[u32], shape: [usize; 2], words: usize| {
        let d_x = view_matrix(&d_x, shape[0], shape[1]);
        let view = view_matrix_mut(&mut table, 5, 4);
        let buffer = &mut buffer[..words];
        let lookup = Lookup { ids, scale: 1.0, skip: None };
        let result = embedding_gradient(Exec::serial(Isa::best()), lookup, d_x, view, buffer);
        assert_eq!((table, &*buffer), ([0.25; 20], &[3; 8][..words]));
        result.expect_err("refused")
    };
    let ids = [4, 0, 4];
    let error = call(&ids, [3, 3], 8);
    assert_eq!(error.to_string(), "shape of d_x: expected [3, 4], found [3, 3]");
    let error = call(&ids[..2], [3, 4], 8);
    assert_eq!(error, errors::shape("d_x", [2, 4], [3, 4]));
    let error = call(&[0, 5, 9], [3, 4], 8);
    assert_eq!(error, errors::item("id", ("token", 1), Expected::Below(5), 5));
    assert_eq!(call(&ids, [3, 4], 7), errors::min_len("scratch", 8, 7));
    let d_x = view_matrix(&d_x, 4, 3).transposed();
    let view = view_matrix_mut(&mut table, 5, 4);
    let lookup = Lookup { ids: &ids, scale: 1.0, skip: None };
    let error = embedding_gradient(Exec::serial(Isa::best()), lookup, d_x, view, &mut buffer);
    assert_eq!(error, Err(errors::strided("d_x", 3)));
}
