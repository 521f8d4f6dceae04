//! Texts in, texts out: the class behind `simdformer.Translator`.

use crate::errors::Failure;
use crate::loaded::{self, Loaded};
use crate::options;
use crate::pool::Workers;
use pyo3::prelude::*;
use pyo3::types::PyDict;
use simdformer::Threads;
use simdformer_text::translator::{TranslateOptions, Translator as TextTranslator};
use std::path::PathBuf;
use std::sync::{Arc, Mutex, PoisonError};

/// A model, its tokenizer, options, and the planned sessions of the calls that have ended.
#[derive(Debug)]
pub(crate) struct Shared {
    pub(crate) loaded: Arc<Loaded>,
    pub(crate) options: TranslateOptions,
    pub(crate) threads: usize,
    /// One for each call that ran at the same time. The lock is held only while Python is attached.
    idle: Mutex<Vec<TextTranslator<'static>>>,
}

impl Shared {
    /// A translator of no other call.
    fn take(&self) -> Result<TextTranslator<'static>, Failure> {
        let idle = self.idle.lock().unwrap_or_else(PoisonError::into_inner).pop();
        if let Some(translator) = idle {
            return Ok(translator);
        }
        let (model, tokenizer) =
            (Arc::clone(&self.loaded.model), Arc::clone(self.loaded.tokenizer()?));
        let mut new = TextTranslator::new(model, tokenizer, self.options.clone())?;
        new.set_threads(if self.threads == 1 { Threads::Serial } else { Threads::Rayon });
        Ok(new)
    }

    fn give_back(&self, translator: TextTranslator<'static>) {
        self.idle.lock().unwrap_or_else(PoisonError::into_inner).push(translator);
    }
}

/// The native half of `simdformer.Translator`.
#[pyclass(frozen, module = "simdformer._simdformer")]
#[derive(Debug)]
pub(crate) struct Translator {
    shared: Arc<Shared>,
    workers: Workers,
}

#[pymethods]
impl Translator {
    #[new]
    #[pyo3(signature = (path, *, isa, dtype, threads, options))]
    fn new(
        py: Python<'_>,
        path: PathBuf,
        isa: Option<&str>,
        dtype: Option<&str>,
        threads: usize,
        options: &Bound<'_, PyDict>,
    ) -> PyResult<Self> {
        let loaded = loaded::open(py, &path, isa, dtype)?;
        let (options, _) = options::translator(options, loaded.model.config())?;
        let shared = Shared { loaded, options, threads, idle: Mutex::new(Vec::new()) };
        // Checks the options and the languages.
        if shared.loaded.tokenizer().is_ok() {
            let first = shared.take()?;
            shared.give_back(first);
        }
        Ok(Self { shared: Arc::new(shared), workers: Workers::new(threads) })
    }

    /// The translations of `texts`, in their order.
    fn translate(
        &self,
        py: Python<'_>,
        texts: Vec<String>,
        split: bool,
        stream: u64,
    ) -> PyResult<Vec<String>> {
        let mut translator = self.shared.take()?;
        let (translator, result) = self.workers.run(py, move |_| {
            translator.seek(stream);
            let texts: Vec<&str> = texts.iter().map(String::as_str).collect();
            let result = if split {
                translator
                    .translate_texts(&texts)
                    .map(|all| all.into_iter().map(|one| one.target.text).collect::<Vec<_>>())
            } else {
                translator
                    .translate_sentences(&texts)
                    .map(|all| all.into_iter().map(|one| one.text).collect())
            };
            (translator, result)
        })?;
        self.shared.give_back(translator);
        Ok(result.map_err(Failure::from)?)
    }

    /// The instruction set that the weights are packed for.
    #[getter]
    fn isa(&self) -> &'static str {
        self.shared.loaded.model.isa().name()
    }

    /// Bytes of the packed weights.
    #[getter]
    fn model_bytes(&self) -> usize {
        self.shared.loaded.model.bytes()
    }

    /// The table of the model.
    fn summary(&self) -> String {
        self.shared.loaded.model.to_string()
    }
}
