//! How much to guess: as long as guesses are right, twice as much; once they are wrong, half as much, or one
//! more than was right; and after the second that was all wrong, a rest, and a longer one after each more.
//!
//! A token of a draft costs a row of a pass, which is cheap while a pass reads all weights for few rows, and
//! as dear as a step where many rows live. So drafts are for a few rows, and the useless ones soon become
//! rare.

/// Tokens of the first draft.
const FIRST: u32 = 4;

/// Misses that are counted: the longest rest is one of 31 steps.
const MOST_MISSES: u32 = 6;

/// Rows beyond which nobody drafts.
pub(super) const MOST_ROWS: usize = 4;

/// What is remembered of one sentence's drafts.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct DraftLength {
    /// Tokens of the next draft, at most.
    size: u32,
    /// Steps to go without.
    rest: u32,
    /// Drafts since the last that was right in its first token.
    misses: u32,
}

impl DraftLength {
    /// Words of planned memory that it takes.
    pub(super) const WORDS: usize = 3;

    pub(super) const fn begin() -> Self {
        Self { size: FIRST, rest: 0, misses: 0 }
    }

    pub(super) const fn of_words([size, rest, misses]: [u32; Self::WORDS]) -> Self {
        Self { size, rest, misses }
    }

    pub(super) const fn words(self) -> [u32; Self::WORDS] {
        [self.size, self.rest, self.misses]
    }

    /// The most tokens to guess in this step.
    pub(super) fn next(&mut self) -> usize {
        if self.rest > 0 {
            self.rest -= 1;
            return 0;
        }
        self.size as usize
    }

    /// Learns from a draft, which had at least one token.
    pub(super) fn record(&mut self, accepted: usize, drafted: usize) {
        self.size = match accepted {
            all if all == drafted => self.size.saturating_mul(2),
            some => (some as u32 + 1).max(self.size.min(drafted as u32) / 2),
        };
        self.misses = if accepted > 0 { 0 } else { (self.misses + 1).min(MOST_MISSES) };
        // None, none, 1, 3, 7 and so on.
        self.rest = ((1_u32 << self.misses) / 2).saturating_sub(1);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_right_grows_and_what_is_wrong_rests() {
        let mut pace = DraftLength::begin();
        for size in [4, 8, 16] {
            assert_eq!(pace.next(), size);
            pace.record(size, size);
        }
        assert_eq!(pace.next(), 32);
        pace.record(2, 32);
        assert_eq!(pace.next(), 16);
        pace.record(9, 16);
        assert_eq!(pace.next(), 10);
        // Of 200 steps few are spent on what is always wrong, whatever its words are kept in.
        let mut drafted = 0;
        for _ in 0..200 {
            pace = DraftLength::of_words(pace.words());
            let size = pace.next();
            if size > 0 {
                pace.record(0, size);
                drafted += size;
            }
        }
        assert!((10..40).contains(&drafted), "{drafted}");
    }
}
