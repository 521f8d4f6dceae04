//! Greedy search and sampling: every sequence of a sentence goes its own way.

use super::best::UNDECIDED;
use super::error::SearchError;
use super::filters::{draw, most_probable};
use super::logits::{argmax, below_infinity};
use super::options::Strategy;
use super::pipeline::{Hooks, OnToken, Pipeline, Token};
use super::processors::Context;
use super::random::uniform;
use super::search::{Finish, NONE, Search};

impl Search<'_> {
    /// One token for each live sequence of sentence `s`; `rows` holds the scores of the sentence's rows, unless
    /// `best` has their tokens.
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
        // An end token that had to come says nothing about the sentence.
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
            if row != processed && known.is_none() {
                self.process_sequence(s, slot, scores, hooks)?;
                processed = row;
            }
            let chosen = match known {
                Some(token) => token.map(|token| (token, None)),
                None => self.choose(s, sequence, scores)?,
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

    /// Gives every sequence the prompt and the first row.
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
        let m = &mut self.memory;
        let len = m.len[s] as usize;
        let context = Context {
            sentence: s as u32,
            source: &m.source[s * self.shape.source..][..m.source_len[s] as usize],
            history: &m.history[slot * self.shape.target..][..len],
            prompt_len: m.prompt_len[s] as usize,
            max_length: m.max_len[s] as usize,
        };
        let forced_bos = (m.forced_bos[s] != NONE).then_some(m.forced_bos[s]);
        let pipeline = Pipeline { options: self.options, forced_bos };
        pipeline.restrict(&context, scores, m.scratch, hooks)?;
        if hooks.allowed.is_some() && argmax(scores).is_none() {
            pipeline.insist(&context, scores, hooks)?;
        }
        pipeline.shape(&context, scores, m.scratch, hooks)?;
        if !below_infinity(scores) {
            return Err(SearchError::NotFinite { sentence: s as u32, position: len });
        }
        Ok(())
    }

    /// What greedy search takes without looking at scores, if it is `best` or forced: a token, or none
    /// because all are banned.
    fn known(&self, s: usize, best: u32) -> Option<Option<u32>> {
        self.forced(s, self.memory.len[s]).or_else(|| (best != UNDECIDED).then_some(Some(best)))
    }

    /// The token and its log-probability, if that is wanted; `None` if all are banned.
    fn choose(
        &mut self,
        s: usize,
        sequence: usize,
        scores: &[f32],
    ) -> Result<Option<(u32, Option<f32>)>, SearchError> {
        let m = &mut self.memory;
        if let Strategy::Sample(sample) = &self.options.strategy {
            let stream = u64::from(m.stream_low[s]) | u64::from(m.stream_high[s]) << 32;
            let step = m.len[s] - m.prompt_len[s];
            let uniform = uniform(sample.seed, stream, sequence as u32, step);
            let drawn = draw(scores, uniform, m.scratch)?;
            return Ok(drawn.map(|(token, log_p)| (token as u32, Some(log_p))));
        }
        if !self.scored() {
            return Ok(argmax(scores).map(|token| (token as u32, None)));
        }
        Ok(most_probable(scores).map(|(token, log_p)| (token as u32, Some(log_p))))
    }
}
