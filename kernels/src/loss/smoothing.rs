//! Label smoothing, and the loss of a row.

use crate::error::{Error, Expected};
use crate::float_mode::in_default_mode;

/// A target that does not count: the loss and the gradient of its row are 0, whatever the logits are.
pub const IGNORED: u32 = u32::MAX;

/// The amount of probability that is spread over columns other than the target.
///
/// Frameworks differ in the columns that get it and in the loss that they report: with 0.1 over 32,000 columns the
/// losses of the two conventions differ by 3e-6 of the mean distance to the other logits. The smallest possible loss
/// with smoothing is not 0 but the entropy of the target distribution.
///
/// ```
/// use simdformer_kernels::train::{Smoothing, SmoothingOver};
///
/// assert_eq!(Smoothing::default(), Smoothing { epsilon: 0.0, over: SmoothingOver::All });
/// ```
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Smoothing {
    /// The probability that is spread, in `0..1`. 0 means no smoothing.
    pub epsilon: f32,
    /// The columns that get it.
    pub over: SmoothingOver,
}

/// The columns that label smoothing spreads over.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub enum SmoothingOver {
    /// `epsilon / V` for each of the `V` columns, the target included: PyTorch, Hugging Face, Marian,
    /// OpenNMT-py.
    #[default]
    All,
    /// `epsilon / (V - 1)` for each column except the target, which gets `1 - epsilon`: fairseq, tensor2tensor.
    Others,
}

/// The loss of one row.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct RowLoss {
    /// Cross-entropy against the smoothed target, in nats. The gradient is the gradient of this value.
    pub loss: f64,
    /// Cross-entropy against the target alone, `-ln p`.
    pub nll: f64,
    /// Whether the target is the first largest logit of its row, which a greedy search would select.
    pub correct: bool,
}

/// The target distribution of a row.
#[derive(Clone, Copy)]
pub(super) struct TargetProbs {
    /// The probability of each column except the target.
    pub(super) other: f64,
    /// 1 minus the probability of the target.
    pub(super) rest: f64,
}

impl TargetProbs {
    /// The distribution for a row of `columns`, at least one.
    pub(super) fn new(smoothing: Smoothing, columns: usize) -> Result<Self, Error> {
        let Smoothing { epsilon, over } = smoothing;
        let fits = (0.0..1.0).contains(&epsilon);
        Error::check_setting("label smoothing", f64::from(epsilon), fits, "in 0..1")?;
        let (epsilon, others) = (f64::from(epsilon), columns.saturating_sub(1) as f64);
        in_default_mode(|| match over {
            _ if epsilon == 0.0 => Ok(Self { other: 0.0, rest: 0.0 }),
            SmoothingOver::All => {
                let other = epsilon / columns as f64;
                Ok(Self { other, rest: others * other })
            }
            SmoothingOver::Others => {
                // Without another column there is nothing to spread over.
                Error::check_size("columns", "logits", Expected::AtLeast(2), columns)?;
                Ok(Self { other: epsilon / others, rest: epsilon })
            }
        })
    }
}
