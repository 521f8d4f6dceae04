//! Kernels of rows and of elements, and those that training adds.

use super::{Calls, Results, bits, matrix, matrix_mut, poisoned, values, written};
#[cfg(feature = "train")]
use crate::support::data::POISON;
use simdformer_kernels::Input;
use simdformer_kernels::activation::{self, Activation};
use simdformer_kernels::embedding::{Positions, embed};
use simdformer_kernels::norm::{LayerNorm, Norm, NormInput, RmsNorm, norm};
use simdformer_kernels::softmax::{FullyMasked, SoftmaxOptions, log_sum_exp, softmax};
use simdformer_kernels::topk::{argmax, top_k};
#[cfg(feature = "train")]
use simdformer_kernels::train::{
    self, Adam, Dropout, Lookup, Moments, NormGradients, ReductionChunks, RowLoss, SavedNorm,
    Smoothing, WriteMode,
};

pub(super) fn calls(call: &Calls<'_>, results: &mut Results) {
    softmaxes(call, results);
    norms(call, results);
    activations(call, results);
    embeddings(call, results);
    #[cfg(feature = "train")]
    {
        forward_save_norms(call, results);
        losses(call, results);
        optimizers(call, results);
    }
}

fn softmaxes(call: &Calls<'_>, results: &mut Results) {
    let Calls { exec, size } = *call;
    let (rows, columns) = (size.tokens, size.columns);
    let x = values(20, rows * columns);
    let lengths: Vec<usize> = (0..rows).map(|row| row * columns / rows).collect();
    let (lengths, fully_masked) = (Some(&lengths[..]), FullyMasked::Uniform);
    let scores = matrix(&x, rows, columns);
    for logarithm in [false, true] {
        let options = SoftmaxOptions { logarithm, lengths, fully_masked };
        for (input, data) in
            [(Input::Matrix(scores), poisoned(x.len())), (Input::Output, x.clone())]
        {
            written(results, "softmax", (data, columns), |to| softmax(exec, input, options, to));
        }
    }
    let mut sums = poisoned(rows);
    log_sum_exp(exec, scores, lengths, &mut sums).expect("fits");
    results.push(("log_sum_exp", bits(&sums)));
    let mut found = vec![u32::MAX; rows];
    argmax(exec, scores, &mut found).expect("fits");
    results.push(("argmax", found));
    let (mut of, mut found) = (poisoned(3 * rows), vec![u32::MAX; 3 * rows]);
    top_k(exec, scores, 3, &mut of, &mut found).expect("fits");
    results.push(("top_k", [bits(&of), found].concat()));
}

fn norms(call: &Calls<'_>, results: &mut Results) {
    let Calls { exec, size } = *call;
    let (rows, columns) = (size.tokens, size.columns);
    let (x, residual) = (values(21, rows * columns), values(22, rows * columns));
    let (weight, bias) = (values(23, columns), values(24, columns));
    let layer = LayerNorm { weight: &weight, bias: Some(&bias), eps: 1e-5 };
    let rms = RmsNorm { weight: &weight, eps: 1e-6 };
    let (from, other) = (matrix(&x, rows, columns), matrix(&residual, rows, columns));
    for of in [Norm::Layer(layer), Norm::Rms(rms)] {
        for (input, out) in [
            (NormInput::Matrix(from), poisoned(x.len())),
            (NormInput::Output, x.clone()),
            (NormInput::Sum { x: from, residual: other }, poisoned(x.len())),
            (NormInput::SumWithOutput { x: from }, residual.clone()),
        ] {
            written(results, "norm", (out, columns), |to| norm(exec, of, input, to));
        }
        let (mut sum, mut out) = (residual.clone(), poisoned(x.len()));
        let to = matrix_mut(&mut out, rows, columns);
        let both = NormInput::AddTo { x: from, residual: matrix_mut(&mut sum, rows, columns) };
        norm(exec, of, both, to).expect("fits");
        results.push(("norm", [bits(&out), bits(&sum)].concat()));
    }
}

#[cfg(feature = "train")]
fn forward_save_norms(call: &Calls<'_>, results: &mut Results) {
    let Calls { exec, size } = *call;
    let (rows, columns) = (size.tokens, size.columns);
    let (x, d_out) = (values(25, rows * columns), values(26, rows * columns));
    let (weight, bias) = (values(27, columns), values(28, columns));
    let layer = LayerNorm { weight: &weight, bias: Some(&bias), eps: 1e-5 };
    let rms = RmsNorm { weight: &weight, eps: 1e-6 };
    let (from, d) = (matrix(&x, rows, columns), matrix(&d_out, rows, columns));
    let ends = [rows as u32 / 2, rows as u32];
    let chunks = ReductionChunks::new(&ends).expect("in order");
    for of in [Norm::Layer(layer), Norm::Rms(rms)] {
        let (mut standard, mut scale) = (poisoned(rows * columns), poisoned(rows));
        for (input, mut out) in
            [(Input::Matrix(from), poisoned(x.len())), (Input::Output, x.clone())]
        {
            standard.fill(POISON);
            let (to, keep) =
                (matrix_mut(&mut out, rows, columns), matrix_mut(&mut standard, rows, columns));
            train::norm_forward_save(exec, of, input, keep, &mut scale, to).expect("fits");
            let all = [bits(&out), bits(&standard), bits(&scale)].concat();
            results.push(("norm_forward_save", all));
        }
        let standard = matrix(&standard, rows, columns);
        written(results, "norm_recompute", (poisoned(rows * columns), columns), |to| {
            train::norm_recompute(exec, of, standard, to)
        });
        let saved = SavedNorm { standard, scale: &scale };
        for (input, d_x) in [(Input::Matrix(d), poisoned(x.len())), (Input::Output, d_out.clone())]
        {
            written(results, "norm_backward", (d_x, columns), |to| {
                train::norm_backward(exec, of, saved, input, WriteMode::Store, to)
            });
        }
    }

    let (mut d_weight, mut d_bias) = (poisoned(columns), poisoned(columns));
    for (write, with_bias) in [(WriteMode::Store, true), (WriteMode::Add, false)] {
        let bias = with_bias.then_some(&mut d_bias[..]);
        let gradients = NormGradients { weight: &mut d_weight, bias };
        train::norm_parameters_backward(exec, from, d, chunks, write, gradients).expect("fits");
        results.push(("norm_parameters_backward", [bits(&d_weight), bits(&d_bias)].concat()));
    }
}

fn activations(call: &Calls<'_>, results: &mut Results) {
    let Calls { exec, size } = *call;
    let x = values(30, size.tokens * size.columns);
    for activation in [Activation::Gelu, Activation::Silu] {
        written(results, "apply", (x.clone(), size.columns), |to| {
            activation::apply(exec, activation, Input::Output, to)
        });
        #[cfg(feature = "train")]
        activation_gradients(call, activation, &x, results);
    }
}

#[cfg(feature = "train")]
fn activation_gradients(call: &Calls<'_>, of: Activation, x: &[f32], results: &mut Results) {
    let Calls { exec, size } = *call;
    let (rows, columns) = (size.tokens, size.columns);
    let d_out = values(31, rows * columns);
    let (from, d) = (matrix(x, rows, columns), matrix(&d_out, rows, columns));
    let empty = || (poisoned(x.len()), columns);
    written(results, "apply", empty(), |to| activation::apply(exec, of, Input::Matrix(from), to));
    written(results, "activation_backward", (d_out.clone(), columns), |to| {
        train::activation_backward(exec, of, from, to)
    });
    let mut inner = written(results, "gate", empty(), |to| train::gate(exec, of, from, d, to));
    let mut gate = x.to_vec();
    let (to, and) = (matrix_mut(&mut gate, rows, columns), matrix_mut(&mut inner, rows, columns));
    train::gate_backward(exec, of, to, and, d).expect("fits");
    results.push(("gate_backward", [bits(&gate), bits(&inner)].concat()));
}

fn embeddings(call: &Calls<'_>, results: &mut Results) {
    let Calls { exec, size } = *call;
    let (rows, columns) = (size.tokens, size.columns);
    let vocabulary = 11;
    let table = values(32, vocabulary * columns);
    let ids: Vec<u32> = (0..rows as u32).map(|i| i * 7 % vocabulary as u32).collect();
    let positions = matrix(&table, vocabulary, columns);
    let positions = Positions { table: positions, rows: &ids };
    let from = matrix(&table, vocabulary, columns);
    let out = written(results, "embed", (poisoned(rows * columns), columns), |to| {
        embed(exec, from, &ids, 2.0, Some(positions), to)
    });
    #[cfg(feature = "train")]
    embedding_gradients(call, &ids, &out, results);
    #[cfg(not(feature = "train"))]
    let _ = out;
}

/// Of 11 rows.
#[cfg(feature = "train")]
fn embedding_gradients(call: &Calls<'_>, ids: &[u32], x: &[f32], results: &mut Results) {
    let Calls { exec, size } = *call;
    let (rows, columns) = (size.tokens, size.columns);
    let d_x = matrix(x, rows, columns);
    let mut scratch = vec![0; 11 + rows];
    let lookup = Lookup { ids, scale: 0.5, skip: Some(3) };
    written(results, "embedding_gradient", (values(33, 11 * columns), columns), |to| {
        train::embedding_gradient(exec, lookup, d_x, to, &mut scratch)
    });
    let dropped = Dropout { seed: 5, step: 6, site: 7, probability: 0.3 };
    let (sentences, places): (Vec<u32>, Vec<u32>) =
        (0..rows as u32).map(|i| (i / 4, i % 4)).unzip();
    let x = written(results, "dropout", (x.to_vec(), columns), |to| {
        train::dropout(exec, &dropped, &sentences, &places, Input::Output, WriteMode::Store, to)
    });
    written(results, "dropout", (x, columns), |to| {
        train::dropout(exec, &dropped, &sentences, &places, Input::Matrix(d_x), WriteMode::Add, to)
    });
}

#[cfg(feature = "train")]
fn losses(call: &Calls<'_>, results: &mut Results) {
    let Calls { exec, size } = *call;
    let (rows, columns) = (size.tokens, size.columns);
    let mut logits = values(34, rows * columns);
    let targets: Vec<u32> = (0..rows).map(|row| (row * 31 % columns) as u32).collect();
    let smoothing = Smoothing { epsilon: 0.1, ..Smoothing::default() };
    let losses_of = |losses: &[RowLoss]| -> Vec<u32> {
        let numbers = losses.iter().flat_map(|loss| [loss.loss.to_bits(), loss.nll.to_bits()]);
        numbers.flat_map(|bits| [bits as u32, (bits >> 32) as u32]).collect()
    };
    let mut losses = vec![RowLoss::default(); rows];
    let from = matrix(&logits, rows, columns);
    train::cross_entropy_loss(exec, from, &targets, smoothing, &mut losses).expect("fits");
    results.push(("cross_entropy_loss", losses_of(&losses)));
    let to = matrix_mut(&mut logits, rows, columns);
    train::cross_entropy(exec, to, &targets, smoothing, 0.5, &mut losses).expect("fits");
    results.push(("cross_entropy", [losses_of(&losses), bits(&logits)].concat()));
}

#[cfg(feature = "train")]
fn optimizers(call: &Calls<'_>, results: &mut Results) {
    let Calls { exec, size } = *call;
    let len = size.tokens * size.columns;
    let gradients = values(35, len);
    let mut partials = vec![0.0; train::sum_of_squares_scratch(len).expect("a length")];
    let sum = train::sum_of_squares(exec, &gradients, &mut partials).expect("fits");
    results.push(("sum_of_squares", vec![sum.to_bits() as u32, (sum.to_bits() >> 32) as u32]));
    let (mut parameters, mut first) = (values(36, len), values(37, len));
    let mut second: Vec<f32> = first.iter().map(|x| x.abs()).collect();
    let mut mean = parameters.clone();
    let adam = Adam { step: 3, weight_decay: 0.01, ..Adam::default() };
    let moments = Moments { first: &mut first, second: &mut second };
    let average = Some((&mut mean[..], 0.9));
    train::adam(exec, &adam, &mut parameters, &gradients, moments, average).expect("fits");
    let all = [bits(&parameters), bits(&first), bits(&second), bits(&mean)].concat();
    results.push(("adam", all));
    let mut out = poisoned(len);
    train::average(exec, &[&gradients, &parameters, &first], &mut out).expect("fits");
    results.push(("average", bits(&out)));
}
