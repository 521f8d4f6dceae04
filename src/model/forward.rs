//! The differences between the forward pass of a session and that of a trainer.
//!
//! `encoder.rs`, `decoder.rs` and `blocks` contain the structure of the layers. They are generic over
//! [`ForwardMode`], which has two implementations. [`Inference`](super::session_forward::Inference) reads a KV cache, fuses
//! activations into products, and computes rows in groups. The one in `train/forward.rs` saves the values that the
//! backward pass needs, and applies dropout. Both call the same kernels on the same operands, so a loss in training
//! equals the score in a session, bit for bit.
//!
//! A session calls a [`LayerObserver`] after each block, with the workspace that contains the block's results. The
//! observer selects what it reports, under which name and to which receiver; see [`crate::trace`]. With [`NoObserver`] the
//! calls compile to nothing.

use super::blocks::ExecContext;
use super::pass_input::{At, Rows, SourcePass, TargetPass, Tokens, Workspace};
use super::weights::{CrossAttention, FeedForward, Linear, Norm, Table};
use crate::error::Error;
use crate::input_features::Features;
use core::ops::Range;
use simdformer_kernels::{Activation, CacheMut, Error as KernelError, Matrix, PostOp};

/// A block of a stack, with the index of its layer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum BlockId {
    /// The embedding, or the convolutions of an encoder that reads features.
    Embedding,
    SelfAttention(usize),
    CrossAttention(usize),
    FeedForward(usize),
    FinalNorm,
}

/// A forward pass through one stack.
pub(crate) trait ForwardMode {
    type Ops<'b>: BlockOps<'b>
    where
        Self: 'b;

    /// The buffers and the operations of a block.
    fn block(&mut self, id: BlockId) -> Result<(Workspace<'_>, Self::Ops<'_>), Error>;

    /// Is called after each block other than attention.
    fn after(&mut self, id: BlockId) -> Result<(), Error>;

    /// Is called after an attention block, whose last matrix is `output`.
    fn after_attention(&mut self, _: BlockId, _output: &Linear) -> Result<(), Error> {
        Ok(())
    }

    /// Calls `f`, which runs all blocks of layer `index`, for all rows or for one group of rows after the other.
    fn layer(
        &mut self,
        index: usize,
        f: impl FnMut(&mut Self) -> Result<(), Error>,
    ) -> Result<(), Error>;

    /// Projects the encoder output to the keys and values of layer `layer`, unless they are in a KV cache.
    fn project_source(&mut self, _: &CrossAttention, _layer: usize) -> Result<(), Error> {
        Ok(())
    }
}

/// The operations of a block. The default methods are those of a session: they save nothing.
pub(crate) trait BlockOps<'b> {
    fn exec_context(&self) -> &ExecContext<'_>;

    /// The tokens of the pass.
    fn tokens(&self) -> Tokens<'b>;

    /// The features of source `index`; `None` after the last source.
    fn features(&self, index: usize) -> Option<Features<'b>>;

    /// `context = attention(projected)`: `projected` is query, key and value, or the query of cross-attention.
    fn attend(
        &mut self,
        projected: &[f32],
        context: &mut [f32],
        scratch: &mut [f32],
    ) -> Result<(), Error>;

    /// The hidden activations of some rows of the input.
    fn hidden(
        &mut self,
        block: &FeedForward,
        input_and_rows: (&[f32], Range<usize>),
        rounded: &mut [f32],
        hidden: &mut [f32],
    ) -> Result<(), Error>;

    /// The end of the chunk of rows that starts with `first`, of `rows` rows: a feed-forward block stores the hidden
    /// activations of one chunk.
    fn chunk_end(&self, first: usize, rows: usize) -> usize;

    /// `out = norm(x)`, both `[rows, d_model]`.
    fn norm(&mut self, norm: &Norm, x: &[f32], out: &mut [f32]) -> Result<(), Error> {
        Ok(self.exec_context().norm(norm, x, out)?)
    }

    /// `x = norm(x)`; the second buffer is scratch of the same length.
    fn norm_in_place(&mut self, norm: &Norm, [x, _]: [&mut [f32]; 2]) -> Result<(), Error> {
        Ok(self.exec_context().norm_in_place(norm, x)?)
    }

    /// `x = gelu(windows W + b) + positions`: the second convolution, for the rows of the pass from `first` on.
    fn second_convolution(
        &mut self,
        second: &Linear,
        (windows, positions): (Matrix<'_>, Option<&[f32]>),
        rounded: &mut [f32],
        (_first, x): (usize, &mut [f32]),
    ) -> Result<(), Error> {
        let post_op = match positions {
            Some(table) => PostOp::Add(Matrix::new(table, windows.rows(), second.columns())?),
            None => PostOp::None,
        };
        Ok(self.exec_context().linear_of(
            second,
            windows,
            rounded,
            (Activation::Gelu, post_op),
            x,
        )?)
    }

    /// With dropout after the block, the buffer for the output of the block. Without dropout `None`: the last product
    /// of the block adds the residual.
    fn dropout_buffer(&mut self) -> Option<&'b mut [f32]> {
        None
    }

    /// `out += dropout(x)`.
    fn dropout_add(&mut self, _x: &[f32], _out: &mut [f32]) -> Result<(), Error> {
        Ok(())
    }
}

/// Is called after each block. Every method has an empty default.
#[allow(unused_variables, reason = "the parameter names document each call")]
pub(crate) trait LayerObserver: Send {
    /// Whether calls have an effect. If true, a block runs once for all rows instead of in groups.
    const ENABLED: bool = true;

    /// Embedding, position and norm; the sum is `work.x`. There is no table if the encoder reads features.
    fn embedding(
        &mut self,
        run: &ExecContext<'_>,
        rows: Rows<'_>,
        table: Option<&Table>,
        tokens: &Tokens<'_>,
        work: &Workspace<'_>,
    ) -> Result<(), KernelError> {
        Ok(())
    }

    /// Self-attention of the encoder; its keys are in `work.qkv`. `output` is the projection of `work.context`.
    fn self_attention(
        &mut self,
        run: &ExecContext<'_>,
        pass: &SourcePass<'_>,
        (layer, output): (usize, &Linear),
        work: &mut Workspace<'_>,
    ) -> Result<(), KernelError> {
        Ok(())
    }

    /// Self-attention of the decoder; its keys are in `cache`.
    fn cached_attention(
        &mut self,
        run: &ExecContext<'_>,
        pass: &TargetPass<'_>,
        (layer, output): (usize, &Linear),
        cache: &CacheMut<'_>,
        work: &mut Workspace<'_>,
    ) -> Result<(), KernelError> {
        Ok(())
    }

    /// Cross-attention; its keys are in `cache`.
    fn cross_attention(
        &mut self,
        run: &ExecContext<'_>,
        pass: &TargetPass<'_>,
        (layer, output): (usize, &Linear),
        cache: &CacheMut<'_>,
        work: &mut Workspace<'_>,
    ) -> Result<(), KernelError> {
        Ok(())
    }

    /// Inside the feed-forward block: `hidden` was computed from some rows of its `input`, starting at row `first`.
    fn hidden(
        &mut self,
        run: &ExecContext<'_>,
        at: At<'_>,
        first: usize,
        input: &[f32],
        hidden: &[f32],
    ) {
    }

    /// The feed-forward block.
    fn feed_forward(&mut self, run: &ExecContext<'_>, at: At<'_>, work: &Workspace<'_>) {}

    /// The whole stack; its output is `work.x`.
    fn stack(&mut self, run: &ExecContext<'_>, rows: Rows<'_>, work: &Workspace<'_>) {}

    /// The source of a decoder layer: `key_value` is `[tokens, 2 d_model]`.
    fn memory(
        &mut self,
        run: &ExecContext<'_>,
        pass: &SourcePass<'_>,
        layer: usize,
        key_value: &[f32],
    ) {
    }

    /// `[rows, vocabulary]`.
    fn logits(
        &mut self,
        run: &ExecContext<'_>,
        rows: Rows<'_>,
        logits: &[f32],
    ) -> Result<(), KernelError> {
        Ok(())
    }
}

/// An observer that does nothing.
pub(crate) struct NoObserver;

impl LayerObserver for NoObserver {
    const ENABLED: bool = false;
}
