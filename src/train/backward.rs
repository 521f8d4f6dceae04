//! The backward pass: from the loss of each token to the gradient of each parameter, block by block in reverse order.
//!
//! Equations, with `dy` for the gradient of a result `y`. A linear map `y = x W + b`: `dx = dy W^T`, `dW = x^T dy`,
//! and `db` is the sum of `dy` over tokens. "Add & Norm" with the norm after the block (the paper): the gradient of
//! the sum is the gradient of both the block's output and the block's input, so the epilogue of the last product adds
//! the block's own part. With the norm before the block, the norm's gradient is added to the gradient of the residual
//! stream. Attention, norms and activations: see their kernels. No gradient is cleared first: the first write stores,
//! later writes add.

use super::activation_checkpointing::SavedActivations;
use super::blocks::AttentionBlock;
use super::faults::no_decoder;
use super::memory_plan::NormSaved;
use super::params::{self, NormPart, Part};
use super::pass_context::{Pass, views};
use crate::config::Side;
use crate::error::Error;
use crate::model::weights::{Decoder, Encoder, FeedForward, Norm};
use crate::network::visitor::Input;
use core::ops::Range;

/// The blocks of a layer, each with the ranges of its parameters.
struct LayerBlocks<'l> {
    self_attention: AttentionBlock<'l>,
    cross_attention: Option<AttentionBlock<'l>>,
    feed_forward: Part<'l, FeedForward, params::FeedForward>,
}

impl Pass<'_> {
    /// Computes, from the gradient of the decoder's output in its `d_x`, the gradient of the decoder's embeddings
    /// (also in `d_x`) and of the encoder output.
    pub(super) fn decoder_backward(
        &self,
        (decoder, flat): (&Decoder, &params::Network),
        memory: &mut [f32],
        gradients: &mut [f32],
    ) -> Result<(), Error> {
        let (side, flat) = (Side::Decoder, flat.decoder.as_ref().ok_or_else(no_decoder)?);
        let final_norm = Part::optional(&decoder.final_norm, &flat.final_norm);
        let embedding_norm = Part::optional(&decoder.embedding.norm, &flat.embedding.norm);
        let blocks = |index: usize| {
            let (layer, flat) = (&decoder.layers[index], &flat.layers[index]);
            let (own, own_flat) = (&layer.self_attention, &flat.self_attention);
            let (cross, cross_flat) = (&layer.cross_attention, &flat.cross_attention);
            LayerBlocks {
                self_attention: AttentionBlock::of_self(index, own, own_flat),
                cross_attention: Some(AttentionBlock::of_cross(index, cross, cross_flat)),
                feed_forward: Part { weights: &layer.feed_forward, ranges: &flat.feed_forward },
            }
        };
        let recompute = |index: usize, memory: &mut [f32]| {
            decoder.layer(&self.run, index, &mut self.forward(side, memory)?)
        };
        let norms = [final_norm, embedding_norm];
        self.stack_backward(side, norms, blocks, recompute, memory, gradients)
    }

    /// Computes, from the gradient of the encoder output in `d_x`, the gradient of the encoder's embeddings, also in
    /// `d_x`, or the gradients of its convolutions.
    pub(super) fn encoder_backward(
        &self,
        (encoder, flat): (&Encoder, &params::Network),
        memory: &mut [f32],
        gradients: &mut [f32],
    ) -> Result<(), Error> {
        let (side, flat) = (Side::Encoder, &flat.encoder);
        let final_norm = Part::optional(&encoder.final_norm, &flat.final_norm);
        let embedding_norm = Part::optional(&encoder.embedding.norm, &flat.embedding.norm);
        let blocks = |index: usize| {
            let (layer, flat) = (&encoder.layers[index], &flat.layers[index]);
            let (own, own_flat) = (&layer.self_attention, &flat.self_attention);
            LayerBlocks {
                self_attention: AttentionBlock::of_self(index, own, own_flat),
                cross_attention: None,
                feed_forward: Part { weights: &layer.feed_forward, ranges: &flat.feed_forward },
            }
        };
        let recompute = |index: usize, memory: &mut [f32]| {
            encoder.layer(&self.run, index, &mut self.forward(side, memory)?)
        };
        let norms = [final_norm, embedding_norm];
        self.stack_backward(side, norms, blocks, recompute, memory, gradients)?;
        match (&encoder.input, &flat.input) {
            (Input::ConvFrontend(layers), Input::ConvFrontend(flat)) => {
                self.conv_backward((layers, flat), memory, gradients)
            }
            _ => Ok(()),
        }
    }

    /// The layers of one side in reverse order, between its final norm and the norm of its embeddings.
    fn stack_backward<'l>(
        &self,
        side: Side,
        [final_norm, embedding_norm]: [Option<NormPart<'l>>; 2],
        blocks: impl Fn(usize) -> LayerBlocks<'l>,
        recompute: impl Fn(usize, &mut [f32]) -> Result<(), Error>,
        memory: &mut [f32],
        gradients: &mut [f32],
    ) -> Result<(), Error> {
        let plan = self.plan.stack(side)?;
        self.final_norm_backward(side, final_norm, memory, gradients)?;
        for (index, saved) in plan.layers.iter().enumerate().rev() {
            if self.plan.limits.keep == SavedActivations::Inputs {
                let floats = self.rows(side) * self.run.config.d_model;
                views!(memory => x: plan.x, input: saved.input);
                x[..floats].copy_from_slice(&input[..floats]);
                recompute(index, memory)?;
            }
            let LayerBlocks { self_attention, cross_attention, feed_forward } = blocks(index);
            // Each norm of the layer, with its saved values.
            let own = (self_attention.norm.weights, &saved.self_attention.norm);
            let cross = cross_attention.as_ref().zip(saved.cross_attention.as_ref());
            let cross_norm = cross.map(|(block, saved)| (block.norm.weights, &saved.norm));

            let last = (&feed_forward.weights.norm, &saved.feed_forward.norm);
            let input = self.block_input(side, last, cross_norm.unwrap_or(own), memory)?;
            self.feed_forward_backward(side, feed_forward, index, &input, memory, gradients)?;

            if let (Some((block, saved)), Some(norm)) = (cross, cross_norm) {
                let input = self.block_input(side, norm, own, memory)?;
                self.attention_backward(side, block, saved, &input, memory, gradients)?;
            }

            let input = if !self.post_norm() {
                self.norm_output(side, own, memory)?
            } else if self.plan.limits.keep == SavedActivations::Inputs {
                saved.input.clone()
            } else if let Some(previous) = index.checked_sub(1) {
                let saved = &plan.layers[previous].feed_forward.norm;
                self.norm_output(
                    side,
                    (&blocks(previous).feed_forward.weights.norm, saved),
                    memory,
                )?
            } else {
                plan.embedded.clone()
            };
            let saved = &saved.self_attention;
            self.attention_backward(side, &self_attention, saved, &input, memory, gradients)?;
        }
        self.embedding_norm_backward(side, embedding_norm, memory, gradients)
    }

    /// Recomputes the input of a block that is not the first of its layer: the output of its own norm if the norm comes
    /// before the block, otherwise the output of the norm of the previous block. Returns its range.
    fn block_input(
        &self,
        side: Side,
        norm: (&Norm, &NormSaved),
        previous: (&Norm, &NormSaved),
        memory: &mut [f32],
    ) -> Result<Range<usize>, Error> {
        self.norm_output(side, if self.post_norm() { previous } else { norm }, memory)
    }

    /// Recomputes the output of a norm. Returns its range.
    fn norm_output(
        &self,
        side: Side,
        (norm, saved): (&Norm, &NormSaved),
        memory: &mut [f32],
    ) -> Result<Range<usize>, Error> {
        let floats = self.rows(side) * self.run.config.d_model;
        let to = &self.plan.input;
        views!(memory => standard: saved.standard, input: *to);
        self.norm_recompute(norm, standard, &mut input[..floats])?;
        Ok(to.clone())
    }
}
