//! Prefill: feeds many tokens to one hypothesis in one pass, for prompts, drafts and known targets.
//!
//! If one KV slot can hold the new tokens and all earlier ones, attention reads the keys from that slot without a slot
//! table. Otherwise each token gets a cell as in a step, and all tokens read the same row of the slot table. Both
//! cases give the same bits.

use super::memory_plan::SessionBuffers;
use super::session::{Session, check_limit, check_tokens};
use super::step::{Keys, Output};
use crate::error::Error;
use crate::kv::HypothesisId;
use crate::model::forward::LayerObserver;
use crate::model::pass_input::Rows;
use simdformer_kernels::Parallelism;
use std::sync::{Mutex, PoisonError};

/// The function of [`Session::prefill`].
type OnLogits<'f> = &'f mut dyn FnMut(usize, &[f32]);

impl Session<'_> {
    /// Feeds `tokens` to `hypothesis` after its earlier tokens. Calls `each(position, logits)` for each token that was fed,
    /// in order, with the logits after it, `[vocabulary]`; with `None`, no logits are computed. The position counts from 0,
    /// from the first token of the hypothesis. The bits are those of single steps.
    ///
    /// Any hypothesis can be extended, also a forked one. A prefill is fastest if no other hypothesis shares the keys,
    /// or if `hypothesis` was forked from a hypothesis that was not fed since.
    ///
    /// # Errors
    /// An [unknown hypothesis](Error::InvalidHandle), more tokens than [planned](Error::BeyondLimit), an id
    /// outside the [vocabulary](Error::Token). An error changes nothing.
    ///
    /// ```
    /// use simdformer::{Limits, Model, SourceId, Session};
    ///
    /// let model = Model::open("models/fr-en")?;
    /// let mut session = Session::new(&model, Limits { beams: 2, ..Limits::new(1, 16, 16) })?;
    /// let mut sentence = [SourceId::default()];
    /// session.encode(&[&[6, 11, 0]], &mut sentence)?;
    /// let hypothesis = session.start(sentence[0])?;
    /// // A prompt, without logits.
    /// session.prefill(hypothesis, &[2317, 554], None)?;
    /// // A draft of three tokens, checked in one pass and discarded.
    /// let draft = session.fork(hypothesis)?;
    /// let mut best = Vec::new();
    /// let mut each = |position: usize, logits: &[f32]| {
    ///     let largest = logits.iter().copied().fold(f32::NEG_INFINITY, f32::max);
    ///     best.push((position, logits.iter().position(|&logit| logit == largest)));
    /// };
    /// session.prefill(draft, &[9, 14, 32], Some(&mut each))?;
    /// session.release(draft)?;
    /// assert_eq!(best.iter().map(|&(position, _)| position).collect::<Vec<_>>(), [2, 3, 4]);
    /// assert_eq!(session.hypothesis_len(hypothesis)?, 2);
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    pub fn prefill(
        &mut self,
        hypothesis: HypothesisId,
        tokens: &[u32],
        each: Option<OnLogits<'_>>,
    ) -> Result<(), Error> {
        self.plan.check_decodes()?;
        let slot = self.check_hypothesis(hypothesis)?;
        self.prefill_slot(slot, tokens, each)
    }

    /// [`Session::prefill`] of the active hypothesis in slot `hypothesis`.
    pub(crate) fn prefill_slot(
        &mut self,
        hypothesis: usize,
        tokens: &[u32],
        mut each: Option<OnLogits<'_>>,
    ) -> Result<(), Error> {
        let kv_slots = self.kv_slots();
        let len = kv_slots.len(hypothesis);
        check_limit("target_tokens", kv_slots.capacity, len.saturating_add(tokens.len()))?;
        check_tokens(tokens, self.model.config().target_vocab)?;
        let keys = Keys::OneHypothesis(kv_slots.contiguous_slot(hypothesis, tokens.len()));
        for chunk in tokens.chunks(self.plan.pass) {
            let fed = chunk.iter().map(|&token| (hypothesis as u32, token));
            if let Err(error) = self.forward(fed, keys, Output::Hidden).map(|_| ()) {
                // Only a cancellation: everything else was checked above.
                self.rewind_slot(hypothesis as u32, len)?;
                return Err(error);
            }
            if let Some(each) = &mut each {
                self.logits_of_pass(chunk.len(), each)?;
            }
        }
        Ok(())
    }

    /// Computes the logits of the last pass, of `count` tokens, and calls `each` with those of each token.
    fn logits_of_pass(&mut self, count: usize, each: &mut OnLogits<'_>) -> Result<(), Error> {
        let Self { model, plan, buffer, threads, probe, .. } = self;
        let (d, vocabulary) = (plan.d_model, plan.search.vocabulary);
        let decoder = model.decoder().ok_or(Error::NO_DECODER)?;
        let SessionBuffers { x, rounded, logits, hypotheses, sentences, positions, .. } =
            plan.buffers.split(buffer.floats_mut())?;
        let rows = Rows::Target { hypotheses, sentences, positions };
        let mut first = 0;
        for x in x[..count * d].chunks(plan.fed * d) {
            let tokens = first..first + x.len() / d;
            let logits = &mut logits[..tokens.len() * vocabulary];
            threads.with_parallelism(|parallelism| {
                decoder.logits(&model.exec_context(parallelism), x, rounded, logits)
            })?;
            if let Some(probe) = probe.as_mut().map(Mutex::get_mut) {
                let observer = probe.unwrap_or_else(PoisonError::into_inner);
                let run = model.exec_context(Parallelism::Serial);
                observer.logits(&run, rows.select_tokens(tokens.clone()), logits)?;
            }
            for (token, logits) in tokens.clone().zip(logits.chunks(vocabulary)) {
                each(positions[token] as usize, logits);
            }
            first = tokens.end;
        }
        Ok(())
    }
}
