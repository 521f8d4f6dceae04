//! One pass over some sentences: forward, the loss, backward, gradients of lookups.

use super::faults::no_decoder;
use super::params;
use super::pass_context::{Pass, views};
use crate::config::Side;
use crate::error::Error;
use crate::model::Model;
use crate::model::weights::Decoder;
use core::ops::Range;
use simdformer_kernels::PostOp;
use simdformer_kernels::train::{
    ReductionChunks, RowLoss, Smoothing, WriteMode, cross_entropy, cross_entropy_loss,
};

/// Sums over target tokens, added in f64 in the order of the tokens.
///
/// For a model with only an encoder, `loss` is the sum of the caller's losses, and `tokens` counts source tokens.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Totals {
    /// Target tokens, end tokens included.
    pub tokens: u64,
    /// Sum of the (smoothed) losses, in nats.
    pub loss: f64,
    /// Sum of the negative log-probabilities of the targets, in nats.
    pub nll: f64,
    /// Tokens that have the largest logit.
    pub correct: u64,
}

impl Totals {
    /// Mean loss per token.
    pub fn mean_loss(&self) -> f64 {
        self.loss / self.tokens as f64
    }

    /// Mean negative log-probability per token; its exponential is the perplexity.
    pub fn mean_nll(&self) -> f64 {
        self.nll / self.tokens as f64
    }

    /// The fraction of tokens that have the largest logit.
    pub fn accuracy(&self) -> f64 {
        self.correct as f64 / self.tokens as f64
    }

    pub(super) fn add(&mut self, losses: &[RowLoss]) {
        self.tokens += losses.len() as u64;
        for row in losses {
            self.loss += row.loss;
            self.nll += row.nll;
            self.correct += u64::from(row.correct);
        }
    }

    pub(super) fn add_sum(&mut self, loss: f64, tokens: usize) {
        self.tokens += tokens as u64;
        self.loss += loss;
    }
}

/// The outputs of a pass, other than the workspace.
pub(super) struct Outcome<'o> {
    pub(super) gradients: &'o mut [f32],
    /// Gradients from lookups of the table that is also the output matrix; empty without such a table.
    pub(super) lookups: &'o mut [f32],
    pub(super) losses: &'o mut [RowLoss],
    /// Scratch for sorting ids.
    pub(super) order: &'o mut [u32],
    pub(super) totals: &'o mut Totals,
}

impl Pass<'_> {
    /// Computes the losses of the targets, without a gradient.
    pub(super) fn evaluate(
        &self,
        model: &Model,
        smoothing: Smoothing,
        memory: &mut [f32],
        losses: &mut [RowLoss],
        totals: &mut Totals,
    ) -> Result<(), Error> {
        let decoder = model.decoder().ok_or_else(no_decoder)?;
        model.encoder().forward(&self.run, &mut self.forward(Side::Encoder, memory)?)?;
        decoder.forward(&self.run, &mut self.forward(Side::Decoder, memory)?)?;
        self.each_chunk(decoder, memory, |chunk, LossChunk { logits, .. }| {
            let labels = &self.batch.labels[chunk.clone()];
            let exec = self.run.exec();
            let losses = &mut losses[chunk];
            let logits = Self::matrix(logits, self.run.config.target_vocab)?;
            cross_entropy_loss(exec, logits, labels, smoothing, losses)?;
            Ok(())
        })?;
        totals.add(&losses[..self.batch.labels.len()]);
        Ok(())
    }

    /// Adds the gradients of the targets' losses, each multiplied by `scale`.
    pub(super) fn learn(
        &self,
        (model, network): (&Model, &params::Network),
        (smoothing, scale): (Smoothing, f32),
        memory: &mut [f32],
        outcome: &mut Outcome<'_>,
    ) -> Result<(), Error> {
        let decoder = model.decoder().ok_or_else(no_decoder)?;
        let flat = network.decoder.as_ref().ok_or_else(no_decoder)?;
        model.encoder().forward(&self.run, &mut self.forward(Side::Encoder, memory)?)?;
        decoder.forward(&self.run, &mut self.forward(Side::Decoder, memory)?)?;
        let mut write = self.write;
        let Outcome { gradients, losses, .. } = outcome;
        self.each_chunk(
            decoder,
            memory,
            |chunk, LossChunk { logits, x, d_x, scratch, packed }| {
                let labels = &self.batch.labels[chunk.clone()];
                let exec = self.run.exec();
                let ends = [chunk.len() as u32];
                let of = &mut losses[chunk];
                let d_logits = Self::matrix_mut(logits, self.run.config.target_vocab)?;
                cross_entropy(exec, d_logits, labels, smoothing, scale, of)?;
                let (one, flat, operands) =
                    (ReductionChunks::new(&ends)?, &flat.output, [&*logits, x]);
                self.linear_parameters(flat, one, write, operands, gradients, scratch)?;
                write = WriteMode::Add;
                self.linear_input(&self.packed(flat, packed)?, logits, PostOp::None, d_x)
            },
        )?;
        outcome.totals.add(&outcome.losses[..self.batch.labels.len()]);

        let plan = self.plan.stack(Side::Decoder)?;
        let scale = self.run.config.logit_scale;
        if scale != 1.0 {
            let floats = self.rows(Side::Decoder) * self.run.config.d_model;
            memory[plan.d_x.clone()][..floats].iter_mut().for_each(|d| *d *= scale);
        }
        self.decoder_backward((decoder, network), memory, outcome.gradients)?;
        // Copy the gradient of the encoder output to the gradient of the encoder's residual stream.
        let floats = self.rows(Side::Encoder) * self.run.config.d_model;
        views!(memory => from: self.plan.d_memory, to: self.plan.encoder.d_x);
        to[..floats].copy_from_slice(&from[..floats]);
        self.encoder_backward((model.encoder(), network), memory, outcome.gradients)?;
        self.look_up(network, memory, outcome)
    }

    /// As [`Pass::learn`], for a model with only an encoder: `loss` reads its output and writes the gradient of the
    /// output.
    pub(super) fn learn_encoder(
        &self,
        (model, network): (&Model, &params::Network),
        loss: &mut dyn FnMut(&[f32], &mut [f32]) -> f64,
        memory: &mut [f32],
        outcome: &mut Outcome<'_>,
    ) -> Result<(), Error> {
        model.encoder().forward(&self.run, &mut self.forward(Side::Encoder, memory)?)?;
        let floats = self.rows(Side::Encoder) * self.run.config.d_model;
        views!(memory => hidden: self.plan.memory, d_hidden: self.plan.encoder.d_x);
        let loss = loss(&hidden[..floats], &mut d_hidden[..floats]);
        outcome.totals.add_sum(loss, self.rows(Side::Encoder));
        self.encoder_backward((model.encoder(), network), memory, outcome.gradients)?;
        self.look_up(network, memory, outcome)
    }

    /// Calls `each` with the logits of each reduction chunk of the target, in order.
    fn each_chunk(
        &self,
        decoder: &Decoder,
        memory: &mut [f32],
        mut each: impl FnMut(Range<usize>, LossChunk<'_>) -> Result<(), Error>,
    ) -> Result<(), Error> {
        let plan = self.plan.stack(Side::Decoder)?;
        let (d, vocabulary) = (self.run.config.d_model, self.run.config.target_vocab);
        views! { memory =>
            x: plan.x,
            d_x: plan.d_x,
            out: self.plan.logits,
            scratch: self.plan.weight_gradient,
            packed: self.plan.packed[0],
        }
        for chunk in self.lines(Side::Decoder).chunk_rows() {
            let within = chunk.start * d..chunk.end * d;
            let logits = &mut out[..chunk.len() * vocabulary];
            let (x, d_x) = (&x[within.clone()], &mut d_x[within]);
            decoder.logits(&self.run, x, &mut [], logits)?;
            each(chunk, LossChunk { logits, x, d_x, scratch, packed })?;
        }
        Ok(())
    }
}

/// The operands of one reduction chunk of the target.
struct LossChunk<'l> {
    /// `[rows, vocabulary]`: the logits, then their gradient.
    logits: &'l mut [f32],
    /// `[rows, d_model]`: the input of the logits, and its gradient.
    x: &'l [f32],
    d_x: &'l mut [f32],
    scratch: &'l mut [f32],
    packed: &'l mut [f32],
}
