//! Cross-entropy of rows of logits with label smoothing. The gradient overwrites the logits.
//!
//! Let `p` be the softmax of a row `z`, `y` its target, and `q` the target distribution (1 at the target, or a little
//! less with the rest spread over the other columns: [`Smoothing`]):
//!
//! * `loss = -sum_j q_j ln p_j`, with smoothing;
//! * `nll = -ln p_y`, without smoothing, whose exponential is the perplexity;
//! * `dloss/dz_j = p_j - q_j`, times the caller's scale, which is 1 over the number of targets of the whole update.
//!
//! A row is read once for its sums, block by block: first the largest logit of a block, then, while the block is in
//! the L1 cache, the sums of `e^(z - max)` and of `max - z`. When a later block has a larger maximum, the sums so far
//! are rescaled. A second pass writes the gradient. So logits are read twice and written once, and no second buffer of
//! their size is needed.
//!
//! Accuracy. The exponential of the maximum is exactly 1, and those of the other logits are added without it, so the
//! loss of a row with a probability near 1 has the same relative accuracy as any other. And `loss = ln(sum of e^(z -
//! max)) + sum_j q_j (max - z_j)` has no negative term, so there is no cancellation.
//!
//! Sums of a block of 1,024 columns use 64 virtual lanes, which are added by halving; blocks are added in order in
//! f64. So the bits do not depend on the vector width.

mod passes;
mod smoothing;

pub use smoothing::{IGNORED, RowLoss, Smoothing, SmoothingOver};

use crate::error::{Error, Expected};
use crate::matrix::{Matrix, MatrixMut};
use crate::parallel::Exec;
use crate::row_tasks::{RowPtrs, for_rows};
use crate::sync_ptr::SharedMut;
use passes::loss_rows;
use smoothing::TargetProbs;

/// Checks the operands and returns the target distribution of each row.
fn check(
    [rows, columns]: [usize; 2],
    targets: &[u32],
    smoothing: Smoothing,
    losses: &[RowLoss],
) -> Result<TargetProbs, Error> {
    Error::check_len("targets", rows, targets)?;
    Error::check_len("losses", rows, losses)?;
    for (row, &target) in targets.iter().enumerate().filter(|&(_, &target)| target != IGNORED) {
        let below = Expected::Below(columns);
        Error::check_item("target", "row", Some(row), below, target as usize)?;
    }
    TargetProbs::new(smoothing, columns)
}

/// Computes checked rows; without a scale no logit is written.
fn compute_losses(
    exec: Exec<'_>,
    logits: RowPtrs<'_>,
    [rows, columns]: [usize; 2],
    (targets, target_probs): (&[u32], TargetProbs),
    scale: Option<f32>,
    losses: &mut [RowLoss],
) {
    let losses = SharedMut::new(losses);
    // Rows without columns have losses, too.
    for_rows(exec, [rows, columns.max(1)], |range| {
        // SAFETY: there is one loss for each row, and each task has its own rows.
        let losses = unsafe { losses.part(range.start, range.len()) };
        let targets = &targets[range.clone()];
        loss_rows(logits, range, columns, targets, target_probs, scale, losses)
    });
}

/// The losses of rows against their targets. The gradient overwrites the logits.
///
/// `logits` `[rows, V]` become `scale * (softmax - q)`, where `q` is the target distribution of a row: 1 at its target
/// and 0 elsewhere, or smoothed as in `smoothing`. `losses[row]` is the loss of a row. A row's loss and gradient do
/// not depend on other rows. So with a `scale` of 1 over the number of targets of an update, the sum is the gradient
/// of the mean over all targets, for any split into micro-batches. A row whose target is [`IGNORED`] is not read; its
/// gradient and its loss are 0.
///
/// Special values. A logit of negative infinity, as of a banned token, has probability 0 and exactly the gradient
/// `-scale q`. If smoothing assigns probability to such a column, the loss is infinite, as in PyTorch; `nll` is
/// infinite only if it is the target's column. The loss may also be infinite if logits differ by 10^36 or more,
/// because the sum of their distances overflows f32. A row with NaN or positive infinity, or with negative infinity
/// alone, has losses and gradients of NaN; other rows are not affected. Gradients that would be subnormal are 0.
///
/// Error. Let `d_j = max - z_j`, `D = sum_j p_j d_j`, `T` the probability of all logits below the maximum, `u =
/// 2^-24`, and `w` the probability that smoothing assigns to each column except the target. Then `nll` is within `u
/// (26 T + D) + V 2^-125` of the exact value, the loss has an additional error of `26 u sum_j max(q_j, w) d_j`, and a
/// gradient is within `u |scale| (p_j (30 + d_j + D) + 2 q_j) + 2^-125 (|scale| + 1)`, except for second-order terms
/// and the roundings of f64. The bits of a row depend on the row alone.
///
/// # Errors
/// The number of targets or losses differs from the number of rows, a target is neither a column nor [`IGNORED`], the
/// elements of a row are not contiguous, or the smoothing is not possible.
///
/// ```
/// use simdformer_kernels::train::{IGNORED, RowLoss, Smoothing, cross_entropy};
/// use simdformer_kernels::{Exec, Isa, MatrixMut};
///
/// let mut logits = [0.0, 0.0, 5.0, 5.0];
/// let mut losses = [RowLoss::default(); 2];
/// let view = MatrixMut::new(&mut logits, 2, 2)?;
/// let targets = [1, IGNORED];
/// let smoothing = Smoothing::default();
/// cross_entropy(Exec::serial(Isa::best()), view, &targets, smoothing, 1.0, &mut losses)?;
/// assert_eq!(logits, [0.5, -0.5, 0.0, 0.0]);
/// assert!((losses[0].loss - 2.0f64.ln()).abs() < 1e-9);
/// assert_eq!(losses[1], RowLoss::default());
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
pub fn cross_entropy(
    exec: Exec<'_>,
    mut logits: MatrixMut<'_>,
    targets: &[u32],
    smoothing: Smoothing,
    scale: f32,
    losses: &mut [RowLoss],
) -> Result<(), Error> {
    let shape = [logits.rows(), logits.columns()];
    let target_probs = check(shape, targets, smoothing, losses)?;
    let logits = RowPtrs::from_matrix_mut("logits", &mut logits, shape)?;
    compute_losses(exec, logits, shape, (targets, target_probs), Some(scale), losses);
    Ok(())
}

/// The losses of [`cross_entropy`] with the same bits, without a gradient: for validation. The logits are only read.
///
/// # Errors
/// As [`cross_entropy`].
///
/// ```
/// use simdformer_kernels::train::{RowLoss, Smoothing, cross_entropy_loss};
/// use simdformer_kernels::{Exec, Isa, Matrix};
///
/// let logits = Matrix::new(&[9.0, 0.0, 0.0, 0.0], 1, 4)?;
/// let mut losses = [RowLoss::default()];
/// let smoothing = Smoothing::default();
/// cross_entropy_loss(Exec::serial(Isa::best()), logits, &[0], smoothing, &mut losses)?;
/// assert!(losses[0].correct && losses[0].nll < 1e-3);
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
pub fn cross_entropy_loss(
    exec: Exec<'_>,
    logits: Matrix<'_>,
    targets: &[u32],
    smoothing: Smoothing,
    losses: &mut [RowLoss],
) -> Result<(), Error> {
    let shape = logits.shape();
    let target_probs = check(shape, targets, smoothing, losses)?;
    let logits = RowPtrs::from_matrix("logits", &logits, shape)?;
    compute_losses(exec, logits, shape, (targets, target_probs), None, losses);
    Ok(())
}
