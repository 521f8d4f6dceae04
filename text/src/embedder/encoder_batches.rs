//! Runs texts through an encoder, many at a time; each result has the same bits as alone.

use super::{EmbedError, NotRun};
use crate::encoding::Encoded;
use simdformer::{Cancel, Limits, Model, Session, Threads};

/// Tokens per run, if no text has more.
const TOKENS_PER_RUN: usize = 4096;

/// How a model is run.
#[derive(Clone)]
pub(super) struct Run<'m> {
    /// The most texts of a run.
    pub(super) slots: usize,
    pub(super) threads: Threads<'m>,
    pub(super) cancel: Cancel,
}

impl Default for Run<'_> {
    fn default() -> Self {
        Self { slots: 32, threads: Threads::Serial, cancel: Cancel::new() }
    }
}

/// Why a text is not run: it is longer than the model's limit and must not be cut, or it has no tokens. `None` if it
/// can be run. `positions` is the most that the model reads.
pub(super) fn rejected(one: &Encoded, positions: Option<usize>, cut: bool) -> Option<NotRun> {
    let positions = positions.unwrap_or(usize::MAX);
    if one.ids.is_empty() {
        return Some(NotRun::NoTokens);
    }
    if one.ids.len() > positions || (one.truncated && !cut) {
        let most = one.ids.len().min(positions);
        return Some(NotRun::TooLong { tokens: one.tokens, most });
    }
    None
}

/// Receives the index and the hidden states of a text.
pub(super) type Each<'e> = dyn FnMut(usize, &[f32]) -> Result<(), EmbedError> + 'e;

impl Run<'_> {
    /// An error if the run is cancelled.
    pub(super) fn check_cancel(&self) -> Result<(), EmbedError> {
        if self.cancel.is_cancelled() { Err(EmbedError::Cancelled) } else { Ok(()) }
    }

    /// Calls `each` with the index and the hidden states, `[tokens, d_model]`, of every text, in order.
    pub(super) fn texts(
        &self,
        model: &Model,
        texts: &[&Encoded],
        each: &mut Each<'_>,
    ) -> Result<(), EmbedError> {
        let config = model.config();
        let Some(longest) = texts.iter().map(|one| one.ids.len()).max() else { return Ok(()) };
        let slots = self.slots.clamp(1, texts.len());
        let limits = Limits::encoder(slots, longest);
        let limits = Limits {
            batch_tokens: limits.batch_tokens.min(TOKENS_PER_RUN).max(longest),
            // If the model has a decoder, plan the minimum for it.
            target_tokens: usize::from(config.decoder.is_some()),
            ..limits
        };
        let mut session = Session::new(model, limits)?;
        session.set_threads(self.threads.clone());
        session.set_cancel(self.cancel.clone());
        let mut from = 0;
        while from < texts.len() {
            let mut tokens = 0;
            let fits = texts[from..].iter().take(slots).take_while(|one| {
                tokens += one.ids.len();
                tokens <= limits.batch_tokens
            });
            let batch = &texts[from..from + fits.count().max(1)];
            let ids: Vec<&[u32]> = batch.iter().map(|one| &one.ids[..]).collect();
            let hidden = if config.token_types > 1 {
                let types: Vec<&[u32]> = batch.iter().map(|one| &one.types[..]).collect();
                session.encoder_output_of_types(&ids, &types)?
            } else {
                session.encoder_output(&ids)?
            };
            let mut rest = hidden;
            for (i, one) in batch.iter().enumerate() {
                let (own, after) = rest.split_at(one.ids.len() * config.d_model);
                each(from + i, own)?;
                rest = after;
            }
            from += batch.len();
        }
        Ok(())
    }
}
