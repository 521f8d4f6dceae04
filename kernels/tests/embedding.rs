//! Embedding lookup and position encodings compared with the f64 reference on every instruction set.

use crate::common::{Grid, Random, assert_close};
use crate::support::errors;
use proptest::prelude::*;
use simdformer_kernels::embedding::{Positions, embed};
use simdformer_kernels::position::{PositionEncoding, encode};
use simdformer_kernels::{Expected, Isa, Matrix, MatrixMut, Parallelism, reference};

const SERIAL: Parallelism<'_> = Parallelism::Serial;
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
        let mut table = Grid::nan(vocabulary, columns, gap);
        for &id in &ids {
            table.row_mut(id as usize).fill_with(|| random.normal());
        }
        let mut places = Grid::nan(9, columns, gap + 1);
        for &row in &rows {
            places.row_mut(row as usize).fill_with(|| random.normal());
        }
        let positions = with_positions.then(|| Positions { table: places.view(), rows: &rows });
        for isa in Isa::available() {
            let mut out = Grid::nan(tokens, columns, gap + 2);
            embed(isa, table.view(), &ids, scale, positions, out.view_mut(), SERIAL).unwrap();
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
    let isa = Isa::best();
    let data = [0.0; 12];
    let table = Matrix::new(&data, 3, 4).unwrap();
    let mut out = [7.0; 8];
    let mut call = |table: Matrix<'_>,
                    ids: &[u32],
                    positions: Option<Positions<'_>>,
                    shape: (usize, usize)| {
        let view = MatrixMut::new(&mut out, shape.0, shape.1).unwrap();
        let error = embed(isa, table, ids, 1.0, positions, view, SERIAL).unwrap_err();
        assert_eq!(out, [7.0; 8]);
        error
    };
    for id in [3, u32::MAX] {
        let error = call(table, &[2, id], None, (2, 4));
        let text = format!("id of token 1: expected less than 3, found {id}");
        assert_eq!(error.to_string(), text);
    }
    let places = Matrix::new(&data[..8], 2, 4).unwrap();
    let error = call(table, &[0, 1], Some(Positions { table: places, rows: &[1, 2] }), (2, 4));
    assert_eq!(error, errors::item("position", ("token", 1), Expected::Below(2), 2));
    let error = call(table, &[0, 1], Some(Positions { table: places, rows: &[1] }), (2, 4));
    assert_eq!(error, errors::len("positions.rows", 2, 1));
    let narrow = Matrix::new(&data, 4, 3).unwrap();
    let error = call(table, &[0, 1], Some(Positions { table: narrow, rows: &[1, 0] }), (2, 4));
    assert_eq!(error, errors::size("columns", "positions.table", Expected::Exactly(4), 3));
    let error = call(table, &[0, 1], None, (4, 2));
    assert_eq!(error, errors::shape("out", [2, 4], [4, 2]));
    let error = call(narrow.transposed(), &[0, 1], None, (2, 4));
    assert_eq!(error, errors::strided("table", 3));
    let empty = Matrix::new(&[], 0, 4).unwrap();
    assert_eq!(
        call(empty, &[0, 0], None, (2, 4)),
        errors::item("id", ("token", 0), Expected::Below(0), 0)
    );
}

#[test]
#[cfg(feature = "rayon")]
fn the_same_bits_on_any_threads() {
    let mut random = Random(4);
    let table: Vec<f32> = (0..50 * 333).map(|_| random.normal()).collect();
    let table = Matrix::new(&table, 50, 333).unwrap();
    let ids: Vec<u32> = (0..200).map(|_| random.below(50) as u32).collect();
    for isa in Isa::available() {
        let all = |parallelism: Parallelism<'_>| {
            let mut out = vec![f32::NAN; 200 * 333];
            let view = MatrixMut::new(&mut out, 200, 333).unwrap();
            embed(isa, table, &ids, 3.3, None, view, parallelism).unwrap();
            out
        };
        let want = all(SERIAL);
        for pool in crate::common::pools() {
            assert_eq!(pool.install(|| all(Parallelism::Rayon)), want);
        }
    }
}

fn encoded(encoding: PositionEncoding<'_>, first: usize, rows: usize, d: usize) -> Grid {
    let mut table = Grid::nan(rows, d, 3);
    encode(encoding, first, table.view_mut()).unwrap();
    table.assert_gaps_untouched();
    table
}

#[test]
fn encodings_match_the_reference() {
    let learned: Vec<f32> = (0..700 * 65).map(|i| i as f32).collect();
    for d in [4, 5, 7, 48, 64, 65] {
        let learned = Matrix::new(&learned, 700, d).unwrap();
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
        let error =
            encode(encoding, first, MatrixMut::new(&mut data, rows, columns).unwrap()).unwrap_err();
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
    let table = Matrix::new(&learned, 5, 4).unwrap();
    let learned = |offset| PositionEncoding::Learned { table, offset };
    let rows = |rows| errors::size("rows", "table", Expected::AtLeast(rows), 5);
    assert_eq!(
        call(learned(0), 0, 2, 3),
        errors::size("columns", "table", Expected::Exactly(3), 4)
    );
    assert_eq!(call(learned(2), 1, 3, 4), rows(6));
    let error = call(learned(usize::MAX), 9, 3, 4);
    assert_eq!(error, rows(usize::MAX));
    assert_eq!(encode(learned(2), 0, MatrixMut::new(&mut data, 3, 4).unwrap()), Ok(()));
}
