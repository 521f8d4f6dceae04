//! Who is there: which slots are taken, by which sentences and hypotheses.
//!
//! Slots are used again, so callers get a slot with a ticket (`generations.rs`): what was released is
//! refused, whoever is in its slot by then, and so is what belongs to another session. The decoding
//! loop knows what it has released and goes by the slots alone. Where the past of a hypothesis lies is
//! in `kv_slots.rs`.

use super::error::SessionError;
use super::generations::words_of;
use super::kv_slots::KvSlots;
use super::plan::Plan;
use super::session::Session;
use crate::memory::{cut, words_mut};

/// An encoded source sentence of one session. The default names none. A sentence that was released is
/// not mistaken for the one that came into its slot, nor a sentence of one session for one of another.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub struct SourceId {
    slot: u32,
    /// Never 0, and never the same for two sentences or hypotheses of a process.
    ticket: u64,
}

impl SourceId {
    /// Number of the slot: what [`crate::trace::View::sentence`] says.
    pub const fn slot(self) -> u32 {
        self.slot
    }
}

/// A hypothesis of one session. The default names none. A hypothesis that was released is not mistaken
/// for the one that came into its slot, nor a hypothesis of one session for one of another.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub struct HypothesisId {
    slot: u32,
    /// As in [`SourceId`].
    ticket: u64,
}

impl HypothesisId {
    /// Number of the slot: what [`crate::trace::View::row`] says.
    pub const fn slot(self) -> u32 {
        self.slot
    }
}

impl Session<'_> {
    /// Sentence slots that are free, of [`Limits::sentences`](crate::Limits::sentences).
    pub fn free_sentences(&self) -> usize {
        self.words(&self.plan.sentence_len).iter().filter(|&&len| len == 0).count()
    }

    /// The sentence of `len` tokens that comes into `slot`, which is free.
    pub(super) fn take_sentence(&mut self, slot: u32, len: usize) -> SourceId {
        let ticket = self.tickets.draw();
        let (lens, tickets) = (self.plan.sentence_len.clone(), self.plan.sentence_ticket.clone());
        self.words_mut(&lens)[slot as usize] = len as u32;
        self.words_mut(&tickets)[2 * slot as usize..][..2].copy_from_slice(&words_of(ticket));
        SourceId { slot, ticket }
    }

    /// Starts an empty hypothesis about `sentence`.
    ///
    /// A sentence can have [`crate::Limits::beams`] hypotheses at a time. It does not matter which were
    /// started, forked and released before, and in which order.
    ///
    /// # Errors
    /// There is [no such sentence](SessionError::UnknownSentence), or it has as many hypotheses as were
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
        Ok(self.name(slot))
    }

    /// [`Session::start`] for a sentence slot that is taken; returns the row slot, which has no ticket.
    pub(crate) fn start_slot(&mut self, sentence: u32) -> Result<u32, SessionError> {
        let beams = self.plan.limits.beams;
        let row = self.pasts()?.start(sentence as usize * beams);
        Ok(row.ok_or(SessionError::NoFreeRow { sentence, beams })? as u32)
    }

    /// A hypothesis that has the past of `row` and goes its own way from here. No key or value is
    /// copied: only the table of where they lie.
    ///
    /// # Errors
    /// There is [no such hypothesis](SessionError::UnknownRow), or its sentence has as many as were
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
    /// // Two ways on from the same past, in one step.
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
        Ok(self.name(to))
    }

    /// [`Session::fork`] of the hypothesis in slot `from`; returns the new one's slot.
    pub(crate) fn fork_slot(&mut self, from: u32) -> Result<u32, SessionError> {
        let from = self.check_row_slot(from)?;
        let beams = self.plan.limits.beams;
        let row = self.pasts()?.fork(from);
        Ok(row.ok_or(SessionError::NoFreeRow { sentence: (from / beams) as u32, beams })? as u32)
    }

    /// Drops a hypothesis. Its slot can be used again; who was forked from it keeps its past.
    ///
    /// # Errors
    /// There is [no such hypothesis](SessionError::UnknownRow).
    pub fn release(&mut self, row: HypothesisId) -> Result<(), SessionError> {
        let slot = self.check_row(row)?;
        self.release_slot(slot as u32)
    }

    /// [`Session::release`] of the hypothesis in `slot`.
    pub(crate) fn release_slot(&mut self, slot: u32) -> Result<(), SessionError> {
        let row = self.check_row_slot(slot)?;
        self.pasts()?.release(row);
        Ok(())
    }

    /// Drops a sentence and all its hypotheses.
    ///
    /// # Errors
    /// There is [no such sentence](SessionError::UnknownSentence).
    pub fn release_sentence(&mut self, sentence: SourceId) -> Result<(), SessionError> {
        let slot = self.check_sentence(sentence)?;
        self.release_sentence_slot(slot)
    }

    /// [`Session::release_sentence`] of the sentence in `slot`, which exists.
    pub(crate) fn release_sentence_slot(&mut self, slot: u32) -> Result<(), SessionError> {
        let first = slot as usize * self.plan.limits.beams;
        self.pasts()?.release_all(first);
        let lens = self.plan.sentence_len.clone();
        self.words_mut(&lens)[slot as usize] = 0;
        Ok(())
    }

    /// Forgets every sentence and hypothesis: what named them is refused from now on.
    pub fn clear(&mut self) {
        let Plan { row_len, sentence_len, .. } = self.plan.clone();
        let floats = self.buffer.floats_mut();
        words_mut(&mut floats[row_len]).fill(0);
        words_mut(&mut floats[sentence_len]).fill(0);
    }

    /// A ticket for the hypothesis that came into `slot`.
    fn name(&mut self, slot: u32) -> HypothesisId {
        let ticket = self.tickets.draw();
        let tickets = self.plan.row_ticket.clone();
        self.words_mut(&tickets)[2 * slot as usize..][..2].copy_from_slice(&words_of(ticket));
        HypothesisId { slot, ticket }
    }

    /// Tokens that `row` has been fed, those before it was forked included: the position of the next.
    ///
    /// # Errors
    /// There is [no such hypothesis](SessionError::UnknownRow).
    pub fn row_len(&self, row: HypothesisId) -> Result<usize, SessionError> {
        let row = self.check_row(row)?;
        Ok(self.read_pasts().len(row))
    }

    /// Takes back what `row` was fed after its first `len` tokens: it goes on as if they had never come. No
    /// key or value moves, and who was forked from it keeps its past.
    ///
    /// # Errors
    /// There is [no such hypothesis](SessionError::UnknownRow), or it has been fed
    /// [fewer](SessionError::Rewind) tokens. Then nothing has changed.
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
    /// // Another way, back to the fork, and the first way again: the same bits.
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
        let mut pasts = self.pasts()?;
        let expected_at_most = pasts.len(row);
        let Some(taken) = expected_at_most.checked_sub(len) else {
            return Err(SessionError::Rewind { expected_at_most, found: len });
        };
        pasts.shrink(row, taken);
        Ok(())
    }

    /// The slot of a sentence that is there.
    fn check_sentence(&self, sentence: SourceId) -> Result<u32, SessionError> {
        let SourceId { slot, ticket } = sentence;
        let len = self.words(&self.plan.sentence_len).get(slot as usize);
        let tickets = self.words(&self.plan.sentence_ticket);
        if len.is_some_and(|&len| len > 0) && has_ticket(tickets, slot, ticket) {
            Ok(slot)
        } else {
            Err(SessionError::UnknownSentence { found: slot })
        }
    }

    /// The slot of a hypothesis that is there.
    pub(super) fn check_row(&self, row: HypothesisId) -> Result<usize, SessionError> {
        let HypothesisId { slot, ticket } = row;
        let tickets = self.words(&self.plan.row_ticket);
        if self.read_pasts().lives(slot as usize) && has_ticket(tickets, slot, ticket) {
            Ok(slot as usize)
        } else {
            Err(SessionError::UnknownRow { found: slot })
        }
    }

    /// `slot`, in which there is a hypothesis.
    pub(super) fn check_row_slot(&self, slot: u32) -> Result<usize, SessionError> {
        if self.read_pasts().lives(slot as usize) {
            Ok(slot as usize)
        } else {
            Err(SessionError::UnknownRow { found: slot })
        }
    }

    /// Where the pasts of all hypotheses lie.
    pub(super) fn read_pasts(&self) -> KvSlots<&[u32]> {
        let Plan { limits, row_len, row_ancestry, .. } = &self.plan;
        KvSlots {
            beams: limits.beams,
            capacity: limits.target_tokens,
            lens: self.words(row_len),
            ancestry: self.words(row_ancestry),
        }
    }

    /// [`Session::read_pasts`], to be written.
    pub(super) fn pasts(&mut self) -> Result<KvSlots<&mut [u32]>, SessionError> {
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

/// Whether `ticket` was given for what is in `slot`.
fn has_ticket(tickets: &[u32], slot: u32, ticket: u64) -> bool {
    tickets[2 * slot as usize..][..2] == words_of(ticket)
}
