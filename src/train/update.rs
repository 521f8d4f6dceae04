//! What an update is made with, and what became of it.

use super::metrics::Totals;
use simdformer_kernels::train::{Adam, Smoothing};

/// How a step learns.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct StepOptions {
    /// Of the targets.
    pub smoothing: Smoothing,
    /// Its `step` and `clip` are set by the trainer.
    pub adam: Adam,
    /// The norm of all gradients together is brought down to this; `None` for any.
    pub clip_norm: Option<f64>,
}

impl Default for StepOptions {
    /// The paper's moments (0.9, 0.98, 1e-9), a rate of 1e-3, no smoothing, gradients clipped at a norm of 1.
    fn default() -> Self {
        let adam = Adam { rate: 1e-3, beta2: 0.98, epsilon: 1e-9, ..Adam::default() };
        Self { smoothing: Smoothing::default(), adam, clip_norm: Some(1.0) }
    }
}

/// What became of the gradients.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Update {
    /// Of all gradients together, before they were clipped.
    pub norm: f64,
    /// Whether they were scaled down.
    pub clipped: bool,
    /// Whether nothing changed, since the norm is not finite.
    pub skipped: bool,
}

/// What a step has done.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Step {
    /// The losses before the update.
    pub totals: Totals,
    /// The update.
    pub update: Update,
}
