//! Runs texts through an encoder, many at a time; each result has the same bits as alone.

use super::{EmbedError, NotRun};
use crate::encoding::Encoded;
use crate::packed;
use crate::tokenizer::Tokenizer;
use simdformer::checkpoint::Checkpoint;
use simdformer::{Cancel, Limits, LoadOptions, ModelRef, Session, SessionPool, Threads};
use std::path::Path;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

/// Tokens per run, if no text has more.
const TOKENS_PER_RUN: usize = 4096;

/// A model, and how it is run.
#[derive(Clone)]
pub(super) struct EncoderRunner<'m> {
    model: ModelRef<'m>,
    /// The most texts of a run.
    pub(super) slots: usize,
    /// The most sessions at the same time.
    pub(super) sessions: usize,
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

/// Makes a result of the hidden states of a text, `[tokens, d_model]`, in the scratch of a thread.
pub(super) type Compute<'c, R> =
    &'c (dyn Fn(&[f32], &mut Vec<f32>) -> Result<R, EmbedError> + Sync);

impl EncoderRunner<'static> {
    /// The model of a published directory, and what `read` makes of its path, tokenizer and checkpoint before gigabytes of
    /// weights are read.
    pub(super) fn open<S>(
        directory: &Path,
        read: impl FnOnce(&Path, Tokenizer, &Checkpoint<'_>) -> Result<S, EmbedError>,
    ) -> Result<(Self, S), EmbedError> {
        let tokenizer = Tokenizer::from_dir(directory)?;
        let checkpoint = Checkpoint::open(directory)?;
        let setup = read(directory, tokenizer, &checkpoint)?;
        let model = packed::load(&checkpoint, LoadOptions::default())?;
        Ok((Self::new(Arc::new(model).into()), setup))
    }
}

impl<'m> EncoderRunner<'m> {
    pub(super) fn new(model: ModelRef<'m>) -> Self {
        Self { model, slots: 32, sessions: 1, threads: Threads::Serial, cancel: Cancel::new() }
    }

    /// An error if the run is cancelled.
    pub(super) fn check_cancel(&self) -> Result<(), EmbedError> {
        if self.cancel.is_cancelled() { Err(EmbedError::Cancelled) } else { Ok(()) }
    }

    /// Computes a result for every text on the threads of the sessions, and calls `each` with the number that stands with
    /// the text, in any order.
    pub(super) fn run<R>(
        &self,
        texts: &mut [(usize, Encoded)],
        compute: Compute<'_, R>,
        each: &mut (dyn FnMut(usize, R) + Send),
    ) -> Result<(), EmbedError> {
        let (model, config) = (&*self.model, self.model.config());
        // The longest first, so that all sessions end at about the same time.
        texts.sort_by_key(|(_, one)| core::cmp::Reverse(one.ids.len()));
        let Some(longest) = texts.first().map(|(_, one)| one.ids.len()) else { return Ok(()) };
        let sessions = self.sessions.min(self.threads.count()).clamp(1, texts.len());
        let slots = self.slots.clamp(1, texts.len().div_ceil(sessions));
        let limits = Limits::encoder(slots, longest);
        let limits = Limits {
            batch_tokens: limits.batch_tokens.min(TOKENS_PER_RUN).max(longest),
            // If the model has a decoder, plan the minimum for it.
            target_tokens: usize::from(config.decoder.is_some()),
            ..limits
        };
        let mut pool = SessionPool::new(model, limits, sessions)?;
        pool.set_threads(self.threads.clone());
        pool.set_cancel(self.cancel.clone());
        let shared = Mutex::new(Shared { left: texts, sessions, each, failed: None });
        pool.for_each_session(sessions, &|session| {
            let mut scratch = Vec::new();
            loop {
                let Some(batch) = lock(&shared).take(&limits) else { return };
                if let Err(error) = run_batch(session, batch, &mut scratch, compute, &shared) {
                    lock(&shared).failed.get_or_insert(error);
                    return;
                }
            }
        });
        let failed = shared.into_inner().unwrap_or_else(PoisonError::into_inner).failed;
        failed.map_or(Ok(()), Err)
    }
}

/// What the sessions of a run share.
struct Shared<'s, R> {
    /// The texts that no session has taken, the longest first.
    left: &'s [(usize, Encoded)],
    sessions: usize,
    each: &'s mut (dyn FnMut(usize, R) + Send),
    /// The first error. It ends all sessions.
    failed: Option<EmbedError>,
}

impl<'s, R> Shared<'s, R> {
    /// Takes the next texts: as many as a session runs at a time, but at most a session's share of what is left.
    fn take(&mut self, limits: &Limits) -> Option<&'s [(usize, Encoded)]> {
        if self.failed.is_some() || self.left.is_empty() {
            return None;
        }
        let most = limits.sentences.min(self.left.len().div_ceil(self.sessions));
        let mut tokens = 0;
        let fits = self.left.iter().take(most).take_while(|(_, one)| {
            tokens += one.ids.len();
            tokens <= limits.batch_tokens
        });
        let (batch, left) = self.left.split_at(fits.count().max(1));
        self.left = left;
        Some(batch)
    }
}

/// The value of a mutex. After a panic of the caller's function, which reaches the caller, nothing reads the value.
fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Runs the texts of `batch`, and hands out their results.
fn run_batch<R>(
    session: &mut Session<'_>,
    batch: &[(usize, Encoded)],
    scratch: &mut Vec<f32>,
    compute: Compute<'_, R>,
    shared: &Mutex<Shared<'_, R>>,
) -> Result<(), EmbedError> {
    let (d_model, types) = (session.model().config().d_model, session.model().config().token_types);
    let ids: Vec<&[u32]> = batch.iter().map(|(_, one)| &one.ids[..]).collect();
    let mut rest = if types > 1 {
        let types: Vec<&[u32]> = batch.iter().map(|(_, one)| &one.types[..]).collect();
        session.encoder_output_of_types(&ids, &types)?
    } else {
        session.encoder_output(&ids)?
    };
    for (number, one) in batch {
        let (own, after) = rest.split_at(one.ids.len() * d_model);
        let result = compute(own, scratch)?;
        (lock(shared).each)(*number, result);
        rest = after;
    }
    Ok(())
}
