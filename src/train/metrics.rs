//! Sums of losses.

use simdformer_kernels::train::RowLoss;

/// Sums over target tokens, added in f64 in the order of the tokens.
///
/// For a model with only an encoder, `loss` is the sum of the caller's losses, and `tokens` counts source tokens.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Totals {
    /// Target tokens, end tokens included.
    pub tokens: u64,
    /// Sum of the (smoothed) losses, in nats.
    pub loss: f64,
    /// Sum of the negative log-probabilities of the targets, in nats.
    pub nll: f64,
    /// Tokens that have the largest logit.
    pub correct: u64,
}

impl Totals {
    /// Mean loss per token.
    pub fn mean_loss(&self) -> f64 {
        self.loss / self.tokens as f64
    }

    /// Mean negative log-probability per token; its exponential is the perplexity.
    pub fn mean_nll(&self) -> f64 {
        self.nll / self.tokens as f64
    }

    /// The fraction of tokens that have the largest logit.
    pub fn accuracy(&self) -> f64 {
        self.correct as f64 / self.tokens as f64
    }

    pub(super) fn add(&mut self, losses: &[RowLoss]) {
        self.tokens += losses.len() as u64;
        for row in losses {
            self.loss += row.loss;
            self.nll += row.nll;
            self.correct += u64::from(row.correct);
        }
    }

    pub(super) fn add_sum(&mut self, loss: f64, tokens: usize) {
        self.tokens += tokens as u64;
        self.loss += loss;
    }
}
