//! The rules of the options that change the scores of the next token according to the history. The filters of sampling
//! are in [`super::filters`], and the order of all rules in [`super::processor_order`].
//!
//! The rules are those of transformers 5.23. They receive raw logits in greedy search and sampling, and log-probabilities
//! in beam search. `scores` is `[vocabulary]`; `-inf` bans a token, and a finite score stays finite. Tokens outside the
//! vocabulary are ignored. `scratch` has a word for each token of the history or of the source, and
//! for [`ban_others`] a word for each score, with any content.

use super::hooks::{AllowedTokens, Context};
use super::score_rows::power;
use crate::error::{Error, ErrorValue};

/// Bans `tokens`.
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

/// Bans all tokens except `tokens`, whose scores become 0. `ForcedBOSTokenLogitsProcessor` and
/// `ForcedEOSTokenLogitsProcessor` of transformers.
pub(super) fn force(scores: &mut [f32], tokens: &[u32]) {
    scores.fill(f32::NEG_INFINITY);
    set_zero(scores, tokens);
}

/// Returns `after`, limited to the finite range, if the score `before` the rule was finite; returns `after`
/// unchanged if `before` is NaN or infinite.
fn saturated(before: f32, after: f32) -> f32 {
    if before.is_finite() { after.clamp(f32::MIN, f32::MAX) } else { after }
}

/// Adds `bias` to the last token of `sequence` if the history ends with the tokens before it.
/// `SequenceBiasLogitsProcessor` of transformers.
pub(super) fn bias_sequence(history: &[u32], scores: &mut [f32], sequence: &[u32], bias: f32) {
    if let Some((&last, rest)) = sequence.split_last()
        && history.ends_with(rest)
        && let Some(score) = scores.get_mut(last as usize)
    {
        // `-inf` bans the token; any other bias is finite.
        let biased = *score + bias;
        *score = if bias == f32::NEG_INFINITY { biased } else { saturated(*score, biased) };
    }
}

/// Divides positive scores of `tokens` by a penalty and multiplies negative ones, once per distinct token (Keskar et al.
/// 2019, section 4.1): above 1 discourages them, below 1 encourages them. `RepetitionPenaltyLogitsProcessor` and
/// `EncoderRepetitionPenaltyLogitsProcessor` of transformers.
pub(super) fn penalize(penalty: f32, tokens: &[u32], scores: &mut [f32], scratch: &mut [u32]) {
    let before = &mut scratch[..tokens.len()];
    // Read all scores before writing any, so that a repeated token is penalized once.
    for (kept, &token) in before.iter_mut().zip(tokens) {
        let score = scores.get(token as usize).copied().unwrap_or(0.0);
        let penalized = if score < 0.0 { score * penalty } else { score / penalty };
        *kept = saturated(score, penalized).to_bits();
    }
    for (kept, &token) in before.iter().zip(tokens) {
        if let Some(score) = scores.get_mut(token as usize) {
            *score = f32::from_bits(*kept);
        }
    }
}

/// The tokens that would complete an n-gram of `text` after `history` (Paulus et al. 2018, section 2.5).
/// `NoRepeatNGramLogitsProcessor` and `EncoderNoRepeatNGramLogitsProcessor` of transformers.
pub(super) fn completed_ngrams<'t>(
    size: usize,
    text: &'t [u32],
    history: &'t [u32],
) -> impl Iterator<Item = u32> + use<'t> {
    let suffix = (history.len() + 1).checked_sub(size).and_then(|at| history.get(at..));
    let windows = suffix.map(|suffix| (suffix, text.windows(size.max(1))));
    windows.into_iter().flat_map(|(suffix, windows)| {
        windows.filter_map(move |window| {
            let (&last, rest) = window.split_last()?;
            (rest == suffix).then_some(last)
        })
    })
}

/// Whether a forbidden sequence is ignored, because it consists of one end token. `NoBadWordsLogitsProcessor` of
/// transformers.
pub(super) fn is_end_token(word: &[u32], eos: &[u32]) -> bool {
    matches!(word, [id] if eos.contains(id))
}

/// Bans all tokens that the caller's function does not allow after this history.
/// `PrefixConstrainedLogitsProcessor` of transformers.
///
/// # Errors
/// [`Error::InvalidInput`] if the function allows no token.
pub(super) fn ban_others(
    tokens: &mut AllowedTokens<'_>,
    context: &Context<'_>,
    scores: &mut [f32],
    scratch: &mut [u32],
) -> Result<(), Error> {
    let before = &mut scratch[..scores.len()];
    for (kept, score) in before.iter_mut().zip(scores.iter()) {
        *kept = score.to_bits();
    }
    scores.fill(f32::NEG_INFINITY);
    let mut any = false;
    tokens(context, &mut |allowed| {
        any |= !allowed.is_empty();
        for &token in allowed {
            if let Some(score) = scores.get_mut(token as usize) {
                *score = f32::from_bits(before[token as usize]);
            }
        }
    });
    if any { Ok(()) } else { Err(nothing_allowed(context)) }
}

/// Bans all tokens except the allowed ones, whose scores become 0: for all rows of a sentence if [`ban_others`] left no
/// token in any of them because other rules banned the allowed tokens. The allowed tokens take precedence.
///
/// # Errors
/// As [`ban_others`].
pub(super) fn force_allowed(
    tokens: &mut AllowedTokens<'_>,
    context: &Context<'_>,
    scores: &mut [f32],
) -> Result<(), Error> {
    let mut any = false;
    scores.fill(f32::NEG_INFINITY);
    tokens(context, &mut |allowed| {
        any |= !allowed.is_empty();
        set_zero(scores, allowed);
    });
    if any { Ok(()) } else { Err(nothing_allowed(context)) }
}

fn nothing_allowed(context: &Context<'_>) -> Error {
    let text = &"an allowed token at position {} of the target";
    let expected = ErrorValue::new(text, [context.history.len(), 0]);
    Error::invalid_input("", expected, "none").with_index(context.sentence as usize)
}

/// Replaces NaN by 0 and infinities by the largest finite number of the same sign.
/// `InfNanRemoveLogitsProcessor` of transformers.
pub(super) fn remove_invalid(scores: &mut [f32]) {
    for score in scores {
        *score = if score.is_nan() { 0.0 } else { score.clamp(f32::MIN, f32::MAX) };
    }
}

/// Raises the score of the end tokens by `|score| (factor^past - 1)`, where `past` is the number of tokens after the one
/// from which the scores change. A factor above 1 favors ending. If the result exceeds the largest finite number, the
/// score becomes that number. `ExponentialDecayLengthPenalty` of transformers.
pub(super) fn raise_ends(factor: f64, past: usize, eos: &[u32], scores: &mut [f32]) {
    // An infinite factor would turn a score of 0 into NaN.
    let growth = ((power(factor, past) - 1.0) as f32).min(f32::MAX);
    for (i, &token) in eos.iter().enumerate() {
        if let Some(score) = scores.get_mut(token as usize)
            && score.is_finite()
            && !eos[..i].contains(&token)
        {
            *score = saturated(*score, *score + score.abs() * growth);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const NO: f32 = f32::NEG_INFINITY;

    #[test]
    fn penalties_and_biases_saturate() {
        let (most, least) = (f32::MAX, f32::MIN);
        let mut scores = [0.0, 2.0, -2.0, NO, most];
        raise_ends(1e300, 4, &[0, 1, 2, 3], &mut scores);
        assert_eq!(scores, [0.0, most, most, NO, most]);
        let mut scores = [most, least, 1.0];
        raise_ends(0.5, 8, &[0, 1], &mut scores);
        assert!(scores[0] >= 0.0 && scores[1] == least, "{scores:?}");
        for penalty in [1e-38, 1e38] {
            let mut scores = [most, least, NO, 0.0, 3.0];
            penalize(penalty, &[0, 1, 2, 3], &mut scores, &mut [0; 4]);
            assert!(scores[0].is_finite() && scores[1].is_finite(), "{scores:?}");
            assert_eq!(scores[2..], [NO, 0.0, 3.0]);
        }
        let biases = [most, least, NO, most];
        let bias = |scores: &mut [f32]| {
            for (token, &bias) in (0..scores.len() as u32).zip(&biases) {
                bias_sequence(&[9], scores, &[token], bias);
            }
        };
        let mut scores = [most, least, most, NO];
        bias(&mut scores);
        assert_eq!(scores, [most, least, NO, NO]);
        // Values that were not finite before do not become finite.
        let mut scores = [f32::NAN, f32::INFINITY];
        bias(&mut scores);
        assert!(scores[0].is_nan() && scores[1] == f32::INFINITY, "{scores:?}");
    }

    /// Compared with the definitions, on random sources and targets of few different tokens.
    #[test]
    fn rules_about_the_source_match_the_reference() {
        const VOCABULARY: usize = 7;
        let mut state = 3u64;
        let mut below = |n: usize| {
            state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
            (state >> 33) as usize % n
        };
        let (mut banned, mut free) = (0, 0);
        for round in 0..500 {
            let lens = [below(9), 1 + below(6)];
            let [source, history] =
                lens.map(|len| (0..len).map(|_| below(VOCABULARY) as u32).collect::<Vec<_>>());
            let given: [f32; VOCABULARY] =
                core::array::from_fn(|_| below(1 << 20) as f32 / (1 << 19) as f32 - 1.0);
            for size in 1..4 {
                let mut scores = given;
                completed_ngrams(size, &source, &history).for_each(|id| ban(&mut scores, &[id]));
                for token in 0..VOCABULARY as u32 {
                    let said = [&history[..], &[token]].concat();
                    let gram = said.len().checked_sub(size).map(|start| &said[start..]);
                    let known = gram.is_some_and(|gram| source.windows(size).any(|w| w == gram));
                    let expected = if known { NO } else { given[token as usize] };
                    let case = (round, size, &source, &said);
                    assert_eq!(scores[token as usize], expected, "{case:?}");
                    if known { banned += 1 } else { free += 1 }
                }
            }
            for factor in [0.8, 1.0, 1.7].map(|penalty: f64| (1.0 / penalty) as f32) {
                let mut scores = given;
                penalize(factor, &source, &mut scores, &mut [0; 16]);
                for (token, (&found, score)) in scores.iter().zip(given).enumerate() {
                    let expected = match source.contains(&(token as u32)) {
                        true if score < 0.0 => score * factor,
                        true => score / factor,
                        false => score,
                    };
                    assert_eq!(found, expected, "{round} {factor} {source:?} {token}");
                }
            }
        }
        assert!(banned > 500 && free > 500, "{banned} {free}");
    }
}
