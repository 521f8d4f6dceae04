//! The settings of a search, each declared once.
//!
//! A field with `=> key(..)` is a row of the table of settings: its key in `generation_config.json`, its range, the rule
//! that applies it, and its option of the command line and of Python with the help. [`Setting::all`] lists the rows. The
//! readers, the writer, the command, the Python package and the table in `docs/models.md` are made from them.

use super::random::uniform;
use super::setting_field::{COUNT, Field, NUMBER, Range, field, settings};
use super::timestamps::Timestamps;
use crate::error::Error;
use serde_json::Value;

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

settings! {
    /// Beam search, with the semantics of transformers 5.23. [`SearchOptions::validate`] checks the ranges.
    ///
    /// The default is 4 beams in one group, a length penalty of 1, [`EarlyStopping::Heuristic`], no diversity penalty, no
    /// sampling.
    pub struct BeamOptions in |settings| settings.beam, needs "beams" {
        /// Number of beams per sentence, over all groups: at least 1, at most the vocabulary and
        /// [`SearchLimits::sequences`](super::SearchLimits::sequences).
        pub beams: usize = 4
            => key("num_beams").within(Range::AT_LEAST_ONE)
            .called("beams", "N", "The number of beams; 1 is greedy search")
            .always();
        /// A hypothesis of `n` generated tokens (the end token included) scores `sum log p / n^length_penalty`.
        /// In [-100, 100].
        pub length_penalty: f64 = 1.0
            => key("length_penalty").within(Range::EXPONENT)
            .option("X", "Beams: the exponent of the length by which a score is divided");
        /// When to stop.
        pub early_stopping: EarlyStopping = EarlyStopping::Heuristic
            => key("early_stopping")
            .option("WHEN", "Beams: stop when there are enough finished hypotheses (true), by the heuristic of transformers (false), or never");
        /// Groups of diverse beam search; 1 is plain beam search. Must divide `beams`.
        pub groups: usize = 1
            => key("num_beam_groups").within(Range::AT_LEAST_ONE)
            .option("N", "Beams: the number of groups of diverse beam search");
        /// Subtracted from a token's log-probability for every beam of an earlier group that chose the token in this
        /// step, after all processors (Vijayakumar et al. 2016, Hamming diversity). Finite, at least 0.
        pub diversity_penalty: f64 = 0.0
            => key("diversity_penalty").within(Range::DIFFERENCE)
            .option("X", "Beams: what each beam of an earlier group that chose a token subtracts from its score");
        /// Beam sampling: continuations are sampled without replacement, with the probability of the whole hypothesis,
        /// instead of taking the best ones. The filters leave each beam at least one token more than there are end
        /// tokens, and at least two tokens. Only with one group. `None` is beam search.
        pub sample: Option<SampleOptions> = None;
    }
}

settings! {
    /// Random sampling. Filters apply in the order of the fields; `None` disables a filter.
    /// [`SearchOptions::validate`] checks the ranges.
    ///
    /// The default is seed 0, a temperature of 1 and no filter.
    pub struct SampleOptions in |settings| settings.sample, needs "sample" {
        /// Key of the random generator; see [`Request::stream`](super::Request::stream).
        pub seed: u64 = 0
            => Setting::NEW
            .called("seed", "N", "Samples: the seed of the random numbers; source i of the input draws from random stream i");
        /// Scores are divided by this number before the other filters. Finite and
        /// above 0, also as f32. With the lowest values only the best token remains, or all tokens with the best score.
        pub temperature: f64 = 1.0
            => key("temperature").within(Range::TEMPERATURE).rule("Temperature")
            .option("X", "Samples: divide the logits by X");
        /// Keeps the most probable of the hundred best tokens, while their entropy is at most this share of the entropy
        /// of the hundred. In (0, 1].
        pub top_h: Option<f64> = None
            => key("top_h").within(Range::MASS).rule("TopH")
            .option("X", "Samples: keep the most probable tokens, while their entropy is at most X times that of the best hundred");
        /// Keeps the k best scores, including ties of the k-th. At least 1.
        pub top_k: Option<usize> = None
            => key("top_k").off(0.0).within(Range::AT_LEAST_ONE).rule("TopK")
            .option("N", "Samples: keep the N most probable tokens; 0 keeps all");
        /// Keeps the most probable tokens whose total probability is this mass. In (0, 1].
        pub top_p: Option<f64> = None
            => key("top_p").off(1.0).within(Range::MASS).rule("TopP")
            .option("X", "Samples: keep the most probable tokens, up to the sum X of their probabilities");
        /// Keeps tokens with at least this fraction of the best token's probability. In [0, 1].
        pub min_p: Option<f64> = None
            => key("min_p").within(Range::SHARE).rule("MinP")
            .option("X", "Samples: keep tokens with at least X times the largest probability");
        /// Keeps the tokens whose surprise `-ln p` is closest to the entropy, up to this total mass.
        /// In (0, 1].
        pub typical: Option<f64> = None
            => key("typical_p").off(1.0).within(Range::MASS).rule("Typical")
            .option("X", "Samples: keep the tokens whose surprise is closest to the entropy, up to the sum X of their probabilities");
        /// Keeps tokens with at least this probability. In (0, 1).
        pub epsilon: Option<f64> = None
            => key("epsilon_cutoff").off(0.0).within(Range::CUTOFF).rule("Epsilon")
            .option("X", "Samples: keep tokens with at least the probability X; 0 keeps all");
        /// Keeps tokens above an entropy-dependent cutoff. In (0, 1).
        pub eta: Option<f64> = None
            => key("eta_cutoff").off(0.0).within(Range::CUTOFF).rule("Eta")
            .option("X", "Samples: keep tokens above a cutoff that depends on X and on the entropy; 0 keeps all");
    }
}

field!(
    EarlyStopping,
    "true, false or \"never\"",
    read | value
        | match value {
            Value::Bool(true) => Ok(Self::WhenFull),
            Value::Bool(false) => Ok(Self::Heuristic),
            Value::String(text) if text == "never" => Ok(Self::Never),
            other => Err(other),
        },
    write
        | stopping
        | match stopping {
            Self::WhenFull => true.into(),
            Self::Heuristic => false.into(),
            Self::Never => "never".into(),
        }
);

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

settings! {
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
    ///     "beams: expected at most 2 with `sequences` = 2, found 4"
    /// );
    /// assert_eq!(options.validate(&SearchLimits { sequences: 4, ..limits }), Ok(()));
    /// ```
    pub struct SearchOptions in |settings| settings.options, needs "" {
        /// The strategy that chooses tokens.
        pub strategy: Strategy = Strategy::Greedy;
        /// Number of sequences to return per sentence: 1 for greedy search, at most the beams for beam search, any
        /// number for sampling.
        pub num_return_sequences: usize = 1
            => key("num_return_sequences").within(Range::AT_LEAST_ONE);
        /// Maximum number of tokens after the prompt, the end token included, at least 1. Without `max_length` it must fit the
        /// limits: a value from [`SearchLimits::max_target_length`](super::SearchLimits::max_target_length) on is an
        /// error. With `max_length`, which must fit the limits
        /// itself, any value is valid, and the smaller of the two applies. The default is `None`.
        ///
        /// If this and `max_length` are `None`, the limits give the maximum length. A target that reaches it finishes
        /// with [`Finish::Length`](super::Finish::Length). Without end tokens this combination is an error
        /// ([`Error::InvalidOption`]).
        pub max_new_tokens: Option<usize> = None
            => key("max_new_tokens").within(Range::AT_LEAST_ONE)
            .option("N", "The maximum number of new tokens (max_length, bounded by the positions of the model)");
        /// Maximum number of tokens in total, decoder start and prefix included, at least 2. The smaller of this and
        /// `max_new_tokens` applies. A value beyond
        /// [`SearchLimits::max_target_length`](super::SearchLimits::max_target_length) is an error. The default is `None`.
        pub max_length: Option<usize> = None
            => key("max_length");
        /// End tokens are banned until the target has this many tokens in total, decoder start and prefix included.
        pub min_length: usize = 0
            => key("min_length").bans("MinLength");
        /// End tokens are banned until this many tokens follow the prompt.
        pub min_new_tokens: usize = 0
            => key("min_new_tokens").bans("MinNewTokens")
            .option("N", "The minimum number of new tokens");
        /// The first token of every target (`pad` in Marian, `eos` in M2M100), or [`NO_START`](Self::NO_START), which
        /// every search rejects. The default is 0.
        pub start: u32 = 0;
        /// The tokens that end a sequence. May be empty if `max_new_tokens` or `max_length` is set.
        pub eos: Vec<u32> = Vec::new();
        /// Biases for the last token of a sequence, added if the tokens before it end the history. Sequences are not
        /// empty and all different; biases are below `+inf`.
        pub sequence_bias: Vec<(Vec<u32>, f32)> = Vec::new()
            => key("sequence_bias").rule("SequenceBias");
        /// Divides positive scores of tokens already in the target and multiplies negative ones (Keskar et al. 2019).
        /// Finite, above 0; 1 disables it.
        pub repetition_penalty: f64 = 1.0
            => key("repetition_penalty").within(Range::PENALTY).rule("RepetitionPenalty")
            .option("X", "Divide the scores of tokens that were written before; 1 is off");
        /// No n-gram of this size occurs twice. At least 1; `None` disables it.
        pub no_repeat_ngram: Option<usize> = None
            => key("no_repeat_ngram_size").off(0.0).within(Range::AT_LEAST_ONE).bans("NoRepeatNgram")
            .option("N", "Never write an n-gram of N tokens twice; 0 is off");
        /// Multiplies positive scores of tokens of the source and divides negative ones, so that a value above 1 favors
        /// tokens of the source. For vocabularies that source and target share. 1 disables it.
        pub encoder_repetition_penalty: f64 = 1.0
            => key("encoder_repetition_penalty").within(Range::PENALTY).rule("SourcePenalty")
            .option("X", "Multiply the scores of tokens of the source; 1 is off");
        /// No n-gram of this size of the source occurs in the target. For vocabularies that source and target share.
        /// `None` disables it.
        pub encoder_no_repeat_ngram: Option<usize> = None
            => key("encoder_no_repeat_ngram_size").off(0.0).within(Range::AT_LEAST_ONE).bans("NoSourceNgram")
            .option("N", "Never write an n-gram of N tokens of the source; 0 is off");
        /// Forbidden token sequences, none of them empty. A sequence that consists of one end token is ignored.
        pub bad_words: Vec<Vec<u32>> = Vec::new()
            => key("bad_words_ids").bans("BadWords");
        /// The token that must follow the decoder start if there is no prefix.
        pub forced_bos: Option<u32> = None;
        /// The tokens of which one must come last when `max_new_tokens` or `max_length` is reached; the sentence then
        /// finishes with [`Finish::Length`](super::Finish::Length). Empty disables it. If only the limits end the
        /// target, no end token is forced.
        pub forced_eos: Vec<u32> = Vec::new();
        /// Replaces NaN by 0 and infinities by the largest finite numbers.
        pub remove_invalid: bool = false
            => key("remove_invalid_values").rule("RemoveInvalid");
        /// `(start, factor)`: from `start` tokens after the prompt the end token's score grows by
        /// `|score| * (factor^n - 1)`, where `n` counts the tokens after `start`. The factor is finite and above 0.
        pub exponential_decay: Option<(usize, f64)> = None
            => key("exponential_decay_length_penalty").within(Range::FACTOR).rule("ExponentialDecay");
        /// Forbidden tokens.
        pub suppress: Vec<u32> = Vec::new()
            => key("suppress_tokens").bans("Suppress");
        /// Tokens that are forbidden at the first position after the prompt, or after the forced token if there is one.
        pub begin_suppress: Vec<u32> = Vec::new()
            => key("begin_suppress_tokens").bans("BeginSuppress");
        /// The rule for timestamps of a transcription. `None` disables it.
        pub timestamps: Option<Timestamps> = None;
        /// Applies log-softmax to the scores again, after all processors.
        pub renormalize: bool = false
            => key("renormalize_logits").rule("Renormalize");
        /// Greedy search: also compute the log-probabilities of tokens and hypotheses. This needs all logits of a step.
        /// Without it, the best token takes about a quarter of the work; see
        /// [`Search::needs_argmax_only`](super::Search::needs_argmax_only). The tokens are the same. Beam search and
        /// sampling always compute scores. The default is `true`; without it, hypotheses of greedy search have a score of 0.
        pub scores: bool = true;
    }
}

settings! {
    /// Every setting, whatever the strategy is: what a `generation_config.json` says, and what the command line and Python
    /// change of it. [`search_options`](Self::search_options) makes the options of a search.
    ///
    /// The defaults are those of transformers for a missing key, except the maximum length, which is 20 there and the
    /// capacity of the session here. Token ids are in [`SpecialTokens`](crate::config::SpecialTokens).
    ///
    /// ```
    /// use simdformer::search::{Setting, Settings, Strategy};
    ///
    /// let mut settings = Settings::default();
    /// let beams = Setting::named("beams").expect("a setting");
    /// assert_eq!((beams.key, beams.default_text()), (Some("num_beams"), "1".to_owned()));
    /// beams.set_value(&mut settings, &4.into()).expect("a count");
    /// assert!(matches!(settings.search_options().strategy, Strategy::Beam(beam) if beam.beams == 4));
    /// assert_eq!(beams.set_value(&mut settings, &"four".into()).unwrap_err().0, "an integer of 0 or more");
    /// ```
    pub struct Settings in |settings| settings, needs "" {
        /// The settings of every strategy. [`strategy`](SearchOptions::strategy) is ignored: the other fields make it.
        pub options: SearchOptions = SearchOptions::default();
        /// The settings of beams; one beam is greedy search or sampling.
        pub beam: BeamOptions = BeamOptions { beams: 1, ..BeamOptions::default() };
        /// The settings of samples.
        pub sample: SampleOptions = SampleOptions { top_k: Some(50), ..SampleOptions::default() };
        /// Whether tokens are sampled; with more than one beam, beam sampling.
        pub do_sample: bool = false
            => key("do_sample")
            .called("sample", "", "Draw tokens at random, or, with beams, the continuations of beams");
    }
}

/// What [`settings`] makes of the rows of a struct.
pub(super) trait SettingFields {
    const ROWS: &'static [Setting];

    /// Checks the range of every number.
    fn check_ranges(&self) -> Result<(), Error>;

    /// Whether a rule is on that changes scores in another way than by banning tokens.
    fn change_scores(&self) -> bool;
}

/// A row of the table of settings.
#[derive(Clone, Copy, Debug)]
#[non_exhaustive]
pub struct Setting {
    /// Its field in [`SearchOptions`], [`BeamOptions`], [`SampleOptions`] or [`Settings`].
    pub field: &'static str,
    /// Its key in `generation_config.json`; `None` for the seed.
    pub key: Option<&'static str>,
    /// Its name on the command line, with `-` for `_`, and in Python; `None` if only a file sets it.
    pub name: Option<&'static str>,
    /// What its value is called in the help; empty for a flag.
    pub value_name: &'static str,
    /// What it does.
    pub help: &'static str,
    /// The name of the rule that applies it, as in [`Hooks`](super::Hooks).
    pub processor: Option<&'static str>,
    /// The name of the setting without which it has no effect: `beams` or `sample`.
    pub needs: Option<&'static str>,
    pub(super) range: Range,
    pub(super) changes_scores: bool,
    is_free: bool,
    /// The number that disables the rule, for a field that is then `None`.
    off: Option<f64>,
    of: fn(&Settings) -> &dyn Field,
    of_mut: fn(&mut Settings) -> &mut dyn Field,
}

/// A row with a key.
const fn key(key: &'static str) -> Setting {
    Setting { key: Some(key), ..Setting::NEW }
}

/// How a row is declared.
impl Setting {
    const NEW: Self = Self {
        field: "",
        key: None,
        name: None,
        value_name: "",
        help: "",
        processor: None,
        needs: None,
        range: Range::ANY,
        changes_scores: false,
        is_free: false,
        off: None,
        of: |settings| &settings.do_sample,
        of_mut: |settings| &mut settings.do_sample,
    };

    const fn needing(self, setting: &'static str) -> Self {
        Self {
            needs: if self.is_free || setting.is_empty() { None } else { Some(setting) },
            ..self
        }
    }

    /// It has an effect in every search: it chooses the strategy.
    const fn always(self) -> Self {
        Self { is_free: true, ..self }
    }

    const fn within(self, range: Range) -> Self {
        Self { range, ..self }
    }

    /// A file, the command line or Python disables the rule with this number, 0 or 1.
    const fn off(self, at: f64) -> Self {
        Self { off: Some(at), ..self }
    }

    /// The rule changes scores.
    const fn rule(self, processor: &'static str) -> Self {
        Self { processor: Some(processor), changes_scores: true, ..self }
    }

    /// The rule only bans tokens: [`Search::banned`](super::Search::banned) knows it.
    const fn bans(self, processor: &'static str) -> Self {
        Self { processor: Some(processor), ..self }
    }

    /// An option that has the name of the key.
    const fn option(self, value_name: &'static str, help: &'static str) -> Self {
        Self { name: self.key, value_name, help, ..self }
    }

    const fn called(
        self,
        name: &'static str,
        value_name: &'static str,
        help: &'static str,
    ) -> Self {
        Self { name: Some(name), ..self.option(value_name, help) }
    }
}

impl Setting {
    /// All settings: those of beams, of every search, and of samples.
    pub fn all() -> impl Iterator<Item = &'static Self> {
        let parts = [BeamOptions::ROWS, SearchOptions::ROWS, Settings::ROWS, SampleOptions::ROWS];
        parts.into_iter().flatten()
    }

    /// The setting with this [`name`](Self::name).
    pub fn named(name: &str) -> Option<&'static Self> {
        Self::all().find(|setting| setting.name == Some(name))
    }

    /// Takes a value of JSON of the right type. A number that disables the rule disables it. The range is not checked; see
    /// [`check`](Self::check).
    ///
    /// # Errors
    /// The value has another type: what was expected, and the part of the value that differs.
    pub fn set_value<'v>(
        &self,
        settings: &mut Settings,
        value: &'v Value,
    ) -> Result<(), (&'static str, &'v Value)> {
        let field = (self.of_mut)(settings);
        let is_off = self.off.is_some() && self.off == value.as_f64();
        let expected = field.expected();
        field
            .read_value(if is_off { &Value::Null } else { value })
            .map_err(|found| (expected, found))
    }

    /// Whether a number of a file disables the rule, as in transformers: 1 and above, or 0 and below; of a count 0 alone.
    pub(crate) fn is_disabled_by(&self, default: &Settings, x: f64) -> bool {
        let count = (self.of)(default).expected() == COUNT;
        self.off.is_some_and(|at| if at > 0.0 { x >= at } else { x == at || x < at && !count })
    }

    /// The value in JSON, as [`set_value`](Self::set_value) takes it; `null` for a rule that is off and has no number for it.
    pub fn value(&self, settings: &Settings) -> Value {
        match ((self.of)(settings).write(), self.off) {
            (Value::Null, Some(at)) => at.into(),
            (value, _) => value,
        }
    }

    /// Checks the range of a number.
    ///
    /// # Errors
    /// [`Error::InvalidOption`].
    pub fn check(&self, settings: &Settings) -> Result<(), Error> {
        self.range.check(self.field, (self.of)(settings))
    }

    /// The token ids in the value.
    pub(crate) fn ids(&self, settings: &Settings) -> Vec<u32> {
        (self.of)(settings).ids()
    }

    /// The value of a missing key, for people: `off` if there is none.
    pub fn default_text(&self) -> String {
        match self.value(&Settings::default()) {
            Value::Null => "off".to_owned(),
            Value::Array(_) => "none".to_owned(),
            value => value.as_f64().map_or(value.to_string(), |x| x.to_string()),
        }
    }

    /// The range of a number, for people; empty for other values.
    pub fn range_text(&self) -> &'static str {
        self.range.expected
    }

    /// What a value must be, for people.
    pub fn expected(&self) -> String {
        let kind = (self.of)(&Settings::default()).expected();
        let off = self.off.map_or(String::new(), |at| format!(", or {at}"));
        match (kind, self.range.expected) {
            (COUNT, "") => "a whole number of at least 0".to_owned(),
            (COUNT, range) => format!("a whole number {range}{off}"),
            (NUMBER, range) => format!("a number {range}{off}"),
            (kind, _) => kind.to_owned(),
        }
    }
}

impl Settings {
    /// The options of a search with these settings: beams if there are several, else samples or greedy search.
    /// `max_new_tokens` takes precedence over `max_length`.
    #[must_use]
    pub fn search_options(&self) -> SearchOptions {
        let sample = self.do_sample.then(|| self.sample.clone());
        let strategy = match sample {
            sample if self.beam.beams > 1 => {
                Strategy::Beam(BeamOptions { sample, ..self.beam.clone() })
            }
            Some(sample) => Strategy::Sample(sample),
            None => Strategy::Greedy,
        };
        let options = self.options.clone();
        let max_length = options.max_length.filter(|_| options.max_new_tokens.is_none());
        SearchOptions { strategy, max_length, ..options }
    }

    /// The first of the `given` settings that has no effect with this strategy. With an explicit number of beams, also 1,
    /// the settings of beams are allowed, for scripts that vary it.
    pub fn without_effect<'g>(&self, given: &[&'g Setting]) -> Option<&'g Setting> {
        let has_beams = given.iter().any(|setting| setting.name == Some("beams"));
        let is_idle = |setting: &&&Setting| match setting.needs {
            Some("sample") => !self.do_sample,
            Some(_) => self.beam.beams == 1 && (self.do_sample || !has_beams),
            None => false,
        };
        given.iter().find(is_idle).copied()
    }
}

impl SearchOptions {
    /// The value of [`start`](Self::start) for a configuration without a decoder start. If the caller does not
    /// replace it, the search returns [`Error::InvalidOption`]. It is outside every vocabulary.
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
}

impl SampleOptions {
    /// The uniform number in [0, 1) from which token `index` of sample `sequence` is drawn, both from 0, in the random stream
    /// `stream`: the first token, in the order of ids, at which the sum of the probabilities exceeds it. Beam search draws
    /// continuation `sequence` of step `index` from it.
    #[must_use]
    pub fn draw(&self, stream: u64, sequence: u32, index: u32) -> f64 {
        uniform(self.seed, stream, sequence, index)
    }
}
