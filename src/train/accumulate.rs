//! The passes of a trainer, which compute the gradients or only the losses of a batch, in as many passes as the plan
//! needs.

use super::dropout::StepDropout;
use super::faults::no_decoder;
use super::loss_step::{Outcome, Totals};
use super::memory_plan::StateBuffers;
use super::packed_batch::{self, Example, group_len};
use super::params;
use super::pass_context::Pass;
use super::trainer::{EncoderLoss, Trainer};
use crate::error::Error;
use crate::model::Model;
use crate::network::visitor::Input;
use core::mem;
use simdformer_kernels::train::{Smoothing, WriteMode};

impl Trainer<'_> {
    /// The losses of `pairs`, without a gradient.
    ///
    /// # Errors
    /// A sentence cannot be [used for training](Error::InvalidInput), or the model has no decoder.
    pub fn evaluate(
        &mut self,
        pairs: &[Example<'_>],
        smoothing: Smoothing,
    ) -> Result<Totals, Error> {
        self.check_whole()?;
        self.check(pairs)?;
        let mut totals = Totals::default();
        let mut rest = pairs;
        while !rest.is_empty() {
            let (now, later) = rest.split_at(self.pass_len(rest));
            self.batch.lay_out(self.model.config(), now);
            let Self { model, plan, batch, losses, work, state, threads, .. } = self;
            let values = plan.state.values.slice_of(state.floats());
            let memory = work.floats_mut();
            let totals = &mut totals;
            threads.with_parallelism(|parallelism| {
                let run = model.exec_context(parallelism);
                let write = WriteMode::Store;
                let pass = Pass { run, plan, batch, pairs: now, values, write, step_dropout: None };
                pass.evaluate(model, smoothing, memory, losses, totals)
            })?;
            rest = later;
        }
        Ok(totals)
    }

    /// Adds the gradients of the losses of `pairs`, each divided by `tokens`. `tokens` is the number of target tokens
    /// of everything that will be accumulated before the next update, so that the result is the gradient of the mean.
    /// Returns the sums since the last update.
    ///
    /// # Errors
    /// As [`Trainer::evaluate`], and nothing is added; `tokens` is zero.
    pub fn accumulate(
        &mut self,
        pairs: &[Example<'_>],
        smoothing: Smoothing,
        tokens: u64,
    ) -> Result<Totals, Error> {
        self.check(pairs)?;
        if self.model.decoder().is_none() {
            return Err(no_decoder());
        }
        if tokens == 0 {
            return Err(Error::invalid_option("tokens", "at least 1", "0"));
        }
        let scale = (1.0 / tokens as f64) as f32;
        self.passes(pairs, |pass, both, memory, outcome| {
            pass.learn(both, (smoothing, scale), memory, outcome)
        })
    }

    /// As [`Trainer::accumulate`], for a model without a decoder, with a loss that the caller computes. `loss` reads
    /// the encoder output of some concatenated sentences, `[tokens, d_model]`, and the indices of these sentences. It
    /// writes the gradient of the output, of the same shape, and returns the loss.
    ///
    /// If `loss` panics, everything that was accumulated since the last update is discarded, so that a part of a pass
    /// is never used as a gradient.
    ///
    /// # Errors
    /// As [`Trainer::evaluate`]; the model has a decoder.
    pub fn accumulate_with(
        &mut self,
        sources: &[Example<'_>],
        loss: &mut EncoderLoss<'_>,
    ) -> Result<Totals, Error> {
        self.check(sources)?;
        if self.model.decoder().is_some() {
            let expected =
                "one without a decoder; one with a decoder learns from the loss of its targets";
            return Err(Error::invalid_input("the model", expected, "a decoder"));
        }
        let mut first = 0;
        self.passes(sources, |pass, both, memory, outcome| {
            let sentences = first..first + pass.batch.source.lengths.len();
            first = sentences.end;
            let mut loss = |hidden: &[f32], d: &mut [f32]| loss(sentences.clone(), hidden, d);
            pass.learn_encoder(both, &mut loss, memory, outcome)
        })
    }

    /// Accumulates the gradients of all sentences, in as many passes as the plan needs.
    fn passes(
        &mut self,
        pairs: &[Example<'_>],
        mut learn: impl FnMut(
            &Pass<'_>,
            (&Model, &params::Network),
            &mut [f32],
            &mut Outcome<'_>,
        ) -> Result<(), Error>
        + Send,
    ) -> Result<Totals, Error> {
        self.check_whole()?;
        let mut rest = pairs;
        while !rest.is_empty() {
            let (now, later) = rest.split_at(self.pass_len(rest));
            self.batch.lay_out(self.model.config(), now);
            // The gradient is invalid until the pass is complete: if a callback or a thread of the caller panics, the
            // buffers hold a part of its sums in addition to those of earlier passes.
            let before = mem::take(&mut self.passes);
            let first = before == 0;
            if first {
                self.clear_lookups()?;
                self.accumulated = Totals::default();
            }
            let Self {
                model,
                network,
                plan,
                batch,
                losses,
                work,
                state,
                order,
                threads,
                dropout,
                steps,
                ..
            } = self;
            let StateBuffers { values, gradients, lookups, .. } =
                plan.state.split(state.floats_mut())?;
            let memory = work.floats_mut();
            let totals = &mut self.accumulated;
            let learn = &mut learn;
            let step_dropout = Some(StepDropout { rates: *dropout, step: *steps });
            threads.with_parallelism(|parallelism| {
                let run = model.exec_context(parallelism);
                let write = if first { WriteMode::Store } else { WriteMode::Add };
                let pass = Pass { run, plan, batch, pairs: now, values, write, step_dropout };
                let mut outcome = Outcome { gradients, lookups, losses, order, totals };
                learn(&pass, (model, network), memory, &mut outcome)
            })?;
            self.passes = before + 1;
            rest = later;
        }
        Ok(self.accumulated)
    }

    fn check(&self, pairs: &[Example<'_>]) -> Result<(), Error> {
        packed_batch::check(self.model.config(), &self.plan.limits, pairs)
    }

    /// The number of leading sentences for one pass: as many whole groups as the plan allows.
    fn pass_len(&self, pairs: &[Example<'_>]) -> usize {
        let limits = &self.plan.limits;
        let (mut len, mut source, mut target) = (0, 0, 0);
        while len < pairs.len() {
            let group = &pairs[len..len + group_len(&pairs[len..])];
            source += group.iter().map(Example::source_len).sum::<usize>();
            target += group.iter().map(|pair| pair.target.len()).sum::<usize>();
            let fits = source <= limits.source_tokens
                && target <= limits.target_tokens
                && len + group.len() <= limits.sentences;
            // One group always fits.
            if !fits && len > 0 {
                break;
            }
            len += group.len();
        }
        len
    }

    /// Clears the gradients to which lookups add. All other gradients are stored by their first write.
    pub(super) fn clear_lookups(&mut self) -> Result<(), Error> {
        let Self { network, plan, state, work, .. } = self;
        let StateBuffers { gradients, lookups, .. } = plan.state.split(state.floats_mut())?;
        lookups.fill(0.0);
        let ties = self.model.config().ties;
        let encoder = &network.encoder;
        let decoder = network.decoder.as_ref();
        let tied = ties.target_output && decoder.is_some();
        if let Input::Table(table) = &encoder.input
            && !(tied && ties.source_target)
        {
            gradients[table.range.clone()].fill(0.0);
        }
        if let Some(decoder) = decoder
            && !tied
        {
            gradients[decoder.table.range.clone()].fill(0.0);
        }
        let positions = [
            encoder.embedding.positions.as_ref(),
            encoder.token_types.as_ref(),
            decoder.and_then(|decoder| decoder.embedding.positions.as_ref()),
        ];
        for table in positions.into_iter().flatten() {
            gradients[table.range.clone()].fill(0.0);
        }
        for stack in [Some(&plan.encoder), plan.decoder.as_ref()].into_iter().flatten() {
            work.floats_mut()[stack.d_relative.clone()].fill(0.0);
        }
        Ok(())
    }
}
