//! The backward pass: from the loss of each token to the gradient of each parameter, one block after the other in
//! the opposite order.
//!
//! Equations, with `dy` for the gradient of a result `y`. A linear map `y = x W + b`: `dx = dy W^T`, `dW = x^T dy`, `db`
//! the sum of `dy` over tokens. "Add & Norm" after the block (the paper): the gradient of the sum is at once that of
//! what the block made and of what it read, so the block's own part is added to it by the last product's epilogue.
//! Before the block: the norm's gradient is added to the stream's. Attention, norms and activations: see their kernels.
//! Nothing is cleared before: the first to write a gradient stores it.

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

/// What the backward pass writes besides the gradients of activations.
pub(super) struct Gradients<'g> {
    /// Of the parameters, at their places.
    pub(super) of_parameters: &'g mut [f32],
}

impl Pass<'_> {
    /// From the gradient of the decoder's output, in its `d_x`, to that of its embeddings, in the same place, and of
    /// the encoder's output.
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
            if self.run_again(side, plan, index, memory)? {
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

    /// From the gradient of the encoder's output, in `plan.d_memory`, to that of its embeddings, in its `d_x`.
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
            if self.run_again(side, plan, index, memory)? {
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

    /// Whether the layer has to run again; then its input is in `x`.
    fn run_again(
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

    /// Makes what a block inside a layer read again, in `plan.input`: of its own norm where that comes first, else of
    /// the block's before.
    fn input_of(
        &self,
        side: Side,
        norm: &Norm,
        (standard, norm_before): (&Range<usize>, &Norm),
        standard_before: &Range<usize>,
        memory: &mut [f32],
    ) -> Result<Range<usize>, TrainError> {
        if self.post_norm() {
            self.again(side, norm_before, standard_before, memory)
        } else {
            self.again(side, norm, standard, memory)
        }
    }

    /// As [`Pass::input_of`], of the first block of a layer.
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
            return self.again(side, norm, &saved.own.norm.standard, memory);
        }
        match norm_before {
            _ if self.plan.limits.keep == SavedActivations::Inputs => Ok(saved.input.clone()),
            Some(norm) => {
                let before = &plan.layers[index - 1].feed_forward.norm.standard;
                self.again(side, norm, before, memory)
            }
            None => Ok(plan.embedded.clone()),
        }
    }

    fn again(
        &self,
        side: Side,
        norm: &Norm,
        standard: &Range<usize>,
        memory: &mut [f32],
    ) -> Result<Range<usize>, TrainError> {
        let floats = self.rows(side) * self.run.config.d_model;
        let to = &self.plan.input;
        let [standard, input] = cut(memory, [standard, to])?;
        self.norm_again(norm, standard, &mut input[..floats])?;
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

    /// Leaves the gradient of `scale * table[id] + position` in `d_x`; where positions come after the norm, that of
    /// positions has been taken before.
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
        let [d_x, standard, scale, late] =
            cut(memory, [&plan.d_x, &saved.standard, &saved.scale, &plan.embedded])?;
        let d_x = &mut d_x[..floats];
        if let Some(dropout) = self.drops(side, Site::Embedding) {
            let rows = self.rows(side);
            let d_x = Self::matrix_mut(d_x, self.run.config.d_model)?;
            self.drop_in_place(&dropout, (side, 0..rows), d_x)?;
        }
        // Positions read their gradient here: before the norm's backward pass if they were added after it.
        let d_positions = &mut late[..floats];
        if self.positions_come_late(side) {
            d_positions.copy_from_slice(d_x);
        }
        if let (Some(norm), Some(flat)) = norms {
            self.norm_parameters(flat, side, standard, d_x, gradients.of_parameters)?;
            self.norm_backward_in_place(norm, (standard, scale), d_x)?;
        }
        if !self.positions_come_late(side) {
            d_positions.copy_from_slice(d_x);
        }
        Ok(())
    }

    /// The gradient of what a block made, from that of the sum it was added to: with the numbers dropped that were
    /// dropped then.
    pub(super) fn of_branch<'m>(
        &self,
        (side, site): (Side, Site),
        d_x: &[f32],
        branch: &'m mut [f32],
    ) -> Result<Option<&'m [f32]>, TrainError> {
        let Some(dropout) = self.drops(side, site) else { return Ok(None) };
        let (d, rows) = (self.run.config.d_model, self.rows(side));
        let branch = &mut branch[..d_x.len()];
        branch.copy_from_slice(d_x);
        self.drop_in_place(&dropout, (side, 0..rows), Self::matrix_mut(branch, d)?)?;
        Ok(Some(branch))
    }

    /// Where the norm comes after a block: from the gradient of its result to that of the sum that it read, in `d_x`.
    pub(super) fn enter(
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

    /// Where the norm comes before a block: adds to `d_x` what the gradient of its result, `d_input`, says of the stream.
    pub(super) fn leave(
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
        let (norms, kept) = ((&block.norm, &flat.norm), (&*standard, &*scale));
        self.enter(side, norms, kept, d_x, of)?;
        let post = self.post_norm();
        let branch = self.of_branch((side, Site::FeedForward(index)), d_x, branch)?;
        let site = (side, Site::Hidden(index));
        let outer = self.packed(&flat.outer, packed_outer)?;
        let inner_packed = self.packed(&flat.inner, packed_inner)?;
        let gate_packed = match &flat.gate {
            Some(gate) => Some(self.packed(gate, packed_gate)?),
            None => None,
        };
        let again = matches!(
            self.plan.limits.keep,
            SavedActivations::Projections | SavedActivations::Context
        );
        let (isa, parallelism) = (self.run.isa(), self.run.parallelism);
        let mut write = self.write;
        for leaf in self.leaf_rows(side) {
            let within = |width: usize| leaf.start * width..leaf.end * width;
            let ends = [leaf.len() as u32];
            let one = ReductionChunks::new(&ends)?;
            let (input, inner) = (&input[within(d)], &mut inner[within(width)]);
            let hidden = &mut hidden[..leaf.len() * width];
            let d_hidden = &mut d_hidden[..leaf.len() * width];
            if again {
                self.linear(&block.inner, input, Residual::None, inner)?;
            }
            if let Some(gate) = &block.gate {
                let gates = &mut gates[within(width)];
                if again {
                    self.linear(gate, input, Residual::None, gates)?;
                }
                self.hidden(site, leaf.clone(), (Some(gates), inner), width, hidden)?;
            } else {
                self.hidden(site, leaf.clone(), (None, inner), width, hidden)?;
            }
            let d_out = &branch.unwrap_or(d_x)[within(d)];
            let operands = (Self::matrix(d_out, d)?, Self::matrix(hidden, width)?);
            self.linear_parameters(&flat.outer, one, write, operands, of, scratch)?;
            let derivative = match &block.gate {
                Some(_) => Residual::None,
                None => {
                    let pre = Self::matrix(inner, width)?;
                    Residual::Derivative { of: config.activation, pre }
                }
            };
            self.linear_input(&outer, d_out, derivative, d_hidden)?;
            if let Some(dropout) = self.drops(site.0, site.1) {
                let d_hidden = Self::matrix_mut(d_hidden, width)?;
                self.drop_in_place(&dropout, (side, leaf.clone()), d_hidden)?;
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
        self.leave(side, norms, kept, (d_input, d_x), of)
    }
}
