//! The limits of a search, the check of its options against them, once, before the first step, and errors of a search.

use super::logits_processors::is_end_token;
use super::options::{BeamOptions, SearchOptions, SettingFields as _, Strategy};
use crate::error::{Error, ErrorValue};

/// The largest search that fits into the planned memory. All numbers except `end_tokens` and `source_tokens`
/// are at least 1.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct SearchLimits {
    /// Maximum number of sentences at the same time.
    pub sentences: usize,
    /// Maximum number of rows of one sentence: beams, or samples.
    pub sequences: usize,
    /// Maximum number of tokens in a target, decoder start and prefix included. The last one is never fed.
    pub max_target_length: usize,
    /// Scores in a row: the size of the target vocabulary.
    pub vocabulary: usize,
    /// Maximum number of end tokens of one search. Beam search examines more candidates if there are more of them.
    pub end_tokens: usize,
    /// Maximum number of tokens of a source, for options that read it; 0 if no option does.
    pub source_tokens: usize,
}

/// The option `setting` is `found`, and the limit of this name and value allows at most `most`.
pub(super) fn beyond(
    setting: &'static str,
    limit: (&'static str, usize),
    most: usize,
    found: usize,
) -> Error {
    let (limit, expected) = (Some(limit), ErrorValue::at_most(most));
    Error::BeyondLimit { index: None, operand: setting, limit, expected, found }
}

/// The slice of this name has another length.
pub(super) fn wrong_length(slice: &'static str, expected: usize, found: usize) -> Error {
    Error::invalid_input(slice, ErrorValue::new(&"length {}", [expected, 0]), found)
}

/// The memory of this name has fewer words of 4 bytes.
pub(super) fn too_few_words(operand: &'static str, expected: usize, found: usize) -> Error {
    Error::invalid_input(operand, ErrorValue::new(&"{} words", [expected, 0]), found)
}

/// The sentence in slot `found` is not as `expected`.
pub(super) const fn wrong_state(expected: &'static str, found: u32) -> Error {
    Error::InvalidHandle { operand: "sentence", expected, found, state: "is not" }
}

fn at_least_one(setting: &'static str, found: usize) -> Result<(), Error> {
    if found == 0 {
        Err(Error::invalid_option(setting, ErrorValue::at_least(1), found))
    } else {
        Ok(())
    }
}

fn at_most(setting: &'static str, most: usize, found: usize) -> Result<(), Error> {
    if found > most {
        Err(Error::invalid_option(setting, ErrorValue::at_most(most), found))
    } else {
        Ok(())
    }
}

/// As [`at_most`], where the limit `limit` gives the maximum.
fn within(
    limit: (&'static str, usize),
    setting: &'static str,
    most: usize,
    found: usize,
) -> Result<(), Error> {
    if found > most { Err(beyond(setting, limit, most, found)) } else { Ok(()) }
}

fn empty(setting: &'static str) -> Error {
    Error::invalid_option(setting, "at least one token", "an empty sequence")
}

pub(super) fn tokens(setting: &'static str, vocabulary: usize, ids: &[u32]) -> Result<(), Error> {
    match ids.iter().find(|&&id| id as usize >= vocabulary) {
        Some(&found) => Err(Error::token(setting, None, vocabulary, found)),
        None => Ok(()),
    }
}

impl SearchLimits {
    pub(super) fn validate(&self) -> Result<(), Error> {
        at_least_one("sentences", self.sentences)?;
        at_least_one("sequences", self.sequences)?;
        at_least_one("vocabulary", self.vocabulary)?;
        at_least_one("max_target_length", self.max_target_length)
    }
}

impl SearchOptions {
    /// Checks every setting against the limits, as [`Search::new`](super::Search::new) does.
    ///
    /// # Errors
    /// Returns an error for the first setting that is out of range or with which no search could begin or end
    /// ([`Error::InvalidOption`], [`Error::Token`]), or that exceeds the limits ([`Error::BeyondLimit`]).
    pub fn validate(&self, limits: &SearchLimits) -> Result<(), Error> {
        limits.validate()?;
        let vocabulary = limits.vocabulary;
        let sequences = self.num_return_sequences;
        self.check_ranges()?;
        match &self.strategy {
            Strategy::Greedy => at_most("num_return_sequences", 1, sequences)?,
            Strategy::Beam(beam) => {
                beam.validate(sequences, vocabulary)?;
                within(("sequences", limits.sequences), "beams", limits.sequences, beam.beams)?;
            }
            Strategy::Sample(sample) => {
                sample.check_ranges()?;
                within(
                    ("sequences", limits.sequences),
                    "num_return_sequences",
                    limits.sequences,
                    sequences,
                )?;
            }
        }
        within(("end_tokens", limits.end_tokens), "eos", limits.end_tokens, self.eos.len())?;
        let target = limits.max_target_length;
        let limit = ("max_target_length", target);
        if let Some(most) = self.max_new_tokens {
            // The decoder start takes one token. `Search::admit` checks the length of the prefix.
            if self.max_length.is_none() {
                within(limit, "max_new_tokens", target.saturating_sub(1), most)?;
            }
        }
        if let Some(found) = self.max_length {
            if found < 2 {
                let least = ErrorValue::new(&"at least {}, the decoder start and a token", [2, 0]);
                return Err(Error::invalid_option("max_length", least, found));
            }
            within(limit, "max_length", target, found)?;
        }
        if self.eos.is_empty() && !self.set_a_length() {
            let expected = "end tokens (eos), max_new_tokens or max_length";
            return Err(Error::invalid_option("eos", expected, "none"));
        }
        self.validate_tokens(vocabulary)?;
        if all_banned(self, vocabulary) {
            let expected = "a token that may be chosen";
            return Err(Error::invalid_option("suppress", expected, "all suppressed"));
        }
        Ok(())
    }

    fn validate_tokens(&self, vocabulary: usize) -> Result<(), Error> {
        if self.start == Self::NO_START {
            return Err(Error::invalid_option(
                "start",
                "the token that the decoder reads first (decoder_start_token_id in the configuration)",
                "none",
            ));
        }
        tokens("start", vocabulary, &[self.start])?;
        tokens("eos", vocabulary, &self.eos)?;
        tokens("forced_bos", vocabulary, self.forced_bos.as_slice())?;
        tokens("forced_eos", vocabulary, &self.forced_eos)?;
        tokens("suppress", vocabulary, &self.suppress)?;
        tokens("begin_suppress", vocabulary, &self.begin_suppress)?;
        for word in &self.bad_words {
            if word.is_empty() {
                return Err(empty("bad_words"));
            }
            tokens("bad_words", vocabulary, word)?;
        }
        for (entry, (sequence, bias)) in self.sequence_bias.iter().enumerate() {
            if sequence.is_empty() {
                return Err(empty("sequence_bias"));
            }
            tokens("sequence_bias", vocabulary, sequence)?;
            if bias.is_nan() || *bias == f32::INFINITY {
                let expected = ErrorValue::in_range("below +inf");
                return Err(Error::invalid_option("sequence_bias", expected, f64::from(*bias)));
            }
            if self.sequence_bias[..entry].iter().any(|(earlier, _)| earlier == sequence) {
                let found = ErrorValue::new(&"entry {}, which repeats an earlier one", [entry, 0]);
                return Err(Error::invalid_option("sequence_bias", "one bias per sequence", found));
            }
        }
        Ok(())
    }
}

impl BeamOptions {
    fn validate(&self, sequences: usize, vocabulary: usize) -> Result<(), Error> {
        self.check_ranges()?;
        at_most("beams", vocabulary, self.beams)?;
        at_most("num_return_sequences", self.beams, sequences)?;
        if !self.beams.is_multiple_of(self.groups) {
            let expected = ErrorValue::new(&"groups that divide {} beams", [self.beams, 0]);
            return Err(Error::invalid_option("groups", expected, self.groups));
        }
        if let Some(sample) = &self.sample {
            sample.check_ranges()?;
            if self.groups > 1 {
                let expected = "1 group of beams for beam sampling";
                return Err(Error::invalid_option("groups", expected, self.groups));
            }
        }
        Ok(())
    }
}

/// Whether the rules that apply at every step ban every token of `vocabulary`.
fn all_banned(options: &SearchOptions, vocabulary: usize) -> bool {
    /// Tokens that are checked in one pass over the rules.
    const BLOCK: usize = 4096;
    let biased = options.sequence_bias.iter().filter(|entry| entry.1 == f32::NEG_INFINITY);
    let bad = options.bad_words.iter().filter(|word| !is_end_token(word, &options.eos));
    let sequences = biased.map(|entry| &entry.0).chain(bad);
    let single = sequences.filter(|sequence| sequence.len() == 1).flatten();
    let banned = single.chain(&options.suppress);
    if banned.clone().count() < vocabulary {
        return false;
    }
    (0..vocabulary).step_by(BLOCK).all(|start| {
        let mut seen = [0u64; BLOCK / 64];
        for &token in banned.clone() {
            if let Some(bit) = (token as usize).checked_sub(start).filter(|&bit| bit < BLOCK) {
                seen[bit / 64] |= 1 << (bit % 64);
            }
        }
        let count: u32 = seen.iter().map(|word| word.count_ones()).sum();
        count as usize == BLOCK.min(vocabulary - start)
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn all_banned_counts_every_token_once() {
        for vocabulary in [1, 63, 64, 4096, 4097, 9000] {
            let all: Vec<u32> = (0..vocabulary).collect();
            let vocabulary = vocabulary as usize;
            let with = |suppress: Vec<u32>, bad_words| {
                let options = SearchOptions { suppress, bad_words, ..SearchOptions::default() };
                all_banned(&options, vocabulary)
            };
            assert!(with(all.clone(), vec![]));
            assert!(!with(all[1..].to_vec(), vec![]));
            assert!(with(all[1..].to_vec(), vec![vec![0]]));
            // `vocabulary` entries, one of them twice, and a word of two tokens.
            let last = vocabulary - 1;
            let twice = [&all[..last], &all[..last.min(1)]].concat();
            assert!(!with(twice, vec![]), "{vocabulary}");
            assert!(!with(all[1..].to_vec(), vec![vec![0, 0]]));
        }
    }
}
