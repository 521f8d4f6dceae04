//! The rate of each step.

use super::error::{OptimizerError, setting};
use crate::float_mode::in_default_mode;

/// How the learning rate goes with the steps, which are counted from 1.
///
/// Each but the paper's rises in a straight line over the first `warmup` steps: step `t` of them has
/// `peak t / warmup`. With no warm-up it begins at the peak.
///
/// ```
/// use simdformer_kernels::train::Schedule;
///
/// let schedule = Schedule::Linear { peak: 1e-3, warmup: 10, steps: 110, last: 0.0 };
/// assert!(schedule.check().is_ok());
/// assert_eq!((schedule.rate(5), schedule.rate(10), schedule.rate(60)), (5e-4, 1e-3, 5e-4));
/// assert_eq!(schedule.rate(1000), 0.0);
/// ```
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Schedule {
    /// `peak` at every step after the warm-up.
    Constant {
        /// The rate.
        peak: f64,
        /// Steps of the warm-up.
        warmup: u64,
    },
    /// `factor d_model^-0.5 min(t^-0.5, t warmup^-1.5)`, of "Attention Is All You Need", which has 4,000
    /// steps of warm-up and a factor of 1. Others call it `noam`.
    Paper {
        /// Width of the model.
        d_model: usize,
        /// What the paper's rate is multiplied by.
        factor: f64,
        /// Steps of the warm-up, at least 1.
        warmup: u64,
    },
    /// `peak sqrt(warmup / t)` after the warm-up: the paper's curve with a height of its own, fairseq's
    /// `inverse_sqrt`. With no warm-up it is `peak / sqrt(t)`.
    InverseSquareRoot {
        /// The largest rate, at the end of the warm-up.
        peak: f64,
        /// Steps of the warm-up.
        warmup: u64,
    },
    /// A straight line from the peak down to `last peak` at step `steps`, and that from there on.
    Linear {
        /// The largest rate, at the end of the warm-up.
        peak: f64,
        /// Steps of the warm-up.
        warmup: u64,
        /// The step that ends the line; more than `warmup`.
        steps: u64,
        /// What is left of the peak in the end, in `0..=1`.
        last: f64,
    },
    /// Half a period of a cosine from the peak down to `last peak` at step `steps`, and that from there
    /// on.
    Cosine {
        /// The largest rate, at the end of the warm-up.
        peak: f64,
        /// Steps of the warm-up.
        warmup: u64,
        /// The step that ends the curve; more than `warmup`.
        steps: u64,
        /// What is left of the peak in the end, in `0..=1`.
        last: f64,
    },
}

impl Schedule {
    /// The paper's.
    pub const fn paper(d_model: usize) -> Self {
        Self::Paper { d_model, factor: 1.0, warmup: 4000 }
    }

    /// Whether every setting is in its range: then every rate is finite and not negative.
    ///
    /// # Errors
    /// A rate or a factor is negative or not finite, the model has no width, the paper's schedule no
    /// warm-up, the last step is not after it, or what is left of the peak is not in `0..=1`.
    pub fn check(&self) -> Result<(), OptimizerError> {
        let size =
            |name, x: f64| setting(name, x, x.is_finite() && x >= 0.0, "finite and not negative");
        match *self {
            Self::Constant { peak, .. } | Self::InverseSquareRoot { peak, .. } => {
                size("the peak", peak)
            }
            Self::Paper { d_model, factor, warmup } => {
                size("the factor", factor)?;
                setting("d_model", d_model as f64, d_model > 0, "at least 1")?;
                setting("the warm-up", warmup as f64, warmup > 0, "at least 1 step")
            }
            Self::Linear { peak, warmup, steps, last }
            | Self::Cosine { peak, warmup, steps, last } => {
                size("the peak", peak)?;
                setting("the last step", steps as f64, steps > warmup, "after the warm-up")?;
                let fits = (0.0..=1.0).contains(&last);
                setting("what is left of the peak", last, fits, "from 0 to 1")
            }
        }
    }

    /// The rate of step `step`, counted from 1; step 0 is taken for 1.
    pub fn rate(&self, step: u64) -> f64 {
        in_default_mode(|| self.rate_of(step))
    }

    fn rate_of(&self, step: u64) -> f64 {
        let step = step.max(1);
        let t = step as f64;
        let risen = |peak: f64, warmup: u64| {
            if step < warmup { Some(peak * t / warmup as f64) } else { None }
        };
        // How far from the end of the warm-up to the last step.
        let way = |warmup: u64, steps: u64| {
            let whole = steps.saturating_sub(warmup).max(1) as f64;
            (step.saturating_sub(warmup) as f64 / whole).min(1.0)
        };
        match *self {
            Self::Constant { peak, warmup } => risen(peak, warmup).unwrap_or(peak),
            Self::Paper { d_model, factor, warmup } => {
                let w = warmup as f64;
                let rise = t / (w * libm::sqrt(w));
                factor / libm::sqrt(d_model as f64) * (1.0 / libm::sqrt(t)).min(rise)
            }
            Self::InverseSquareRoot { peak, warmup } => {
                let fallen = || peak * libm::sqrt(warmup.max(1) as f64 / t);
                risen(peak, warmup).unwrap_or_else(fallen)
            }
            Self::Linear { peak, warmup, steps, last } => {
                let fallen = || peak * (last + (1.0 - last) * (1.0 - way(warmup, steps)));
                risen(peak, warmup).unwrap_or_else(fallen)
            }
            Self::Cosine { peak, warmup, steps, last } => {
                let fallen = || {
                    let angle = core::f64::consts::PI * way(warmup, steps);
                    peak * (last + (1.0 - last) * 0.5 * (1.0 + libm::cos(angle)))
                };
                risen(peak, warmup).unwrap_or_else(fallen)
            }
        }
    }
}
