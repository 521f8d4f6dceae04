//! One pass over some sentences: forward, the loss, backward, gradients of lookups.

use super::backward::Gradients;
use super::error::TrainError;
use super::forward::logits;
use super::metrics::Totals;
use super::params;
use super::pass::{Pass, cut};
use crate::config::{Positions, Side};
use crate::memory::MemoryError;
use crate::model::Model;
use crate::model::weights::{Bottom, Decoder};
use crate::network::visitor::Input;
use core::ops::Range;
use simdformer_kernels::train::{
    Lookup, ReductionChunks, RowLoss, Smoothing, WriteMode, cross_entropy, cross_entropy_loss,
    embedding_gradient,
};
use simdformer_kernels::{MatrixMut, Residual};

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
    ) -> Result<(), TrainError> {
        let decoder = model.decoder().ok_or(TrainError::NoDecoder)?;
        self.encode(model.encoder(), memory)?;
        self.decode(decoder, memory)?;
        self.each_chunk(decoder, memory, |chunk, logits, _| {
            let labels = &self.batch.labels[chunk.clone()];
            let (isa, parallelism) = (self.run.isa(), self.run.parallelism);
            let losses = &mut losses[chunk];
            let logits = logits.read();
            cross_entropy_loss(isa, logits, labels, smoothing, losses, parallelism)?;
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
    ) -> Result<(), TrainError> {
        let decoder = model.decoder().ok_or(TrainError::NoDecoder)?;
        let flat = network.decoder.as_ref().ok_or(TrainError::NoDecoder)?;
        self.encode(model.encoder(), memory)?;
        self.decode(decoder, memory)?;
        let mut write = self.write;
        let Outcome { gradients, losses, .. } = outcome;
        self.each_chunk(decoder, memory, |chunk, mut logits, rest| {
            let labels = &self.batch.labels[chunk.clone()];
            let (isa, parallelism) = (self.run.isa(), self.run.parallelism);
            let of = &mut losses[chunk];
            cross_entropy(isa, logits.reborrow(), labels, smoothing, scale, of, parallelism)?;
            let logits = logits.read();
            let x = Self::matrix(rest.x, self.run.config.d_model)?;
            let ends = [logits.rows() as u32];
            let chunk = ReductionChunks::new(&ends)?;
            let operands = (logits, x);
            self.linear_parameters(&flat.output, chunk, write, operands, gradients, rest.scratch)?;
            write = WriteMode::Add;
            let output = self.packed(&flat.output, rest.packed)?;
            let d_x = Self::matrix_mut(rest.d_x, self.run.config.d_model)?;
            Ok(output.multiply(logits, Residual::None, d_x, parallelism)?)
        })?;
        outcome.totals.add(&outcome.losses[..self.batch.labels.len()]);

        let plan = self.plan.decoder.as_ref().ok_or(TrainError::NoDecoder)?;
        let scale = self.run.config.logit_scale;
        if scale != 1.0 {
            let floats = self.rows(Side::Decoder) * self.run.config.d_model;
            memory[plan.d_x.clone()][..floats].iter_mut().for_each(|d| *d *= scale);
        }
        let mut of = Gradients { of_parameters: &mut *outcome.gradients };
        self.decoder_backward((decoder, network), memory, &mut of)?;
        // Copy the gradient of the encoder output to the gradient of the encoder's residual stream.
        let floats = self.rows(Side::Encoder) * self.run.config.d_model;
        let [from, to] = cut(memory, [&self.plan.d_memory, &self.plan.encoder.d_x])?;
        to[..floats].copy_from_slice(&from[..floats]);
        self.encoder_backward((model.encoder(), network), memory, &mut of)?;
        self.bottom_backward(model, network, memory, outcome)?;
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
    ) -> Result<(), TrainError> {
        self.encode(model.encoder(), memory)?;
        let floats = self.rows(Side::Encoder) * self.run.config.d_model;
        let [hidden, d_hidden] = cut(memory, [&self.plan.memory, &self.plan.encoder.d_x])?;
        let loss = loss(&hidden[..floats], &mut d_hidden[..floats]);
        outcome.totals.add_sum(loss, self.rows(Side::Encoder));
        let mut of = Gradients { of_parameters: &mut *outcome.gradients };
        self.encoder_backward((model.encoder(), network), memory, &mut of)?;
        self.bottom_backward(model, network, memory, outcome)?;
        self.look_up(network, memory, outcome)
    }

    /// Computes the gradients of the convolutions, if the encoder reads features.
    fn bottom_backward(
        &self,
        model: &Model,
        network: &params::Network,
        memory: &mut [f32],
        outcome: &mut Outcome<'_>,
    ) -> Result<(), TrainError> {
        match (&model.encoder().input, &network.encoder.input) {
            (Bottom::ConvFrontend(stem), Input::ConvFrontend(flat)) => {
                self.stem_backward((stem, flat), memory, outcome.gradients)
            }
            _ => Ok(()),
        }
    }

    /// Calls `each` with the logits of each reduction chunk of the target, in order.
    fn each_chunk(
        &self,
        decoder: &Decoder,
        memory: &mut [f32],
        mut each: impl FnMut(Range<usize>, MatrixMut<'_>, LossChunk<'_>) -> Result<(), TrainError>,
    ) -> Result<(), TrainError> {
        let plan = self.plan.decoder.as_ref().ok_or(TrainError::NoDecoder)?;
        let (d, vocabulary) = (self.run.config.d_model, self.run.config.target_vocab);
        let [x, d_x, out, scratch, packed] = cut(
            memory,
            [
                &plan.x,
                &plan.d_x,
                &self.plan.logits,
                &self.plan.weight_gradient,
                &self.plan.packed[0],
            ],
        )?;
        for chunk in self.chunk_rows(Side::Decoder) {
            let within = chunk.start * d..chunk.end * d;
            let out = &mut out[..chunk.len() * vocabulary];
            let x = &x[within.clone()];
            logits(self, decoder, x, out)?;
            let out = Self::matrix_mut(out, vocabulary)?;
            let d_x = &mut d_x[within];
            each(chunk, out, LossChunk { x, d_x, scratch: &mut *scratch, packed: &mut *packed })?;
        }
        Ok(())
    }

    /// Adds the gradients of looked-up rows to the tables of tokens, positions and types, one group of sentences at a
    /// time. So additions to a table that both sides share have the same order for any split into passes.
    fn look_up(
        &self,
        network: &params::Network,
        memory: &mut [f32],
        outcome: &mut Outcome<'_>,
    ) -> Result<(), TrainError> {
        let config = self.run.config;
        let d = config.d_model;
        let skip = super::frozen::padding_row(config);
        let ties = config.ties;
        let (encoder, decoder) = (&network.encoder, network.decoder.as_ref());
        let target = self.plan.decoder.as_ref().unwrap_or(&self.plan.encoder);
        let of_target = if decoder.is_some() { target.d_x.clone() } else { 0..0 };
        let [source_d, target_d] = cut(memory, [&self.plan.encoder.d_x, &of_target])?;
        let mut start = [0, 0];
        for &end in &self.batch.groups {
            let end = end.map(|end| end as usize);
            if let Input::Table(table) = &encoder.input {
                let tied = ties.source_target && ties.target_output && decoder.is_some();
                let rows = start[0]..end[0];
                let ids = &self.batch.source.ids[rows.clone()];
                let from = &source_d[rows.start * d..rows.end * d];
                self.look_up_rows(table, tied, (ids, skip), config.embedding_scale, from, outcome)?;
            }
            if let Some(decoder) = decoder {
                let rows = start[1]..end[1];
                let ids = &self.batch.target.ids[rows.clone()];
                let from = &target_d[rows.start * d..rows.end * d];
                let (table, tied) = (&decoder.table, ties.target_output);
                self.look_up_rows(table, tied, (ids, skip), config.embedding_scale, from, outcome)?;
            }
            start = end;
        }
        let learned = matches!(config.positions, Positions::Learned { .. });
        let sides = [
            (Some(&encoder.embedding), &self.plan.encoder, &self.batch.source),
            (decoder.map(|decoder| &decoder.embedding), target, &self.batch.target),
        ];
        for (embedding, plan, lines) in sides {
            let Some(table) = embedding.and_then(|embedding| embedding.positions.as_ref()) else {
                continue;
            };
            if learned {
                // The backward pass wrote the gradient of the positions to `embedded`.
                let from = &memory[plan.embedded.clone()][..lines.rows() * d];
                self.look_up_rows(table, false, (&lines.positions, None), 1.0, from, outcome)?;
            }
        }
        if let Some(table) = &encoder.token_types {
            // All tokens have type 0.
            let lines = &self.batch.source;
            let from = &memory[self.plan.encoder.embedded.clone()][..lines.rows() * d];
            self.look_up_rows(table, false, (&lines.types, None), 1.0, from, outcome)?;
        }
        Ok(())
    }

    fn look_up_rows(
        &self,
        table: &params::Table,
        tied: bool,
        (ids, skip): (&[u32], Option<u32>),
        scale: f32,
        d_x: &[f32],
        outcome: &mut Outcome<'_>,
    ) -> Result<(), TrainError> {
        let to = match tied {
            true => &mut *outcome.lookups,
            false => &mut outcome.gradients[table.range.clone()],
        };
        let to = to.get_mut(table.skip * table.columns..).ok_or(MemoryError::TooLarge)?;
        let (isa, parallelism) = (self.run.isa(), self.run.parallelism);
        let d_x = Self::matrix(d_x, table.columns)?;
        let to = Self::matrix_mut(to, table.columns)?;
        embedding_gradient(isa, Lookup { ids, scale, skip }, d_x, to, outcome.order, parallelism)?;
        Ok(())
    }
}

/// The operands of one reduction chunk of the target, other than its logits.
struct LossChunk<'l> {
    /// `[rows, d_model]`: the input of the logits, and its gradient.
    x: &'l [f32],
    d_x: &'l mut [f32],
    scratch: &'l mut [f32],
    packed: &'l mut [f32],
}
