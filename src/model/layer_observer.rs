//! The observer of the stacks.
//!
//! After each block a stack makes one call, with the workspace that contains the block's results. The observer
//! selects what it reports, under which name and to which receiver; see [`crate::trace`]. With [`NoObserver`]
//! the calls compile to nothing.

use super::blocks::ExecContext;
use super::pass_input::{At, Rows, SourcePass, TargetPass, Tokens, Workspace};
use super::weights::{Linear, Table};
use simdformer_kernels::{CacheMut, Error as KernelError};

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
