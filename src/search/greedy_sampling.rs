//! Greedy search and sampling: the sequences of a sentence are independent.

use super::argmax::UNDECIDED;
use super::hooks::{Hooks, OnToken, Token};
use super::parallel_rows::{Prepared, prepared};
use super::score_rows::{argmax, below_infinity};
use super::search::{Finish, NONE, Search};
use super::state::Slot;
use crate::error::Error;

impl Search<'_> {
    /// Appends one token to each active sequence of a sentence. `rows` holds the scores of the sentence's rows,
    /// unless `best` has their tokens.
    pub(super) fn step_sequences(
        &mut self,
        slot: Slot<'_>,
        rows: &mut [f32],
        best: Option<&[u32]>,
        hooks: &mut Hooks<'_>,
        on_token: &mut Option<OnToken<'_>>,
    ) -> Result<(), Error> {
        let (s, options) = (slot.s, slot.options);
        let (target, vocabulary) = (self.limits.max_target_length, self.limits.vocabulary);
        let first = self.memory.first_row[s] as usize;
        if self.memory.len[s] == self.memory.prompt_len[s] {
            self.share_prompt(slot);
        }
        // A forced end token does not mean that the model ended the sentence.
        let forced = self.forces_end(slot, self.memory.len[s]);
        let mut finish = Finish::End;
        let mut processed = NONE;
        for place in slot.sequences() {
            if self.memory.alive[place] == 0 {
                continue;
            }
            let row = self.memory.row[place];
            let sequence = place - slot.first;
            let known = best.and_then(|best| self.known(slot, best[row as usize - first]));
            let scores = &mut rows[(row as usize - first) * vocabulary..][..vocabulary];
            let prepared = match known {
                Some(token) => Prepared::Chosen(token.map(|token| (token, None))),
                None => prepared(self.prepared, self.results, &self.limits, options, row),
            };
            let chosen = match prepared {
                Prepared::Chosen(chosen) => chosen,
                Prepared::NotFinite => {
                    self.end(slot, Finish::NotFinite);
                    return Ok(());
                }
                prepared => {
                    if row != processed && !matches!(prepared, Prepared::Shaped) {
                        self.process_sequence(slot, place, scores, hooks)?;
                        if !below_infinity(scores) {
                            self.end(slot, Finish::NotFinite);
                            return Ok(());
                        }
                        processed = row;
                    }
                    let (view, scratch) = self.split(slot);
                    view.choose(sequence, scores, scratch)
                }
            };
            let Some((token, log_p)) = chosen else {
                self.memory.alive[place] = 0;
                finish = Finish::Exhausted;
                continue;
            };
            let m = &mut self.memory;
            let len = m.len[s] as usize;
            m.history[place * target + len] = token;
            m.sequence_len[place] = len as u32 + 1;
            m.score[place] += log_p.unwrap_or(0.0);
            m.parent[place] = row;
            if options.eos.contains(&token) && !forced {
                m.alive[place] = 0;
            } else if len as u32 + 1 == m.max_len[s] {
                m.alive[place] = 0;
                finish = Finish::Length;
            }
            let event = Token {
                sequence: sequence as u32,
                index: len as u32 - m.prompt_len[s],
                id: token,
                log_probability: log_p,
            };
            if Self::emit(on_token, s, event) {
                self.end(slot, Finish::Stopped);
                return Ok(());
            }
        }
        self.memory.len[s] += 1;
        if !self.memory.alive[slot.sequences()].contains(&1) {
            self.end(slot, finish);
        }
        Ok(())
    }

    /// Copies the prompt to every sequence and assigns the first row to it.
    fn share_prompt(&mut self, slot: Slot<'_>) {
        let (s, target, m) = (slot.s, self.limits.max_target_length, &mut self.memory);
        let prompt = m.prompt_len[s] as usize;
        let start = slot.first * target;
        for place in slot.sequences() {
            m.history.copy_within(start..start + prompt, place * target);
            m.row[place] = m.first_row[s];
            m.alive[place] = 1;
        }
    }

    fn process_sequence(
        &mut self,
        slot: Slot<'_>,
        place: usize,
        scores: &mut [f32],
        hooks: &mut Hooks<'_>,
    ) -> Result<(), Error> {
        let (view, scratch) = self.split(slot);
        let (context, pipeline) = (view.context(place), view.pipeline());
        pipeline.restrict(&context, scores, scratch, hooks)?;
        if hooks.allowed.is_some() && argmax(scores).is_none() {
            pipeline.restore_allowed(&context, scores, hooks)?;
        }
        pipeline.shape(&context, scores, scratch, hooks)
    }

    /// The token that greedy search chooses without reading scores: the forced token, or `best`. `Some(None)` if
    /// all forced tokens are banned, `None` if the scores are needed.
    fn known(&self, slot: Slot<'_>, best: u32) -> Option<Option<u32>> {
        self.forced(slot, self.memory.len[slot.s])
            .or_else(|| (best != UNDECIDED).then_some(Some(best)))
    }
}
