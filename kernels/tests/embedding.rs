//! Embedding lookup and position encodings compared with the f64 reference on every instruction set.

use crate::support::*;
use proptest::prelude::*;
use simdformer_kernels::embedding::{Positions, embed};
use simdformer_kernels::position::{PositionEncoding, encode};
use simdformer_kernels::{Exec, Expected, Isa, Parallelism, reference};

const U: f64 = 5.960_464_477_539_063e-8;

proptest! {
    /// Only the rows that are looked up hold numbers, so a read of another row would show.
    #[test]
    fn rows_match_the_reference_and_no_other_row_is_read(
        vocabulary in 1usize..30,
        columns in 0usize..80,
        tokens in 0usize..12,
        gap in 0usize..4,
        scale in prop_oneof![Just(1.0f32), Just(22.627_417), Just(-0.3)],
        with_positions in any::<bool>(),
        seed: u64,
    ) {
        let mut random = Random(seed);
        let ids: Vec<u32> = (0..tokens).map(|_| random.below(vocabulary) as u32).collect();
        let rows: Vec<u32> = (0..tokens).map(|_| random.below(9) as u32).collect();
        let mut table = Strided::nan(vocabulary, columns, gap);
        for &id in &ids {
            table.row_mut(id as usize).fill_with(|| random.normal());
        }
        let mut places = Strided::nan(9, columns, gap + 1);
        for &row in &rows {
            places.row_mut(row as usize).fill_with(|| random.normal());
        }
        let positions = with_positions.then(|| Positions { table: places.view(), rows: &rows });
        for isa in Isa::available() {
            let mut out = Strided::nan(tokens, columns, gap + 2);
            embed(Exec::serial(isa), table.view(), &ids, scale, positions, out.view_mut()).unwrap();
            out.assert_gaps_untouched();
            for token in 0..tokens {
                for column in 0..columns {
                    let element = table.row(ids[token] as usize)[column];
                    let place = if with_positions { places.row(rows[token] as usize)[column] } else { 0.0 };
                    let exact = reference::embedding(element, scale, place);
                    let bound = U * (exact.abs() + f64::from(element * scale).abs());
                    assert_close(out.row(token)[column], exact, bound, "embedding");
                }
            }
        }
    }
}

#[test]
fn an_id_outside_the_table_is_an_error_that_names_it() {
    let (data, mut out) = ([0.0; 12], [7.0; 8]);
    let (table, narrow) = (view_matrix(&data, 3, 4), view_matrix(&data, 4, 3));
    let places = |table, rows| Some(Positions { table, rows });
    let two = view_matrix(&data[..8], 2, 4);
    for (table, ids, positions, (rows, columns), text) in [
        (table, [2, 3], None, (2, 4), "id of token 1: expected less than 3, found 3"),
        (
            table,
            [2, u32::MAX],
            None,
            (2, 4),
            "id of token 1: expected less than 3, found 4294967295",
        ),
        (
            table,
            [0, 1],
            places(two, &[1, 2]),
            (2, 4),
            "position of token 1: expected less than 2, found 2",
        ),
        (table, [0, 1], places(two, &[1]), (2, 4), "length of positions.rows: expected 2, found 1"),
        (
            table,
            [0, 1],
            places(narrow, &[1, 0]),
            (2, 4),
            "columns of positions.table: expected 4, found 3",
        ),
        (
            table,
            [0, 1],
            None,
            (4, 2),
            "shape of out: expected [2, 4], found [4, 2]; the axes are swapped: call `transposed()` on its matrix",
        ),
        (narrow.transposed(), [0, 1], None, (2, 4), "column stride of table: expected 1, found 3"),
        (
            view_matrix(&[], 0, 4),
            [0, 0],
            None,
            (2, 4),
            "id of token 0: expected less than 0, found 0",
        ),
    ] {
        let to = view_matrix_mut(&mut out, rows, columns);
        let error = embed(Exec::serial(Isa::best()), table, &ids, 1.0, positions, to).unwrap_err();
        assert_eq!(error.to_string(), text);
        assert_eq!(out, [7.0; 8]);
    }
}

#[test]
#[cfg(feature = "rayon")]
fn the_same_bits_on_any_threads() {
    let mut random = Random(4);
    let table: Vec<f32> = random.normals(50 * 333);
    let table = view_matrix(&table, 50, 333);
    let ids: Vec<u32> = (0..200).map(|_| random.below(50) as u32).collect();
    for isa in Isa::available() {
        let all = |parallelism: Parallelism<'_>| {
            let mut out = vec![f32::NAN; 200 * 333];
            let view = view_matrix_mut(&mut out, 200, 333);
            embed(Exec::new(isa, parallelism), table, &ids, 3.3, None, view).unwrap();
            out
        };
        let want = all(SERIAL);
        for pool in pools() {
            assert_eq!(pool.install(|| all(Parallelism::Rayon)), want);
        }
    }
}

fn encoded(encoding: PositionEncoding<'_>, first: usize, rows: usize, d: usize) -> Strided {
    let mut table = Strided::nan(rows, d, 3);
    encode(encoding, first, table.view_mut()).unwrap();
    table.assert_gaps_untouched();
    table
}

#[test]
fn encodings_match_the_reference() {
    let learned: Vec<f32> = (0..700 * 65).map(|i| i as f32).collect();
    for d in [4, 5, 7, 48, 64, 65] {
        let learned = view_matrix(&learned, 700, d);
        for encoding in [
            PositionEncoding::HalfSplit,
            PositionEncoding::HalfSplitClosed { offset: 2 },
            PositionEncoding::HalfSplitSingle { offset: 2 },
            PositionEncoding::Interleaved,
            PositionEncoding::Learned { table: learned, offset: 2 },
        ] {
            for first in [0, 137] {
                let table = encoded(encoding, first, 500, d);
                for row in 0..500 {
                    for column in 0..d {
                        let exact = reference::position(encoding, first + row, column, d);
                        assert_close(
                            table.row(row)[column],
                            exact,
                            1e-7 * exact.abs() + 1e-9,
                            "position",
                        );
                    }
                }
            }
        }
    }
}

/// Values computed by hand from the formulas of the models.
#[test]
fn encodings_have_the_models_layouts() {
    let near = |found: f32, want: f64| assert_close(found, want, 1e-7, "position");
    let table = encoded(PositionEncoding::HalfSplit, 0, 4, 6);
    near(table.row(3)[1], (3.0 / 10000f64.powf(1.0 / 3.0)).sin());
    near(table.row(3)[5], (3.0 / 10000f64.powf(2.0 / 3.0)).cos());
    let table = encoded(PositionEncoding::HalfSplitClosed { offset: 2 }, 0, 4, 7);
    near(table.row(1)[2], (3.0 / 10000f64).sin());
    near(table.row(1)[3], 3f64.cos());
    assert_eq!(table.row(1)[6], 0.0);
    let table = encoded(PositionEncoding::Interleaved, 0, 4, 6);
    near(table.row(3)[2], (3.0 / 10000f64.powf(1.0 / 3.0)).sin());
    near(table.row(3)[3], (3.0 / 10000f64.powf(1.0 / 3.0)).cos());
    // An odd width has one more sine than cosines.
    let table = encoded(PositionEncoding::HalfSplit, 1, 1, 5);
    near(table.row(0)[2], (1.0 / 10000f64.powf(4.0 / 5.0)).sin());
    near(table.row(0)[3], 1f64.cos());
}

/// The scalar product of the encodings of two positions depends only on their distance.
#[test]
fn distances_between_positions_are_shift_invariant() {
    for encoding in [
        PositionEncoding::HalfSplit,
        PositionEncoding::HalfSplitClosed { offset: 2 },
        PositionEncoding::Interleaved,
    ] {
        let table = encoded(encoding, 0, 60, 64);
        let dot = |i: usize, j: usize| -> f64 {
            table.row(i).iter().zip(table.row(j)).map(|(&a, &b)| f64::from(a) * f64::from(b)).sum()
        };
        for shift in [1, 7] {
            for i in 0..50 {
                let error = (dot(i, i + shift) - dot(0, shift)).abs();
                assert!(error <= 64.0 * 2.0 * U, "{error}");
            }
        }
    }
}

/// Compared with plain f32 arithmetic, whose exponential may be wrong by an ulp, times the position. Far
/// from the start the result must differ from that of the exact formula.
#[test]
fn single_precision_is_reproduced() {
    const D: usize = 64;
    let (positions, offset) = (1100, 2);
    let table = encoded(PositionEncoding::HalfSplitSingle { offset }, 0, positions, D);
    let step = -(1e4f64.ln() / 31.0);
    let mut furthest = 0.0f64;
    for p in 0..positions {
        let (row, position) = (table.row(p), (p + offset) as f32);
        for (k, &sine) in row[..D / 2].iter().enumerate() {
            let angle = position * (k as f32 * step as f32).exp();
            let bound = 2e-7 * (position + 2.0);
            assert!((sine - angle.sin()).abs() <= bound, "{p} {k}: {sine}");
            assert!((row[D / 2 + k] - angle.cos()).abs() <= bound, "{p} {k}");
            let exact = (f64::from(position) * (k as f64 * step).exp()).sin();
            furthest = furthest.max((f64::from(sine) - exact).abs());
        }
    }
    assert!(furthest > 1e-5 && furthest < 3e-4, "{furthest}");
}

#[test]
fn wrong_tables_are_errors() {
    let mut data = [7.0; 24];
    let mut call = |encoding: PositionEncoding<'_>, first: usize, rows: usize, columns: usize| {
        let error = encode(encoding, first, view_matrix_mut(&mut data, rows, columns)).unwrap_err();
        assert_eq!(data, [7.0; 24]);
        error
    };
    for d in [1, 2, 3] {
        for encoding in [
            PositionEncoding::HalfSplitClosed { offset: 0 },
            PositionEncoding::HalfSplitSingle { offset: 0 },
        ] {
            let error = call(encoding, 0, 2, d);
            assert_eq!(error, errors::size("columns", "out", Expected::AtLeast(4), d));
        }
    }
    let learned = [0.0; 20];
    let table = view_matrix(&learned, 5, 4);
    let learned = |offset| PositionEncoding::Learned { table, offset };
    let rows = |rows| errors::size("rows", "table", Expected::AtLeast(rows), 5);
    assert_eq!(
        call(learned(0), 0, 2, 3),
        errors::size("columns", "table", Expected::Exactly(3), 4)
    );
    assert_eq!(call(learned(2), 1, 3, 4), rows(6));
    let error = call(learned(usize::MAX), 9, 3, 4);
    assert_eq!(error, rows(usize::MAX));
    assert_eq!(encode(learned(2), 0, view_matrix_mut(&mut data, 3, 4)), Ok(()));
}
