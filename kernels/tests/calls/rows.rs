//! Kernels of rows and of elements, and those that training adds.

use super::{Calls, POISON, Results, bits, matrix, matrix_mut, poisoned, values};
use simdformer_kernels::Input;
use simdformer_kernels::activation::{self, Activation};
use simdformer_kernels::embedding::{Positions, embed};
use simdformer_kernels::norm::{LayerNorm, Norm, NormInput, RmsNorm, norm};
use simdformer_kernels::softmax::{FullyMasked, SoftmaxOptions, log_sum_exp, softmax};
use simdformer_kernels::topk::{argmax, top_k};
use simdformer_kernels::train::{
    self, Adam, Dropout, Lookup, Moments, NormGradients, ReductionChunks, RowLoss, SavedNorm,
    Smoothing, WriteMode,
};

pub(super) fn calls(call: &Calls<'_>, results: &mut Results) {
    softmaxes(call, results);
    norms(call, results);
    forward_save_norms(call, results);
    activations(call, results);
    embeddings(call, results);
    losses(call, results);
    optimizers(call, results);
}

fn softmaxes(call: &Calls<'_>, results: &mut Results) {
    let Calls { isa, size, parallelism } = *call;
    let (rows, columns) = (size.tokens, size.columns);
    let x = values(20, rows * columns);
    let lengths: Vec<usize> = (0..rows).map(|row| row * columns / rows).collect();
    let (lengths, fully_masked) = (Some(&lengths[..]), FullyMasked::Uniform);
    let scores = matrix(&x, rows, columns);
    for (names, logarithm) in
        [(["softmax", "softmax in place"], false), (["log-softmax", "log-softmax in place"], true)]
    {
        let options = SoftmaxOptions { logarithm, lengths, fully_masked };
        for (name, input, mut p) in [
            (names[0], Input::Matrix(scores), poisoned(rows * columns)),
            (names[1], Input::Output, x.clone()),
        ] {
            let to = matrix_mut(&mut p, rows, columns);
            softmax(isa, input, options, to, parallelism).expect("fits");
            results.push((name, bits(&p)));
        }
    }
    let mut sums = poisoned(rows);
    log_sum_exp(isa, scores, lengths, &mut sums, parallelism).expect("fits");
    results.push(("log_sum_exp", bits(&sums)));
    let mut found = vec![u32::MAX; rows];
    argmax(isa, scores, &mut found, parallelism).expect("fits");
    results.push(("argmax", found));
    let (mut of, mut found) = (poisoned(3 * rows), vec![u32::MAX; 3 * rows]);
    top_k(isa, scores, 3, &mut of, &mut found, parallelism).expect("fits");
    results.push(("top_k", [bits(&of), found].concat()));
}

fn norms(call: &Calls<'_>, results: &mut Results) {
    let Calls { isa, size, parallelism } = *call;
    let (rows, columns) = (size.tokens, size.columns);
    let (x, residual) = (values(21, rows * columns), values(22, rows * columns));
    let (weight, bias) = (values(23, columns), values(24, columns));
    let layer = LayerNorm { weight: &weight, bias: Some(&bias), eps: 1e-5 };
    let rms = RmsNorm { weight: &weight, eps: 1e-6 };
    let (from, other) = (matrix(&x, rows, columns), matrix(&residual, rows, columns));
    for of in [Norm::Layer(layer), Norm::Rms(rms)] {
        let mut sum = residual.clone();
        for (name, input, mut out) in [
            ("norm", NormInput::Matrix(from), poisoned(rows * columns)),
            ("norm in place", NormInput::Output, x.clone()),
            (
                "norm of a sum",
                NormInput::Sum { x: from, residual: other },
                poisoned(rows * columns),
            ),
            ("norm of a sum in place", NormInput::SumWithOutput { x: from }, residual.clone()),
            (
                "norm that stores the sum",
                NormInput::AddTo { x: from, residual: matrix_mut(&mut sum, rows, columns) },
                poisoned(rows * columns),
            ),
        ] {
            let to = matrix_mut(&mut out, rows, columns);
            norm(isa, of, input, to, parallelism).expect("fits");
            results.push((name, bits(&out)));
        }
        results.push(("the sum", bits(&sum)));
    }
}

fn forward_save_norms(call: &Calls<'_>, results: &mut Results) {
    let Calls { isa, size, parallelism } = *call;
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
        for (name, input, mut out) in [
            ("norm_forward_save", Input::Matrix(from), poisoned(rows * columns)),
            ("norm_forward_save in place", Input::Output, x.clone()),
        ] {
            standard.fill(POISON);
            let (to, keep) =
                (matrix_mut(&mut out, rows, columns), matrix_mut(&mut standard, rows, columns));
            train::norm_forward_save(isa, of, input, keep, &mut scale, to, parallelism)
                .expect("fits");
            results.push((name, [bits(&out), bits(&standard), bits(&scale)].concat()));
        }
        let standard = matrix(&standard, rows, columns);
        let mut out = poisoned(rows * columns);
        let to = matrix_mut(&mut out, rows, columns);
        train::norm_recompute(isa, of, standard, to, parallelism).expect("fits");
        results.push(("norm_recompute", bits(&out)));
        let saved = SavedNorm { standard, scale: &scale };
        for (name, input, mut d_x) in [
            ("norm_backward", Input::Matrix(d), poisoned(rows * columns)),
            ("norm_backward in place", Input::Output, d_out.clone()),
        ] {
            let to = matrix_mut(&mut d_x, rows, columns);
            train::norm_backward(isa, of, saved, input, WriteMode::Store, to, parallelism)
                .expect("fits");
            results.push((name, bits(&d_x)));
        }
    }

    let (mut d_weight, mut d_bias) = (poisoned(columns), poisoned(columns));
    for (write, with_bias) in [(WriteMode::Store, true), (WriteMode::Add, false)] {
        let bias = with_bias.then_some(&mut d_bias[..]);
        let gradients = NormGradients { weight: &mut d_weight, bias };
        train::norm_parameters_backward(isa, from, d, chunks, write, gradients, parallelism)
            .expect("fits");
        results.push(("norm_parameters_backward", [bits(&d_weight), bits(&d_bias)].concat()));
    }
}

fn activations(call: &Calls<'_>, results: &mut Results) {
    let Calls { isa, size, parallelism } = *call;
    let (rows, columns) = (size.tokens, size.columns);
    let (x, d_out) = (values(30, rows * columns), values(31, rows * columns));
    let (from, d) = (matrix(&x, rows, columns), matrix(&d_out, rows, columns));
    for activation in [Activation::Gelu, Activation::Silu] {
        let mut out = x.clone();
        let to = matrix_mut(&mut out, rows, columns);
        activation::apply(isa, activation, to, parallelism).expect("fits");
        results.push(("apply", bits(&out)));
        let mut out = poisoned(rows * columns);
        let to = matrix_mut(&mut out, rows, columns);
        train::activation_recompute(isa, activation, from, to, parallelism).expect("fits");
        results.push(("activation_recompute", bits(&out)));
        let mut out = d_out.clone();
        let to = matrix_mut(&mut out, rows, columns);
        train::activation_backward(isa, activation, from, to, parallelism).expect("fits");
        results.push(("activation_backward", bits(&out)));
        let mut out = poisoned(rows * columns);
        let to = matrix_mut(&mut out, rows, columns);
        train::gate(isa, activation, from, d, to, parallelism).expect("fits");
        results.push(("gate", bits(&out)));
        let (mut gate, mut inner) = (x.clone(), out);
        let (of, to) =
            (matrix_mut(&mut gate, rows, columns), matrix_mut(&mut inner, rows, columns));
        train::gate_backward(isa, activation, of, to, d, parallelism).expect("fits");
        results.push(("gate_backward", [bits(&gate), bits(&inner)].concat()));
    }
}

fn embeddings(call: &Calls<'_>, results: &mut Results) {
    let Calls { isa, size, parallelism } = *call;
    let (rows, columns) = (size.tokens, size.columns);
    let vocabulary = 11;
    let table = values(32, vocabulary * columns);
    let ids: Vec<u32> = (0..rows as u32).map(|i| i * 7 % vocabulary as u32).collect();
    let positions = matrix(&table, vocabulary, columns);
    let positions = Positions { table: positions, rows: &ids };
    let mut out = poisoned(rows * columns);
    let to = matrix_mut(&mut out, rows, columns);
    let from = matrix(&table, vocabulary, columns);
    embed(isa, from, &ids, 2.0, Some(positions), to, parallelism).expect("fits");
    results.push(("embed", bits(&out)));

    let d_x = matrix(&out, rows, columns);
    let mut d_table = values(33, vocabulary * columns);
    let to = matrix_mut(&mut d_table, vocabulary, columns);
    let mut scratch = vec![0; vocabulary + rows];
    let lookup = Lookup { ids: &ids, scale: 0.5, skip: Some(3) };
    train::embedding_gradient(isa, lookup, d_x, to, &mut scratch, parallelism).expect("fits");
    results.push(("embedding_gradient", bits(&d_table)));

    let dropped = Dropout { seed: 5, step: 6, site: 7, probability: 0.3 };
    let (sentences, places): (Vec<u32>, Vec<u32>) =
        (0..rows as u32).map(|i| (i / 4, i % 4)).unzip();
    let mut x = out.clone();
    let to = matrix_mut(&mut x, rows, columns);
    train::dropout(isa, &dropped, &sentences, &places, to, parallelism).expect("fits");
    results.push(("dropout", bits(&x)));
    let to = matrix_mut(&mut x, rows, columns);
    train::dropout_add(isa, &dropped, &sentences, &places, d_x, to, parallelism).expect("fits");
    results.push(("dropout_add", bits(&x)));
}

fn losses(call: &Calls<'_>, results: &mut Results) {
    let Calls { isa, size, parallelism } = *call;
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
    train::cross_entropy_loss(isa, from, &targets, smoothing, &mut losses, parallelism)
        .expect("fits");
    results.push(("cross_entropy_loss", losses_of(&losses)));
    let to = matrix_mut(&mut logits, rows, columns);
    train::cross_entropy(isa, to, &targets, smoothing, 0.5, &mut losses, parallelism)
        .expect("fits");
    results.push(("cross_entropy", [losses_of(&losses), bits(&logits)].concat()));
}

fn optimizers(call: &Calls<'_>, results: &mut Results) {
    let Calls { isa, size, parallelism } = *call;
    let len = size.tokens * size.columns;
    let gradients = values(35, len);
    let mut partials = vec![0.0; train::sum_of_squares_scratch(len).expect("a length")];
    let sum = train::sum_of_squares(isa, &gradients, &mut partials, parallelism).expect("fits");
    results.push(("sum_of_squares", vec![sum.to_bits() as u32, (sum.to_bits() >> 32) as u32]));
    let (mut parameters, mut first) = (values(36, len), values(37, len));
    let mut second: Vec<f32> = first.iter().map(|x| x.abs()).collect();
    let mut mean = parameters.clone();
    let adam = Adam { step: 3, weight_decay: 0.01, ..Adam::default() };
    let moments = Moments { first: &mut first, second: &mut second };
    let average = Some((&mut mean[..], 0.9));
    train::adam(isa, &adam, &mut parameters, &gradients, moments, average, parallelism)
        .expect("fits");
    let all = [bits(&parameters), bits(&first), bits(&second), bits(&mean)].concat();
    results.push(("adam", all));
    let mut out = poisoned(len);
    train::average(isa, &[&gradients, &parameters, &first], &mut out, parallelism).expect("fits");
    results.push(("average", bits(&out)));
}
