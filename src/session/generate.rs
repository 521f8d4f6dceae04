//! The decoding loop: a [`Search`] says what to feed, the session computes,
//! sentences come in as slots become free.

use super::encode::SOURCES_PER_CALL;
use super::error::SessionError;
use super::plan::Plan;
use super::screening::Stepped;
use super::session::Session;
use super::slots::Sentence;
use crate::memory::{Buffer, cut, words_mut};
use crate::model::tap::NoTap;
use crate::search::{Finish, Hooks, Hypothesis, Request, Search, SearchOptions};

/// One sentence to translate.
#[derive(Clone, Copy, Debug, Default)]
pub struct Source<'s> {
    /// Ids of the source, end token included.
    pub tokens: &'s [u32],
    /// Prefix, random stream and target language.
    pub request: Request<'s>,
}

impl<'s> Source<'s> {
    /// A sentence without special wishes.
    pub const fn new(tokens: &'s [u32]) -> Self {
        Self { tokens, request: Request { prefix: &[], stream: 0, forced_bos: None } }
    }
}

/// A sentence that is done.
pub struct Generated<'g, 'o> {
    /// Index of the sentence in the sources.
    pub source: usize,
    search: &'g Search<'o>,
    slot: u32,
}

impl Generated<'_, '_> {
    /// The hypotheses, best first.
    pub fn hypotheses(&self) -> impl ExactSizeIterator<Item = Hypothesis<'_>> {
        self.search.hypotheses(self.slot)
    }

    /// Why it ended.
    pub fn finish(&self) -> Option<Finish> {
        self.search.finish(self.slot)
    }
}

/// What a call of [`Session::generate`] did.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Counts {
    /// Steps of the decoder.
    pub steps: usize,
    /// Rows of all steps: tokens fed.
    pub rows: usize,
}

impl Session<'_> {
    /// Translates `sources` under `options`, calling `done` for each sentence as it finishes. More
    /// sources than the session has slots wait their turn: a slot that becomes free is filled before
    /// the next step, and what a sentence becomes does not depend on its neighbours.
    ///
    /// Forgets all sentences and hypotheses that the session held. Allocates nothing.
    ///
    /// # Errors
    /// Options or sources beyond the plan, ids outside the vocabulary, an empty source: then nothing
    /// has been done. A prefix that does not fit, or an error of a processor: then sentences that were
    /// done before have been reported.
    pub fn generate(
        &mut self,
        sources: &[Source<'_>],
        options: &SearchOptions,
        hooks: &mut Hooks<'_>,
        done: &mut dyn FnMut(&Generated<'_, '_>),
    ) -> Result<Counts, SessionError> {
        for (index, source) in sources.iter().enumerate() {
            self.check_source(index, source.tokens)?;
        }
        // The search's memory leaves the session while both are at work.
        let lent = core::mem::replace(&mut self.search, Buffer::nothing());
        let mut loan = Loan { session: self, lent, begun: false };
        let memory = cut_search_memory(&loan.session.plan, &mut loan.lent)?;
        let mut drive = Drive::new(loan.session, options, memory)?;
        loan.begun = true;
        drive.session.clear();
        drive.run(sources, hooks, done)
    }
}

/// The search's memory outside its session. It goes back in the end, also when a callback panics.
struct Loan<'l, 's> {
    session: &'l mut Session<'s>,
    lent: Buffer<'s>,
    /// The session holds sentences of the search.
    begun: bool,
}

impl Drop for Loan<'_, '_> {
    fn drop(&mut self) {
        core::mem::swap(&mut self.session.search, &mut self.lent);
        if self.begun {
            self.session.clear();
        }
    }
}

fn cut_search_memory<'m>(
    plan: &Plan,
    lent: &'m mut Buffer<'_>,
) -> Result<Memory<'m>, SessionError> {
    let [search, now, before, children, source_of, sentence_of, first_row] = cut(
        lent,
        [
            &plan.search_words,
            &plan.search_now,
            &plan.search_before,
            &plan.search_children,
            &plan.search_source,
            &plan.search_sentence,
            &plan.search_first_row,
        ],
    )?;
    Ok(Memory {
        search: words_mut(search),
        now: words_mut(now),
        before: words_mut(before),
        children: words_mut(children),
        source_of: words_mut(source_of),
        sentence_of: words_mut(sentence_of),
        first_row: words_mut(first_row),
    })
}

/// No source.
const NONE: u32 = u32::MAX;

/// What the loop remembers, in planned memory.
struct Memory<'m> {
    search: &'m mut [u32],
    /// Row slots of the search's rows, in this step and the one before.
    now: &'m mut [u32],
    before: &'m mut [u32],
    /// How often each row of the step before is continued.
    children: &'m mut [u32],
    /// For each slot of the search: which source is in it, and the session's slots for it.
    source_of: &'m mut [u32],
    sentence_of: &'m mut [u32],
    first_row: &'m mut [u32],
}

struct Drive<'d, 's, 'm> {
    session: &'d mut Session<'s>,
    search: Search<'m>,
    now: &'m mut [u32],
    before: &'m mut [u32],
    children: &'m mut [u32],
    source_of: &'m mut [u32],
    sentence_of: &'m mut [u32],
    first_row: &'m mut [u32],
}

impl<'d, 's, 'm> Drive<'d, 's, 'm> {
    fn new(
        session: &'d mut Session<'s>,
        options: &'m SearchOptions,
        memory: Memory<'m>,
    ) -> Result<Self, SessionError> {
        let Memory { search, now, before, children, source_of, sentence_of, first_row } = memory;
        let search = Search::new(options, &session.plan.search, search)?;
        source_of.fill(NONE);
        Ok(Self { session, search, now, before, children, source_of, sentence_of, first_row })
    }

    fn run(
        &mut self,
        sources: &[Source<'_>],
        hooks: &mut Hooks<'_>,
        done: &mut dyn FnMut(&Generated<'_, '_>),
    ) -> Result<Counts, SessionError> {
        let mut counts = Counts::default();
        let mut next = 0;
        loop {
            while next < sources.len() {
                let admitted = self.admit(sources, next)?;
                if admitted == 0 {
                    break;
                }
                next += admitted;
            }
            let rows = self.search.rows().len();
            if rows == 0 {
                return Ok(counts);
            }
            self.place_rows()?;
            let (now, tokens) = (&self.now[..rows], self.search.rows().tokens);
            let row = |i| (now[i], tokens[i]);
            if self.search.wants_best(hooks) {
                let bans = self.search.bans();
                let banned = |row, token| bans.banned(row, token);
                let Stepped { best, logits } = self.session.step_slots_best(rows, row, &banned)?;
                self.search.advance_best(best, logits, hooks)?;
            } else {
                let logits = self.session.step_slots(rows, row, &mut NoTap)?;
                self.search.advance(logits, hooks)?;
            }
            counts.steps += 1;
            counts.rows += rows;
            self.drop_rows(rows)?;
            self.report(done)?;
        }
    }

    /// Encodes as many sources from `next` on as there is room for; returns how many.
    fn admit(&mut self, sources: &[Source<'_>], next: usize) -> Result<usize, SessionError> {
        let limits = self.session.plan.limits;
        let mut group: [&[u32]; SOURCES_PER_CALL] = [&[]; SOURCES_PER_CALL];
        let mut slots = [Sentence::default(); SOURCES_PER_CALL];
        let (mut count, mut tokens) = (0, 0);
        let room = self.session.free_sentences().min(SOURCES_PER_CALL);
        for source in sources[next..].iter().take(room) {
            let len = source.tokens.len();
            if tokens + len > limits.batch_tokens {
                break;
            }
            group[count] = source.tokens;
            tokens += len;
            count += 1;
        }
        self.session.encode(&group[..count], &mut slots[..count])?;
        for (i, &sentence) in slots[..count].iter().enumerate() {
            let slot = self.search.admit(&sources[next + i].request)?;
            let row = self.session.start_slot(sentence.slot())?;
            if let [prompt @ .., _] = self.search.prompt(slot)
                && !prompt.is_empty()
            {
                self.session.prefill(self.session.row_in(row), prompt, None)?;
                self.search.skip_prompt(slot)?;
            }
            self.source_of[slot as usize] = (next + i) as u32;
            self.sentence_of[slot as usize] = sentence.slot();
            self.first_row[slot as usize] = row;
        }
        Ok(count)
    }

    /// Gives every row of the search a row slot: the first child of a row keeps its slot, the others
    /// fork it.
    fn place_rows(&mut self) -> Result<(), SessionError> {
        const TAKEN: u32 = u32::MAX;
        let rows = self.search.rows();
        for i in 0..rows.len() {
            let parent = rows.parents[i];
            self.now[i] = if parent == u32::MAX {
                self.first_row[rows.sentences[i] as usize]
            } else {
                let row = self.before[parent as usize];
                let children = &mut self.children[parent as usize];
                if *children == TAKEN {
                    self.session.fork_slot(row)?
                } else {
                    *children = TAKEN;
                    row
                }
            };
        }
        Ok(())
    }

    /// Releases the rows that nobody continues.
    fn drop_rows(&mut self, stepped: usize) -> Result<(), SessionError> {
        core::mem::swap(&mut self.now, &mut self.before);
        self.children[..stepped].fill(0);
        for &parent in self.search.rows().parents {
            if parent != u32::MAX {
                self.children[parent as usize] += 1;
            }
        }
        for i in 0..stepped {
            if self.children[i] == 0 {
                self.session.release_slot(self.before[i])?;
            }
        }
        Ok(())
    }

    /// Reports and forgets the sentences that are done.
    fn report(&mut self, done: &mut dyn FnMut(&Generated<'_, '_>)) -> Result<(), SessionError> {
        for slot in 0..self.source_of.len() {
            let source = self.source_of[slot];
            if source == NONE || self.search.finish(slot as u32).is_none() {
                continue;
            }
            let search = &self.search;
            done(&Generated { source: source as usize, search, slot: slot as u32 });
            self.search.release(slot as u32)?;
            self.session.release_sentence_slot(self.sentence_of[slot]);
            self.source_of[slot] = NONE;
        }
        Ok(())
    }
}
