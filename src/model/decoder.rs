//! The decoder stack: one row per hypothesis in a step, or many rows of one hypothesis in a prefill. Both use
//! the same kernels and give the same bits.

use super::blocks::{
    ExecContext, cross_attention, embed, feed_forward, final_norm, self_attention, store_source,
};
use super::forward::{BlockId, ForwardMode, LayerObserver};
use super::pass_input::{SourcePass, TargetPass, Workspace};
use super::session_forward::{Inference, PassContext, StackPass, check};
use super::weights::Decoder;
use crate::config::Side;
use crate::error::Error;
use crate::kv::Caches;

impl Decoder {
    /// Runs all layers over the tokens of `pass`, appends their keys and values to the caches, and writes the last
    /// hidden states, `[tokens, d_model]`, multiplied by the logit scale, to `work.x`.
    pub(crate) fn run_inference<'a, T: LayerObserver>(
        &self,
        context: PassContext<'_>,
        pass: &TargetPass<'_>,
        caches: &mut Caches<'a>,
        work: &mut Workspace<'a>,
        observer: &mut T,
    ) -> Result<(), Error> {
        let stack = StackPass::Decoder(pass, caches);
        let table = Some(&self.table);
        self.forward(context.0, &mut Inference::new(context, stack, table, work, observer))
    }

    /// The right half of figure 1, for a session or a trainer.
    pub(crate) fn forward<M: ForwardMode>(
        &self,
        run: &ExecContext<'_>,
        mode: &mut M,
    ) -> Result<(), Error> {
        embed(run, Side::Decoder, &self.table, &self.embedding, mode)?;
        for index in 0..self.layers.len() {
            mode.layer(index, |mode| self.layer(run, index, mode))?;
        }
        final_norm(self.final_norm.as_ref(), mode)?;
        // Scale the hidden states, not the logits: they are shorter, and the pruned argmax reads them too.
        if run.config.logit_scale != 1.0 {
            let (Workspace { x, .. }, _) = mode.block(BlockId::FinalNorm)?;
            x.iter_mut().for_each(|x| *x *= run.config.logit_scale);
        }
        Ok(())
    }

    /// One layer, in place on the residual stream.
    pub(crate) fn layer<M: ForwardMode>(
        &self,
        run: &ExecContext<'_>,
        index: usize,
        mode: &mut M,
    ) -> Result<(), Error> {
        let layer = &self.layers[index];
        self_attention(run, &layer.self_attention, index, mode)?;
        cross_attention(run, &layer.cross_attention, index, mode)?;
        feed_forward(run, &layer.feed_forward, index, mode)
    }

    /// Projects the encoder output in `work.x` to the keys and values of every layer, and stores them in the slots
    /// of its sentences, if `pass` has slots.
    pub(crate) fn store_source<T: LayerObserver>(
        &self,
        (run, cancel): PassContext<'_>,
        pass: &SourcePass<'_>,
        caches: &mut Caches<'_>,
        work: &mut Workspace<'_>,
        observer: &mut T,
    ) -> Result<(), Error> {
        let Some(slots) = pass.slots else { return Ok(()) };
        let rows = work.x.len() / run.config.d_model;
        for (index, layer) in self.layers.iter().enumerate() {
            check(cancel)?;
            let key_value = &mut work.qkv[..rows * layer.cross_attention.key_value.columns()];
            run.project(&layer.cross_attention.key_value, work.x, work.rounded, key_value)?;
            observer.memory(run, pass, index, key_value);
            store_source(run, key_value, pass.lengths, slots, &mut caches.cross(index)?)?;
        }
        Ok(())
    }
}
