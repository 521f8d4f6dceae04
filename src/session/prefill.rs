//! Many tokens of one hypothesis at once: prompts, and targets that are known in advance.
//!
//! They follow each other in one slot, and attention reads their past there without a table of
//! ancestors; a hypothesis with a past in another slot can only be stepped.

use super::{Row, Session, beyond, check_tokens};
use crate::arena::{cut, words, words_mut};
use crate::cache::Caches;
use crate::decoder::{self, Pass, Past};
use crate::error::SessionError;
use crate::layers::Run;
use crate::trace::{NoTap, Tap};

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
        let config = model.config();
        let (d, count, stride) = (config.d_model, chunk.len(), plan.limits.target_tokens);
        let [
            position_table,
            x,
            h,
            context,
            qkv,
            hidden,
            logits,
            own,
            cross,
            tokens,
            positions,
            slots,
            sentences,
            row_len,
            row_ancestry,
            source_lens,
        ] = cut(
            &mut self.buffer,
            [
                &plan.target_positions,
                &plan.x,
                &plan.h,
                &plan.context,
                &plan.qkv,
                &plan.hidden,
                &plan.logits,
                &plan.own_cache,
                &plan.cross_cache,
                &plan.pass_tokens,
                &plan.pass_positions,
                &plan.pass_slots,
                &plan.pass_sentences,
                &plan.row_len,
                &plan.row_ancestry,
                &plan.sentence_len,
            ],
        )?;
        let (tokens, positions) = (words_mut(tokens), words_mut(positions));
        let (slots, sentences) = (words_mut(slots), words_mut(sentences));
        tokens[..count].copy_from_slice(chunk);
        for (i, position) in positions[..count].iter_mut().enumerate() {
            *position = (len + i) as u32;
        }
        slots[..count].fill(slot as u32);
        sentences[..count].fill((slot / plan.limits.beams) as u32);
        let past = &mut words_mut(row_ancestry)[slot * stride + len..][..count];
        past.fill(slot as u32);
        let pass = Pass {
            position_table,
            tokens: &tokens[..count],
            positions: &positions[..count],
            slots: &slots[..count],
            sentences: &sentences[..count],
            source_lens: words(source_lens),
            past: Past::Slot { slot, len: len + count },
        };
        let mut caches = Caches { shape: plan.caches, own, cross };
        let mut work = decoder::Workspace {
            x: &mut x[..count * d],
            h: &mut h[..count * d],
            context: &mut context[..count * d],
            qkv: &mut qkv[..count * 3 * d],
            hidden,
        };
        let decoder = model.decoder();
        self.threads.run(|parallelism| {
            decoder.run(&Run { model, parallelism }, &pass, &mut caches, &mut work, tap)
        })?;
        words_mut(row_len)[slot] += count as u32;
        if let Some(each) = each {
            let vocabulary = config.target_vocab;
            let mut position = len;
            for x in work.x.chunks(plan.rows * d) {
                let logits = &mut logits[..x.len() / d * vocabulary];
                self.threads
                    .run(|parallelism| decoder.logits(&Run { model, parallelism }, x, logits))?;
                if let Some(mut watch) = tap.watch() {
                    watch.logits(
                        model.isa(),
                        &pass.skip(position - len).at(),
                        logits,
                        vocabulary,
                    )?;
                }
                for logits in logits.chunks(vocabulary) {
                    each(position, logits);
                    position += 1;
                }
            }
        }
        Ok(())
    }
}
