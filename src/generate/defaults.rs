//! The default search options of a checkpoint.

use crate::config::Config;
use crate::search::SearchOptions;
use crate::session::Session;

impl Config {
    /// The search options of the checkpoint's `generation_config.json`: a starting point for the caller's own options.
    ///
    /// A session rejects targets that are longer than planned, also if the checkpoint sets that length;
    /// [`Session::search_options`] returns options that fit the plan.
    ///
    /// With more than one beam, the result is beam search, or [beam sampling](crate::search::BeamOptions::sample) if the checkpoint
    /// samples. [`unsupported`] options are omitted. If the checkpoint has no decoder start,
    /// [`start`](SearchOptions::start) is [`NO_START`](SearchOptions::NO_START); the caller must set it, or decoding
    /// returns an error. (transformers uses `bos_token_id` in this case. The families without a decoder start, mBART
    /// and PLBart, need a language token there and never start a target with `bos_token_id`.) The options are not
    /// checked.
    ///
    /// [`unsupported`]: Config::unsupported
    ///
    /// ```
    /// use simdformer::config::Config;
    /// use simdformer::search::Strategy;
    ///
    /// let config = Config::from_hugging_face(
    ///     r#"{"model_type": "marian", "num_beams": 6, "max_length": 512, "bad_words_ids": [[58100]]}"#,
    /// )?;
    /// let options = config.search_options();
    /// assert!(matches!(&options.strategy, Strategy::Beam(beam) if beam.beams == 6));
    /// assert_eq!((options.start, options.max_length), (58100, Some(512)));
    /// # Ok::<(), simdformer::Error>(())
    /// ```
    pub fn search_options(&self) -> SearchOptions {
        let tokens = &self.tokens;
        let banned = tokens.banned.iter().map(|&id| vec![id]);
        let bad_words = banned.chain(self.settings.options.bad_words.iter().cloned()).collect();
        SearchOptions {
            start: tokens.decoder_start.unwrap_or(SearchOptions::NO_START),
            eos: tokens.eos.clone(),
            bad_words,
            forced_bos: tokens.forced_bos,
            forced_eos: tokens.forced_eos.clone(),
            ..self.settings.search_options()
        }
    }
}

impl SearchOptions {
    /// Drops a maximum length beyond `longest` tokens of a target, which then limits the target itself. A search without
    /// an end token keeps a maximum, because it would not end.
    pub(crate) fn fit_length(&mut self, longest: usize) {
        let sets_length = self.set_a_length();
        // The decoder start is not counted as a new token.
        self.max_new_tokens = self.max_new_tokens.filter(|&new| new < longest);
        self.max_length = self.max_length.filter(|&length| length <= longest);
        if sets_length && self.eos.is_empty() && !self.set_a_length() {
            self.max_length = Some(longest);
        }
    }
}

impl Session<'_> {
    /// The search options of the checkpoint, adapted to the plan of this session.
    ///
    /// As [`Config::search_options`], but a maximum length beyond the plan is omitted. Then
    /// [`Limits::target_tokens`](crate::Limits::target_tokens) limits the target. A target that reaches this limit
    /// finishes with [`Finish::Length`](crate::search::Finish::Length) and gets no end token. If the options have no
    /// end token, the maximum length of the plan is set instead, because a search without any end is rejected
    /// ([`Error::InvalidOption`](crate::Error::InvalidOption)).
    ///
    /// ```
    /// use simdformer::{Limits, Model, Session};
    ///
    /// let model = Model::open("models/fr-en")?;
    /// assert_eq!(model.config().search_options().max_length, Some(40));
    /// let long = Session::new(&model, Limits::new(1, 32, 39))?;
    /// assert_eq!(long.search_options().max_length, Some(40));
    /// let short = Session::new(&model, Limits::new(1, 32, 16))?;
    /// assert_eq!(short.search_options().max_length, None);
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    pub fn search_options(&self) -> SearchOptions {
        let mut options = self.model().config().search_options();
        options.fit_length(self.plan().search.max_target_length);
        options
    }
}
