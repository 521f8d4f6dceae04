//! Continuous batching of translations: sentences that arrive from any threads join the running batch.

use super::languages::language_of;
use super::model_and_tokenizer::Translator;
use super::options::TranslateOptions;
use super::requests::{BatchEvent, MarkedRequest, Request, RequestState, Requests, Shared};
use super::translation::Translation;
use super::window::{Encoding, Reads, Unit, encode_unit};
use crate::Tokenizer;
use crate::error::Error;
use simdformer::checkpoint::Checkpoint;
use simdformer::config::Config;
use simdformer::search::Hooks;
use simdformer::{Cancel, Engine, OnDone, Product, ProductBuilder};
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::mpsc::{Receiver, Sender, channel};
use std::thread::JoinHandle;

/// The least source tokens of a session, so that the first short sentences do not plan one that is soon too small.
const SHORTEST_PLAN: usize = 32;
/// The most sentences that wait or are decoded, unless [`Batcher::set_capacity`] changes that.
const CAPACITY: usize = 1024;

/// A sentence for a [`Batcher`]. The default is an empty text with the languages of the options.
#[derive(Clone, Copy, Debug, Default)]
pub struct BatchRequest<'r> {
    /// The sentence, whatever is in it.
    pub text: &'r str,
    /// The language of the sentence; `None` for that of the options.
    pub source: Option<&'r str>,
    /// The language of the translation; `None` for that of the options.
    pub target: Option<&'r str>,
    /// The random stream, which has an effect only if the search [samples](TranslateOptions::samples).
    pub stream: u64,
}

/// Translates sentences from any threads in one batch: one thread runs the decoder, sentences join it before its next
/// step and leave when they are done.
///
/// A sentence has the translation that [`Translator::translate_sentences`] gives it alone, with the random stream of its
/// request. It is one sentence, whatever is in it. The text of one with symbols that are copied, or in capitals, comes whole:
/// its symbols are put in their places after its search, and some are searched again, alone, between two steps of the batch.
///
/// The session has the slots of the engine. It is planned for the first sentences, and again when a longer one
/// arrives, after those before it are done. Memory grows with the sentences that wait: [`Batcher::len`] counts them, and
/// who submits more than [`Batcher::set_capacity`] allows waits until one is done.
///
/// Dropping it ends all sentences at the next step with [`Error::Closed`]; [`Batcher::close`] waits until they are
/// done.
///
/// ```no_run
/// use simdformer_text::translator::Batcher;
///
/// # fn main() -> Result<(), Box<dyn std::error::Error>> {
/// let batcher = Batcher::open("opus-mt-en-fr")?;
/// let pending = [batcher.submit("How are you?")?, batcher.submit("Where does she live?")?];
/// for one in pending {
///     println!("{}", one.wait()?.text);
/// }
/// # Ok(()) }
/// ```
#[derive(Debug)]
pub struct Batcher {
    shared: Arc<Shared>,
    thread: Option<JoinHandle<()>>,
}

impl Batcher {
    /// The batcher of a published directory, with its default options. The decoding thread computes alone.
    ///
    /// # Errors
    /// As [`Translator::open`]; the thread cannot be started.
    pub fn open(directory: impl AsRef<Path>) -> Result<Self, Error> {
        Self::builder(directory).open()
    }

    /// How to open a directory with other options, weights, threads or memory.
    pub fn builder<'b>(directory: impl AsRef<Path>) -> ProductBuilder<'b, Self> {
        ProductBuilder::new(directory)
    }

    /// Starts the decoding thread. It decodes in one session with the settings of the engine of `translator`, and with the
    /// engine's threads: only itself if they are [serial](simdformer::Threads::Serial). A second session finishes what takes
    /// more than one search; a limit of bytes holds for each of the two.
    ///
    /// # Errors
    /// The thread cannot be started; there is no memory for sessions of fixed limits.
    pub fn new(translator: &Translator) -> Result<Self, Error> {
        let of_one_session = || {
            // The sentences of a batch are decoded in one session.
            let mut engine = translator.engine.with_own_sessions(1)?;
            engine.set_cancel(Cancel::new());
            let mut translator = translator.clone();
            (translator.engine, translator.on_done) = (engine, OnDone::default());
            Ok::<_, Error>(translator)
        };
        let (translator, mut others) = (of_one_session()?, of_one_session()?);
        let (model, tokenizer) =
            (Arc::clone(translator.engine.model()), Arc::clone(&translator.tokenizer));
        let options = translator.options.clone();
        let (state, changed) = Default::default();
        let abort = AtomicBool::new(false);
        let capacity = AtomicUsize::new(CAPACITY);
        let cancel = Cancel::new();
        others.set_cancel(cancel.clone());
        let shared = Shared { model, tokenizer, options, state, changed, abort, cancel, capacity };
        let shared = Arc::new(shared);
        let decoding = DecodingThread { shared: Arc::clone(&shared) };
        let thread = std::thread::Builder::new().name("simdformer-batcher".to_owned());
        let thread = thread.spawn(move || decoding.decode_requests(&translator, others));
        let thread = thread.map_err(Error::of_stream("started", "the decoding thread"))?;
        Ok(Self { shared, thread: Some(thread) })
    }

    /// The most sentences that wait or are decoded, at least 1 (1024). A further one waits where it is submitted, but not
    /// in an `on_event`, which would wait for itself.
    pub fn set_capacity(&self, sentences: usize) {
        self.shared.capacity.store(sentences.max(1), Ordering::Relaxed);
        self.shared.changed.notify_all();
    }

    /// Translates a sentence with the languages of the options, from random stream 0.
    ///
    /// # Errors
    /// As [`Batcher::submit_with`].
    pub fn submit(&self, text: &str) -> Result<Pending, Error> {
        let (sender, events) = channel();
        let request = BatchRequest { text, ..BatchRequest::default() };
        // An event that is not received is not wanted.
        let send = |sender: &Sender<BatchEvent>, event| drop(sender.send(event));
        let cancel = self.submit_with(request, move |event| send(&sender, event))?;
        Ok(Pending { cancel, events })
    }

    /// Translates a sentence, and calls `on_event` with what happens to it: the last call has [`BatchEvent::Done`] or
    /// [`BatchEvent::Failed`]. The sentence is tokenized on the calling thread. `on_event` is called on the decoding
    /// thread, which waits for it; for a sentence without letters, or one that is too long, it is called before this
    /// function returns. The [`Cancel`] ends the sentence before the next step; it gets its last event nevertheless. Waits while [`set_capacity`](Self::set_capacity) sentences are not done.
    ///
    /// # Errors
    /// The batcher is [closed](Error::Closed); the tokenizer rejects the languages or the text (of gigabytes).
    pub fn submit_with(
        &self,
        request: BatchRequest<'_>,
        mut on_event: impl FnMut(BatchEvent) + Send + 'static,
    ) -> Result<Cancel, Error> {
        let Shared { model, tokenizer, options, .. } = &*self.shared;
        let cancel = Cancel::new();
        let detected = match request.source {
            None => language_of(options, tokenizer, request.text).0,
            Some(_) => None,
        };
        let source = request.source.or(detected.as_deref());
        let (text, stream) = (request.text, request.stream);
        let unit =
            Unit { text, source, stream, force: &[], reads: Reads::WholeSentence, options: None };
        let mut translation = Translation::default();
        let target = request.target.or(options.target.as_deref());
        let encoding = encode_unit(model, tokenizer, options, target, &unit, &mut translation)?;
        let mut state = self.shared.state();
        let decoding = self.thread.as_ref().map(|thread| thread.thread().id());
        let waits =
            !matches!(encoding, Encoding::Settled) && decoding != Some(std::thread::current().id());
        while waits
            && !state.closed
            && state.unfinished >= self.shared.capacity.load(Ordering::Relaxed)
        {
            state = self.shared.wait(state);
        }
        if state.closed {
            return Err(Error::Closed);
        }
        let shared = Arc::clone(&self.shared);
        match encoding {
            Encoding::Settled => {
                drop(state);
                if !translation.text.is_empty() {
                    on_event(BatchEvent::Text(translation.text.clone()));
                }
                on_event(BatchEvent::Done(translation));
                return Ok(cancel);
            }
            Encoding::Ids(encoded) => {
                let reply =
                    RequestState::new(shared, translation, cancel.clone(), Box::new(on_event));
                state.arrived.push(Request::new(encoded, stream, reply));
            }
            Encoding::Marked => state.marked.push(MarkedRequest {
                text: text.to_owned(),
                source: source.map(str::to_owned),
                target: target.map(str::to_owned),
                stream,
                state: RequestState::new(shared, translation, cancel.clone(), Box::new(on_event)),
            }),
        }
        state.unfinished += 1;
        drop(state);
        self.shared.changed.notify_all();
        Ok(cancel)
    }

    /// The number of sentences that wait or are decoded.
    #[must_use]
    pub fn len(&self) -> usize {
        self.shared.state().unfinished
    }

    /// Whether no sentence waits or is decoded.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// The options.
    #[must_use]
    pub fn options(&self) -> &TranslateOptions {
        &self.shared.options
    }

    /// Accepts no more sentences, and waits until those that were submitted are done.
    pub fn close(mut self) {
        self.join();
    }

    fn join(&mut self) {
        self.shared.state().closed = true;
        self.shared.changed.notify_all();
        if let Some(thread) = self.thread.take() {
            // If it panicked (in an `on_event`), the sentences that were left got an error.
            drop(thread.join());
        }
    }
}

impl Drop for Batcher {
    fn drop(&mut self) {
        self.shared.abort.store(true, Ordering::Relaxed);
        self.shared.cancel.cancel();
        self.join();
    }
}

impl Product for Batcher {
    type Options = TranslateOptions;
    type Setup = (Tokenizer, TranslateOptions);
    type Error = Error;

    fn checkpoint(path: &Path) -> Result<Checkpoint<'static>, Error> {
        Translator::checkpoint(path)
    }

    fn default_options(config: &Config) -> TranslateOptions {
        TranslateOptions::new(config)
    }

    fn read_setup(
        directory: &Path,
        checkpoint: &Checkpoint<'_>,
        options: TranslateOptions,
    ) -> Result<Self::Setup, Error> {
        Translator::read_setup(directory, checkpoint, options)
    }

    fn build(engine: Engine, setup: Self::Setup) -> Result<Self, Error> {
        Self::new(&Translator::build(engine, setup)?)
    }
}

/// The result of [`Batcher::submit`], which may still be computed.
#[derive(Debug)]
pub struct Pending {
    cancel: Cancel,
    events: Receiver<BatchEvent>,
}

impl Pending {
    /// Waits for the translation.
    ///
    /// # Errors
    /// The model cannot run; the batcher was dropped before the sentence was done. What concerns the sentence alone is a
    /// [`failure`](Translation::failure) of the translation.
    pub fn wait(self) -> Result<Translation, Error> {
        loop {
            match self.next_event() {
                Some(BatchEvent::Done(translation)) => return Ok(translation),
                Some(BatchEvent::Failed(error)) => return Err(error),
                Some(BatchEvent::Text(_)) => (),
                None => return Err(Error::Closed),
            }
        }
    }

    /// Waits for the next event; `None` after the last one.
    pub fn next_event(&self) -> Option<BatchEvent> {
        self.events.recv().ok()
    }

    /// Ends the sentence before the next step. It gets its last event nevertheless.
    pub fn cancel(&self) {
        self.cancel.cancel();
    }
}

/// The decoding thread.
struct DecodingThread {
    shared: Arc<Shared>,
}

impl DecodingThread {
    /// `others` is for what takes more than the search of the batch.
    fn decode_requests(&self, translator: &Translator, others: Translator) {
        let slots = translator.engine.slots();
        let (search, most) = (translator.search_options().clone(), translator.longest_source());
        let tokenizer = Arc::clone(&self.shared.tokenizer);
        let mut requests = Requests::new(&self.shared, &tokenizer, others, slots);
        let mut planned = 0;
        while let Some(longest) = requests.wait_for_work() {
            if longest > planned {
                let wanted = longest.max(SHORTEST_PLAN).next_power_of_two();
                planned = wanted.min(most).max(longest);
            }
            let work = translator.work.with_sources(slots, planned);
            let served = translator.engine.with_session(&work, |session| {
                let limits = session.plan().limits();
                // A session of fixed limits is not planned for longer sentences: it refuses them.
                let grows = limits.source_tokens >= planned;
                requests
                    .plan(limits.sentences, if grows { limits.source_tokens } else { usize::MAX });
                session.serve(&mut requests, &search, &mut Hooks::default())
            });
            if let Err(error) = served.and_then(|served| served) {
                requests.fail(&error.into());
            }
        }
    }
}

impl Drop for DecodingThread {
    /// Also after a panic: sentences that nothing decodes get an error.
    fn drop(&mut self) {
        let mut state = self.shared.state();
        state.closed = true;
        let arrived = core::mem::take(&mut state.arrived);
        let marked = core::mem::take(&mut state.marked);
        drop(state);
        drop((arrived, marked));
    }
}
