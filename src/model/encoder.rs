//! The encoder stack over the concatenated tokens of all sentences: there are no padding rows.

use super::blocks::{ExecContext, convolve, embed, feed_forward, final_norm, self_attention};
use super::forward::{ForwardMode, LayerObserver};
use super::pass_input::{SourcePass, Workspace};
use super::session_forward::{Inference, PassContext, StackPass};
use super::weights::{Bottom, Encoder};
use crate::config::Side;
use crate::error::Error;

impl Encoder {
    /// Runs all layers over the tokens of `pass` and writes the encoder output, `[tokens, d_model]`, to `work.x`.
    pub(crate) fn run_inference<T: LayerObserver>(
        &self,
        context: PassContext<'_>,
        pass: &SourcePass<'_>,
        work: &mut Workspace<'_>,
        observer: &mut T,
    ) -> Result<(), Error> {
        let table = match &self.input {
            Bottom::Table(table) => Some(table),
            Bottom::ConvFrontend(_) => None,
        };
        let stack = StackPass::Encoder(*pass);
        self.forward(context.0, &mut Inference::new(context, stack, table, work, observer))
    }

    /// The left half of figure 1, for a session or a trainer.
    pub(crate) fn forward<M: ForwardMode>(
        &self,
        run: &ExecContext<'_>,
        mode: &mut M,
    ) -> Result<(), Error> {
        match &self.input {
            Bottom::Table(table) => embed(run, Side::Encoder, table, &self.embedding, mode)?,
            Bottom::ConvFrontend(layers) => convolve(run, layers, &self.embedding, mode)?,
        }
        for index in 0..self.layers.len() {
            mode.layer(index, |mode| self.layer(run, index, mode))?;
        }
        final_norm(self.final_norm.as_ref(), mode)
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
        feed_forward(run, &layer.feed_forward, index, mode)
    }
}
