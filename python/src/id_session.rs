//! The sessions of the calls with ids, planned for what they need.

use crate::errors::Failure;
use simdformer::config::Side;
use simdformer::search::SearchOptions;
use simdformer::{Cancel, Dtype, Limits, Model, SessionPool, Threads};
use std::sync::Arc;

/// The maximum target length if neither the options nor the model set one, as in `simdformer_text::translator`.
const LONGEST: usize = 256;
/// The source tokens that are encoded in one call, if the sentences of all slots have more.
const BATCH_TOKENS: usize = 4096;

/// The source tokens that are encoded in one call.
pub(crate) fn batch_tokens(sentences: usize, source_tokens: usize) -> usize {
    sentences.saturating_mul(source_tokens).min(BATCH_TOKENS.max(source_tokens))
}

/// A search that fits a model, and what precedes each target.
#[derive(Clone, Debug)]
pub(crate) struct PreparedSearch {
    pub(crate) options: SearchOptions,
    /// Target tokens after the decoder start, for all sources.
    pub(crate) prompt: Vec<u32>,
    pub(crate) forced_bos: Option<u32>,
    /// The maximum length of the prefix of a source.
    pub(crate) longest_prefix: usize,
}

impl PreparedSearch {
    /// The tokens that are fed to a hypothesis at most, and the search for that maximum: lengths beyond it are dropped,
    /// because the plan limits the target. This is what the translator of texts does.
    pub(crate) fn fit(&self, model: &Model) -> (usize, SearchOptions) {
        let mut search = self.options.clone();
        let prompt = 1 + self.prompt.len() + self.longest_prefix;
        let target_tokens = match (search.max_new_tokens, search.max_length) {
            (Some(new), _) => new.saturating_add(prompt),
            (None, Some(length)) => length.max(prompt + 1),
            (None, None) => LONGEST,
        };
        let positions = model.config().max_positions(Side::Decoder).unwrap_or(usize::MAX);
        let target_tokens = target_tokens.min(positions).max(prompt + 1);
        let longest = target_tokens + 1;
        let sets = search.max_new_tokens.is_some() || search.max_length.is_some();
        search.max_new_tokens = search.max_new_tokens.filter(|&new| new < longest);
        search.max_length = search.max_length.filter(|&length| length <= longest);
        let none = search.max_new_tokens.is_none() && search.max_length.is_none();
        if sets && none && search.eos.is_empty() {
            search.max_length = Some(longest);
        }
        (target_tokens, search)
    }
}

/// Sessions that are planned again when a call needs more.
#[derive(Debug)]
pub(crate) struct IdSession {
    model: Arc<Model>,
    threads: Threads<'static>,
    sessions: usize,
    slots: usize,
    cache: Option<Dtype>,
    cancel: Cancel,
    pool: Option<SessionPool<'static>>,
}

impl IdSession {
    /// `sessions` sessions on `threads` threads, each of at most `slots` sentences.
    pub(crate) fn new(
        model: Arc<Model>,
        (threads, sessions): (usize, usize),
        slots: usize,
        cache: Option<Dtype>,
    ) -> Self {
        let threads = if threads == 1 { Threads::Serial } else { Threads::Rayon };
        Self { model, threads, sessions, slots, cache, cancel: Cancel::new(), pool: None }
    }

    pub(crate) fn model(&self) -> &Arc<Model> {
        &self.model
    }

    /// Ends the next call when `cancel` is set.
    pub(crate) fn set_cancel(&mut self, cancel: &Cancel) {
        self.cancel = cancel.clone();
    }

    /// The most tokens of a source that the model takes.
    pub(crate) fn source_positions(&self) -> usize {
        self.model.config().max_positions(Side::Encoder).unwrap_or(usize::MAX)
    }

    /// Sessions for `sentences` sources of at most `source_tokens` tokens, and targets of `target_tokens`. If `search`
    /// does not limit the length of a target, the plan does, and has exactly `target_tokens`.
    pub(crate) fn plan(
        &mut self,
        sentences: usize,
        source_tokens: usize,
        target_tokens: usize,
        search: &SearchOptions,
    ) -> Result<&mut SessionPool<'static>, Failure> {
        // No more sessions than there are sentences.
        let sessions = self.sessions.min(sentences.max(1));
        let slots = sentences.div_ceil(self.sessions.max(1)).clamp(1, self.slots);
        let wanted = Limits {
            beams: search.sequences(),
            end_tokens: search.eos.len().max(1),
            ..Limits::new(slots, source_tokens.max(1), target_tokens)
        };
        let limited = search.max_new_tokens.is_some() || search.max_length.is_some();
        let planned = self.pool.as_ref().map(|pool| (pool.plan().limits(), pool.sessions()));
        let fits = planned.is_some_and(|(had, had_sessions)| {
            let target = had.target_tokens.cmp(&wanted.target_tokens);
            sessions <= had_sessions
                && wanted.sentences <= had.sentences
                && wanted.source_tokens <= had.source_tokens
                && wanted.beams <= had.beams
                && wanted.end_tokens <= had.end_tokens
                && (target.is_eq() || limited && target.is_gt())
        });
        let pool = match self.pool.take().filter(|_| fits) {
            Some(pool) => pool,
            None => {
                let (had, had_sessions) = planned.unwrap_or((wanted, sessions));
                let slots = had.sentences.max(wanted.sentences);
                let source = had.source_tokens.max(wanted.source_tokens);
                let limits = Limits {
                    beams: had.beams.max(wanted.beams),
                    end_tokens: had.end_tokens.max(wanted.end_tokens),
                    cache: self.cache,
                    batch_tokens: batch_tokens(slots, source),
                    ..Limits::new(slots, source, target_tokens)
                };
                let sessions = had_sessions.max(sessions);
                let mut pool = SessionPool::new(&self.model, limits, sessions)?;
                pool.set_threads(self.threads.clone());
                pool
            }
        };
        let pool = self.pool.insert(pool);
        pool.set_cancel(self.cancel.clone());
        Ok(pool)
    }

    /// The sessions of the last call.
    pub(crate) fn planned(&self) -> Option<&SessionPool<'static>> {
        self.pool.as_ref()
    }
}
