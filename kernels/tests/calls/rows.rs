//! Kernels of rows and of elements, and those that training adds.

use super::{Calls, Results, bits, matrix, matrix_mut, poisoned, values};
use simdformer_kernels::activation::{self, Activation};
use simdformer_kernels::embedding::{Positions, embed};
use simdformer_kernels::norm::{self, LayerNorm, RmsNorm};
use simdformer_kernels::softmax::{
    FullyMasked, log_softmax, log_softmax_in_place, log_sum_exp, softmax, softmax_in_place,
};
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
    let (lengths, uniform) = (Some(&lengths[..]), FullyMasked::Uniform);
    let scores = matrix(&x, rows, columns);
    let mut p = poisoned(rows * columns);
    let to = matrix_mut(&mut p, rows, columns);
    softmax(isa, scores, lengths, uniform, to, parallelism).expect("fits");
    results.push(("softmax", bits(&p)));
    let mut p = x.clone();
    let to = matrix_mut(&mut p, rows, columns);
    softmax_in_place(isa, to, lengths, uniform, parallelism).expect("fits");
    results.push(("softmax_in_place", bits(&p)));
    let mut p = poisoned(rows * columns);
    let to = matrix_mut(&mut p, rows, columns);
    log_softmax(isa, scores, lengths, uniform, to, parallelism).expect("fits");
    results.push(("log_softmax", bits(&p)));
    let mut p = x.clone();
    let to = matrix_mut(&mut p, rows, columns);
    log_softmax_in_place(isa, to, lengths, uniform, parallelism).expect("fits");
    results.push(("log_softmax_in_place", bits(&p)));
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
    macro_rules! norms {
        ($norm:expr, $plain:ident $in_place:ident $add:ident $add_in_place:ident $add_into:ident) => {
            let mut out = poisoned(rows * columns);
            let to = matrix_mut(&mut out, rows, columns);
            norm::$plain(isa, $norm, from, to, parallelism).expect("fits");
            results.push((stringify!($plain), bits(&out)));
            let mut out = x.clone();
            let to = matrix_mut(&mut out, rows, columns);
            norm::$in_place(isa, $norm, to, parallelism).expect("fits");
            results.push((stringify!($in_place), bits(&out)));
            let mut out = poisoned(rows * columns);
            let to = matrix_mut(&mut out, rows, columns);
            norm::$add(isa, $norm, from, other, to, parallelism).expect("fits");
            results.push((stringify!($add), bits(&out)));
            let mut out = residual.clone();
            let to = matrix_mut(&mut out, rows, columns);
            norm::$add_in_place(isa, $norm, from, to, parallelism).expect("fits");
            results.push((stringify!($add_in_place), bits(&out)));
            let (mut sum, mut out) = (residual.clone(), poisoned(rows * columns));
            let to = matrix_mut(&mut out, rows, columns);
            let both = matrix_mut(&mut sum, rows, columns);
            norm::$add_into(isa, $norm, from, both, to, parallelism).expect("fits");
            results.push((stringify!($add_into), [bits(&out), bits(&sum)].concat()));
        };
    }
    norms!(layer, layer_norm layer_norm_in_place add_layer_norm add_layer_norm_in_place add_into_layer_norm);
    norms!(rms, rms_norm rms_norm_in_place add_rms_norm add_rms_norm_in_place add_into_rms_norm);
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
    macro_rules! forward_save_norms {
        ($norm:expr, $forward_save:ident $forward_save_in_place:ident $recompute:ident $backward:ident $backward_in_place:ident) => {
            let (mut standard, mut scale) = (poisoned(rows * columns), poisoned(rows));
            let mut out = poisoned(rows * columns);
            let (to, keep) =
                (matrix_mut(&mut out, rows, columns), matrix_mut(&mut standard, rows, columns));
            train::$forward_save(isa, $norm, from, keep, &mut scale, to, parallelism)
                .expect("fits");
            let all = [bits(&out), bits(&standard), bits(&scale)].concat();
            results.push((stringify!($forward_save), all));
            let (mut again, mut out) = (poisoned(rows * columns), x.clone());
            let (to, keep) =
                (matrix_mut(&mut out, rows, columns), matrix_mut(&mut again, rows, columns));
            train::$forward_save_in_place(isa, $norm, to, keep, &mut scale, parallelism)
                .expect("fits");
            let all = [bits(&out), bits(&again), bits(&scale)].concat();
            results.push((stringify!($forward_save_in_place), all));
            let standard = matrix(&standard, rows, columns);
            let mut out = poisoned(rows * columns);
            let to = matrix_mut(&mut out, rows, columns);
            train::$recompute(isa, $norm, standard, to, parallelism).expect("fits");
            results.push((stringify!($recompute), bits(&out)));
            let mut d_x = poisoned(rows * columns);
            let to = matrix_mut(&mut d_x, rows, columns);
            let saved = SavedNorm { standard, scale: &scale };
            train::$backward(isa, $norm, saved, d, WriteMode::Store, to, parallelism)
                .expect("fits");
            results.push((stringify!($backward), bits(&d_x)));
            let mut d_x = d_out.clone();
            let to = matrix_mut(&mut d_x, rows, columns);
            train::$backward_in_place(isa, $norm, saved, to, parallelism).expect("fits");
            results.push((stringify!($backward_in_place), bits(&d_x)));
        };
    }
    forward_save_norms!(layer, layer_norm_forward_save layer_norm_forward_save_in_place layer_norm_recompute layer_norm_backward layer_norm_backward_in_place);
    forward_save_norms!(rms, rms_norm_forward_save rms_norm_forward_save_in_place rms_norm_recompute rms_norm_backward rms_norm_backward_in_place);

    let (mut d_weight, mut d_bias) = (poisoned(columns), poisoned(columns));
    let gradients = NormGradients { weight: &mut d_weight, bias: Some(&mut d_bias) };
    train::layer_norm_parameters_backward(
        isa,
        from,
        d,
        chunks,
        WriteMode::Store,
        gradients,
        parallelism,
    )
    .expect("fits");
    results.push(("layer_norm_parameters_backward", [bits(&d_weight), bits(&d_bias)].concat()));
    train::rms_norm_parameters_backward(
        isa,
        from,
        d,
        chunks,
        WriteMode::Add,
        &mut d_weight,
        parallelism,
    )
    .expect("fits");
    results.push(("rms_norm_parameters_backward", bits(&d_weight)));
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
