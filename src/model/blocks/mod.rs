//! The blocks that encoder and decoder are made of, each a few kernel calls.

mod embedding;
mod feed_forward;
mod linear;

pub(crate) use embedding::{Embedding, embed};
pub(crate) use feed_forward::{FEED_FORWARD_ROWS, FeedForward};
pub(crate) use linear::{Linear, Norm};

use crate::error::KernelError;
use crate::model::Model;
use crate::trace::{At, Stage, Tap};
use simdformer_kernels::{
    Activation, Epilogue, Isa, Matrix, MatrixMut, Parallelism, Residual, gemm, norm,
};

/// A model and who computes: what every block needs.
#[derive(Clone, Copy)]
pub(crate) struct Run<'a> {
    pub(crate) model: &'a Model,
    pub(crate) parallelism: Parallelism<'a>,
}

impl<'a> Run<'a> {
    pub(crate) fn isa(&self) -> Isa {
        self.model.isa()
    }

    /// `out = residual + activation(x W + bias)`; `x` is `[rows, depth]`, `out` `[rows, columns]`.
    pub(crate) fn linear(
        &self,
        layer: &Linear,
        x: &[f32],
        activation: Activation,
        residual: Residual<'_>,
        out: &mut [f32],
    ) -> Result<(), KernelError> {
        let rows = x.len() / layer.depth;
        let epilogue = Epilogue {
            bias: layer.bias.clone().map(|range| self.model.weights(range)),
            activation,
            residual,
            ..Epilogue::default()
        };
        gemm(
            Matrix::new(x, rows, layer.depth)?,
            &layer.packed(self.model)?,
            &epilogue,
            MatrixMut::new(out, rows, layer.columns)?,
            self.parallelism,
        )?;
        Ok(())
    }

    /// `out = LayerNorm(x)`, both `[rows, d_model]`.
    pub(crate) fn norm(&self, layer: &Norm, x: &[f32], out: &mut [f32]) -> Result<(), KernelError> {
        let d = layer.weight.len();
        let rows = x.len() / d;
        norm::layer_norm(
            self.isa(),
            self.parameters(layer),
            Matrix::new(x, rows, d)?,
            MatrixMut::new(out, rows, d)?,
            self.parallelism,
        )?;
        Ok(())
    }

    /// `x = LayerNorm(x)`, `[rows, d_model]`.
    pub(crate) fn norm_in_place(&self, layer: &Norm, x: &mut [f32]) -> Result<(), KernelError> {
        let d = layer.weight.len();
        let rows = x.len() / d;
        let x = MatrixMut::new(x, rows, d)?;
        norm::layer_norm_in_place(self.isa(), self.parameters(layer), x, self.parallelism)?;
        Ok(())
    }

    fn parameters(&self, layer: &Norm) -> norm::LayerNorm<'a> {
        norm::LayerNorm {
            weight: self.model.weights(layer.weight.clone()),
            bias: self.model.weights(layer.bias.clone()),
            eps: self.model.config().layer_norm_eps,
        }
    }
}

/// What a sublayer does around its work, the paper's "Add & Norm" or its pre-norm form.
///
/// `x` is the residual stream; `h` is scratch of the same shape. `work(tap, input, residual, out)`
/// must set `out = residual + f(input)`.
#[allow(clippy::too_many_arguments)]
pub(crate) fn sublayer<T: Tap>(
    run: &Run<'_>,
    norm: &Norm,
    pre: bool,
    x: &mut [f32],
    h: &mut [f32],
    tap: &mut T,
    at: &At<'_>,
    work: impl FnOnce(&mut T, &[f32], Residual<'_>, &mut [f32]) -> Result<(), KernelError>,
) -> Result<(), KernelError> {
    let d = norm.weight.len();
    if pre {
        run.norm(norm, x, h)?;
        look(tap, Stage::Norm, at, h, d);
        work(tap, h, Residual::Output, x)?;
        look(tap, Stage::Residual, at, x, d);
    } else {
        let residual = Residual::Matrix(Matrix::new(x, x.len() / d, d)?);
        work(tap, x, residual, h)?;
        look(tap, Stage::Residual, at, h, d);
        run.norm(norm, h, x)?;
        look(tap, Stage::Norm, at, x, d);
    }
    Ok(())
}

/// Shows a matrix with a row per token to the probe, if there is one.
#[inline(always)]
pub(crate) fn look<T: Tap>(tap: &mut T, stage: Stage, at: &At<'_>, data: &[f32], columns: usize) {
    if let Some(mut watch) = tap.watch() {
        watch.rows(stage, at, data, columns);
    }
}
