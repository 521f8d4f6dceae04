//! Argmax and top-k compared with the reference on every instruction set.

use crate::support::*;
use proptest::prelude::*;
use simdformer_kernels::topk::{argmax, top_k};
use simdformer_kernels::{Error, Exec, Expected, Isa, Matrix, Parallelism, reference};

proptest! {
    #[test]
    fn ranks_match_the_reference(
        rows in 0usize..4,
        columns in 1usize..300,
        gap in 0usize..4,
        kinds in prop_oneof![Just(2usize), Just(5), Just(1000)],
        share in 0.0f32..1.0,
        holes in any::<bool>(),
        seed: u64,
    ) {
        let k = (share * (columns + 1) as f32) as usize;
        let mut random = Random(seed);
        let special = [f32::NAN, f32::NEG_INFINITY, f32::INFINITY, -0.0, f32::MIN];
        let scores = Strided::new(rows, columns, gap, |_, _| match random.below(9) {
            i if holes && i < special.len() => special[i],
            _ => random.below(kinds) as f32 - 1.0,
        });
        let ranks = |row: usize| -> Vec<_> {
            (0..k.max(1)).map(|rank| reference::rank(scores.row(row), rank)).collect()
        };
        let exact: Vec<Vec<_>> = (0..rows).map(ranks).collect();
        for isa in Isa::available() {
            let (mut values, mut indices) = (vec![9.0; rows * k], vec![9; rows * k]);
            top_k(Exec::serial(isa), scores.view(), k, &mut values, &mut indices).unwrap();
            let mut best = vec![9; rows];
            argmax(Exec::serial(isa), scores.view(), &mut best).unwrap();
            for row in 0..rows {
                let entries = scores.row(row);
                prop_assert_eq!(Some(best[row] as usize), exact[row][0]);
                for rank in 0..k {
                    let index = indices[row * k + rank] as usize;
                    prop_assert_eq!(Some(index), exact[row][rank], "rank {} on {}", rank, isa);
                    prop_assert_eq!(values[row * k + rank].to_bits(), entries[index].to_bits());
                }
            }
        }
    }
}

#[test]
fn long_rows_in_every_order() {
    let n = 100_003;
    let mut random = Random(6);
    let ascending: Vec<f32> = (0..n).map(|i| i as f32).collect();
    let descending: Vec<f32> = (0..n).map(|i| -(i as f32)).collect();
    let ties = vec![1.0; n];
    let shuffled: Vec<f32> = random.normals(n);
    for isa in Isa::available() {
        for (row, order) in [(&ascending, 0), (&descending, 1), (&ties, 1), (&shuffled, 2)] {
            let matrix = view_matrix(row, 1, n);
            for k in [1, 8, 100] {
                let (mut values, mut indices) = (vec![9.0; k], vec![9; k]);
                top_k(Exec::serial(isa), matrix, k, &mut values, &mut indices).unwrap();
                let mut sorted: Vec<u32> = (0..n as u32).collect();
                sorted
                    .sort_by(|&a, &b| row[b as usize].total_cmp(&row[a as usize]).then(a.cmp(&b)));
                assert_eq!(indices, sorted[..k], "order {order}, k {k}, {isa}");
                let mut best = [9];
                argmax(Exec::serial(isa), matrix, &mut best).unwrap();
                assert_eq!(best[0], sorted[0]);
            }
        }
    }
}

#[test]
fn nan_is_chosen_last() {
    for isa in Isa::available() {
        for n in [1, 3, 40, 5000] {
            let mut row = vec![f32::NAN; n];
            let mut best = [9];
            argmax(Exec::serial(isa), view_matrix(&row, 1, n), &mut best).unwrap();
            assert_eq!(best, [0]);
            row[n - 1] = f32::NEG_INFINITY;
            argmax(Exec::serial(isa), view_matrix(&row, 1, n), &mut best).unwrap();
            assert_eq!(best, [n as u32 - 1]);
        }
    }
}

#[test]
#[cfg(feature = "rayon")]
fn the_same_rows_on_any_threads() {
    let mut random = Random(8);
    let data: Vec<f32> = random.normals(40 * 3001);
    let scores = view_matrix(&data, 40, 3001);
    for isa in Isa::available() {
        let all = |parallelism: Parallelism<'_>| {
            let (mut values, mut indices) = (vec![9.0; 40 * 5], vec![9; 40 * 5]);
            top_k(Exec::new(isa, parallelism), scores, 5, &mut values, &mut indices).unwrap();
            let mut best = vec![9; 40];
            argmax(Exec::new(isa, parallelism), scores, &mut best).unwrap();
            (values, indices, best)
        };
        let want = all(SERIAL);
        for pool in pools() {
            assert_eq!(pool.install(|| all(Parallelism::Rayon)), want);
        }
    }
}

#[test]
fn wrong_calls_are_errors() {
    let isa = Isa::best();
    let data = [0.0; 12];
    let scores = view_matrix(&data, 3, 4);
    let (mut values, mut indices) = ([9.0; 12], [9; 12]);
    let mut call = |scores: Matrix<'_>, k: usize, v: usize, i: usize| {
        top_k(Exec::serial(isa), scores, k, &mut values[..v], &mut indices[..i])
    };
    assert_eq!(
        call(scores, 5, 12, 12),
        Err(errors::size("columns", "scores", Expected::AtLeast(5), 4))
    );
    assert_eq!(call(scores, 2, 5, 6), Err(errors::len("values", 6, 5)));
    assert_eq!(call(scores, 2, 6, 7), Err(errors::len("indices", 6, 7)));
    assert_eq!(call(scores.transposed(), 2, 8, 8), Err(errors::strided("scores", 4)));
    assert_eq!(call(scores, 0, 0, 0), Ok(()));
    let empty = view_matrix(&[], 3, 0);
    let error = argmax(Exec::serial(isa), empty, &mut indices[..3]).unwrap_err();
    assert_eq!(error, errors::size("columns", "scores", Expected::AtLeast(1), 0));
    let error = argmax(Exec::serial(isa), scores, &mut indices[..2]).unwrap_err();
    assert_eq!(error, errors::len("indices", 3, 2));
    let repeated = Matrix::strided(&data, usize::MAX / 8, 4, 0, 1).unwrap();
    let error = top_k(Exec::serial(isa), repeated, 4, &mut values, &mut indices).unwrap_err();
    assert!(matches!(error, Error::Size { operand: "values", found: 12, .. }), "{error}");
}
