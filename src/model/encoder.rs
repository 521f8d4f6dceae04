//! The encoder stack over the concatenated tokens of all sentences: there are no padding rows.

use super::blocks::{ExecContext, convolve, embed, feed_forward, self_attention};
use super::layer_observer::LayerObserver;
use super::pass::{SourcePass, Workspace};
use super::weights::{Bottom, Encoder};
use crate::config::Side;
use simdformer_kernels::Error as KernelError;

/// Rows of whole sentences that go through a layer in one group, for each thread: enough that the time of
/// reading the weights is negligible, and few enough that intermediate tensors stay in an inner cache.
const GROUP_ROWS: usize = 256;

impl Encoder {
    /// The left half of figure 1: runs all layers over the tokens of `pass` and writes the encoder output,
    /// `[tokens, d_model]`, to `work.x`.
    pub(crate) fn run<T: LayerObserver>(
        &self,
        run: &ExecContext<'_>,
        pass: &SourcePass<'_>,
        work: &mut Workspace<'_>,
        observer: &mut T,
    ) -> Result<(), KernelError> {
        let table = match &self.input {
            Bottom::Table(table) => {
                embed(run, Side::Encoder, table, &self.embedding, &pass.tokens, work.x)?;
                Some(table)
            }
            Bottom::ConvFrontend(stem) => {
                convolve(run, stem, &self.embedding, pass, work)?;
                None
            }
        };
        observer.embedding(run, pass.rows(), table, &pass.tokens, work)?;
        for index in 0..self.layers.len() {
            if T::ENABLED {
                self.layer(run, pass, index, work, observer)?;
            } else {
                self.layer_in_groups(run, pass, index, work, observer)?;
            }
        }
        if let Some(norm) = &self.final_norm {
            run.norm_in_place(norm, work.x)?;
        }
        observer.stack(run, pass.rows(), work);
        Ok(())
    }

    /// One layer, for all sentences of `pass`.
    fn layer<T: LayerObserver>(
        &self,
        run: &ExecContext<'_>,
        pass: &SourcePass<'_>,
        index: usize,
        work: &mut Workspace<'_>,
        observer: &mut T,
    ) -> Result<(), KernelError> {
        let (layer, at) = (&self.layers[index], pass.at(index));
        self_attention(run, &layer.self_attention, pass, index, work)?;
        observer.self_attention(run, pass, (index, &layer.self_attention.output), work)?;

        feed_forward(run, &layer.feed_forward, work, |first, input, hidden| {
            observer.hidden(run, at, first, input, hidden);
        })?;
        observer.feed_forward(run, at, work);
        Ok(())
    }

    /// One layer, one group of sentences after the other, so that intermediate tensors stay in a cache. The bits of
    /// a row do not depend on other rows.
    fn layer_in_groups<T: LayerObserver>(
        &self,
        run: &ExecContext<'_>,
        pass: &SourcePass<'_>,
        index: usize,
        work: &mut Workspace<'_>,
        observer: &mut T,
    ) -> Result<(), KernelError> {
        let most = GROUP_ROWS.saturating_mul(run.parallelism.threads());
        let (d, inner) = (run.config.d_model, run.config.attention_dim(Side::Encoder));
        let mut x = &mut *work.x;
        let mut lengths = pass.lengths;
        while !lengths.is_empty() {
            let (mut rows, mut count) = (0, 0);
            for &len in lengths {
                if count > 0 && rows + len as usize > most {
                    break;
                }
                rows += len as usize;
                count += 1;
            }
            let (group, after) = x.split_at_mut(rows * d);
            let (own, others) = lengths.split_at(count);
            let pass = SourcePass { lengths: own, ..*pass };
            let work = &mut Workspace {
                x: group,
                h: &mut work.h[..rows * d],
                context: &mut work.context[..rows * inner],
                qkv: work.qkv,
                hidden: work.hidden,
                scratch: work.scratch,
                frames: work.frames,
                rounded: work.rounded,
            };
            self.layer(run, &pass, index, work, observer)?;
            (x, lengths) = (after, others);
        }
        Ok(())
    }
}
