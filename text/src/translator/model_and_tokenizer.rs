//! The translator: what it holds, and the session that it plans.

use super::error::TranslateError;
use super::options::TranslateOptions;
use super::translation::Report;
use crate::{Tokenizer, TokenizerRef};
use core::fmt;
use simdformer::config::Side;
use simdformer::search::{SearchLimits, SearchOptions};
use simdformer::{
    Cancel, Limits, Model, ModelRef, Plan, Session, SessionError, SessionPool, Threads,
};
use std::sync::Arc;

/// The maximum target length if neither the options nor the model set one.
const LONGEST: usize = 256;
/// The source tokens that are encoded in one call, if the sentences of all slots have more. More would make no call
/// faster, and the memory of the activations grows with it.
const BATCH_TOKENS: usize = 4096;
/// Sentences of fewer tokens are never cut because the translation might be too long.
const SHORTEST_LIMIT: usize = 32;

/// Called with the number of finished sentences.
pub(super) type OnDone<'a> = Box<dyn FnMut(u64) + Send + 'a>;

/// Translates sentences with a model and its tokenizer. The [module](super) has an example.
pub struct Translator<'a> {
    pub(super) model: ModelRef<'a>,
    pub(super) tokenizer: TokenizerRef<'a>,
    pub(super) options: TranslateOptions,
    /// The options of the search, with a start token and lengths that fit `target_tokens`.
    pub(super) search: SearchOptions,
    target_tokens: usize,
    threads: Threads<'a>,
    cancel: Cancel,
    /// The number of sessions that are planned at the same time.
    sessions: usize,
    pool: Option<SessionPool<'a>>,
    /// The random stream of the next sentence.
    pub(super) next_stream: u64,
    pub(super) report: Report,
    pub(super) on_done: Option<OnDone<'a>>,
    /// The sentences that the model has finished, those of further attempts included.
    pub(super) finished: u64,
}

impl fmt::Debug for Translator<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Translator")
            .field("options", &self.options)
            .field("pool", &self.pool)
            .field("report", &self.report)
            .finish_non_exhaustive()
    }
}

impl<'a> Translator<'a> {
    /// A translator that computes on the calling thread until [`set_threads`](Self::set_threads) changes that. Plans
    /// nothing yet.
    ///
    /// # Errors
    /// The model does not have a language of the options, or needs one; the search options are invalid; the model has
    /// no decoder.
    pub fn new(
        model: impl Into<ModelRef<'a>>,
        tokenizer: impl Into<TokenizerRef<'a>>,
        options: TranslateOptions,
    ) -> Result<Self, TranslateError> {
        let (model, mut tokenizer) = (model.into(), tokenizer.into());
        if let Some(prefix) = &options.prefix {
            tokenizer = TokenizerRef::Shared(Arc::new(tokenizer.prefixed(prefix)));
        }
        let config = model.config();
        if config.decoder.is_none() {
            return Err(SessionError::NoDecoder.into());
        }
        let prefix = tokenizer.encode("", &options.direction())?.prefix;
        let mut search = options.search.clone();
        search.start = prefix.first().copied().unwrap_or(search.start);
        let (prompt, positions) = (prefix.len().max(1), config.max_positions(Side::Decoder));
        let target_tokens = match (search.max_new_tokens, search.max_length) {
            (Some(new), _) => new.saturating_add(prompt),
            (None, Some(length)) => length.max(prompt + 1),
            (None, None) => LONGEST,
        };
        let target_tokens = target_tokens.min(positions.unwrap_or(usize::MAX)).max(prompt + 1);
        fit_length(&mut search, target_tokens + 1);
        search.validate(&SearchLimits {
            sentences: 1,
            sequences: search.sequences(),
            max_target_length: target_tokens + 1,
            vocabulary: config.target_vocab,
            end_tokens: search.eos.len().max(1),
            source_tokens: 0,
        })?;
        Ok(Self {
            model,
            tokenizer,
            options,
            search,
            target_tokens,
            threads: Threads::Serial,
            cancel: Cancel::new(),
            sessions: 1,
            pool: None,
            next_stream: 0,
            report: Report::default(),
            on_done: None,
            finished: 0,
        })
    }

    /// Uses `threads` for all later calls. The translations stay the same.
    pub fn set_threads(&mut self, threads: Threads<'a>) {
        if let Some(pool) = &mut self.pool {
            pool.set_threads(threads.clone());
        }
        self.threads = threads;
    }

    /// Runs up to `sessions` sessions at the same time, each on one of the [threads](Self::set_threads), at least 1 (1).
    /// With as many sessions as threads, long lists take less time than in one session on all threads. Each session has
    /// its own [slots](TranslateOptions::slots) and its own planned memory. The translations stay the same.
    pub fn set_sessions(&mut self, sessions: usize) {
        let sessions = sessions.max(1);
        if self.sessions != sessions {
            (self.sessions, self.pool) = (sessions, None);
        }
    }

    /// The sentences that are decoded at the same time, at most.
    pub(super) fn slots(&self) -> usize {
        self.options.slots.max(1).saturating_mul(self.sessions.min(self.threads.count()))
    }

    /// Ends later calls with [`TranslateError::Cancelled`] when `cancel` is set: during the model's work within some
    /// milliseconds, otherwise before the next sentence is divided or tokenized. What a streaming form has emitted stays
    /// valid, and the next sentence draws from the random stream after the last emitted window. The translator can be used
    /// again, with the same bits, once the flag is cleared or replaced.
    ///
    /// ```no_run
    /// use simdformer::{Cancel, Model};
    /// use simdformer_text::Tokenizer;
    /// use simdformer_text::translator::{TranslateError, TranslateOptions, Translator};
    /// use std::time::Duration;
    ///
    /// # fn main() -> Result<(), Box<dyn std::error::Error>> {
    /// let (model, tokenizer) = (Model::open("opus-mt-en-fr")?, Tokenizer::from_dir("opus-mt-en-fr")?);
    /// let options = TranslateOptions::new(model.config());
    /// let mut translator = Translator::new(&model, &tokenizer, options)?;
    /// let cancel = Cancel::new();
    /// translator.set_cancel(cancel.clone());
    /// std::thread::spawn(move || {
    ///     std::thread::sleep(Duration::from_secs(5));
    ///     cancel.cancel();
    /// });
    /// match translator.translate_texts(&["A very long text."]) {
    ///     Err(TranslateError::Cancelled) => println!("more than five seconds"),
    ///     translations => println!("{}", translations?[0].text()),
    /// }
    /// # Ok(()) }
    /// ```
    pub fn set_cancel(&mut self, cancel: Cancel) {
        if let Some(pool) = &mut self.pool {
            pool.set_cancel(cancel.clone());
        }
        self.cancel = cancel;
    }

    /// An error if the flag of [`set_cancel`](Self::set_cancel) is set.
    pub(super) fn check_cancel(&self) -> Result<(), TranslateError> {
        if self.cancel.is_cancelled() { Err(TranslateError::Cancelled) } else { Ok(()) }
    }

    /// Calls `on_done` during later calls, each time the model finishes a sentence, with the number of sentences that
    /// are finished in total. They finish in any order; one that is translated again counts again.
    pub fn set_on_done(&mut self, on_done: impl FnMut(u64) + Send + 'a) {
        self.on_done = Some(Box::new(on_done));
    }

    /// The next sentence draws from random stream `stream`, which has an effect only if the search
    /// [samples](TranslateOptions::samples). Without a call of this function the sentences are counted from 0.
    pub fn seek(&mut self, stream: u64) {
        self.next_stream = stream;
    }

    /// The model.
    #[must_use]
    pub fn model(&self) -> &Model {
        &self.model
    }

    /// The tokenizer.
    #[must_use]
    pub fn tokenizer(&self) -> &Tokenizer {
        &self.tokenizer
    }

    /// The options.
    #[must_use]
    pub fn options(&self) -> &TranslateOptions {
        &self.options
    }

    /// The search options as they are used: with the start token, and lengths that fit the model.
    #[must_use]
    pub fn search_options(&self) -> &SearchOptions {
        &self.search
    }

    /// The plan of each session; `None` before the first sentence.
    #[must_use]
    pub fn plan(&self) -> Option<&Plan> {
        self.pool.as_ref().map(SessionPool::plan)
    }

    /// What was done so far.
    #[must_use]
    pub fn report(&self) -> &Report {
        &self.report
    }

    /// The most tokens of a sentence that is translated at once: what the model reads, and no more than it may write, since a
    /// translation has about as many tokens.
    pub(super) fn longest_source(&self) -> usize {
        let positions = self.model.config().max_positions(Side::Encoder).unwrap_or(usize::MAX);
        let most = self.tokenizer.max_tokens().unwrap_or(usize::MAX).min(positions);
        // A maximum of new tokens is the caller's wish for short output.
        let written = match self.search.max_new_tokens {
            Some(_) => usize::MAX,
            None => self.target_tokens.max(SHORTEST_LIMIT),
        };
        most.min(written)
    }

    /// Whether a target may begin with so many given tokens.
    pub(super) fn has_room(&self, given: usize) -> bool {
        given < self.target_tokens
    }

    /// Sessions for `sentences` sentences, of which the longest has `source_tokens` tokens. Each has at most as many slots
    /// as the options say.
    pub(super) fn pool(
        &mut self,
        sentences: usize,
        source_tokens: usize,
    ) -> Result<&mut SessionPool<'a>, TranslateError> {
        // No more sessions than sentences or threads: most calls of a service have one sentence.
        let sessions = self.sessions.min(self.threads.count()).min(sentences.max(1));
        let wanted = sentences.div_ceil(sessions).clamp(1, self.options.slots.max(1));
        let planned = self.pool.as_ref().map(|pool| pool.plan().limits());
        let (slots, longest) =
            planned.map_or((0, 0), |limits| (limits.sentences, limits.source_tokens));
        let kept = self.pool.take().filter(|pool| {
            wanted <= slots && source_tokens <= longest && sessions <= pool.sessions()
        });
        let pool = match kept {
            Some(pool) => pool,
            None => {
                // Not rounded up: the caches of a longer plan are further apart, which cost 3 % of the throughput of the
                // demo model at 32 tokens. New maxima become rare soon.
                let source = source_tokens.max(longest).max(1);
                let slots = wanted.max(slots);
                let limits = Limits {
                    beams: self.search.sequences(),
                    end_tokens: self.search.eos.len().max(1),
                    cache: self.options.cache,
                    batch_tokens: slots.saturating_mul(source).min(BATCH_TOKENS.max(source)),
                    ..Limits::new(slots, source, self.target_tokens)
                };
                let mut pool = SessionPool::new(self.model.clone(), limits, sessions)?;
                pool.set_threads(self.threads.clone());
                pool.set_cancel(self.cancel.clone());
                self.report.plans += 1;
                pool
            }
        };
        Ok(self.pool.insert(pool))
    }

    /// The first session of [`pool`](Self::pool), on all threads.
    pub(super) fn session(
        &mut self,
        sentences: usize,
        source_tokens: usize,
    ) -> Result<&mut Session<'a>, TranslateError> {
        Ok(self.pool(sentences, source_tokens)?.session())
    }
}

/// Drops a maximum length beyond `longest`, which then limits the target itself. A search without an end token keeps a
/// maximum, because it would not end.
fn fit_length(search: &mut SearchOptions, longest: usize) {
    let sets = search.max_new_tokens.is_some() || search.max_length.is_some();
    search.max_new_tokens = search.max_new_tokens.filter(|&new| new < longest);
    search.max_length = search.max_length.filter(|&length| length <= longest);
    let none = search.max_new_tokens.is_none() && search.max_length.is_none();
    if sets && none && search.eos.is_empty() {
        search.max_length = Some(longest);
    }
}
