//! The order in which rules apply.

use super::filters::{
    divide, keep_epsilon, keep_eta, keep_min_p, keep_top_h, keep_top_k, keep_top_p, keep_typical,
};
use super::hooks::{Context, Hooks, LogitsProcessor, Observation, Observer};
use super::logits_processors::{
    ban, ban_others, bias_sequence, completed_ngrams, force, force_allowed, is_end_token, penalize,
    raise_ends, remove_invalid,
};
use super::options::{SampleOptions, SearchOptions};
use super::score_rows::log_softmax;
use crate::error::Error;

/// One row of scores, and who sees it after each rule.
struct ScoredRow<'r, 'h> {
    context: &'r Context<'r>,
    scores: &'r mut [f32],
    scratch: &'r mut [u32],
    observer: &'r mut Option<Observer<'h>>,
}

impl ScoredRow<'_, '_> {
    /// Applies the rule of this name to the scores.
    fn apply(&mut self, name: &'static str, rule: impl FnOnce(&mut [f32], &mut [u32])) {
        rule(self.scores, self.scratch);
        self.observe(Some(name));
    }

    /// As [`Self::apply`], for a rule that needs no scratch.
    fn change(&mut self, name: &'static str, rule: impl FnOnce(&mut [f32])) {
        self.apply(name, |scores, _| rule(scores));
    }

    fn observe(&mut self, rule: Option<&'static str>) {
        if let Some(observer) = self.observer {
            observer(Observation::Scores { context: *self.context, rule, scores: self.scores });
        }
    }
}

/// The rules of one row, in the order of transformers 5.23.
pub(super) struct Pipeline<'o> {
    pub(super) options: &'o SearchOptions,
    /// The token to force after the decoder start.
    pub(super) forced_bos: Option<u32>,
}

impl Pipeline<'_> {
    /// Applies all rules up to and including the function of allowed tokens.
    pub(super) fn restrict(
        &self,
        context: &Context<'_>,
        scores: &mut [f32],
        scratch: &mut [u32],
        hooks: &mut Hooks<'_>,
    ) -> Result<(), Error> {
        let (o, &Context { source, history, prompt_len, .. }) = (self.options, context);
        let mut row = ScoredRow { context, scores, scratch, observer: &mut hooks.observer };
        row.observe(None);
        row.change("SequenceBias", |scores| {
            for (sequence, bias) in &o.sequence_bias {
                bias_sequence(history, scores, sequence, *bias);
            }
        });
        if o.encoder_repetition_penalty != 1.0 {
            // Above 1 favors the tokens of the source.
            let penalty = (1.0 / o.encoder_repetition_penalty) as f32;
            row.apply("SourcePenalty", |scores, scratch| {
                penalize(penalty, source, scores, scratch);
            });
        }
        if o.repetition_penalty != 1.0 {
            let penalty = o.repetition_penalty as f32;
            row.apply("RepetitionPenalty", |scores, scratch| {
                penalize(penalty, history, scores, scratch);
            });
        }
        for (name, size, text) in [
            ("NoRepeatNgram", o.no_repeat_ngram, history),
            ("NoSourceNgram", o.encoder_no_repeat_ngram, source),
        ] {
            if let Some(size) = size {
                row.change(name, |scores| {
                    completed_ngrams(size, text, history).for_each(|id| ban(scores, &[id]));
                });
            }
        }
        row.change("BadWords", |scores| {
            for word in o.bad_words.iter().filter(|word| !is_end_token(word, &o.eos)) {
                bias_sequence(history, scores, word, f32::NEG_INFINITY);
            }
        });
        if history.len() < o.min_length {
            row.change("MinLength", |scores| ban(scores, &o.eos));
        }
        if history.len().saturating_sub(prompt_len) < o.min_new_tokens {
            row.change("MinNewTokens", |scores| ban(scores, &o.eos));
        }
        if let Some(tokens) = &mut hooks.allowed {
            ban_others(tokens, context, row.scores, row.scratch)?;
            row.observe(Some("AllowedPrefix"));
        }
        Ok(())
    }

    /// Applies all rules after the function of allowed tokens, the caller's processors, and the filters of sampling.
    pub(super) fn shape(
        &self,
        context: &Context<'_>,
        scores: &mut [f32],
        scratch: &mut [u32],
        hooks: &mut Hooks<'_>,
    ) -> Result<(), Error> {
        let (o, &Context { history, prompt_len, max_length, .. }) = (self.options, context);
        let mut row = ScoredRow { context, scores, scratch, observer: &mut hooks.observer };
        if let Some(token) = self.forced_bos.filter(|_| history.len() == 1) {
            row.change("ForcedBos", |scores| force(scores, &[token]));
        }
        if !o.forced_eos.is_empty() && o.set_a_length() && history.len() + 1 == max_length {
            row.change("ForcedEos", |scores| force(scores, &o.forced_eos));
        }
        if o.remove_invalid {
            row.change("RemoveInvalid", remove_invalid);
        }
        if let Some((start, factor)) = o.exponential_decay
            && let past = history.len().saturating_sub(start.saturating_add(prompt_len))
            && past > 0
        {
            row.change("ExponentialDecay", |scores| raise_ends(factor, past, &o.eos, scores));
        }
        row.change("Suppress", |scores| ban(scores, &o.suppress));
        let forced_first = prompt_len == 1 && self.forced_bos.is_some();
        if history.len() == prompt_len + usize::from(forced_first) {
            row.change("BeginSuppress", |scores| ban(scores, &o.begin_suppress));
        }
        if let Some(mut rule) = o.timestamps {
            rule.process(context, row.scores)?;
            row.observe(Some("Timestamps"));
        }
        for processor in hooks.processors.iter_mut() {
            processor.process(context, row.scores)?;
            row.observe(Some("LogitsProcessor"));
        }
        if let Some((sample, keep)) = o.drawn() {
            filter(sample, keep, &mut row);
        }
        if o.renormalize {
            row.change("Renormalize", log_softmax);
        }
        Ok(())
    }

    /// Restores the allowed tokens of a row, with score 0, after [`Self::restrict`] left none in any row of the
    /// sentence.
    pub(super) fn restore_allowed(
        &self,
        context: &Context<'_>,
        scores: &mut [f32],
        hooks: &mut Hooks<'_>,
    ) -> Result<(), Error> {
        if let Some(tokens) = &mut hooks.allowed {
            force_allowed(tokens, context, scores)?;
        }
        let mut row =
            ScoredRow { context, scores, scratch: &mut [], observer: &mut hooks.observer };
        row.observe(Some("AllowedPrefix"));
        Ok(())
    }
}

/// Applies the filters of sampling, each of which leaves at least `keep` tokens.
fn filter(sample: &SampleOptions, keep: usize, row: &mut ScoredRow<'_, '_>) {
    if sample.temperature != 1.0 {
        row.change("Temperature", |scores| divide(sample.temperature as f32, scores));
    }
    if let Some(share) = sample.top_h {
        row.apply("TopH", |scores, scratch| keep_top_h(share, scores, scratch));
    }
    if let Some(k) = sample.top_k {
        row.apply("TopK", |scores, scratch| keep_top_k(k.max(keep), scores, scratch));
    }
    if let Some(p) = sample.top_p.filter(|&p| p < 1.0) {
        row.apply("TopP", |scores, scratch| keep_top_p((p, keep), scores, scratch));
    }
    if let Some(p) = sample.min_p {
        row.apply("MinP", |scores, scratch| keep_min_p((p, keep), scores, scratch));
    }
    if let Some(mass) = sample.typical.filter(|&mass| mass < 1.0) {
        row.apply("Typical", |scores, scratch| keep_typical((mass, keep), scores, scratch));
    }
    if let Some(cutoff) = sample.epsilon {
        row.apply("Epsilon", |scores, scratch| keep_epsilon((cutoff, keep), scores, scratch));
    }
    if let Some(eta) = sample.eta {
        row.apply("Eta", |scores, scratch| keep_eta((eta, keep), scores, scratch));
    }
}
