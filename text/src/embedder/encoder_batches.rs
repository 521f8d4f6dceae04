//! Runs texts through an encoder, many at a time; each result has the same bits as alone.

use super::{EmbedError, NotRun};
use crate::encoding::Encoded;
use crate::tokenizer::Tokenizer;
use simdformer::checkpoint::Checkpoint;
use simdformer::{Cancel, Limits, Model, ModelRef, Session, Threads};
use std::path::Path;
use std::sync::Arc;

/// Tokens per run, if no text has more.
const TOKENS_PER_RUN: usize = 4096;

/// A model, and how it is run.
#[derive(Clone)]
pub(super) struct EncoderRunner<'m> {
    model: ModelRef<'m>,
    /// The most texts of a run.
    pub(super) slots: usize,
    pub(super) threads: Threads<'m>,
    pub(super) cancel: Cancel,
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

impl EncoderRunner<'static> {
    /// The model of a published directory, and what `read` makes of its path, tokenizer and checkpoint before gigabytes of
    /// weights are read.
    pub(super) fn open<S>(
        directory: &Path,
        read: impl FnOnce(&Path, Tokenizer, &Checkpoint<'_>) -> Result<S, EmbedError>,
    ) -> Result<(Self, S), EmbedError> {
        let tokenizer = Tokenizer::from_dir(directory)?;
        let setup = read(directory, tokenizer, &Checkpoint::open(directory)?)?;
        Ok((Self::new(Arc::new(Model::open(directory)?).into()), setup))
    }
}

impl<'m> EncoderRunner<'m> {
    pub(super) fn new(model: ModelRef<'m>) -> Self {
        Self { model, slots: 32, threads: Threads::Serial, cancel: Cancel::new() }
    }

    /// An error if the run is cancelled.
    pub(super) fn check_cancel(&self) -> Result<(), EmbedError> {
        if self.cancel.is_cancelled() { Err(EmbedError::Cancelled) } else { Ok(()) }
    }

    /// Calls `each` with the number that stands with a text and its hidden states, `[tokens, d_model]`, for every text, in
    /// order.
    pub(super) fn run(
        &self,
        texts: &[(usize, Encoded)],
        each: &mut Each<'_>,
    ) -> Result<(), EmbedError> {
        let (model, config) = (&*self.model, self.model.config());
        let Some(longest) = texts.iter().map(|(_, one)| one.ids.len()).max() else { return Ok(()) };
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
            let fits = texts[from..].iter().take(slots).take_while(|(_, one)| {
                tokens += one.ids.len();
                tokens <= limits.batch_tokens
            });
            let batch = &texts[from..from + fits.count().max(1)];
            let ids: Vec<&[u32]> = batch.iter().map(|(_, one)| &one.ids[..]).collect();
            let hidden = if config.token_types > 1 {
                let types: Vec<&[u32]> = batch.iter().map(|(_, one)| &one.types[..]).collect();
                session.encoder_output_of_types(&ids, &types)?
            } else {
                session.encoder_output(&ids)?
            };
            let mut rest = hidden;
            for (number, one) in batch {
                let (own, after) = rest.split_at(one.ids.len() * config.d_model);
                each(*number, own)?;
                rest = after;
            }
            from += batch.len();
        }
        Ok(())
    }
}
