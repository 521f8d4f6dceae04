//! The translator: what it holds, and the session that it plans.

use super::options::{TranslateOptions, is_same_language};
use super::translation::Report;
use crate::argos::{open_checkpoint, open_tokenizer};
use crate::error::Error;
use crate::{Direction, Family, Tokenizer};
use core::fmt;
use simdformer::checkpoint::Checkpoint;
use simdformer::config::{Config, Side};
use simdformer::search::SearchOptions;
use simdformer::{Cancel, Engine, Model, OnDone, Product, ProductBuilder, Workload};
use std::path::Path;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

/// Sentences of fewer tokens are never cut because the translation might be too long.
const SHORTEST_LIMIT: usize = 32;

/// Translates sentences with a model and its tokenizer. The [module](super) has an example.
///
/// Calls may run at the same time, each in sessions of its own. A clone shares the weights and the planned sessions; it can
/// have a [`Cancel`] and a [progress](Self::set_on_done) of its own, and goes on from the same random stream and
/// [report](Self::report). Calls that sample at the same time take random streams in the order in which they begin; with a
/// clone for each thread, a call has the streams that it has alone.
#[derive(Clone)]
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
    pub(super) on_done: OnDone,
    /// If the engine's [`run`](Engine::run) decodes; who computes beside it holds the lock, so that there are two sessions.
    pub(super) batched: Option<Arc<Mutex<()>>>,
    progress: Progress,
}

/// What was done so far, which calls at the same time add to.
#[derive(Debug, Default)]
struct Progress(Mutex<Done>);

#[derive(Clone, Copy, Debug, Default)]
struct Done {
    /// The random stream of the next sentence.
    next_stream: u64,
    /// Without the sessions that were planned.
    report: Report,
}

impl Progress {
    fn lock(&self) -> MutexGuard<'_, Done> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Clone for Progress {
    fn clone(&self) -> Self {
        Self(Mutex::new(*self.lock()))
    }
}

/// Random streams of the sentences of a call. The next call has them if this one fails and no other call has begun.
pub(super) struct Streams<'t> {
    progress: &'t Progress,
    first: u64,
    end: u64,
}

impl Streams<'_> {
    /// The stream of the first sentence.
    pub(super) fn first(&self) -> u64 {
        self.first
    }

    /// The stream of each sentence.
    pub(super) fn iter(&self) -> impl Iterator<Item = u64> + use<> {
        let first = self.first;
        (0..).map(move |i| first.wrapping_add(i))
    }

    /// The sentences have their translations.
    pub(super) fn keep(mut self) {
        self.first = self.end;
    }
}

impl Drop for Streams<'_> {
    fn drop(&mut self) {
        let mut done = self.progress.lock();
        // Unless another call has taken those after them.
        if done.next_stream == self.end {
            done.next_stream = self.first;
        }
    }
}

impl fmt::Debug for Translator {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Translator")
            .field("options", &self.options)
            .field("engine", &self.engine)
            .field("report", &self.report())
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
    /// let translator = Translator::open(directory)?;
    /// assert_eq!(translator.translate("je suis étudiant")?, "i am a student");
    /// # Ok(()) }
    /// ```
    pub fn open(directory: impl AsRef<Path>) -> Result<Self, Error> {
        Self::builder(directory).open()
    }

    /// How to open a directory with other options, weights, threads or memory.
    pub fn builder<'b>(directory: impl AsRef<Path>) -> ProductBuilder<'b, Self> {
        ProductBuilder::new(directory)
    }

    /// A translator of a model and the tokenizer of its directory. `engine` is an [`Engine`], a [`Model`], or an `Arc` of
    /// one; [`Engine::builder`] sets threads, slots and memory. `tokenizer` is a [`Tokenizer`] or an `Arc` of one. Plans
    /// nothing yet.
    ///
    /// # Errors
    /// The model does not have a language of the options, or needs one; the search options are invalid; the model has
    /// no decoder.
    pub fn new(
        engine: impl Into<Engine>,
        tokenizer: impl Into<Arc<Tokenizer>>,
        options: TranslateOptions,
    ) -> Result<Self, Error> {
        let (engine, mut tokenizer) = (engine.into(), tokenizer.into());
        if options.prefix.is_some() || tokenizer.family() == Family::T5 {
            let own = Tokenizer::clone(&tokenizer).with_same_language(is_same_language);
            tokenizer = Arc::new(match &options.prefix {
                Some(prefix) => own.with_prefix(Some(prefix.clone())),
                None => own,
            });
        }
        let config = engine.model().config();
        if config.decoder.is_none() {
            return Err(simdformer::Error::NO_DECODER.into());
        }
        let (begin, end) = (config.tokens.source_begin, config.tokens.source_end);
        if begin.or(end).is_some() {
            tokenizer = Arc::new(Tokenizer::clone(&tokenizer).with_source_tokens(begin, end));
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
            on_done: OnDone::default(),
            batched: None,
            progress: Progress::default(),
        })
    }

    /// The engine in which the translator runs.
    #[must_use]
    pub fn engine(&self) -> &Engine {
        &self.engine
    }

    /// Runs later calls in another engine of the same model, with sessions and settings of its own. The translations stay
    /// the same.
    pub fn set_engine(&mut self, engine: impl Into<Engine>) {
        self.engine = engine.into();
    }

    /// Ends later calls with [`Error::Cancelled`] when `cancel` is set: during the model's work within some
    /// milliseconds, otherwise before the next sentence is divided or tokenized. What a streaming form has emitted stays
    /// valid, and the next sentence draws from the random stream after the last emitted window. The translator can be used
    /// again, with the same bits unless other calls have sampled, once the flag is cleared or replaced.
    ///
    /// ```no_run
    /// use simdformer::Cancel;
    /// use simdformer_text::Error;
    /// use simdformer_text::translator::Translator;
    /// use std::time::Duration;
    ///
    /// # fn main() -> Result<(), Box<dyn std::error::Error>> {
    /// let mut translator = Translator::open("opus-mt-en-fr")?;
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

    /// Translates later calls of this translator from `source` to `target`, codes of [`Tokenizer::languages`] or of ISO 639;
    /// `None` for the default of the checkpoint. A clone for each direction costs little.
    ///
    /// # Errors
    /// The model does not have a language, or needs one; then nothing changes.
    pub fn set_direction(
        &mut self,
        source: Option<&str>,
        target: Option<&str>,
    ) -> Result<(), Error> {
        let prefix = self.tokenizer.encode("", &Direction { source, target })?.prefix;
        self.search.start = prefix.first().copied().unwrap_or(self.search.start);
        self.fitted.start = self.search.start;
        self.options.source = source.map(str::to_owned);
        self.options.target = target.map(str::to_owned);
        Ok(())
    }

    /// An error if the flag of [`set_cancel`](Self::set_cancel) is set.
    pub(super) fn check_cancel(&self) -> Result<(), Error> {
        if self.engine.cancel().is_cancelled() { Err(Error::Cancelled) } else { Ok(()) }
    }

    /// Calls `on_done` during later calls, each time the model finishes a sentence, with the number of those that are
    /// finished since this call. They finish in any order, on any of the threads, and two calls of `on_done` can overlap;
    /// one that is translated again counts again. `on_done` starts no call of its own.
    pub fn set_on_done(&mut self, on_done: impl Fn(u64) + Send + Sync + 'static) {
        self.on_done = OnDone::new(on_done);
    }

    /// The next sentence draws from random stream `stream`, which has an effect only if the search
    /// [samples](TranslateOptions::samples). Without a call of this function the sentences are counted from 0.
    pub fn seek(&mut self, stream: u64) {
        self.progress.lock().next_stream = stream;
    }

    /// The random streams of the next `count` sentences.
    pub(super) fn take_streams(&self, count: usize) -> Streams<'_> {
        let progress = &self.progress;
        let next = &mut progress.lock().next_stream;
        let first = *next;
        *next = first.wrapping_add(count as u64);
        Streams { progress, first, end: *next }
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

    /// What was done so far.
    #[must_use]
    pub fn report(&self) -> Report {
        Report { plans: self.engine.report().plans, ..self.progress.lock().report }
    }

    pub(super) fn add_to_report(&self, add: impl FnOnce(&mut Report)) {
        add(&mut self.progress.lock().report);
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

impl Product for Translator {
    type Options = TranslateOptions;
    type Setup = (Tokenizer, TranslateOptions);
    type Error = Error;

    fn checkpoint(path: &Path) -> Result<Checkpoint<'static>, Error> {
        open_checkpoint(path)
    }

    fn default_options(config: &Config) -> TranslateOptions {
        TranslateOptions::new(config)
    }

    fn read_setup(
        directory: &Path,
        checkpoint: &Checkpoint<'_>,
        options: TranslateOptions,
    ) -> Result<Self::Setup, Error> {
        let config = checkpoint.config();
        if config.decoder.is_none() {
            return Err(simdformer::Error::NO_DECODER.into());
        }
        config.check_search(&options.search)?;
        let tokenizer = open_tokenizer(directory)?.with_same_language(is_same_language);
        // Does the model have the languages?
        tokenizer.encode("", &options.direction())?;
        Ok((tokenizer, options))
    }

    fn build(engine: Engine, (tokenizer, options): Self::Setup) -> Result<Self, Error> {
        Self::new(engine, tokenizer, options)
    }
}
