//! The stack that training kernels use.

use super::attention::{Case, Gradients, Saved};
use crate::support::batch::Batch;
use crate::support::stack::{ATTENTION, OTHERS, check};
use crate::support::*;
use simdformer_kernels::train::{
    Adam, AttentionGradients, AttentionInputs, Dropout, Lookup, Moments, RowLoss, SavedAttention,
    Smoothing, SmoothingOver, WriteMode, adam, attention_backward, attention_backward_scratch,
    attention_forward_save, average, cross_entropy, cross_entropy_loss, dropout,
    embedding_gradient, normal, permutation, sum_of_squares,
};
use simdformer_kernels::{Exec, Input, Qkv, attention_scratch};

#[test]
fn updates() {
    let mut random = Random::new(3);
    for (rows, columns) in [(5, 70), (3, 9000)] {
        let x = random.values(rows * columns);
        let (mut out, mut first, mut second) = (x.clone(), x.clone(), x.clone());
        second.iter_mut().for_each(|x| *x = x.abs());
        let mut order: Vec<u32> = (0..rows as u32).collect();
        let ids = order.clone();
        let mut words = vec![0; 2 * rows];
        let mut losses = vec![RowLoss::default(); rows];
        let mut partials = vec![0.0; x.len()];
        let matrix = view_matrix(&x, rows, columns);
        let smoothing = Smoothing { epsilon: 0.1, over: SmoothingOver::All };
        let drop = Dropout { seed: 1, step: 1, site: 1, probability: 0.1 };
        for isa in all_isas() {
            check(isa, "a loss", OTHERS, || {
                let logits = view_rows(&mut out, rows);
                cross_entropy(Exec::serial(isa), logits, &ids, smoothing, 1.0, &mut losses)
                    .expect("a fit");
                cross_entropy_loss(Exec::serial(isa), matrix, &ids, smoothing, &mut losses)
                    .expect("a fit");
            });
            check(isa, "a dropout", OTHERS, || {
                dropout(
                    Exec::serial(isa),
                    &drop,
                    &ids,
                    &ids,
                    Input::Output,
                    WriteMode::Store,
                    view_rows(&mut out, rows),
                )
                .expect("a fit");
                dropout(
                    Exec::serial(isa),
                    &drop,
                    &ids,
                    &ids,
                    Input::Matrix(matrix),
                    WriteMode::Add,
                    view_rows(&mut out, rows),
                )
                .expect("a fit");
            });
            check(isa, "the gradient of a lookup", OTHERS, || {
                let table = view_rows(&mut out, rows);
                let lookup = Lookup { ids: &ids, scale: 2.0, skip: None };
                embedding_gradient(Exec::serial(isa), lookup, matrix, table, &mut words)
                    .expect("a fit");
            });
            check(isa, "Adam", OTHERS, || {
                let settings = Adam::default();
                let moments = Moments { first: &mut first, second: &mut second };
                adam(Exec::serial(isa), &settings, &mut out, &x, moments, None).expect("a fit");
                sum_of_squares(Exec::serial(isa), &x, &mut partials).expect("space");
                average(Exec::serial(isa), &[&x, &first], &mut out).expect("a fit");
            });
            check(isa, "random numbers", OTHERS, || {
                normal(1, 2, 3, 1.0, &mut out);
                permutation(1, 2, &mut order);
            });
        }
    }
}

/// Attention with dropout of weights, and its gradient.
#[test]
fn attentions() {
    for (tokens, causal) in [(9, false), (300, true)] {
        let mut batch = Batch::new(&[(tokens, tokens, 0)], [2, 1, 64], [0; 3], 1);
        batch.causal = causal;
        let case = Case::new(batch, [0; 4], 1).dropping(0.1, 3);
        let Batch { query, key, value, sequences, .. } = &case.batch;
        let qkv = Qkv { query: query.view(), key: key.view(), value: value.view() };
        let (options, dropout) = (case.batch.options(), case.of_weights());
        let inputs = AttentionInputs { qkv, sequences, options: &options, dropout };
        let undropped = AttentionInputs { dropout: None, ..inputs };
        for isa in all_isas() {
            let mut kept = case.forward(isa, SERIAL);
            let mut gradients = case.backward(isa, &kept, SERIAL);
            let floats = attention_scratch(isa, sequences, 1, 64).expect("a small size");
            let mut scratch = vec![0.0; floats];
            check(isa, "attention that drops nothing", ATTENTION, || {
                let Saved { context, sums } = &mut kept;
                let (out, scratch) = (context.view_mut(), &mut scratch);
                attention_forward_save(Exec::serial(isa), &undropped, out, sums, scratch)
                    .expect("a fit");
            });
            check(isa, "attention that drops weights", ATTENTION, || {
                let Saved { context, sums } = &mut kept;
                let (out, scratch) = (context.view_mut(), &mut scratch);
                attention_forward_save(Exec::serial(isa), &inputs, out, sums, scratch)
                    .expect("a fit");
            });
            let floats = attention_backward_scratch(isa, sequences, 2, 1, 64).expect("small");
            let mut scratch = vec![0.0; floats];
            check(isa, "the gradient of attention", ATTENTION, || {
                let Gradients { query, key, value, .. } = &mut gradients;
                let to = [query, key, value].map(|tensor| tensor.view_mut());
                let [query, key, value] = to;
                let to = AttentionGradients { query, key, value, bias: None };
                let saved = SavedAttention { context: kept.context.view(), sums: &kept.sums };
                let d_context = case.d_context.view();
                attention_backward(Exec::serial(isa), &inputs, saved, d_context, to, &mut scratch)
                    .expect("a fit");
            });
        }
    }
}
