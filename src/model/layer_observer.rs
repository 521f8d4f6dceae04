//! Where the stacks let somebody look on.
//!
//! After each block a stack makes one call here, with the memory in which the block has left its
//! numbers. What of it is shown, under which name and to whom is not the stacks' business: see
//! [`crate::trace`]. With [`NoObserver`] the calls compile to nothing.

use super::blocks::ExecContext;
use super::pass::{At, Rows, SourcePass, TargetPass, Tokens, Workspace};
use super::weights::Table;
use crate::error::KernelError;
use simdformer_kernels::CacheMut;

/// Somebody who is called after each block. Nobody has to look at anything.
#[allow(unused_variables, reason = "the names say what each call is given")]
pub(crate) trait LayerObserver: Send {
    /// Whether anybody looks: then a block is called once for all rows.
    const ENABLED: bool = true;

    /// Embedding, position and norm; the sum is `work.x`. There is no table where features are read.
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

    /// Self-attention of the encoder; its keys are in `work.qkv`.
    fn self_attention(
        &mut self,
        run: &ExecContext<'_>,
        pass: &SourcePass<'_>,
        layer: usize,
        work: &Workspace<'_>,
    ) -> Result<(), KernelError> {
        Ok(())
    }

    /// Self-attention of the decoder; its keys are in `cache`.
    fn cached_attention(
        &mut self,
        run: &ExecContext<'_>,
        pass: &TargetPass<'_>,
        layer: usize,
        cache: &CacheMut<'_>,
        work: &Workspace<'_>,
    ) -> Result<(), KernelError> {
        Ok(())
    }

    /// Cross-attention; its keys are in `cache`.
    fn cross_attention(
        &mut self,
        run: &ExecContext<'_>,
        pass: &TargetPass<'_>,
        layer: usize,
        cache: &CacheMut<'_>,
        work: &Workspace<'_>,
    ) -> Result<(), KernelError> {
        Ok(())
    }

    /// Inside the feed-forward block: some rows of its `input`, from `first` on, were made `hidden`.
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

    /// A decoder layer's view of the source: `key_value` is `[tokens, 2 d_model]`.
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

/// Nobody looks.
pub(crate) struct NoObserver;

impl LayerObserver for NoObserver {
    const ENABLED: bool = false;
}
