//! The forward pass of a trainer: the buffers that each block fills for the backward pass, and its dropout. The
//! structure of the layers is in `model/encoder.rs`, `model/decoder.rs` and `model/blocks`, as for a
//! [`Session`](crate::Session).

use super::activation_checkpointing::SavedActivations;
use super::dropout::Site;
use super::faults::no_decoder;
use super::memory_plan::StackSaved;
use super::pass_context::{Pass, views};
use crate::config::Side;
use crate::error::Error;
use crate::input_features::Features;
use crate::model::blocks::ExecContext;
use crate::model::forward::{BlockId, BlockOps, ForwardMode};
use crate::model::pass_input::{Tokens, Workspace};
use crate::model::weights::{CrossAttention, FeedForward, Linear, Norm};
use core::mem;
use core::ops::Range;
use simdformer_kernels::train::{
    self as kernels, AttentionInputs, WriteMode, attention_forward_save,
};
use simdformer_kernels::{Activation, HeadsMut, Input, Matrix, PostOp, activation};

/// The forward pass of one stack, which saves activations.
pub(super) struct TrainForward<'f> {
    pass: &'f Pass<'f>,
    side: Side,
    plan: &'f StackSaved,
    memory: &'f mut [f32],
}

/// The operations of a block in training, and the buffers to which they save.
pub(super) struct TrainOps<'b> {
    pass: &'b Pass<'b>,
    side: Side,
    block: BlockId,
    plan: &'b StackSaved,
    position_table: &'b [f32],
    relative_tables: &'b [f32],
    /// The output of a block, before dropout.
    output: &'b mut [f32],
    /// The standard scores and the scales of the norm.
    standard: &'b mut [f32],
    scale: &'b mut [f32],
    key_value: &'b mut [f32],
    sums: &'b mut [f32],
    gate: &'b mut [f32],
    up: &'b mut [f32],
    /// The input of the second convolution's activation.
    second: &'b mut [f32],
}

impl Pass<'_> {
    /// The forward pass of one side. The encoder output is written to `plan.memory`, the decoder output to the
    /// decoder's `x`.
    pub(super) fn forward<'f>(
        &'f self,
        side: Side,
        memory: &'f mut [f32],
    ) -> Result<TrainForward<'f>, Error> {
        Ok(TrainForward { pass: self, side, plan: self.plan.stack(side)?, memory })
    }
}

impl TrainForward<'_> {
    /// Copies the residual stream of the pass to a range of the memory.
    fn copy_x(&mut self, to: &Range<usize>) -> Result<(), Error> {
        let floats = self.pass.rows(self.side) * self.pass.run.config.d_model;
        views!(self.memory => x: self.plan.x, to: *to);
        to[..floats].copy_from_slice(&x[..floats]);
        Ok(())
    }
}

impl ForwardMode for TrainForward<'_> {
    type Ops<'b>
        = TrainOps<'b>
    where
        Self: 'b;

    fn block(&mut self, block: BlockId) -> Result<(Workspace<'_>, TrainOps<'_>), Error> {
        let &mut Self { pass, side, plan, ref mut memory } = self;
        let (all, none, layers) = (pass.plan, &(0..0), &plan.layers);
        let (norm, attention, feed_forward) = match block {
            BlockId::Embedding => (&plan.embedding_norm, None, None),
            BlockId::SelfAttention(layer) => {
                let saved = &layers[layer].self_attention;
                (&saved.norm, Some(saved), None)
            }
            BlockId::CrossAttention(layer) => {
                let saved = layers[layer].cross_attention.as_ref().ok_or_else(no_decoder)?;
                (&saved.norm, Some(saved), None)
            }
            BlockId::FeedForward(layer) => {
                let saved = &layers[layer].feed_forward;
                (&saved.norm, None, Some(saved))
            }
            BlockId::FinalNorm => (&plan.final_norm, None, None),
        };
        let [qkv, context, key_value, sums] =
            attention.map_or([none; 4], |s| [&s.projected, &s.context, &s.key_value, &s.sums]);
        let [gate, up] = feed_forward.map_or([none; 2], |saved| [&saved.gate, &saved.up]);
        // The frames are followed by the rows of the first convolution.
        let frames = all.conv.window.start..all.conv.hidden.end;
        views! { memory =>
            x: plan.x,
            h: all.h,
            output: all.branch,
            position_table: plan.positions,
            relative_tables: plan.relative_tables,
            standard: norm.standard,
            scale: norm.scale,
            qkv: *qkv,
            context: *context,
            key_value: *key_value,
            sums: *sums,
            gate: *gate,
            up: *up,
            hidden: all.hidden,
            scratch: all.attention,
            frames: frames,
            second: all.conv.second,
        }
        let floats = pass.rows(side) * pass.run.config.d_model;
        let [x, h, output] = [x, h, output].map(|buffer| &mut buffer[..floats]);
        let rounded = &mut [];
        let work = Workspace { x, h, context, qkv, hidden, scratch, frames, rounded };
        let ops = TrainOps {
            pass,
            side,
            block,
            plan,
            position_table,
            relative_tables,
            output,
            standard,
            scale,
            key_value,
            sums,
            gate,
            up,
            second,
        };
        Ok((work, ops))
    }

    fn after(&mut self, block: BlockId) -> Result<(), Error> {
        let Self { pass, side, plan, ref mut memory } = *self;
        match block {
            BlockId::Embedding => {
                if let Some(dropout) = pass.dropout_at(side, Site::Output(block)) {
                    let (d, rows) = (pass.run.config.d_model, pass.rows(side));
                    let x = &mut memory[plan.x.clone()][..rows * d];
                    pass.drop_in_place(&dropout, (side, 0..rows), Pass::matrix_mut(x, d)?)?;
                }
                self.copy_x(&plan.embedded)
            }
            BlockId::FinalNorm if side == Side::Encoder => self.copy_x(&pass.plan.memory),
            _ => Ok(()),
        }
    }

    fn layer(
        &mut self,
        index: usize,
        mut f: impl FnMut(&mut Self) -> Result<(), Error>,
    ) -> Result<(), Error> {
        if self.pass.plan.limits.keep == SavedActivations::Inputs {
            self.copy_x(&self.plan.layers[index].input)?;
        }
        f(self)
    }

    fn project_source(&mut self, block: &CrossAttention, layer: usize) -> Result<(), Error> {
        let saved = self.plan.layers[layer].cross_attention.as_ref();
        let saved = &saved.ok_or_else(no_decoder)?.key_value;
        let (run, rows) = (&self.pass.run, self.pass.rows(Side::Encoder));
        views!(self.memory => source: self.pass.plan.memory, key_value: *saved);
        let source = &source[..rows * run.config.d_model];
        let key_value = &mut key_value[..rows * block.key_value.columns()];
        Ok(run.project(&block.key_value, source, &mut [], key_value)?)
    }
}

impl<'b> BlockOps<'b> for TrainOps<'b> {
    fn exec_context(&self) -> &ExecContext<'_> {
        &self.pass.run
    }

    fn tokens(&self) -> Tokens<'b> {
        let lines = self.pass.lines(self.side);
        let position_table = self.position_table;
        Tokens { ids: &lines.ids, positions: &lines.positions, position_table }
    }

    fn features(&self, index: usize) -> Option<Features<'b>> {
        self.pass.pairs.get(index)?.features
    }

    fn norm(&mut self, norm: &Norm, x: &[f32], out: &mut [f32]) -> Result<(), Error> {
        self.pass.norm(norm, x, self.standard, self.scale, out)
    }

    fn norm_in_place(&mut self, norm: &Norm, [x, scratch]: [&mut [f32]; 2]) -> Result<(), Error> {
        self.norm(norm, x, scratch)?;
        x.copy_from_slice(scratch);
        Ok(())
    }

    fn attend(
        &mut self,
        projected: &[f32],
        context: &mut [f32],
        scratch: &mut [f32],
    ) -> Result<(), Error> {
        let Self { pass, side, block, .. } = *self;
        let run = &pass.run;
        let relative = self.plan.relative.with_tables(self.relative_tables);
        let (qkv, options) =
            pass.attention_operands(side, block, projected, self.key_value, relative)?;
        let shape @ [rows, heads, _] = run.heads(side, pass.rows(side));
        let sums = &mut self.sums[..rows * heads * 2];
        let dropout = pass.dropped_weights(side, Site::Weights(block))?;
        pass.batch.sequences(side, block, |sequences| {
            attention_forward_save(
                run.exec(),
                &AttentionInputs { qkv, sequences, options: &options, dropout },
                HeadsMut::new(context, shape)?,
                sums,
                scratch,
            )?;
            Ok(())
        })
    }

    fn chunk_end(&self, first: usize, rows: usize) -> usize {
        let ends = &self.pass.lines(self.side).chunk_ends;
        let next = ends.partition_point(|&end| end as usize <= first);
        ends.get(next).map_or(rows, |&end| end as usize)
    }

    fn hidden(
        &mut self,
        block: &FeedForward,
        (input, rows): (&[f32], Range<usize>),
        _: &mut [f32],
        hidden: &mut [f32],
    ) -> Result<(), Error> {
        let within = |width: usize| rows.start * width..rows.end * width;
        let (input, width) = (&input[within(self.pass.run.config.d_model)], block.up.columns());
        let gate = self.gate.get_mut(within(width)).unwrap_or_default();
        let (up, at) = (&mut self.up[within(width)], (self.side, self.block));
        self.pass.hidden(at, block, (rows, Some(input)), [gate, up], hidden)
    }

    fn second_convolution(
        &mut self,
        second: &Linear,
        (windows, positions): (Matrix<'_>, Option<&[f32]>),
        rounded: &mut [f32],
        (first, x): (usize, &mut [f32]),
    ) -> Result<(), Error> {
        let (run, d) = (&self.pass.run, second.columns());
        let at = if self.pass.plan.conv.saves_second { first * d } else { 0 };
        let pre = &mut self.second[at..at + x.len()];
        run.linear_of(second, windows, rounded, (Activation::Identity, PostOp::None), pre)?;
        let (pre, made) = (Pass::matrix(pre, d)?, Pass::matrix_mut(x, d)?);
        activation::apply(run.exec(), Activation::Gelu, Input::Matrix(pre), made)?;
        if let Some(positions) = positions {
            x.iter_mut().zip(positions).for_each(|(x, position)| *x += position);
        }
        Ok(())
    }

    fn dropout_buffer(&mut self) -> Option<&'b mut [f32]> {
        self.pass.dropout_at(self.side, Site::Output(self.block))?;
        Some(mem::take(&mut self.output))
    }

    fn dropout_add(&mut self, x: &[f32], out: &mut [f32]) -> Result<(), Error> {
        let Self { pass, side, block, .. } = *self;
        let Some(dropout) = pass.dropout_at(side, Site::Output(block)) else { return Ok(()) };
        let (lines, run) = (pass.lines(side), &pass.run);
        let (sentences, positions) = (&lines.sentences, &lines.positions);
        let d = run.config.d_model;
        let (x, out) = (Pass::matrix(x, d)?, Pass::matrix_mut(out, d)?);
        Ok(kernels::dropout(
            run.exec(),
            &dropout,
            sentences,
            positions,
            Input::Matrix(x),
            WriteMode::Add,
            out,
        )?)
    }
}
