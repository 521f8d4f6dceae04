//! The pure step: one token for each of any hypotheses, or some more of them where there are drafts.
//!
//! What each of them sees is copied from its row of the ancestry table first, so that hypotheses of
//! any length come in any order, and beams read the past that they share where it lies.

use super::error::SessionError;
use super::handles::HypothesisId;
use super::pass::PassMemory;
use super::pruning_policy::{Banned, StepOutput, fallback_logits};
use super::session::{Session, beyond};
use crate::error::KernelError;
use crate::model::blocks::Best;
use crate::model::layer_observer::{LayerObserver, NoObserver};
use crate::model::pass::{Past, TargetPass, Tokens};
use crate::search::UNDECIDED;
use simdformer_kernels::Parallelism;

/// One hypothesis of a step and the token it is continued with.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct StepRow {
    /// The hypothesis.
    pub row: HypothesisId,
    /// Its next input: an id below the target vocabulary.
    pub token: u32,
}

impl Session<'_> {
    /// `[rows, vocabulary]`, row-major: feeds one token to each of `rows` and returns their logits in the
    /// same order, with the output bias, before any softmax. They are the caller's to work in until the
    /// next call. No rows give no logits. Rows of one sentence read its keys fastest when they lie side
    /// by side. Examples are at [`Session::start`] and [`Session::fork`].
    ///
    /// # Errors
    /// An [unknown](SessionError::UnknownRow) or [repeated](SessionError::RowTwice) hypothesis, one that
    /// is at the [planned length](SessionError::BeyondPlan), an id outside the
    /// [vocabulary](SessionError::Token). Then nothing has changed.
    pub fn step(&mut self, rows: &[StepRow]) -> Result<&mut [f32], SessionError> {
        self.step_with(rows, &mut NoObserver)
    }

    pub(crate) fn step_with<T: LayerObserver>(
        &mut self,
        rows: &[StepRow],
        tap: &mut T,
    ) -> Result<&mut [f32], SessionError> {
        self.plan.check_decodes()?;
        beyond("sentences * beams", self.plan.rows, rows.len())?;
        for row in rows {
            self.check_row(row.row)?;
        }
        self.step_slots(rows.len(), |i| (rows[i].row.slot(), rows[i].token), tap)
    }

    /// [`Session::step`] of `count` row slots, `row(i)` the `i`-th with its token.
    pub(crate) fn step_slots<T: LayerObserver>(
        &mut self,
        count: usize,
        row: impl Fn(usize) -> (u32, u32),
        tap: &mut T,
    ) -> Result<&mut [f32], SessionError> {
        Ok(self.step_for(count, row, None, tap)?.logits)
    }

    /// As [`Session::step_slots`]. With `banned`, rows may get their best token instead of logits.
    pub(super) fn step_for<T: LayerObserver>(
        &mut self,
        count: usize,
        row: impl Fn(usize) -> (u32, u32),
        banned: Option<Banned<'_>>,
        tap: &mut T,
    ) -> Result<StepOutput<'_>, SessionError> {
        self.plan.check_decodes()?;
        self.check_step(count, &row)?;
        self.feed(count, (0..count).map(row), banned, tap)
    }

    /// Feeds `count` tokens, each with its row slot; those of one row follow each other. All has been
    /// checked.
    pub(super) fn feed<T: LayerObserver>(
        &mut self,
        count: usize,
        fed: impl Iterator<Item = (u32, u32)>,
        banned: Option<Banned<'_>>,
        tap: &mut T,
    ) -> Result<StepOutput<'_>, SessionError> {
        self.feed_then(count, fed, banned, tap, |_, _| ())
    }

    /// As [`Session::feed`], and `then` with the logits, while the threads are there.
    pub(super) fn feed_then<T: LayerObserver>(
        &mut self,
        count: usize,
        fed: impl Iterator<Item = (u32, u32)>,
        banned: Option<Banned<'_>>,
        tap: &mut T,
        then: impl FnOnce(Parallelism<'_>, &mut [f32]) + Send,
    ) -> Result<StepOutput<'_>, SessionError> {
        if count == 0 {
            return Ok(StepOutput { best: &mut [], logits: &mut [] });
        }
        let (model, plan) = (&*self.model, &self.plan);
        let (vocabulary, stride) = (model.config().target_vocab, plan.limits.target_tokens);
        let PassMemory {
            position_table,
            relative,
            mut work,
            mut caches,
            logits,
            best,
            tokens,
            positions,
            hypotheses,
            slots,
            sentences,
            step_lens,
            step_ancestry,
            mut pasts,
            source_lens,
        } = PassMemory::cut(plan, &mut self.buffer, count)?;
        for (i, (row, token)) in fed.enumerate() {
            let (row, len) = (row as usize, pasts.len(row as usize));
            tokens[i] = token;
            positions[i] = len as u32;
            hypotheses[i] = row as u32;
            slots[i] = pasts.extend(row) as u32;
            sentences[i] = (row / plan.limits.beams) as u32;
            step_lens[i] = len as u32 + 1;
            step_ancestry[i * stride..][..len + 1].copy_from_slice(pasts.past(row));
        }
        // Until the keys are there, the pasts are what they were.
        for &row in &*hypotheses {
            pasts.shrink(row as usize, 1);
        }
        let pass = TargetPass {
            tokens: Tokens { ids: tokens, positions, position_table },
            hypotheses,
            slots,
            sentences,
            source_lens,
            past: Past::SlotTable { lens: step_lens, ancestry: step_ancestry, stride },
            relative,
        };
        let logits = &mut logits[..count * vocabulary];
        let decoder = model.decoder().ok_or(SessionError::NoDecoder)?;
        let tokens = &mut best.tokens[..count];
        let mut best = Best { tokens, values: &mut best.values[..count], scratch: best.scratch };
        let banned = self.screening.of(decoder.has_screen(), banned);
        self.threads.run(|parallelism| {
            let run = model.run(parallelism);
            decoder.run(&run, &pass, &mut caches, &mut work, tap)?;
            match banned {
                Some(banned) => {
                    decoder.best(&run, work.x, banned, &mut best)?;
                    let undecided = fallback_logits(decoder, &run, best.tokens, &mut work, logits)?;
                    self.screening.record(undecided, count);
                }
                None => {
                    best.tokens.fill(UNDECIDED);
                    decoder.logits(&run, work.x, work.rounded, logits)?;
                }
            }
            tap.logits(&run, pass.rows(), logits)?;
            then(parallelism, logits);
            Ok::<_, KernelError>(())
        })?;
        for &row in pass.hypotheses {
            pasts.grow(row as usize, 1);
        }
        Ok(StepOutput { best: best.tokens, logits })
    }

    pub(super) fn check_step(
        &self,
        count: usize,
        step: &impl Fn(usize) -> (u32, u32),
    ) -> Result<(), SessionError> {
        let vocabulary = self.model.config().target_vocab;
        beyond("sentences * beams", self.plan.rows, count)?;
        let pasts = self.read_pasts();
        for index in 0..count {
            let (found, token) = step(index);
            if !pasts.lives(found as usize) {
                return Err(SessionError::UnknownRow { found });
            }
            let len = pasts.len(found as usize);
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
