//! The backward pass of self-attention and cross-attention. From the gradient of the sum after the block, it computes
//! the gradients of the block's input, of its four matrices and, in cross-attention, of the encoder output.

use crate::config::Side;
use crate::error::Error;
use crate::model::forward::BlockId;
use crate::model::pass_input::Relative;
use crate::model::weights::{CrossAttention, SelfAttention};
use crate::train::activation_checkpointing::SavedActivations;
use crate::train::dropout::Site;
use crate::train::memory_plan::AttentionSaved;
use crate::train::params::{self, LinearPart, NormPart, Part};
use crate::train::pass_context::{Pass, views};
use core::ops::Range;
use simdformer_kernels::train::{
    AttentionGradients, AttentionInputs, SavedAttention, attention_backward,
};
use simdformer_kernels::{AttentionOptions, Heads, HeadsMut, PostOp, Qkv};

/// The layers of an attention block, each with the ranges of its parameters.
#[derive(Clone, Copy)]
pub(in crate::train) struct AttentionBlock<'l> {
    id: BlockId,
    pub(in crate::train) norm: NormPart<'l>,
    /// Query, key and value; in cross-attention the query alone.
    projection: LinearPart<'l>,
    /// Key and value of cross-attention.
    key_value: Option<LinearPart<'l>>,
    output: &'l params::Linear,
}

impl<'l> AttentionBlock<'l> {
    pub(in crate::train) fn of_self(
        layer: usize,
        block: &'l SelfAttention,
        flat: &'l params::SelfAttention,
    ) -> Self {
        Self {
            id: BlockId::SelfAttention(layer),
            norm: Part { weights: &block.norm, ranges: &flat.norm },
            projection: Part { weights: &block.query_key_value, ranges: &flat.query_key_value },
            key_value: None,
            output: &flat.output,
        }
    }

    pub(in crate::train) fn of_cross(
        layer: usize,
        block: &'l CrossAttention,
        flat: &'l params::CrossAttention,
    ) -> Self {
        Self {
            id: BlockId::CrossAttention(layer),
            norm: Part { weights: &block.norm, ranges: &flat.norm },
            projection: Part { weights: &block.query, ranges: &flat.query },
            key_value: Some(Part { weights: &block.key_value, ranges: &flat.key_value }),
            output: &flat.output,
        }
    }
}

impl Pass<'_> {
    /// The operands and the options of an attention block. `projected` is query, key and value of self-attention,
    /// `[rows, (query, key, value), heads, head_dim]`, or the query of cross-attention; then `key_value` is
    /// `[keys, (key, value), heads, head_dim]`.
    pub(in crate::train) fn attention_operands<'m>(
        &self,
        side: Side,
        block: BlockId,
        projected: &'m [f32],
        key_value: &'m [f32],
        relative: Relative<'m>,
    ) -> Result<(Qkv<'m>, AttentionOptions<'m>), Error> {
        let shape @ [_, heads, head_dim] = self.run.heads(side, self.rows(side));
        let options = self.run.attention_options(side);
        if let BlockId::SelfAttention(layer) = block {
            let (causal, bias) = (side == Side::Decoder, relative.of_layer(layer));
            return Ok((
                Qkv::fused(projected, shape)?,
                AttentionOptions { causal, bias, ..options },
            ));
        }
        let (keys, width) = (self.rows(Side::Encoder), heads * head_dim);
        let part = |first: usize| {
            let from = key_value.get(first..).unwrap_or(&[]);
            Heads::strided(from, [keys, heads, head_dim], 2 * width, head_dim)
        };
        let query = Heads::new(projected, shape)?;
        Ok((Qkv { query, key: part(0)?, value: part(width)? }, options))
    }

    /// `before` is the range of the input of the block.
    pub(in crate::train) fn attention_backward(
        &self,
        side: Side,
        block: &AttentionBlock<'_>,
        saved: &AttentionSaved,
        before: &Range<usize>,
        memory: &mut [f32],
        gradients: &mut [f32],
    ) -> Result<(), Error> {
        let plan = self.plan.stack(side)?;
        let d = self.run.config.d_model;
        let shape @ [rows, heads, head_dim] = self.run.heads(side, self.rows(side));
        let (floats, width, columns) =
            (rows * d, heads * head_dim, block.projection.weights.columns());
        views! { memory =>
            d_x: plan.d_x,
            branch: self.plan.branch,
            input: *before,
            d_input: self.plan.d_input,
            standard: saved.norm.standard,
            scale: saved.norm.scale,
            projected: saved.projected,
            context: saved.context,
            sums: saved.sums,
            tables: plan.relative_tables,
            d_tables: plan.d_relative,
            d_context: self.plan.d_context,
            d_projected: self.plan.d_projected,
            d_attention: self.plan.d_attention,
            scratch: self.plan.weight_gradient,
            packed: self.plan.packed[0],
            source: self.plan.memory,
            d_source: self.plan.d_memory,
            key_value: saved.key_value,
            d_key_value: self.plan.d_key_value,
        }
        let (d_x, input, d_input) = (&mut d_x[..floats], &input[..floats], &mut d_input[..floats]);
        let (projected, context) = (&mut projected[..rows * columns], &context[..rows * width]);
        let d_context = &mut d_context[..rows * width];
        let d_projected = &mut d_projected[..rows * columns];
        let keys = if block.key_value.is_some() { self.rows(Side::Encoder) } else { 0 };
        let source = &source[..keys * d];
        let key_value = &mut key_value[..keys * 2 * width];
        let d_key_value = &mut d_key_value[..keys * 2 * width];
        let sums = &sums[..rows * heads * 2];
        let chunks = self.chunks(side)?;
        let saved_norm = (&*standard, &*scale);
        self.norm_after_backward(side, block.norm, saved_norm, d_x, gradients)?;
        if self.plan.limits.keep == SavedActivations::Context {
            self.run.project(block.projection.weights, input, &mut [], projected)?;
            if let Some(key_value_map) = block.key_value {
                self.run.project(key_value_map.weights, source, &mut [], key_value)?;
            }
        }
        let d_output = self.dropout_gradient((side, Site::Output(block.id)), d_x, branch)?;
        let d_output = d_output.unwrap_or(d_x);
        let operands = [d_output, context];
        self.linear_parameters(block.output, chunks, self.write, operands, gradients, scratch)?;
        let output = self.packed(block.output, packed)?;
        self.linear_input(&output, d_output, PostOp::None, d_context)?;

        let relative = plan.relative.with_tables(tables);
        let (qkv, options) =
            self.attention_operands(side, block.id, projected, key_value, relative)?;
        let dropout = self.dropped_weights(side, Site::Weights(block.id))?;
        let stride = plan.d_relative_stride;
        let mut d_table = match block.id {
            BlockId::SelfAttention(layer) if stride > 0 => {
                Some(&mut d_tables[layer * stride..(layer + 1) * stride])
            }
            _ => None,
        };
        self.batch.sequences(side, block.id, |sequences| {
            let gradients = match block.key_value {
                None => AttentionGradients {
                    bias: d_table.as_deref_mut(),
                    ..AttentionGradients::fused(d_projected, shape)?
                },
                // Keys and values side by side, `[keys, (key, value), heads, head_dim]`.
                Some(_) => {
                    let d_query = HeadsMut::new(d_projected, shape)?;
                    AttentionGradients::cross(d_query, d_key_value, [keys, heads, head_dim])?
                }
            };
            attention_backward(
                self.run.exec(),
                &AttentionInputs { qkv, sequences, options: &options, dropout },
                SavedAttention { context: Heads::new(context, shape)?, sums },
                Heads::new(d_context, shape)?,
                gradients,
                d_attention,
            )?;
            Ok(())
        })?;

        if let (Some(Part { ranges: flat, .. }), BlockId::CrossAttention(layer)) =
            (block.key_value, block.id)
        {
            let (chunks, operands) = (self.chunks(Side::Encoder)?, [&*d_key_value, source]);
            self.linear_parameters(flat, chunks, self.write, operands, gradients, scratch)?;
            // The last layer is the first to write the gradient of the encoder output.
            let first = layer + 1 == plan.layers.len();
            let post_op = if first { PostOp::None } else { PostOp::AddOutput };
            let weight = self.packed(flat, packed)?;
            self.linear_input(&weight, d_key_value, post_op, &mut d_source[..keys * d])?;
        }
        let flat = block.projection.ranges;
        self.linear_parameters(flat, chunks, self.write, [d_projected, input], gradients, scratch)?;
        let weight = self.packed(flat, packed)?;
        match self.post_norm() {
            true => self.linear_input(&weight, d_projected, PostOp::AddOutput, d_x)?,
            false => self.linear_input(&weight, d_projected, PostOp::None, d_input)?,
        }
        self.norm_before_backward(side, block.norm, saved_norm, (d_input, d_x), gradients)
    }
}
