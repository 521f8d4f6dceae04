//! Texts in, vectors out: the class behind `simdformer.Embedder`.

use crate::errors::Failure;
use crate::loaded::{self, Loaded};
use crate::pool::{Call, TOKENIZING, Workers};
use numpy::{IntoPyArray, PyArray1, PyReadonlyArray2};
use pyo3::prelude::*;
use simdformer::checkpoint::Checkpoint;
use simdformer::{Engine, Threads};
use simdformer_text::embedder::{
    EmbedOptions, Embedder as TextEmbedder, EmbedderSetup, NotRun, Precision, Prompt, Quantized,
    Ranges, TextResult,
};
use simdformer_text::{Direction, Tokenizer};
use std::path::{Path, PathBuf};
use std::sync::atomic::Ordering;
use std::sync::{Arc, Mutex, PoisonError};

/// What decides how texts are read: the name of a prompt of the directory, or its text, or neither.
type PromptKey = (Option<String>, Option<String>);

/// The prompt of the two arguments; the text comes first.
pub(crate) fn prompt((name, text): &PromptKey) -> Prompt {
    match (name, text) {
        (_, Some(text)) => Prompt::Text(text.clone()),
        (Some(name), None) => Prompt::Named(name.clone()),
        (None, None) => Prompt::Default,
    }
}

/// The native half of `simdformer.Embedder`.
#[pyclass(frozen, module = "simdformer._simdformer")]
#[derive(Debug)]
pub(crate) struct Embedder {
    path: PathBuf,
    loaded: Arc<Loaded>,
    truncate: bool,
    max_tokens: Option<usize>,
    slots: usize,
    workers: Workers,
    /// One for each prompt that was used. The lock is held only while Python is attached.
    prompts: Mutex<Vec<(PromptKey, TextEmbedder)>>,
}

/// The most prompts that are kept. A prompt is read again if more are used in turn.
const MOST_PROMPTS: usize = 64;

/// Numbers of any precision, `[texts * width]`, the width, and the texts that were cut.
type PyVectors<'py> = (Bound<'py, PyAny>, usize, Vec<usize>);

#[pymethods]
impl Embedder {
    #[new]
    #[pyo3(signature = (path, *, isa, dtype, threads, truncate, max_tokens, slots))]
    #[expect(clippy::too_many_arguments, reason = "arguments of one method of Python")]
    fn new(
        py: Python<'_>,
        path: PathBuf,
        isa: Option<&str>,
        dtype: Option<&str>,
        threads: usize,
        truncate: bool,
        max_tokens: Option<usize>,
        slots: usize,
    ) -> PyResult<Self> {
        let loaded = loaded::open(py, &path, isa, dtype)?;
        let workers = Workers::new(threads);
        let prompts = Mutex::default();
        let new = Self { path, loaded, truncate, max_tokens, slots, workers, prompts };
        // Checks the settings of the directory before the first call.
        new.embedder((None, None))?;
        Ok(new)
    }

    /// The vectors of `texts`, one after the other, their width, and which texts were cut.
    #[expect(clippy::too_many_arguments, reason = "arguments of one method of Python")]
    fn embed<'py>(
        &self,
        py: Python<'py>,
        texts: Vec<String>,
        normalize: bool,
        dim: Option<usize>,
        prompt: PromptKey,
        precision: &str,
        ranges: Option<PyReadonlyArray2<'py, f32>>,
        progress: Option<Bound<'py, PyAny>>,
    ) -> PyResult<PyVectors<'py>> {
        let mut embedder = self.embedder(prompt)?;
        let (full, normalizes) = (embedder.setup().width(), embedder.setup().normalizes());
        let width = dim.unwrap_or(full);
        if !(1..=full).contains(&width) {
            return Err(Failure::option("dim", &format!("from 1 to {full}"), width).into());
        }
        let precision = Precision::from_name(precision).ok_or_else(|| {
            let names = Precision::ALL.map(Precision::name).join(", ");
            Failure::option("precision", &format!("one of {names}"), precision)
        })?;
        let ranges = match ranges {
            None => None,
            Some(array) => {
                let rows: Vec<Vec<f32>> =
                    array.as_array().rows().into_iter().map(|row| row.to_vec()).collect();
                let found = rows.len();
                let [least, most] = <[Vec<f32>; 2]>::try_from(rows).map_err(|_| {
                    Failure::input("ranges", "two rows, least and most", format!("{found} rows"))
                })?;
                Some(Ranges::new(least, most).map_err(Failure::from)?)
            }
        };
        let bytes: usize = texts.iter().map(|text| 2 + text.len()).sum();
        let call = Call::new(bytes, self.loaded.model.bytes() / 4, progress);
        let counter = call.counter();
        // An engine of this call alone: a lock that another call holds would stay locked in a child of a fork.
        let engine = Engine::builder(Arc::clone(&self.loaded.model)).slots(self.slots);
        let engine = engine.threads(threads(&self.workers)).build();
        embedder.set_engine(engine.map_err(Failure::from)?);
        let scales = normalize && (width < full || !normalizes);
        let vectors = self.workers.run_detached(py, &call, move |cancel| {
            embedder.set_cancel(cancel.clone());
            embedder.set_on_done(move |done| {
                if let Some(counter) = &counter {
                    counter.fetch_max(done, Ordering::Relaxed);
                }
            });
            let found = embedder.embed(&texts)?;
            let cut = found.iter().enumerate().filter(|(_, one)| one.truncated);
            let cut: Vec<usize> = cut.map(|(index, _)| index).collect();
            let flat = flatten(found, width, scales)?;
            Ok::<_, Failure>((Codes::new(flat, width, precision, ranges)?, cut))
        })?;
        let (vectors, cut) = vectors?;
        let width = precision.width(width);
        Ok(match vectors {
            Codes::F32(vectors) => (vectors.into_pyarray(py).into_any(), width, cut),
            Codes::I8(vectors) => (vectors.into_pyarray(py).into_any(), width, cut),
            Codes::U8(vectors) => (vectors.into_pyarray(py).into_any(), width, cut),
        })
    }

    /// The number of tokens of each text with its prompt, special ones included.
    fn count_tokens<'py>(
        &self,
        py: Python<'py>,
        texts: Vec<String>,
        prompt: PromptKey,
    ) -> PyResult<Bound<'py, PyArray1<u32>>> {
        let embedder = self.embedder(prompt)?;
        let bytes = texts.iter().map(String::len).sum();
        let call = Call::new(bytes, TOKENIZING, None);
        let counts = self.workers.run_detached(py, &call, move |cancel| {
            let setup = embedder.setup();
            let count = |text: &String| -> Result<u32, Failure> {
                let text = [setup.prompt(), text].concat();
                let encoded = setup.tokenizer().encode(&text, &Direction::default());
                Ok(encoded.map_err(Failure::from)?.tokens as u32)
            };
            let texts = texts.iter().take_while(|_| !cancel.is_cancelled());
            texts.map(count).collect::<Result<Vec<u32>, Failure>>()
        })?;
        Ok(counts?.into_pyarray(py))
    }

    /// The most tokens of a text, special ones included, if there is a limit.
    #[getter]
    fn max_tokens(&self) -> PyResult<Option<usize>> {
        Ok(self.embedder((None, None))?.setup().tokenizer().max_tokens())
    }

    /// The number of dimensions of a vector.
    #[getter]
    fn width(&self) -> PyResult<usize> {
        Ok(self.embedder((None, None))?.setup().width())
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

/// The threads of a call that runs on `workers`.
pub(crate) fn threads(workers: &Workers) -> Threads<'static> {
    if workers.threads() == 1 { Threads::Serial } else { Threads::Rayon }
}

impl Embedder {
    /// The embedder of a prompt, for one call.
    fn embedder(&self, key: PromptKey) -> Result<TextEmbedder, Failure> {
        let mut prompts = self.prompts.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some((_, known)) = prompts.iter().find(|(known, _)| *known == key) {
            return Ok(known.clone());
        }
        let options = EmbedOptions {
            prompt: prompt(&key),
            dims: None,
            truncate: Some(self.truncate),
            max_tokens: self.max_tokens,
        };
        let (tokenizer, checkpoint) = parts(&self.path)?;
        // A model that needs languages does not encode single texts.
        tokenizer.encode("", &Direction::default())?;
        let setup = EmbedderSetup::from_directory(&self.path, tokenizer, &checkpoint, &options)?;
        let new = TextEmbedder::new(Arc::clone(&self.loaded.model), setup);
        if prompts.len() == MOST_PROMPTS {
            prompts.remove(0);
        }
        prompts.push((key, new.clone()));
        Ok(new)
    }
}

/// The tokenizer and the checkpoint of a directory; the weights are not read.
pub(crate) fn parts(path: &Path) -> Result<(Tokenizer, Checkpoint<'static>), Failure> {
    Ok((Tokenizer::from_dir(path)?, Checkpoint::open(path)?))
}

/// Vectors in one slice, `[texts, width]`: the first `width` numbers of each, divided by their length if `scales` is set.
fn flatten(
    found: Vec<TextResult<Vec<f32>>>,
    width: usize,
    scales: bool,
) -> Result<Vec<f32>, Failure> {
    let mut flat = Vec::with_capacity(found.len() * width);
    for (index, one) in found.into_iter().enumerate() {
        let mut vector = one.result.map_err(|why| not_run(&why, index))?;
        vector.truncate(width);
        if scales {
            let squares = vector.iter().map(|&x| f64::from(x) * f64::from(x));
            let length = squares.sum::<f64>().sqrt().max(1e-12);
            vector.iter_mut().for_each(|x| *x = (f64::from(*x) / length) as f32);
        }
        flat.append(&mut vector);
    }
    Ok(flat)
}

/// Why the text of this index has no result.
pub(crate) fn not_run(why: &NotRun, index: usize) -> Failure {
    let message = format!("texts[{index}]: {why}");
    match why {
        NotRun::TooLong { tokens, most } => Failure::new("LimitError", message)
            .with("limit", "tokens")
            .with("expected", *most)
            .with("found", *tokens),
        NotRun::NotFinite => Failure::new("NotFiniteError", message),
        _ => Failure::new("InputError", message).with("argument", "texts"),
    }
    .with("index", index)
    .with("reason", why.to_string())
}

/// Vectors, `[texts, width of a code]`.
enum Codes {
    F32(Vec<f32>),
    I8(Vec<i8>),
    U8(Vec<u8>),
}

impl Codes {
    fn new(
        vectors: Vec<f32>,
        width: usize,
        precision: Precision,
        ranges: Option<Ranges>,
    ) -> Result<Self, Failure> {
        if precision == Precision::F32 {
            return Ok(Self::F32(vectors));
        }
        let rows = || vectors.chunks_exact(width.max(1));
        let ranges = match ranges {
            None if precision.needs_ranges() => Ranges::from_vectors(rows())?,
            ranges => ranges,
        };
        let (mut signed, mut unsigned) = (Vec::new(), Vec::new());
        for row in rows() {
            match precision.apply(row.to_vec(), ranges.as_ref())? {
                Quantized::I8(mut code) => signed.append(&mut code),
                Quantized::U8(mut code) => unsigned.append(&mut code),
                Quantized::F32(_) => (),
            }
        }
        let is_signed = matches!(precision, Precision::Int8 | Precision::Binary);
        Ok(if is_signed { Self::I8(signed) } else { Self::U8(unsigned) })
    }
}
