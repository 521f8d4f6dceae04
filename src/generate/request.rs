//! The sources of a request, their checks before it runs, the language of one, and the events of a call with the replies
//! of the caller.

use crate::error::{Error, ErrorValue};
use crate::input_features::{Features, tokens_and_features};
use crate::kv::SourceId;
use crate::search::{Finish, Hypothesis, Request, Search, SearchOptions, Token};
use crate::session::{Plan, Session, StepRow, check_tokens};
use core::fmt;
use core::ops::ControlFlow;

/// One source of a request.
///
/// ```
/// use simdformer::Source;
///
/// let plain = Source::new(&[6, 11, 0]);
/// // Its target must begin with these tokens, and its samples use random stream 7.
/// let special = Source { prefix: &[554, 9], stream: 7, ..plain };
/// assert_eq!(special.tokens, plain.tokens);
/// ```
#[derive(Clone, Copy, Debug, Default)]
pub struct Source<'s> {
    /// Token ids of the source, including the end token: at least 1, at most
    /// [`Limits::source_tokens`](crate::Limits::source_tokens). Empty if there are features.
    pub tokens: &'s [u32],
    /// Token ids of the target that must follow the decoder start. They are not part of hypotheses or scores.
    pub prefix: &'s [u32],
    /// The stream of random numbers for sampling, see [`Request::stream`].
    pub stream: u64,
    /// Overrides [`SearchOptions::forced_bos`]: for example the target language of this sentence.
    pub forced_bos: Option<u32>,
    /// The input of an encoder that reads features instead of ids.
    pub features: Option<Features<'s>>,
    /// The options of this source; `None` for those of the call. Sources with different strategies, lengths and rules
    /// are decoded in one batch, and each has the result of a call with its options alone.
    pub options: Option<&'s SearchOptions>,
}

impl<'s> Source<'s> {
    /// A source of token ids; all other fields have their defaults.
    pub const fn new(tokens: &'s [u32]) -> Self {
        Self { tokens, prefix: &[], stream: 0, forced_bos: None, features: None, options: None }
    }

    /// A source of features; all other fields have their defaults.
    pub const fn of_features(features: Features<'s>) -> Self {
        Self { features: Some(features), ..Self::new(&[]) }
    }

    /// This source with options of its own.
    ///
    /// ```
    /// use simdformer::search::{Hooks, SampleOptions, Strategy};
    /// use simdformer::{Event, Limits, Model, Session, Source};
    ///
    /// let model = Model::open("models/fr-en")?;
    /// let mut session = Session::new(&model, Limits::new(2, 16, 40))?;
    /// let options = session.search_options();
    /// let mut sampled = options.clone();
    /// sampled.strategy = Strategy::Sample(SampleOptions { seed: 7, ..SampleOptions::default() });
    /// // One batch: the first source has the options of the call, the second one samples.
    /// let sources = [Source::new(&[6, 11, 0]), Source::new(&[6, 11, 0]).with_options(&sampled)];
    /// let mut done = 0;
    /// session.generate(&sources, &options, &mut Hooks::default(), &mut |event| {
    ///     done += usize::from(matches!(event, Event::Done(_)));
    /// })?;
    /// assert_eq!(done, 2);
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    #[must_use]
    pub const fn with_options(self, options: &'s SearchOptions) -> Self {
        Self { options: Some(options), ..self }
    }

    /// Number of encoder positions.
    pub(crate) const fn positions(&self) -> usize {
        match &self.features {
            Some(features) => features.positions(),
            None => self.tokens.len(),
        }
    }

    /// The request to the search for this source.
    pub const fn request(&self) -> Request<'s> {
        Request {
            prefix: self.prefix,
            source: self.tokens,
            stream: self.stream,
            forced_bos: self.forced_bos,
        }
    }
}

/// An event of [`Session::generate`].
#[derive(Debug)]
#[non_exhaustive]
pub enum Event<'g> {
    /// Reported before each step, and before sources are encoded. After it, waiting sources are encoded if slots are free, and
    /// the decoder makes a step. Use it to test a deadline or a flag. Holds the statistics so far.
    Step(DecodeStats),
    /// A source cannot be decoded: [`Session::check`] rejects it. Reported before anything runs, once
    /// for each such source. With the answer [`Stop::Source`] the call goes on without it, and it gets no other event; with
    /// any other answer the whole call is this error.
    Refused {
        /// Index of the source, from 0.
        source: usize,
        /// Why it cannot be decoded, with the same [index](Error::index).
        error: &'g Error,
    },
    /// A token of a source is final. The tokens of a source come in order.
    Token {
        /// Index of the source, from 0.
        source: usize,
        /// The token.
        token: Token,
    },
    /// A source is finished. Reported exactly once for every source that was not refused, unless an error ends the call.
    Done(Generated<'g>),
}

/// The reply to an [`Event`], in a [`ControlFlow::Break`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Stop {
    /// The source of the token ends with its tokens so far: [`Finish::Stopped`]. A source that is refused is left out. Has
    /// no effect as a reply to other events.
    Source,
    /// The call ends. Every unfinished source is reported with its tokens so far and [`Finish::Stopped`]. A source that
    /// was not encoded has no hypotheses.
    All,
}

/// The event callback, with its return value converted.
pub(super) type OnEvent<'e> = &'e mut dyn FnMut(Event<'_>) -> ControlFlow<Stop>;

/// A finished source.
#[derive(Clone, Copy)]
pub struct Generated<'g> {
    /// Index of the source, from 0.
    pub source: usize,
    /// Why it ended.
    pub finish: Finish,
    pub(super) search: &'g Search<'g>,
    /// Slot of the search; invalid if the source was not encoded.
    pub(super) slot: u32,
}

impl<'g> Generated<'g> {
    /// The hypotheses, best first; samples in the order of their numbers. Empty for a source that was not encoded
    /// before [`Stop::All`].
    pub fn hypotheses(&self) -> impl ExactSizeIterator<Item = Hypothesis<'g>> + use<'g> {
        self.search.hypotheses(self.slot)
    }
}

impl fmt::Debug for Generated<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Generated")
            .field("source", &self.source)
            .field("finish", &self.finish)
            .field("hypotheses", &self.hypotheses().len())
            .finish_non_exhaustive()
    }
}

/// Statistics of a call of [`Session::generate`].
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct DecodeStats {
    /// Number of decoder steps.
    pub steps: usize,
    /// Rows of all steps: the tokens fed, without prefixes (which are prefilled) and without drafts.
    pub rows: usize,
    /// Number of draft tokens fed.
    pub drafted: usize,
    /// Number of accepted draft tokens: each saves a row of a later step. An accepted end token is not counted.
    pub accepted: usize,
    /// Number of sources that were not finished at [`Stop::All`].
    pub cancelled: usize,
}

impl Session<'_> {
    /// [`Plan::check`] with the session's plan: whether [`Session::generate`] accepts this source.
    ///
    /// # Errors
    /// As [`Plan::check`].
    pub fn check(&self, source: &Source<'_>, options: &SearchOptions) -> Result<(), Error> {
        self.plan().check(source, options)
    }

    /// The most likely of `languages`, ids of the target vocabulary, after the decoder start `start`; the lowest id
    /// among equal scores. For a transcription model, this is the language of the audio, for the
    /// [prefix](crate::config::Transcription::prefix) of the target.
    ///
    /// Runs one step of the decoder. Uses a free hypothesis slot of `sentence` and releases it; the sentence does not
    /// change. Does not allocate.
    ///
    /// # Errors
    /// As [`Session::start`] and [`Session::step`]; [no languages](Error::InvalidInput), or one outside the
    /// [vocabulary](Error::Token); a score that is NaN or `+inf`, or no
    /// score that is [finite](Error::NotFinite).
    ///
    /// ```
    /// use simdformer::{Limits, Model, SourceId, Session};
    ///
    /// // Works with any model: this one chooses among three tokens.
    /// let model = Model::open("models/fr-en")?;
    /// let mut session = Session::new(&model, Limits::new(1, 16, 16))?;
    /// let mut sentence = [SourceId::default()];
    /// session.encode(&[&[6, 11, 0]], &mut sentence)?;
    /// let start = model.config().tokens.decoder_start.unwrap_or(0);
    /// let language = session.detect_language(sentence[0], start, &[554, 9, 14])?;
    /// assert!([554, 9, 14].contains(&language));
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    pub fn detect_language(
        &mut self,
        sentence: SourceId,
        start: u32,
        languages: &[u32],
    ) -> Result<u32, Error> {
        self.language_probability(sentence, start, languages).map(|(language, _)| language)
    }

    /// As [`detect_language`](Self::detect_language), with the probability of that language among `languages`.
    ///
    /// # Errors
    /// As of [`detect_language`](Self::detect_language).
    pub fn language_probability(
        &mut self,
        sentence: SourceId,
        start: u32,
        languages: &[u32],
    ) -> Result<(u32, f32), Error> {
        let (&first, others) = languages
            .split_first()
            .ok_or_else(|| Error::invalid_input("languages", "at least one language", "none"))?;
        check_tokens(languages, self.model().config().target_vocab)?;
        let hypothesis = self.start(sentence)?;
        let best = self.step(&[StepRow::new(hypothesis, start)]).and_then(|logits| {
            let score = |id: u32| logits[id as usize];
            let best = others.iter().fold(first, |best, &id| {
                let better = score(id) > score(best) || score(id) == score(best) && id < best;
                if better { id } else { best }
            });
            // Nothing is larger than NaN.
            match languages.iter().any(|&id| score(id).is_nan()) || !score(best).is_finite() {
                true => Err(Error::not_finite_scores(1)),
                false => {
                    let top = f64::from(score(best));
                    let sum: f64 =
                        languages.iter().map(|&id| (f64::from(score(id)) - top).exp()).sum();
                    Ok((best, (1.0 / sum) as f32))
                }
            }
        });
        self.release(hypothesis)?;
        best
    }
}

impl Plan {
    /// Whether [`Session::generate`] accepts this source under these options, or its own. A server can call this when a request
    /// arrives. ([`Event::Refused`] leaves an invalid request out of a batch.) It needs
    /// only a copy of the plan; the session may be in use.
    ///
    /// # Errors
    /// The error of `generate` with this source alone. It has the [index](Error::index) 0 if it is about the source, and no
    /// index if it is about `options`.
    ///
    /// ```
    /// use simdformer::{Limits, Model, Plan, Source};
    ///
    /// let model = Model::open("models/fr-en")?;
    /// let plan = Plan::new(&model, Limits::new(4, 32, 48))?;
    /// let options = model.config().search_options();
    /// assert_eq!(plan.check(&Source::new(&[6, 11, 0]), &options), Ok(()));
    /// let refused = plan.check(&Source::new(&[]), &options);
    /// let text = "source 0: expected at least one token, found none";
    /// assert_eq!(refused.unwrap_err().to_string(), text);
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    pub fn check(&self, source: &Source<'_>, options: &SearchOptions) -> Result<(), Error> {
        self.check_options(options)?;
        self.check_source(0, source, options)
    }

    /// An error of the options, whatever the sources are.
    pub(crate) fn check_options(&self, options: &SearchOptions) -> Result<(), Error> {
        self.check_decodes()?;
        options.validate(&self.search).map_err(|error| self.of_plan(error))
    }

    /// Checks the source of index `index` under valid options.
    pub(super) fn check_source(
        &self,
        index: usize,
        source: &Source<'_>,
        options: &SearchOptions,
    ) -> Result<(), Error> {
        match &source.features {
            Some(_) if !source.tokens.is_empty() => {
                return Err(tokens_and_features().with_index(index));
            }
            Some(features) => self.check_features(index, features)?,
            None => self.check_tokens(index, source.tokens)?,
        }
        self.check_target(index, source, options)
    }

    /// [`Self::check_source`] without what the encoder reads.
    pub(super) fn check_target(
        &self,
        index: usize,
        source: &Source<'_>,
        options: &SearchOptions,
    ) -> Result<(), Error> {
        if let Some(own) = source.options {
            own.validate(&self.search).map_err(|error| self.of_plan(error).with_index(index))?;
        }
        let options = source.options.unwrap_or(options);
        let request = source.request();
        request
            .validate(options, &self.search)
            .map_err(|error| self.of_plan(error).with_index(index))
    }

    /// Names the limit in an error of the search as in the limits of the plan.
    pub(super) fn of_plan(&self, mut error: Error) -> Error {
        if let Error::BeyondLimit { limit: Some(limit), expected, .. } = &mut error {
            *limit = match limit.0 {
                "sequences" => ("beams", self.limits.beams),
                "max_target_length" => ("target_tokens", self.limits.target_tokens),
                _ => *limit,
            };
            if let Some(most) = expected.number() {
                *expected = ErrorValue::at_most_planned(most);
            }
        }
        error
    }
}
