//! Logits processors that depend on the position in the target: minimum lengths, forced tokens, a length penalty and
//! tokens that are banned at one position.

use super::logits_processors::{Context, LogitsProcessor, ban, force, saturated};
use super::score_rows::power;
use crate::error::Error;

/// Bans end tokens while the history is shorter than a minimum. `MinLengthLogitsProcessor` of
/// transformers.
#[derive(Clone, Copy, Debug)]
pub struct MinLength<'o> {
    /// Tokens in the history, decoder start and prefix included.
    pub min_length: usize,
    /// The end tokens.
    pub eos: &'o [u32],
}

impl LogitsProcessor for MinLength<'_> {
    fn process(
        &mut self,
        context: &Context<'_>,
        scores: &mut [f32],
        _: &mut [u32],
    ) -> Result<(), Error> {
        if context.history.len() < self.min_length {
            ban(scores, self.eos);
        }
        Ok(())
    }
}

/// Bans end tokens until `min_new_tokens` tokens follow the prompt. `MinNewTokensLengthLogitsProcessor` of
/// transformers.
#[derive(Clone, Copy, Debug)]
pub struct MinNewTokens<'o> {
    /// The minimum number of tokens after the prompt.
    pub min_new_tokens: usize,
    /// The end tokens.
    pub eos: &'o [u32],
}

impl LogitsProcessor for MinNewTokens<'_> {
    fn process(
        &mut self,
        context: &Context<'_>,
        scores: &mut [f32],
        _: &mut [u32],
    ) -> Result<(), Error> {
        if context.history.len().saturating_sub(context.prompt_len) < self.min_new_tokens {
            ban(scores, self.eos);
        }
        Ok(())
    }
}

/// Forces the token directly after the decoder start: its score becomes 0, all others `-inf`.
/// `ForcedBOSTokenLogitsProcessor` of transformers.
#[derive(Clone, Copy, Debug)]
pub struct ForcedBos {
    /// The token.
    pub token: u32,
}

impl LogitsProcessor for ForcedBos {
    fn process(
        &mut self,
        context: &Context<'_>,
        scores: &mut [f32],
        _: &mut [u32],
    ) -> Result<(), Error> {
        if context.history.len() == 1 {
            force(scores, &[self.token]);
        }
        Ok(())
    }
}

/// Forces the last token of a target that reaches the maximum length: the scores of `tokens` become 0, all
/// others `-inf`. `ForcedEOSTokenLogitsProcessor` of transformers.
#[derive(Clone, Copy, Debug)]
pub struct ForcedEos<'o> {
    /// The tokens of which one must come last.
    pub tokens: &'o [u32],
}

impl LogitsProcessor for ForcedEos<'_> {
    fn process(
        &mut self,
        context: &Context<'_>,
        scores: &mut [f32],
        _: &mut [u32],
    ) -> Result<(), Error> {
        if context.history.len() + 1 == context.max_length {
            force(scores, self.tokens);
        }
        Ok(())
    }
}

/// Raises the score of the end tokens by `|score| (factor^n - 1)`, where `n` is the number of tokens after
/// `start`. If the result exceeds the largest finite number, the score becomes that number.
/// `ExponentialDecayLengthPenalty` of transformers.
#[derive(Clone, Copy, Debug)]
pub struct ExponentialDecay<'o> {
    /// The number of tokens after the prompt up to which the scores do not change.
    pub start: usize,
    /// The base; above 1 favors ending.
    pub factor: f64,
    /// The end tokens.
    pub eos: &'o [u32],
}

impl LogitsProcessor for ExponentialDecay<'_> {
    fn process(
        &mut self,
        context: &Context<'_>,
        scores: &mut [f32],
        _: &mut [u32],
    ) -> Result<(), Error> {
        let start = self.start.saturating_add(context.prompt_len);
        if let Some(past) = context.history.len().checked_sub(start)
            && past > 0
        {
            // An infinite factor would turn a score of 0 into NaN.
            let growth = ((power(self.factor, past) - 1.0) as f32).min(f32::MAX);
            for (i, &token) in self.eos.iter().enumerate() {
                if let Some(score) = scores.get_mut(token as usize)
                    && score.is_finite()
                    && !self.eos[..i].contains(&token)
                {
                    *score = saturated(*score, *score + score.abs() * growth);
                }
            }
        }
        Ok(())
    }
}

/// Bans tokens at one position of the target. `SuppressTokensAtBeginLogitsProcessor` of transformers.
#[derive(Clone, Copy, Debug)]
pub struct BeginSuppress<'o> {
    /// The tokens.
    pub tokens: &'o [u32],
    /// The length of the history at which the tokens are banned: the length of the prompt, or one more if the first
    /// token is forced.
    pub at: usize,
}

impl LogitsProcessor for BeginSuppress<'_> {
    fn process(
        &mut self,
        context: &Context<'_>,
        scores: &mut [f32],
        _: &mut [u32],
    ) -> Result<(), Error> {
        if context.history.len() == self.at {
            ban(scores, self.tokens);
        }
        Ok(())
    }
}
