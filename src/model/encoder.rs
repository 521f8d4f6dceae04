//! The encoder stack over the tokens of all sentences laid end to end: no row is padding.

use super::blocks::{Run, convolve, embed, feed_forward, self_attention};
use super::pass::{SourcePass, Workspace};
use super::tap::Tap;
use super::weights::{Bottom, Encoder};
use crate::config::Side;
use crate::error::KernelError;

impl Encoder {
    /// The left half of figure 1: runs all layers over the tokens of `pass` and leaves the memory,
    /// `[tokens, d_model]`, in `work.x`.
    pub(crate) fn run<T: Tap>(
        &self,
        run: &Run<'_>,
        pass: &SourcePass<'_>,
        work: &mut Workspace<'_>,
        tap: &mut T,
    ) -> Result<(), KernelError> {
        let table = match &self.input {
            Bottom::Table(table) => {
                embed(run, Side::Encoder, table, &self.embedding, &pass.tokens, work.x)?;
                Some(table)
            }
            Bottom::Stem(stem) => {
                convolve(run, stem, &self.embedding, pass, work)?;
                None
            }
        };
        tap.embedding(run, pass.rows(), table, &pass.tokens, work)?;
        for (index, layer) in self.layers.iter().enumerate() {
            let at = pass.at(index);
            self_attention(run, &layer.self_attention, pass, index, work)?;
            tap.self_attention(run, pass, index, work)?;

            feed_forward(run, &layer.feed_forward, work, |first, input, hidden| {
                tap.hidden(run, at, first, input, hidden);
            })?;
            tap.feed_forward(run, at, work);
        }
        if let Some(norm) = &self.final_norm {
            run.norm_in_place(norm, work.x)?;
        }
        tap.stack(run, pass.rows(), work);
        Ok(())
    }
}
