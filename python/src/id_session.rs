//! The session of the calls with ids, planned for what they need.

use crate::errors::Failure;
use simdformer::config::Side;
use simdformer::search::SearchOptions;
use simdformer::{Cancel, Dtype, Limits, Model, Session, Threads};
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

/// A session that is planned again when a call needs more.
#[derive(Debug)]
pub(crate) struct IdSession {
    model: Arc<Model>,
    threads: Threads<'static>,
    slots: usize,
    cache: Option<Dtype>,
    cancel: Cancel,
    session: Option<Session<'static>>,
}

impl IdSession {
    pub(crate) fn new(
        model: Arc<Model>,
        threads: usize,
        slots: usize,
        cache: Option<Dtype>,
    ) -> Self {
        let threads = if threads == 1 { Threads::Serial } else { Threads::Rayon };
        Self { model, threads, slots, cache, cancel: Cancel::new(), session: None }
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

    /// A session for `sentences` sources of at most `source_tokens` tokens, and targets of `target_tokens`. If `search`
    /// does not limit the length of a target, the plan does, and has exactly `target_tokens`.
    pub(crate) fn plan(
        &mut self,
        sentences: usize,
        source_tokens: usize,
        target_tokens: usize,
        search: &SearchOptions,
    ) -> Result<&mut Session<'static>, Failure> {
        let wanted = Limits {
            beams: search.sequences(),
            end_tokens: search.eos.len().max(1),
            ..Limits::new(sentences.clamp(1, self.slots), source_tokens.max(1), target_tokens)
        };
        let limited = search.max_new_tokens.is_some() || search.max_length.is_some();
        let had = self.session.as_ref().map(|session| session.plan().limits());
        let fits = had.is_some_and(|had| {
            let target = had.target_tokens.cmp(&wanted.target_tokens);
            wanted.sentences <= had.sentences
                && wanted.source_tokens <= had.source_tokens
                && wanted.beams <= had.beams
                && wanted.end_tokens <= had.end_tokens
                && (target.is_eq() || limited && target.is_gt())
        });
        let session = match self.session.take().filter(|_| fits) {
            Some(session) => session,
            None => {
                let most = |had_it: Option<usize>, wanted: usize| had_it.unwrap_or(0).max(wanted);
                let sentences = most(had.map(|had| had.sentences), wanted.sentences);
                let source = most(had.map(|had| had.source_tokens), wanted.source_tokens);
                let limits = Limits {
                    beams: most(had.map(|had| had.beams), wanted.beams),
                    end_tokens: most(had.map(|had| had.end_tokens), wanted.end_tokens),
                    cache: self.cache,
                    batch_tokens: batch_tokens(sentences, source),
                    ..Limits::new(sentences, source, target_tokens)
                };
                let mut session = Session::new(&self.model, limits)?;
                session.set_threads(self.threads.clone());
                session
            }
        };
        let session = self.session.insert(session);
        session.set_cancel(self.cancel.clone());
        Ok(session)
    }

    /// The session of the last call.
    pub(crate) fn planned(&self) -> Option<&Session<'static>> {
        self.session.as_ref()
    }
}
