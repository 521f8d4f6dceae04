//! A step that is asked for the best tokens instead of logits.
//!
//! Most logits of a greedy step are computed to be thrown away. Where the model has a screen, the
//! best token of a row is found without them (see [`simdformer_kernels::pruned_argmax`]), the same token
//! that the logits would give; rows for which that is not certain get their logits after all.

use super::error::SessionError;
use super::pruning_policy::{Banned, StepOutput};
use super::session::{Session, beyond};
use super::step::StepRow;
use crate::model::layer_observer::NoObserver;
use crate::search::UNDECIDED;

impl Session<'_> {
    /// `[rows]`: feeds one token to each of `rows` and returns the best next token of each: the one with the
    /// largest logit that [`Session::step`] would give among those for which `banned(i, token)` is false,
    /// `i` an index into `rows`, and the lowest of several; `u32::MAX` where no token is left.
    /// `banned` is asked on whichever threads compute ([`crate::Threads`]).
    ///
    /// On CPUs with VNNI (beside AVX-512 or AVX2) it takes a quarter to a third of the time of logits.
    ///
    /// # Errors
    /// As [`Session::step`].
    ///
    /// ```
    /// use simdformer::{Limits, Model, SourceId, Session, StepRow};
    ///
    /// # if !std::path::Path::new("models/fr-en").exists() { return Ok(()) } // not in the published package
    /// let model = Model::open("models/fr-en")?;
    /// let options = model.config().search_options();
    /// let mut session = Session::new(&model, Limits::new(1, 16, 16))?;
    /// let mut sentence = [SourceId::default()];
    /// session.encode(&[&[6, 11, 0]], &mut sentence)?;
    /// let row = session.start(sentence[0])?;
    /// let (mut token, mut target) = (options.start, Vec::new());
    /// while !options.eos.contains(&token) && target.len() < 16 {
    ///     // No token that fills, and no empty translation.
    ///     let first = target.is_empty();
    ///     let banned = |_, id| id == options.start || first && options.eos.contains(&id);
    ///     token = session.step_argmax(&[StepRow { row, token }], &banned)?[0];
    ///     target.push(token);
    /// }
    /// assert!(target.len() > 1 && options.eos.contains(&token));
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    pub fn step_argmax(
        &mut self,
        rows: &[StepRow],
        banned: &(dyn Fn(usize, u32) -> bool + Sync),
    ) -> Result<&[u32], SessionError> {
        self.plan.check_decodes()?;
        beyond("sentences * beams", self.plan.rows, rows.len())?;
        for row in rows {
            self.check_row(row.row)?;
        }
        let vocabulary = self.model.config().target_vocab;
        let row = |i: usize| (rows[i].row.slot(), rows[i].token);
        let stepped = self.step_for(rows.len(), row, Some(banned), &mut NoObserver)?;
        Ok(decide(stepped, vocabulary, banned))
    }

    /// [`Session::step_for`] the best tokens.
    pub(crate) fn step_slots_best(
        &mut self,
        count: usize,
        row: impl Fn(usize) -> (u32, u32),
        banned: Banned<'_>,
    ) -> Result<StepOutput<'_>, SessionError> {
        self.step_for(count, row, Some(banned), &mut NoObserver)
    }
}

/// The best token of every row, also of those that only logits decide; `u32::MAX` where all are banned.
pub(super) fn decide<'s>(
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
