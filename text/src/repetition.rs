//! Runaway repetition: an output that repeats itself instead of ending.

/// Why an output looks like runaway repetition. The tokens are those of the text: the caller leaves out the tokens that
/// begin and end a sequence.
///
/// ```
/// use simdformer_text::Repetition;
/// let looping = [5, 8, 9, 8, 9, 8, 9, 8, 9, 8, 9, 8, 9];
/// assert_eq!(Repetition::find_in(10, &looping), Some(Repetition::Loop { start: 1, period: 2, times: 6 }));
/// assert_eq!(Repetition::find_in(10, &[5, 8, 9, 8, 9, 3]), None);
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Repetition {
    /// From token `start` on, the same `period` tokens stand `times` times one after the other.
    Loop {
        /// The first token of the first time.
        start: usize,
        /// The number of tokens that repeat.
        period: usize,
        /// How often they stand there completely.
        times: usize,
    },
    /// Less than two fifths of the n-grams of four tokens are different: phrases return, with something else in between.
    Ngrams {
        /// Different n-grams.
        distinct: usize,
        /// All n-grams.
        total: usize,
    },
    /// The output is far longer than its source.
    Length {
        /// Tokens of the source.
        source: usize,
        /// Tokens of the output.
        target: usize,
    },
}

/// The longest period that is searched.
const MAX_PERIOD: usize = 64;
/// From this period on, a phrase that stands twice may be a loop.
const PHRASE: usize = 8;
/// The tokens of an n-gram.
const NGRAM: usize = 4;
/// An output with fewer n-grams is not judged by them.
const MIN_NGRAMS: usize = 32;
/// An output of more than `LENGTH_FACTOR * source + LENGTH_OFFSET` tokens is too long. A sentence of a language that a
/// vocabulary covers badly takes up to four times the tokens of the other language.
const LENGTH_FACTOR: usize = 5;
const LENGTH_OFFSET: usize = 32;

impl Repetition {
    /// Whether `ids`, the output for a source of `source_len` tokens, repeats itself.
    ///
    /// The time is linear in the number of tokens, but for sorting their n-grams.
    #[must_use]
    pub fn find_in(source_len: usize, ids: &[u32]) -> Option<Self> {
        let most = ids.len().min(2 * MAX_PERIOD) / 2;
        (1..=most)
            .find_map(|period| find_loop(source_len, ids, period))
            .or_else(|| repeated_ngrams(ids))
            .or_else(|| {
                let most = source_len.saturating_mul(LENGTH_FACTOR).saturating_add(LENGTH_OFFSET);
                let length = Self::Length { source: source_len, target: ids.len() };
                (ids.len() > most).then_some(length)
            })
    }
}

/// How often tokens must follow each other to be a loop: `ha ha ha ha` is none, and neither is `000 000 000`.
fn least_times(period: usize) -> usize {
    match period {
        1 => 8,
        2 => 6,
        3 => 5,
        4..PHRASE => 4,
        _ => 3,
    }
}

/// The first loop with this period.
fn find_loop(source_len: usize, ids: &[u32], period: usize) -> Option<Repetition> {
    let mut start = 0;
    while start + period < ids.len() {
        let equal = ids[start + period..].iter().zip(&ids[start..]).take_while(|(a, b)| a == b);
        let covered = equal.count() + period;
        let times = covered / period;
        let twice = period >= PHRASE && times == 2 && covered > source_len.saturating_mul(2);
        if times >= least_times(period) || twice {
            return Some(Repetition::Loop { start, period, times });
        }
        start += covered - period + 1;
    }
    None
}

fn repeated_ngrams(ids: &[u32]) -> Option<Repetition> {
    let mut ngrams: Vec<&[u32]> = ids.windows(NGRAM).collect();
    let total = ngrams.len();
    if total < MIN_NGRAMS {
        return None;
    }
    ngrams.sort_unstable();
    ngrams.dedup();
    let distinct = ngrams.len();
    (distinct * 5 < total * 2).then_some(Repetition::Ngrams { distinct, total })
}
