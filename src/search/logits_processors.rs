//! Logits processors: rules that change the scores of the next token according to the history.
//!
//! Each rule is a small type. A search applies the rules that its options enable in the order of
//! `processor_order.rs` (that of transformers), then the caller's processors, then the filters of [`super::filters`]. The rules
//! receive raw logits in greedy search and sampling, and log-probabilities in beam search.

use super::errors::too_few_words;
use super::score_rows::log_softmax;
use crate::error::{Error, ErrorValue};
use core::fmt;

/// The information that a processor gets with a row of scores.
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

/// A rule that changes one row of scores in place.
///
/// `scores` is `[vocabulary]`, natural logarithms or logits; `-inf` bans a token. `scratch` has at least
/// [`scratch_words`] elements; the processor may overwrite it, and its contents are unspecified. A closure with
/// the same arguments is also a processor; see [`Hooks`](super::Hooks). The processors of this module are those
/// of transformers 5.23.
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
///     fn process(
///         &mut self,
///         _: &Context<'_>,
///         scores: &mut [f32],
///         _: &mut [u32],
///     ) -> Result<(), Error> {
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
/// rule.process(&context, &mut scores, &mut [])?;
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
    /// An error ends the whole search: [`Error::processor`] from a rule of the caller, [`Error::InvalidInput`] if `scratch`
    /// is too short (see [`scratch_words`]) or [`AllowedPrefix`] allows no token.
    fn process(
        &mut self,
        context: &Context<'_>,
        scores: &mut [f32],
        scratch: &mut [u32],
    ) -> Result<(), Error>;
}

impl<F> LogitsProcessor for F
where
    F: FnMut(&Context<'_>, &mut [f32], &mut [u32]) -> Result<(), Error>,
{
    fn process(
        &mut self,
        context: &Context<'_>,
        scores: &mut [f32],
        scratch: &mut [u32],
    ) -> Result<(), Error> {
        self(context, scores, scratch)
    }
}

/// The 4-byte words of scratch that are enough for every processor of this module.
///
/// [`RepetitionPenalty`] needs one word for each token of the history. [`SourcePenalty`] needs one for each
/// token of the source, which must not be longer than the returned number. [`AllowedPrefix`] needs one for each
/// score. [`TopK`](super::TopK), [`TopP`](super::TopP), [`MinP`](super::MinP), [`Typical`](super::Typical),
/// [`Epsilon`](super::Epsilon) and [`Eta`](super::Eta) need at most two for each score. These processors return
/// [`Error::InvalidInput`] if `scratch` is shorter. The others need none and never fail.
#[must_use]
pub fn scratch_words(vocabulary: usize, max_target_length: usize) -> usize {
    vocabulary.saturating_mul(2).max(max_target_length)
}

/// The tokens that may follow a history, chosen by the caller. A closure with the same arguments also
/// implements this trait; see [`Hooks`](super::Hooks).
pub trait AllowedTokens {
    /// Calls `allow` with the ids that may come next, in one call or in several, at least one id in total. Order
    /// and duplicates do not matter; ids outside the vocabulary are ignored. If no token is allowed, the search
    /// ends with [`Error::InvalidInput`].
    fn allowed(&mut self, context: &Context<'_>, allow: &mut dyn FnMut(&[u32]));
}

impl<F: FnMut(&Context<'_>, &mut dyn FnMut(&[u32]))> AllowedTokens for F {
    fn allowed(&mut self, context: &Context<'_>, allow: &mut dyn FnMut(&[u32])) {
        self(context, allow);
    }
}

/// The first `words` words of the scratch of a processor.
pub(super) fn first_words(scratch: &mut [u32], words: usize) -> Result<&mut [u32], Error> {
    let found = scratch.len();
    scratch.get_mut(..words).ok_or_else(|| too_few_words("processor scratch", words, found))
}

pub(super) fn ban(scores: &mut [f32], tokens: &[u32]) {
    for &token in tokens {
        if let Some(score) = scores.get_mut(token as usize) {
            *score = f32::NEG_INFINITY;
        }
    }
}

/// Sets the score of `tokens` to 0.
fn set_zero(scores: &mut [f32], tokens: &[u32]) {
    for &token in tokens {
        if let Some(score) = scores.get_mut(token as usize) {
            *score = 0.0;
        }
    }
}

/// Bans all tokens except `tokens`, whose scores become 0.
pub(super) fn force(scores: &mut [f32], tokens: &[u32]) {
    scores.fill(f32::NEG_INFINITY);
    set_zero(scores, tokens);
}

/// Returns `after`, limited to the finite range, if the score `before` the rule was finite; returns `after`
/// unchanged if `before` is NaN or infinite.
pub(super) fn saturated(before: f32, after: f32) -> f32 {
    if before.is_finite() { after.clamp(f32::MIN, f32::MAX) } else { after }
}

/// Adds `bias` to the last token of `sequence` if the history ends with the tokens before it.
fn bias_sequence(history: &[u32], scores: &mut [f32], sequence: &[u32], bias: f32) {
    if let Some((&last, rest)) = sequence.split_last()
        && history.ends_with(rest)
        && let Some(score) = scores.get_mut(last as usize)
    {
        // `-inf` bans the token; any other bias is finite.
        let biased = *score + bias;
        *score = if bias == f32::NEG_INFINITY { biased } else { saturated(*score, biased) };
    }
}

/// Adds a bias to the token that would complete a sequence. A finite score stays finite under a finite bias.
/// `SequenceBiasLogitsProcessor` of transformers.
#[derive(Clone, Copy, Debug)]
pub struct SequenceBias<'o> {
    /// Sequences and their biases. A sequence of one token is biased at every step.
    pub entries: &'o [(Vec<u32>, f32)],
}

impl LogitsProcessor for SequenceBias<'_> {
    fn process(
        &mut self,
        context: &Context<'_>,
        scores: &mut [f32],
        _: &mut [u32],
    ) -> Result<(), Error> {
        for (sequence, bias) in self.entries {
            bias_sequence(context.history, scores, sequence, *bias);
        }
        Ok(())
    }
}

/// Divides positive scores of tokens in the history by a penalty and multiplies negative ones, once
/// per distinct token (Keskar et al. 2019, section 4.1). A finite score stays finite.
/// `RepetitionPenaltyLogitsProcessor` of transformers.
#[derive(Clone, Copy, Debug)]
pub struct RepetitionPenalty {
    /// Above 1 discourages repetition, below 1 encourages it.
    pub penalty: f32,
}

impl LogitsProcessor for RepetitionPenalty {
    fn process(
        &mut self,
        context: &Context<'_>,
        scores: &mut [f32],
        scratch: &mut [u32],
    ) -> Result<(), Error> {
        let history = context.history;
        let before = first_words(scratch, history.len())?;
        // Read all scores before writing any, so that a repeated token is penalized once.
        for (kept, &token) in before.iter_mut().zip(history) {
            let score = scores.get(token as usize).copied().unwrap_or(0.0);
            let penalized = if score < 0.0 { score * self.penalty } else { score / self.penalty };
            *kept = saturated(score, penalized).to_bits();
        }
        for (kept, &token) in before.iter().zip(history) {
            if let Some(score) = scores.get_mut(token as usize) {
                *score = f32::from_bits(*kept);
            }
        }
        Ok(())
    }
}

/// Multiplies positive scores of tokens of the source by a factor and divides negative ones, once per distinct
/// token. This is the inverse of [`RepetitionPenalty`]: a factor above 1 favors tokens of the source.
#[derive(Clone, Copy, Debug)]
pub struct SourcePenalty {
    /// The factor.
    pub penalty: f64,
}

impl LogitsProcessor for SourcePenalty {
    fn process(
        &mut self,
        context: &Context<'_>,
        scores: &mut [f32],
        scratch: &mut [u32],
    ) -> Result<(), Error> {
        let of_source = Context { history: context.source, ..*context };
        let penalty = (1.0 / self.penalty) as f32;
        RepetitionPenalty { penalty }.process(&of_source, scores, scratch)
    }
}

/// Bans every token that would complete an n-gram of the source.
#[derive(Clone, Copy, Debug)]
pub struct NoSourceNgram {
    /// The size of the n-gram. 1 bans all tokens of the source; 0 disables the rule.
    pub size: usize,
}

impl NoSourceNgram {
    /// The tokens that are banned after `history`.
    pub(super) fn banned<'s>(
        self,
        source: &'s [u32],
        history: &'s [u32],
    ) -> impl Iterator<Item = u32> + use<'s> {
        let suffix = (history.len() + 1).checked_sub(self.size).and_then(|at| history.get(at..));
        let windows = suffix.map(|suffix| (suffix, source.windows(self.size.max(1))));
        windows.into_iter().flat_map(|(suffix, windows)| {
            windows.filter_map(move |window| {
                let (&last, rest) = window.split_last()?;
                (rest == suffix).then_some(last)
            })
        })
    }
}

impl LogitsProcessor for NoSourceNgram {
    fn process(
        &mut self,
        context: &Context<'_>,
        scores: &mut [f32],
        _: &mut [u32],
    ) -> Result<(), Error> {
        if self.size > 0 {
            let banned = self.banned(context.source, context.history);
            banned.for_each(|token| ban(scores, &[token]));
        }
        Ok(())
    }
}

/// Bans every token that would complete an n-gram already in the history, prompt included (Paulus et
/// al. 2018, section 2.5). `NoRepeatNGramLogitsProcessor` of transformers.
#[derive(Clone, Copy, Debug)]
pub struct NoRepeatNgram {
    /// The size of the n-gram. 1 bans all tokens of the history; 0 disables the rule.
    pub size: usize,
}

impl LogitsProcessor for NoRepeatNgram {
    fn process(
        &mut self,
        context: &Context<'_>,
        scores: &mut [f32],
        _: &mut [u32],
    ) -> Result<(), Error> {
        let history = context.history;
        if self.size == 0 || history.len() < self.size {
            return Ok(());
        }
        let suffix = &history[history.len() + 1 - self.size..];
        for window in history.windows(self.size) {
            if let Some((&last, rest)) = window.split_last()
                && rest == suffix
            {
                ban(scores, &[last]);
            }
        }
        Ok(())
    }
}

/// Bans the token that would complete a forbidden sequence. `NoBadWordsLogitsProcessor` of
/// transformers.
#[derive(Clone, Copy, Debug)]
pub struct BadWords<'o> {
    /// The forbidden sequences.
    pub words: &'o [Vec<u32>],
    /// The end tokens. A word that consists of one end token is ignored.
    pub eos: &'o [u32],
}

impl LogitsProcessor for BadWords<'_> {
    fn process(
        &mut self,
        context: &Context<'_>,
        scores: &mut [f32],
        _: &mut [u32],
    ) -> Result<(), Error> {
        for word in self.words {
            if !matches!(word[..], [id] if self.eos.contains(&id)) {
                bias_sequence(context.history, scores, word, f32::NEG_INFINITY);
            }
        }
        Ok(())
    }
}

/// Bans all tokens that the caller's function does not allow after this history.
/// `PrefixConstrainedLogitsProcessor` of transformers.
pub struct AllowedPrefix<'f> {
    /// The function.
    pub tokens: &'f mut dyn AllowedTokens,
}

impl fmt::Debug for AllowedPrefix<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("AllowedPrefix").finish_non_exhaustive()
    }
}

impl AllowedPrefix<'_> {
    /// Bans all tokens in `scores`, `[vocabulary]`, except the allowed ones, whose scores become 0.
    ///
    /// A search calls this for all rows of a sentence if [`LogitsProcessor::process`] left no token in any of them
    /// because other rules banned the allowed tokens. This rule takes precedence over those rules.
    ///
    /// # Errors
    /// [`Error::InvalidInput`] if the function allows no token.
    pub fn force(&mut self, context: &Context<'_>, scores: &mut [f32]) -> Result<(), Error> {
        let mut any = false;
        scores.fill(f32::NEG_INFINITY);
        self.tokens.allowed(context, &mut |allowed| {
            any |= !allowed.is_empty();
            set_zero(scores, allowed);
        });
        if any { Ok(()) } else { Err(nothing_allowed(context)) }
    }
}

fn nothing_allowed(context: &Context<'_>) -> Error {
    let text = &"an allowed token at position {} of the target";
    let expected = ErrorValue::new(text, [context.history.len(), 0]);
    Error::invalid_input("", expected, "none").with_index(context.sentence as usize)
}

impl LogitsProcessor for AllowedPrefix<'_> {
    fn process(
        &mut self,
        context: &Context<'_>,
        scores: &mut [f32],
        scratch: &mut [u32],
    ) -> Result<(), Error> {
        let before = first_words(scratch, scores.len())?;
        for (kept, score) in before.iter_mut().zip(scores.iter()) {
            *kept = score.to_bits();
        }
        scores.fill(f32::NEG_INFINITY);
        let mut any = false;
        self.tokens.allowed(context, &mut |allowed| {
            any |= !allowed.is_empty();
            for &token in allowed {
                if let Some(score) = scores.get_mut(token as usize) {
                    *score = f32::from_bits(before[token as usize]);
                }
            }
        });
        if any { Ok(()) } else { Err(nothing_allowed(context)) }
    }
}

/// Replaces NaN by 0 and infinities by the largest finite number of the same sign.
/// `InfNanRemoveLogitsProcessor` of transformers.
#[derive(Clone, Copy, Debug)]
pub struct RemoveInvalid;

impl LogitsProcessor for RemoveInvalid {
    fn process(&mut self, _: &Context<'_>, scores: &mut [f32], _: &mut [u32]) -> Result<(), Error> {
        for score in scores {
            *score = if score.is_nan() { 0.0 } else { score.clamp(f32::MIN, f32::MAX) };
        }
        Ok(())
    }
}

/// Bans tokens at every position. `SuppressTokensLogitsProcessor` of transformers.
#[derive(Clone, Copy, Debug)]
pub struct Suppress<'o> {
    /// The tokens.
    pub tokens: &'o [u32],
}

impl LogitsProcessor for Suppress<'_> {
    fn process(&mut self, _: &Context<'_>, scores: &mut [f32], _: &mut [u32]) -> Result<(), Error> {
        ban(scores, self.tokens);
        Ok(())
    }
}

/// Log-softmax, applied last: each score becomes `score - ln sum e^score`, the natural logarithm of a
/// probability. `LogitNormalization` of transformers.
#[derive(Clone, Copy, Debug)]
pub struct Renormalize;

impl LogitsProcessor for Renormalize {
    fn process(&mut self, _: &Context<'_>, scores: &mut [f32], _: &mut [u32]) -> Result<(), Error> {
        log_softmax(scores);
        Ok(())
    }
}
