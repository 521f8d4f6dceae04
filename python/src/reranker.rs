//! A query and texts in, scores out: the class behind `simdformer.Reranker`.

use crate::embedder::{not_run, parts, prompt, threads};
use crate::errors::Failure;
use crate::loaded::{self, Loaded};
use crate::pool::{Call, Workers};
use numpy::{IntoPyArray, PyArray1};
use pyo3::prelude::*;
use simdformer::Engine;
use simdformer_text::embedder::{RerankOptions, Reranker as TextReranker, RerankerSetup, Score};
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::Ordering;

/// The native half of `simdformer.Reranker`.
#[pyclass(frozen, module = "simdformer._simdformer")]
#[derive(Debug)]
pub(crate) struct Reranker {
    loaded: Arc<Loaded>,
    workers: Workers,
    slots: usize,
    reranker: TextReranker,
}

/// The output of the classifier, and the same after the activation, `[texts]` each, and the texts that were cut.
type PyScores<'py> = (Bound<'py, PyArray1<f32>>, Bound<'py, PyArray1<f32>>, Vec<usize>);

#[pymethods]
impl Reranker {
    #[new]
    #[pyo3(signature = (path, *, isa, dtype, threads, truncate, slots, prompt_name, prompt))]
    #[expect(clippy::too_many_arguments, reason = "arguments of one method of Python")]
    fn new(
        py: Python<'_>,
        path: PathBuf,
        isa: Option<&str>,
        dtype: Option<&str>,
        threads: usize,
        truncate: bool,
        slots: usize,
        prompt_name: Option<String>,
        prompt: Option<String>,
    ) -> PyResult<Self> {
        let loaded = loaded::open(py, &path, isa, dtype)?;
        let reranker = open(&path, &loaded, truncate, (prompt_name, prompt))?;
        Ok(Self { loaded, workers: Workers::new(threads), slots, reranker })
    }

    /// The score of each of `texts` with `query`, in their order.
    fn score<'py>(
        &self,
        py: Python<'py>,
        query: String,
        texts: Vec<String>,
        progress: Option<Bound<'py, PyAny>>,
    ) -> PyResult<PyScores<'py>> {
        let bytes: usize = texts.iter().map(|text| 2 + query.len() + text.len()).sum();
        let call = Call::new(bytes, self.loaded.model.bytes() / 4, progress);
        let counter = call.counter();
        let mut reranker = self.reranker.clone();
        // As in an embedder.
        let engine = Engine::builder(Arc::clone(&self.loaded.model)).slots(self.slots);
        let engine = engine.threads(threads(&self.workers)).build();
        reranker.set_engine(engine.map_err(Failure::from)?);
        let scores = self.workers.run_detached(py, &call, move |cancel| {
            reranker.set_cancel(cancel.clone());
            reranker.set_on_done(move |done| {
                if let Some(counter) = &counter {
                    counter.fetch_max(done, Ordering::Relaxed);
                }
            });
            let found = reranker.score(&query, &texts)?;
            let cut = found.iter().enumerate().filter(|(_, pair)| pair.truncated);
            let cut: Vec<usize> = cut.map(|(index, _)| index).collect();
            let scores = found.into_iter().enumerate();
            let scores = scores.map(|(i, pair)| pair.result.map_err(|why| not_run(&why, i)));
            Ok::<_, Failure>((scores.collect::<Result<Vec<Score>, Failure>>()?, cut))
        })?;
        let (scores, cut) = scores?;
        let raw: Vec<f32> = scores.iter().map(|score| score.raw).collect();
        let values: Vec<f32> = scores.iter().map(|score| score.value).collect();
        Ok((raw.into_pyarray(py), values.into_pyarray(py), cut))
    }

    /// The name of the activation of the directory.
    #[getter]
    fn activation(&self) -> &'static str {
        self.reranker.setup().activation().name()
    }

    /// The instruction set that the weights are packed for.
    #[getter]
    fn isa(&self) -> &'static str {
        self.loaded.model.isa().name()
    }

    /// Bytes of the packed weights.
    #[getter]
    fn model_bytes(&self) -> usize {
        self.loaded.model.bytes()
    }
}

fn open(
    path: &std::path::Path,
    loaded: &Loaded,
    truncate: bool,
    key: (Option<String>, Option<String>),
) -> Result<TextReranker, Failure> {
    let (tokenizer, checkpoint) = parts(path)?;
    // Does the model encode pairs?
    tokenizer.encode_pair("", "")?;
    let options = RerankOptions { prompt: prompt(&key), raw: false, truncate };
    let setup = RerankerSetup::from_directory(path, tokenizer, &checkpoint, &options)?;
    Ok(TextReranker::new(&loaded.model, setup))
}
