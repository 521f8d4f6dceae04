//! The forward pass of a session: it calls a [`LayerObserver`], which is empty except in a trace, and ends early if it
//! is cancelled.

use super::blocks::{
    ExecContext, attend_cached, attend_sentences, attend_source, chunk_rows, hidden,
};
use super::forward::{BlockId, BlockOps, ForwardMode, LayerObserver};
use super::pass_input::{At, Rows, SourcePass, TargetPass, Tokens, Workspace};
use super::weights::{FeedForward, Linear, Table};
use crate::cancel::Cancel;
use crate::error::Error;
use crate::input_features::Features;
use crate::kv::Caches;
use core::ops::Range;

/// Rows of whole sentences that go through a layer in one group, for each thread: enough that the time of
/// reading the weights is negligible, and few enough that intermediate tensors stay in an inner cache.
const GROUP_ROWS: usize = 256;

/// The weights and the threads of a pass, and what cancels it.
pub(crate) type PassContext<'s> = (&'s ExecContext<'s>, Option<&'s Cancel>);

/// An error if the pass is cancelled. This is one relaxed load, so it is called for each block and each chunk of rows.
pub(crate) fn check(cancel: Option<&Cancel>) -> Result<(), Error> {
    if cancel.is_some_and(Cancel::is_cancelled) { Err(Error::CANCELLED) } else { Ok(()) }
}

/// The pass of one stack, with its workspace.
pub(crate) struct Inference<'s, 'a, T> {
    ops: InferenceOps<'s, 'a, T>,
    /// The table of the embedding; `None` if the encoder reads features.
    table: Option<&'s Table>,
    work: &'s mut Workspace<'a>,
    /// The rows of the current group.
    rows: Range<usize>,
}

/// The operations of a block in a session.
pub(crate) struct InferenceOps<'s, 'a, T> {
    run: &'s ExecContext<'s>,
    cancel: Option<&'s Cancel>,
    stack: StackPass<'s, 'a>,
    block: BlockId,
    observer: &'s mut T,
}

/// The input of a stack.
pub(crate) enum StackPass<'s, 'a> {
    Encoder(SourcePass<'s>),
    Decoder(&'s TargetPass<'s>, &'s mut Caches<'a>),
}

impl<'s> StackPass<'s, '_> {
    fn rows(&self) -> Rows<'s> {
        match self {
            Self::Encoder(pass) => pass.rows(),
            Self::Decoder(pass, _) => pass.rows(),
        }
    }

    fn tokens(&self) -> Tokens<'s> {
        match self {
            Self::Encoder(pass) => pass.tokens,
            Self::Decoder(pass, _) => pass.tokens,
        }
    }
}

impl<'s, 'a, T: LayerObserver> Inference<'s, 'a, T> {
    pub(crate) fn new(
        (run, cancel): PassContext<'s>,
        stack: StackPass<'s, 'a>,
        table: Option<&'s Table>,
        work: &'s mut Workspace<'a>,
        observer: &'s mut T,
    ) -> Self {
        let rows = 0..work.x.len() / run.config.d_model;
        let ops = InferenceOps { run, cancel, stack, block: BlockId::Embedding, observer };
        Self { ops, table, work, rows }
    }
}

impl<'s, 'a, T: LayerObserver> ForwardMode for Inference<'s, 'a, T> {
    type Ops<'b>
        = &'b mut InferenceOps<'s, 'a, T>
    where
        Self: 'b;

    fn block(&mut self, id: BlockId) -> Result<(Workspace<'_>, Self::Ops<'_>), Error> {
        check(self.ops.cancel)?;
        let d = self.ops.run.config.d_model;
        let Workspace { x, h, context, qkv, hidden, scratch, frames, rounded } = self.work;
        let x = &mut x[self.rows.start * d..self.rows.end * d];
        let h = &mut h[..x.len()];
        self.ops.block = id;
        let work = Workspace { x, h, context, qkv, hidden, scratch, frames, rounded };
        Ok((work, &mut self.ops))
    }

    fn after(&mut self, id: BlockId) -> Result<(), Error> {
        let Self { ops: InferenceOps { run, stack, observer, .. }, table, work, .. } = self;
        let rows = stack.rows();
        match id {
            BlockId::Embedding => observer.embedding(run, rows, *table, &stack.tokens(), work)?,
            BlockId::FeedForward(layer) => observer.feed_forward(run, At { rows, layer }, work),
            BlockId::FinalNorm => observer.stack(run, rows, work),
            BlockId::SelfAttention(_) | BlockId::CrossAttention(_) => {}
        }
        Ok(())
    }

    fn after_attention(&mut self, id: BlockId, output: &Linear) -> Result<(), Error> {
        if !T::ENABLED {
            return Ok(());
        }
        let Self { ops: InferenceOps { run, stack, observer, .. }, work, .. } = self;
        let observed = match (stack, id) {
            (StackPass::Encoder(pass), BlockId::SelfAttention(layer)) => {
                observer.self_attention(run, pass, (layer, output), work)
            }
            (StackPass::Decoder(pass, caches), BlockId::SelfAttention(layer)) => {
                observer.cached_attention(run, pass, (layer, output), &caches.own(layer)?, work)
            }
            (StackPass::Decoder(pass, caches), BlockId::CrossAttention(layer)) => {
                observer.cross_attention(run, pass, (layer, output), &caches.cross(layer)?, work)
            }
            _ => Ok(()),
        };
        Ok(observed?)
    }

    /// Runs the encoder on one group of sentences after the other, so that intermediate tensors stay in a cache. The
    /// bits of a row do not depend on other rows. A trace sees all sentences at once.
    fn layer(
        &mut self,
        _: usize,
        mut f: impl FnMut(&mut Self) -> Result<(), Error>,
    ) -> Result<(), Error> {
        let all = match self.ops.stack {
            StackPass::Encoder(pass) if !T::ENABLED => pass,
            _ => return f(self),
        };
        let most = GROUP_ROWS.saturating_mul(self.ops.run.parallelism.threads());
        let (mut start, mut lengths) = (0, all.lengths);
        while !lengths.is_empty() {
            let (mut rows, mut count) = (0, 0);
            for &len in lengths {
                if count > 0 && rows + len as usize > most {
                    break;
                }
                rows += len as usize;
                count += 1;
            }
            let (group, others) = lengths.split_at(count);
            self.ops.stack = StackPass::Encoder(SourcePass { lengths: group, ..all });
            self.rows = start..start + rows;
            f(self)?;
            (start, lengths) = (start + rows, others);
        }
        (self.ops.stack, self.rows) = (StackPass::Encoder(all), 0..start);
        Ok(())
    }
}

impl<'b, T: LayerObserver> BlockOps<'b> for &'b mut InferenceOps<'_, '_, T> {
    fn exec_context(&self) -> &ExecContext<'_> {
        self.run
    }

    fn tokens(&self) -> Tokens<'b> {
        self.stack.tokens()
    }

    fn features(&self, index: usize) -> Option<Features<'b>> {
        match self.stack {
            StackPass::Encoder(pass) => pass.features.get(index).copied(),
            StackPass::Decoder(..) => None,
        }
    }

    fn attend(
        &mut self,
        projected: &[f32],
        context: &mut [f32],
        scratch: &mut [f32],
    ) -> Result<(), Error> {
        let run = self.run;
        let attended = match (&mut self.stack, self.block) {
            (StackPass::Encoder(pass), BlockId::SelfAttention(layer)) => {
                attend_sentences(run, pass, layer, projected, context, scratch)
            }
            (StackPass::Decoder(pass, caches), BlockId::SelfAttention(layer)) => {
                attend_cached(run, pass, layer, projected, &mut caches.own(layer)?, context)
            }
            (StackPass::Decoder(pass, caches), BlockId::CrossAttention(layer)) => {
                attend_source(run, pass, projected, &caches.cross(layer)?, context)
            }
            _ => Ok(()),
        };
        Ok(attended?)
    }

    fn chunk_end(&self, first: usize, rows: usize) -> usize {
        rows.min(first + chunk_rows(self.run))
    }

    fn hidden(
        &mut self,
        block: &FeedForward,
        (input, rows): (&[f32], Range<usize>),
        rounded: &mut [f32],
        out: &mut [f32],
    ) -> Result<(), Error> {
        check(self.cancel)?;
        let d = self.run.config.d_model;
        hidden(self.run, block, &input[rows.start * d..rows.end * d], rounded, out)?;
        if let BlockId::FeedForward(layer) = self.block {
            let at = At { rows: self.stack.rows(), layer };
            self.observer.hidden(self.run, at, rows.start, input, out);
        }
        Ok(())
    }
}
