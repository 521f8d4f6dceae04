//! Norms, softmax and activations over `[rows, columns]`.

use crate::buffer::Buffer;
use crate::work::Work;
use simdformer_kernels::activation::{self, Activation};
use simdformer_kernels::norm::{self, LayerNorm, Norm, NormInput, RmsNorm};
use simdformer_kernels::softmax;
#[cfg(feature = "train")]
use simdformer_kernels::train;
use simdformer_kernels::{Exec, Input, Isa, Matrix, MatrixMut, SoftmaxOptions};
use std::hint::black_box;

/// After this number of calls an activation gets its input anew. Applied to its own output more often, its
/// values would become subnormal.
const CALLS_PER_INPUT: usize = 16;

/// The bytes of `streams` matrices.
pub(crate) fn bytes(rows: usize, columns: usize, streams: usize) -> usize {
    4 * rows * columns * streams
}

/// `out = LN(x + residual)`, out of place: reads two streams, writes one.
pub(crate) fn add_layer_norm(isa: Isa, rows: usize, columns: usize) -> Work {
    let (x, residual) = (Buffer::random(rows * columns, 1), Buffer::random(rows * columns, 2));
    let (weight, bias) = (Buffer::random(columns, 3), Buffer::random(columns, 4));
    let mut out = Buffer::zeros(rows * columns);
    Work::new(0.0, bytes(rows, columns, 3) as f64, move |parallelism| {
        let norm = Norm::Layer(LayerNorm { weight: &weight, bias: Some(&bias), eps: 1e-5 });
        let x = Matrix::new(black_box(&x), rows, columns).expect("x");
        let residual = Matrix::new(&residual, rows, columns).expect("residual");
        let out = MatrixMut::new(&mut out, rows, columns).expect("out");
        norm::norm(Exec::new(isa, parallelism), norm, NormInput::Sum { x, residual }, out)
            .expect("norm");
    })
}

/// `out = RMSNorm(x + residual)`, out of place: reads two streams, writes one.
pub(crate) fn add_rms_norm(isa: Isa, rows: usize, columns: usize) -> Work {
    let (x, residual) = (Buffer::random(rows * columns, 1), Buffer::random(rows * columns, 2));
    let weight = Buffer::random(columns, 3);
    let mut out = Buffer::zeros(rows * columns);
    Work::new(0.0, bytes(rows, columns, 3) as f64, move |parallelism| {
        let norm = Norm::Rms(RmsNorm { weight: &weight, eps: 1e-6 });
        let x = Matrix::new(black_box(&x), rows, columns).expect("x");
        let residual = Matrix::new(&residual, rows, columns).expect("residual");
        let out = MatrixMut::new(&mut out, rows, columns).expect("out");
        norm::norm(Exec::new(isa, parallelism), norm, NormInput::Sum { x, residual }, out)
            .expect("norm");
    })
}

/// The values of the scores of a row.
#[derive(Clone, Copy, PartialEq)]
pub(crate) enum Scores {
    /// Within 2 of the maximum.
    Near,
    /// All but one are 88 to 90 below the maximum, where `exp` is subnormal.
    Far,
}

fn scores(rows: usize, columns: usize, scores: Scores) -> Buffer {
    let mut x = Buffer::random(rows * columns, 1);
    if scores == Scores::Far {
        for (i, x) in x.iter_mut().enumerate() {
            *x += if i % columns == columns / 2 { 89.0 } else { 0.0 };
        }
    }
    x
}

/// Softmax of every row, out of place.
pub(crate) fn softmax(isa: Isa, rows: usize, columns: usize, place: Scores) -> Work {
    let x = scores(rows, columns, place);
    let mut out = Buffer::zeros(rows * columns);
    Work::new(0.0, bytes(rows, columns, 2) as f64, move |parallelism| {
        let x = Matrix::new(black_box(&x), rows, columns).expect("x");
        let out = MatrixMut::new(&mut out, rows, columns).expect("out");
        let options = SoftmaxOptions::default();
        softmax::softmax(Exec::new(isa, parallelism), Input::Matrix(x), options, out)
            .expect("softmax");
    })
}

/// Log-softmax of every row, out of place.
pub(crate) fn log_softmax(isa: Isa, rows: usize, columns: usize) -> Work {
    let x = scores(rows, columns, Scores::Near);
    let mut out = Buffer::zeros(rows * columns);
    Work::new(0.0, bytes(rows, columns, 2) as f64, move |parallelism| {
        let x = Matrix::new(black_box(&x), rows, columns).expect("x");
        let out = MatrixMut::new(&mut out, rows, columns).expect("out");
        let options = SoftmaxOptions { logarithm: true, ..SoftmaxOptions::default() };
        softmax::softmax(Exec::new(isa, parallelism), Input::Matrix(x), options, out)
            .expect("softmax");
    })
}

/// An activation in place, as it is usually applied.
pub(crate) fn activation(isa: Isa, rows: usize, columns: usize, activation: Activation) -> Work {
    let input = Buffer::random(rows * columns, 1);
    let mut x = Buffer::zeros(rows * columns);
    let mut calls = 0;
    Work::new(0.0, bytes(rows, columns, 2) as f64, move |parallelism| {
        if calls % CALLS_PER_INPUT == 0 {
            x.copy_from_slice(&input);
        }
        calls += 1;
        let x = MatrixMut::new(black_box(&mut x), rows, columns).expect("x");
        activation::apply(Exec::new(isa, parallelism), activation, Input::Output, x)
            .expect("activation");
    })
}

/// `dx` of LayerNorm, out of place: reads two streams, writes one.
#[cfg(feature = "train")]
pub(crate) fn layer_norm_backward(isa: Isa, rows: usize, columns: usize) -> Work {
    let (standard, d_out) = (Buffer::random(rows * columns, 1), Buffer::random(rows * columns, 2));
    let (weight, scale) = (Buffer::random(columns, 3), Buffer::random(rows, 4));
    let mut d_x = Buffer::zeros(rows * columns);
    Work::new(0.0, bytes(rows, columns, 3) as f64, move |parallelism| {
        let norm = Norm::Layer(LayerNorm { weight: &weight, bias: None, eps: 1e-5 });
        let standard = Matrix::new(black_box(&standard), rows, columns).expect("standard");
        let d_out = Matrix::new(&d_out, rows, columns).expect("dy");
        let d_x = MatrixMut::new(&mut d_x, rows, columns).expect("dx");
        let saved = train::SavedNorm { standard, scale: &scale };
        let store = train::WriteMode::Store;
        let d_out = Input::Matrix(d_out);
        train::norm_backward(Exec::new(isa, parallelism), norm, saved, d_out, store, d_x)
            .expect("gradient");
    })
}

/// The gradients of the weight and bias of LayerNorm, in reduction chunks of 512 rows: reads two streams.
#[cfg(feature = "train")]
pub(crate) fn layer_norm_parameters_backward(isa: Isa, rows: usize, columns: usize) -> Work {
    let (standard, d_out) = (Buffer::random(rows * columns, 1), Buffer::random(rows * columns, 2));
    let (mut d_weight, mut d_bias) = (Buffer::zeros(columns), Buffer::zeros(columns));
    let ends: Vec<u32> = (1..=rows.div_ceil(512)).map(|i| rows.min(i * 512) as u32).collect();
    Work::new(0.0, bytes(rows, columns, 2) as f64, move |parallelism| {
        train::norm_parameters_backward(
            Exec::new(isa, parallelism),
            Matrix::new(black_box(&standard), rows, columns).expect("standard"),
            Matrix::new(&d_out, rows, columns).expect("dy"),
            train::ReductionChunks::new(&ends).expect("chunks"),
            train::WriteMode::Store,
            train::NormGradients { weight: &mut d_weight, bias: Some(&mut d_bias) },
        )
        .expect("gradient");
    })
}

/// The gradient of an activation, in place: reads two streams, writes one.
#[cfg(feature = "train")]
pub(crate) fn activation_backward(
    isa: Isa,
    rows: usize,
    columns: usize,
    activation: Activation,
) -> Work {
    let (pre, d_out) = (Buffer::random(rows * columns, 1), Buffer::random(rows * columns, 2));
    let mut d = Buffer::zeros(rows * columns);
    let mut calls = 0;
    Work::new(0.0, bytes(rows, columns, 3) as f64, move |parallelism| {
        if calls % CALLS_PER_INPUT == 0 {
            d.copy_from_slice(&d_out);
        }
        calls += 1;
        let pre = Matrix::new(black_box(&pre), rows, columns).expect("pre");
        let d = MatrixMut::new(&mut d, rows, columns).expect("d");
        train::activation_backward(Exec::new(isa, parallelism), activation, pre, d)
            .expect("gradient");
    })
}
