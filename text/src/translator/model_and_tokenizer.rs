//! The translator: what it holds, and the session that it plans.

use super::options::TranslateOptions;
use super::translation::Report;
use crate::error::Error;
use crate::{Tokenizer, packed};
use core::fmt;
use simdformer::config::Side;
use simdformer::search::SearchOptions;
use simdformer::{Cancel, Engine, LoadOptions, Model, Plan, Threads, Workload};
use std::path::Path;
use std::sync::Arc;

/// Sentences of fewer tokens are never cut because the translation might be too long.
const SHORTEST_LIMIT: usize = 32;

/// Called with the number of finished sentences.
pub(super) type OnDone = Box<dyn FnMut(u64) + Send>;

/// Translates sentences with a model and its tokenizer. The [module](super) has an example.
pub struct Translator {
    pub(super) engine: Engine,
    pub(super) tokenizer: Arc<Tokenizer>,
    pub(super) options: TranslateOptions,
    /// The options of the search, with a start token.
    pub(super) search: SearchOptions,
    /// The same with lengths that fit the model.
    pub(super) fitted: SearchOptions,
    /// What a sentence needs.
    pub(super) work: Workload,
    /// The random stream of the next sentence.
    pub(super) next_stream: u64,
    pub(super) report: Report,
    pub(super) on_done: Option<OnDone>,
    /// The sentences that the model has finished, those of further attempts included.
    pub(super) finished: u64,
}

impl fmt::Debug for Translator {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Translator")
            .field("options", &self.options)
            .field("engine", &self.engine)
            .field("report", &self.report)
            .finish_non_exhaustive()
    }
}

impl Translator {
    /// The translator of a published directory, with its default options, on the calling thread.
    ///
    /// # Errors
    /// The model or the tokenizer cannot be read; as [`new`](Self::new).
    ///
    /// ```
    /// use simdformer_text::translator::Translator;
    ///
    /// # fn main() -> Result<(), Box<dyn std::error::Error>> {
    /// # let directory = concat!(env!("CARGO_MANIFEST_DIR"), "/../models/fr-en");
    /// # if !std::path::Path::new(directory).exists() { return Ok(()) } // not in the published package
    /// let mut translator = Translator::open(directory)?;
    /// assert_eq!(translator.translate("je suis étudiant")?, "i am a student");
    /// # Ok(()) }
    /// ```
    pub fn open(directory: impl AsRef<Path>) -> Result<Self, Error> {
        let directory = directory.as_ref();
        let tokenizer = Tokenizer::from_dir(directory)?;
        let model = packed::open(directory, LoadOptions::default())?;
        let options = TranslateOptions::new(model.config());
        Self::new(model, tokenizer, options)
    }

    /// A translator of a model and the tokenizer of its directory. `engine` is an [`Engine`], a [`Model`], or an `Arc` of
    /// one; `tokenizer` is a [`Tokenizer`] or an `Arc` of one. Plans nothing yet. The slots and the dtype of the KV cache
    /// are those of the options.
    ///
    /// # Errors
    /// The model does not have a language of the options, or needs one; the search options are invalid; the model has
    /// no decoder.
    pub fn new(
        engine: impl Into<Engine>,
        tokenizer: impl Into<Arc<Tokenizer>>,
        options: TranslateOptions,
    ) -> Result<Self, Error> {
        let (mut engine, mut tokenizer) = (engine.into(), tokenizer.into());
        if let Some(prefix) = &options.prefix {
            tokenizer = Arc::new(tokenizer.prefixed(prefix));
        }
        engine.set_slots(options.slots);
        engine.set_cache(options.cache);
        if engine.model().config().decoder.is_none() {
            return Err(simdformer::Error::NO_DECODER.into());
        }
        let prefix = tokenizer.encode("", &options.direction())?.prefix;
        let mut search = options.search.clone();
        search.start = prefix.first().copied().unwrap_or(search.start);
        engine.check_options(&search, prefix.len())?;
        let (fitted, work) = engine.fit(&search, prefix.len());
        let fitted = fitted.into_owned();
        Ok(Self {
            engine,
            tokenizer,
            options,
            search,
            fitted,
            work,
            next_stream: 0,
            report: Report::default(),
            on_done: None,
            finished: 0,
        })
    }

    /// Uses `threads` for all later calls. The translations stay the same.
    pub fn set_threads(&mut self, threads: Threads<'static>) {
        self.engine.set_threads(threads);
    }

    /// Runs up to `sessions` sessions at the same time, each on one of the [threads](Self::set_threads), at least 1; without
    /// this call as many as there are threads. Each has its own [slots](TranslateOptions::slots) and its own planned memory:
    /// one session on all threads takes the least memory, and more time for a long list. The translations stay the same.
    pub fn set_sessions(&mut self, sessions: usize) {
        self.engine.set_sessions(sessions);
    }

    /// The sentences that are decoded at the same time, at most.
    pub(super) fn slots(&self) -> usize {
        self.engine.slots()
    }

    /// Ends later calls with [`Error::Cancelled`] when `cancel` is set: during the model's work within some
    /// milliseconds, otherwise before the next sentence is divided or tokenized. What a streaming form has emitted stays
    /// valid, and the next sentence draws from the random stream after the last emitted window. The translator can be used
    /// again, with the same bits, once the flag is cleared or replaced.
    ///
    /// ```no_run
    /// use simdformer::{Cancel, Model};
    /// use simdformer_text::{Error, Tokenizer};
    /// use simdformer_text::translator::{TranslateOptions, Translator};
    /// use std::time::Duration;
    ///
    /// # fn main() -> Result<(), Box<dyn std::error::Error>> {
    /// let (model, tokenizer) = (Model::open("opus-mt-en-fr")?, Tokenizer::from_dir("opus-mt-en-fr")?);
    /// let options = TranslateOptions::new(model.config());
    /// let mut translator = Translator::new(model, tokenizer, options)?;
    /// let cancel = Cancel::new();
    /// translator.set_cancel(cancel.clone());
    /// std::thread::spawn(move || {
    ///     std::thread::sleep(Duration::from_secs(5));
    ///     cancel.cancel();
    /// });
    /// match translator.translate_texts(&["A very long text."]) {
    ///     Err(Error::Cancelled) => println!("more than five seconds"),
    ///     translations => println!("{}", translations?[0].text()),
    /// }
    /// # Ok(()) }
    /// ```
    pub fn set_cancel(&mut self, cancel: Cancel) {
        self.engine.set_cancel(cancel);
    }

    /// An error if the flag of [`set_cancel`](Self::set_cancel) is set.
    pub(super) fn check_cancel(&self) -> Result<(), Error> {
        if self.engine.cancel().is_cancelled() { Err(Error::Cancelled) } else { Ok(()) }
    }

    /// Calls `on_done` during later calls, each time the model finishes a sentence, with the number of sentences that
    /// are finished in total. They finish in any order; one that is translated again counts again.
    pub fn set_on_done(&mut self, on_done: impl FnMut(u64) + Send + 'static) {
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
        self.engine.model()
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
        &self.fitted
    }

    /// The plan of each session; `None` before the first sentence.
    #[must_use]
    pub fn plan(&self) -> Option<Plan> {
        self.engine.plan()
    }

    /// What was done so far.
    #[must_use]
    pub fn report(&self) -> &Report {
        &self.report
    }

    /// The most tokens of a sentence that is translated at once: what the model reads, and no more than it may write, since a
    /// translation has about as many tokens.
    pub(super) fn longest_source(&self) -> usize {
        let positions = self.model().config().max_positions(Side::Encoder).unwrap_or(usize::MAX);
        let most = self.tokenizer.max_tokens().unwrap_or(usize::MAX).min(positions);
        // A maximum of new tokens is the caller's wish for short output.
        let written = match self.fitted.max_new_tokens {
            Some(_) => usize::MAX,
            None => self.work.target_tokens().max(SHORTEST_LIMIT),
        };
        most.min(written)
    }

    /// Whether a target may begin with so many given tokens.
    pub(super) fn has_room(&self, given: usize) -> bool {
        given < self.work.target_tokens()
    }
}
