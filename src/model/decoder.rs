//! The decoder stack: one row per hypothesis in a step, or many rows of one hypothesis in a prefill. Both use
//! the same kernels and give the same bits.

use super::blocks::{
    Best, ExecContext, best, cached_attention, cross_attention, embed, feed_forward, keep_memory,
    logits, project_memory,
};
use super::layer_observer::LayerObserver;
use super::pass::{SourcePass, TargetPass, Workspace};
use super::weights::Decoder;
use crate::config::Side;
use crate::kv::Caches;
use simdformer_kernels::Error as KernelError;

impl Decoder {
    /// The right half of figure 1: runs all layers over the tokens of `pass`, appends their keys and values to the
    /// caches, and writes the last hidden states, `[tokens, d_model]`, multiplied by the logit scale, to `work.x`.
    pub(crate) fn run<T: LayerObserver>(
        &self,
        run: &ExecContext<'_>,
        pass: &TargetPass<'_>,
        caches: &mut Caches<'_>,
        work: &mut Workspace<'_>,
        observer: &mut T,
    ) -> Result<(), KernelError> {
        embed(run, Side::Decoder, &self.table, &self.embedding, &pass.tokens, work.x)?;
        observer.embedding(run, pass.rows(), Some(&self.table), &pass.tokens, work)?;
        for (index, layer) in self.layers.iter().enumerate() {
            let mut own = caches.own(index)?;
            cached_attention(run, &layer.self_attention, pass, index, &mut own, work)?;
            let output = &layer.self_attention.output;
            observer.cached_attention(run, pass, (index, output), &own, work)?;

            let source = caches.cross(index)?;
            cross_attention(run, &layer.cross_attention, pass, &source, work)?;
            let output = &layer.cross_attention.output;
            observer.cross_attention(run, pass, (index, output), &source, work)?;

            let at = pass.at(index);
            feed_forward(run, &layer.feed_forward, work, |first, input, hidden| {
                observer.hidden(run, at, first, input, hidden);
            })?;
            observer.feed_forward(run, at, work);
        }
        if let Some(norm) = &self.final_norm {
            run.norm_in_place(norm, work.x)?;
        }
        observer.stack(run, pass.rows(), work);
        // Scale the hidden states, not the logits: they are shorter, and the pruned argmax reads them too.
        if run.config.logit_scale != 1.0 {
            work.x.iter_mut().for_each(|x| *x *= run.config.logit_scale);
        }
        Ok(())
    }

    /// Projects the encoder output in `work.x` to the keys and values of every layer, and stores them in the slots
    /// of its sentences, if `pass` has slots.
    pub(crate) fn keep_memory<T: LayerObserver>(
        &self,
        run: &ExecContext<'_>,
        pass: &SourcePass<'_>,
        caches: &mut Caches<'_>,
        work: &mut Workspace<'_>,
        observer: &mut T,
    ) -> Result<(), KernelError> {
        let Some(slots) = pass.slots else { return Ok(()) };
        let rows = work.x.len() / run.config.d_model;
        for (index, layer) in self.layers.iter().enumerate() {
            let key_value = &mut work.qkv[..rows * layer.cross_attention.key_value.columns()];
            project_memory(run, &layer.cross_attention, work.x, work.rounded, key_value)?;
            observer.memory(run, pass, index, key_value);
            keep_memory(run, key_value, pass.lengths, slots, &mut caches.cross(index)?)?;
        }
        Ok(())
    }

    /// Logits of hidden states: `x` is `[rows, d_model]`, `out` `[rows, vocabulary]`; `scratch` is the buffer for
    /// quantized activations.
    pub(crate) fn logits(
        &self,
        run: &ExecContext<'_>,
        x: &[f32],
        scratch: &mut [f32],
        out: &mut [f32],
    ) -> Result<(), KernelError> {
        logits(run, &self.output, x, scratch, out)
    }

    /// Whether there is a pruning table for [`Decoder::best`].
    pub(crate) fn has_screen(&self) -> bool {
        self.output.pruning_table.is_some()
    }

    /// The best token of each row of `x`, `[rows, d_model]`, where the pruned argmax finds it without logits.
    pub(crate) fn best(
        &self,
        run: &ExecContext<'_>,
        x: &[f32],
        banned: &(dyn Fn(usize, u32) -> bool + Sync),
        out: &mut Best<'_>,
    ) -> Result<(), KernelError> {
        best(run, &self.output, x, banned, out)
    }
}
