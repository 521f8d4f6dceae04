//! The draft length. It doubles when all tokens are accepted. Otherwise it becomes the larger of half the length and
//! one more than the accepted tokens. After the second draft in a row without an accepted token, drafting pauses; each
//! further miss makes the pause longer.
//!
//! A draft token costs one row of a pass. Such a row is cheap while a pass reads all weights for few rows. With many
//! rows it costs as much as a row of a step. Drafts are therefore made for few rows only, and useless drafts soon
//! become rare.

use crate::session::DRAFT_LENGTH_WORDS;

/// Tokens of the first draft.
const INITIAL: u32 = 4;

/// Maximum count of misses: the longest pause is 31 steps.
const MAX_MISSES: u32 = 6;

/// Maximum number of rows with drafts.
pub(crate) const MOST_ROWS: usize = 4;

/// The state of one sentence.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct DraftLength {
    /// Maximum number of tokens of the next draft.
    size: u32,
    /// Steps without drafts that are left.
    pause: u32,
    /// Drafts since the last one whose first token was accepted.
    misses: u32,
}

impl DraftLength {
    pub(crate) const fn begin() -> Self {
        Self { size: INITIAL, pause: 0, misses: 0 }
    }

    pub(crate) const fn of_words([size, pause, misses]: [u32; DRAFT_LENGTH_WORDS]) -> Self {
        Self { size, pause, misses }
    }

    pub(crate) const fn words(self) -> [u32; DRAFT_LENGTH_WORDS] {
        [self.size, self.pause, self.misses]
    }

    /// The maximum number of draft tokens in this step.
    pub(crate) fn next(&mut self) -> usize {
        if self.pause > 0 {
            self.pause -= 1;
            return 0;
        }
        self.size as usize
    }

    /// Updates the length after a draft of at least one token.
    pub(crate) fn record(&mut self, accepted: usize, drafted: usize) {
        self.size = match accepted {
            all if all == drafted => self.size.saturating_mul(2),
            some => (some as u32 + 1).max(self.size.min(drafted as u32) / 2),
        };
        self.misses = if accepted > 0 { 0 } else { (self.misses + 1).min(MAX_MISSES) };
        // 0, 0, 1, 3, 7, ...
        self.pause = ((1_u32 << self.misses) / 2).saturating_sub(1);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn accepted_drafts_grow_and_rejected_drafts_pause() {
        let mut length = DraftLength::begin();
        for size in [4, 8, 16] {
            assert_eq!(length.next(), size);
            length.record(size, size);
        }
        assert_eq!(length.next(), 32);
        length.record(2, 32);
        assert_eq!(length.next(), 16);
        length.record(9, 16);
        assert_eq!(length.next(), 10);
        // If every draft is rejected, few of 200 steps have one. Each step converts the state to words and back.
        let mut drafted = 0;
        for _ in 0..200 {
            length = DraftLength::of_words(length.words());
            let size = length.next();
            if size > 0 {
                length.record(0, size);
                drafted += size;
            }
        }
        assert!((10..40).contains(&drafted), "{drafted}");
    }
}
