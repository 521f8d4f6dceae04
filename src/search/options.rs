//! The settings of a search: plain data, checked once before the first step.

use super::SearchError;
use super::logits::argmax;

/// When beam search stops looking for better hypotheses.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum EarlyStopping {
    /// As soon as there are as many finished hypotheses as beams.
    True,
    /// When the best open beam, scored at its present length, cannot beat the worst finished one.
    #[default]
    False,
    /// As `False`, but with a positive length penalty the open beam is scored at the longest length.
    Never,
}

/// Beam search, in the semantics of transformers 5.
#[derive(Clone, Debug, PartialEq)]
pub struct BeamOptions {
    /// Hypotheses kept per sentence, over all groups.
    pub beams: usize,
    /// A hypothesis of `n` generated tokens (the end token included) scores `sum log p / n^length_penalty`.
    pub length_penalty: f64,
    /// When to stop.
    pub early_stopping: EarlyStopping,
    /// Groups of diverse beam search; 1 is plain beam search. Must divide `beams`.
    pub groups: usize,
    /// Taken off a token's log-probability for every beam of an earlier group that chose it in this
    /// step, after all processors (Vijayakumar et al. 2016, Hamming diversity).
    pub diversity_penalty: f64,
}

impl Default for BeamOptions {
    fn default() -> Self {
        Self {
            beams: 4,
            length_penalty: 1.0,
            early_stopping: EarlyStopping::False,
            groups: 1,
            diversity_penalty: 0.0,
        }
    }
}

/// Random sampling. Filters apply in the order of the fields.
#[derive(Clone, Debug, PartialEq)]
pub struct SampleOptions {
    /// Key of the random generator; see [`Request::stream`](super::Request::stream).
    pub seed: u64,
    /// Scores are divided by this first. Finite, above 0.
    pub temperature: f64,
    /// Keep the k best scores, ties of the k-th included.
    pub top_k: Option<usize>,
    /// Keep the most probable tokens that together hold this mass. In (0, 1].
    pub top_p: Option<f64>,
    /// Keep tokens at least this fraction as probable as the best. In [0, 1].
    pub min_p: Option<f64>,
    /// Keep the tokens of most typical surprise that together hold this mass. In (0, 1].
    pub typical: Option<f64>,
    /// Keep tokens at least this probable. In (0, 1).
    pub epsilon: Option<f64>,
    /// Keep tokens above an entropy-dependent cutoff. In (0, 1).
    pub eta: Option<f64>,
}

impl Default for SampleOptions {
    fn default() -> Self {
        Self {
            seed: 0,
            temperature: 1.0,
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
    /// The best score, the lowest id where several are best.
    #[default]
    Greedy,
    /// The best sequences that a beam of prefixes finds.
    Beam(BeamOptions),
    /// A draw from the processed distribution.
    Sample(SampleOptions),
}

/// Everything that decides which tokens come out. The default is greedy, with every rule off.
///
/// Numbers are `f64` as in a configuration file; they are rounded to `f32` where the reference does.
#[derive(Clone, Debug, PartialEq)]
pub struct SearchOptions {
    /// How tokens are chosen.
    pub strategy: Strategy,
    /// Sequences wanted per sentence: 1 for greedy, at most the beams, any number of samples.
    pub num_return: usize,
    /// Most tokens after the prompt, the end token included. `None`: only the other limits count.
    pub max_new_tokens: Option<usize>,
    /// Most tokens in all, decoder start and prefix included. The smaller of both limits counts.
    pub max_length: Option<usize>,
    /// No end token before this many tokens in all, decoder start and prefix included.
    pub min_length: usize,
    /// No end token before this many tokens after the prompt.
    pub min_new_tokens: usize,
    /// The token that every target starts from (`pad` in Marian, `eos` in M2M100).
    pub start: u32,
    /// The tokens that end a sequence. May be empty.
    pub eos: Vec<u32>,
    /// Added to the score of a sequence's last token where the rest of it has just been produced.
    pub sequence_bias: Vec<(Vec<u32>, f32)>,
    /// Scores of tokens already in the target: divided by this when positive, multiplied when
    /// negative (Keskar et al. 2019). 1 is off.
    pub repetition_penalty: f64,
    /// No n-gram of this size comes twice. `None` is off.
    pub no_repeat_ngram: Option<usize>,
    /// Token sequences that must not come. A sequence that is only an end token is ignored.
    pub bad_words: Vec<Vec<u32>>,
    /// The token that must come directly after the decoder start, when there is no prefix.
    pub forced_bos: Option<u32>,
    /// The tokens one of which must come last when the longest length is reached. Empty is off.
    pub forced_eos: Vec<u32>,
    /// Replace NaN by 0 and infinities by the largest finite numbers.
    pub remove_invalid: bool,
    /// `(start, factor)`: from `start` tokens after the prompt the end token's score grows by
    /// `|score| * (factor^n - 1)`.
    pub exponential_decay: Option<(usize, f64)>,
    /// Tokens that must not come.
    pub suppress: Vec<u32>,
    /// Tokens that must not come first.
    pub begin_suppress: Vec<u32>,
    /// Normalize the scores again after all processors.
    pub renormalize: bool,
    /// Greedy search: also compute how probable tokens and hypotheses are. It takes all logits of a
    /// step; without, the best token is found with about a quarter of the work, see
    /// [`Search::wants_best`](super::Search::wants_best). The tokens are the same. Beams and samples
    /// always have scores.
    pub scores: bool,
}

impl Default for SearchOptions {
    fn default() -> Self {
        Self {
            strategy: Strategy::Greedy,
            num_return: 1,
            max_new_tokens: None,
            max_length: None,
            min_length: 0,
            min_new_tokens: 0,
            start: 0,
            eos: Vec::new(),
            sequence_bias: Vec::new(),
            repetition_penalty: 1.0,
            no_repeat_ngram: None,
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

/// The largest search that planned memory must hold.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct SearchLimits {
    /// Sentences at a time.
    pub sentences: usize,
    /// Rows of one sentence: beams, or samples.
    pub sequences: usize,
    /// Tokens in a target, decoder start and prefix included. The last one is never fed.
    pub max_target_length: usize,
    /// Scores in a row.
    pub vocabulary: usize,
    /// Different end tokens: with more of them beam search looks at more candidates.
    pub end_tokens: usize,
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
    /// Rows of one sentence that these options need.
    #[must_use]
    pub fn sequences(&self) -> usize {
        match &self.strategy {
            Strategy::Greedy => 1,
            Strategy::Beam(beam) => beam.beams,
            Strategy::Sample(_) => self.num_return,
        }
    }

    /// Checks every setting against the limits.
    ///
    /// `row` is scratch of `limits.vocabulary` scores.
    ///
    /// # Errors
    /// The first setting found to be out of range.
    pub(super) fn validate(
        &self,
        limits: &SearchLimits,
        row: &mut [f32],
    ) -> Result<(), SearchError> {
        limits.validate()?;
        let vocabulary = limits.vocabulary;
        at_least_one("num_return", self.num_return)?;
        match &self.strategy {
            Strategy::Greedy => at_most("num_return", 1, self.num_return)?,
            Strategy::Beam(beam) => beam.validate(self.num_return, vocabulary)?,
            Strategy::Sample(sample) => sample.validate()?,
        }
        at_most("sequences", limits.sequences, self.sequences())?;
        at_most("eos", limits.end_tokens, self.eos.len())?;
        if let Some(most) = self.max_new_tokens {
            at_least_one("max_new_tokens", most)?;
        }
        if let Some(most) = self.max_length {
            at_least_one("max_length", most)?;
        }
        if let Some(size) = self.no_repeat_ngram {
            at_least_one("no_repeat_ngram", size)?;
        }
        let penalty = self.repetition_penalty;
        let narrow = penalty as f32;
        number(
            "repetition_penalty",
            "finite, above 0",
            penalty,
            narrow.is_finite() && narrow > 0.0,
        )?;
        if let Some((_, factor)) = self.exponential_decay {
            number(
                "exponential_decay",
                "finite, above 0",
                factor,
                factor.is_finite() && factor > 0.0,
            )?;
        }
        self.validate_tokens(vocabulary)?;
        if all_banned(self, row) {
            return Err(SearchError::EverythingSuppressed);
        }
        Ok(())
    }

    fn validate_tokens(&self, vocabulary: usize) -> Result<(), SearchError> {
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
    fn validate(&self, num_return: usize, vocabulary: usize) -> Result<(), SearchError> {
        at_least_one("beams", self.beams)?;
        at_least_one("groups", self.groups)?;
        at_most("beams", vocabulary, self.beams)?;
        at_most("num_return", self.beams, num_return)?;
        if !self.beams.is_multiple_of(self.groups) {
            return Err(SearchError::Groups { beams: self.beams, groups: self.groups });
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
            "finite, at least 0",
            penalty,
            penalty >= 0.0 && (penalty as f32).is_finite(),
        )
    }
}

impl SampleOptions {
    fn validate(&self) -> Result<(), SearchError> {
        let narrow = self.temperature as f32;
        number(
            "temperature",
            "finite, above 0",
            self.temperature,
            narrow.is_finite() && narrow > 0.0,
        )?;
        if let Some(k) = self.top_k {
            at_least_one("top_k", k)?;
        }
        for (setting, value) in [("top_p", self.top_p), ("typical", self.typical)] {
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

/// Whether the rules that hold at every step leave no token of `row.len()`; overwrites `row`.
fn all_banned(options: &SearchOptions, row: &mut [f32]) -> bool {
    row.fill(0.0);
    let biased = options.sequence_bias.iter().filter(|entry| entry.1 == f32::NEG_INFINITY);
    let bad = options
        .bad_words
        .iter()
        .filter(|word| !matches!(word[..], [id] if options.eos.contains(&id)));
    let sequences = biased.map(|entry| &entry.0).chain(bad);
    let single = sequences.filter(|sequence| sequence.len() == 1).flatten();
    for &token in single.chain(&options.suppress) {
        if let Some(score) = row.get_mut(token as usize) {
            *score = f32::NEG_INFINITY;
        }
    }
    argmax(row).is_none()
}
