//! A step that returns the best tokens instead of logits.
//!
//! A greedy step needs only the largest logit of each row. If the model has a pruning table, the best token is found
//! without all logits (see [`simdformer_kernels::pruned_argmax`]). It is the token that the logits would give. For
//! undecided rows all logits are computed.

use super::error::SessionError;
use super::pruning_policy::{Banned, StepOutput};
use super::session::{Session, check_limit};
use super::step::StepRow;
use crate::model::layer_observer::NoObserver;
use crate::search::UNDECIDED;

impl Session<'_> {
    /// `[rows]`: feeds one token to each of `rows` and returns the best next token of each. It is the token with the
    /// largest logit of [`Session::step`] among those for which `banned(i, token)` is false, and the lowest id among
    /// equal logits; `i` is an index into `rows`. The result is `u32::MAX` if all tokens are banned. `banned` is called
    /// on the threads that compute ([`crate::Threads`]).
    ///
    /// On CPUs with VNNI (with AVX-512 or AVX2) this takes a quarter to a third of the time of computing logits.
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
    /// // Ban the padding token, and the end token in an empty translation.
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
        check_limit("sentences * beams", self.plan.rows, rows.len())?;
        for row in rows {
            self.check_row(row.row)?;
        }
        let vocabulary = self.model.config().target_vocab;
        let row = |i: usize| (rows[i].row.slot(), rows[i].token);
        let stepped = self.step_for(rows.len(), row, Some(banned), &mut NoObserver)?;
        Ok(resolve_undecided(stepped, vocabulary, banned))
    }

    /// As [`Session::step_for`] with `banned`.
    pub(crate) fn step_slots_argmax(
        &mut self,
        count: usize,
        row: impl Fn(usize) -> (u32, u32),
        banned: Banned<'_>,
    ) -> Result<StepOutput<'_>, SessionError> {
        self.step_for(count, row, Some(banned), &mut NoObserver)
    }
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
