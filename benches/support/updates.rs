//! The kernels of an update other than products: the loss, the gradient of lookups, dropout, Adam and
//! norms.

use crate::buffer::Buffer;
use crate::rows::bytes;
use crate::work::Work;
use simdformer_kernels::train::{
    Adam, Dropout, Lookup, Moments, RowLoss, Smoothing, SmoothingOver, WriteMode, adam,
    cross_entropy, dropout, embedding_gradient, sum_of_squares, sum_of_squares_scratch,
};
use simdformer_kernels::{Exec, Input, Isa, Matrix, MatrixMut};
use std::hint::black_box;

/// After this number of calls the logits are written anew. Replaced by their own gradients, they would all
/// be near 0.
const CALLS_PER_LOGITS: usize = 8;

/// Loss and gradient of `rows` rows of logits, in place: reads and writes one stream.
pub(crate) fn loss(isa: Isa, rows: usize, columns: usize) -> Work {
    let input = Buffer::random(columns, 1);
    let mut logits = Buffer::zeros(rows * columns);
    let targets: Vec<u32> = (0..rows).map(|row| (row * 7919 % columns) as u32).collect();
    let mut losses = vec![RowLoss::default(); rows];
    let smoothing = Smoothing { epsilon: 0.1, over: SmoothingOver::All };
    let mut calls = 0;
    Work::new(0.0, bytes(rows, columns, 2) as f64, move |parallelism| {
        if calls % CALLS_PER_LOGITS == 0 {
            for row in logits.chunks_exact_mut(columns) {
                for (logit, x) in row.iter_mut().zip(input.iter()) {
                    *logit = 5.0 * x;
                }
            }
        }
        calls += 1;
        let logits = MatrixMut::new(black_box(&mut logits), rows, columns).expect("logits");
        cross_entropy(Exec::new(isa, parallelism), logits, &targets, smoothing, 1e-3, &mut losses)
            .expect("a loss");
    })
}

/// The gradient of `tokens` lookups in a table of `rows` rows. Half of the tokens have few ids.
pub(crate) fn lookups(isa: Isa, rows: usize, tokens: usize, columns: usize) -> Work {
    let d_x = Buffer::random(tokens * columns, 1);
    let mut table = Buffer::zeros(rows * columns);
    let id = |i: usize| if i.is_multiple_of(2) { i % 34 } else { i * 7919 % rows };
    let ids: Vec<u32> = (0..tokens).map(|i| id(i) as u32).collect();
    let mut scratch = vec![0; rows + tokens];
    // A row of the gradient is read; a row of the table is read and written.
    Work::new(0.0, bytes(tokens, columns, 3) as f64, move |parallelism| {
        let d_x = Matrix::new(black_box(&d_x), tokens, columns).expect("d_x");
        let table = MatrixMut::new(&mut table, rows, columns).expect("table");
        let lookup = Lookup { ids: &ids, scale: 1e-6, skip: None };
        embedding_gradient(Exec::new(isa, parallelism), lookup, d_x, table, &mut scratch)
            .expect("a gradient");
    })
}

fn settings(probability: f32) -> Dropout {
    Dropout { seed: 42, step: 7, site: 3, probability }
}

/// Sentences of 30 tokens, and the positions in them.
fn tokens(rows: usize) -> (Vec<u32>, Vec<u32>) {
    (0..rows as u32).map(|i| (i / 30, i % 30)).unzip()
}

/// Dropout in place: reads and writes one stream. Soon every element is 0, which costs the same.
pub(crate) fn drop(isa: Isa, rows: usize, columns: usize) -> Work {
    let mut x = Buffer::random(rows * columns, 1);
    let (sentences, positions) = tokens(rows);
    Work::new(0.0, bytes(rows, columns, 2) as f64, move |parallelism| {
        let x = MatrixMut::new(black_box(&mut x), rows, columns).expect("x");
        dropout(
            Exec::new(isa, parallelism),
            &settings(0.1),
            &sentences,
            &positions,
            Input::Output,
            WriteMode::Store,
            x,
        )
        .expect("a dropout");
    })
}

/// A residual connection with dropout: reads two streams, writes one.
pub(crate) fn drop_add(isa: Isa, rows: usize, columns: usize) -> Work {
    let x = Buffer::random(rows * columns, 1);
    let mut out = Buffer::zeros(rows * columns);
    let (sentences, positions) = tokens(rows);
    Work::new(0.0, bytes(rows, columns, 3) as f64, move |parallelism| {
        let x = Matrix::new(black_box(&x), rows, columns).expect("x");
        let out = MatrixMut::new(&mut out, rows, columns).expect("out");
        dropout(
            Exec::new(isa, parallelism),
            &settings(0.1),
            &sentences,
            &positions,
            Input::Matrix(x),
            WriteMode::Add,
            out,
        )
        .expect("a dropout");
    })
}

/// The bytes that an update moves for each parameter.
pub(crate) const ADAM: usize = 28;

/// An update of `parameters` parameters. The gradients of those that are not `used` are 0, and so are soon
/// their moments.
pub(crate) fn update(isa: Isa, len: usize, used: bool) -> Work {
    let gradients = if used { Buffer::random(len, 2) } else { Buffer::zeros(len) };
    let (mut parameters, mut first) = (Buffer::random(len, 1), Buffer::random(len, 3));
    let mut second = Buffer::zeros(len);
    for (second, first) in second.iter_mut().zip(first.iter_mut()) {
        *first *= 1e-3;
        *second = *first * *first;
    }
    let mut adam_settings = Adam { beta2: 0.98, epsilon: 1e-9, ..Adam::default() };
    Work::new(0.0, (ADAM * len) as f64, move |parallelism| {
        let gradients = black_box(&gradients);
        adam(
            Exec::new(isa, parallelism),
            &adam_settings,
            &mut parameters,
            gradients,
            Moments { first: &mut first, second: &mut second },
            None,
        )
        .expect("an update");
        adam_settings.step += 1;
    })
}

/// The sum of the squares of a number of gradients.
pub(crate) fn norm(isa: Isa, len: usize) -> Work {
    let x = Buffer::random(len, 1);
    let mut partials = vec![0.0; sum_of_squares_scratch(len).expect("a length")];
    Work::new(0.0, (4 * len) as f64, move |parallelism| {
        let sum = sum_of_squares(Exec::new(isa, parallelism), black_box(&x), &mut partials);
        black_box(sum.expect("a sum"));
    })
}
