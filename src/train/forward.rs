//! The forward pass, which saves the values that the backward pass needs. It calls the same kernels on the same
//! operands as [`Session`](crate::Session), so a loss here equals the score there, bit for bit.

use super::dropout::Site;
use super::error::TrainError;
use super::pass::{Pass, cut};
use super::plan::{AttentionSaved, FeedForwardSaved, LayerSaved, NormSaved, StackSaved};
use crate::config::{EmbeddingNorm, Side};
use crate::model::weights::{
    Bottom, CrossAttention, Decoder, Embedding, Encoder, FeedForward, Norm, SelfAttention, Table,
};
use core::ops::Range;
use simdformer_kernels::embedding::{self, Positions};
use simdformer_kernels::train::{
    AttentionInputs, activation_recompute, attention_forward_save, gate,
};
use simdformer_kernels::{AttentionOptions, Heads, HeadsMut, Qkv, Residual};

impl Pass<'_> {
    /// Writes the encoder output to `plan.memory`.
    pub(super) fn encode(&self, encoder: &Encoder, memory: &mut [f32]) -> Result<(), TrainError> {
        let plan = &self.plan.encoder;
        let embedding = &encoder.embedding;
        match &encoder.input {
            Bottom::Table(table) => self.embed(Side::Encoder, table, embedding, plan, memory)?,
            Bottom::ConvFrontend(stem) => self.convolve(stem, embedding, memory)?,
        }
        self.embedded(Side::Encoder, embedding, plan, memory)?;
        for (index, layer) in encoder.layers.iter().enumerate() {
            self.save_input(Side::Encoder, plan, index, memory)?;
            self.encoder_layer(
                (&layer.self_attention, &layer.feed_forward),
                (plan, index),
                memory,
            )?;
        }
        let to = self.plan.memory.clone();
        self.finish(Side::Encoder, encoder.final_norm.as_ref(), plan, to, memory)
    }

    /// Writes the decoder output to the decoder's `x`.
    pub(super) fn decode(&self, decoder: &Decoder, memory: &mut [f32]) -> Result<(), TrainError> {
        let plan = self.plan.decoder.as_ref().ok_or(TrainError::NoDecoder)?;
        self.embed(Side::Decoder, &decoder.table, &decoder.embedding, plan, memory)?;
        self.embedded(Side::Decoder, &decoder.embedding, plan, memory)?;
        for (index, layer) in decoder.layers.iter().enumerate() {
            self.save_input(Side::Decoder, plan, index, memory)?;
            self.decoder_layer(
                (&layer.self_attention, &layer.cross_attention, &layer.feed_forward),
                (plan, index),
                memory,
            )?;
        }
        let to = self.plan.branch.clone();
        self.finish(Side::Decoder, decoder.final_norm.as_ref(), plan, to, memory)?;
        // `finish` wrote the output to `branch`; the norm read its input from `x`.
        let rows = self.rows(Side::Decoder) * self.run.config.d_model;
        let [x, branch] = cut(memory, [&plan.x, &self.plan.branch])?;
        let scale = self.run.config.logit_scale;
        for (x, &y) in x[..rows].iter_mut().zip(&branch[..rows]) {
            *x = y;
        }
        if scale != 1.0 {
            x[..rows].iter_mut().for_each(|x| *x *= scale);
        }
        Ok(())
    }

    /// One encoder layer, in place on the encoder's `x`.
    pub(super) fn encoder_layer(
        &self,
        (own, feed_forward): (&SelfAttention, &FeedForward),
        (plan, index): (&StackSaved, usize),
        memory: &mut [f32],
    ) -> Result<(), TrainError> {
        let saved = &plan.layers[index];
        self.self_attention(Side::Encoder, own, (plan, index), &saved.own, memory)?;
        self.feed_forward(Side::Encoder, feed_forward, (plan, index), &saved.feed_forward, memory)
    }

    /// One decoder layer, in place on the decoder's `x`.
    pub(super) fn decoder_layer(
        &self,
        (own, cross, feed_forward): (&SelfAttention, &CrossAttention, &FeedForward),
        (plan, index): (&StackSaved, usize),
        memory: &mut [f32],
    ) -> Result<(), TrainError> {
        let saved = &plan.layers[index];
        self.self_attention(Side::Decoder, own, (plan, index), &saved.own, memory)?;
        if let Some(saved) = &saved.cross {
            self.cross_attention(cross, (plan, index), saved, memory)?;
        }
        self.feed_forward(Side::Decoder, feed_forward, (plan, index), &saved.feed_forward, memory)
    }

    fn save_input(
        &self,
        side: Side,
        plan: &StackSaved,
        index: usize,
        memory: &mut [f32],
    ) -> Result<(), TrainError> {
        let LayerSaved { input, .. } = &plan.layers[index];
        if !input.is_empty() {
            let floats = self.rows(side) * self.run.config.d_model;
            let [x, input] = cut(memory, [&plan.x, input])?;
            input[..floats].copy_from_slice(&x[..floats]);
        }
        Ok(())
    }

    /// Looks up the token embeddings of one side, for [`Pass::embedded`].
    fn embed(
        &self,
        side: Side,
        table: &Table,
        block: &Embedding,
        plan: &StackSaved,
        memory: &mut [f32],
    ) -> Result<(), TrainError> {
        let (d, rows) = (self.run.config.d_model, self.rows(side));
        let lines = self.lines(side);
        let to = if block.norm.is_some() { &plan.x } else { &plan.embedded };
        let [table_of_positions, to] = cut(memory, [&plan.positions, to])?;
        let now = !self.positions_after_norm(side) && !table_of_positions.is_empty();
        let positions = match now {
            true => Some(Positions {
                table: Self::matrix(table_of_positions, d)?,
                rows: &lines.positions,
            }),
            false => None,
        };
        embedding::embed(
            self.run.isa(),
            self.run.weights.table(table)?,
            &lines.ids,
            self.run.config.embedding_scale,
            positions,
            Self::matrix_mut(&mut to[..rows * d], d)?,
            self.run.parallelism,
        )?;
        Ok(())
    }

    /// Completes the embedding of one side: norm, positions and dropout. The input is in `x` if the embedding has a
    /// norm, otherwise in `embedded`. The result, the input of the first layer, is written to both.
    fn embedded(
        &self,
        side: Side,
        block: &Embedding,
        plan: &StackSaved,
        memory: &mut [f32],
    ) -> Result<(), TrainError> {
        let (d, rows) = (self.run.config.d_model, self.rows(side));
        let lines = self.lines(side);
        let norm = &plan.embedding_norm;
        let [table_of_positions, embedded, x, standard, scale] =
            cut(memory, [&plan.positions, &plan.embedded, &plan.x, &norm.standard, &norm.scale])?;
        let (embedded, x) = (&mut embedded[..rows * d], &mut x[..rows * d]);
        let after_norm = self.positions_after_norm(side);
        if let Some(block) = &block.norm {
            self.norm(block, x, standard, scale, embedded)?;
        }
        if after_norm && !table_of_positions.is_empty() {
            for (x, &row) in embedded.chunks_mut(d).zip(&lines.positions) {
                let position = &table_of_positions[row as usize * d..];
                x.iter_mut().zip(position).for_each(|(x, position)| *x += position);
            }
        }
        if let Some(dropout) = self.dropout_at(side, Site::Embedding) {
            self.drop_in_place(&dropout, (side, 0..rows), Self::matrix_mut(embedded, d)?)?;
        }
        x.copy_from_slice(embedded);
        Ok(())
    }

    /// Whether positions are added after the embedding norm.
    pub(super) fn positions_after_norm(&self, side: Side) -> bool {
        let stack = self.run.config.stack(side);
        stack.is_some_and(|stack| stack.embedding_norm == Some(EmbeddingNorm::BeforePositions))
    }

    /// Applies the final norm, if any, to the stack's `x` and writes the stack's output to `to`.
    fn finish(
        &self,
        side: Side,
        norm: Option<&Norm>,
        plan: &StackSaved,
        to: Range<usize>,
        memory: &mut [f32],
    ) -> Result<(), TrainError> {
        let floats = self.rows(side) * self.run.config.d_model;
        let NormSaved { standard, scale } = &plan.final_norm;
        let [x, to, standard, scale] = cut(memory, [&plan.x, &to, standard, scale])?;
        let (x, to) = (&x[..floats], &mut to[..floats]);
        match norm {
            Some(norm) => self.norm(norm, x, standard, scale, to)?,
            None => to.copy_from_slice(x),
        }
        Ok(())
    }

    /// The paper's "Add & Norm" around `f`, which computes `out = residual + f(input)`.
    fn add_and_norm(
        &self,
        norm: &Norm,
        (side, site): (Side, Site),
        Streams { x, h, branch, standard, scale }: Streams<'_>,
        f: impl FnOnce(&[f32], Residual<'_>, &mut [f32]) -> Result<(), TrainError>,
    ) -> Result<(), TrainError> {
        let d = self.run.config.d_model;
        let dropout = self.dropout_at(side, site);
        if self.post_norm() {
            match dropout {
                None => f(x, Residual::Matrix(Self::matrix(x, d)?), h)?,
                Some(dropout) => {
                    f(x, Residual::None, branch)?;
                    h.copy_from_slice(x);
                    let (branch, h) = (Self::matrix(branch, d)?, Self::matrix_mut(h, d)?);
                    self.drop_and_add(&dropout, side, branch, h)?;
                }
            }
            self.norm(norm, h, standard, scale, x)
        } else {
            self.norm(norm, x, standard, scale, h)?;
            match dropout {
                None => f(h, Residual::Output, x),
                Some(dropout) => {
                    f(h, Residual::None, branch)?;
                    let (branch, x) = (Self::matrix(branch, d)?, Self::matrix_mut(x, d)?);
                    self.drop_and_add(&dropout, side, branch, x)
                }
            }
        }
    }

    fn self_attention(
        &self,
        side: Side,
        block: &SelfAttention,
        (plan, index): (&StackSaved, usize),
        saved: &AttentionSaved,
        memory: &mut [f32],
    ) -> Result<(), TrainError> {
        let floats = self.rows(side) * self.run.config.d_model;
        let shape = self.run.heads(side, self.rows(side));
        let [x, h, branch, standard, scale, qkv, context, sums, tables, scratch] = cut(
            memory,
            [
                &plan.x,
                &self.plan.h,
                &self.plan.branch,
                &saved.norm.standard,
                &saved.norm.scale,
                &saved.projected,
                &saved.context,
                &saved.sums,
                &plan.relative_tables,
                &self.plan.attention,
            ],
        )?;
        let width = shape[1] * shape[2];
        let qkv = &mut qkv[..shape[0] * 3 * width];
        let context = &mut context[..shape[0] * width];
        let sums = &mut sums[..shape[0] * shape[1] * 2];
        let relative = plan.relative.of(tables);
        let streams = Streams::of(floats, [x, h, branch], [standard, scale]);
        self.add_and_norm(&block.norm, (side, Site::Own(index)), streams, |input, residual, out| {
            self.linear(&block.query_key_value, input, Residual::None, qkv)?;
            let options = self.own_options(side, relative.of_layer(index));
            let dropout = self.dropped_weights(side, Site::OwnWeights(index))?;
            self.batch.own(side, |sequences| {
                let qkv = Qkv::fused(qkv, shape)?;
                attention_forward_save(
                    self.run.isa(),
                    &AttentionInputs { qkv, sequences, options: &options, dropout },
                    HeadsMut::new(context, shape)?,
                    sums,
                    scratch,
                    self.run.parallelism,
                )?;
                Ok::<_, TrainError>(())
            })?;
            self.linear(&block.output, context, residual, out)
        })
    }

    /// The options of self-attention for one side.
    pub(super) fn own_options<'b>(
        &self,
        side: Side,
        bias: Option<simdformer_kernels::Bias<'b>>,
    ) -> AttentionOptions<'b> {
        AttentionOptions { causal: side == Side::Decoder, bias, ..self.run.attention_options(side) }
    }

    fn cross_attention(
        &self,
        block: &CrossAttention,
        (plan, index): (&StackSaved, usize),
        saved: &AttentionSaved,
        memory: &mut [f32],
    ) -> Result<(), TrainError> {
        let side = Side::Decoder;
        let d = self.run.config.d_model;
        let (rows, keys) = (self.rows(side), self.rows(Side::Encoder));
        let shape = self.run.heads(side, rows);
        let width = shape[1] * shape[2];
        let [x, h, branch, source, standard, scale, query, key_value, context, sums, scratch] =
            cut(
                memory,
                [
                    &plan.x,
                    &self.plan.h,
                    &self.plan.branch,
                    &self.plan.memory,
                    &saved.norm.standard,
                    &saved.norm.scale,
                    &saved.projected,
                    &saved.key_value,
                    &saved.context,
                    &saved.sums,
                    &self.plan.attention,
                ],
            )?;
        let query = &mut query[..rows * width];
        let key_value = &mut key_value[..keys * 2 * width];
        let context = &mut context[..rows * width];
        let sums = &mut sums[..rows * shape[1] * 2];
        self.linear(&block.key_value, &source[..keys * d], Residual::None, key_value)?;
        let streams = Streams::of(rows * d, [x, h, branch], [standard, scale]);
        self.add_and_norm(
            &block.norm,
            (side, Site::Cross(index)),
            streams,
            |input, residual, out| {
                self.linear(&block.query, input, Residual::None, query)?;
                let options = self.run.attention_options(side);
                let dropout = self.dropped_weights(side, Site::CrossWeights(index))?;
                self.batch.cross(|sequences| {
                    let qkv = cross_operands(query, key_value, shape, keys)?;
                    attention_forward_save(
                        self.run.isa(),
                        &AttentionInputs { qkv, sequences, options: &options, dropout },
                        HeadsMut::new(context, shape)?,
                        sums,
                        scratch,
                        self.run.parallelism,
                    )?;
                    Ok::<_, TrainError>(())
                })?;
                self.linear(&block.output, context, residual, out)
            },
        )
    }

    fn feed_forward(
        &self,
        side: Side,
        block: &FeedForward,
        (plan, index): (&StackSaved, usize),
        saved: &FeedForwardSaved,
        memory: &mut [f32],
    ) -> Result<(), TrainError> {
        let d = self.run.config.d_model;
        let rows = self.rows(side);
        let width = block.inner.columns();
        let [x, h, branch, standard, scale, gates, inner, hidden] = cut(
            memory,
            [
                &plan.x,
                &self.plan.h,
                &self.plan.branch,
                &saved.norm.standard,
                &saved.norm.scale,
                &saved.gate,
                &saved.inner,
                &self.plan.hidden,
            ],
        )?;
        let streams = Streams::of(rows * d, [x, h, branch], [standard, scale]);
        self.add_and_norm(
            &block.norm,
            (side, Site::FeedForward(index)),
            streams,
            |input, residual, out| {
                for chunk in self.chunk_rows(side) {
                    let within = |width: usize| chunk.start * width..chunk.end * width;
                    let (input, out) = (&input[within(d)], &mut out[within(d)]);
                    let inner = &mut inner[within(width)];
                    let hidden = &mut hidden[..chunk.len() * width];
                    self.linear(&block.inner, input, Residual::None, inner)?;
                    if let Some(gate) = &block.gate {
                        self.linear(gate, input, Residual::None, &mut gates[within(width)])?;
                    }
                    let gates = block.gate.as_ref().map(|_| &gates[within(width)]);
                    self.hidden(
                        (side, Site::Hidden(index)),
                        chunk.clone(),
                        (gates, inner),
                        width,
                        hidden,
                    )?;
                    let residual = match residual {
                        Residual::Matrix(all) => {
                            Residual::Matrix(all.block(chunk.start, chunk.len())?)
                        }
                        other => other,
                    };
                    self.linear(&block.outer, hidden, residual, out)?;
                }
                Ok(())
            },
        )
    }

    /// The input of the second linear map of a feed-forward block, for the rows of one reduction chunk.
    pub(super) fn hidden(
        &self,
        (side, site): (Side, Site),
        rows: Range<usize>,
        (gates, inner): (Option<&[f32]>, &[f32]),
        width: usize,
        hidden: &mut [f32],
    ) -> Result<(), TrainError> {
        let (isa, parallelism) = (self.run.isa(), self.run.parallelism);
        let (activation, inner) = (self.run.config.activation, Self::matrix(inner, width)?);
        let mut hidden = Self::matrix_mut(hidden, width)?;
        let out = hidden.reborrow();
        match gates {
            Some(gates) => {
                gate(isa, activation, Self::matrix(gates, width)?, inner, out, parallelism)?;
            }
            None => activation_recompute(isa, activation, inner, out, parallelism)?,
        }
        match self.dropout_at(side, site) {
            Some(dropout) => self.drop_in_place(&dropout, (side, rows), hidden),
            None => Ok(()),
        }
    }

    /// The rows of each reduction chunk of one side.
    pub(super) fn chunk_rows(&self, side: Side) -> impl Iterator<Item = Range<usize>> + '_ {
        self.lines(side).chunk_rows()
    }
}

/// The operands of "Add & Norm"; each is `[rows, d_model]` except the scales.
struct Streams<'m> {
    /// The residual stream.
    x: &'m mut [f32],
    /// The sum before the norm, or the output of the norm.
    h: &'m mut [f32],
    /// The output of a block to which dropout is applied before it is added.
    branch: &'m mut [f32],
    standard: &'m mut [f32],
    scale: &'m mut [f32],
}

impl<'m> Streams<'m> {
    fn of(
        floats: usize,
        [x, h, branch]: [&'m mut [f32]; 3],
        [standard, scale]: [&'m mut [f32]; 2],
    ) -> Self {
        let [x, h, branch] = [x, h, branch].map(|part| &mut part[..floats]);
        Self { x, h, branch, standard, scale }
    }
}

/// Queries of the target; keys and values of the source, `[keys, (key, value), heads, head_dim]`.
pub(super) fn cross_operands<'m>(
    query: &'m [f32],
    key_value: &'m [f32],
    shape @ [_, heads, head_dim]: [usize; 3],
    keys: usize,
) -> Result<Qkv<'m>, TrainError> {
    let width = heads * head_dim;
    let part = |first: usize| {
        let from = key_value.get(first..).unwrap_or(&[]);
        Heads::strided(from, [keys, heads, head_dim], 2 * width, head_dim)
    };
    Ok(Qkv { query: Heads::new(query, shape)?, key: part(0)?, value: part(width)? })
}

/// Logits of some rows; `x` is `[rows, d_model]`.
pub(super) fn logits(
    pass: &Pass<'_>,
    decoder: &Decoder,
    x: &[f32],
    out: &mut [f32],
) -> Result<(), TrainError> {
    pass.linear(&decoder.output.linear, x, Residual::None, out)
}
