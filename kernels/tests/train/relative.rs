//! The gradient of the learned weight of relative positions.

use crate::support::*;
use simdformer_kernels::Expected;
use simdformer_kernels::relative::RelativeBuckets;
use simdformer_kernels::train::WriteMode;

const BUCKETS: [(usize, usize, bool); 5] =
    [(32, 128, true), (32, 128, false), (4, 3, true), (2, 9, false), (7, 1000, true)];

/// Sums of small integers are exact in any order: every entry of the table is added to its bucket once.
#[test]
fn each_bucket_sums_its_distances() {
    for (count, max_distance, bidirectional) in BUCKETS {
        let buckets = RelativeBuckets::new(count, max_distance, bidirectional).unwrap();
        for positions in [0, 1, 2, 5, 40, 300] {
            for heads in [0, 1, 3] {
                let len = buckets.table_len(heads, positions).unwrap();
                let distances = len / heads.max(1);
                let d_table = Random::new(positions as u64).integers(len, 99);
                let mut expected = vec![0.0; count * heads];
                for (at, x) in d_table.iter().enumerate() {
                    let distance = (at % distances) as isize - (positions as isize - 1);
                    expected[buckets.bucket(distance) * heads + at / distances] += x;
                }
                let mut random = Random::new(4);
                for (write, before) in [(WriteMode::Store, f32::NAN), (WriteMode::Add, 0.0)] {
                    for strides in [(heads, 1), (heads + 3, 1), (1, count + 2)] {
                        let add = write == WriteMode::Add;
                        let mut found = Strided::new(count, heads, strides, |_, _| {
                            if add { random.integer(50) } else { before }
                        });
                        let old = found.clone();
                        buckets.gradient(positions, &d_table, write, found.view_mut()).unwrap();
                        found.assert_gaps_untouched();
                        for bucket in 0..count {
                            for head in 0..heads {
                                let old = if add { old.at(bucket, head) } else { 0.0 };
                                let expected = old + expected[bucket * heads + head];
                                assert_eq!(found.at(bucket, head), expected, "{bucket}, {head}");
                            }
                        }
                    }
                }
            }
        }
    }
}

/// `<fill(weight), d_table> = <weight, gradient(d_table)>`.
#[test]
fn the_gradient_is_the_adjoint_of_the_table() {
    for (count, max_distance, bidirectional) in BUCKETS {
        let buckets = RelativeBuckets::new(count, max_distance, bidirectional).unwrap();
        let (heads, positions) = (3, 150);
        let len = buckets.table_len(heads, positions).unwrap();
        let mut random = Random::new(1);
        let (weight, d_table) = (random.values(count * heads), random.values(len));
        let mut table = vec![f32::NAN; len];
        buckets.fill(view_matrix(&weight, count, heads), positions, &mut table).unwrap();
        let mut gradient = vec![f32::NAN; count * heads];
        let view = view_matrix_mut(&mut gradient, count, heads);
        buckets.gradient(positions, &d_table, WriteMode::Store, view).unwrap();
        let dot = |a: &[f32], b: &[f32]| -> f64 {
            a.iter().zip(b).map(|(&a, &b)| f64::from(a) * f64::from(b)).sum()
        };
        let difference = dot(&table, &d_table) - dot(&weight, &gradient);
        assert!(difference.abs() <= len as f64 * len as f64 * UNIT, "{difference}");
    }
}

#[test]
fn tables_and_weights_of_another_size_are_errors() {
    let buckets = RelativeBuckets::new(4, 3, true).unwrap();
    let mut gradient = [POISON; 10];
    for (rows, floats, expected) in [
        (5, 10, errors::size("rows", "gradient", Expected::Exactly(4), 5)),
        (4, 9, errors::len("d_table", 10, 9)),
        (4, 11, errors::len("d_table", 10, 11)),
    ] {
        let view = view_matrix_mut(&mut gradient, rows, 2);
        let found = buckets.gradient(3, &[0.0; 11][..floats], WriteMode::Store, view);
        assert_eq!(found, Err(expected));
    }
    assert!(is_poison(&gradient));
}
