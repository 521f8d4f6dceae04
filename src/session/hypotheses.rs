//! Sentences and hypotheses of a session: start, fork, rewind and release.
//!
//! A slot is reused, so the public methods take handles with generation numbers (`kv/handles.rs`). The decoding loop
//! uses slots without generation numbers. The KV slots of hypotheses are in `kv/cache.rs`.

use super::memory_plan::{Limits, SessionBuffers};
use super::session::Session;
use crate::error::{Error, ErrorValue};
use crate::kv::{
    HypothesisId, KvSlots, SourceId, has_generation, read_generation, write_generation,
};
use crate::memory::Splitter;

/// The sentence has as many hypotheses as planned.
fn no_free_hypothesis(beams: usize, sentence: usize) -> Error {
    let text = &"at most {} planned hypotheses of the sentence in slot {}";
    Error::beyond_limit("beams", ErrorValue::new(text, [beams, sentence]), beams + 1)
}

/// The handle was released, belongs to another session, or is the default.
const fn unknown(operand: &'static str, expected: &'static str, found: u32) -> Error {
    Error::InvalidHandle { operand, expected, found, state: "is free or has another by now" }
}

impl Session<'_> {
    /// Number of free sentence slots, of [`Limits::sentences`](crate::Limits::sentences).
    pub fn free_sentences(&self) -> usize {
        self.source_lens().iter().filter(|&&len| len == 0).count()
    }

    /// `[sentences]`: the length of each source, 0 for a free slot.
    pub(super) fn source_lens(&self) -> &[u32] {
        self.plan.buffers.source_lens.slice_of(self.buffer.floats())
    }

    /// The handle of the sentence in `slot`; `None` for a free slot, or if there is no such slot. For an interface whose own
    /// handles have the slot and a part of the [generation](SourceId::generation).
    pub fn sentence_in(&self, slot: u32) -> Option<SourceId> {
        self.source_lens().get(slot as usize).filter(|&&len| len > 0)?;
        let generations = self.plan.buffers.sentence_generations.slice_of(self.buffer.floats());
        Some(SourceId { slot, generation: read_generation(generations, slot) })
    }

    /// The handle of the hypothesis in `slot`, as [`Session::sentence_in`].
    ///
    /// ```
    /// use simdformer::{Limits, Model, Session, SourceId};
    ///
    /// # if !std::path::Path::new("models/fr-en").exists() { return Ok(()) } // not in the published package
    /// let model = Model::open("models/fr-en")?;
    /// let mut session = Session::new(&model, Limits::new(1, 16, 16))?;
    /// let mut sentence = [SourceId::default()];
    /// session.encode(&[&[6, 11, 0]], &mut sentence)?;
    /// let hypothesis = session.start(sentence[0])?;
    /// assert_eq!(session.sentence_in(sentence[0].slot()), Some(sentence[0]));
    /// assert_eq!(session.hypothesis_in(hypothesis.slot()), Some(hypothesis));
    /// session.release(hypothesis)?;
    /// assert_eq!(session.hypothesis_in(hypothesis.slot()), None);
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    pub fn hypothesis_in(&self, slot: u32) -> Option<HypothesisId> {
        if !self.kv_slots().is_active(slot as usize) {
            return None;
        }
        let generations = self.plan.buffers.hypothesis_generations.slice_of(self.buffer.floats());
        Some(HypothesisId { slot, generation: read_generation(generations, slot) })
    }

    /// Puts a sentence of `len` tokens into the free slot `slot`.
    pub(super) fn take_sentence(&mut self, slot: u32, len: usize) -> Result<SourceId, Error> {
        let generation = self.generations.allocate();
        let SessionBuffers { source_lens, sentence_generations, .. } =
            self.plan.buffers.split(self.buffer.floats_mut())?;
        source_lens[slot as usize] = len as u32;
        write_generation(sentence_generations, slot, generation);
        Ok(SourceId { slot, generation })
    }

    /// Starts an empty hypothesis about `sentence`.
    ///
    /// A sentence can have [`crate::Limits::beams`] hypotheses at a time, in any order of start, fork and release.
    ///
    /// # Errors
    /// An [unknown sentence](Error::InvalidHandle), or one that has as many hypotheses as
    /// [planned](Error::BeyondLimit).
    ///
    /// ```
    /// use simdformer::{Limits, Model, SourceId, Session, StepRow};
    ///
    /// let model = Model::open("models/fr-en")?;
    /// let mut session = Session::new(&model, Limits { beams: 2, ..Limits::new(1, 16, 16) })?;
    /// let mut sentence = [SourceId::default()];
    /// session.encode(&[&[6, 11, 0]], &mut sentence)?;
    /// let hypothesis = session.start(sentence[0])?;
    /// assert_eq!(session.hypothesis_len(hypothesis)?, 0);
    /// let start = model.config().tokens.decoder_start.expect("a start token");
    /// let logits = session.step(&[StepRow::new(hypothesis, start)])?;
    /// assert_eq!(logits.len(), model.config().target_vocab);
    /// session.release(hypothesis)?;
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    pub fn start(&mut self, sentence: SourceId) -> Result<HypothesisId, Error> {
        self.plan.check_decodes()?;
        let slot = self.start_slot(self.check_sentence(sentence)?)?;
        self.new_handle(slot)
    }

    /// [`Session::start`] for a taken sentence slot. Returns the hypothesis slot, without a generation number.
    pub(crate) fn start_slot(&mut self, sentence: u32) -> Result<u32, Error> {
        let beams = self.plan.limits.beams;
        let hypothesis = self.kv_slots_mut()?.start(sentence as usize * beams);
        Ok(hypothesis.ok_or_else(|| no_free_hypothesis(beams, sentence as usize))? as u32)
    }

    /// Starts a hypothesis with the tokens of `hypothesis`. Later tokens of the two are independent. Slot numbers are copied;
    /// keys and values are not.
    ///
    /// # Errors
    /// An [unknown hypothesis](Error::InvalidHandle), or its sentence has as many hypotheses as
    /// [planned](Error::BeyondLimit).
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
    /// let rows = [StepRow::new(first, 9), StepRow::new(second, 14)];
    /// let logits = session.step(&rows)?;
    /// assert_eq!(logits.len(), 2 * model.config().target_vocab);
    /// assert_eq!(session.hypothesis_len(second)?, 3);
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    pub fn fork(&mut self, hypothesis: HypothesisId) -> Result<HypothesisId, Error> {
        let from = self.check_hypothesis(hypothesis)?;
        let to = self.fork_slot(from as u32)?;
        self.new_handle(to)
    }

    /// [`Session::fork`] of the hypothesis in slot `from`. Returns the slot of the new one.
    pub(crate) fn fork_slot(&mut self, from: u32) -> Result<u32, Error> {
        let from = self.check_hypothesis_slot(from)?;
        let beams = self.plan.limits.beams;
        let hypothesis = self.kv_slots_mut()?.fork(from);
        Ok(hypothesis.ok_or_else(|| no_free_hypothesis(beams, from / beams))? as u32)
    }

    /// Ends a hypothesis and frees its slot. Hypotheses that were forked from it do not change.
    ///
    /// # Errors
    /// An [unknown hypothesis](Error::InvalidHandle).
    pub fn release(&mut self, hypothesis: HypothesisId) -> Result<(), Error> {
        let slot = self.check_hypothesis(hypothesis)?;
        self.release_slot(slot as u32)
    }

    /// [`Session::release`] of the hypothesis in `slot`.
    pub(crate) fn release_slot(&mut self, slot: u32) -> Result<(), Error> {
        let hypothesis = self.check_hypothesis_slot(slot)?;
        self.kv_slots_mut()?.release(hypothesis);
        Ok(())
    }

    /// Ends a sentence and all its hypotheses.
    ///
    /// # Errors
    /// An [unknown sentence](Error::InvalidHandle).
    pub fn release_sentence(&mut self, sentence: SourceId) -> Result<(), Error> {
        let slot = self.check_sentence(sentence)?;
        self.release_sentence_slot(slot)
    }

    /// [`Session::release_sentence`] of the sentence in the taken slot `slot`.
    pub(crate) fn release_sentence_slot(&mut self, slot: u32) -> Result<(), Error> {
        let first = slot as usize * self.plan.limits.beams;
        self.kv_slots_mut()?.release_all(first);
        let lens = self.plan.buffers.source_lens.slice_of_mut(self.buffer.floats_mut());
        lens[slot as usize] = 0;
        Ok(())
    }

    /// Ends all sentences and hypotheses. Their handles become invalid.
    pub fn clear(&mut self) {
        let (ranges, floats) = (&self.plan.buffers, self.buffer.floats_mut());
        ranges.hypothesis_lens.slice_of_mut(floats).fill(0);
        ranges.source_lens.slice_of_mut(floats).fill(0);
    }

    /// Makes a handle for the new hypothesis in `slot`.
    /// A handle of the hypothesis in `slot`; earlier ones are no longer valid.
    pub(crate) fn new_handle(&mut self, slot: u32) -> Result<HypothesisId, Error> {
        let generation = self.generations.allocate();
        let buffers = self.plan.buffers.split(self.buffer.floats_mut())?;
        write_generation(buffers.hypothesis_generations, slot, generation);
        Ok(HypothesisId { slot, generation })
    }

    /// Number of tokens fed to `hypothesis`, including those before a fork: the position of the next token.
    ///
    /// # Errors
    /// An [unknown hypothesis](Error::InvalidHandle).
    pub fn hypothesis_len(&self, hypothesis: HypothesisId) -> Result<usize, Error> {
        let hypothesis = self.check_hypothesis(hypothesis)?;
        Ok(self.kv_slots().len(hypothesis))
    }

    /// Removes the tokens of `hypothesis` after the first `len`. No key or value moves. Hypotheses that were forked from `hypothesis`
    /// do not change.
    ///
    /// # Errors
    /// An [unknown hypothesis](Error::InvalidHandle), or one with [fewer](Error::BeyondLimit) tokens. An error
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
    /// let hypothesis = session.start(sentence[0])?;
    /// session.prefill(hypothesis, &[2317], None)?;
    /// let straight = session.step(&[StepRow::new(hypothesis, 9)])?.to_vec();
    /// // Feed other tokens, rewind, and feed the first token again: the bits are the same.
    /// session.rewind(hypothesis, 1)?;
    /// session.prefill(hypothesis, &[14, 32, 8], None)?;
    /// session.rewind(hypothesis, 1)?;
    /// assert_eq!(session.step(&[StepRow::new(hypothesis, 9)])?, straight);
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    pub fn rewind(&mut self, hypothesis: HypothesisId, len: usize) -> Result<(), Error> {
        let slot = self.check_hypothesis(hypothesis)?;
        self.rewind_slot(slot as u32, len)
    }

    /// [`Session::rewind`] of the hypothesis in `slot`.
    pub(crate) fn rewind_slot(&mut self, slot: u32, len: usize) -> Result<(), Error> {
        let hypothesis = self.check_hypothesis_slot(slot)?;
        let mut kv_slots = self.kv_slots_mut()?;
        let expected_at_most = kv_slots.len(hypothesis);
        let Some(taken) = expected_at_most.checked_sub(len) else {
            let text = &"at most {} to go back to, as many tokens as the hypothesis has been fed";
            return Err(Error::beyond_limit(
                "length",
                ErrorValue::new(text, [expected_at_most, 0]),
                len,
            ));
        };
        kv_slots.shrink(hypothesis, taken);
        Ok(())
    }

    /// The slot of a valid sentence handle.
    fn check_sentence(&self, sentence: SourceId) -> Result<u32, Error> {
        let SourceId { slot, generation } = sentence;
        let len = self.source_lens().get(slot as usize);
        let generations = self.plan.buffers.sentence_generations.slice_of(self.buffer.floats());
        if len.is_some_and(|&len| len > 0) && has_generation(generations, slot, generation) {
            Ok(slot)
        } else {
            Err(unknown("sentence", "a sentence of this session", slot))
        }
    }

    /// The slot of a valid hypothesis handle.
    pub(crate) fn check_hypothesis(&self, hypothesis: HypothesisId) -> Result<usize, Error> {
        let HypothesisId { slot, generation } = hypothesis;
        let generations = self.plan.buffers.hypothesis_generations.slice_of(self.buffer.floats());
        if self.kv_slots().is_active(slot as usize) && has_generation(generations, slot, generation)
        {
            Ok(slot as usize)
        } else {
            Err(unknown("hypothesis", "a hypothesis of this session", slot))
        }
    }

    /// Checks that `slot` has a hypothesis.
    pub(super) fn check_hypothesis_slot(&self, slot: u32) -> Result<usize, Error> {
        if self.kv_slots().is_active(slot as usize) {
            Ok(slot as usize)
        } else {
            Err(unknown("hypothesis", "a hypothesis of this session", slot))
        }
    }

    /// The KV slots of all hypotheses.
    pub(crate) fn kv_slots(&self) -> KvSlots<&[u32]> {
        let (ranges, floats) = (&self.plan.buffers, self.buffer.floats());
        KvSlots {
            beams: self.plan.limits.beams,
            capacity: self.plan.limits.target_tokens,
            lens: ranges.hypothesis_lens.slice_of(floats),
            ancestry: ranges.slot_table.slice_of(floats),
        }
    }

    /// As [`Session::kv_slots`], mutable.
    pub(super) fn kv_slots_mut(&mut self) -> Result<KvSlots<&mut [u32]>, Error> {
        // A search calls this several times in a step, so only these two are split off.
        let (ranges, mut buffers) = (&self.plan.buffers, Splitter::new(self.buffer.floats_mut()));
        let lens = buffers.next(&ranges.hypothesis_lens)?;
        let ancestry = buffers.next(&ranges.slot_table)?;
        let Limits { beams, target_tokens: capacity, .. } = self.plan.limits;
        Ok(KvSlots { beams, capacity, lens, ancestry })
    }
}
