//! One decoder step: feeds one token to each of some hypotheses, or also the tokens of a draft.
//!
//! The slot table of each token is first copied from the row of its hypothesis. Hypotheses of different lengths can
//! therefore be in any order, and beams read shared keys without copies.

use super::error::SessionError;
use super::handles::HypothesisId;
use super::pass::PassMemory;
use super::pruning_policy::{Banned, StepOutput, fallback_logits};
use super::session::{Session, check_limit};
use crate::model::blocks::Best;
use crate::model::layer_observer::{LayerObserver, NoObserver};
use crate::model::pass::{Past, TargetPass, Tokens};
use crate::search::UNDECIDED;
use simdformer_kernels::Error as KernelError;
use simdformer_kernels::Parallelism;

/// One hypothesis of a step and its next input token.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct StepRow {
    /// The hypothesis.
    pub row: HypothesisId,
    /// Its next input: an id below the target vocabulary.
    pub token: u32,
}

impl Session<'_> {
    /// `[rows, vocabulary]`, row-major: feeds one token to each of `rows` and returns their logits in the same order,
    /// including the output bias, before any softmax. The caller may modify them until the next call. An empty `rows`
    /// returns no logits. Keys of a source are read fastest if the rows of one sentence are adjacent. Examples are at
    /// [`Session::start`] and [`Session::fork`].
    ///
    /// # Errors
    /// An [unknown](SessionError::UnknownRow) or [repeated](SessionError::RowTwice) hypothesis, one that is at the
    /// [planned length](SessionError::BeyondPlan), an id outside the [vocabulary](SessionError::Token). An error
    /// changes nothing.
    pub fn step(&mut self, rows: &[StepRow]) -> Result<&mut [f32], SessionError> {
        self.step_with(rows, &mut NoObserver)
    }

    pub(crate) fn step_with<T: LayerObserver>(
        &mut self,
        rows: &[StepRow],
        observer: &mut T,
    ) -> Result<&mut [f32], SessionError> {
        self.plan.check_decodes()?;
        check_limit("sentences * beams", self.plan.rows, rows.len())?;
        for row in rows {
            self.check_row(row.row)?;
        }
        self.step_slots(rows.len(), |i| (rows[i].row.slot(), rows[i].token), observer)
    }

    /// [`Session::step`] of `count` row slots; `row(i)` is the `i`-th slot and its token.
    pub(crate) fn step_slots<T: LayerObserver>(
        &mut self,
        count: usize,
        row: impl Fn(usize) -> (u32, u32),
        observer: &mut T,
    ) -> Result<&mut [f32], SessionError> {
        Ok(self.step_for(count, row, None, observer)?.logits)
    }

    /// As [`Session::step_slots`]. With `banned`, rows may get their best token instead of logits.
    pub(super) fn step_for<T: LayerObserver>(
        &mut self,
        count: usize,
        row: impl Fn(usize) -> (u32, u32),
        banned: Option<Banned<'_>>,
        observer: &mut T,
    ) -> Result<StepOutput<'_>, SessionError> {
        self.plan.check_decodes()?;
        self.check_step(count, &row)?;
        self.feed(count, (0..count).map(row), banned, observer)
    }

    /// Feeds `count` tokens, each with its row slot; the tokens of one row are adjacent. The caller has checked all of
    /// them.
    pub(super) fn feed<T: LayerObserver>(
        &mut self,
        count: usize,
        fed: impl Iterator<Item = (u32, u32)>,
        banned: Option<Banned<'_>>,
        observer: &mut T,
    ) -> Result<StepOutput<'_>, SessionError> {
        self.feed_then(count, fed, banned, observer, |_, _| ())
    }

    /// As [`Session::feed`]; then calls `then` with the logits inside the same thread scope.
    pub(super) fn feed_then<T: LayerObserver>(
        &mut self,
        count: usize,
        fed: impl Iterator<Item = (u32, u32)>,
        banned: Option<Banned<'_>>,
        observer: &mut T,
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
            mut kv_slots,
            source_lens,
        } = PassMemory::cut(plan, &mut self.buffer, count)?;
        for (i, (row, token)) in fed.enumerate() {
            let (row, len) = (row as usize, kv_slots.len(row as usize));
            tokens[i] = token;
            positions[i] = len as u32;
            hypotheses[i] = row as u32;
            slots[i] = kv_slots.extend(row) as u32;
            sentences[i] = (row / plan.limits.beams) as u32;
            step_lens[i] = len as u32 + 1;
            step_ancestry[i * stride..][..len + 1].copy_from_slice(kv_slots.slots_of(row));
        }
        // The lengths count these tokens only after the pass has written their keys and values.
        for &row in &*hypotheses {
            kv_slots.shrink(row as usize, 1);
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
        let banned = self.pruning_policy.select(decoder.has_screen(), banned);
        self.threads.run(|parallelism| {
            let run = model.run(parallelism);
            decoder.run(&run, &pass, &mut caches, &mut work, observer)?;
            match banned {
                Some(banned) => {
                    decoder.best(&run, work.x, banned, &mut best)?;
                    let undecided = fallback_logits(decoder, &run, best.tokens, &mut work, logits)?;
                    self.pruning_policy.record(undecided, count);
                }
                None => {
                    best.tokens.fill(UNDECIDED);
                    decoder.logits(&run, work.x, work.rounded, logits)?;
                }
            }
            observer.logits(&run, pass.rows(), logits)?;
            then(parallelism, logits);
            Ok::<_, KernelError>(())
        })?;
        for &row in pass.hypotheses {
            kv_slots.grow(row as usize, 1);
        }
        Ok(StepOutput { best: best.tokens, logits })
    }

    pub(super) fn check_step(
        &self,
        count: usize,
        step: &impl Fn(usize) -> (u32, u32),
    ) -> Result<(), SessionError> {
        let vocabulary = self.model.config().target_vocab;
        check_limit("sentences * beams", self.plan.rows, count)?;
        let kv_slots = self.kv_slots();
        for index in 0..count {
            let (found, token) = step(index);
            if !kv_slots.is_active(found as usize) {
                return Err(SessionError::UnknownRow { found });
            }
            let len = kv_slots.len(found as usize);
            check_limit("target_tokens", self.plan.limits.target_tokens, len + 1)?;
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
