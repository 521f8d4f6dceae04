//! When a step looks for the best tokens with the screen, and what becomes of rows that it cannot
//! decide.

use crate::error::KernelError;
use crate::model::blocks::ExecContext;
use crate::model::pass::Workspace;
use crate::model::weights::Decoder;
use crate::search::UNDECIDED;

/// Whether a token must not come next in a row.
pub(crate) type Banned<'b> = &'b (dyn Fn(usize, u32) -> bool + Sync);

/// What a step gives.
pub(crate) struct StepOutput<'s> {
    /// `[rows]`: the best token, or [`UNDECIDED`].
    pub(crate) best: &'s mut [u32],
    /// `[rows, vocabulary]`: of the undecided rows.
    pub(crate) logits: &'s mut [f32],
}

/// Rows that get their logits one by one; if there are more, all rows do.
const ONE_BY_ONE: usize = 2;

/// Steps without a screen after one that decided too little.
const PAUSE: u32 = 4;

/// When to try a screen. It changes nothing but the speed.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct PruningPolicy {
    /// Steps to go without.
    pause: u32,
}

impl PruningPolicy {
    /// What this step is to screen for, if it is to use a screen.
    pub(super) fn of<B>(&mut self, has_screen: bool, banned: Option<B>) -> Option<B> {
        let banned = banned.filter(|_| has_screen)?;
        if self.pause > 0 {
            self.pause -= 1;
            return None;
        }
        Some(banned)
    }

    /// Learns from a step: where half of the rows need their logits, a screen is time lost.
    pub(super) fn record(&mut self, undecided: usize, rows: usize) {
        if undecided * 2 > rows {
            self.pause = PAUSE;
        }
    }
}

/// The logits of the rows that `best` does not decide; returns how many these are.
pub(super) fn fallback_logits(
    decoder: &Decoder,
    run: &ExecContext<'_>,
    best: &mut [u32],
    work: &mut Workspace<'_>,
    logits: &mut [f32],
) -> Result<usize, KernelError> {
    let Workspace { x, rounded: room, .. } = work;
    let undecided = best.iter().filter(|&&token| token == UNDECIDED).count();
    if undecided > ONE_BY_ONE {
        best.fill(UNDECIDED);
        decoder.logits(run, x, room, logits)?;
        return Ok(undecided);
    }
    let (d, vocabulary) = (x.len() / best.len(), logits.len() / best.len());
    for (row, _) in best.iter().enumerate().filter(|&(_, &token)| token == UNDECIDED) {
        let logits = &mut logits[row * vocabulary..][..vocabulary];
        decoder.logits(run, &x[row * d..][..d], room, logits)?;
    }
    Ok(undecided)
}
