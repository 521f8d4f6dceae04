//! When a step uses the pruned argmax, and how undecided rows are completed.

use crate::model::blocks::ExecContext;
use crate::model::weights::Decoder;
use crate::search::UNDECIDED;
use simdformer_kernels::Error as KernelError;

/// Returns whether a token is not allowed as the next token of a row.
pub(crate) type Banned<'b> = &'b (dyn Fn(usize, u32) -> bool + Sync);

/// The result of a step.
pub(crate) struct StepOutput<'s> {
    /// `[rows]`: the best token, or [`UNDECIDED`].
    pub(crate) best: &'s mut [u32],
    /// `[rows, vocabulary]`: valid for the undecided rows.
    pub(crate) logits: &'s mut [f32],
}

/// Maximum number of undecided rows whose logits are computed one by one; with more, all logits are computed.
const MAX_SINGLE_ROWS: usize = 2;

/// Steps without the pruned argmax after one with too many undecided rows.
const PAUSE_STEPS: u32 = 4;

/// Decides when to use the pruned argmax. It affects only speed.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct PruningPolicy {
    /// Steps without the pruned argmax that are left.
    pause: u32,
}

impl PruningPolicy {
    /// Returns `banned` if this step uses the pruned argmax.
    pub(super) fn select<B>(&mut self, has_pruning_table: bool, banned: Option<B>) -> Option<B> {
        let banned = banned.filter(|_| has_pruning_table)?;
        if self.pause > 0 {
            self.pause -= 1;
            return None;
        }
        Some(banned)
    }

    /// Records the result of a step. If more than half of the rows are undecided, the pruned argmax is slower than
    /// logits.
    pub(super) fn record(&mut self, undecided: usize, rows: usize) {
        if undecided * 2 > rows {
            self.pause = PAUSE_STEPS;
        }
    }
}

/// Computes the logits of the undecided rows of the hidden states `x`. Returns the number of undecided rows.
pub(super) fn fallback_logits(
    decoder: &Decoder,
    run: &ExecContext<'_>,
    best: &mut [u32],
    (x, rounded): (&[f32], &mut [f32]),
    logits: &mut [f32],
) -> Result<usize, KernelError> {
    let undecided = best.iter().filter(|&&token| token == UNDECIDED).count();
    if undecided > MAX_SINGLE_ROWS {
        best.fill(UNDECIDED);
        decoder.logits(run, x, rounded, logits)?;
        return Ok(undecided);
    }
    let (d, vocabulary) = (x.len() / best.len(), logits.len() / best.len());
    for (row, _) in best.iter().enumerate().filter(|&(_, &token)| token == UNDECIDED) {
        let logits = &mut logits[row * vocabulary..][..vocabulary];
        decoder.logits(run, &x[row * d..][..d], rounded, logits)?;
    }
    Ok(undecided)
}

/// The best token of every row. Undecided rows are decided by their logits; `u32::MAX` if all tokens are banned.
pub(super) fn resolve_undecided<'s>(
    StepOutput { best, logits }: StepOutput<'s>,
    vocabulary: usize,
    banned: Banned<'_>,
) -> &'s [u32] {
    for (i, (token, logits)) in best.iter_mut().zip(logits.chunks(vocabulary)).enumerate() {
        if *token == UNDECIDED {
            let mut largest = f32::NEG_INFINITY;
            for (id, &logit) in (0u32..).zip(logits) {
                if logit > largest && !banned(i, id) {
                    (*token, largest) = (id, logit);
                }
            }
        }
    }
    best
}
