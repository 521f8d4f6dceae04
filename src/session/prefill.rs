//! Prefill: feeds many tokens to one hypothesis in one pass, for prompts, drafts and known targets.
//!
//! If one KV slot can hold the new tokens and all earlier ones, attention reads the keys from that slot without a slot
//! table. Otherwise each token gets a cell as in a step, and all tokens read the same row of the slot table. Both
//! cases give the same bits.

use super::error::SessionError;
use super::handles::HypothesisId;
use super::pass::PassMemory;
use super::session::{Session, check_limit, check_tokens};
use crate::model::layer_observer::{LayerObserver, NoObserver};
use crate::model::pass::{Past, TargetPass, Tokens};
use simdformer_kernels::Parallelism;

/// Called for each token that was fed, in order: with its position and the logits after it, `[vocabulary]`. The
/// position counts from 0, from the first token of the hypothesis.
pub type OnLogits<'f> = &'f mut dyn FnMut(usize, &[f32]);

impl Session<'_> {
    /// Feeds `tokens` to `row` after its earlier tokens. Calls `each(position, logits)` with the logits after each
    /// token, `[vocabulary]`; with `None`, no logits are computed. The bits are those of single steps.
    ///
    /// Any hypothesis can be extended, also a forked one. A prefill is fastest if no other hypothesis shares the keys,
    /// or if `row` was forked from a hypothesis that was not fed since.
    ///
    /// # Errors
    /// An [unknown hypothesis](SessionError::UnknownRow), more tokens than [planned](SessionError::BeyondPlan), an id
    /// outside the [vocabulary](SessionError::Token). An error changes nothing.
    ///
    /// ```
    /// use simdformer::{Limits, Model, SourceId, Session};
    ///
    /// let model = Model::open("models/fr-en")?;
    /// let mut session = Session::new(&model, Limits { beams: 2, ..Limits::new(1, 16, 16) })?;
    /// let mut sentence = [SourceId::default()];
    /// session.encode(&[&[6, 11, 0]], &mut sentence)?;
    /// let row = session.start(sentence[0])?;
    /// // A prompt, without logits.
    /// session.prefill(row, &[2317, 554], None)?;
    /// // A draft of three tokens, checked in one pass and discarded.
    /// let draft = session.fork(row)?;
    /// let mut best = Vec::new();
    /// let mut each = |position: usize, logits: &[f32]| {
    ///     let largest = logits.iter().copied().fold(f32::NEG_INFINITY, f32::max);
    ///     best.push((position, logits.iter().position(|&logit| logit == largest)));
    /// };
    /// session.prefill(draft, &[9, 14, 32], Some(&mut each))?;
    /// session.release(draft)?;
    /// assert_eq!(best.iter().map(|&(position, _)| position).collect::<Vec<_>>(), [2, 3, 4]);
    /// assert_eq!(session.row_len(row)?, 2);
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    pub fn prefill(
        &mut self,
        row: HypothesisId,
        tokens: &[u32],
        each: Option<OnLogits<'_>>,
    ) -> Result<(), SessionError> {
        self.prefill_with(row, tokens, each, &mut NoObserver)
    }

    pub(crate) fn prefill_with<T: LayerObserver>(
        &mut self,
        row: HypothesisId,
        tokens: &[u32],
        each: Option<OnLogits<'_>>,
        observer: &mut T,
    ) -> Result<(), SessionError> {
        self.plan.check_decodes()?;
        let row = self.check_row(row)?;
        self.prefill_slot(row, tokens, each, observer)
    }

    /// [`Session::prefill`] of the active hypothesis in slot `row`.
    pub(crate) fn prefill_slot<T: LayerObserver>(
        &mut self,
        row: usize,
        tokens: &[u32],
        mut each: Option<OnLogits<'_>>,
        observer: &mut T,
    ) -> Result<(), SessionError> {
        let kv_slots = self.kv_slots();
        let len = kv_slots.len(row);
        check_limit("target_tokens", kv_slots.capacity, len.saturating_add(tokens.len()))?;
        check_tokens(tokens, self.model.config().target_vocab)?;
        let contiguous_slot = kv_slots.contiguous_slot(row, tokens.len());
        for chunk in tokens.chunks(self.plan.pass) {
            self.prefill_chunk(row, contiguous_slot, chunk, &mut each, observer)?;
        }
        Ok(())
    }

    /// Feeds the tokens of one pass, into `contiguous_slot` if there is one.
    fn prefill_chunk<T: LayerObserver>(
        &mut self,
        row: usize,
        contiguous_slot: Option<usize>,
        chunk: &[u32],
        each: &mut Option<OnLogits<'_>>,
        observer: &mut T,
    ) -> Result<(), SessionError> {
        let (model, plan) = (&*self.model, &self.plan);
        let (d, vocabulary) = (plan.d_model, model.config().target_vocab);
        let count = chunk.len();
        let PassMemory {
            position_table,
            relative,
            mut work,
            mut caches,
            logits,
            tokens,
            positions,
            hypotheses,
            slots,
            sentences,
            step_lens,
            step_ancestry,
            mut kv_slots,
            source_lens,
            ..
        } = PassMemory::cut(plan, &mut self.buffer, count)?;
        let len = kv_slots.len(row);
        tokens.copy_from_slice(chunk);
        for (i, (position, seen)) in positions.iter_mut().zip(&mut *step_lens).enumerate() {
            (*position, *seen) = ((len + i) as u32, (len + i) as u32 + 1);
        }
        hypotheses.fill(row as u32);
        sentences.fill((row / plan.limits.beams) as u32);
        let past = if let Some(slot) = contiguous_slot {
            slots.fill(slot as u32);
            kv_slots.extend_contiguous(row, slot, count);
            Past::Slot { slot, len: len + count }
        } else {
            slots.fill_with(|| kv_slots.extend(row) as u32);
            let ancestry = &mut step_ancestry[..len + count];
            ancestry.copy_from_slice(kv_slots.slots_of(row));
            Past::SlotTable { lens: step_lens, ancestry, stride: 0 }
        };
        // The length counts these tokens only after the pass has written their keys and values.
        kv_slots.shrink(row, count);
        let pass = TargetPass {
            tokens: Tokens { ids: tokens, positions, position_table },
            hypotheses,
            slots,
            sentences,
            source_lens,
            past,
            relative,
        };
        let decoder = model.decoder().ok_or(SessionError::NoDecoder)?;
        self.threads.run(|parallelism| {
            decoder.run(&model.run(parallelism), &pass, &mut caches, &mut work, observer)
        })?;
        kv_slots.grow(row, count);
        if let Some(each) = each {
            let mut position = len;
            for x in work.x.chunks(plan.fed * d) {
                let (first, rows) = (position - len, x.len() / d);
                let logits = &mut logits[..rows * vocabulary];
                let scratch = &mut *work.rounded;
                self.threads.run(|parallelism| {
                    decoder.logits(&model.run(parallelism), x, scratch, logits)
                })?;
                let rows = pass.rows().of(first..first + rows);
                observer.logits(&model.run(Parallelism::Serial), rows, logits)?;
                for logits in logits.chunks(vocabulary) {
                    each(position, logits);
                    position += 1;
                }
            }
        }
        Ok(())
    }
}
