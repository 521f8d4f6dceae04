//! The context of a pass, and the building blocks of its layers: linear maps and norms, forward and backward.

use super::batch::{Batch, Example, Lines};
use super::dropout::StepDropout;
use super::error::TrainError;
use super::params;
use super::plan::TrainPlan;
use crate::config::{NormPlacement, Side};
use crate::memory::MemoryError;
use crate::model::blocks::{ExecContext, Parameters};
use crate::model::weights;
use core::ops::Range;
use simdformer_kernels::train::{self as kernels, ReductionChunks, WriteMode};
use simdformer_kernels::{Activation, Matrix, MatrixMut, Residual};

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

/// Splits one buffer into the ranges that a step of a pass reads and writes.
pub(super) fn cut<'b, const N: usize>(
    memory: &'b mut [f32],
    ranges: [&Range<usize>; N],
) -> Result<[&'b mut [f32]; N], TrainError> {
    // The ranges of one call are disjoint. Only recomputed ranges, which all layers share, overlap.
    let parts = memory.get_disjoint_mut(ranges.map(Clone::clone));
    parts.map_err(|_| MemoryError::TooLarge.into())
}

impl Pass<'_> {
    /// The concatenated sentences of one side.
    pub(super) fn lines(&self, side: Side) -> &Lines {
        match side {
            Side::Encoder => &self.batch.source,
            Side::Decoder => &self.batch.target,
        }
    }

    /// The number of tokens of one side.
    pub(super) fn rows(&self, side: Side) -> usize {
        self.lines(side).rows()
    }

    pub(super) fn chunks(&self, side: Side) -> Result<ReductionChunks<'_>, TrainError> {
        Ok(ReductionChunks::new(&self.lines(side).chunk_ends)?)
    }

    pub(super) fn post_norm(&self) -> bool {
        self.run.config.norm == NormPlacement::Post
    }

    /// `x` as a matrix with `columns` columns.
    pub(super) fn matrix<'m>(x: &'m [f32], columns: usize) -> Result<Matrix<'m>, TrainError> {
        Ok(Matrix::new(x, x.len() / columns.max(1), columns)?)
    }

    pub(super) fn matrix_mut<'m>(
        x: &'m mut [f32],
        columns: usize,
    ) -> Result<MatrixMut<'m>, TrainError> {
        let rows = x.len() / columns.max(1);
        Ok(MatrixMut::new(x, rows, columns)?)
    }

    /// `out = residual + x W + b`.
    pub(super) fn linear(
        &self,
        layer: &weights::Linear,
        x: &[f32],
        residual: Residual<'_>,
        out: &mut [f32],
    ) -> Result<(), TrainError> {
        Ok(self.run.linear(layer, x, &mut [], (Activation::Identity, residual), out)?)
    }

    /// `out = norm(x)`; saves the standard scores and the scales.
    pub(super) fn norm(
        &self,
        layer: &weights::Norm,
        x: &[f32],
        standard: &mut [f32],
        scale: &mut [f32],
        out: &mut [f32],
    ) -> Result<(), TrainError> {
        let (d, isa, parallelism) = (layer.weight.len(), self.run.isa(), self.run.parallelism);
        let (x, out) = (Self::matrix(x, d)?, Self::matrix_mut(out, d)?);
        let scale = &mut scale[..x.rows()];
        let standard = Self::matrix_mut(&mut standard[..x.rows() * d], d)?;
        match self.run.parameters(layer) {
            Parameters::Layer(norm) => {
                kernels::layer_norm_forward_save(isa, norm, x, standard, scale, out, parallelism)?;
            }
            Parameters::Rms(norm) => {
                kernels::rms_norm_forward_save(isa, norm, x, standard, scale, out, parallelism)?;
            }
        }
        Ok(())
    }

    /// Recomputes the output of [`Pass::norm`].
    pub(super) fn norm_recompute(
        &self,
        layer: &weights::Norm,
        standard: &[f32],
        out: &mut [f32],
    ) -> Result<(), TrainError> {
        let (d, isa, parallelism) = (layer.weight.len(), self.run.isa(), self.run.parallelism);
        let standard = Self::matrix(&standard[..out.len()], d)?;
        let out = Self::matrix_mut(out, d)?;
        match self.run.parameters(layer) {
            Parameters::Layer(norm) => {
                kernels::layer_norm_recompute(isa, norm, standard, out, parallelism)?;
            }
            Parameters::Rms(norm) => {
                kernels::rms_norm_recompute(isa, norm, standard, out, parallelism)?;
            }
        }
        Ok(())
    }

    /// The gradients of a norm's parameters, from the gradient of its result.
    pub(super) fn norm_parameters(
        &self,
        flat: &params::Norm,
        side: Side,
        standard: &[f32],
        d_out: &[f32],
        gradients: &mut [f32],
    ) -> Result<(), TrainError> {
        let (d, isa, parallelism) = (flat.weight.len(), self.run.isa(), self.run.parallelism);
        let (chunks, write) = (self.chunks(side)?, self.write);
        let standard = Self::matrix(&standard[..d_out.len()], d)?;
        let d_out = Self::matrix(d_out, d)?;
        match &flat.bias {
            Some(bias) => {
                let [weight, bias] = cut(gradients, [&flat.weight, bias])?;
                kernels::layer_norm_parameters_backward(
                    isa,
                    standard,
                    d_out,
                    chunks,
                    write,
                    kernels::NormGradients { weight, bias: Some(bias) },
                    parallelism,
                )?;
            }
            // The gradient of the factor is the same sum for both kinds of norm.
            None => kernels::layer_norm_parameters_backward(
                isa,
                standard,
                d_out,
                chunks,
                write,
                kernels::NormGradients { weight: &mut gradients[flat.weight.clone()], bias: None },
                parallelism,
            )?,
        }
        Ok(())
    }

    /// The gradient of a norm's input, from the gradient of its result.
    pub(super) fn norm_backward(
        &self,
        layer: &weights::Norm,
        (standard, scale): (&[f32], &[f32]),
        d_out: &[f32],
        write: WriteMode,
        d_x: &mut [f32],
    ) -> Result<(), TrainError> {
        let (d, isa, parallelism) = (layer.weight.len(), self.run.isa(), self.run.parallelism);
        let standard = Self::matrix(&standard[..d_out.len()], d)?;
        let d_out = Self::matrix(d_out, d)?;
        let saved = kernels::SavedNorm { standard, scale: &scale[..d_out.rows()] };
        let d_x = Self::matrix_mut(d_x, d)?;
        match self.run.parameters(layer) {
            Parameters::Layer(norm) => {
                kernels::layer_norm_backward(isa, norm, saved, d_out, write, d_x, parallelism)?
            }
            Parameters::Rms(norm) => {
                kernels::rms_norm_backward(isa, norm, saved, d_out, write, d_x, parallelism)?
            }
        }
        Ok(())
    }

    /// As [`Pass::norm_backward`]; overwrites the gradient of the result.
    pub(super) fn norm_backward_in_place(
        &self,
        layer: &weights::Norm,
        (standard, scale): (&[f32], &[f32]),
        d: &mut [f32],
    ) -> Result<(), TrainError> {
        let (columns, isa, parallelism) =
            (layer.weight.len(), self.run.isa(), self.run.parallelism);
        let standard = Self::matrix(&standard[..d.len()], columns)?;
        let d = Self::matrix_mut(d, columns)?;
        let saved = kernels::SavedNorm { standard, scale: &scale[..d.rows()] };
        match self.run.parameters(layer) {
            Parameters::Layer(norm) => {
                kernels::layer_norm_backward_in_place(isa, norm, saved, d, parallelism)?
            }
            Parameters::Rms(norm) => {
                kernels::rms_norm_backward_in_place(isa, norm, saved, d, parallelism)?;
            }
        }
        Ok(())
    }

    /// The gradients of a linear map's matrix and bias. `d_y` is `[rows, outputs]`, `x` is `[rows, inputs]`.
    pub(super) fn linear_parameters(
        &self,
        flat: &params::Linear,
        chunks: ReductionChunks<'_>,
        write: WriteMode,
        (d_y, x): (Matrix<'_>, Matrix<'_>),
        gradients: &mut [f32],
        scratch: &mut [f32],
    ) -> Result<(), TrainError> {
        let (isa, parallelism) = (self.run.isa(), self.run.parallelism);
        let [weight, bias] = match &flat.bias {
            Some(bias) => cut(gradients, [&flat.weight, bias])?,
            None => [&mut gradients[flat.weight.clone()], &mut []],
        };
        let weight = MatrixMut::new(weight, flat.outputs, flat.inputs)?;
        let bias = flat.bias.is_some().then_some(bias);
        kernels::weight_gradient(isa, d_y, x, chunks, write, weight, bias, scratch, parallelism)?;
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
    ) -> Result<weights::Backward<'b>, TrainError> {
        let weight = Matrix::new(&self.values[flat.weight.clone()], flat.outputs, flat.inputs)?;
        let parallelism = self.run.parallelism;
        Ok(weights::Backward::pack(self.run.isa(), weight, buffer, parallelism)?)
    }

    /// `d_x = residual + d_y W`.
    pub(super) fn linear_input(
        &self,
        weight: &weights::Backward<'_>,
        d_y: &[f32],
        residual: Residual<'_>,
        d_x: &mut [f32],
    ) -> Result<(), TrainError> {
        let [outputs, inputs] = weight.shape();
        let (d_y, d_x) = (Self::matrix(d_y, outputs)?, Self::matrix_mut(d_x, inputs)?);
        Ok(weight.multiply(d_y, residual, d_x, self.run.parallelism)?)
    }
}
