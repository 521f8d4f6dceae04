//! Greedy search and sampling: the sequences of a sentence are independent.

use super::argmax::UNDECIDED;
use super::error::SearchError;
use super::parallel_rows::{Prepared, prepared};
use super::processor_order::{Hooks, OnToken, Token};
use super::score_rows::{argmax, below_infinity};
use super::search::{Finish, NONE, Search};

impl Search<'_> {
    /// Appends one token to each active sequence of sentence `s`. `rows` holds the scores of the sentence's rows,
    /// unless `best` has their tokens.
    pub(super) fn step_sequences(
        &mut self,
        s: usize,
        rows: &mut [f32],
        best: Option<&[u32]>,
        hooks: &mut Hooks<'_>,
        on_token: &mut Option<OnToken<'_>>,
    ) -> Result<(), SearchError> {
        let (width, target, vocabulary) =
            (self.shape.width, self.shape.target, self.shape.vocabulary);
        let first = self.memory.first_row[s] as usize;
        let slots = s * width..(s + 1) * width;
        if self.memory.len[s] == self.memory.prompt_len[s] {
            self.share_prompt(s);
        }
        // A forced end token does not mean that the model ended the sentence.
        let forced = self.forces_end(s, self.memory.len[s]);
        let mut finish = Finish::End;
        let mut processed = NONE;
        for slot in slots.clone() {
            if self.memory.alive[slot] == 0 {
                continue;
            }
            let row = self.memory.row[slot];
            let sequence = slot - slots.start;
            let known = best.and_then(|best| self.known(s, best[row as usize - first]));
            let scores = &mut rows[(row as usize - first) * vocabulary..][..vocabulary];
            let prepared = match known {
                Some(token) => Prepared::Chosen(token.map(|token| (token, None))),
                None => prepared(self.prepared, self.results, &self.shape, self.options, row),
            };
            let chosen = match prepared {
                Prepared::Chosen(chosen) => chosen,
                Prepared::NotFinite => {
                    self.end(s, Finish::NotFinite);
                    return Ok(());
                }
                prepared => {
                    if row != processed && !matches!(prepared, Prepared::Shaped) {
                        self.process_sequence(s, slot, scores, hooks)?;
                        if !below_infinity(scores) {
                            self.end(s, Finish::NotFinite);
                            return Ok(());
                        }
                        processed = row;
                    }
                    let (view, scratch) = self.split();
                    view.choose(s, sequence, scores, scratch)?
                }
            };
            let Some((token, log_p)) = chosen else {
                self.memory.alive[slot] = 0;
                finish = Finish::Exhausted;
                continue;
            };
            let m = &mut self.memory;
            let len = m.len[s] as usize;
            m.history[slot * target + len] = token;
            m.sequence_len[slot] = len as u32 + 1;
            m.score[slot] += log_p.unwrap_or(0.0);
            m.parent[slot] = row;
            if self.options.eos.contains(&token) && !forced {
                m.alive[slot] = 0;
            } else if len as u32 + 1 == m.max_len[s] {
                m.alive[slot] = 0;
                finish = Finish::Length;
            }
            let event = Token {
                sequence: sequence as u32,
                index: len as u32 - m.prompt_len[s],
                id: token,
                log_probability: log_p,
            };
            if Self::emit(on_token, s, event) {
                self.end(s, Finish::Stopped);
                return Ok(());
            }
        }
        self.memory.len[s] += 1;
        if !self.memory.alive[slots].contains(&1) {
            self.end(s, finish);
        }
        Ok(())
    }

    /// Copies the prompt to every sequence and assigns the first row to it.
    fn share_prompt(&mut self, s: usize) {
        let (width, target, m) = (self.shape.width, self.shape.target, &mut self.memory);
        let prompt = m.prompt_len[s] as usize;
        let start = s * width * target;
        for slot in s * width..(s + 1) * width {
            m.history.copy_within(start..start + prompt, slot * target);
            m.row[slot] = m.first_row[s];
            m.alive[slot] = 1;
        }
    }

    fn process_sequence(
        &mut self,
        s: usize,
        slot: usize,
        scores: &mut [f32],
        hooks: &mut Hooks<'_>,
    ) -> Result<(), SearchError> {
        let (view, scratch) = self.split();
        let (context, pipeline) = (view.context(s, slot), view.pipeline(s));
        pipeline.restrict(&context, scores, scratch, hooks)?;
        if hooks.allowed.is_some() && argmax(scores).is_none() {
            pipeline.restore_allowed(&context, scores, hooks)?;
        }
        pipeline.shape(&context, scores, scratch, hooks)
    }

    /// The token that greedy search chooses without reading scores: the forced token, or `best`. `Some(None)` if
    /// all forced tokens are banned, `None` if the scores are needed.
    fn known(&self, s: usize, best: u32) -> Option<Option<u32>> {
        self.forced(s, self.memory.len[s]).or_else(|| (best != UNDECIDED).then_some(Some(best)))
    }
}
