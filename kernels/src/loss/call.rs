//! The loss of a batch of rows.

use super::error::LossError;
use super::passes::LossRows;
use super::smoothing::{IGNORED, RowLoss, Smoothing, Wanted};
use crate::isa::Isa;
use crate::matrix::{Matrix, MatrixMut};
use crate::parallel::Parallelism;
use crate::rows::{UnitColumns, for_rows};
use crate::shared::SharedMut;

/// The rows of logits of a call that is right.
struct Logits {
    rows: usize,
    columns: usize,
    wide_columns: Option<usize>,
}

impl Logits {
    /// What every row should be, if the operands fit.
    fn check(
        &self,
        targets: &[u32],
        smoothing: Smoothing,
        losses: &[RowLoss],
    ) -> Result<Wanted, LossError> {
        let &Self { rows, columns, wide_columns } = self;
        if targets.len() != rows {
            return Err(LossError::Targets { expected: rows, found: targets.len() });
        }
        if losses.len() != rows {
            return Err(LossError::Losses { expected: rows, found: losses.len() });
        }
        if let Some(found) = wide_columns {
            return Err(LossError::ColumnStride { found });
        }
        let outside =
            |&(_, &target): &(usize, &u32)| target != IGNORED && target as usize >= columns;
        if let Some((row, &found)) = targets.iter().enumerate().find(outside) {
            return Err(LossError::Target { row, columns, found });
        }
        Wanted::new(smoothing, columns)
    }
}

/// The losses of rows against their targets, and their gradient in the place of the logits.
///
/// `logits` `[rows, V]` become `scale * (softmax - q)`, `q` being what a row should be: 1 at its target and
/// 0 elsewhere, or what `smoothing` says. `losses[row]` is what came of it; neither it nor `scale` knows of
/// other rows, so the mean over all targets of an update has the gradient for a `scale` of 1 over
/// their number, whatever micro-batches they come in. A row whose target is [`IGNORED`] is not read; it
/// becomes 0, and so does its loss.
///
/// Special values. A logit of negative infinity, as that of a banned token, has probability 0 and
/// the gradient `-scale q` exactly. Where smoothing wants some probability of such a column the
/// loss is infinite, as PyTorch's is; `nll` is not, unless it is the target's. The loss may be infinite, too,
/// where logits lie 10^36 and more apart, since f32 cannot add up their distances. A row with NaN or positive
/// infinity, or with nothing but negative infinity, has NaN for losses and gradients, and no other
/// row has. Gradients that would be subnormal are 0.
///
/// Error. With `d_j = max - z_j`, `D = sum_j p_j d_j`, `T` the probability of all logits below the
/// maximum and `u = 2^-24`: `nll` is within `u (26 T + D) + V 2^-125` of the exact value, the loss within
/// `26 u sum_j max(q_j, w) d_j` more, `w` being what smoothing wants of each column but the target, and a
/// gradient within
/// `u |scale| (p_j (30 + d_j + D) + 2 q_j) + 2^-125 (|scale| + 1)`, all but for second-order terms and what
/// f64 rounds. The bits of a row depend on nothing but the row.
///
/// # Errors
/// There is not one target and one loss for each row, a target is neither a column nor [`IGNORED`], the
/// elements of a row are not side by side, or smoothing spreads what there is not.
///
/// ```
/// use simdformer_kernels::train::{IGNORED, RowLoss, Smoothing, cross_entropy};
/// use simdformer_kernels::{Isa, MatrixMut, Parallelism};
///
/// let mut logits = [0.0, 0.0, 5.0, 5.0];
/// let mut losses = [RowLoss::default(); 2];
/// let view = MatrixMut::new(&mut logits, 2, 2)?;
/// let targets = [1, IGNORED];
/// let smoothing = Smoothing::default();
/// cross_entropy(Isa::best(), view, &targets, smoothing, 1.0, &mut losses, Parallelism::Serial)?;
/// assert_eq!(logits, [0.5, -0.5, 0.0, 0.0]);
/// assert!((losses[0].loss - 2.0f64.ln()).abs() < 1e-9);
/// assert_eq!(losses[1], RowLoss::default());
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
pub fn cross_entropy(
    isa: Isa,
    mut logits: MatrixMut<'_>,
    targets: &[u32],
    smoothing: Smoothing,
    scale: f32,
    losses: &mut [RowLoss],
    parallelism: Parallelism<'_>,
) -> Result<(), LossError> {
    let (rows, columns, stride) = (logits.rows(), logits.columns(), logits.row_stride());
    let view = Logits { rows, columns, wide_columns: logits.wide_columns() };
    let wanted = view.check(targets, smoothing, losses)?;
    let (logits, losses) = (logits.shared(), SharedMut::new(losses));
    for_rows(parallelism.workers(), rows, columns, &|range| {
        // SAFETY: the view was checked to hold every row, there is one loss for each, and each task
        // has its own.
        let (logits, losses) = unsafe {
            (logits.as_ptr().add(range.start * stride), losses.part(range.start, range.len()))
        };
        let (targets, scale) = (&targets[range], Some(scale));
        isa.dispatch(LossRows { logits, stride, columns, targets, wanted, scale, losses });
    });
    Ok(())
}

/// The losses of [`cross_entropy`], bit for bit, with logits that are only read: for validation.
///
/// # Errors
/// As [`cross_entropy`].
///
/// ```
/// use simdformer_kernels::train::{RowLoss, Smoothing, cross_entropy_loss};
/// use simdformer_kernels::{Isa, Matrix, Parallelism};
///
/// let logits = Matrix::new(&[9.0, 0.0, 0.0, 0.0], 1, 4)?;
/// let mut losses = [RowLoss::default()];
/// let smoothing = Smoothing::default();
/// cross_entropy_loss(Isa::best(), logits, &[0], smoothing, &mut losses, Parallelism::Serial)?;
/// assert!(losses[0].correct && losses[0].nll < 1e-3);
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
pub fn cross_entropy_loss(
    isa: Isa,
    logits: Matrix<'_>,
    targets: &[u32],
    smoothing: Smoothing,
    losses: &mut [RowLoss],
    parallelism: Parallelism<'_>,
) -> Result<(), LossError> {
    let (rows, columns, stride) = (logits.rows(), logits.columns(), logits.row_stride());
    let view = Logits { rows, columns, wide_columns: logits.wide_columns() };
    let wanted = view.check(targets, smoothing, losses)?;
    let losses = SharedMut::new(losses);
    for_rows(parallelism.workers(), rows, columns, &|range| {
        // SAFETY: the view was checked to hold every row, there is one loss for each, and each task
        // has its own. Without a scale no logit is written.
        let (from, losses) = unsafe {
            let from = logits.as_ptr().add(range.start * stride);
            (from.cast_mut(), losses.part(range.start, range.len()))
        };
        let (targets, scale) = (&targets[range], None);
        isa.dispatch(LossRows { logits: from, stride, columns, targets, wanted, scale, losses });
    });
    Ok(())
}
