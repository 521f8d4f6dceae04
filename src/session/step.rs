//! The pure step: one token for each of any hypotheses.
//!
//! What each of them sees is copied from its row of the ancestry table first, so that hypotheses of
//! any length come in any order, and beams read the past that they share where it lies.

use super::{Row, Session, beyond};
use crate::arena::{cut, words, words_mut};
use crate::cache::Caches;
use crate::decoder::{self, Pass, Past};
use crate::error::{KernelError, SessionError};
use crate::layers::Run;
use crate::trace::{NoTap, Tap};

/// One hypothesis of a step and the token it is continued with.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct StepRow {
    /// The hypothesis.
    pub row: Row,
    /// Its next input.
    pub token: u32,
}

impl Session<'_> {
    /// Feeds one token to each of `rows` and returns their logits, `[rows, vocabulary]`, in the same
    /// order. No rows give no logits. Rows of one sentence read its keys fastest when they lie side by
    /// side.
    ///
    /// # Errors
    /// An unknown or repeated hypothesis, one that is at the planned length, an id outside the
    /// vocabulary. Then nothing has changed.
    pub fn step(&mut self, rows: &[StepRow]) -> Result<&mut [f32], SessionError> {
        self.step_with(rows, &mut NoTap)
    }

    pub(crate) fn step_with<T: Tap>(
        &mut self,
        rows: &[StepRow],
        tap: &mut T,
    ) -> Result<&mut [f32], SessionError> {
        beyond("sentences * beams", self.plan.rows, rows.len())?;
        for row in rows {
            self.check_row(row.row)?;
        }
        self.step_slots(rows.len(), |i| (rows[i].row.slot(), rows[i].token), tap)
    }

    /// [`Session::step`] of `count` row slots, `row(i)` the `i`-th with its token.
    pub(crate) fn step_slots<T: Tap>(
        &mut self,
        count: usize,
        row: impl Fn(usize) -> (u32, u32),
        tap: &mut T,
    ) -> Result<&mut [f32], SessionError> {
        self.check_step(count, &row)?;
        if count == 0 {
            return Ok(&mut []);
        }
        let (model, plan) = (self.model, &self.plan);
        let config = model.config();
        let (d, stride) = (config.d_model, plan.limits.target_tokens);
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
            lens,
            step_ancestry,
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
                &plan.step_lens,
                &plan.step_ancestry,
                &plan.row_len,
                &plan.row_ancestry,
                &plan.sentence_len,
            ],
        )?;
        let (tokens, positions) = (words_mut(tokens), words_mut(positions));
        let (slots, sentences, lens) = (words_mut(slots), words_mut(sentences), words_mut(lens));
        let (step_ancestry, row_len) = (words_mut(step_ancestry), words_mut(row_len));
        let row_ancestry = words_mut(row_ancestry);
        for i in 0..count {
            let (slot, token) = row(i);
            let slot = slot as usize;
            let len = row_len[slot] as usize;
            tokens[i] = token;
            positions[i] = len as u32;
            slots[i] = slot as u32;
            sentences[i] = (slot / plan.limits.beams) as u32;
            lens[i] = len as u32 + 1;
            row_ancestry[slot * stride + len] = slot as u32;
            let past = &row_ancestry[slot * stride..][..len + 1];
            step_ancestry[i * stride..][..len + 1].copy_from_slice(past);
        }
        let pass = Pass {
            position_table,
            tokens: &tokens[..count],
            positions: &positions[..count],
            slots: &slots[..count],
            sentences: &sentences[..count],
            source_lens: words(source_lens),
            past: Past::Ancestry { lens: &lens[..count], ancestry: step_ancestry, stride },
        };
        let mut caches = Caches { shape: plan.caches, own, cross };
        let mut work = decoder::Workspace {
            x: &mut x[..count * d],
            h: &mut h[..count * d],
            context: &mut context[..count * d],
            qkv: &mut qkv[..count * 3 * d],
            hidden,
        };
        let logits = &mut logits[..count * config.target_vocab];
        let decoder = model.decoder();
        self.threads.run(|parallelism| {
            let run = Run { model, parallelism };
            decoder.run(&run, &pass, &mut caches, &mut work, tap)?;
            decoder.logits(&run, work.x, logits)?;
            if let Some(mut watch) = tap.watch() {
                watch.logits(model.isa(), &pass.at(), logits, config.target_vocab)?;
            }
            Ok::<(), KernelError>(())
        })?;
        for &slot in &slots[..count] {
            row_len[slot as usize] += 1;
        }
        Ok(logits)
    }

    fn check_step(
        &self,
        count: usize,
        step: &impl Fn(usize) -> (u32, u32),
    ) -> Result<(), SessionError> {
        let vocabulary = self.model.config().target_vocab;
        beyond("sentences * beams", self.plan.rows, count)?;
        for index in 0..count {
            let (found, token) = step(index);
            let slot = self.check_row_slot(found)?;
            let len = self.words(&self.plan.row_len)[slot] as usize;
            beyond("target_tokens", self.plan.limits.target_tokens, len + 1)?;
            if token as usize >= vocabulary {
                return Err(SessionError::Token { index, vocabulary, found: token });
            }
            if (0..index).any(|other| step(other).0 == found) {
                return Err(SessionError::RowTwice { found });
            }
        }
        Ok(())
    }
}
