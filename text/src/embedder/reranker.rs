//! Scores of texts together with a query: cross-encoders.

use super::encoder_batches::{NotRun, TextResult, compute_results, rejected};
use super::prompts::{Prompt, SentenceTransformersConfig};
use crate::error::Error;
use core::cmp::Ordering;
use core::fmt;
use serde_json::Value;
use simdformer::checkpoint::Checkpoint;
use simdformer::config::{Config, Side};
use simdformer::kernels::{Activation, reference};
use simdformer::task_heads::Classifier;
use simdformer::{Cancel, Engine, OnDone, Product, ProductBuilder};
use simdformer_tokenize::{FileLimit, Settings, Tokenizer, tokenizer_folder};
use std::path::Path;
use std::sync::Arc;

/// How pairs are scored, beside what the directory defines.
#[derive(Clone, Debug, Default)]
pub struct RerankOptions {
    /// The prompt before each query.
    pub prompt: Prompt,
    /// Give the output of the classifier, without the activation of the directory.
    pub raw: bool,
    /// Cut the longer text of a pair that is longer than the model reads.
    pub truncate: bool,
}

/// What is applied to the output of a classifier.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum ScoreActivation {
    /// Nothing.
    Identity,
    /// `1 / (1 + exp(-x))`.
    Sigmoid,
    /// The hyperbolic tangent.
    Tanh,
}

impl ScoreActivation {
    const ALL: [Self; 3] = [Self::Identity, Self::Sigmoid, Self::Tanh];

    /// The name of PyTorch's class.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::Identity => "Identity",
            Self::Sigmoid => "Sigmoid",
            Self::Tanh => "Tanh",
        }
    }

    /// Computed in f64 and rounded once. The functions of the platform differ between platforms.
    fn apply(self, x: f32) -> f32 {
        let function = match self {
            Self::Identity => return x,
            Self::Sigmoid => Activation::Sigmoid,
            Self::Tanh => Activation::Tanh,
        };
        reference::activation(function, f64::from(x)) as f32
    }

    /// The activation of a directory: that of `config_sentence_transformers.json`, or of `config.json` as
    /// sentence-transformers 4 and 5 or older versions write it, or a sigmoid.
    fn from_directory(directory: &Path, settings: Option<&Settings>) -> Result<Self, Error> {
        if let Some(settings) = settings
            && let Some(found) = settings.get("activation_fn")
        {
            return Self::parse(settings, "activation_fn", found);
        }
        let folder = tokenizer_folder(directory)?;
        let Some(config) = Settings::from_file(&folder, "config.json", FileLimit::CONFIG)? else {
            return Ok(Self::Sigmoid);
        };
        let inner =
            config.get("sentence_transformers").and_then(|inner| inner.get("activation_fn"));
        if let Some(found) = inner.filter(|found| !found.is_null()) {
            return Self::parse(&config, "sentence_transformers.activation_fn", found);
        }
        const OLD: &str = "sbert_ce_default_activation_function";
        match config.get(OLD) {
            Some(found) => Self::parse(&config, OLD, found),
            None => Ok(Self::Sigmoid),
        }
    }

    fn parse(settings: &Settings, key: &str, found: &Value) -> Result<Self, Error> {
        let class = found.as_str().and_then(|path| path.strip_prefix("torch."));
        let class = class.and_then(|path| path.rsplit('.').next());
        let known = Self::ALL.into_iter().find(|activation| Some(activation.name()) == class);
        let expected = "Identity, Sigmoid or Tanh of torch.nn, or raw scores";
        known.ok_or_else(|| settings.wrong(key, expected, found).into())
    }
}

/// Everything of a [`Reranker`] but the weights of the transformer. It is small, so all errors of a directory's
/// settings occur before the weights are read.
#[derive(Debug)]
pub struct RerankerSetup {
    tokenizer: Tokenizer,
    head: Classifier,
    prompt: String,
    activation: ScoreActivation,
    positions: Option<usize>,
    truncate: bool,
}

impl RerankerSetup {
    /// Reads the classifier and the settings of `directory`. `tokenizer` and `checkpoint` are those of the same
    /// directory.
    ///
    /// # Errors
    /// The model has no classifier, or one of several scores; a file of settings is invalid, or asks for something that
    /// is not supported, for example another activation; the directory does not have the prompt.
    pub fn from_directory(
        directory: impl AsRef<Path>,
        tokenizer: Tokenizer,
        checkpoint: &Checkpoint<'_>,
        options: &RerankOptions,
    ) -> Result<Self, Error> {
        let directory = directory.as_ref();
        let head = Classifier::from_checkpoint(checkpoint)?.ok_or_else(|| {
            let expected = "a model with a classifier, as cross-encoders have";
            Error::unsupported("", expected, "none")
        })?;
        if head.labels() != 1 {
            let expected = "a classifier of one score to sort by";
            return Err(Error::unsupported("", expected, head.labels()));
        }
        let head = head.with_settings(directory)?;
        let config = SentenceTransformersConfig::from_directory(directory)?;
        let activation = if options.raw {
            ScoreActivation::Identity
        } else {
            ScoreActivation::from_directory(directory, config.settings.as_ref())?
        };
        let positions = checkpoint.config().max_positions(Side::Encoder);
        let limits = [tokenizer.max_tokens(), head.max_tokens(), positions];
        let mut tokenizer = tokenizer.with_max_tokens(limits.into_iter().flatten().min());
        if head.lower_case() {
            tokenizer = tokenizer.with_lower_case()?;
        }
        let (prompt, truncate) = (config.prompt(&options.prompt)?, options.truncate);
        Ok(Self { tokenizer, head, prompt, activation, positions, truncate })
    }

    /// What is applied to the output of the classifier.
    #[must_use]
    pub fn activation(&self) -> ScoreActivation {
        self.activation
    }

    /// The text before each query; empty for none.
    #[must_use]
    pub fn prompt(&self) -> &str {
        &self.prompt
    }

    /// The tokenizer, with the limit and the lowercase of the directory.
    #[must_use]
    pub fn tokenizer(&self) -> &Tokenizer {
        &self.tokenizer
    }
}

/// How well a text answers a query.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Score {
    /// The output of the classifier.
    pub raw: f32,
    /// The same after the activation.
    pub value: f32,
}

impl Score {
    /// The order in which scores are listed: the best first, NaN last. It is that of the raw scores, which differ where
    /// a sigmoid has rounded both to 1.
    #[must_use]
    pub fn best_first(&self, other: &Self) -> Ordering {
        let rank = |score: f32| if score.is_nan() { f32::NEG_INFINITY } else { score };
        rank(other.raw).total_cmp(&rank(self.raw))
    }
}

/// Scores texts together with a query. A clone shares the weights, the planned sessions and the settings of the directory.
///
/// ```no_run
/// use simdformer_text::embedder::Reranker;
///
/// let reranker = Reranker::open("ms-marco-MiniLM-L6-v2")?;
/// let texts = ["3.5 million people", "Berlin is a city"];
/// for (text, pair) in texts.iter().zip(reranker.score("how many people live in Berlin?", &texts)?) {
///     println!("{:?} {text}", pair.result);
/// }
/// # Ok::<(), simdformer_text::Error>(())
/// ```
#[derive(Clone)]
pub struct Reranker {
    setup: Arc<RerankerSetup>,
    engine: Engine,
    on_done: OnDone,
}

impl Reranker {
    /// Reads a published directory, with default options.
    ///
    /// # Errors
    /// As [`RerankerSetup::from_directory`]; the tokenizer encodes single texts only; the tokenizer or the weights cannot be read.
    pub fn open(directory: impl AsRef<Path>) -> Result<Self, Error> {
        Self::builder(directory).open()
    }

    /// How to open a directory with other options, weights, threads or memory.
    pub fn builder<'b>(directory: impl AsRef<Path>) -> ProductBuilder<'b, Self> {
        ProductBuilder::new(directory)
    }

    /// A reranker of a loaded model: an [`Engine`], a `Model`, or an `Arc` of one, of the directory of `setup`.
    #[must_use]
    pub fn new(engine: impl Into<Engine>, setup: RerankerSetup) -> Self {
        Self { setup: Arc::new(setup), engine: engine.into(), on_done: OnDone::default() }
    }

    /// The engine in which the reranker runs.
    #[must_use]
    pub fn engine(&self) -> &Engine {
        &self.engine
    }

    /// Runs later calls in another engine of the same model, with sessions and settings of its own. The results stay the
    /// same.
    pub fn set_engine(&mut self, engine: impl Into<Engine>) {
        self.engine = engine.into();
    }

    /// Ends later calls with [`Error::Cancelled`] some milliseconds after `cancel` is set. Calls of a clone of this
    /// reranker can have a flag of their own.
    pub fn set_cancel(&mut self, cancel: Cancel) {
        self.engine.set_cancel(cancel);
    }

    /// Calls `on_done` during later calls, each time the model finishes a pair, with the number of those that are finished
    /// since this call. They finish in any order, on any of the threads, and two calls can overlap. `on_done` starts no
    /// call of its own.
    pub fn set_on_done(&mut self, on_done: impl Fn(u64) + Send + Sync + 'static) {
        self.on_done = OnDone::new(on_done);
    }

    /// What the directory and the options define.
    #[must_use]
    pub fn setup(&self) -> &RerankerSetup {
        &self.setup
    }

    /// The score of each text, in the order of the texts. Blank texts and a blank query are scored, too.
    ///
    /// # Errors
    /// A text cannot be tokenized, or the model cannot run. A pair that alone is not run is no error; see
    /// [`TextResult::result`].
    pub fn score(
        &self,
        query: &str,
        texts: &[impl AsRef<str>],
    ) -> Result<Vec<TextResult<Score>>, Error> {
        let pairs: Vec<(&str, &str)> = texts.iter().map(|text| (query, text.as_ref())).collect();
        self.score_pairs(&pairs)
    }

    /// The score of each query with its text, in order: [`score`](Self::score) for several queries in one call.
    ///
    /// # Errors
    /// As [`score`](Self::score).
    pub fn score_pairs(&self, pairs: &[(&str, &str)]) -> Result<Vec<TextResult<Score>>, Error> {
        let setup = &self.setup;
        let encode = |(query, text): &(&str, &str)| {
            let query = [setup.prompt.as_str(), query].concat();
            let encoded = setup.tokenizer.encode_pair(&query, text)?;
            let rejected = rejected(&encoded, setup.positions, setup.truncate);
            Ok((encoded, rejected))
        };
        compute_results(&self.engine, &self.on_done, pairs.iter().map(encode), &|hidden| {
            let raw = setup.head.scores(hidden)?.first().copied().unwrap_or(f32::NAN);
            let value = setup.activation.apply(raw);
            let finite = raw.is_finite() && value.is_finite();
            Ok(if finite { Ok(Score { raw, value }) } else { Err(NotRun::NotFinite) })
        })
    }
}

impl fmt::Debug for Reranker {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Reranker").field("setup", &self.setup).finish_non_exhaustive()
    }
}

impl Product for Reranker {
    type Options = RerankOptions;
    type Setup = RerankerSetup;
    type Error = Error;

    fn default_options(_: &Config) -> RerankOptions {
        RerankOptions::default()
    }

    fn read_setup(
        directory: &Path,
        checkpoint: &Checkpoint<'_>,
        options: RerankOptions,
    ) -> Result<RerankerSetup, Error> {
        let tokenizer = Tokenizer::from_dir(directory)?;
        // Does the model encode pairs?
        tokenizer.encode_pair("", "")?;
        RerankerSetup::from_directory(directory, tokenizer, checkpoint, &options)
    }

    fn build(engine: Engine, setup: RerankerSetup) -> Result<Self, Error> {
        Ok(Self::new(engine, setup))
    }
}
