//! The settings of a search. They are validated once, before the first step.

use super::SearchError;
use super::random::uniform;

/// When beam search stops searching for better hypotheses. `early_stopping` of transformers.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum EarlyStopping {
    /// When the number of finished hypotheses equals the number of beams. `true` in `generation_config.json`.
    WhenFull,
    /// When the best open beam, scored at its present length, does not exceed the worst finished hypothesis.
    /// `false` in `generation_config.json`.
    #[default]
    Heuristic,
    /// As `Heuristic`, but with a positive length penalty the open beam is scored at the maximum length. `"never"`
    /// in `generation_config.json`.
    Never,
}

/// Beam search, with the semantics of transformers 5.23. [`SearchOptions::validate`] checks the ranges.
///
/// The default is 4 beams in one group, a length penalty of 1, [`EarlyStopping::Heuristic`], no diversity penalty, no
/// sampling.
#[derive(Clone, Debug, PartialEq)]
pub struct BeamOptions {
    /// Number of beams per sentence, over all groups: at least 1, at most the vocabulary and
    /// [`SearchLimits::sequences`].
    pub beams: usize,
    /// A hypothesis of `n` generated tokens (the end token included) scores `sum log p / n^length_penalty`.
    /// In [-100, 100].
    pub length_penalty: f64,
    /// When to stop.
    pub early_stopping: EarlyStopping,
    /// Groups of diverse beam search; 1 is plain beam search. Must divide `beams`.
    pub groups: usize,
    /// Subtracted from a token's log-probability for every beam of an earlier group that chose the token in this
    /// step, after all processors (Vijayakumar et al. 2016, Hamming diversity). Finite, at least 0.
    pub diversity_penalty: f64,
    /// Beam sampling: continuations are sampled without replacement, with the probability of the whole hypothesis,
    /// instead of taking the best ones. The filters leave each beam at least one token more than there are end
    /// tokens, and at least two tokens. Only with one group. `None` is beam search.
    pub sample: Option<SampleOptions>,
}

impl Default for BeamOptions {
    fn default() -> Self {
        Self {
            beams: 4,
            length_penalty: 1.0,
            early_stopping: EarlyStopping::Heuristic,
            groups: 1,
            diversity_penalty: 0.0,
            sample: None,
        }
    }
}

/// Random sampling. Filters apply in the order of the fields; `None` disables a filter.
/// [`SearchOptions::validate`] checks the ranges.
///
/// The default is seed 0, a temperature of 1 and no filter.
#[derive(Clone, Debug, PartialEq)]
pub struct SampleOptions {
    /// Key of the random generator; see [`Request::stream`](super::Request::stream).
    pub seed: u64,
    /// Scores are divided by this number before the other filters ([`Temperature`](super::Temperature)). Finite and
    /// above 0, also as f32. With the lowest values only the best token remains, or all tokens with the best score.
    pub temperature: f64,
    /// Keeps the most probable of the hundred best tokens, while their entropy is at most this share of the entropy
    /// of the hundred ([`TopH`](super::TopH)). In (0, 1].
    pub top_h: Option<f64>,
    /// Keeps the k best scores, including ties of the k-th ([`TopK`](super::TopK)). At least 1.
    pub top_k: Option<usize>,
    /// Keeps the most probable tokens whose total probability is this mass ([`TopP`](super::TopP)). In (0, 1].
    pub top_p: Option<f64>,
    /// Keeps tokens with at least this fraction of the best token's probability ([`MinP`](super::MinP)). In [0, 1].
    pub min_p: Option<f64>,
    /// Keeps the tokens whose surprise `-ln p` is closest to the entropy, up to this total mass
    /// ([`Typical`](super::Typical)). In (0, 1].
    pub typical: Option<f64>,
    /// Keeps tokens with at least this probability ([`Epsilon`](super::Epsilon)). In (0, 1).
    pub epsilon: Option<f64>,
    /// Keeps tokens above an entropy-dependent cutoff ([`Eta`](super::Eta)). In (0, 1).
    pub eta: Option<f64>,
}

impl Default for SampleOptions {
    fn default() -> Self {
        Self {
            seed: 0,
            temperature: 1.0,
            top_h: None,
            top_k: None,
            top_p: None,
            min_p: None,
            typical: None,
            epsilon: None,
            eta: None,
        }
    }
}

/// How the next token is chosen.
#[derive(Clone, Debug, Default, PartialEq)]
pub enum Strategy {
    /// The token with the best score; the lowest id if several have it.
    #[default]
    Greedy,
    /// Beam search, or beam sampling; see [`BeamOptions::sample`].
    Beam(BeamOptions),
    /// A random token of the processed distribution.
    Sample(SampleOptions),
}

/// All settings that decide which tokens are generated. The default is greedy search with every rule disabled.
///
/// The default has no end token and no maximum length. A search that cannot end is an error, so set one of
/// `eos`, `max_new_tokens` and `max_length`. [`Config::search_options`](crate::config::Config::search_options)
/// returns the settings of a checkpoint.
///
/// Numbers are `f64` as in a configuration file; they are rounded to `f32` where transformers 5.23, the
/// reference, rounds them. Lengths are in tokens of the target.
///
/// ```
/// use simdformer::search::{BeamOptions, SearchLimits, SearchOptions, Strategy};
///
/// let options = SearchOptions {
///     strategy: Strategy::Beam(BeamOptions { beams: 4, ..BeamOptions::default() }),
///     eos: vec![0],
///     no_repeat_ngram: Some(3),
///     ..SearchOptions::default()
/// };
/// let limits = SearchLimits {
///     sentences: 1,
///     sequences: 2,
///     source_tokens: 32,
///     max_target_length: 64,
///     vocabulary: 1000,
///     end_tokens: 1,
/// };
/// let refused = options.validate(&limits).unwrap_err();
/// assert_eq!(
///     refused.to_string(),
///     "beams: expected at most 2, which the limit sequences holds, found 4"
/// );
/// assert_eq!(options.validate(&SearchLimits { sequences: 4, ..limits }), Ok(()));
/// ```
#[derive(Clone, Debug, PartialEq)]
pub struct SearchOptions {
    /// The strategy that chooses tokens.
    pub strategy: Strategy,
    /// Number of sequences to return per sentence: 1 for greedy search, at most the beams for beam search, any
    /// number for sampling.
    pub num_return_sequences: usize,
    /// Maximum number of tokens after the prompt, the end token included, at least 1. Without `max_length` it must fit the
    /// limits: a value from [`SearchLimits::max_target_length`] on is an error. With `max_length`, which must fit the limits
    /// itself, any value is valid, and the smaller of the two applies. The default is `None`.
    ///
    /// If this and `max_length` are `None`, the limits give the maximum length. A target that reaches it finishes
    /// with [`Finish::Length`](super::Finish::Length). Without end tokens this combination is an error
    /// ([`SearchError::NoEnd`]).
    pub max_new_tokens: Option<usize>,
    /// Maximum number of tokens in total, decoder start and prefix included, at least 2. The smaller of this and
    /// `max_new_tokens` applies. A value beyond [`SearchLimits::max_target_length`] is an error. The default is `None`.
    pub max_length: Option<usize>,
    /// End tokens are banned until the target has this many tokens in total, decoder start and prefix included.
    pub min_length: usize,
    /// End tokens are banned until this many tokens follow the prompt.
    pub min_new_tokens: usize,
    /// The first token of every target (`pad` in Marian, `eos` in M2M100), or [`NO_START`](Self::NO_START), which
    /// every search rejects. The default is 0.
    pub start: u32,
    /// The tokens that end a sequence. May be empty if `max_new_tokens` or `max_length` is set.
    pub eos: Vec<u32>,
    /// Biases for the last token of a sequence, added if the tokens before it end the history. Sequences are not
    /// empty and all different; biases are below `+inf`.
    pub sequence_bias: Vec<(Vec<u32>, f32)>,
    /// Divides positive scores of tokens already in the target and multiplies negative ones (Keskar et al. 2019).
    /// Finite, above 0; 1 disables it.
    pub repetition_penalty: f64,
    /// No n-gram of this size occurs twice. At least 1; `None` disables it.
    pub no_repeat_ngram: Option<usize>,
    /// Multiplies positive scores of tokens of the source and divides negative ones, so that a value above 1 favors
    /// tokens of the source. For vocabularies that source and target share. 1 disables it.
    pub encoder_repetition_penalty: f64,
    /// No n-gram of this size of the source occurs in the target. For vocabularies that source and target share.
    /// `None` disables it.
    pub encoder_no_repeat_ngram: Option<usize>,
    /// Forbidden token sequences, none of them empty. A sequence that consists of one end token is ignored.
    pub bad_words: Vec<Vec<u32>>,
    /// The token that must follow the decoder start if there is no prefix.
    pub forced_bos: Option<u32>,
    /// The tokens of which one must come last when `max_new_tokens` or `max_length` is reached; the sentence then
    /// finishes with [`Finish::Length`](super::Finish::Length). Empty disables it. If only the limits end the
    /// target, no end token is forced.
    pub forced_eos: Vec<u32>,
    /// Replaces NaN by 0 and infinities by the largest finite numbers.
    pub remove_invalid: bool,
    /// `(start, factor)`: from `start` tokens after the prompt the end token's score grows by
    /// `|score| * (factor^n - 1)`, where `n` counts the tokens after `start`. The factor is finite and above 0.
    pub exponential_decay: Option<(usize, f64)>,
    /// Forbidden tokens.
    pub suppress: Vec<u32>,
    /// Tokens that are forbidden at the first position after the prompt, or after the forced token if there is one.
    pub begin_suppress: Vec<u32>,
    /// Applies log-softmax to the scores again, after all processors.
    pub renormalize: bool,
    /// Greedy search: also compute the log-probabilities of tokens and hypotheses. This needs all logits of a step.
    /// Without it, the best token takes about a quarter of the work; see
    /// [`Search::needs_argmax_only`](super::Search::needs_argmax_only). The tokens are the same. Beam search and
    /// sampling always compute scores. The default is `true`; without it, hypotheses of greedy search have a score of 0.
    pub scores: bool,
}

impl Default for SearchOptions {
    fn default() -> Self {
        Self {
            strategy: Strategy::Greedy,
            num_return_sequences: 1,
            max_new_tokens: None,
            max_length: None,
            min_length: 0,
            min_new_tokens: 0,
            start: 0,
            eos: Vec::new(),
            sequence_bias: Vec::new(),
            repetition_penalty: 1.0,
            no_repeat_ngram: None,
            encoder_repetition_penalty: 1.0,
            encoder_no_repeat_ngram: None,
            bad_words: Vec::new(),
            forced_bos: None,
            forced_eos: Vec::new(),
            remove_invalid: false,
            exponential_decay: None,
            suppress: Vec::new(),
            begin_suppress: Vec::new(),
            renormalize: false,
            scores: true,
        }
    }
}

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

fn number(
    setting: &'static str,
    expected: &'static str,
    found: f64,
    holds: bool,
) -> Result<(), SearchError> {
    if holds { Ok(()) } else { Err(SearchError::Number { setting, expected, found }) }
}

fn at_least_one(setting: &'static str, found: usize) -> Result<(), SearchError> {
    if found == 0 { Err(SearchError::Zero { setting }) } else { Ok(()) }
}

fn at_most(setting: &'static str, most: usize, found: usize) -> Result<(), SearchError> {
    if found > most {
        Err(SearchError::TooMany { setting, expected_at_most: most, found })
    } else {
        Ok(())
    }
}

/// As [`at_most`], where the limit `limit` gives the maximum.
fn within(
    limit: &'static str,
    setting: &'static str,
    most: usize,
    found: usize,
) -> Result<(), SearchError> {
    if found > most {
        Err(SearchError::BeyondLimit { setting, limit, expected_at_most: most, found })
    } else {
        Ok(())
    }
}

pub(super) fn tokens(
    setting: &'static str,
    vocabulary: usize,
    ids: &[u32],
) -> Result<(), SearchError> {
    match ids.iter().find(|&&id| id as usize >= vocabulary) {
        Some(&found) => Err(SearchError::Token { setting, vocabulary, found }),
        None => Ok(()),
    }
}

impl SearchLimits {
    pub(super) fn validate(&self) -> Result<(), SearchError> {
        at_least_one("sentences", self.sentences)?;
        at_least_one("sequences", self.sequences)?;
        at_least_one("vocabulary", self.vocabulary)?;
        at_least_one("max_target_length", self.max_target_length)
    }
}

impl SearchOptions {
    /// The value of [`start`](Self::start) for a configuration without a decoder start. If the caller does not
    /// replace it, the search returns [`SearchError::NoStart`]. It is outside every vocabulary.
    pub const NO_START: u32 = u32::MAX;

    /// Rows of one sentence that these options need: 1, the number of beams, or the number of samples.
    #[must_use]
    pub fn sequences(&self) -> usize {
        match &self.strategy {
            Strategy::Greedy => 1,
            Strategy::Beam(beam) => beam.beams,
            Strategy::Sample(_) => self.num_return_sequences,
        }
    }

    /// The sampling options, if any, and the minimum number of tokens that the filters leave. In beam sampling the
    /// minimum includes one token that is not an end token.
    pub(super) fn drawn(&self) -> Option<(&SampleOptions, usize)> {
        match &self.strategy {
            Strategy::Greedy => None,
            Strategy::Beam(beam) => {
                beam.sample.as_ref().map(|sample| (sample, (self.eos.len() + 1).max(2)))
            }
            Strategy::Sample(sample) => Some((sample, 1)),
        }
    }

    /// Whether sequences have scores.
    pub(super) fn scored(&self) -> bool {
        self.scores || !matches!(self.strategy, Strategy::Greedy)
    }

    /// Whether a rule of these options reads the source.
    pub(super) fn reads_source(&self) -> bool {
        self.encoder_repetition_penalty != 1.0 || self.encoder_no_repeat_ngram.is_some()
    }

    /// Whether these options set a maximum length (otherwise the limits give it).
    pub(crate) fn set_a_length(&self) -> bool {
        self.max_new_tokens.is_some() || self.max_length.is_some()
    }

    /// Checks every setting against the limits, as [`Search::new`](super::Search::new) does.
    ///
    /// # Errors
    /// Returns an error for the first setting that is out of range: [`SearchError::Zero`], [`SearchError::Number`],
    /// [`SearchError::TooMany`], [`SearchError::Groups`], [`SearchError::Token`], [`SearchError::EmptySequence`],
    /// [`SearchError::DuplicateBias`]; for one that exceeds the limits: [`SearchError::BeyondLimit`]; and for
    /// settings with which no search could end or begin: [`SearchError::NoEnd`], [`SearchError::NoStart`],
    /// [`SearchError::NoSpace`], [`SearchError::EverythingSuppressed`].
    pub fn validate(&self, limits: &SearchLimits) -> Result<(), SearchError> {
        limits.validate()?;
        let vocabulary = limits.vocabulary;
        let sequences = self.num_return_sequences;
        at_least_one("num_return_sequences", sequences)?;
        match &self.strategy {
            Strategy::Greedy => at_most("num_return_sequences", 1, sequences)?,
            Strategy::Beam(beam) => {
                beam.validate(sequences, vocabulary)?;
                within("sequences", "beams", limits.sequences, beam.beams)?;
            }
            Strategy::Sample(sample) => {
                sample.validate()?;
                within("sequences", "num_return_sequences", limits.sequences, sequences)?;
            }
        }
        within("end_tokens", "eos", limits.end_tokens, self.eos.len())?;
        let target = limits.max_target_length;
        if let Some(most) = self.max_new_tokens {
            at_least_one("max_new_tokens", most)?;
            // The decoder start takes one token. `Search::admit` checks the length of the prefix.
            if self.max_length.is_none() {
                within("max_target_length", "max_new_tokens", target.saturating_sub(1), most)?;
            }
        }
        if let Some(found) = self.max_length {
            if found < 2 {
                return Err(SearchError::NoSpace { found });
            }
            within("max_target_length", "max_length", target, found)?;
        }
        if self.eos.is_empty() && !self.set_a_length() {
            return Err(SearchError::NoEnd);
        }
        if let Some(size) = self.no_repeat_ngram {
            at_least_one("no_repeat_ngram", size)?;
        }
        if let Some(size) = self.encoder_no_repeat_ngram {
            at_least_one("encoder_no_repeat_ngram", size)?;
        }
        for (setting, penalty) in [
            ("repetition_penalty", self.repetition_penalty),
            ("encoder_repetition_penalty", self.encoder_repetition_penalty),
        ] {
            let usable = |narrow: f32| narrow.is_finite() && narrow > 0.0;
            let usable = usable(penalty as f32) && usable((1.0 / penalty) as f32);
            number(setting, "above 0 and finite", penalty, usable)?;
        }
        if let Some((_, factor)) = self.exponential_decay {
            number(
                "exponential_decay",
                "above 0 and finite",
                factor,
                factor.is_finite() && factor > 0.0,
            )?;
        }
        self.validate_tokens(vocabulary)?;
        if all_banned(self, vocabulary) {
            return Err(SearchError::EverythingSuppressed);
        }
        Ok(())
    }

    fn validate_tokens(&self, vocabulary: usize) -> Result<(), SearchError> {
        if self.start == Self::NO_START {
            return Err(SearchError::NoStart);
        }
        tokens("start", vocabulary, &[self.start])?;
        tokens("eos", vocabulary, &self.eos)?;
        tokens("forced_bos", vocabulary, self.forced_bos.as_slice())?;
        tokens("forced_eos", vocabulary, &self.forced_eos)?;
        tokens("suppress", vocabulary, &self.suppress)?;
        tokens("begin_suppress", vocabulary, &self.begin_suppress)?;
        for word in &self.bad_words {
            if word.is_empty() {
                return Err(SearchError::EmptySequence { setting: "bad_words" });
            }
            tokens("bad_words", vocabulary, word)?;
        }
        for (entry, (sequence, bias)) in self.sequence_bias.iter().enumerate() {
            if sequence.is_empty() {
                return Err(SearchError::EmptySequence { setting: "sequence_bias" });
            }
            tokens("sequence_bias", vocabulary, sequence)?;
            number("sequence_bias", "below +inf", f64::from(*bias), *bias < f32::INFINITY)?;
            if self.sequence_bias[..entry].iter().any(|(earlier, _)| earlier == sequence) {
                return Err(SearchError::DuplicateBias { entry });
            }
        }
        Ok(())
    }
}

impl BeamOptions {
    fn validate(&self, sequences: usize, vocabulary: usize) -> Result<(), SearchError> {
        at_least_one("beams", self.beams)?;
        at_least_one("groups", self.groups)?;
        at_most("beams", vocabulary, self.beams)?;
        at_most("num_return_sequences", self.beams, sequences)?;
        if !self.beams.is_multiple_of(self.groups) {
            return Err(SearchError::Groups { beams: self.beams, groups: self.groups });
        }
        if let Some(sample) = &self.sample {
            sample.validate()?;
            if self.groups > 1 {
                return Err(SearchError::SampledGroups { groups: self.groups });
            }
        }
        number(
            "length_penalty",
            "in [-100, 100]",
            self.length_penalty,
            self.length_penalty.abs() <= 100.0,
        )?;
        let penalty = self.diversity_penalty;
        number(
            "diversity_penalty",
            "of at least 0 and finite",
            penalty,
            penalty >= 0.0 && (penalty as f32).is_finite(),
        )
    }
}

impl SampleOptions {
    /// The uniform number in [0, 1) from which token `index` of sample `sequence` is drawn, both from 0, in the random stream
    /// `stream`: the first token, in the order of ids, at which the sum of the probabilities exceeds it. Beam search draws
    /// continuation `sequence` of step `index` from it.
    #[must_use]
    pub fn draw(&self, stream: u64, sequence: u32, index: u32) -> f64 {
        uniform(self.seed, stream, sequence, index)
    }

    fn validate(&self) -> Result<(), SearchError> {
        let narrow = self.temperature as f32;
        number(
            "temperature",
            "above 0 (0 is greedy search) and finite",
            self.temperature,
            narrow.is_finite() && narrow > 0.0,
        )?;
        if let Some(k) = self.top_k {
            at_least_one("top_k", k)?;
        }
        for (setting, value) in
            [("top_h", self.top_h), ("top_p", self.top_p), ("typical", self.typical)]
        {
            if let Some(mass) = value {
                number(setting, "in (0, 1]", mass, mass > 0.0 && mass <= 1.0)?;
            }
        }
        if let Some(min_p) = self.min_p {
            number("min_p", "in [0, 1]", min_p, (0.0..=1.0).contains(&min_p))?;
        }
        for (setting, value) in [("epsilon", self.epsilon), ("eta", self.eta)] {
            if let Some(cutoff) = value {
                number(setting, "in (0, 1)", cutoff, cutoff > 0.0 && cutoff < 1.0)?;
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
    let bad = options
        .bad_words
        .iter()
        .filter(|word| !matches!(word[..], [id] if options.eos.contains(&id)));
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
