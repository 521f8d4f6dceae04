//! Who is there: which slots are taken, by which sentences and hypotheses, and what past each
//! hypothesis has.
//!
//! Slots are places in the caches and are used again, so callers get a slot with a ticket: what was
//! released is refused, whoever is in its slot by then. The decoding loop knows what it has released
//! and goes by the slots alone.

use super::error::SessionError;
use super::plan::Plan;
use super::session::Session;

/// An encoded source sentence of one session. The default names none, and a sentence that was
/// released is not mistaken for the one that came into its slot.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub struct Sentence {
    slot: u32,
    /// Different for every tenant of the slot, never 0.
    ticket: u32,
}

impl Sentence {
    /// Number of the slot: what [`crate::trace::View::sentence`] says.
    pub const fn slot(self) -> u32 {
        self.slot
    }
}

/// A hypothesis of one session. The default names none, and a hypothesis that was released is not
/// mistaken for the one that came into its slot.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub struct Row {
    slot: u32,
    /// As in [`Sentence`].
    ticket: u32,
}

impl Row {
    /// Number of the slot: what [`crate::trace::View::row`] says.
    pub const fn slot(self) -> u32 {
        self.slot
    }
}

impl Session<'_> {
    /// A ticket that no tenant of any slot has, until four billion others have come.
    fn next_ticket(&mut self) -> u32 {
        self.ticket = self.ticket.wrapping_add(1).max(1);
        self.ticket
    }

    /// Sentence slots that are free.
    pub fn free_sentences(&self) -> usize {
        self.words(&self.plan.sentence_len).iter().filter(|&&len| len == 0).count()
    }

    /// The sentence of `len` tokens that comes into `slot`, which is free.
    pub(super) fn take_sentence(&mut self, slot: u32, len: usize) -> Sentence {
        let ticket = self.next_ticket();
        let (lens, tickets) = (self.plan.sentence_len.clone(), self.plan.sentence_ticket.clone());
        self.words_mut(&lens)[slot as usize] = len as u32;
        self.words_mut(&tickets)[slot as usize] = ticket;
        Sentence { slot, ticket }
    }

    /// Starts an empty hypothesis about `sentence`.
    ///
    /// # Errors
    /// There is no such sentence, or all its row slots are taken.
    pub fn start(&mut self, sentence: Sentence) -> Result<Row, SessionError> {
        let slot = self.start_slot(self.check_sentence(sentence)?)?;
        Ok(self.row_in(slot))
    }

    /// [`Session::start`] for a sentence slot that is taken; returns the row slot.
    pub(crate) fn start_slot(&mut self, sentence: u32) -> Result<u32, SessionError> {
        let row = self.free_row(sentence, 0)?;
        let (live, len) = (self.plan.row_live.clone(), self.plan.row_len.clone());
        self.words_mut(&live)[row] = self.next_ticket();
        self.words_mut(&len)[row] = 0;
        Ok(row as u32)
    }

    /// A hypothesis that has the past of `row` and goes its own way from here. No key or value is
    /// copied: only the table of where they lie.
    ///
    /// # Errors
    /// There is no such hypothesis, or all row slots of its sentence are taken.
    pub fn fork(&mut self, row: Row) -> Result<Row, SessionError> {
        let from = self.check_row(row)?;
        let to = self.fork_slot(from as u32)?;
        Ok(self.row_in(to))
    }

    /// [`Session::fork`] of the hypothesis in slot `from`; returns the new one's slot.
    pub(crate) fn fork_slot(&mut self, from: u32) -> Result<u32, SessionError> {
        let from = self.check_row_slot(from)?;
        let len = self.words(&self.plan.row_len)[from];
        let to = self.free_row((from / self.plan.limits.beams) as u32, len as usize)?;
        let Plan { row_live, row_len, row_ancestry, .. } = self.plan.clone();
        self.words_mut(&row_live)[to] = self.next_ticket();
        self.words_mut(&row_len)[to] = len;
        let stride = self.plan.limits.target_tokens;
        let start = from * stride;
        self.words_mut(&row_ancestry).copy_within(start..start + len as usize, to * stride);
        Ok(to as u32)
    }

    /// Drops a hypothesis; its slot can be used again as soon as no other needs the past in it.
    ///
    /// # Errors
    /// There is no such hypothesis.
    pub fn release(&mut self, row: Row) -> Result<(), SessionError> {
        let slot = self.check_row(row)?;
        self.release_slot(slot as u32)
    }

    /// [`Session::release`] of the hypothesis in `slot`.
    pub(crate) fn release_slot(&mut self, slot: u32) -> Result<(), SessionError> {
        let row = self.check_row_slot(slot)?;
        let live = self.plan.row_live.clone();
        self.words_mut(&live)[row] = 0;
        Ok(())
    }

    /// Drops a sentence and all its hypotheses.
    ///
    /// # Errors
    /// There is no such sentence.
    pub fn release_sentence(&mut self, sentence: Sentence) -> Result<(), SessionError> {
        let slot = self.check_sentence(sentence)?;
        self.release_sentence_slot(slot);
        Ok(())
    }

    /// [`Session::release_sentence`] of the sentence in `slot`, which exists.
    pub(crate) fn release_sentence_slot(&mut self, slot: u32) {
        let Plan { row_live, sentence_len, limits, .. } = self.plan.clone();
        let first = slot as usize * limits.beams;
        self.words_mut(&row_live)[first..first + limits.beams].fill(0);
        self.words_mut(&sentence_len)[slot as usize] = 0;
    }

    /// The hypothesis in a slot that is taken.
    pub(crate) fn row_in(&self, slot: u32) -> Row {
        Row { slot, ticket: self.words(&self.plan.row_live)[slot as usize] }
    }

    /// Tokens that `row` has been fed.
    ///
    /// # Errors
    /// There is no such hypothesis.
    pub fn row_len(&self, row: Row) -> Result<usize, SessionError> {
        let row = self.check_row(row)?;
        Ok(self.words(&self.plan.row_len)[row] as usize)
    }

    /// The slot of a sentence that is there.
    fn check_sentence(&self, sentence: Sentence) -> Result<u32, SessionError> {
        let Sentence { slot, ticket } = sentence;
        let len = self.words(&self.plan.sentence_len).get(slot as usize);
        let tenant = self.words(&self.plan.sentence_ticket).get(slot as usize);
        match (len, tenant) {
            (Some(&len), Some(&tenant)) if len > 0 && tenant == ticket => Ok(slot),
            _ => Err(SessionError::UnknownSentence { found: slot }),
        }
    }

    /// The slot of a hypothesis that is there.
    pub(super) fn check_row(&self, row: Row) -> Result<usize, SessionError> {
        match self.words(&self.plan.row_live).get(row.slot as usize) {
            Some(&tenant) if tenant > 0 && tenant == row.ticket => Ok(row.slot as usize),
            _ => Err(SessionError::UnknownRow { found: row.slot }),
        }
    }

    /// `slot`, in which there is a hypothesis.
    pub(super) fn check_row_slot(&self, slot: u32) -> Result<usize, SessionError> {
        match self.words(&self.plan.row_live).get(slot as usize) {
            Some(&tenant) if tenant > 0 => Ok(slot as usize),
            _ => Err(SessionError::UnknownRow { found: slot }),
        }
    }

    /// A row slot of `sentence` in which positions from `from` on are nobody's past.
    fn free_row(&self, sentence: u32, from: usize) -> Result<usize, SessionError> {
        let Plan { limits, row_live, row_len, row_ancestry, .. } = &self.plan;
        let (live, lens) = (self.words(row_live), self.words(row_len));
        let ancestry = self.words(row_ancestry);
        let first = sentence as usize * limits.beams;
        let rows = first..first + limits.beams;
        let needed = |slot: usize| {
            rows.clone().filter(|&row| live[row] > 0).any(|row| {
                let past = &ancestry[row * limits.target_tokens..][..lens[row] as usize];
                past.get(from..).unwrap_or(&[]).contains(&(slot as u32))
            })
        };
        rows.clone()
            .find(|&slot| live[slot] == 0 && !needed(slot))
            .ok_or(SessionError::NoFreeRow { sentence, beams: limits.beams })
    }
}
