//! From what a checkpoint says about decoding to what the search does when the caller says nothing.

use super::session::Session;
use crate::config::Config;
use crate::search::{BeamOptions, SampleOptions, SearchOptions, Strategy};

impl Config {
    /// The search that the checkpoint's `generation_config.json` asks for: the starting point for a
    /// caller's own options.
    ///
    /// A session refuses longer targets than it was planned for, also if it is the checkpoint that asks
    /// for them; [`Session::search_options`] are those that fit.
    ///
    /// More than one beam is beam search, or [beam sampling](BeamOptions::sample) where the checkpoint
    /// samples. What is [`unsupported`] has no counterpart and is left out. Where the checkpoint names no
    /// decoder start, [`start`](SearchOptions::start) is [`NO_START`](SearchOptions::NO_START): the caller sets
    /// it, or decoding is an error. (transformers takes `bos_token_id` there. The families that name none, mBART
    /// and PLBart, want a language at this place, and begin no target with that token.) Nothing is checked here.
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
        let wanted = &self.generation;
        let tokens = &self.tokens;
        let number = f64::from;
        // Zero, one or an infinity switch a rule off, depending on the rule.
        let above_zero = |x: f32| (x > 0.0).then_some(number(x));
        let below_one = |x: f32| (x < 1.0).then_some(number(x));
        let sample = wanted.do_sample.then(|| SampleOptions {
            temperature: number(wanted.temperature),
            top_h: wanted.top_h.map(number),
            top_k: (wanted.top_k > 0).then_some(wanted.top_k),
            top_p: below_one(wanted.top_p),
            min_p: wanted.min_p.map(number),
            typical: below_one(wanted.typical_p),
            epsilon: above_zero(wanted.epsilon_cutoff),
            eta: above_zero(wanted.eta_cutoff),
            ..SampleOptions::default()
        });
        let strategy = if wanted.num_beams > 1 {
            Strategy::Beam(BeamOptions {
                beams: wanted.num_beams,
                length_penalty: number(wanted.length_penalty),
                early_stopping: wanted.early_stopping,
                groups: wanted.num_beam_groups.max(1),
                diversity_penalty: number(wanted.diversity_penalty),
                sample,
            })
        } else {
            sample.map_or(Strategy::Greedy, Strategy::Sample)
        };
        let banned = tokens.banned.iter().map(|&id| vec![id]);
        SearchOptions {
            scores: true,
            strategy,
            num_return_sequences: wanted.num_return_sequences.max(1),
            max_new_tokens: wanted.max_new_tokens,
            max_length: wanted.max_length.filter(|_| wanted.max_new_tokens.is_none()),
            min_length: wanted.min_length,
            min_new_tokens: wanted.min_new_tokens.unwrap_or(0),
            start: tokens.decoder_start.unwrap_or(SearchOptions::NO_START),
            eos: tokens.eos.clone(),
            sequence_bias: wanted.sequence_bias.clone(),
            repetition_penalty: number(wanted.repetition_penalty),
            no_repeat_ngram: (wanted.no_repeat_ngram_size > 0)
                .then_some(wanted.no_repeat_ngram_size),
            encoder_repetition_penalty: number(wanted.encoder_repetition_penalty),
            encoder_no_repeat_ngram: (wanted.encoder_no_repeat_ngram_size > 0)
                .then_some(wanted.encoder_no_repeat_ngram_size),
            bad_words: banned.chain(wanted.bad_words.iter().cloned()).collect(),
            forced_bos: tokens.forced_bos,
            forced_eos: tokens.forced_eos.clone(),
            remove_invalid: wanted.remove_invalid_values,
            exponential_decay: wanted
                .exponential_decay_length_penalty
                .map(|(start, factor)| (start, number(factor))),
            suppress: wanted.suppress_tokens.clone(),
            begin_suppress: wanted.begin_suppress_tokens.clone(),
            renormalize: wanted.renormalize_logits,
        }
    }
}

impl Session<'_> {
    /// The search that the checkpoint asks for, in a session of this plan.
    ///
    /// As [`Config::search_options`], except that a longest length beyond the plan is left out: then
    /// [`Limits::target_tokens`](crate::Limits::target_tokens) is what bounds the target, and one that
    /// gets there finishes with [`Finish::Length`](crate::search::Finish::Length), without an end token
    /// in place of the cut. Where there is no end token, the longest length that the plan holds takes its
    /// place, because a search that nothing ends is refused
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
        let longest = self.plan().search.max_target_length;
        let wanted_length = options.set_a_length();
        // The decoder start comes before new tokens.
        options.max_new_tokens = options.max_new_tokens.filter(|&new| new < longest);
        options.max_length = options.max_length.filter(|&length| length <= longest);
        if wanted_length && options.eos.is_empty() && !options.set_a_length() {
            options.max_length = Some(longest);
        }
        options
    }
}
