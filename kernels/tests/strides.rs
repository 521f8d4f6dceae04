//! Strides along axes of length 0 and 1, which are never stepped: for every stride the kernels give the
//! bits of dense tensors, and no arithmetic overflows.

use crate::support::batch::{attend, cache_with};
use crate::support::gemm::Packed;
use crate::support::pruned_argmax::{Built, argmax as argmax_of};
use crate::support::*;
use simdformer_kernels::activation::{self, Activation};
use simdformer_kernels::embedding::{Positions, embed};
use simdformer_kernels::norm::{LayerNorm, Norm, NormInput, RmsNorm, norm};
use simdformer_kernels::position::{PositionEncoding, encode};
use simdformer_kernels::pruned_argmax::Product;
use simdformer_kernels::softmax::{SoftmaxOptions, log_sum_exp, softmax};
use simdformer_kernels::topk::{argmax, top_k};
use simdformer_kernels::{
    AttentionOptions, CacheShape, Epilogue, Exec, Heads, HeadsMut, Input, Isa, Matrix, MatrixMut,
    PostOp, Qkv, Sequence,
};

/// Strides between elements that do not exist.
const STRIDES: [usize; 6] = [0, 1, 5, usize::MAX / 4, usize::MAX / 2 + 1, usize::MAX];

fn row(data: &[f32], stride: usize) -> Matrix<'_> {
    Matrix::strided(data, 1, data.len(), stride, 1).expect("one row")
}

fn row_mut(data: &mut [f32], stride: usize) -> MatrixMut<'_> {
    let columns = data.len();
    MatrixMut::strided(data, 1, columns, stride, 1).expect("one row")
}

#[test]
fn views_accept_any_stride_that_is_never_stepped() {
    let data = [1.0, 2.0, 3.0, 4.0];
    for stride in STRIDES {
        // Without elements, every block of rows and every transposition is valid.
        for (rows, columns) in [(4, 0), (0, 4), (0, 0), (usize::MAX, 0), (0, usize::MAX)] {
            for (row_stride, column_stride) in [(stride, 1), (1, stride), (stride, stride)] {
                let none = Matrix::strided(&[], rows, columns, row_stride, column_stride);
                let none = none.expect("no element");
                for none in [none, none.transposed()] {
                    let rows = none.rows();
                    let half = none.block(rows / 2, rows - rows / 2).expect("rows");
                    assert_eq!(half.rows(), rows - rows / 2);
                    assert_eq!(half.block(half.rows(), 0).map(|none| none.rows()), Ok(0));
                }
                let none = MatrixMut::strided(&mut [], rows, columns, row_stride, column_stride);
                assert!(none.is_ok(), "{rows} x {columns}, {row_stride}, {column_stride}");
            }
        }
        // One row has its width as stride, one column has contiguous elements.
        let one = Matrix::strided(&data, 1, 4, stride, 1).expect("one row");
        assert_eq!((one.row_stride(), one.column_stride()), (4, 1));
        assert_eq!(one.block(1, 0).map(|none| none.rows()), Ok(0));
        let one = Matrix::strided(&data, 1, 2, stride, 3).expect("one row");
        assert_eq!((one.row_stride(), one.column_stride()), (4, 3));
        assert_eq!(one.transposed().at(1, 0), 4.0);
        let one = Matrix::strided(&data, 4, 1, 1, stride).expect("one column");
        assert_eq!((one.row_stride(), one.column_stride()), (1, 1));
        let one = Matrix::strided(&data, 1, 1, stride, stride).expect("one element");
        assert_eq!(one.transposed().at(0, 0), 1.0);
        let mut copy = data;
        let one = MatrixMut::strided(&mut copy, 1, 2, stride, 3).expect("one row");
        assert_eq!((one.row_stride(), one.column_stride()), (4, 3));

        let one = Heads::strided(&data, [1, 2, 2], stride, 2).expect("one token");
        assert_eq!((one.token_stride(), one.head_stride()), (4, 2));
        let one = Heads::strided(&data, [2, 1, 2], 2, stride).expect("one head");
        assert_eq!((one.token_stride(), one.head_stride()), (2, 2));
        assert_eq!(one.row(1, 0), Some(&data[2..]));
        let mut copy = data;
        let one = HeadsMut::strided(&mut copy, [1, 1, 3], stride, stride).expect("one head");
        assert_eq!((one.token_stride(), one.head_stride()), (3, 3));
        for shape in [[0, 3, 8], [3, 0, 8], [3, 8, 0], [0, usize::MAX, 2], [2, 2, 0]] {
            let none = Heads::strided(&[], shape, stride, stride).expect("no element");
            let empty = (shape.iter().all(|&n| n > 0) || shape == [2, 2, 0] || shape == [3, 8, 0])
                .then_some(&[][..]);
            assert_eq!(none.row(1, 1), empty, "{shape:?}");
        }
    }
}

/// `A W` with the given views, packed and multiplied.
fn product(isa: Isa, a: Matrix<'_>, w: Matrix<'_>, stride: usize) -> Vec<f32> {
    let (rows, columns) = (a.rows(), w.columns());
    let mut out = poisoned(rows * columns);
    let row_stride = if rows == 1 { stride } else { columns };
    let c = MatrixMut::strided(&mut out, rows, columns, row_stride, 1).expect("C");
    Packed::new(isa, w).multiply(a, &Epilogue::default(), c, SERIAL);
    out
}

#[test]
fn products_of_one_row_or_no_depth() {
    let mut random = Random::new(5);
    let (a, w) = (random.values(9), random.values(9 * 80));
    for isa in all_isas() {
        let dense = view_matrix(&w, 9, 80);
        let expected = product(isa, row(&a, 9), dense, 80);
        let outer = product(isa, view_matrix(&a, 9, 1), row(&w[..80], 80), 80);
        for stride in STRIDES {
            let found = product(isa, row(&a, stride), dense, stride);
            assert_eq!(difference(&found, &expected), None, "{isa}: one row, stride {stride}");
            let column = Matrix::strided(&a, 9, 1, 1, stride).expect("A");
            let found = product(isa, column, row(&w[..80], stride), stride);
            assert_eq!(difference(&found, &outer), None, "{isa}: depth 1, stride {stride}");
            for rows in [1, 3, 40] {
                let a = Matrix::strided(&[], rows, 0, stride, stride).expect("A");
                let w = Matrix::strided(&[], 0, 80, stride, stride).expect("W");
                let found = product(isa, a, w, stride);
                assert!(found.iter().all(|&x| x == 0.0), "{isa}: depth 0, stride {stride}");
                let found = product(isa, a.block(0, rows).expect("rows"), w, stride);
                assert!(found.iter().all(|&x| x == 0.0), "{isa}: depth 0, stride {stride}");
            }
            let residual = row(&w[..80], stride);
            let mut out = [POISON; 80];
            let none = Matrix::strided(&[], 0, 80, stride, stride).expect("W");
            let a = Matrix::strided(&[], 1, 0, stride, stride).expect("A");
            let epilogue = Epilogue { post_op: PostOp::Add(residual), ..Epilogue::default() };
            let to = row_mut(&mut out, stride);
            Packed::new(isa, none).multiply(a, &epilogue, to, SERIAL);
            assert_eq!(difference(&out, &w[..80]), None, "{isa}: the residual, stride {stride}");
        }
    }
}

#[test]
fn a_pruned_argmax_without_depth() {
    for isa in all_isas() {
        let built = Built::new(Packed::new(isa, view_matrix(&[], 0, 70)));
        let bias: Vec<f32> = (0..70).map(|j| (j * 3 % 70) as f32).collect();
        for stride in STRIDES {
            let by_column = Matrix::strided(&[], 70, 0, stride, stride).expect("the transpose");
            let x = Matrix::strided(&[], 2, 0, stride, stride).expect("x");
            let (columns, values) = built.with_product(|product| {
                let (bias, by_column) = (Some(&bias[..]), Some(by_column));
                argmax_of(&Product { bias, by_column, ..product }, x, &|_, _| false, SERIAL)
            });
            assert_eq!((columns, values), (vec![23; 2], vec![69.0; 2]), "{isa}: stride {stride}");
        }
    }
}

#[test]
fn attention_of_one_token_or_one_head() {
    let mut random = Random::new(6);
    let (query, key, value) = (random.values(8), random.values(8), random.values(8));
    let options = AttentionOptions::new(8);
    let sequences = [Sequence::packed(0, 1)];
    for isa in all_isas() {
        let run = |stride: usize| {
            let mut out = [POISON; 8];
            let view = |data| Heads::strided(data, [1, 1, 8], stride, stride).expect("one head");
            let qkv = Qkv { query: view(&query), key: view(&key), value: view(&value) };
            let context = HeadsMut::strided(&mut out, [1, 1, 8], stride, stride).expect("one head");
            attend(isa, qkv, &sequences, &options, context, SERIAL).expect("a fit");
            let shape = CacheShape::new(1, 3, 1, 8);
            let data = cache_with(isa, shape, |cache| {
                cache.write(0, 1, qkv.key, qkv.value).expect("a place");
                cache.append(&[0], &[2], qkv.key, qkv.value).expect("a place");
            });
            (out, data)
        };
        let expected = run(8);
        for stride in STRIDES {
            let found = run(stride);
            assert_eq!(difference(&found.0, &expected.0), None, "{isa}: stride {stride}");
            assert_eq!(difference(&found.1, &expected.1), None, "{isa}: stride {stride}");
        }
    }
}

/// All row kernels on one row whose stride is `stride`.
fn rows(isa: Isa, x: &[f32], stride: usize) -> Vec<f32> {
    let mut outputs = Vec::new();
    let mut out = vec![POISON; x.len()];
    let layer = Norm::Layer(LayerNorm { weight: x, bias: Some(x), eps: 0.1 });
    let input = NormInput::Matrix(row(x, stride));
    norm(Exec::serial(isa), layer, input, row_mut(&mut out, stride)).expect("a fit");
    outputs.extend(&out);
    let mut sum = x.to_vec();
    for of in [layer, Norm::Rms(RmsNorm { weight: x, eps: 0.1 })] {
        let input = NormInput::AddTo { x: row(x, stride), residual: row_mut(&mut sum, stride) };
        norm(Exec::serial(isa), of, input, row_mut(&mut out, stride)).expect("a fit");
        outputs.extend(out.iter().chain(&sum));
    }
    let (scores, to) = (Input::Matrix(row(x, stride)), row_mut(&mut out, stride));
    softmax(Exec::serial(isa), scores, SoftmaxOptions::default(), to).expect("a fit");
    outputs.extend(&out);
    let mut one = [POISON];
    log_sum_exp(Exec::serial(isa), row(x, stride), None, &mut one).expect("a fit");
    outputs.extend(one);
    activation::apply(
        Exec::serial(isa),
        Activation::Gelu,
        Input::Output,
        row_mut(&mut sum, stride),
    )
    .expect("a fit");
    outputs.extend(&sum);
    let positions = Some(Positions { table: row(x, stride), rows: &[0] });
    embed(Exec::serial(isa), row(x, stride), &[0], 3.0, positions, row_mut(&mut out, stride))
        .expect("a fit");
    outputs.extend(&out);
    encode(PositionEncoding::Interleaved, 3, row_mut(&mut out, stride)).expect("a fit");
    outputs.extend(&out);
    let (mut values, mut indices, mut best) = ([POISON; 3], [u32::MAX; 3], [u32::MAX; 1]);
    top_k(Exec::serial(isa), row(x, stride), 3, &mut values, &mut indices).expect("a fit");
    argmax(Exec::serial(isa), row(x, stride), &mut best).expect("a fit");
    outputs.extend(values);
    outputs.extend(indices.iter().chain(&best).map(|&index| index as f32));
    outputs
}

#[test]
fn row_kernels_on_one_row() {
    let mut random = Random::new(7);
    let x = random.values(37);
    for isa in all_isas() {
        let expected = rows(isa, &x, 37);
        for stride in STRIDES {
            let found = rows(isa, &x, stride);
            assert_eq!(difference(&found, &expected), None, "{isa}: stride {stride}");
        }
    }
}
