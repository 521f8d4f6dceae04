//! What a row of logits should say, and what is said of one that does not.

use super::error::LossError;
use crate::float_mode::in_default_mode;

/// A target that counts for nothing: the loss of its row is 0 and so is the gradient, whatever the logits
/// are.
pub const IGNORED: u32 = u32::MAX;

/// How much of the probability is spread over other columns than the target.
///
/// Frameworks differ in where it goes, and in what they report of it: at 0.1 over 32,000 columns the
/// losses of the two conventions differ by 3e-6 of the mean distance to the other logits. The smallest
/// loss that smoothing allows is not 0 but the entropy of what the row should be.
///
/// ```
/// use simdformer_kernels::train::{Smoothing, SmoothingOver};
///
/// assert_eq!(Smoothing::default(), Smoothing { epsilon: 0.0, over: SmoothingOver::All });
/// ```
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Smoothing {
    /// How much is spread, in `0..1`. 0 spreads nothing.
    pub epsilon: f32,
    /// Over which columns.
    pub over: SmoothingOver,
}

/// The columns that label smoothing spreads over.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub enum SmoothingOver {
    /// `epsilon / V` for each of the `V` columns, the target included: PyTorch, Hugging Face, Marian,
    /// OpenNMT-py.
    #[default]
    All,
    /// `epsilon / (V - 1)` for each column but the target, which keeps `1 - epsilon`: fairseq,
    /// tensor2tensor.
    Others,
}

/// What came of one row.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct RowLoss {
    /// Cross-entropy against the smoothed target, in nats: what the gradient is of.
    pub loss: f64,
    /// Cross-entropy against the target alone, `-ln p`.
    pub nll: f64,
    /// Whether the target is the first largest logit of its row, which a greedy search would take.
    pub correct: bool,
}

/// The distribution that a row should have.
#[derive(Clone, Copy)]
pub(super) struct Wanted {
    /// Of each column but the target.
    pub(super) other: f64,
    /// 1 less that of the target.
    pub(super) rest: f64,
}

impl Wanted {
    /// Of a row of `columns`, of which there is one at least.
    pub(super) fn new(smoothing: Smoothing, columns: usize) -> Result<Self, LossError> {
        let Smoothing { epsilon, over } = smoothing;
        if !(0.0..1.0).contains(&epsilon) {
            return Err(LossError::Epsilon { found: epsilon });
        }
        let (epsilon, others) = (f64::from(epsilon), columns.saturating_sub(1) as f64);
        in_default_mode(|| match over {
            _ if epsilon == 0.0 => Ok(Self { other: 0.0, rest: 0.0 }),
            SmoothingOver::All => {
                let other = epsilon / columns as f64;
                Ok(Self { other, rest: others * other })
            }
            SmoothingOver::Others if columns < 2 => Err(LossError::NoOthers { columns }),
            SmoothingOver::Others => Ok(Self { other: epsilon / others, rest: epsilon }),
        })
    }
}
