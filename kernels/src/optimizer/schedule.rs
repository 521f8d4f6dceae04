//! Learning rate schedules.

use crate::error::Error;
use crate::float_mode::in_default_mode;

/// The learning rate as a function of the step, counted from 1.
///
/// All schedules except the paper's rise linearly over the first `warmup` steps: step `t` of them has the rate `peak t
/// / warmup`. Without a warmup the rate starts at the peak.
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
    /// `peak` at every step after the warmup.
    Constant {
        /// The rate.
        peak: f64,
        /// Steps of the warmup.
        warmup: u64,
    },
    /// `factor d_model^-0.5 min(t^-0.5, t warmup^-1.5)` of "Attention Is All You Need", which uses 4,000 warmup steps
    /// and a factor of 1. Also called `noam`.
    Paper {
        /// Width of the model.
        d_model: usize,
        /// The factor of the paper's rate.
        factor: f64,
        /// Steps of the warmup, at least 1.
        warmup: u64,
    },
    /// `peak sqrt(warmup / t)` after the warmup: the paper's curve with its own peak; fairseq's `inverse_sqrt`.
    /// Without a warmup it is `peak / sqrt(t)`.
    InverseSquareRoot {
        /// The largest rate, at the end of the warmup.
        peak: f64,
        /// Steps of the warmup.
        warmup: u64,
    },
    /// Linear decay from the peak to `last peak` at step `steps`, constant afterwards.
    Linear {
        /// The largest rate, at the end of the warmup.
        peak: f64,
        /// Steps of the warmup.
        warmup: u64,
        /// The step at which the decay ends; more than `warmup`.
        steps: u64,
        /// The final fraction of the peak, in `0..=1`.
        last: f64,
    },
    /// Cosine decay, half a period, from the peak to `last peak` at step `steps`, constant afterwards.
    Cosine {
        /// The largest rate, at the end of the warmup.
        peak: f64,
        /// Steps of the warmup.
        warmup: u64,
        /// The step at which the decay ends; more than `warmup`.
        steps: u64,
        /// The final fraction of the peak, in `0..=1`.
        last: f64,
    },
}

impl Schedule {
    /// The paper's schedule.
    pub const fn paper(d_model: usize) -> Self {
        Self::Paper { d_model, factor: 1.0, warmup: 4000 }
    }

    /// Checks that every setting is in its range: then every rate is finite and not negative.
    ///
    /// # Errors
    /// A rate or a factor is negative or not finite, `d_model` is 0, the warmup of the paper's schedule is 0, the last
    /// step is not after the warmup, or the final fraction is not in `0..=1`.
    pub fn check(&self) -> Result<(), Error> {
        let size = |name, x: f64| {
            Error::check_setting(name, x, x.is_finite() && x >= 0.0, "finite and not negative")
        };
        match *self {
            Self::Constant { peak, .. } | Self::InverseSquareRoot { peak, .. } => {
                size("the peak", peak)
            }
            Self::Paper { d_model, factor, warmup } => {
                size("the factor", factor)?;
                Error::check_setting("d_model", d_model as f64, d_model > 0, "at least 1")?;
                Error::check_setting("the warm-up", warmup as f64, warmup > 0, "at least 1 step")
            }
            Self::Linear { peak, warmup, steps, last }
            | Self::Cosine { peak, warmup, steps, last } => {
                size("the peak", peak)?;
                Error::check_setting(
                    "the last step",
                    steps as f64,
                    steps > warmup,
                    "after the warm-up",
                )?;
                let fits = (0.0..=1.0).contains(&last);
                Error::check_setting("the final fraction of the peak", last, fits, "from 0 to 1")
            }
        }
    }

    /// The rate of step `step`, counted from 1; step 0 counts as 1.
    pub fn rate(&self, step: u64) -> f64 {
        in_default_mode(|| self.rate_of(step))
    }

    fn rate_of(&self, step: u64) -> f64 {
        let step = step.max(1);
        let t = step as f64;
        let warmup_rate = |peak: f64, warmup: u64| {
            if step < warmup { Some(peak * t / warmup as f64) } else { None }
        };
        // The fraction of the steps from the end of the warmup to the last step.
        let progress = |warmup: u64, steps: u64| {
            let whole = steps.saturating_sub(warmup).max(1) as f64;
            (step.saturating_sub(warmup) as f64 / whole).min(1.0)
        };
        match *self {
            Self::Constant { peak, warmup } => warmup_rate(peak, warmup).unwrap_or(peak),
            Self::Paper { d_model, factor, warmup } => {
                let w = warmup as f64;
                let linear = t / (w * libm::sqrt(w));
                factor / libm::sqrt(d_model as f64) * (1.0 / libm::sqrt(t)).min(linear)
            }
            Self::InverseSquareRoot { peak, warmup } => {
                let decayed = || peak * libm::sqrt(warmup.max(1) as f64 / t);
                warmup_rate(peak, warmup).unwrap_or_else(decayed)
            }
            Self::Linear { peak, warmup, steps, last } => {
                let decayed = || peak * (last + (1.0 - last) * (1.0 - progress(warmup, steps)));
                warmup_rate(peak, warmup).unwrap_or_else(decayed)
            }
            Self::Cosine { peak, warmup, steps, last } => {
                let decayed = || {
                    let angle = core::f64::consts::PI * progress(warmup, steps);
                    peak * (last + (1.0 - last) * 0.5 * (1.0 + libm::cos(angle)))
                };
                warmup_rate(peak, warmup).unwrap_or_else(decayed)
            }
        }
    }
}
