//! The options and the result of an update.

use super::metrics::Totals;
use simdformer_kernels::train::{Adam, Smoothing};

/// The options of a step.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct StepOptions {
    /// Label smoothing of the targets.
    pub smoothing: Smoothing,
    /// The trainer sets its `step` and `clip`.
    pub adam: Adam,
    /// Gradients are scaled down if their total norm is larger; `None` disables clipping.
    pub clip_norm: Option<f64>,
}

impl Default for StepOptions {
    /// The paper's Adam (0.9, 0.98, 1e-9), a learning rate of 1e-3, no smoothing, gradients clipped at a norm of 1.
    fn default() -> Self {
        let adam = Adam { rate: 1e-3, beta2: 0.98, epsilon: 1e-9, ..Adam::default() };
        Self { smoothing: Smoothing::default(), adam, clip_norm: Some(1.0) }
    }
}

/// The result of an update.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Update {
    /// The norm of all gradients, before clipping.
    pub norm: f64,
    /// Whether the gradients were scaled down.
    pub clipped: bool,
    /// Whether the update was skipped because the norm is not finite.
    pub skipped: bool,
}

/// The result of a step.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Step {
    /// The losses before the update.
    pub totals: Totals,
    /// The update.
    pub update: Update,
}
