//! The default search options of a checkpoint.

use crate::config::Config;
use crate::search::{BeamOptions, SampleOptions, SearchOptions, Strategy};
use crate::session::Session;

impl Config {
    /// The search options of the checkpoint's `generation_config.json`: a starting point for the caller's own options.
    ///
    /// A session rejects targets that are longer than planned, also if the checkpoint sets that length;
    /// [`Session::search_options`] returns options that fit the plan.
    ///
    /// With more than one beam, the result is beam search, or [beam sampling](BeamOptions::sample) if the checkpoint
    /// samples. [`unsupported`] options are omitted. If the checkpoint has no decoder start,
    /// [`start`](SearchOptions::start) is [`NO_START`](SearchOptions::NO_START); the caller must set it, or decoding
    /// returns an error. (transformers uses `bos_token_id` in this case. The families without a decoder start, mBART
    /// and PLBart, need a language token there and never start a target with `bos_token_id`.) The options are not
    /// checked.
    ///
    /// [`unsupported`]: crate::config::GenerationDefaults::unsupported
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
    /// # Ok::<(), simdformer::config::ConfigError>(())
    /// ```
    pub fn search_options(&self) -> SearchOptions {
        let generation = &self.generation;
        let tokens = &self.tokens;
        let number = f64::from;
        // Zero, one or infinity disables a rule, depending on the rule.
        let above_zero = |x: f32| (x > 0.0).then_some(number(x));
        let below_one = |x: f32| (x < 1.0).then_some(number(x));
        let sample = generation.do_sample.then(|| SampleOptions {
            temperature: number(generation.temperature),
            top_h: generation.top_h.map(number),
            top_k: (generation.top_k > 0).then_some(generation.top_k),
            top_p: below_one(generation.top_p),
            min_p: generation.min_p.map(number),
            typical: below_one(generation.typical_p),
            epsilon: above_zero(generation.epsilon_cutoff),
            eta: above_zero(generation.eta_cutoff),
            ..SampleOptions::default()
        });
        let strategy = if generation.num_beams > 1 {
            Strategy::Beam(BeamOptions {
                beams: generation.num_beams,
                length_penalty: number(generation.length_penalty),
                early_stopping: generation.early_stopping,
                groups: generation.num_beam_groups.max(1),
                diversity_penalty: number(generation.diversity_penalty),
                sample,
            })
        } else {
            sample.map_or(Strategy::Greedy, Strategy::Sample)
        };
        let banned = tokens.banned.iter().map(|&id| vec![id]);
        SearchOptions {
            scores: true,
            strategy,
            num_return_sequences: generation.num_return_sequences.max(1),
            max_new_tokens: generation.max_new_tokens,
            max_length: generation.max_length.filter(|_| generation.max_new_tokens.is_none()),
            min_length: generation.min_length,
            min_new_tokens: generation.min_new_tokens.unwrap_or(0),
            start: tokens.decoder_start.unwrap_or(SearchOptions::NO_START),
            eos: tokens.eos.clone(),
            sequence_bias: generation.sequence_bias.clone(),
            repetition_penalty: number(generation.repetition_penalty),
            no_repeat_ngram: (generation.no_repeat_ngram_size > 0)
                .then_some(generation.no_repeat_ngram_size),
            encoder_repetition_penalty: number(generation.encoder_repetition_penalty),
            encoder_no_repeat_ngram: (generation.encoder_no_repeat_ngram_size > 0)
                .then_some(generation.encoder_no_repeat_ngram_size),
            bad_words: banned.chain(generation.bad_words.iter().cloned()).collect(),
            forced_bos: tokens.forced_bos,
            forced_eos: tokens.forced_eos.clone(),
            remove_invalid: generation.remove_invalid_values,
            exponential_decay: generation
                .exponential_decay_length_penalty
                .map(|(start, factor)| (start, number(factor))),
            suppress: generation.suppress_tokens.clone(),
            begin_suppress: generation.begin_suppress_tokens.clone(),
            renormalize: generation.renormalize_logits,
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
    /// ([`SearchError::NoEnd`](crate::search::SearchError::NoEnd)).
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
