//! A step that is asked for the best tokens instead of logits.
//!
//! Most logits of a greedy step are computed to be thrown away. Where the model has a screen, the
//! best token of a row is found without them (see [`simdformer_kernels::screen`]), the same token
//! that the logits would give; rows for which that is not certain get their logits after all.

use super::{Session, StepRow, beyond};
use crate::error::{KernelError, SessionError};
use crate::model::blocks::Run;
use crate::search::UNDECIDED;
use crate::trace::NoTap;

/// Whether a token must not come next in a row.
pub(crate) type Banned<'b> = &'b (dyn Fn(usize, u32) -> bool + Sync);

/// What a step gives.
pub(crate) struct Stepped<'s> {
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
pub(crate) struct Screening {
    /// Steps to go without.
    pause: u32,
}

impl Screening {
    /// What this step is to use, if it is to use a screen.
    pub(super) fn of<S, B>(&mut self, screen: Option<S>, banned: Option<B>) -> Option<(S, B)> {
        let both = screen.zip(banned)?;
        if self.pause > 0 {
            self.pause -= 1;
            return None;
        }
        Some(both)
    }

    /// Learns from a step: where half of the rows need their logits, a screen is time lost.
    pub(super) fn came_to(&mut self, undecided: usize, rows: usize) {
        if undecided * 2 > rows {
            self.pause = PAUSE;
        }
    }
}

/// The logits of the rows that `best` does not decide; returns how many these are.
pub(super) fn undecided_logits(
    run: &Run<'_>,
    best: &mut [u32],
    x: &[f32],
    logits: &mut [f32],
) -> Result<usize, KernelError> {
    let undecided = best.iter().filter(|&&token| token == UNDECIDED).count();
    let decoder = run.model.decoder();
    if undecided > ONE_BY_ONE {
        best.fill(UNDECIDED);
        decoder.logits(run, x, logits)?;
        return Ok(undecided);
    }
    let (d, vocabulary) = (x.len() / best.len(), logits.len() / best.len());
    for (row, _) in best.iter().enumerate().filter(|&(_, &token)| token == UNDECIDED) {
        let logits = &mut logits[row * vocabulary..][..vocabulary];
        decoder.logits(run, &x[row * d..][..d], logits)?;
    }
    Ok(undecided)
}

impl Session<'_> {
    /// Feeds one token to each of `rows` and returns the best next token of each: the one with the
    /// largest logit that [`Session::step`] would give among those for which `banned(i, token)` is false,
    /// `i` an index into `rows`, and the lowest of several; `u32::MAX` where no token is left.
    ///
    /// On CPUs with VNNI (beside AVX-512 or AVX2) it takes a quarter to a third of the time of logits.
    ///
    /// # Errors
    /// As [`Session::step`].
    ///
    /// ```
    /// use simdformer::{Limits, Model, Sentence, Session, StepRow};
    ///
    /// let model = Model::open("models/fr-en")?;
    /// let options = model.config().search_options();
    /// let mut session = Session::new(&model, Limits::new(1, 16, 16))?;
    /// let mut sentence = [Sentence::default()];
    /// session.encode(&[&[6, 11, 0]], &mut sentence)?;
    /// let row = session.start(sentence[0])?;
    /// let (mut token, mut target) = (options.start, Vec::new());
    /// while !options.eos.contains(&token) && target.len() < 16 {
    ///     // No token that fills, and no empty translation.
    ///     let first = target.is_empty();
    ///     let banned = |_, id| id == options.start || first && options.eos.contains(&id);
    ///     token = session.step_best(&[StepRow { row, token }], &banned)?[0];
    ///     target.push(token);
    /// }
    /// assert!(target.len() > 1 && options.eos.contains(&token));
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    pub fn step_best(
        &mut self,
        rows: &[StepRow],
        banned: &(dyn Fn(usize, u32) -> bool + Sync),
    ) -> Result<&[u32], SessionError> {
        beyond("sentences * beams", self.plan.rows, rows.len())?;
        for row in rows {
            self.check_row(row.row)?;
        }
        let vocabulary = self.model.config().target_vocab;
        let row = |i: usize| (rows[i].row.slot(), rows[i].token);
        let Stepped { best, logits } = self.step_for(rows.len(), row, Some(banned), &mut NoTap)?;
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
        Ok(best)
    }

    /// [`Session::step_for`] the best tokens.
    pub(crate) fn step_slots_best(
        &mut self,
        count: usize,
        row: impl Fn(usize) -> (u32, u32),
        banned: Banned<'_>,
    ) -> Result<Stepped<'_>, SessionError> {
        self.step_for(count, row, Some(banned), &mut NoTap)
    }
}
