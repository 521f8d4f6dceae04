//! Handles: which slots are taken, and by which sentences and hypotheses.
//!
//! Slots are reused, so a handle has a slot and a generation number (`generations.rs`). A handle that was released, or
//! that belongs to another session, is rejected, even if its slot is taken again. The decoding loop uses slots without
//! generation numbers. The KV slots of hypotheses are in `kv_slots.rs`.

use super::error::SessionError;
use super::generations::words_of;
use super::kv_slots::KvSlots;
use super::plan::Plan;
use super::session::Session;
use crate::memory::{cut, words_mut};

/// Handle of an encoded source in one session. The default is no sentence. A released handle, or a handle of another
/// session, never matches another sentence in the same slot.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub struct SourceId {
    slot: u32,
    /// Never 0, and unique among all sentences and hypotheses of the process.
    generation: u64,
}

impl SourceId {
    /// Number of the slot, as in [`crate::trace::View::sentence`].
    pub const fn slot(self) -> u32 {
        self.slot
    }
}

/// Handle of a hypothesis in one session. The default is no hypothesis. A released handle, or a handle of another
/// session, never matches another hypothesis in the same slot.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub struct HypothesisId {
    slot: u32,
    /// As in [`SourceId`].
    generation: u64,
}

impl HypothesisId {
    /// Number of the slot, as in [`crate::trace::View::row`].
    pub const fn slot(self) -> u32 {
        self.slot
    }
}

impl Session<'_> {
    /// Number of free sentence slots, of [`Limits::sentences`](crate::Limits::sentences).
    pub fn free_sentences(&self) -> usize {
        self.words(&self.plan.sentence_len).iter().filter(|&&len| len == 0).count()
    }

    /// Puts a sentence of `len` tokens into the free slot `slot`.
    pub(super) fn take_sentence(&mut self, slot: u32, len: usize) -> SourceId {
        let generation = self.generations.allocate();
        let (lens, generations) =
            (self.plan.sentence_len.clone(), self.plan.sentence_generation.clone());
        self.words_mut(&lens)[slot as usize] = len as u32;
        self.words_mut(&generations)[2 * slot as usize..][..2]
            .copy_from_slice(&words_of(generation));
        SourceId { slot, generation }
    }

    /// Starts an empty hypothesis about `sentence`.
    ///
    /// A sentence can have [`crate::Limits::beams`] hypotheses at a time, in any order of start, fork and release.
    ///
    /// # Errors
    /// An [unknown sentence](SessionError::UnknownSentence), or one that has as many hypotheses as
    /// [planned](SessionError::NoFreeRow).
    ///
    /// ```
    /// use simdformer::{Limits, Model, SourceId, Session, StepRow};
    ///
    /// let model = Model::open("models/fr-en")?;
    /// let mut session = Session::new(&model, Limits { beams: 2, ..Limits::new(1, 16, 16) })?;
    /// let mut sentence = [SourceId::default()];
    /// session.encode(&[&[6, 11, 0]], &mut sentence)?;
    /// let row = session.start(sentence[0])?;
    /// assert_eq!(session.row_len(row)?, 0);
    /// let start = model.config().tokens.decoder_start.expect("a start token");
    /// let logits = session.step(&[StepRow { row, token: start }])?;
    /// assert_eq!(logits.len(), model.config().target_vocab);
    /// session.release(row)?;
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    pub fn start(&mut self, sentence: SourceId) -> Result<HypothesisId, SessionError> {
        self.plan.check_decodes()?;
        let slot = self.start_slot(self.check_sentence(sentence)?)?;
        Ok(self.new_handle(slot))
    }

    /// [`Session::start`] for a taken sentence slot. Returns the row slot, without a generation number.
    pub(crate) fn start_slot(&mut self, sentence: u32) -> Result<u32, SessionError> {
        let beams = self.plan.limits.beams;
        let row = self.kv_slots_mut()?.start(sentence as usize * beams);
        Ok(row.ok_or(SessionError::NoFreeRow { sentence, beams })? as u32)
    }

    /// Starts a hypothesis with the tokens of `row`. Later tokens of the two are independent. Slot numbers are copied;
    /// keys and values are not.
    ///
    /// # Errors
    /// An [unknown hypothesis](SessionError::UnknownRow), or its sentence has as many hypotheses as
    /// [planned](SessionError::NoFreeRow).
    ///
    /// ```
    /// use simdformer::{Limits, Model, SourceId, Session, StepRow};
    ///
    /// let model = Model::open("models/fr-en")?;
    /// let mut session = Session::new(&model, Limits { beams: 2, ..Limits::new(1, 16, 16) })?;
    /// let mut sentence = [SourceId::default()];
    /// session.encode(&[&[6, 11, 0]], &mut sentence)?;
    /// let first = session.start(sentence[0])?;
    /// session.prefill(first, &[2317, 554], None)?;
    /// // Two continuations of the same tokens, in one step.
    /// let second = session.fork(first)?;
    /// let rows = [StepRow { row: first, token: 9 }, StepRow { row: second, token: 14 }];
    /// let logits = session.step(&rows)?;
    /// assert_eq!(logits.len(), 2 * model.config().target_vocab);
    /// assert_eq!(session.row_len(second)?, 3);
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    pub fn fork(&mut self, row: HypothesisId) -> Result<HypothesisId, SessionError> {
        let from = self.check_row(row)?;
        let to = self.fork_slot(from as u32)?;
        Ok(self.new_handle(to))
    }

    /// [`Session::fork`] of the hypothesis in slot `from`. Returns the slot of the new one.
    pub(crate) fn fork_slot(&mut self, from: u32) -> Result<u32, SessionError> {
        let from = self.check_row_slot(from)?;
        let beams = self.plan.limits.beams;
        let row = self.kv_slots_mut()?.fork(from);
        Ok(row.ok_or(SessionError::NoFreeRow { sentence: (from / beams) as u32, beams })? as u32)
    }

    /// Ends a hypothesis and frees its slot. Hypotheses that were forked from it do not change.
    ///
    /// # Errors
    /// An [unknown hypothesis](SessionError::UnknownRow).
    pub fn release(&mut self, row: HypothesisId) -> Result<(), SessionError> {
        let slot = self.check_row(row)?;
        self.release_slot(slot as u32)
    }

    /// [`Session::release`] of the hypothesis in `slot`.
    pub(crate) fn release_slot(&mut self, slot: u32) -> Result<(), SessionError> {
        let row = self.check_row_slot(slot)?;
        self.kv_slots_mut()?.release(row);
        Ok(())
    }

    /// Ends a sentence and all its hypotheses.
    ///
    /// # Errors
    /// An [unknown sentence](SessionError::UnknownSentence).
    pub fn release_sentence(&mut self, sentence: SourceId) -> Result<(), SessionError> {
        let slot = self.check_sentence(sentence)?;
        self.release_sentence_slot(slot)
    }

    /// [`Session::release_sentence`] of the sentence in the taken slot `slot`.
    pub(crate) fn release_sentence_slot(&mut self, slot: u32) -> Result<(), SessionError> {
        let first = slot as usize * self.plan.limits.beams;
        self.kv_slots_mut()?.release_all(first);
        let lens = self.plan.sentence_len.clone();
        self.words_mut(&lens)[slot as usize] = 0;
        Ok(())
    }

    /// Ends all sentences and hypotheses. Their handles become invalid.
    pub fn clear(&mut self) {
        let Plan { row_len, sentence_len, .. } = self.plan.clone();
        let floats = self.buffer.floats_mut();
        words_mut(&mut floats[row_len]).fill(0);
        words_mut(&mut floats[sentence_len]).fill(0);
    }

    /// Makes a handle for the new hypothesis in `slot`.
    fn new_handle(&mut self, slot: u32) -> HypothesisId {
        let generation = self.generations.allocate();
        let generations = self.plan.row_generation.clone();
        self.words_mut(&generations)[2 * slot as usize..][..2]
            .copy_from_slice(&words_of(generation));
        HypothesisId { slot, generation }
    }

    /// Number of tokens fed to `row`, including those before a fork: the position of the next token.
    ///
    /// # Errors
    /// An [unknown hypothesis](SessionError::UnknownRow).
    pub fn row_len(&self, row: HypothesisId) -> Result<usize, SessionError> {
        let row = self.check_row(row)?;
        Ok(self.kv_slots().len(row))
    }

    /// Removes the tokens of `row` after the first `len`. No key or value moves. Hypotheses that were forked from `row`
    /// do not change.
    ///
    /// # Errors
    /// An [unknown hypothesis](SessionError::UnknownRow), or one with [fewer](SessionError::Rewind) tokens. An error
    /// changes nothing.
    ///
    /// ```
    /// use simdformer::{Limits, Model, SourceId, Session, StepRow};
    ///
    /// # if !std::path::Path::new("models/fr-en").exists() { return Ok(()) } // not in the published package
    /// let model = Model::open("models/fr-en")?;
    /// let mut session = Session::new(&model, Limits::new(1, 16, 16))?;
    /// let mut sentence = [SourceId::default()];
    /// session.encode(&[&[6, 11, 0]], &mut sentence)?;
    /// let row = session.start(sentence[0])?;
    /// session.prefill(row, &[2317], None)?;
    /// let straight = session.step(&[StepRow { row, token: 9 }])?.to_vec();
    /// // Feed other tokens, rewind, and feed the first token again: the bits are the same.
    /// session.rewind(row, 1)?;
    /// session.prefill(row, &[14, 32, 8], None)?;
    /// session.rewind(row, 1)?;
    /// assert_eq!(session.step(&[StepRow { row, token: 9 }])?, straight);
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    pub fn rewind(&mut self, row: HypothesisId, len: usize) -> Result<(), SessionError> {
        let slot = self.check_row(row)?;
        self.rewind_slot(slot as u32, len)
    }

    /// [`Session::rewind`] of the hypothesis in `slot`.
    pub(crate) fn rewind_slot(&mut self, slot: u32, len: usize) -> Result<(), SessionError> {
        let row = self.check_row_slot(slot)?;
        let mut kv_slots = self.kv_slots_mut()?;
        let expected_at_most = kv_slots.len(row);
        let Some(taken) = expected_at_most.checked_sub(len) else {
            return Err(SessionError::Rewind { expected_at_most, found: len });
        };
        kv_slots.shrink(row, taken);
        Ok(())
    }

    /// The slot of a valid sentence handle.
    fn check_sentence(&self, sentence: SourceId) -> Result<u32, SessionError> {
        let SourceId { slot, generation } = sentence;
        let len = self.words(&self.plan.sentence_len).get(slot as usize);
        let generations = self.words(&self.plan.sentence_generation);
        if len.is_some_and(|&len| len > 0) && has_generation(generations, slot, generation) {
            Ok(slot)
        } else {
            Err(SessionError::UnknownSentence { found: slot })
        }
    }

    /// The slot of a valid hypothesis handle.
    pub(super) fn check_row(&self, row: HypothesisId) -> Result<usize, SessionError> {
        let HypothesisId { slot, generation } = row;
        let generations = self.words(&self.plan.row_generation);
        if self.kv_slots().is_active(slot as usize) && has_generation(generations, slot, generation)
        {
            Ok(slot as usize)
        } else {
            Err(SessionError::UnknownRow { found: slot })
        }
    }

    /// Checks that `slot` has a hypothesis.
    pub(super) fn check_row_slot(&self, slot: u32) -> Result<usize, SessionError> {
        if self.kv_slots().is_active(slot as usize) {
            Ok(slot as usize)
        } else {
            Err(SessionError::UnknownRow { found: slot })
        }
    }

    /// The KV slots of all hypotheses.
    pub(super) fn kv_slots(&self) -> KvSlots<&[u32]> {
        let Plan { limits, row_len, row_ancestry, .. } = &self.plan;
        KvSlots {
            beams: limits.beams,
            capacity: limits.target_tokens,
            lens: self.words(row_len),
            ancestry: self.words(row_ancestry),
        }
    }

    /// As [`Session::kv_slots`], mutable.
    pub(super) fn kv_slots_mut(&mut self) -> Result<KvSlots<&mut [u32]>, SessionError> {
        let Plan { limits, row_len, row_ancestry, .. } = &self.plan;
        let [lens, ancestry] = cut(&mut self.buffer, [row_len, row_ancestry])?;
        Ok(KvSlots {
            beams: limits.beams,
            capacity: limits.target_tokens,
            lens: words_mut(lens),
            ancestry: words_mut(ancestry),
        })
    }
}

/// Whether `slot` has this generation number.
fn has_generation(generations: &[u32], slot: u32, generation: u64) -> bool {
    generations[2 * slot as usize..][..2] == words_of(generation)
}
