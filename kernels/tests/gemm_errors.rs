//! Every error of GEMM, packing and views: each is reached, each has a text of its own, and nothing is
//! written.

use crate::support::errors;
use crate::support::{POISON, all_isas};
use simdformer_kernels::{
    Epilogue, Error, Expected, Matrix, MatrixMut, PackOptions, PackedMatrix, Parallelism, PostOp,
    gemm, reference,
};
use std::collections::BTreeSet;

#[test]
fn every_error_is_reached_and_nothing_is_written() {
    let zeros = vec![0.0f32; 4096];
    let matrix = |rows, columns| Matrix::new(&zeros, rows, columns).expect("a small matrix");
    for isa in all_isas() {
        let mut buffer = vec![0.0; PackedMatrix::buffer_len(isa, 5, 7).expect("a small size")];
        let packed = PackedMatrix::pack(isa, matrix(5, 7), &mut buffer).expect("a fit");
        let plain = Epilogue::default();
        let short = Epilogue { bias: Some(&zeros[..6]), ..plain };
        let long = Epilogue { bias: Some(&zeros[..8]), ..plain };
        let residual =
            |rows, columns| Epilogue { post_op: PostOp::Add(matrix(rows, columns)), ..plain };
        let cases = [
            ((3, 4), plain, (3, 7), errors::size("columns", "a", Expected::Exactly(5), 4)),
            ((3, 6), plain, (3, 7), errors::size("columns", "a", Expected::Exactly(5), 6)),
            ((3, 5), plain, (2, 7), errors::shape("c", [3, 7], [2, 7])),
            ((3, 5), plain, (4, 7), errors::shape("c", [3, 7], [4, 7])),
            ((3, 5), plain, (3, 6), errors::shape("c", [3, 7], [3, 6])),
            ((3, 5), plain, (3, 8), errors::shape("c", [3, 7], [3, 8])),
            ((3, 5), short, (3, 7), errors::len("bias", 7, 6)),
            ((3, 5), long, (3, 7), errors::len("bias", 7, 8)),
            ((3, 5), residual(2, 7), (3, 7), errors::shape("post_op", [3, 7], [2, 7])),
            ((3, 5), residual(3, 8), (3, 7), errors::shape("post_op", [3, 7], [3, 8])),
        ];
        let mut messages = BTreeSet::new();
        for ((a_rows, a_columns), epilogue, (rows, columns), expected) in cases {
            let mut c = vec![POISON; rows * columns];
            let view = MatrixMut::new(&mut c, rows, columns).expect("C");
            let found =
                gemm(matrix(a_rows, a_columns), &packed, &epilogue, view, Parallelism::Serial);
            assert_eq!(found, Err(expected));
            assert!(c.iter().all(|x| x.to_bits() == POISON.to_bits()), "{expected}: C was written");
            messages.insert(expected.to_string());
        }
        assert_eq!(messages.len(), cases.len(), "every message is distinct: {messages:?}");

        let need = PackedMatrix::buffer_len(isa, 5, 7).expect("a small size");
        let mut less = vec![POISON; need - 1];
        let wanted = errors::len("data", need, need - 1);
        assert_eq!(PackedMatrix::from_packed(isa, 5, 7, &less).err(), Some(wanted));
        let wanted = errors::min_len("buffer", need, need - 1);
        assert_eq!(PackedMatrix::pack(isa, matrix(5, 7), &mut less).err(), Some(wanted));
        assert_eq!(
            PackOptions::default().pack_columns(isa, matrix(5, 1), (5, 7), 0, &mut less),
            Err(wanted)
        );
        assert!(less.iter().all(|x| x.to_bits() == POISON.to_bits()));
        // A packed buffer must have exactly its length: a longer one was packed for another set or
        // shape.
        let wanted = errors::len("data", need, need + 1);
        let more = vec![POISON; need + 1];
        assert_eq!(PackedMatrix::from_packed(isa, 5, 7, &more).err(), Some(wanted));
        let mut more = vec![POISON; need + 1];
        PackedMatrix::pack(isa, matrix(5, 7), &mut more).expect("the buffer may be longer");
        assert_eq!(more[need].to_bits(), POISON.to_bits());
        let mut buffer = vec![POISON; need];
        let end = |found| errors::size("last column", "block", Expected::AtMost(7), found);
        for (block, first, error) in [
            (matrix(4, 2), 0, errors::shape("block", [5, 7], [4, 2])),
            (matrix(4, 2), 3, errors::shape("block", [5, 4], [4, 2])),
            (matrix(5, 2), 6, end(8)),
            (matrix(5, 8), 0, end(8)),
            (matrix(5, 1), usize::MAX, end(usize::MAX)),
        ] {
            assert_eq!(
                PackOptions::default().pack_columns(isa, block, (5, 7), first, &mut buffer),
                Err(error)
            );
        }
        assert!(buffer.iter().all(|x| x.to_bits() == POISON.to_bits()));
        for (depth, columns) in [
            (usize::MAX, 2),
            (2, usize::MAX),
            (1 << (usize::BITS / 2 + 8), 1 << (usize::BITS / 2 + 8)),
            (usize::MAX / 4, 1),
            (0, usize::MAX),
        ] {
            assert_eq!(
                PackedMatrix::buffer_len(isa, depth, columns),
                Err(errors::too_large("the packed matrix"))
            );
            let found = PackedMatrix::from_packed(isa, depth, columns, &zeros);
            assert_eq!(found.err(), Some(errors::too_large("the packed matrix")));
        }
    }
}

#[test]
fn the_oracle_has_the_errors_of_the_kernel() {
    let zeros = [0.0f32; 64];
    let matrix = |rows, columns| Matrix::new(&zeros, rows, columns).expect("a small matrix");
    let (mut out, mut magnitude) = ([0.0; 6], [0.0; 6]);
    let plain = Epilogue::default();
    let mut run = |a, epilogue: &Epilogue<'_>, n: usize| {
        reference::gemm::gemm(a, matrix(4, 3), epilogue, None, &mut out[..n], &mut magnitude)
    };
    assert_eq!(run(matrix(2, 4), &plain, 6), Ok(()));
    assert_eq!(
        run(matrix(2, 5), &plain, 6),
        Err(errors::size("columns", "a", Expected::Exactly(4), 5))
    );
    assert_eq!(run(matrix(2, 4), &plain, 5), Err(errors::len("out", 6, 5)));
    let bias = Epilogue { bias: Some(&zeros[..2]), ..plain };
    assert_eq!(run(matrix(2, 4), &bias, 6), Err(errors::len("bias", 3, 2)));
    let residual = Epilogue { post_op: PostOp::AddOutput, ..plain };
    assert_eq!(run(matrix(2, 4), &residual, 6), Err(errors::shape("post_op", [2, 3], [0, 0])));
}

#[test]
fn views_that_exceed_their_slice_are_errors() {
    let mut data = [0.0f32; 24];
    assert_eq!(Matrix::new(&data, 5, 5).err(), Some(errors::short_matrix([5, 5], 25, 24)));
    assert!(errors::is_short_view(Matrix::strided(&data, 3, 1, 12, 1).err(), 25, 24));
    assert!(Matrix::strided(&data, 3, 4, 10, 1).is_ok());
    for (rows, columns, row_stride) in
        [(usize::MAX, 2, usize::MAX), (2, 2, usize::MAX), (usize::MAX, usize::MAX, 1)]
    {
        let found = Matrix::strided(&data, rows, columns, row_stride, 1);
        assert!(errors::is_large_view(found.err()));
    }
    for (row_stride, column_stride) in [(0, 1), (2, 1), (1, 1), (1, 2), (3, 2), (0, 0)] {
        assert_eq!(
            MatrixMut::strided(&mut data, 3, 3, row_stride, column_stride).err(),
            Some(Error::Overlap { axes: "row and column", strides: [row_stride, column_stride] })
        );
    }
    assert!(MatrixMut::strided(&mut data, 3, 3, 1, 3).is_ok());
    assert!(MatrixMut::strided(&mut data, 1, 3, 0, 3).is_ok());
}
