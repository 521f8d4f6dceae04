//! The context of a pass, the backward pass of linear maps, and dropout. The masks of the forward and the backward pass
//! are the same.

use super::dropout::{Site, StepDropout};
use super::memory_plan::TrainPlan;
use super::packed_batch::{Batch, Example, Lines};
use super::params;
use crate::config::{NormPlacement, Side};
use crate::error::Error;
use crate::model::blocks::ExecContext;
use crate::model::weights;
use core::ops::Range;
use simdformer_kernels::train::{
    self as kernels, Dropout, ReductionChunks, WeightDropout, WriteMode,
};
use simdformer_kernels::{Input, Matrix, MatrixMut, PostOp};

/// The context of a pass: threads, weights and sentences.
#[derive(Clone, Copy)]
pub(super) struct Pass<'p> {
    pub(super) run: ExecContext<'p>,
    pub(super) plan: &'p TrainPlan,
    pub(super) batch: &'p Batch,
    /// The examples of the batch, for sources that are features.
    pub(super) pairs: &'p [Example<'p>],
    /// The parameters in row order.
    pub(super) values: &'p [f32],
    /// Whether gradients are stored or added: the first pass after an update stores.
    pub(super) write: WriteMode,
    /// The dropout of this update; `None` in evaluation.
    pub(super) step_dropout: Option<StepDropout>,
}

/// The ranges of one buffer as disjoint views, in the same order. [`views`] names them.
pub(super) fn cut<'b, const N: usize>(
    memory: &'b mut [f32],
    ranges: [&Range<usize>; N],
) -> Result<[&'b mut [f32]; N], Error> {
    // The ranges of one call are disjoint. Only recomputed ranges, which all layers share, overlap.
    memory.get_disjoint_mut(ranges.map(Clone::clone)).map_err(|_| {
        let expected = "disjoint ranges of the workspace for the operands of a block";
        Error::invalid_input("the plan of the trainer", expected, "others: a bug in this crate")
    })
}

/// Declares views of the buffer `memory` that a step of a pass reads and writes, each beside its range: `views!(memory =>
/// d_x: plan.d_x, ...)`.
macro_rules! views {
    ($memory:expr => $($view:ident: $range:expr),+ $(,)?) => {
        let [$($view),+] = $crate::train::pass_context::cut($memory, [$(&$range),+])?;
    };
}
pub(super) use views;

impl Pass<'_> {
    /// The concatenated sentences of one side.
    pub(super) fn lines(&self, side: Side) -> &Lines {
        self.batch.lines(side)
    }

    /// The number of tokens of one side.
    pub(super) fn rows(&self, side: Side) -> usize {
        self.lines(side).rows()
    }

    pub(super) fn chunks(&self, side: Side) -> Result<ReductionChunks<'_>, Error> {
        Ok(ReductionChunks::new(&self.lines(side).chunk_ends)?)
    }

    pub(super) fn post_norm(&self) -> bool {
        self.run.config.norm == NormPlacement::Post
    }

    /// `x` as a matrix with `columns` columns.
    pub(super) fn matrix<'m>(x: &'m [f32], columns: usize) -> Result<Matrix<'m>, Error> {
        Ok(Matrix::new(x, x.len() / columns.max(1), columns)?)
    }

    pub(super) fn matrix_mut<'m>(x: &'m mut [f32], columns: usize) -> Result<MatrixMut<'m>, Error> {
        let rows = x.len() / columns.max(1);
        Ok(MatrixMut::new(x, rows, columns)?)
    }

    /// The gradients of a linear map's matrix and bias. `d_y` is `[rows, outputs]`, `x` is `[rows, inputs]`.
    pub(super) fn linear_parameters(
        &self,
        flat: &params::Linear,
        chunks: ReductionChunks<'_>,
        write: WriteMode,
        [d_y, x]: [&[f32]; 2],
        gradients: &mut [f32],
        scratch: &mut [f32],
    ) -> Result<(), Error> {
        let (d_y, x) = (Self::matrix(d_y, flat.outputs)?, Self::matrix(x, flat.inputs)?);
        let exec = self.run.exec();
        let [weight, bias] = match &flat.bias {
            Some(bias) => cut(gradients, [&flat.weight, bias])?,
            None => [&mut gradients[flat.weight.clone()], &mut []],
        };
        let weight = MatrixMut::new(weight, flat.outputs, flat.inputs)?;
        let bias = flat.bias.is_some().then_some(bias);
        kernels::weight_gradient(exec, d_y, x, chunks, write, weight, bias, scratch)?;
        for range in &flat.without_bias {
            gradients[range.clone()].fill(0.0);
        }
        Ok(())
    }

    /// The matrix of a linear map, packed for the gradient of its input.
    pub(super) fn packed<'b>(
        &self,
        flat: &params::Linear,
        buffer: &'b mut [f32],
    ) -> Result<weights::Backward<'b>, Error> {
        let weight = Matrix::new(&self.values[flat.weight.clone()], flat.outputs, flat.inputs)?;
        let parallelism = self.run.parallelism;
        Ok(weights::Backward::pack(self.run.isa(), weight, buffer, parallelism)?)
    }

    /// `d_x = residual + d_y W`.
    pub(super) fn linear_input(
        &self,
        weight: &weights::Backward<'_>,
        d_y: &[f32],
        post_op: PostOp<'_>,
        d_x: &mut [f32],
    ) -> Result<(), Error> {
        let [outputs, inputs] = weight.shape();
        let (d_y, d_x) = (Self::matrix(d_y, outputs)?, Self::matrix_mut(d_x, inputs)?);
        Ok(weight.multiply(d_y, post_op, d_x, self.run.parallelism)?)
    }

    /// The dropout at `site`, if any.
    pub(super) fn dropout_at(&self, side: Side, site: Site) -> Option<Dropout> {
        self.step_dropout?.at(side, site)
    }

    /// The dropout of the attention weights at `site`, if any.
    pub(super) fn dropped_weights(
        &self,
        side: Side,
        site: Site,
    ) -> Result<Option<WeightDropout<'_>>, Error> {
        let sentences = &self.lines(side).sentences;
        let dropout = self.dropout_at(side, site);
        Ok(dropout.map(|dropout| WeightDropout::new(&dropout, sentences)).transpose()?)
    }

    /// Applies dropout to `x`, which holds the rows `rows` of one side.
    pub(super) fn drop_in_place(
        &self,
        dropout: &Dropout,
        (side, rows): (Side, Range<usize>),
        x: MatrixMut<'_>,
    ) -> Result<(), Error> {
        let lines = self.lines(side);
        let (sentences, positions) = (&lines.sentences[rows.clone()], &lines.positions[rows]);
        let exec = self.run.exec();
        Ok(kernels::dropout(
            exec,
            dropout,
            sentences,
            positions,
            Input::Output,
            WriteMode::Store,
            x,
        )?)
    }

    /// The gradient of a block's output, from the gradient of the sum: applies the dropout mask of the forward pass.
    /// `None` without dropout.
    pub(super) fn dropout_gradient<'m>(
        &self,
        (side, site): (Side, Site),
        d_x: &[f32],
        branch: &'m mut [f32],
    ) -> Result<Option<&'m [f32]>, Error> {
        let Some(dropout) = self.dropout_at(side, site) else { return Ok(None) };
        let (d, rows) = (self.run.config.d_model, self.rows(side));
        let branch = &mut branch[..d_x.len()];
        branch.copy_from_slice(d_x);
        self.drop_in_place(&dropout, (side, 0..rows), Self::matrix_mut(branch, d)?)?;
        Ok(Some(branch))
    }
}
