//! Many tokens of one hypothesis at once: prompts, and targets that are known in advance.
//!
//! They follow each other in one slot, and attention reads their past there without a table of
//! ancestors; a hypothesis with a past in another slot can only be stepped.

use super::error::SessionError;
use super::pass::PassMemory;
use super::session::{Session, beyond, check_tokens};
use super::slots::Row;
use crate::model::pass::{Past, TargetPass, Tokens};
use crate::model::tap::{NoTap, Tap};
use simdformer_kernels::Parallelism;

/// Called with each position and its logits, `[vocabulary]`.
pub type EachLogits<'f> = &'f mut dyn FnMut(usize, &[f32]);

impl Session<'_> {
    /// Feeds `tokens` to `row` at once, and calls `each(position, logits)` with the logits after each
    /// of them; `each` of `None` leaves the logits uncomputed. The bits are those of feeding them one
    /// by one.
    ///
    /// # Errors
    /// An unknown hypothesis or one that has been forked, more tokens than planned, an id outside the
    /// vocabulary. Then nothing has changed.
    pub fn prefill(
        &mut self,
        row: Row,
        tokens: &[u32],
        each: Option<EachLogits<'_>>,
    ) -> Result<(), SessionError> {
        self.prefill_with(row, tokens, each, &mut NoTap)
    }

    pub(crate) fn prefill_with<T: Tap>(
        &mut self,
        row: Row,
        tokens: &[u32],
        mut each: Option<EachLogits<'_>>,
        tap: &mut T,
    ) -> Result<(), SessionError> {
        let slot = self.check_row(row)?;
        let stride = self.plan.limits.target_tokens;
        let len = self.words(&self.plan.row_len)[slot] as usize;
        beyond("target_tokens", stride, len.saturating_add(tokens.len()))?;
        check_tokens(tokens, self.model.config().target_vocab)?;
        let past = &self.words(&self.plan.row_ancestry)[slot * stride..][..len];
        if past.iter().any(|&other| other as usize != slot) {
            return Err(SessionError::ForkedRow { found: row.slot() });
        }
        for (index, chunk) in tokens.chunks(self.plan.pass).enumerate() {
            let at = len + index * self.plan.pass;
            self.prefill_chunk(slot, at, chunk, &mut each, tap)?;
        }
        Ok(())
    }

    fn prefill_chunk<T: Tap>(
        &mut self,
        slot: usize,
        len: usize,
        chunk: &[u32],
        each: &mut Option<EachLogits<'_>>,
        tap: &mut T,
    ) -> Result<(), SessionError> {
        let (model, plan) = (self.model, &self.plan);
        let (d, vocabulary) = (plan.d_model, model.config().target_vocab);
        let (count, stride) = (chunk.len(), plan.limits.target_tokens);
        let PassMemory {
            position_table,
            mut work,
            mut caches,
            logits,
            tokens,
            positions,
            slots,
            sentences,
            row_len,
            row_ancestry,
            source_lens,
            ..
        } = PassMemory::cut(plan, &mut self.buffer, count)?;
        tokens.copy_from_slice(chunk);
        for (i, position) in positions.iter_mut().enumerate() {
            *position = (len + i) as u32;
        }
        slots.fill(slot as u32);
        sentences.fill((slot / plan.limits.beams) as u32);
        row_ancestry[slot * stride + len..][..count].fill(slot as u32);
        let pass = TargetPass {
            tokens: Tokens { ids: tokens, positions, position_table },
            slots,
            sentences,
            source_lens,
            past: Past::Slot { slot, len: len + count },
        };
        let decoder = model.decoder();
        self.threads.run(|parallelism| {
            decoder.run(&model.run(parallelism), &pass, &mut caches, &mut work, tap)
        })?;
        row_len[slot] += count as u32;
        if let Some(each) = each {
            let mut position = len;
            for x in work.x.chunks(plan.rows * d) {
                let (first, rows) = (position - len, x.len() / d);
                let logits = &mut logits[..rows * vocabulary];
                self.threads
                    .run(|parallelism| decoder.logits(&model.run(parallelism), x, logits))?;
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
