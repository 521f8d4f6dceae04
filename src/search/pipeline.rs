//! The order in which processors apply.

use core::ops::ControlFlow;

use super::error::SearchError;
use super::filters::{Epsilon, Eta, MinP, Temperature, TopH, TopK, TopP, Typical};
use super::options::{SampleOptions, SearchOptions};
use super::position_processors::{
    BeginSuppress, ExponentialDecay, ForcedBos, ForcedEos, MinLength, MinNewTokens,
};
use super::processors::{
    AllowedPrefix, AllowedTokens, BadWords, Context, LogitsProcessor, NoRepeatNgram, NoSourceNgram,
    RemoveInvalid, Renormalize, RepetitionPenalty, SequenceBias, SourcePenalty, Suppress,
};

/// A final token of a sentence: no later step changes it.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Token {
    /// The index of the sample in the sentence, from 0; 0 for greedy search and for the best hypothesis of beam
    /// search.
    pub sequence: u32,
    /// The index among the generated tokens of that sequence, from 0.
    pub index: u32,
    /// The id.
    pub id: u32,
    /// The natural logarithm of its probability after all processors, within the error bound of
    /// [`score_targets`](super::score_targets). `None` in beam search, and in greedy search without
    /// [`SearchOptions::scores`].
    pub log_probability: Option<f32>,
}

/// Receives every token when it becomes final, in order, with the slot of its sentence. `Break` ends the
/// sentence.
pub type OnToken<'t> = &'t mut dyn FnMut(u32, Token) -> ControlFlow<()>;

/// The caller's rules. The default has none.
///
/// ```
/// use simdformer::search::{Context, Hooks, LogitsProcessor};
/// use simdformer::{Event, Limits, Model, Session, Source};
///
/// let model = Model::open("models/fr-en")?;
/// let mut session = Session::new(&model, Limits::new(4, 32, 40))?;
/// // Bans repeating the last token, and the upper half of the vocabulary.
/// let mut never_twice = |context: &Context<'_>, scores: &mut [f32], _: &mut [u32]| {
///     if let Some(&last) = context.history.last() {
///         scores[last as usize] = f32::NEG_INFINITY;
///     }
///     Ok(())
/// };
/// let lower: Vec<u32> = (0..1159).collect();
/// let mut allowed = |_: &Context<'_>, allow: &mut dyn FnMut(&[u32])| allow(&lower);
/// let mut processors: [&mut dyn LogitsProcessor; 1] = [&mut never_twice];
/// let mut hooks = Hooks { processors: &mut processors, allowed: Some(&mut allowed) };
///
/// let options = session.search_options();
/// let mut best = Vec::new();
/// session.generate(&[Source::new(&[6, 11, 0])], &options, &mut hooks, &mut |event| {
///     if let Event::Done(done) = event {
///         best.extend(done.hypotheses().next().map(|hypothesis| hypothesis.tokens.to_vec()));
///     }
/// })?;
/// assert!(best[0].windows(2).all(|pair| pair[0] != pair[1]));
/// assert!(best[0].iter().all(|id| lower.contains(id)));
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Default)]
pub struct Hooks<'h> {
    /// Applied in this order, after the rules of the options and before the filters of sampling.
    pub processors: &'h mut [&'h mut dyn LogitsProcessor],
    /// Which tokens may follow a history. Applied as [`AllowedPrefix`], between the rules of the options.
    pub allowed: Option<&'h mut dyn AllowedTokens>,
}

impl Hooks<'_> {
    /// Whether there are no rules.
    pub(super) fn is_empty(&self) -> bool {
        self.processors.is_empty() && self.allowed.is_none()
    }
}

/// The processors of one row, in the order of transformers 5.23.
pub(super) struct Pipeline<'o> {
    pub(super) options: &'o SearchOptions,
    /// The token to force after the decoder start.
    pub(super) forced_bos: Option<u32>,
}

impl Pipeline<'_> {
    /// Applies all rules up to and including the allowed-prefix function.
    pub(super) fn restrict(
        &self,
        context: &Context<'_>,
        scores: &mut [f32],
        scratch: &mut [u32],
        hooks: &mut Hooks<'_>,
    ) -> Result<(), SearchError> {
        let o = self.options;
        let (entries, words, eos) = (&o.sequence_bias[..], &o.bad_words[..], &o.eos[..]);
        SequenceBias { entries }.process(context, scores, scratch)?;
        if o.encoder_repetition_penalty != 1.0 {
            let penalty = o.encoder_repetition_penalty;
            SourcePenalty { penalty }.process(context, scores, scratch)?;
        }
        if o.repetition_penalty != 1.0 {
            let penalty = o.repetition_penalty as f32;
            RepetitionPenalty { penalty }.process(context, scores, scratch)?;
        }
        if let Some(size) = o.no_repeat_ngram {
            NoRepeatNgram { size }.process(context, scores, scratch)?;
        }
        if let Some(size) = o.encoder_no_repeat_ngram {
            NoSourceNgram { size }.process(context, scores, scratch)?;
        }
        BadWords { words, eos }.process(context, scores, scratch)?;
        let min_length = o.min_length;
        MinLength { min_length, eos }.process(context, scores, scratch)?;
        let min_new_tokens = o.min_new_tokens;
        MinNewTokens { min_new_tokens, eos }.process(context, scores, scratch)?;
        if let Some(tokens) = &mut hooks.allowed {
            AllowedPrefix { tokens: &mut **tokens }.process(context, scores, scratch)?;
        }
        Ok(())
    }

    /// Applies all rules after the allowed-prefix function, the caller's processors, and the filters of sampling.
    pub(super) fn shape(
        &self,
        context: &Context<'_>,
        scores: &mut [f32],
        scratch: &mut [u32],
        hooks: &mut Hooks<'_>,
    ) -> Result<(), SearchError> {
        let o = self.options;
        let eos = &o.eos[..];
        if let Some(token) = self.forced_bos {
            ForcedBos { token }.process(context, scores, scratch)?;
        }
        if !o.forced_eos.is_empty() && o.set_a_length() {
            let tokens = &o.forced_eos[..];
            ForcedEos { tokens }.process(context, scores, scratch)?;
        }
        if o.remove_invalid {
            RemoveInvalid.process(context, scores, scratch)?;
        }
        if let Some((start, factor)) = o.exponential_decay {
            ExponentialDecay { start, factor, eos }.process(context, scores, scratch)?;
        }
        let tokens = &o.suppress[..];
        Suppress { tokens }.process(context, scores, scratch)?;
        let tokens = &o.begin_suppress[..];
        let forced_first = context.prompt_len == 1 && self.forced_bos.is_some();
        let at = context.prompt_len + usize::from(forced_first);
        BeginSuppress { tokens, at }.process(context, scores, scratch)?;
        for processor in hooks.processors.iter_mut() {
            processor.process(context, scores, scratch)?;
        }
        if let Some((sample, keep)) = o.drawn() {
            filter(sample, keep, context, scores, scratch)?;
        }
        if o.renormalize {
            Renormalize.process(context, scores, scratch)?;
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
    ) -> Result<(), SearchError> {
        match &mut hooks.allowed {
            Some(tokens) => AllowedPrefix { tokens: &mut **tokens }.force(context, scores),
            None => Ok(()),
        }
    }
}

/// Applies the filters of sampling, each of which leaves at least `keep` tokens.
fn filter(
    sample: &SampleOptions,
    keep: usize,
    context: &Context<'_>,
    scores: &mut [f32],
    scratch: &mut [u32],
) -> Result<(), SearchError> {
    if sample.temperature != 1.0 {
        let temperature = sample.temperature as f32;
        Temperature { temperature }.process(context, scores, scratch)?;
    }
    if let Some(top_h) = sample.top_h {
        TopH { top_h }.process(context, scores, scratch)?;
    }
    if let Some(k) = sample.top_k {
        TopK { k, keep }.process(context, scores, scratch)?;
    }
    if let Some(p) = sample.top_p.filter(|&p| p < 1.0) {
        TopP { p, keep }.process(context, scores, scratch)?;
    }
    if let Some(min_p) = sample.min_p {
        MinP { min_p, keep }.process(context, scores, scratch)?;
    }
    if let Some(mass) = sample.typical.filter(|&mass| mass < 1.0) {
        Typical { mass, keep }.process(context, scores, scratch)?;
    }
    if let Some(epsilon) = sample.epsilon {
        Epsilon { epsilon, keep }.process(context, scores, scratch)?;
    }
    if let Some(eta) = sample.eta {
        Eta { eta, keep }.process(context, scores, scratch)?;
    }
    Ok(())
}
