//! The feed-forward block in training: its hidden layer, and the backward pass, one reduction chunk at a time.

use crate::config::Side;
use crate::error::Error;
use crate::model::forward::BlockId;
use crate::model::weights::FeedForward;
use crate::train::activation_checkpointing::SavedActivations;
use crate::train::dropout::Site;
use crate::train::params::{self, Part};
use crate::train::pass_context::{Pass, views};
use core::ops::Range;
use simdformer_kernels::train::{ReductionChunks, WriteMode, gate as gated, gate_backward};
use simdformer_kernels::{Input, PostOp, activation};

impl Pass<'_> {
    /// The hidden activations of the rows of one reduction chunk. `input`, if given, is projected to `gate` and `up`
    /// first; otherwise they are saved. `gate` is empty in a block without a gate.
    pub(in crate::train) fn hidden(
        &self,
        (side, id): (Side, BlockId),
        block: &FeedForward,
        (rows, input): (Range<usize>, Option<&[f32]>),
        [gate, up]: [&mut [f32]; 2],
        hidden: &mut [f32],
    ) -> Result<(), Error> {
        if let Some(input) = input {
            self.run.project(&block.up, input, &mut [], up)?;
            if let Some(layer) = &block.gate {
                self.run.project(layer, input, &mut [], gate)?;
            }
        }
        let exec = self.run.exec();
        let (activation, width) = (self.run.config.activation, block.up.columns());
        let (up, mut hidden) = (Self::matrix(up, width)?, Self::matrix_mut(hidden, width)?);
        let out = hidden.reborrow();
        match &block.gate {
            Some(_) => gated(exec, activation, Self::matrix(gate, width)?, up, out)?,
            None => activation::apply(exec, activation, Input::Matrix(up), out)?,
        }
        match self.dropout_at(side, Site::Hidden(id)) {
            Some(dropout) => self.drop_in_place(&dropout, (side, rows), hidden),
            None => Ok(()),
        }
    }

    /// `before` is the range of the input of the block.
    pub(in crate::train) fn feed_forward_backward(
        &self,
        side: Side,
        Part { weights: block, ranges: flat }: Part<'_, FeedForward, params::FeedForward>,
        layer: usize,
        before: &Range<usize>,
        memory: &mut [f32],
        gradients: &mut [f32],
    ) -> Result<(), Error> {
        let plan = self.plan.stack(side)?;
        let (saved, id) = (&plan.layers[layer].feed_forward, BlockId::FeedForward(layer));
        let config = self.run.config;
        let d = config.d_model;
        let floats = self.rows(side) * d;
        let width = block.up.columns();
        views! { memory =>
            d_x: plan.d_x,
            branch: self.plan.branch,
            input: *before,
            d_input: self.plan.d_input,
            standard: saved.norm.standard,
            scale: saved.norm.scale,
            gates: saved.gate,
            up: saved.up,
            hidden: self.plan.hidden,
            d_hidden: self.plan.d_hidden,
            scratch: self.plan.weight_gradient,
            packed_down: self.plan.packed[0],
            packed_up: self.plan.packed[1],
            packed_gate: self.plan.packed[2],
        }
        let (d_x, input, d_input) = (&mut d_x[..floats], &input[..floats], &mut d_input[..floats]);
        let norm = Part { weights: &block.norm, ranges: &flat.norm };
        let saved_norm = (&*standard, &*scale);
        self.norm_after_backward(side, norm, saved_norm, d_x, gradients)?;
        let post = self.post_norm();
        let d_output = self.dropout_gradient((side, Site::Output(id)), d_x, branch)?;
        let weight_down = self.packed(&flat.down, packed_down)?;
        let weight_up = self.packed(&flat.up, packed_up)?;
        let weight_gate = match &flat.gate {
            Some(gate) => Some(self.packed(gate, packed_gate)?),
            None => None,
        };
        let recompute = matches!(
            self.plan.limits.keep,
            SavedActivations::Projections | SavedActivations::Context
        );
        let mut write = self.write;
        for chunk in self.lines(side).chunk_rows() {
            let within = |width: usize| chunk.start * width..chunk.end * width;
            let ends = [chunk.len() as u32];
            let one = ReductionChunks::new(&ends)?;
            let (input, up) = (&input[within(d)], &mut up[within(width)]);
            let gate = gates.get_mut(within(width)).unwrap_or_default();
            let hidden = &mut hidden[..chunk.len() * width];
            let d_hidden = &mut d_hidden[..chunk.len() * width];
            let project = recompute.then_some(input);
            self.hidden((side, id), block, (chunk.clone(), project), [gate, up], hidden)?;
            let d_out = &d_output.unwrap_or(d_x)[within(d)];
            self.linear_parameters(&flat.down, one, write, [d_out, hidden], gradients, scratch)?;
            let derivative = match &block.gate {
                Some(_) => PostOp::None,
                None => {
                    let pre = Self::matrix(up, width)?;
                    PostOp::ActivationBackward { activation: config.activation, pre }
                }
            };
            self.linear_input(&weight_down, d_out, derivative, d_hidden)?;
            if let Some(dropout) = self.dropout_at(side, Site::Hidden(id)) {
                let d_hidden = Self::matrix_mut(d_hidden, width)?;
                self.drop_in_place(&dropout, (side, chunk.clone()), d_hidden)?;
            }
            let (to, post_op) = match post {
                true => (&mut d_x[within(d)], PostOp::AddOutput),
                false => (&mut d_input[within(d)], PostOp::None),
            };
            match (&flat.gate, &weight_gate) {
                (Some(flat_gate), Some(weight_gate)) => {
                    gate_backward(
                        self.run.exec(),
                        config.activation,
                        Self::matrix_mut(gate, width)?,
                        Self::matrix_mut(up, width)?,
                        Self::matrix(d_hidden, width)?,
                    )?;
                    self.linear_parameters(&flat.up, one, write, [up, input], gradients, scratch)?;
                    self.linear_parameters(
                        flat_gate,
                        one,
                        write,
                        [gate, input],
                        gradients,
                        scratch,
                    )?;
                    self.linear_input(&weight_up, up, post_op, to)?;
                    self.linear_input(weight_gate, gate, PostOp::AddOutput, to)?;
                }
                _ => {
                    let operands: [&[f32]; 2] = [d_hidden, input];
                    self.linear_parameters(&flat.up, one, write, operands, gradients, scratch)?;
                    self.linear_input(&weight_up, d_hidden, post_op, to)?;
                }
            }
            write = WriteMode::Add;
        }
        self.norm_before_backward(side, norm, saved_norm, (d_input, d_x), gradients)
    }
}
