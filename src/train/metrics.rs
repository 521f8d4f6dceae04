//! Sums of losses.

use simdformer_kernels::train::RowLoss;

/// Sums over target tokens, in f64, one token after the other in the order of the sentences.
///
/// For an encoder alone `loss` is the sum of what the caller's loss returned, and the tokens are the source's.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Totals {
    /// Target tokens, end tokens included.
    pub tokens: u64,
    /// Sum of the (smoothed) losses, in nats.
    pub loss: f64,
    /// Sum of the negative log-probabilities of the targets, in nats.
    pub nll: f64,
    /// Tokens whose logit was the largest.
    pub correct: u64,
}

impl Totals {
    /// Loss of a token.
    pub fn mean_loss(&self) -> f64 {
        self.loss / self.tokens as f64
    }

    /// Negative log-probability of a token; its exponential is the perplexity.
    pub fn mean_nll(&self) -> f64 {
        self.nll / self.tokens as f64
    }

    /// The part of the tokens whose logit was the largest.
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
