//! Texts in, texts out, and ids in, ids out: the class behind `simdformer.Translator`.

use crate::arrays::{PyRows, Rows};
use crate::errors::Failure;
use crate::generate::{PreparedSearch, Sources, generate};
use crate::loaded::{self, Loaded};
use crate::options::{self, Planning, SearchChanges, TEXT};
use crate::pool::{Call, TOKENIZING, Workers};
use crate::scoring::{self, Pairs};
use crate::token_stream::TokenStream;
use crate::translated::{PyTranslated, Translated};
use numpy::{IntoPyArray, PyArray1, PyReadonlyArray1};
use pyo3::prelude::*;
use pyo3::pybacked::PyBackedBytes;
use pyo3::types::{PyBytes, PyDict, PyString};
use simdformer::kernels::Isa;
use simdformer::search::Strategy;
use simdformer::{Engine, Threads};
use simdformer_text::documents::Format;
use simdformer_text::documents::archives::ArchiveFormat;
use simdformer_text::translator::{
    TextTranslation, TranslateOptions, Translator as TextTranslator,
};
use simdformer_text::{Direction, Tokenizer};
use std::fs::File;
use std::io::{self, BufReader, Cursor, Read, Seek};
use std::path::PathBuf;
use std::sync::atomic::Ordering;
use std::sync::{Arc, Mutex, PoisonError};

/// A model, its tokenizer, options, and the planned sessions of the calls that have ended.
#[derive(Debug)]
pub(crate) struct Shared {
    pub(crate) loaded: Arc<Loaded>,
    pub(crate) options: TranslateOptions,
    planning: Planning,
    /// With the prefix of the options; an error if the directory has none.
    tokenizer: Result<Arc<Tokenizer>, Failure>,
    changes: SearchChanges,
    threads: usize,
    sessions: usize,
    /// The search of calls without options of their own.
    prepared: PreparedSearch,
    /// One for each call that ran at the same time, and those that compute scores. The locks are held only while Python is
    /// attached.
    texts: [Mutex<Vec<TextTranslator>>; 2],
    ids: Mutex<Vec<Engine>>,
}

/// A document: its text, its bytes, or the path of its file.
#[derive(FromPyObject)]
pub(crate) enum PyDocument {
    Text(String),
    Bytes(PyBackedBytes),
    Path(PathBuf),
}

#[derive(Clone, Copy)]
enum DocumentFormat {
    Text(Format),
    Archive(ArchiveFormat),
}

trait ReadSeek: Read + Seek + Send {}
impl<T: Read + Seek + Send> ReadSeek for T {}

impl PyDocument {
    /// The format of a name. Without one, that of the name of the file, or text.
    fn format(&self, name: Option<&str>) -> Result<DocumentFormat, Failure> {
        let archives: &[ArchiveFormat] = match self {
            Self::Text(_) => &[],
            Self::Bytes(_) | Self::Path(_) => &ArchiveFormat::ALL,
        };
        let Some(name) = name else {
            return match self {
                Self::Text(_) => Ok(DocumentFormat::Text(Format::Plain)),
                Self::Path(path) => Ok(match ArchiveFormat::from_path(path) {
                    Some(format) => DocumentFormat::Archive(format),
                    None => DocumentFormat::Text(Format::from_path(path).unwrap_or(Format::Plain)),
                }),
                Self::Bytes(_) => Err(Failure::option("format", "that of the bytes", "None")),
            };
        };
        let texts = Format::ALL.iter().map(|&one| (one.name(), DocumentFormat::Text(one)));
        let archives = archives.iter().map(|&one| (one.name(), DocumentFormat::Archive(one)));
        let mut all = texts.chain(archives);
        let found = all.clone().find(|(known, _)| *known == name).map(|(_, format)| format);
        found.ok_or_else(|| {
            let first = all.next().map_or("", |(name, _)| name).to_owned();
            let names = all.fold(first, |names, (name, _)| names + ", " + name);
            Failure::option("format", &names, name)
        })
    }

    /// The document, and its length in bytes.
    fn open(self) -> io::Result<(Box<dyn ReadSeek>, usize)> {
        Ok(match self {
            Self::Text(text) => {
                let length = text.len();
                (Box::new(Cursor::new(text)), length)
            }
            Self::Bytes(bytes) => {
                let length = bytes.len();
                (Box::new(Cursor::new(bytes)), length)
            }
            Self::Path(path) => {
                let opened = File::open(&path).and_then(|file| Ok((file.metadata()?.len(), file)));
                let named = |error: io::Error| {
                    io::Error::new(error.kind(), format!("{}: {error}", path.display()))
                };
                let (length, file) = opened.map_err(named)?;
                (Box::new(file), length as usize)
            }
        })
    }
}

/// A call that tokenizes `texts`.
fn tokenizing(texts: &[String]) -> Call<'static> {
    Call::new(texts.iter().map(String::len).sum(), TOKENIZING, None)
}

/// Takes the last element, or makes one.
fn take<T>(idle: &Mutex<Vec<T>>, new: impl FnOnce() -> Result<T, Failure>) -> Result<T, Failure> {
    let last = idle.lock().unwrap_or_else(PoisonError::into_inner).pop();
    last.map_or_else(new, Ok)
}

fn give_back<T>(idle: &Mutex<Vec<T>>, one: T) {
    idle.lock().unwrap_or_else(PoisonError::into_inner).push(one);
}

impl Shared {
    /// A translator of texts that no other call uses.
    pub(crate) fn text_translator(&self, scores: bool) -> Result<TextTranslator, Failure> {
        take(&self.texts[usize::from(scores)], || {
            let tokenizer = Arc::clone(self.tokenizer()?);
            let mut options = self.options.clone();
            options.search.scores = scores;
            Ok(TextTranslator::new(self.new_engine()?, tokenizer, options)?)
        })
    }

    /// The tokenizer, which puts the prefix of the options before every text.
    pub(crate) fn tokenizer(&self) -> Result<&Arc<Tokenizer>, Failure> {
        self.tokenizer.as_ref().map_err(Clone::clone)
    }

    /// An engine for ids that no other call uses.
    pub(crate) fn id_engine(&self) -> Result<Engine, Failure> {
        take(&self.ids, || self.new_engine())
    }

    fn new_engine(&self) -> Result<Engine, Failure> {
        let threads = if self.threads == 1 { Threads::Serial } else { Threads::Rayon };
        let builder = self.planning.engine(&self.loaded.model).threads(threads);
        Ok(builder.sessions(self.sessions).build()?)
    }
}

impl Shared {
    /// Keeps a translator without scores for a later call.
    pub(crate) fn give_back_translator(&self, translator: TextTranslator) {
        give_back(&self.texts[0], translator);
    }
}

/// The search of `changes`, and what the tokenizer puts before each target.
fn prepare(
    loaded: &Loaded,
    changes: &SearchChanges,
    direction: &Direction<'_>,
) -> Result<PreparedSearch, Failure> {
    let mut options = changes.apply(loaded.model.config())?;
    let (mut prompt, mut forced_bos) = (Vec::new(), None);
    // Without a tokenizer, the decoder start is that of the configuration.
    if let Ok(tokenizer) = loaded.tokenizer() {
        let encoded = tokenizer.encode("", direction)?;
        options.start = encoded.prefix.first().copied().unwrap_or(options.start);
        prompt = encoded.prefix.get(1..).unwrap_or_default().to_vec();
        forced_bos = encoded.forced_bos;
    }
    Ok(PreparedSearch { options, prompt, forced_bos })
}

/// The native half of `simdformer.Translator`.
#[pyclass(frozen, module = "simdformer._simdformer")]
#[derive(Debug)]
pub(crate) struct Translator {
    shared: Arc<Shared>,
    workers: Workers,
}

/// Ids, and offsets.
type PyIds<'py> = (Bound<'py, PyArray1<u32>>, Bound<'py, PyArray1<i64>>);

/// Ids, offsets, scores, finishes, the index and the exception of each refused source, the number of sequences of a
/// source, and whether the search has computed scores.
type PyFound<'py> = (
    Bound<'py, PyArray1<u32>>,
    Bound<'py, PyArray1<i64>>,
    Bound<'py, PyArray1<f32>>,
    Bound<'py, PyArray1<u8>>,
    Vec<(usize, Bound<'py, PyAny>)>,
    (usize, bool),
);

#[pymethods]
impl Translator {
    #[new]
    #[pyo3(signature = (path, *, isa, dtype, threads, sessions, options))]
    fn new(
        py: Python<'_>,
        path: PathBuf,
        isa: Option<&str>,
        dtype: Option<&str>,
        threads: usize,
        sessions: usize,
        options: &Bound<'_, PyDict>,
    ) -> PyResult<Self> {
        let loaded = loaded::open(py, &path, isa, dtype)?;
        let (options, planning, changes) = options::translator(options, loaded.model.config())?;
        let prepared = prepare(&loaded, &changes, &options.direction())?;
        let (texts, ids) = Default::default();
        let tokenizer = loaded.tokenizer().map(|whole| match &options.prefix {
            Some(prefix) => Arc::new(Tokenizer::clone(whole).with_prefix(Some(prefix.clone()))),
            None => Arc::clone(whole),
        });
        let shared = Shared {
            loaded,
            options,
            planning,
            tokenizer,
            changes,
            threads,
            sessions,
            prepared,
            texts,
            ids,
        };
        if shared.tokenizer().is_ok() {
            // Checks the options before the first call.
            give_back(&shared.texts[0], shared.text_translator(false)?);
        }
        Ok(Self { shared: Arc::new(shared), workers: Workers::new(threads) })
    }

    /// The translations of `texts`, in their order, and what is known of each. A text that failed has an error, and its
    /// sentences that failed are copied.
    fn translate<'py>(
        &self,
        py: Python<'py>,
        texts: Vec<String>,
        split: bool,
        stream: u64,
        scores: bool,
        progress: Option<Bound<'py, PyAny>>,
    ) -> PyResult<PyTranslated<'py>> {
        let mut translator = self.shared.text_translator(scores)?;
        // A token is hardly ever less than a byte.
        let bytes: usize = texts.iter().map(|text| 64 + 2 * text.len()).sum();
        let call = Call::new(bytes, self.parameters(), progress);
        let counter = call.counter();
        let ((translator, result), seen) = self.workers.run_to_end(py, &call, move |cancel| {
            translator.set_cancel(cancel.clone());
            translator.seek(stream);
            translator.set_on_done(move |done| {
                if let Some(counter) = &counter {
                    counter.fetch_max(done, Ordering::Relaxed);
                }
            });
            let texts: Vec<&str> = texts.iter().map(String::as_str).collect();
            let mut found = Translated::default();
            let result = if split {
                let all = translator.translate_texts(&texts);
                all.map(|all| all.into_iter().for_each(|one| found.add_text(one)))
            } else {
                let all = translator.translate_sentences(&texts);
                all.map(|all| all.into_iter().for_each(|one| found.add_sentence(one)))
            };
            (translator, result.map(|()| found))
        })?;
        give_back(&self.shared.texts[usize::from(scores)], translator);
        seen?;
        result.map_err(Failure::from)?.into_python(py)
    }

    /// Ids in, ids out. `options` holds what differs from the options of the translator.
    #[expect(clippy::too_many_arguments, reason = "arguments of one method of Python")]
    fn generate<'py>(
        &self,
        py: Python<'py>,
        ids: PyRows<'py>,
        options: Option<&Bound<'py, PyDict>>,
        prefixes: Option<PyRows<'py>>,
        streams: Option<PyReadonlyArray1<'py, u64>>,
        scores: bool,
        skips_errors: bool,
        progress: Option<Bound<'py, PyAny>>,
    ) -> PyResult<PyFound<'py>> {
        let shared = &self.shared;
        let ids = Rows::new(&ids, "ids")?;
        let prefixes = prefixes.map(|rows| Rows::new(&rows, "prefix")).transpose()?;
        for (argument, found) in [
            ("prefix", prefixes.as_ref().map(Rows::len)),
            ("streams", streams.as_ref().map(|streams| streams.as_array().len())),
        ] {
            if let Some(found) = found.filter(|&found| found != ids.len()) {
                let expected = format!("one row for each of {} sources", ids.len());
                return Err(Failure::input(argument, expected, format!("{found} rows")).into());
            }
        }
        let mut prepared = match options {
            None => shared.prepared.clone(),
            Some(options) => {
                let changes = SearchChanges::from_dict(options)?.or(&shared.changes);
                let target: Option<String> = options::item(options, "target_lang", TEXT)?;
                let own = shared.options.direction();
                let direction = Direction { target: target.as_deref().or(own.target), ..own };
                prepare(&shared.loaded, &changes, &direction)?
            }
        };
        prepared.options.scores = scores;
        let prefixes = prefixes.unwrap_or_default();
        let longest_prefix = prefixes.iter().map(<[u32]>::len).max().unwrap_or(0);
        let mut engine = shared.id_engine()?;
        let search = &prepared.options;
        let (_, work) = engine.fit(search, prepared.start().len() + longest_prefix);
        let sequences = ids.len().saturating_mul(search.sequences());
        let longest = sequences.saturating_mul(work.target_tokens());
        let has_scores = scores || search.strategy != Strategy::Greedy;
        let num_return = search.num_return_sequences;
        let call = Call::new(ids.tokens().saturating_add(longest), self.parameters(), progress);
        let streams = streams.map(|streams| streams.as_array().iter().copied().collect());
        let counter = call.counter();
        let sources = Sources { ids, prefixes, streams, skips_errors, counter };
        let ((engine, found), seen) = self.workers.run_to_end(py, &call, move |cancel| {
            let found = generate(&mut engine, &prepared, &sources, cancel);
            (engine, found)
        })?;
        give_back(&shared.ids, engine);
        seen?;
        let found = found?;
        let errors = found.errors.iter().map(|(index, failure)| Ok((*index, failure.value(py)?)));
        let errors = errors.collect::<PyResult<Vec<_>>>()?;
        let (ids, offsets) = found.ids.into_arrays(py);
        let (scores, finish) = (found.scores.into_pyarray(py), found.finish.into_pyarray(py));
        Ok((ids, offsets, scores, finish, errors, (num_return, has_scores)))
    }

    /// The translation of a document, in which sentences that failed are copied, and what is known of each paragraph with
    /// a sentence: each failed sentence has an error. A string for a string, else bytes.
    fn translate_document<'py>(
        &self,
        py: Python<'py>,
        document: PyDocument,
        format: Option<&str>,
    ) -> PyResult<(Bound<'py, PyAny>, PyTranslated<'py>)> {
        let is_text = matches!(document, PyDocument::Text(_));
        let format = document.format(format)?;
        let (mut input, length) = document.open()?;
        let mut translator = self.shared.text_translator(false)?;
        let call = Call::new(length.saturating_mul(2).saturating_add(64), self.parameters(), None);
        let ((translator, result), seen) = self.workers.run_to_end(py, &call, move |cancel| {
            translator.set_cancel(cancel.clone());
            translator.set_on_done(|_| ());
            translator.seek(0);
            // Read in blocks, so that the structure of a long document does not delay Ctrl-C.
            // A file may claim any length.
            let mut out = Vec::with_capacity(length.min(1 << 20));
            let mut found = Translated::default();
            let mut on_text = |one: &TextTranslation| {
                found.add_paragraph(one);
                Ok(())
            };
            let result = match format {
                DocumentFormat::Text(format) => {
                    let input = BufReader::new(input);
                    translator.translate_reader(input, format, &mut out, &mut on_text)
                }
                DocumentFormat::Archive(format) => {
                    translator.translate_archive(&mut *input, format, &mut out, &mut on_text)
                }
            };
            (translator, result.map(|()| (out, found)))
        })?;
        give_back(&self.shared.texts[0], translator);
        seen?;
        let (out, found) = result.map_err(Failure::of_document)?;
        let out = match is_text {
            true => PyString::new(py, &String::from_utf8(out)?).into_any(),
            false => PyBytes::new(py, &out).into_any(),
        };
        Ok((out, found.into_python(py)?))
    }

    /// The parts of the translation of one sentence.
    fn stream(&self, text: &str, stream: u64) -> PyResult<TokenStream> {
        let shared = &self.shared;
        let translator = shared.text_translator(false)?;
        let mut truncated = false;
        if let Some(read) = translator.first_reading(text).map_err(Failure::from)? {
            // At the begin, and not when the first part is asked for.
            let direction = shared.options.direction();
            let encoded =
                shared.tokenizer()?.encode_text(&read, &direction).map_err(Failure::from)?;
            loaded::check_length(&shared.loaded, &encoded, shared.options.truncate, None)?;
            truncated = encoded.truncated;
        }
        let source = (text.to_owned(), stream, truncated);
        Ok(TokenStream::begin(shared, &self.workers, translator, source)?)
    }

    /// The log-probability of each target token.
    fn score<'py>(
        &self,
        py: Python<'py>,
        sources: PyRows<'py>,
        targets: PyRows<'py>,
        progress: Option<Bound<'py, PyAny>>,
    ) -> PyResult<Bound<'py, PyArray1<f32>>> {
        let (sources, targets) = (Rows::new(&sources, "sources")?, Rows::new(&targets, "targets")?);
        if sources.len() != targets.len() {
            let expected = format!("a target for each of {} sources", sources.len());
            return Err(
                Failure::input("targets", expected, format!("{} targets", targets.len())).into()
            );
        }
        let call = Call::new(sources.tokens() + targets.tokens(), self.parameters(), progress);
        let pairs = Pairs { sources, targets, counter: call.counter() };
        let prepared = self.shared.prepared.clone();
        let mut engine = self.shared.id_engine()?;
        let ((engine, scores), seen) = self.workers.run_to_end(py, &call, move |cancel| {
            let scores = scoring::score(&mut engine, &prepared, &pairs, cancel);
            (engine, scores)
        })?;
        give_back(&self.shared.ids, engine);
        seen?;
        Ok(scores?.into_pyarray(py))
    }

    /// The cross-attention weights of one pair of rows, `[target tokens * source tokens]`.
    fn align<'py>(
        &self,
        py: Python<'py>,
        source: Vec<u32>,
        target: Vec<u32>,
        layers: Option<Vec<usize>>,
        heads: Option<Vec<usize>>,
    ) -> PyResult<Bound<'py, PyArray1<f32>>> {
        let (mut sources, mut targets) = (Rows::default(), Rows::default());
        sources.push(&source);
        targets.push(&target);
        let pair = Pairs { sources, targets, counter: None };
        let call = Call::new(source.len() + target.len(), self.parameters(), None);
        let prepared = self.shared.prepared.clone();
        let mut engine = self.shared.id_engine()?;
        let ((engine, weights), seen) = self.workers.run_to_end(py, &call, move |cancel| {
            let weights = scoring::align(&mut engine, &prepared, &pair, layers, heads, cancel);
            (engine, weights)
        })?;
        give_back(&self.shared.ids, engine);
        seen?;
        Ok(weights?.into_pyarray(py))
    }

    /// The source ids of texts, with special tokens, and which texts were cut. Without `truncate` one that is too long is
    /// an error.
    fn encode<'py>(
        &self,
        py: Python<'py>,
        texts: Vec<String>,
        truncate: Option<bool>,
    ) -> PyResult<(PyIds<'py>, Vec<usize>)> {
        let shared = Arc::clone(&self.shared);
        let tokenizer = Arc::clone(shared.tokenizer()?);
        let cuts = truncate.unwrap_or(shared.options.truncate);
        let call = tokenizing(&texts);
        let rows = self.workers.run_detached(py, &call, move |cancel| {
            let (mut rows, mut cut) = (Rows::default(), Vec::new());
            for (index, text) in texts.iter().enumerate() {
                if cancel.is_cancelled() {
                    break;
                }
                let encoded = tokenizer.encode_text(text, &shared.options.direction())?;
                loaded::check_length(&shared.loaded, &encoded, cuts, Some(index))?;
                if encoded.truncated {
                    cut.push(index);
                }
                rows.push(&encoded.ids);
            }
            Ok::<_, Failure>((rows, cut))
        })?;
        let (rows, cut) = rows?;
        Ok((rows.into_arrays(py), cut))
    }

    /// The target ids of texts as the model writes them: with the forced first token, if there is one, and the end token.
    fn encode_targets<'py>(&self, py: Python<'py>, texts: Vec<String>) -> PyResult<PyIds<'py>> {
        let tokenizer = Arc::clone(self.shared.tokenizer()?);
        let prepared = &self.shared.prepared;
        let (first, end) = (prepared.forced_bos, prepared.options.eos.first().copied());
        let call = tokenizing(&texts);
        let rows = self.workers.run_detached(py, &call, move |cancel| {
            let mut rows = Rows::default();
            for text in &texts {
                if cancel.is_cancelled() {
                    break;
                }
                let text = tokenizer.encode_target_text(text)?;
                let ids = first.into_iter().chain(text).chain(end);
                rows.push(&ids.collect::<Vec<_>>());
            }
            Ok::<_, Failure>(rows)
        })?;
        Ok(rows?.into_arrays(py))
    }

    /// The texts of rows of target ids.
    fn decode(&self, py: Python<'_>, rows: PyRows<'_>) -> PyResult<Vec<String>> {
        let rows = Rows::new(&rows, "rows")?;
        let tokenizer = Arc::clone(self.shared.tokenizer()?);
        let call = Call::new(rows.tokens(), TOKENIZING, None);
        self.workers.run_detached(py, &call, move |cancel| {
            let rows = rows.iter().take_while(|_| !cancel.is_cancelled());
            rows.map(|row| tokenizer.decode(row)).collect()
        })
    }

    /// The part of a text that each of its source ids stands for; special tokens have none.
    fn source_parts(&self, text: &str) -> PyResult<(Vec<u32>, Vec<String>)> {
        let direction = self.shared.options.direction();
        let tokenizer = self.shared.tokenizer()?;
        let (encoded, spans) =
            tokenizer.encode_text_with_spans(text, &direction).map_err(Failure::from)?;
        loaded::check_length(&self.shared.loaded, &encoded, false, None)?;
        let parts = spans.into_iter().map(|span| text.get(span).unwrap_or_default().to_owned());
        Ok((encoded.ids, parts.collect()))
    }

    /// How the vocabulary of the target writes each id.
    fn target_tokens(&self, ids: Vec<u32>) -> PyResult<Vec<String>> {
        let tokenizer = self.shared.tokenizer()?;
        Ok(ids
            .into_iter()
            .map(|id| tokenizer.token(id).unwrap_or_else(|| format!("<{id}>")))
            .collect())
    }

    /// The tokens that CTranslate2 puts before and after every source, and those that end a target.
    fn special_tokens(&self) -> (Option<u32>, Option<u32>, Vec<u32>) {
        let tokens = &self.shared.loaded.model.config().tokens;
        (tokens.source_begin, tokens.source_end, tokens.eos.clone())
    }

    /// The identity of the model, 32 hexadecimal digits.
    fn model_fingerprint(&self, py: Python<'_>) -> PyResult<String> {
        Ok(py.detach(|| self.shared.loaded.fingerprint())?)
    }

    /// Bytes and table of each planned session.
    fn plans(&self) -> Vec<(usize, String)> {
        let texts = self
            .shared
            .texts
            .each_ref()
            .map(|idle| idle.lock().unwrap_or_else(PoisonError::into_inner));
        let ids = self.shared.ids.lock().unwrap_or_else(PoisonError::into_inner);
        let of_texts =
            texts.iter().flat_map(|idle| idle.iter()).filter_map(|one| one.engine().plan());
        let of_ids = ids.iter().filter_map(Engine::plan);
        of_texts.chain(of_ids).map(|plan| (plan.bytes(), plan.to_string())).collect()
    }

    /// Bytes and table of a session that is not made.
    fn plan_for(&self, sentences: usize, source_tokens: usize) -> PyResult<(usize, String)> {
        let shared = &self.shared;
        let planning = Planning { slots: sentences, ..shared.planning };
        let engine = planning.engine(&shared.loaded.model).build().map_err(Failure::from)?;
        let (_, work) = engine.fit(&shared.prepared.options, shared.prepared.start().len());
        let plan = engine.plan_for(&work.with_sources(sentences, source_tokens));
        let plan = plan.map_err(Failure::from)?;
        Ok((plan.bytes(), plan.to_string()))
    }

    /// The instruction set that the weights are packed for.
    #[getter]
    fn isa(&self) -> &'static str {
        Isa::name(self.shared.loaded.model.isa())
    }

    /// The number of threads of a call.
    #[getter]
    fn threads(&self) -> usize {
        self.workers.threads()
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

impl Translator {
    /// About the number of multiplications for a token.
    fn parameters(&self) -> usize {
        self.shared.loaded.model.bytes() / 4
    }
}
