//! The rows of a step: which token is fed after which row of the step before.

use super::hooks::Hooks;
use super::search::{ACTIVE, NONE, Search};

/// The input of one row of a step: `token` at `position`, as the continuation of row `parent` of the previous
/// step.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct RowInput {
    /// The slot of the sentence, as [`Search::admit`] returned it.
    pub sentence: u32,
    /// The token to feed.
    pub token: u32,
    /// Index into the rows of the previous step; `None` on a sentence's first row.
    pub parent: Option<u32>,
    /// The position of the token in the target: 0 for the decoder start.
    pub position: u32,
}

/// The rows of one step, each slice `[rows]`; the rows of a sentence are adjacent.
#[derive(Clone, Copy, Debug)]
pub struct Rows<'s> {
    /// Tokens to feed.
    pub tokens: &'s [u32],
    /// Sentence slots.
    pub sentences: &'s [u32],
    /// Indices into the rows of the previous step; `u32::MAX` on a sentence's first row.
    pub parents: &'s [u32],
    /// Positions in the target.
    pub positions: &'s [u32],
}

impl<'s> Rows<'s> {
    /// The number of rows.
    #[must_use]
    pub fn len(&self) -> usize {
        self.tokens.len()
    }

    /// True if every admitted sentence is finished.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.tokens.is_empty()
    }

    /// Iterates over the rows in the order of the logits. If the caller built slices of different lengths, the
    /// iterator ends with the shortest.
    pub fn iter(&self) -> impl ExactSizeIterator<Item = RowInput> + use<'s> {
        let Self { tokens, sentences, parents, positions } = *self;
        tokens.iter().zip(sentences).zip(parents).zip(positions).map(
            |(((&token, &sentence), &parent), &position)| RowInput {
                sentence,
                token,
                parent: (parent != NONE).then_some(parent),
                position,
            },
        )
    }
}

impl Search<'_> {
    /// The rows to compute now. Empty if every admitted sentence is finished.
    #[must_use]
    pub fn rows(&self) -> Rows<'_> {
        let m = &self.memory;
        Rows {
            tokens: &m.row_token[..self.rows],
            sentences: &m.row_sentence[..self.rows],
            parents: &m.row_parent[..self.rows],
            positions: &m.row_position[..self.rows],
        }
    }

    /// Makes the rows of the next step.
    pub(super) fn make_rows(&mut self) {
        (self.rows, self.scored_rows, self.prepared) = (0, 0, false);
        self.memory.draft_len.fill(0);
        for s in 0..self.limits.sentences {
            self.memory.row_count[s] = 0;
            if self.memory.phase[s] == ACTIVE {
                self.add_rows(s);
            }
        }
    }

    /// Puts the rows of the sentences that need only the best token last, in a step in which others need logits. Only
    /// before a draft of the step.
    pub(crate) fn group_rows(&mut self, hooks: &Hooks<'_>) {
        let lines = self.lines_with_logits(hooks);
        if lines == 0 || lines == self.scored_rows {
            return;
        }
        (self.rows, self.scored_rows) = (0, 0);
        for last in [false, true] {
            for s in 0..self.limits.sentences {
                let argmax_only = self.slots[s].need_argmax_only() && hooks.is_empty();
                if self.memory.row_count[s] > 0 && argmax_only == last {
                    self.add_rows(s);
                }
            }
        }
    }

    /// Lines of logits: a row, or a token of a draft.
    pub(crate) fn lines(&self) -> usize {
        self.scored_rows
    }

    /// Lines of logits (a row, or a token of a draft) of sentences that need more than the best token. After
    /// [`Self::group_rows`], they are the first.
    pub(crate) fn lines_with_logits(&self, hooks: &Hooks<'_>) -> usize {
        let m = &self.memory;
        let lines = m.row_count.iter().zip(&*m.draft_len).zip(&self.slots);
        let lines = lines.filter(|((rows, _), options)| {
            **rows > 0 && !(options.need_argmax_only() && hooks.is_empty())
        });
        lines.map(|((rows, drafted), _)| (rows + drafted) as usize).sum()
    }

    /// Appends the rows of a sentence. All sequences share one row until their first token is chosen.
    pub(super) fn add_rows(&mut self, s: usize) {
        let target = self.limits.max_target_length;
        let slots = self.slot(s).sequences();
        let m = &mut self.memory;
        let last = m.len[s] as usize - 1;
        m.first_row[s] = self.rows as u32;
        for slot in slots {
            if m.alive[slot] == 1 {
                let row = self.rows;
                m.row[slot] = row as u32;
                m.row_sentence[row] = s as u32;
                m.row_token[row] = m.history[slot * target + last];
                m.row_parent[row] = m.parent[slot];
                m.row_position[row] = last as u32;
                m.row_start[row] = self.scored_rows as u32;
                self.rows += 1;
                self.scored_rows += 1;
            }
        }
        m.row_count[s] = self.rows as u32 - m.first_row[s];
    }
}
