//! Recordings in, segments out: the class behind `simdformer.Transcriber`.

use crate::errors::Failure;
use crate::loaded::{self, Loaded};
use crate::options;
use crate::pool::Workers;
use crate::recording::{PyAudio, Recorded};
use crate::segment_stream::SegmentStream;
use pyo3::prelude::*;
use pyo3::types::PyDict;
use simdformer::{Dtype, Engine, Threads};
use simdformer_speech::{FeatureExtractor, TranscribeOptions, Transcriber as AudioTranscriber};
use std::path::PathBuf;
use std::sync::{Arc, Mutex, PoisonError};

/// A model, options, and the planned transcribers of the recordings that have ended.
#[derive(Debug)]
pub(crate) struct Shared {
    loaded: Arc<Loaded>,
    extractor: FeatureExtractor,
    /// And the dtype of the KV cache.
    options: (TranscribeOptions, Option<Dtype>),
    threads: usize,
    /// One for each recording that was transcribed at the same time. The lock is held only while Python is attached.
    idle: Mutex<Vec<AudioTranscriber>>,
}

impl Shared {
    fn new_transcriber(
        &self,
        (options, cache): (TranscribeOptions, Option<Dtype>),
    ) -> Result<AudioTranscriber, Failure> {
        let builder = Engine::builder(Arc::clone(&self.loaded.model)).cache(cache);
        let threads = if self.threads == 1 { Threads::Serial } else { Threads::Rayon };
        let engine = builder.threads(threads).build()?;
        let tokenizer = Arc::clone(self.loaded.tokenizer()?);
        let extractor = self.extractor.clone();
        Ok(AudioTranscriber::new(engine, tokenizer, extractor, options)?)
    }

    /// Keeps a transcriber for a later recording.
    pub(crate) fn give_back(&self, transcriber: AudioTranscriber) {
        self.idle.lock().unwrap_or_else(PoisonError::into_inner).push(transcriber);
    }
}

/// The native half of `simdformer.Transcriber`.
#[pyclass(frozen, module = "simdformer._simdformer")]
#[derive(Debug)]
pub(crate) struct Transcriber {
    shared: Arc<Shared>,
    workers: Workers,
}

#[pymethods]
impl Transcriber {
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
        let extractor = FeatureExtractor::from_dir(&path).map_err(Failure::from)?;
        let options =
            (options::transcriber(options, loaded.model.config())?, options::cache(options)?);
        let shared = Shared { loaded, extractor, options, threads, idle: Mutex::default() };
        // Checks the options before the first recording.
        shared.give_back(shared.new_transcriber(shared.options.clone())?);
        Ok(Self { shared: Arc::new(shared), workers: Workers::new(threads) })
    }

    /// Begins to transcribe a recording. `options` are all options of this recording, if they are not those of the
    /// transcriber.
    #[pyo3(signature = (audio, channel, speech, options))]
    fn begin(
        &self,
        audio: PyAudio,
        channel: Option<usize>,
        speech: Option<Vec<(f64, f64)>>,
        options: Option<&Bound<'_, PyDict>>,
    ) -> PyResult<SegmentStream> {
        let recorded = Recorded::new(audio, channel, speech)?;
        let shared = &self.shared;
        let idle = || shared.idle.lock().unwrap_or_else(PoisonError::into_inner).pop();
        // A transcriber of other options has another plan, and is not kept.
        let (transcriber, keeps) = match options {
            Some(options) => {
                let cache = options::cache(options)?;
                let options = options::transcriber(options, shared.loaded.model.config())?;
                (shared.new_transcriber((options, cache))?, false)
            }
            None => match idle() {
                Some(transcriber) => (transcriber, true),
                None => (shared.new_transcriber(shared.options.clone())?, true),
            },
        };
        let home = keeps.then(|| Arc::clone(shared));
        Ok(SegmentStream::begin(transcriber, home, &self.workers, recorded)?)
    }

    /// Bytes and table of the session of a recording.
    fn plan(&self) -> PyResult<(usize, String)> {
        let new = self.shared.new_transcriber(self.shared.options.clone())?;
        let plan = new.plan().map_err(Failure::from)?;
        Ok((plan.bytes(), plan.to_string()))
    }

    /// Samples per second that the model reads.
    #[getter]
    fn rate(&self) -> u32 {
        self.shared.extractor.rate()
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
}
