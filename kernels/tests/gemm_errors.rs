//! Every error of GEMM, packing and views: each is reached, each has a text of its own, and nothing is
//! written.

use crate::support::gemm::Packed;
use crate::support::*;
use simdformer_kernels::{
    Epilogue, Expected, Matrix, MatrixMut, PackOptions, PackedMatrix, PostOp, gemm, reference,
};

#[test]
fn every_error_is_reached_and_nothing_is_written() {
    let zeros = vec![0.0f32; 4096];
    let matrix = |rows, columns| view_matrix(&zeros, rows, columns);
    for isa in all_isas() {
        let packed = Packed::new(isa, matrix(5, 7));
        let packed = packed.get();
        let plain = Epilogue::default();
        let bias = |len| Epilogue { bias: Some(&zeros[..len]), ..plain };
        let residual =
            |rows, columns| Epilogue { post_op: PostOp::Add(matrix(rows, columns)), ..plain };
        for (a, epilogue, (rows, columns), text) in [
            ((3, 4), plain, (3, 7), "columns of a: expected 5, found 4"),
            ((3, 6), plain, (3, 7), "columns of a: expected 5, found 6"),
            ((3, 5), plain, (2, 7), "shape of c: expected [3, 7], found [2, 7]"),
            ((3, 5), plain, (4, 7), "shape of c: expected [3, 7], found [4, 7]"),
            ((3, 5), plain, (3, 6), "shape of c: expected [3, 7], found [3, 6]"),
            ((3, 5), plain, (3, 8), "shape of c: expected [3, 7], found [3, 8]"),
            ((3, 5), bias(6), (3, 7), "length of bias: expected 7, found 6"),
            ((3, 5), bias(8), (3, 7), "length of bias: expected 7, found 8"),
            ((3, 5), residual(2, 7), (3, 7), "shape of post_op: expected [3, 7], found [2, 7]"),
            ((3, 5), residual(3, 8), (3, 7), "shape of post_op: expected [3, 7], found [3, 8]"),
        ] {
            let mut c = poisoned(rows * columns);
            let to = view_matrix_mut(&mut c, rows, columns);
            let found = gemm(matrix(a.0, a.1), &packed, &epilogue, to, SERIAL);
            assert_eq!(found.map_err(|error| error.to_string()), Err(text.to_owned()));
            assert!(is_poison(&c), "{text}: C was written");
        }

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
        assert!(is_poison(&less));
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
            let found = PackOptions::default().pack_columns(isa, block, (5, 7), first, &mut buffer);
            assert_eq!(found, Err(error));
        }
        assert!(is_poison(&buffer));
        for (depth, columns) in [
            (usize::MAX, 2),
            (2, usize::MAX),
            (1 << (usize::BITS / 2 + 8), 1 << (usize::BITS / 2 + 8)),
            (usize::MAX / 4, 1),
            (0, usize::MAX),
        ] {
            let error = errors::too_large("the packed matrix");
            assert_eq!(PackedMatrix::buffer_len(isa, depth, columns), Err(error));
            let found = PackedMatrix::from_packed(isa, depth, columns, &zeros);
            assert_eq!(found.err(), Some(error));
        }
    }
}

#[test]
fn the_oracle_has_the_errors_of_the_kernel() {
    let zeros = [0.0f32; 64];
    let matrix = |rows, columns| view_matrix(&zeros, rows, columns);
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
            Some(errors::overlap("row and column", [row_stride, column_stride]))
        );
    }
    assert!(MatrixMut::strided(&mut data, 3, 3, 1, 3).is_ok());
    assert!(MatrixMut::strided(&mut data, 1, 3, 0, 3).is_ok());
}
