//! Linear maps and norms, from which all blocks are built.

use crate::config::{Config, NormKind, Side};
use crate::model::weights::{Input, Linear, Norm, Weight, Weights};
use simdformer_kernels::{
    Activation, AttentionOptions, Epilogue, Error as KernelError, Exec, Isa, Matrix, MatrixMut,
    Parallelism, PostOp,
    norm::{self, NormInput},
};

/// The context of every block: weights, architecture and threads.
#[derive(Clone, Copy)]
pub(crate) struct ExecContext<'a> {
    pub(crate) weights: &'a Weights,
    pub(crate) config: &'a Config,
    pub(crate) parallelism: Parallelism<'a>,
}

impl<'a> ExecContext<'a> {
    pub(crate) fn isa(&self) -> Isa {
        self.weights.isa()
    }

    /// The instruction set and the threads.
    pub(crate) fn exec(&self) -> Exec<'a> {
        Exec::new(self.isa(), self.parallelism)
    }

    /// `[rows, heads, head_dim]` of one side.
    pub(crate) fn heads(&self, side: Side, rows: usize) -> [usize; 3] {
        let heads = self.config.stack(side).map_or(0, |stack| stack.heads);
        [rows, heads, self.config.head_dim(side)]
    }

    /// The attention options that all layers of one side share: the scale of the scores.
    pub(crate) fn attention_options(&self, side: Side) -> AttentionOptions<'static> {
        let plain = AttentionOptions::new(self.config.head_dim(side));
        AttentionOptions { scale: self.config.attention_scale.unwrap_or(plain.scale), ..plain }
    }

    /// The attention options of a self-attention block of the encoder, without its bias.
    pub(crate) fn encoder_attention(&self) -> AttentionOptions<'static> {
        let precision = self.weights.attention_precision();
        AttentionOptions { precision, ..self.attention_options(Side::Encoder) }
    }

    /// `out = residual + activation(x W + bias)`; `x` is `[rows, depth]`, `out` `[rows, columns]`; `scratch` is the
    /// buffer for quantized activations.
    pub(crate) fn linear(
        &self,
        layer: &Linear,
        x: &[f32],
        scratch: &mut [f32],
        (activation, post_op): (Activation, PostOp<'_>),
        out: &mut [f32],
    ) -> Result<(), KernelError> {
        let depth = layer.matrix.depth;
        let x = Matrix::new(x, x.len() / depth, depth)?;
        self.linear_of(layer, x, scratch, (activation, post_op), out)
    }

    /// [`ExecContext::linear`] for any view of rows.
    pub(crate) fn linear_of(
        &self,
        layer: &Linear,
        x: Matrix<'_>,
        scratch: &mut [f32],
        after: (Activation, PostOp<'_>),
        out: &mut [f32],
    ) -> Result<(), KernelError> {
        let weight = self.weights.matrix(layer)?;
        let input = weight.input(self.exec(), x, scratch)?;
        self.multiply(layer, &weight, &input, after, out)
    }

    /// `out = activation(x G + bias) * (x W + bias)`: a gated linear map.
    pub(crate) fn gated(
        &self,
        [gate, up]: [&Linear; 2],
        x: &[f32],
        scratch: &mut [f32],
        activation: Activation,
        out: &mut [f32],
    ) -> Result<(), KernelError> {
        let depth = gate.matrix.depth;
        let x = Matrix::new(x, x.len() / depth, depth)?;
        let (before, after) =
            ((activation, PostOp::None), (Activation::Identity, PostOp::MultiplyOutput));
        let [first, second] = [self.weights.matrix(gate)?, self.weights.matrix(up)?];
        let input = first.input(self.exec(), x, scratch)?;
        self.multiply(gate, &first, &input, before, out)?;
        if second.takes(&input) {
            return self.multiply(up, &second, &input, after, out);
        }
        let input = second.input(self.exec(), x, scratch)?;
        self.multiply(up, &second, &input, after, out)
    }

    fn multiply(
        &self,
        layer: &Linear,
        weight: &Weight<'_>,
        input: &Input<'_>,
        (activation, post_op): (Activation, PostOp<'_>),
        out: &mut [f32],
    ) -> Result<(), KernelError> {
        let (bias, columns) = (self.weights.bias(layer), layer.columns());
        let epilogue = Epilogue { bias, activation, post_op, ..Epilogue::default() };
        let out = MatrixMut::new(out, input.rows(), columns)?;
        weight.multiply(input, &epilogue, out, self.parallelism)
    }

    /// `out = x W + bias`.
    pub(crate) fn project(
        &self,
        layer: &Linear,
        x: &[f32],
        scratch: &mut [f32],
        out: &mut [f32],
    ) -> Result<(), KernelError> {
        self.linear(layer, x, scratch, (Activation::Identity, PostOp::None), out)
    }

    /// `out = norm(x)`, both `[rows, d_model]`.
    pub(crate) fn norm(&self, layer: &Norm, x: &[f32], out: &mut [f32]) -> Result<(), KernelError> {
        let (rows, d) = (x.len() / layer.weight.len(), layer.weight.len());
        self.run_norm(layer, NormInput::Matrix(Matrix::new(x, rows, d)?), rows, out)
    }

    /// `x = norm(x)`, `[rows, d_model]`.
    pub(crate) fn norm_in_place(&self, layer: &Norm, x: &mut [f32]) -> Result<(), KernelError> {
        self.run_norm(layer, NormInput::Output, x.len() / layer.weight.len(), x)
    }

    fn run_norm(
        &self,
        layer: &Norm,
        input: NormInput<'_>,
        rows: usize,
        out: &mut [f32],
    ) -> Result<(), KernelError> {
        let out = MatrixMut::new(out, rows, layer.weight.len())?;
        norm::norm(self.exec(), self.norm_of(layer), input, out)
    }

    /// The norm of a layer with its parameters.
    pub(crate) fn norm_of(&self, layer: &Norm) -> norm::Norm<'a> {
        let (weight, bias) = self.weights.norm(layer);
        let eps = self.config.layer_norm_eps;
        match self.config.norm_kind {
            NormKind::LayerNorm { .. } => norm::Norm::Layer(norm::LayerNorm { weight, bias, eps }),
            NormKind::RmsNorm => norm::Norm::Rms(norm::RmsNorm { weight, eps }),
        }
    }
}
