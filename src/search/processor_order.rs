//! The order in which processors apply.

use core::fmt;
use core::ops::ControlFlow;

use super::filters::{Epsilon, Eta, MinP, Temperature, TopH, TopK, TopP, Typical};
use super::logits_processors::{
    AllowedPrefix, AllowedTokens, BadWords, Context, LogitsProcessor, NoRepeatNgram, NoSourceNgram,
    RemoveInvalid, Renormalize, RepetitionPenalty, SequenceBias, SourcePenalty, Suppress,
};
use super::options::{SampleOptions, SearchOptions};
use super::position_logits_processors::{
    BeginSuppress, ExponentialDecay, ForcedBos, ForcedEos, MinLength, MinNewTokens,
};
use crate::error::Error;

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

/// What a search reports to [`Hooks::observer`].
#[derive(Clone, Copy, Debug)]
pub enum Observation<'o> {
    /// The scores of a row, `[vocabulary]`, that the model gave (`rule` is `None`; log-probabilities in beam search), or
    /// that a rule left. `rule` is the name of its type, or `"LogitsProcessor"` for one of [`Hooks::processors`]. Rules
    /// that the options do not enable may be reported, too; they change nothing.
    Scores {
        /// The history that the next token continues.
        context: Context<'o>,
        /// The rule.
        rule: Option<&'static str>,
        /// The scores.
        scores: &'o [f32],
    },
    /// A candidate of beam search, after the scores of all rows. The candidates that end come first, then the others,
    /// each best first.
    Candidate {
        /// The hypothesis that it continues.
        context: Context<'o>,
        /// The token that follows.
        token: u32,
        /// The sum of the log-probabilities, this token included.
        score: f32,
        /// What becomes of it.
        outcome: Outcome,
    },
}

/// What beam search does with a candidate.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Outcome {
    /// It is a hypothesis of the next step.
    Continues,
    /// It ends with this score, the sum divided by `n^length_penalty`. It is stored if it is among the best of its group.
    Ends(f32),
    /// Others are better.
    Dropped,
}

/// Receives what a search reports.
pub type Observer<'t> = &'t mut dyn FnMut(Observation<'_>);

/// The caller's rules. The default has none.
///
/// The order of all rules is that of transformers 5.23:
/// [`SequenceBias`], [`SourcePenalty`], [`RepetitionPenalty`], [`NoRepeatNgram`], [`NoSourceNgram`],
/// [`BadWords`], [`MinLength`], [`MinNewTokens`], [`AllowedPrefix`], [`ForcedBos`], [`ForcedEos`],
/// [`RemoveInvalid`], [`ExponentialDecay`], [`Suppress`], [`BeginSuppress`], [`Timestamps`](super::Timestamps), the processors of the caller
/// ([`processors`](Self::processors)), then for sampling [`Temperature`], [`TopH`], [`TopK`], [`TopP`], [`MinP`],
/// [`Typical`], [`Epsilon`], [`Eta`], and last [`Renormalize`].
///
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
/// let mut hooks =
///     Hooks { processors: &mut processors, allowed: Some(&mut allowed), ..Hooks::default() };
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
    /// Sees the scores before and after each rule, and the candidates of beam search. Does not change a result. With an
    /// observer, the search runs on the calling thread and computes all logits.
    pub observer: Option<Observer<'h>>,
}

impl fmt::Debug for Hooks<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Hooks").field("processors", &self.processors.len()).finish_non_exhaustive()
    }
}

impl Hooks<'_> {
    /// Whether nothing of the caller sees the scores.
    pub(super) fn is_empty(&self) -> bool {
        self.processors.is_empty() && self.allowed.is_none() && self.observer.is_none()
    }
}

/// One row of scores, and who sees it after each rule.
struct ScoredRow<'r, 'h> {
    context: &'r Context<'r>,
    scores: &'r mut [f32],
    scratch: &'r mut [u32],
    observer: &'r mut Option<Observer<'h>>,
}

impl ScoredRow<'_, '_> {
    fn apply<P: LogitsProcessor + ?Sized>(
        &mut self,
        name: &'static str,
        rule: &mut P,
    ) -> Result<(), Error> {
        rule.process(self.context, self.scores, self.scratch)?;
        self.observe(Some(name));
        Ok(())
    }

    fn observe(&mut self, rule: Option<&'static str>) {
        if let Some(observer) = self.observer {
            observer(Observation::Scores { context: *self.context, rule, scores: self.scores });
        }
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
    ) -> Result<(), Error> {
        let o = self.options;
        let (entries, words, eos) = (&o.sequence_bias[..], &o.bad_words[..], &o.eos[..]);
        let mut row = ScoredRow { context, scores, scratch, observer: &mut hooks.observer };
        row.observe(None);
        row.apply("SequenceBias", &mut SequenceBias { entries })?;
        if o.encoder_repetition_penalty != 1.0 {
            let penalty = o.encoder_repetition_penalty;
            row.apply("SourcePenalty", &mut SourcePenalty { penalty })?;
        }
        if o.repetition_penalty != 1.0 {
            let penalty = o.repetition_penalty as f32;
            row.apply("RepetitionPenalty", &mut RepetitionPenalty { penalty })?;
        }
        if let Some(size) = o.no_repeat_ngram {
            row.apply("NoRepeatNgram", &mut NoRepeatNgram { size })?;
        }
        if let Some(size) = o.encoder_no_repeat_ngram {
            row.apply("NoSourceNgram", &mut NoSourceNgram { size })?;
        }
        row.apply("BadWords", &mut BadWords { words, eos })?;
        let min_length = o.min_length;
        row.apply("MinLength", &mut MinLength { min_length, eos })?;
        let min_new_tokens = o.min_new_tokens;
        row.apply("MinNewTokens", &mut MinNewTokens { min_new_tokens, eos })?;
        if let Some(tokens) = &mut hooks.allowed {
            row.apply("AllowedPrefix", &mut AllowedPrefix { tokens: &mut **tokens })?;
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
    ) -> Result<(), Error> {
        let o = self.options;
        let eos = &o.eos[..];
        let mut row = ScoredRow { context, scores, scratch, observer: &mut hooks.observer };
        if let Some(token) = self.forced_bos {
            row.apply("ForcedBos", &mut ForcedBos { token })?;
        }
        if !o.forced_eos.is_empty() && o.set_a_length() {
            let tokens = &o.forced_eos[..];
            row.apply("ForcedEos", &mut ForcedEos { tokens })?;
        }
        if o.remove_invalid {
            row.apply("RemoveInvalid", &mut RemoveInvalid)?;
        }
        if let Some((start, factor)) = o.exponential_decay {
            row.apply("ExponentialDecay", &mut ExponentialDecay { start, factor, eos })?;
        }
        let tokens = &o.suppress[..];
        row.apply("Suppress", &mut Suppress { tokens })?;
        let tokens = &o.begin_suppress[..];
        let forced_first = context.prompt_len == 1 && self.forced_bos.is_some();
        let at = context.prompt_len + usize::from(forced_first);
        row.apply("BeginSuppress", &mut BeginSuppress { tokens, at })?;
        if let Some(mut rule) = o.timestamps {
            row.apply("Timestamps", &mut rule)?;
        }
        for processor in hooks.processors.iter_mut() {
            row.apply("LogitsProcessor", &mut **processor)?;
        }
        if let Some((sample, keep)) = o.drawn() {
            filter(sample, keep, &mut row)?;
        }
        if o.renormalize {
            row.apply("Renormalize", &mut Renormalize)?;
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
            AllowedPrefix { tokens: &mut **tokens }.force(context, scores)?;
        }
        let mut row =
            ScoredRow { context, scores, scratch: &mut [], observer: &mut hooks.observer };
        row.observe(Some("AllowedPrefix"));
        Ok(())
    }
}

/// Applies the filters of sampling, each of which leaves at least `keep` tokens.
fn filter(sample: &SampleOptions, keep: usize, row: &mut ScoredRow<'_, '_>) -> Result<(), Error> {
    if sample.temperature != 1.0 {
        let temperature = sample.temperature as f32;
        row.apply("Temperature", &mut Temperature { temperature })?;
    }
    if let Some(top_h) = sample.top_h {
        row.apply("TopH", &mut TopH { top_h })?;
    }
    if let Some(k) = sample.top_k {
        row.apply("TopK", &mut TopK { k, keep })?;
    }
    if let Some(p) = sample.top_p.filter(|&p| p < 1.0) {
        row.apply("TopP", &mut TopP { p, keep })?;
    }
    if let Some(min_p) = sample.min_p {
        row.apply("MinP", &mut MinP { min_p, keep })?;
    }
    if let Some(mass) = sample.typical.filter(|&mass| mass < 1.0) {
        row.apply("Typical", &mut Typical { mass, keep })?;
    }
    if let Some(epsilon) = sample.epsilon {
        row.apply("Epsilon", &mut Epsilon { epsilon, keep })?;
    }
    if let Some(eta) = sample.eta {
        row.apply("Eta", &mut Eta { eta, keep })?;
    }
    Ok(())
}
