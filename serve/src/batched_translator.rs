//! A translator for many requests at the same time: one thread decodes the sentences of all of them in one batch.

use crate::error::Error;
use simdformer::{Cancel, Engine};
use simdformer_text::Direction;
use simdformer_text::translator::Translator;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::{Mutex, PoisonError};
use std::thread::JoinHandle;
use std::time::Duration;

/// The pause before the batch is decoded again after an error, such as one of memory.
const PAUSE: Duration = Duration::from_millis(100);

/// A translator whose sentences a thread decodes in one batch.
pub(crate) struct BatchedTranslator {
    translator: Translator,
    thread: Mutex<Option<JoinHandle<()>>>,
}

impl BatchedTranslator {
    pub(crate) fn start(mut translator: Translator) -> Result<Self, Error> {
        let own = translator.engine().with_own_sessions(1);
        translator.set_engine(own.map_err(simdformer_text::Error::from)?);
        translator.set_cancel(Cancel::new());
        translator.set_batched(true);
        let engine = translator.engine().clone();
        let thread = std::thread::Builder::new().name("simdformer-translator".to_owned());
        let thread = thread.spawn(move || decode(&engine));
        let thread = Mutex::new(Some(thread.map_err(Error::io("the thread of a model"))?));
        Ok(Self { translator, thread })
    }

    pub(crate) fn translator(&self) -> &Translator {
        &self.translator
    }

    pub(crate) fn close(&self) {
        self.translator.engine().close();
        let thread = self.thread.lock().unwrap_or_else(PoisonError::into_inner).take();
        // Its panics are caught.
        drop(thread.map(JoinHandle::join));
    }

    /// The languages of the source and of the target, if the model says them.
    pub(crate) fn one_direction(&self) -> (Option<&str>, Option<&str>) {
        let tokenizer = self.translator.tokenizer();
        let options = self.translator.options();
        let source = options.source.as_deref();
        let source = source.or_else(|| tokenizer.source_language(&Direction::default()));
        let target = options.target.as_deref();
        (source, target.or_else(|| tokenizer.target_language(&Direction::default())))
    }
}

/// Also of a server that does not start.
impl Drop for BatchedTranslator {
    fn drop(&mut self) {
        self.close();
    }
}

/// Decodes until the engine is closed. Those whose requests fail are told; a later batch may succeed.
fn decode(engine: &Engine) {
    while !matches!(catch_unwind(AssertUnwindSafe(|| engine.run())), Ok(Ok(_))) {
        std::thread::sleep(PAUSE);
    }
}
