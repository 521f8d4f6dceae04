//! What a caller adds to a search: rules of its own, allowed tokens, and an observer.

use crate::error::Error;
use core::fmt;
use core::ops::ControlFlow;

/// The information that a rule gets with a row of scores.
#[derive(Clone, Copy, Debug)]
pub struct Context<'c> {
    /// The slot of the sentence.
    pub sentence: u32,
    /// The source of the sentence if an option needs it; otherwise empty.
    pub source: &'c [u32],
    /// The target up to now: decoder start, prefix, generated tokens.
    pub history: &'c [u32],
    /// How many tokens of the history the caller gave (decoder start and prefix).
    pub prompt_len: usize,
    /// The maximum length of the history of this sentence, in tokens, prompt included.
    pub max_length: usize,
}

/// A rule of the caller that changes one row of scores in place.
///
/// `scores` is `[vocabulary]`, natural logarithms or logits; `-inf` bans a token. A closure with the same arguments is
/// also a processor; see [`Hooks`]. The rules of this module are set by [`SearchOptions`](super::SearchOptions).
///
/// ```
/// use simdformer::Error;
/// use simdformer::search::{Context, LogitsProcessor};
///
/// /// Subtracts a penalty from the scores of tokens that a table marks as rare.
/// struct Rare {
///     is_rare: Vec<bool>,
///     penalty: f32,
/// }
///
/// impl LogitsProcessor for Rare {
///     fn process(&mut self, _: &Context<'_>, scores: &mut [f32]) -> Result<(), Error> {
///         if scores.len() != self.is_rare.len() {
///             return Err(Error::processor("the table is of another vocabulary"));
///         }
///         for (score, &is_rare) in scores.iter_mut().zip(&self.is_rare) {
///             *score -= if is_rare { self.penalty } else { 0.0 };
///         }
///         Ok(())
///     }
/// }
///
/// let mut rule = Rare { is_rare: vec![false, true, false], penalty: 2.0 };
/// let context = Context { sentence: 0, source: &[], history: &[1], prompt_len: 1, max_length: 9 };
/// let mut scores = [0.5, 1.0, 0.0];
/// rule.process(&context, &mut scores)?;
/// assert_eq!(scores, [0.5, -1.0, 0.0]);
/// # Ok::<(), Error>(())
/// ```
pub trait LogitsProcessor {
    /// Changes `scores`, `[vocabulary]`, of the token that follows `context.history`.
    ///
    /// If a score is NaN or `+inf` after all processors, only its sentence ends, with
    /// [`Finish::NotFinite`](super::Finish::NotFinite).
    ///
    /// # Errors
    /// An error, such as [`Error::processor`], ends the whole search.
    fn process(&mut self, context: &Context<'_>, scores: &mut [f32]) -> Result<(), Error>;
}

impl<F: FnMut(&Context<'_>, &mut [f32]) -> Result<(), Error>> LogitsProcessor for F {
    fn process(&mut self, context: &Context<'_>, scores: &mut [f32]) -> Result<(), Error> {
        self(context, scores)
    }
}

/// The function of [`Hooks::allowed`].
pub(super) type AllowedTokens<'f> = &'f mut dyn FnMut(&Context<'_>, &mut dyn FnMut(&[u32]));

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
    /// [`SearchOptions::scores`](super::SearchOptions::scores).
    pub log_probability: Option<f32>,
}

/// Receives every token when it becomes final, in order, with the slot of its sentence. `Break` ends the
/// sentence.
pub(crate) type OnToken<'t> = &'t mut dyn FnMut(u32, Token) -> ControlFlow<()>;

/// What a search reports to [`Hooks::observer`].
#[derive(Clone, Copy, Debug)]
pub enum Observation<'o> {
    /// The scores of a row, `[vocabulary]`, that the model gave (`rule` is `None`; log-probabilities in beam search), or
    /// that a rule left. `rule` is its name as in [`Hooks`], or `"LogitsProcessor"` for one of [`Hooks::processors`]. Rules
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

/// The function of [`Hooks::observer`].
pub(super) type Observer<'t> = &'t mut dyn FnMut(Observation<'_>);

/// The caller's rules. The default has none.
///
/// The order of all rules is that of transformers 5.23: `SequenceBias`, `SourcePenalty`, `RepetitionPenalty`,
/// `NoRepeatNgram`, `NoSourceNgram`, `BadWords`, `MinLength`, `MinNewTokens`, `AllowedPrefix` ([`allowed`](Self::allowed)),
/// `ForcedBos`, `ForcedEos`, `RemoveInvalid`, `ExponentialDecay`, `Suppress`, `BeginSuppress`,
/// [`Timestamps`](super::Timestamps), the processors of the caller ([`processors`](Self::processors)), then for sampling
/// `Temperature`, `TopH`, `TopK`, `TopP`, `MinP`, `Typical`, `Epsilon`, `Eta`, and last `Renormalize`.
/// [`Setting::processor`](super::Setting::processor) is the rule of a setting.
///
/// ```
/// use simdformer::search::{Context, Hooks, LogitsProcessor};
/// use simdformer::{Event, Limits, Model, Session, Source};
///
/// let model = Model::open("models/fr-en")?;
/// let mut session = Session::new(&model, Limits::new(4, 32, 40))?;
/// // Bans repeating the last token, and the upper half of the vocabulary.
/// let mut never_twice = |context: &Context<'_>, scores: &mut [f32]| {
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
    /// Which tokens may follow a history. The function calls its second argument with the ids that may come next, in one
    /// call or in several, at least one id in total. Order and duplicates do not matter; ids outside the vocabulary are
    /// ignored. If no token is allowed, the search ends with [`Error::InvalidInput`]. Applied as `AllowedPrefix`, between
    /// the rules of the options.
    pub allowed: Option<AllowedTokens<'h>>,
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
