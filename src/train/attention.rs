//! The backward pass of self-attention and cross-attention. From the gradient of the sum after the block, it computes
//! the gradients of the block's input, of its four matrices and, in cross-attention, of the encoder output.

use super::backward::Gradients;
use super::dropout::Site;
use super::error::TrainError;
use super::forward::cross_operands;
use super::limits::SavedActivations;
use super::params;
use super::pass::{Pass, cut};
use super::plan::{AttentionSaved, StackSaved};
use crate::config::Side;
use crate::model::weights::{CrossAttention, SelfAttention};
use core::ops::Range;
use simdformer_kernels::train::{
    AttentionGradients, AttentionInputs, SavedAttention, attention_backward,
};
use simdformer_kernels::{Heads, HeadsMut, Qkv, Residual};

impl Pass<'_> {
    pub(super) fn self_attention_backward(
        &self,
        side: Side,
        (block, flat): (&SelfAttention, &params::SelfAttention),
        (plan, index): (&StackSaved, usize),
        before: Range<usize>,
        memory: &mut [f32],
        gradients: &mut Gradients<'_>,
    ) -> Result<(), TrainError> {
        let saved = &plan.layers[index].own;
        let d = self.run.config.d_model;
        let shape @ [rows, heads, head_dim] = self.run.heads(side, self.rows(side));
        let (floats, width) = (rows * d, heads * head_dim);
        let [
            d_x,
            branch,
            input,
            d_input,
            standard,
            scale,
            qkv,
            context,
            sums,
            tables,
            d_tables,
            d_context,
            d_qkv,
            d_attention,
            scratch,
            packed,
        ] = cut(
            memory,
            [
                &plan.d_x,
                &self.plan.branch,
                &before,
                &self.plan.d_input,
                &saved.norm.standard,
                &saved.norm.scale,
                &saved.projected,
                &saved.context,
                &saved.sums,
                &plan.relative_tables,
                &plan.d_relative,
                &self.plan.d_context,
                &self.plan.d_projected,
                &self.plan.d_attention,
                &self.plan.weight_gradient,
                &self.plan.packed[0],
            ],
        )?;
        let (d_x, input, d_input) = (&mut d_x[..floats], &input[..floats], &mut d_input[..floats]);
        let (qkv, context) = (&mut qkv[..rows * 3 * width], &context[..rows * width]);
        let (d_context, d_qkv) = (&mut d_context[..rows * width], &mut d_qkv[..rows * 3 * width]);
        let sums = &sums[..rows * heads * 2];
        let of = &mut *gradients.of_parameters;
        let chunks = self.chunks(side)?;
        let (norms, saved_norm) = ((&block.norm, &flat.norm), (&*standard, &*scale));
        self.norm_after_backward(side, norms, saved_norm, d_x, of)?;
        if self.plan.limits.keep == SavedActivations::Context {
            self.linear(&block.query_key_value, input, Residual::None, qkv)?;
        }
        let made = self.branch_gradient((side, Site::Own(index)), d_x, branch)?.unwrap_or(d_x);
        let operands = (Self::matrix(made, d)?, Self::matrix(context, width)?);
        self.linear_parameters(&flat.output, chunks, self.write, operands, of, scratch)?;
        let output = self.packed(&flat.output, packed)?;
        self.linear_input(&output, made, Residual::None, d_context)?;

        let relative = plan.relative.of(tables);
        let options = self.own_options(side, relative.of_layer(index));
        let dropout = self.dropped_weights(side, Site::OwnWeights(index))?;
        let stride = plan.d_relative_stride;
        let d_table = &mut d_tables[index * stride..(index + 1) * stride];
        self.batch.own(side, |sequences| {
            let qkv = Qkv::fused(qkv, shape)?;
            let gradients = AttentionGradients {
                bias: (stride > 0).then_some(&mut *d_table),
                ..AttentionGradients::fused(d_qkv, shape)?
            };
            attention_backward(
                self.run.isa(),
                &AttentionInputs { qkv, sequences, options: &options, dropout },
                SavedAttention { context: Heads::new(context, shape)?, sums },
                Heads::new(d_context, shape)?,
                gradients,
                d_attention,
                self.run.parallelism,
            )?;
            Ok::<_, TrainError>(())
        })?;

        let operands = (Self::matrix(d_qkv, 3 * width)?, Self::matrix(input, d)?);
        self.linear_parameters(&flat.query_key_value, chunks, self.write, operands, of, scratch)?;
        let projections = self.packed(&flat.query_key_value, packed)?;
        match self.post_norm() {
            true => self.linear_input(&projections, d_qkv, Residual::Output, d_x)?,
            false => self.linear_input(&projections, d_qkv, Residual::None, d_input)?,
        }
        self.norm_before_backward(side, norms, saved_norm, (d_input, d_x), of)
    }

    /// `first`: this layer is the first to write the gradient of the encoder output.
    pub(super) fn cross_attention_backward(
        &self,
        (block, flat): (&CrossAttention, &params::CrossAttention),
        (plan, index): (&StackSaved, usize),
        saved: &AttentionSaved,
        (before, first): (Range<usize>, bool),
        memory: &mut [f32],
        gradients: &mut Gradients<'_>,
    ) -> Result<(), TrainError> {
        let side = Side::Decoder;
        let d = self.run.config.d_model;
        let keys = self.rows(Side::Encoder);
        let shape @ [rows, heads, head_dim] = self.run.heads(side, self.rows(side));
        let (floats, width) = (rows * d, heads * head_dim);
        let [
            d_x,
            branch,
            input,
            d_input,
            source,
            d_source,
            standard,
            scale,
            query,
            key_value,
            context,
            sums,
            d_context,
            d_query,
            d_key_value,
            d_attention,
            scratch,
            packed,
        ] = cut(
            memory,
            [
                &plan.d_x,
                &self.plan.branch,
                &before,
                &self.plan.d_input,
                &self.plan.memory,
                &self.plan.d_memory,
                &saved.norm.standard,
                &saved.norm.scale,
                &saved.projected,
                &saved.key_value,
                &saved.context,
                &saved.sums,
                &self.plan.d_context,
                &self.plan.d_projected,
                &self.plan.d_key_value,
                &self.plan.d_attention,
                &self.plan.weight_gradient,
                &self.plan.packed[0],
            ],
        )?;
        let (d_x, input, d_input) = (&mut d_x[..floats], &input[..floats], &mut d_input[..floats]);
        let (source, d_source) = (&source[..keys * d], &mut d_source[..keys * d]);
        let (query, context) = (&mut query[..rows * width], &context[..rows * width]);
        let key_value = &mut key_value[..keys * 2 * width];
        let (d_context, d_query) = (&mut d_context[..rows * width], &mut d_query[..rows * width]);
        let d_key_value = &mut d_key_value[..keys * 2 * width];
        let sums = &sums[..rows * heads * 2];
        let of = &mut *gradients.of_parameters;
        let chunks = self.chunks(side)?;
        let (norms, saved_norm) = ((&block.norm, &flat.norm), (&*standard, &*scale));
        self.norm_after_backward(side, norms, saved_norm, d_x, of)?;
        if self.plan.limits.keep == SavedActivations::Context {
            self.linear(&block.query, input, Residual::None, query)?;
            self.linear(&block.key_value, source, Residual::None, key_value)?;
        }
        let made = self.branch_gradient((side, Site::Cross(index)), d_x, branch)?.unwrap_or(d_x);
        let operands = (Self::matrix(made, d)?, Self::matrix(context, width)?);
        self.linear_parameters(&flat.output, chunks, self.write, operands, of, scratch)?;
        let output = self.packed(&flat.output, packed)?;
        self.linear_input(&output, made, Residual::None, d_context)?;

        let options = self.run.attention_options(side);
        let dropout = self.dropped_weights(side, Site::CrossWeights(index))?;
        self.batch.cross(|sequences| {
            let d_query = HeadsMut::new(d_query, shape)?;
            // Keys and values side by side, `[keys, (key, value), heads, head_dim]`.
            let to = AttentionGradients::cross(d_query, d_key_value, [keys, heads, head_dim])?;
            let qkv = cross_operands(query, key_value, shape, keys)?;
            attention_backward(
                self.run.isa(),
                &AttentionInputs { qkv, sequences, options: &options, dropout },
                SavedAttention { context: Heads::new(context, shape)?, sums },
                Heads::new(d_context, shape)?,
                to,
                d_attention,
                self.run.parallelism,
            )?;
            Ok::<_, TrainError>(())
        })?;

        let operands = (Self::matrix(d_key_value, 2 * width)?, Self::matrix(source, d)?);
        let of_source = self.chunks(Side::Encoder)?;
        self.linear_parameters(&flat.key_value, of_source, self.write, operands, of, scratch)?;
        let key_value = self.packed(&flat.key_value, packed)?;
        let residual = if first { Residual::None } else { Residual::Output };
        self.linear_input(&key_value, d_key_value, residual, d_source)?;

        let operands = (Self::matrix(d_query, width)?, Self::matrix(input, d)?);
        self.linear_parameters(&flat.query, chunks, self.write, operands, of, scratch)?;
        let query = self.packed(&flat.query, packed)?;
        match self.post_norm() {
            true => self.linear_input(&query, d_query, Residual::Output, d_x)?,
            false => self.linear_input(&query, d_query, Residual::None, d_input)?,
        }
        self.norm_before_backward(side, norms, saved_norm, (d_input, d_x), of)
    }
}
