//! Many tokens of one hypothesis at once: prompts, drafts, and targets that are known in advance.
//!
//! Where they and all that came before them find room in one slot, attention reads their past there
//! without a table of ancestors. Otherwise each token finds a cell as in a step, and all of them read
//! the same line of the table. The bits are the same.

use super::error::SessionError;
use super::handles::HypothesisId;
use super::pass::PassMemory;
use super::session::{Session, beyond, check_tokens};
use crate::model::layer_observer::{LayerObserver, NoObserver};
use crate::model::pass::{Past, TargetPass, Tokens};
use simdformer_kernels::Parallelism;

/// Called with the position of each token that was fed, in order, and the logits of the token after it,
/// `[vocabulary]`. Positions count all that the hypothesis has been fed, from 0.
pub type OnLogits<'f> = &'f mut dyn FnMut(usize, &[f32]);

impl Session<'_> {
    /// Feeds `tokens` to `row` at once, after whatever it has been fed before, and calls
    /// `each(position, logits)` with the logits after each of them, `[vocabulary]`; `each` of `None`
    /// leaves the logits uncomputed. The bits are those of feeding them one by one.
    ///
    /// Any hypothesis can be extended, a forked one too. It is fastest where nobody shares its past, or
    /// where it was forked from one that has not been fed since.
    ///
    /// # Errors
    /// An [unknown hypothesis](SessionError::UnknownRow), more tokens than
    /// [planned](SessionError::BeyondPlan), an id outside the [vocabulary](SessionError::Token). Then
    /// nothing has changed.
    ///
    /// ```
    /// use simdformer::{Limits, Model, SourceId, Session};
    ///
    /// let model = Model::open("models/fr-en")?;
    /// let mut session = Session::new(&model, Limits { beams: 2, ..Limits::new(1, 16, 16) })?;
    /// let mut sentence = [SourceId::default()];
    /// session.encode(&[&[6, 11, 0]], &mut sentence)?;
    /// let row = session.start(sentence[0])?;
    /// // A prompt: nobody asks for its logits.
    /// session.prefill(row, &[2317, 554], None)?;
    /// // A draft of three tokens, checked at once and thrown away.
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
        tap: &mut T,
    ) -> Result<(), SessionError> {
        self.plan.check_decodes()?;
        let row = self.check_row(row)?;
        self.prefill_slot(row, tokens, each, tap)
    }

    /// [`Session::prefill`] of the hypothesis in slot `row`, which is there.
    pub(crate) fn prefill_slot<T: LayerObserver>(
        &mut self,
        row: usize,
        tokens: &[u32],
        mut each: Option<OnLogits<'_>>,
        tap: &mut T,
    ) -> Result<(), SessionError> {
        let pasts = self.read_pasts();
        let len = pasts.len(row);
        beyond("target_tokens", pasts.capacity, len.saturating_add(tokens.len()))?;
        check_tokens(tokens, self.model.config().target_vocab)?;
        let line = pasts.line(row, tokens.len());
        for chunk in tokens.chunks(self.plan.pass) {
            self.prefill_chunk(row, line, chunk, &mut each, tap)?;
        }
        Ok(())
    }

    /// Feeds the tokens of one pass; into slot `line`, if there is one.
    fn prefill_chunk<T: LayerObserver>(
        &mut self,
        row: usize,
        line: Option<usize>,
        chunk: &[u32],
        each: &mut Option<OnLogits<'_>>,
        tap: &mut T,
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
            mut pasts,
            source_lens,
            ..
        } = PassMemory::cut(plan, &mut self.buffer, count)?;
        let len = pasts.len(row);
        tokens.copy_from_slice(chunk);
        for (i, (position, seen)) in positions.iter_mut().zip(&mut *step_lens).enumerate() {
            (*position, *seen) = ((len + i) as u32, (len + i) as u32 + 1);
        }
        hypotheses.fill(row as u32);
        sentences.fill((row / plan.limits.beams) as u32);
        let past = if let Some(slot) = line {
            slots.fill(slot as u32);
            pasts.extend_line(row, slot, count);
            Past::Slot { slot, len: len + count }
        } else {
            slots.fill_with(|| pasts.extend(row) as u32);
            let ancestry = &mut step_ancestry[..len + count];
            ancestry.copy_from_slice(pasts.past(row));
            Past::SlotTable { lens: step_lens, ancestry, stride: 0 }
        };
        // Until the keys are there, the past is what it was.
        pasts.shrink(row, count);
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
            decoder.run(&model.run(parallelism), &pass, &mut caches, &mut work, tap)
        })?;
        pasts.grow(row, count);
        if let Some(each) = each {
            let mut position = len;
            for x in work.x.chunks(plan.fed * d) {
                let (first, rows) = (position - len, x.len() / d);
                let logits = &mut logits[..rows * vocabulary];
                let room = &mut *work.rounded;
                self.threads
                    .run(|parallelism| decoder.logits(&model.run(parallelism), x, room, logits))?;
                let rows = pass.rows().of(first..first + rows);
                tap.logits(&model.run(Parallelism::Serial), rows, logits)?;
                for logits in logits.chunks(vocabulary) {
                    each(position, logits);
                    position += 1;
                }
            }
        }
        Ok(())
    }
}
