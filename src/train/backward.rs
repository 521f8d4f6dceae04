//! The backward pass: from the loss of each token to the gradient of each parameter, block by block in reverse order.
//!
//! Equations, with `dy` for the gradient of a result `y`. A linear map `y = x W + b`: `dx = dy W^T`, `dW = x^T dy`,
//! and `db` is the sum of `dy` over tokens. "Add & Norm" with the norm after the block (the paper): the gradient of
//! the sum is the gradient of both the block's output and the block's input, so the epilogue of the last product adds
//! the block's own part. With the norm before the block, the norm's gradient is added to the gradient of the residual
//! stream. Attention, norms and activations: see their kernels. No gradient is cleared first: the first write stores,
//! later writes add.

use super::dropout::Site;
use super::error::TrainError;
use super::limits::SavedActivations;
use super::params;
use super::pass::{Pass, cut};
use super::plan::StackSaved;
use crate::config::Side;
use crate::model::weights::{Decoder, Encoder, FeedForward, Norm};
use core::ops::Range;
use simdformer_kernels::Residual;
use simdformer_kernels::train::{ReductionChunks, WriteMode, gate_backward};

/// The outputs of the backward pass other than the gradients of activations.
pub(super) struct Gradients<'g> {
    /// Gradients of the parameters, at the ranges of the parameters.
    pub(super) of_parameters: &'g mut [f32],
}

impl Pass<'_> {
    /// Computes, from the gradient of the decoder's output in its `d_x`, the gradient of the decoder's embeddings
    /// (also in `d_x`) and of the encoder output.
    pub(super) fn decoder_backward(
        &self,
        (decoder, flat): (&Decoder, &params::Network),
        memory: &mut [f32],
        gradients: &mut Gradients<'_>,
    ) -> Result<(), TrainError> {
        let plan = self.plan.decoder.as_ref().ok_or(TrainError::NoDecoder)?;
        let flat = flat.decoder.as_ref().ok_or(TrainError::NoDecoder)?;
        let side = Side::Decoder;
        let norms = (decoder.final_norm.as_ref(), flat.final_norm.as_ref());
        self.final_norm_backward(side, norms, plan, memory, gradients)?;
        for (index, (layer, flat)) in decoder.layers.iter().zip(&flat.layers).enumerate().rev() {
            let saved = &plan.layers[index];
            if self.needs_recompute(side, plan, index, memory)? {
                let blocks = (&layer.self_attention, &layer.cross_attention, &layer.feed_forward);
                self.decoder_layer(blocks, (plan, index), memory)?;
            }
            let cross_saved = saved.cross.as_ref().ok_or(TrainError::NoDecoder)?;
            let before = self.input_of(
                side,
                &layer.feed_forward.norm,
                (&saved.feed_forward.norm.standard, &layer.cross_attention.norm),
                &cross_saved.norm.standard,
                memory,
            )?;
            let blocks = (&layer.feed_forward, &flat.feed_forward);
            self.feed_forward_backward(side, blocks, (plan, index), before, memory, gradients)?;

            let before = self.input_of(
                side,
                &layer.cross_attention.norm,
                (&cross_saved.norm.standard, &layer.self_attention.norm),
                &saved.own.norm.standard,
                memory,
            )?;
            let first = index + 1 == decoder.layers.len();
            let blocks = (&layer.cross_attention, &flat.cross_attention);
            self.cross_attention_backward(
                blocks,
                (plan, index),
                cross_saved,
                (before, first),
                memory,
                gradients,
            )?;

            let previous = index.checked_sub(1).map(|i| &decoder.layers[i].feed_forward.norm);
            let before = self.layer_input(
                side,
                &layer.self_attention.norm,
                previous,
                (plan, index),
                memory,
            )?;
            let blocks = (&layer.self_attention, &flat.self_attention);
            self.self_attention_backward(side, blocks, (plan, index), before, memory, gradients)?;
        }
        let norms = (decoder.embedding.norm.as_ref(), flat.embedding.norm.as_ref());
        self.embedding_norm_backward(side, norms, plan, memory, gradients)
    }

    /// Computes, from the gradient of the encoder output in `d_x`, the gradient of the encoder's embeddings, also in
    /// `d_x`.
    pub(super) fn encoder_backward(
        &self,
        (encoder, flat): (&Encoder, &params::Network),
        memory: &mut [f32],
        gradients: &mut Gradients<'_>,
    ) -> Result<(), TrainError> {
        let plan = &self.plan.encoder;
        let flat = &flat.encoder;
        let side = Side::Encoder;
        let norms = (encoder.final_norm.as_ref(), flat.final_norm.as_ref());
        self.final_norm_backward(side, norms, plan, memory, gradients)?;
        for (index, (layer, flat)) in encoder.layers.iter().zip(&flat.layers).enumerate().rev() {
            let saved = &plan.layers[index];
            if self.needs_recompute(side, plan, index, memory)? {
                let blocks = (&layer.self_attention, &layer.feed_forward);
                self.encoder_layer(blocks, (plan, index), memory)?;
            }
            let before = self.input_of(
                side,
                &layer.feed_forward.norm,
                (&saved.feed_forward.norm.standard, &layer.self_attention.norm),
                &saved.own.norm.standard,
                memory,
            )?;
            let blocks = (&layer.feed_forward, &flat.feed_forward);
            self.feed_forward_backward(side, blocks, (plan, index), before, memory, gradients)?;

            let previous = index.checked_sub(1).map(|i| &encoder.layers[i].feed_forward.norm);
            let before = self.layer_input(
                side,
                &layer.self_attention.norm,
                previous,
                (plan, index),
                memory,
            )?;
            let blocks = (&layer.self_attention, &flat.self_attention);
            self.self_attention_backward(side, blocks, (plan, index), before, memory, gradients)?;
        }
        let norms = (encoder.embedding.norm.as_ref(), flat.embedding.norm.as_ref());
        self.embedding_norm_backward(side, norms, plan, memory, gradients)
    }

    /// Returns whether the layer must be recomputed. If so, copies the saved layer input to `x`.
    fn needs_recompute(
        &self,
        side: Side,
        plan: &StackSaved,
        index: usize,
        memory: &mut [f32],
    ) -> Result<bool, TrainError> {
        let input = &plan.layers[index].input;
        if self.plan.limits.keep != SavedActivations::Inputs {
            return Ok(false);
        }
        let floats = self.rows(side) * self.run.config.d_model;
        let [x, input] = cut(memory, [&plan.x, input])?;
        x[..floats].copy_from_slice(&input[..floats]);
        Ok(true)
    }

    /// Recomputes the input of a block inside a layer into `plan.input`: with the block's own norm if the norm comes
    /// first, otherwise with the norm of the previous block.
    fn input_of(
        &self,
        side: Side,
        norm: &Norm,
        (standard, norm_before): (&Range<usize>, &Norm),
        standard_before: &Range<usize>,
        memory: &mut [f32],
    ) -> Result<Range<usize>, TrainError> {
        if self.post_norm() {
            self.recompute_input(side, norm_before, standard_before, memory)
        } else {
            self.recompute_input(side, norm, standard, memory)
        }
    }

    /// As [`Pass::input_of`], for the first block of a layer.
    fn layer_input(
        &self,
        side: Side,
        norm: &Norm,
        norm_before: Option<&Norm>,
        (plan, index): (&StackSaved, usize),
        memory: &mut [f32],
    ) -> Result<Range<usize>, TrainError> {
        let saved = &plan.layers[index];
        if !self.post_norm() {
            return self.recompute_input(side, norm, &saved.own.norm.standard, memory);
        }
        match norm_before {
            _ if self.plan.limits.keep == SavedActivations::Inputs => Ok(saved.input.clone()),
            Some(norm) => {
                let before = &plan.layers[index - 1].feed_forward.norm.standard;
                self.recompute_input(side, norm, before, memory)
            }
            None => Ok(plan.embedded.clone()),
        }
    }

    fn recompute_input(
        &self,
        side: Side,
        norm: &Norm,
        standard: &Range<usize>,
        memory: &mut [f32],
    ) -> Result<Range<usize>, TrainError> {
        let floats = self.rows(side) * self.run.config.d_model;
        let to = &self.plan.input;
        let [standard, input] = cut(memory, [standard, to])?;
        self.norm_recompute(norm, standard, &mut input[..floats])?;
        Ok(to.clone())
    }

    fn final_norm_backward(
        &self,
        side: Side,
        norms: (Option<&Norm>, Option<&params::Norm>),
        plan: &StackSaved,
        memory: &mut [f32],
        gradients: &mut Gradients<'_>,
    ) -> Result<(), TrainError> {
        let floats = self.rows(side) * self.run.config.d_model;
        let saved = &plan.final_norm;
        let [d_x, standard, scale] = cut(memory, [&plan.d_x, &saved.standard, &saved.scale])?;
        let d_x = &mut d_x[..floats];
        if let (Some(norm), Some(flat)) = norms {
            self.norm_parameters(flat, side, standard, d_x, gradients.of_parameters)?;
            self.norm_backward_in_place(norm, (standard, scale), d_x)?;
        }
        Ok(())
    }

    /// Writes the gradient of `scale * table[id] + position` to `d_x`. The gradient of positions is copied to
    /// `embedded`; if positions are added after the norm, it is copied before the norm's backward pass.
    fn embedding_norm_backward(
        &self,
        side: Side,
        norms: (Option<&Norm>, Option<&params::Norm>),
        plan: &StackSaved,
        memory: &mut [f32],
        gradients: &mut Gradients<'_>,
    ) -> Result<(), TrainError> {
        let floats = self.rows(side) * self.run.config.d_model;
        let saved = &plan.embedding_norm;
        let [d_x, standard, scale, embedded] =
            cut(memory, [&plan.d_x, &saved.standard, &saved.scale, &plan.embedded])?;
        let d_x = &mut d_x[..floats];
        if let Some(dropout) = self.dropout_at(side, Site::Embedding) {
            let rows = self.rows(side);
            let d_x = Self::matrix_mut(d_x, self.run.config.d_model)?;
            self.drop_in_place(&dropout, (side, 0..rows), d_x)?;
        }
        // The gradient of positions is read from here. If positions were added after the norm, copy it before the
        // norm's backward pass.
        let d_positions = &mut embedded[..floats];
        if self.positions_after_norm(side) {
            d_positions.copy_from_slice(d_x);
        }
        if let (Some(norm), Some(flat)) = norms {
            self.norm_parameters(flat, side, standard, d_x, gradients.of_parameters)?;
            self.norm_backward_in_place(norm, (standard, scale), d_x)?;
        }
        if !self.positions_after_norm(side) {
            d_positions.copy_from_slice(d_x);
        }
        Ok(())
    }

    /// The gradient of a block's output, from the gradient of the sum: applies the dropout mask of the forward pass.
    /// `None` without dropout.
    pub(super) fn branch_gradient<'m>(
        &self,
        (side, site): (Side, Site),
        d_x: &[f32],
        branch: &'m mut [f32],
    ) -> Result<Option<&'m [f32]>, TrainError> {
        let Some(dropout) = self.dropout_at(side, site) else { return Ok(None) };
        let (d, rows) = (self.run.config.d_model, self.rows(side));
        let branch = &mut branch[..d_x.len()];
        branch.copy_from_slice(d_x);
        self.drop_in_place(&dropout, (side, 0..rows), Self::matrix_mut(branch, d)?)?;
        Ok(Some(branch))
    }

    /// With the norm after a block: computes the gradient of the norm's input from the gradient of its result, in
    /// `d_x`.
    pub(super) fn norm_after_backward(
        &self,
        side: Side,
        (norm, flat): (&Norm, &params::Norm),
        saved: (&[f32], &[f32]),
        d_x: &mut [f32],
        gradients: &mut [f32],
    ) -> Result<(), TrainError> {
        if self.post_norm() {
            self.norm_parameters(flat, side, saved.0, d_x, gradients)?;
            self.norm_backward_in_place(norm, saved, d_x)?;
        }
        Ok(())
    }

    /// With the norm before a block: adds the norm's input gradient, computed from `d_input`, to `d_x`.
    pub(super) fn norm_before_backward(
        &self,
        side: Side,
        (norm, flat): (&Norm, &params::Norm),
        saved: (&[f32], &[f32]),
        (d_input, d_x): (&[f32], &mut [f32]),
        gradients: &mut [f32],
    ) -> Result<(), TrainError> {
        if !self.post_norm() {
            self.norm_parameters(flat, side, saved.0, d_input, gradients)?;
            self.norm_backward(norm, saved, d_input, WriteMode::Add, d_x)?;
        }
        Ok(())
    }

    fn feed_forward_backward(
        &self,
        side: Side,
        (block, flat): (&FeedForward, &params::FeedForward),
        (plan, index): (&StackSaved, usize),
        before: Range<usize>,
        memory: &mut [f32],
        gradients: &mut Gradients<'_>,
    ) -> Result<(), TrainError> {
        let saved = &plan.layers[index].feed_forward;
        let config = self.run.config;
        let d = config.d_model;
        let floats = self.rows(side) * d;
        let width = block.inner.columns();
        let [packed_outer, packed_inner, packed_gate] = &self.plan.packed;
        let [
            d_x,
            branch,
            input,
            d_input,
            standard,
            scale,
            gates,
            inner,
            hidden,
            d_hidden,
            scratch,
            packed_outer,
            packed_inner,
            packed_gate,
        ] = cut(
            memory,
            [
                &plan.d_x,
                &self.plan.branch,
                &before,
                &self.plan.d_input,
                &saved.norm.standard,
                &saved.norm.scale,
                &saved.gate,
                &saved.inner,
                &self.plan.hidden,
                &self.plan.d_hidden,
                &self.plan.weight_gradient,
                packed_outer,
                packed_inner,
                packed_gate,
            ],
        )?;
        let (d_x, input, d_input) = (&mut d_x[..floats], &input[..floats], &mut d_input[..floats]);
        let of = &mut *gradients.of_parameters;
        let (norms, saved_norm) = ((&block.norm, &flat.norm), (&*standard, &*scale));
        self.norm_after_backward(side, norms, saved_norm, d_x, of)?;
        let post = self.post_norm();
        let branch = self.branch_gradient((side, Site::FeedForward(index)), d_x, branch)?;
        let site = (side, Site::Hidden(index));
        let outer = self.packed(&flat.outer, packed_outer)?;
        let inner_packed = self.packed(&flat.inner, packed_inner)?;
        let gate_packed = match &flat.gate {
            Some(gate) => Some(self.packed(gate, packed_gate)?),
            None => None,
        };
        let recompute = matches!(
            self.plan.limits.keep,
            SavedActivations::Projections | SavedActivations::Context
        );
        let (isa, parallelism) = (self.run.isa(), self.run.parallelism);
        let mut write = self.write;
        for chunk in self.chunk_rows(side) {
            let within = |width: usize| chunk.start * width..chunk.end * width;
            let ends = [chunk.len() as u32];
            let one = ReductionChunks::new(&ends)?;
            let (input, inner) = (&input[within(d)], &mut inner[within(width)]);
            let hidden = &mut hidden[..chunk.len() * width];
            let d_hidden = &mut d_hidden[..chunk.len() * width];
            if recompute {
                self.linear(&block.inner, input, Residual::None, inner)?;
            }
            if let Some(gate) = &block.gate {
                let gates = &mut gates[within(width)];
                if recompute {
                    self.linear(gate, input, Residual::None, gates)?;
                }
                self.hidden(site, chunk.clone(), (Some(gates), inner), width, hidden)?;
            } else {
                self.hidden(site, chunk.clone(), (None, inner), width, hidden)?;
            }
            let d_out = &branch.unwrap_or(d_x)[within(d)];
            let operands = (Self::matrix(d_out, d)?, Self::matrix(hidden, width)?);
            self.linear_parameters(&flat.outer, one, write, operands, of, scratch)?;
            let derivative = match &block.gate {
                Some(_) => Residual::None,
                None => {
                    let pre = Self::matrix(inner, width)?;
                    Residual::ActivationBackward { activation: config.activation, pre }
                }
            };
            self.linear_input(&outer, d_out, derivative, d_hidden)?;
            if let Some(dropout) = self.dropout_at(site.0, site.1) {
                let d_hidden = Self::matrix_mut(d_hidden, width)?;
                self.drop_in_place(&dropout, (side, chunk.clone()), d_hidden)?;
            }
            let x = Self::matrix(input, d)?;
            let (to, residual) = match post {
                true => (&mut d_x[within(d)], Residual::Output),
                false => (&mut d_input[within(d)], Residual::None),
            };
            match (&flat.gate, &gate_packed) {
                (Some(gate), Some(gate_packed)) => {
                    let gates = &mut gates[within(width)];
                    gate_backward(
                        isa,
                        config.activation,
                        Self::matrix_mut(gates, width)?,
                        Self::matrix_mut(inner, width)?,
                        Self::matrix(d_hidden, width)?,
                        parallelism,
                    )?;
                    let operands = (Self::matrix(inner, width)?, x);
                    self.linear_parameters(&flat.inner, one, write, operands, of, scratch)?;
                    let operands = (Self::matrix(gates, width)?, x);
                    self.linear_parameters(gate, one, write, operands, of, scratch)?;
                    self.linear_input(&inner_packed, inner, residual, to)?;
                    self.linear_input(gate_packed, gates, Residual::Output, to)?;
                }
                _ => {
                    let operands = (Self::matrix(d_hidden, width)?, x);
                    self.linear_parameters(&flat.inner, one, write, operands, of, scratch)?;
                    self.linear_input(&inner_packed, d_hidden, residual, to)?;
                }
            }
            write = WriteMode::Add;
        }
        self.norm_before_backward(side, norms, saved_norm, (d_input, d_x), of)
    }
}
