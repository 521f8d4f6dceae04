//! Checks of a request before it runs.

use super::error::{SessionError, SourceError};
use super::generate::Source;
use super::plan::Plan;
use super::session::Session;
use crate::features::Features;
use crate::search::{SearchError, SearchOptions};

impl Session<'_> {
    /// [`Plan::check`] with the session's plan: whether [`Session::generate`] accepts this source.
    ///
    /// # Errors
    /// As [`Plan::check`].
    pub fn check(&self, source: &Source<'_>, options: &SearchOptions) -> Result<(), SessionError> {
        self.plan().check(source, options)
    }
}

impl Plan {
    /// Whether [`Session::generate`] accepts this source under these options. A server can call this when a request
    /// arrives, so that an invalid request does not make a whole batch fail. It needs only a copy of the plan; the
    /// session may be in use.
    ///
    /// # Errors
    /// The error of `generate` with this source alone: [`SessionError::OptionBeyondPlan`] or [`SessionError::Search`]
    /// for the options, [`SessionError::Source`] with index 0 for the source.
    ///
    /// ```
    /// use simdformer::{Limits, Model, Plan, SessionError, Source, SourceError};
    ///
    /// let model = Model::open("models/fr-en")?;
    /// let plan = Plan::new(&model, Limits::new(4, 32, 48))?;
    /// let options = model.config().search_options();
    /// assert_eq!(plan.check(&Source::new(&[6, 11, 0]), &options), Ok(()));
    /// let refused = plan.check(&Source::new(&[]), &options);
    /// assert_eq!(refused, Err(SessionError::Source { index: 0, error: SourceError::Empty }));
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    pub fn check(&self, source: &Source<'_>, options: &SearchOptions) -> Result<(), SessionError> {
        self.check_decodes()?;
        options.validate(&self.search).map_err(|error| self.option_error(error))?;
        self.check_source(0, source, options)
    }

    /// Returns an error if the model has no decoder.
    pub(super) fn check_decodes(&self) -> Result<(), SessionError> {
        if self.decodes { Ok(()) } else { Err(SessionError::NoDecoder) }
    }

    /// Checks the source of index `index` under valid options.
    pub(super) fn check_source(
        &self,
        index: usize,
        source: &Source<'_>,
        options: &SearchOptions,
    ) -> Result<(), SessionError> {
        match &source.features {
            Some(_) if !source.tokens.is_empty() => {
                return Err(SessionError::Source { index, error: SourceError::TokensAndFeatures });
            }
            Some(features) => self.check_features(index, features)?,
            None => self.check_tokens(index, source.tokens)?,
        }
        source.request().validate(options, &self.search).map_err(|error| {
            let error = SourceError::of(error);
            SessionError::Source { index, error }
        })
    }

    /// Checks the token ids of the source of index `index`.
    pub(super) fn check_tokens(&self, index: usize, tokens: &[u32]) -> Result<(), SessionError> {
        let (limit, expected_at_most) = ("source_tokens", self.limits.source_tokens);
        let found = tokens.len();
        let outside = tokens.iter().position(|&id| id as usize >= self.source_vocabulary);
        let error = if let Some(bins) = self.bins {
            SourceError::ExpectedFeatures { bins }
        } else if tokens.is_empty() {
            SourceError::Empty
        } else if found > expected_at_most {
            SourceError::BeyondPlan { limit, expected_at_most, found }
        } else if let Some(at) = outside {
            let vocabulary = self.source_vocabulary;
            SourceError::Token { index: at, vocabulary, found: tokens[at] }
        } else {
            return Ok(());
        };
        Err(SessionError::Source { index, error })
    }

    /// Checks the features of the source of index `index`.
    pub(super) fn check_features(
        &self,
        index: usize,
        features: &Features<'_>,
    ) -> Result<(), SessionError> {
        let error = SourceError::of_features(features, self.bins, self.limits.source_tokens);
        error.map_or(Ok(()), |error| Err(SessionError::Source { index, error }))
    }

    /// Converts an error of the search about its options into the limits of the plan.
    pub(super) fn option_error(&self, error: SearchError) -> SessionError {
        let SearchError::BeyondLimit { setting, limit, expected_at_most, found } = error else {
            return error.into();
        };
        let (limit, planned) = match limit {
            "sequences" => ("beams", self.limits.beams),
            "max_target_length" => ("target_tokens", self.limits.target_tokens),
            other => (other, self.limits.end_tokens),
        };
        SessionError::OptionBeyondPlan { option: setting, limit, planned, expected_at_most, found }
    }
}
