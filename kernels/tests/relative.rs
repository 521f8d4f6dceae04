//! Buckets of relative positions compared with those of transformers, and the errors.

use crate::support::*;
use simdformer_kernels::relative::RelativeBuckets;
use simdformer_kernels::{Bias, Expected};

/// The output of `data/t5_buckets.py`.
const GOLDEN: &str = include_str!("data/t5_buckets.txt");

/// A table of `heads` heads whose weight encodes the bucket and the head, and the whole requested table.
fn table(buckets: &RelativeBuckets, count: usize, heads: usize, positions: usize) -> Vec<f32> {
    let weight: Vec<f32> =
        (0..count * heads).map(|at| (at / heads + 1000 * (at % heads)) as f32).collect();
    let mut table = vec![f32::NAN; buckets.table_len(heads, positions).unwrap()];
    buckets.fill(view_matrix(&weight, count, heads), positions, &mut table).unwrap();
    table
}

#[test]
fn tables_match_transformers() {
    let mut lines = 0;
    for line in GOLDEN.lines() {
        let mut words = line.split_whitespace();
        let bidirectional = words.next() == Some("bidirectional");
        let mut number = || words.next().unwrap().parse::<usize>().unwrap();
        let (count, max_distance, positions) = (number(), number(), number());
        let expected: Vec<f32> = words
            .flat_map(|run| {
                let (bucket, times) = run.split_once('*').unwrap();
                std::iter::repeat_n(bucket.parse().unwrap(), times.parse().unwrap())
            })
            .collect();
        let buckets = RelativeBuckets::new(count, max_distance, bidirectional).unwrap();
        let found = table(&buckets, count, 3, positions);
        let distances = if bidirectional { 2 * positions - 1 } else { positions };
        assert_eq!(expected.len(), distances, "{line}");
        for head in 0..3 {
            let row: Vec<f32> = expected.iter().map(|b| b + 1000.0 * head as f32).collect();
            assert_eq!(found[head * distances..][..distances], row, "head {head} of {line}");
        }
        let Bias::Relative { data, head_stride, zero } = buckets.bias(positions, &found) else {
            panic!("a dense bias");
        };
        assert_eq!((data.len(), head_stride, zero), (found.len(), distances, positions - 1));
        lines += 1;
    }
    assert_eq!(lines, 22);
}

/// Every distance has a bucket, and the bucket of a farther key is not a nearer one.
#[test]
fn buckets_grow_with_the_distance() {
    for (count, max_distance) in [(32, 128), (4, 2), (5, 2), (7, 1000), (200, 101)] {
        for bidirectional in [false, true] {
            let Ok(buckets) = RelativeBuckets::new(count, max_distance, bidirectional) else {
                assert!(!bidirectional && max_distance <= count / 2, "{count}, {max_distance}");
                continue;
            };
            let side = if bidirectional { count / 2 } else { count };
            let mut before = 0;
            for n in 0..5000 {
                let behind = buckets.bucket(-n);
                assert!(behind >= before && behind < side, "{n} of {count}, {max_distance}");
                before = behind;
                let ahead = buckets.bucket(n);
                let expected = match (n, bidirectional) {
                    (0, _) => 0,
                    (_, true) => side + behind,
                    (_, false) => 0,
                };
                assert_eq!(ahead, expected, "{n} of {count}, {max_distance}");
            }
            for far in [isize::MIN, isize::MIN + 1, -(1 << 24) - 1] {
                assert_eq!(buckets.bucket(far), side - 1, "{far} of {count}, {max_distance}");
            }
            assert!(buckets.bucket(isize::MAX) < count);
        }
    }
}

#[test]
fn an_empty_request_writes_nothing() {
    let buckets = RelativeBuckets::new(32, 128, true).unwrap();
    assert!(table(&buckets, 32, 4, 0).is_empty());
    assert!(table(&buckets, 32, 0, 7).is_empty());
    assert_eq!(table(&buckets, 32, 2, 1), [0.0, 1000.0]);
}

#[test]
fn impossible_settings_are_errors() {
    let new = RelativeBuckets::new;
    let size = |property, least, found| {
        Err(errors::size(property, "the relative buckets", Expected::AtLeast(least), found))
    };
    assert_eq!(new(3, 128, true), size("number", 4, 3));
    assert_eq!(new(1, 128, false), size("number", 2, 1));
    assert_eq!(new(32, 8, true), size("largest distance", 9, 8));
    assert_eq!(new(32, 16, false), size("largest distance", 17, 16));
    let buckets = new(32, 128, true).unwrap();
    assert_eq!(
        buckets.table_len(2, usize::MAX),
        Err(errors::too_large("the table of relative positions"))
    );
    assert_eq!(
        buckets.table_len(usize::MAX / 2, 2),
        Err(errors::too_large("the table of relative positions"))
    );
    let weight = [0.0; 64];
    let mut table = [7.0; 10];
    let weight = |rows| view_matrix(&weight, rows, 2);
    let found = buckets.fill(weight(31), 3, &mut table);
    assert_eq!(found, Err(errors::size("rows", "weight", Expected::Exactly(32), 31)));
    for floats in [9, 8] {
        let found = buckets.fill(weight(32), 3, &mut table[..floats]);
        assert_eq!(found, Err(errors::len("table", 10, floats)));
    }
    assert_eq!(table, [7.0; 10]);
    let error = buckets.fill(weight(32), 2, &mut table).unwrap_err().to_string();
    assert_eq!(error, "length of table: expected 6, found 10");
}
