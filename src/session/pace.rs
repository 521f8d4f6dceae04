//! How much to guess: as long as guesses are right, twice as much; once they are wrong, one more than was
//! right; and after one that was all wrong, a rest, twice as long as the last.
//!
//! A token of a draft costs a row of a pass, which is cheap while a pass reads all weights for few rows, and
//! as dear as a step where many rows live. So drafts are for a few rows, and the useless ones soon become
//! rare.

/// Tokens of the first draft.
const FIRST: u32 = 4;

/// Steps of the longest rest.
const LONGEST_REST: u32 = 31;

/// Rows beyond which nobody drafts.
pub(super) const MOST_ROWS: usize = 4;

/// What is remembered of one sentence's drafts.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Pace {
    /// Tokens of the next draft, at most.
    size: u32,
    /// Steps to go without.
    rest: u32,
    /// Steps of the last rest, if no draft was right since.
    last_rest: u32,
}

impl Pace {
    /// Words of planned memory that it takes.
    pub(super) const WORDS: usize = 3;

    pub(super) const fn begin() -> Self {
        Self { size: FIRST, rest: 0, last_rest: 0 }
    }

    pub(super) const fn of_words([size, rest, last_rest]: [u32; Self::WORDS]) -> Self {
        Self { size, rest, last_rest }
    }

    pub(super) const fn words(self) -> [u32; Self::WORDS] {
        [self.size, self.rest, self.last_rest]
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
    pub(super) fn came_to(&mut self, accepted: usize, drafted: usize) {
        self.size = match accepted {
            all if all == drafted => self.size.saturating_mul(2),
            some => some as u32 + 1,
        };
        self.last_rest = if accepted > 0 { 0 } else { (2 * self.last_rest + 1).min(LONGEST_REST) };
        self.rest = self.last_rest;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_right_grows_and_what_is_wrong_rests() {
        let mut pace = Pace::begin();
        for size in [4, 8, 16] {
            assert_eq!(pace.next(), size);
            pace.came_to(size, size);
        }
        assert_eq!(pace.next(), 32);
        pace.came_to(2, 32);
        assert_eq!(pace.next(), 3);
        // Of 200 steps few are spent on what is always wrong, whatever its words are kept in.
        let mut drafted = 0;
        for _ in 0..200 {
            pace = Pace::of_words(pace.words());
            let size = pace.next();
            if size > 0 {
                pace.came_to(0, size);
                drafted += size;
            }
        }
        assert!((5..15).contains(&drafted), "{drafted}");
    }
}
