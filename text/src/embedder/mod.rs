//! Vectors and scores of texts, as the directory of a model defines them.
//!
//! [`Embedder`] computes a vector for each text, [`Reranker`] scores texts together with a query. Both follow the files of
//! sentence-transformers (`modules.json`, `sentence_bert_config.json`, `config_sentence_transformers.json`) as its version
//! 5.7 does: the pooling, the prompts, lowercase, the number of dimensions, the activation of scores. What a file asks for
//! and this crate does not do is an error that names it. [`Precision`] converts vectors to fewer bits.
//!
//! The result of a text has the same bits alone, in any batch, and on any number of threads.
//!
//! ```no_run
//! use simdformer_text::embedder::Embedder;
//!
//! let embedder = Embedder::open("all-MiniLM-L6-v2")?;
//! for embedding in embedder.embed(&["How are you?", "Comment vas-tu ?"])? {
//!     match embedding.result {
//!         Ok(vector) => println!("{} numbers of {} tokens", vector.len(), embedding.tokens),
//!         Err(why) => println!("not run: {why}"),
//!     }
//! }
//! # Ok::<(), simdformer_text::Error>(())
//! ```

mod encoder_batches;
mod prompts;
mod quantize;
mod reranker;

pub use encoder_batches::{NotRun, TextResult};
pub use prompts::Prompt;
pub use quantize::{Precision, Quantized, Ranges};
pub use reranker::{RerankOptions, Reranker, RerankerSetup, Score, ScoreActivation};

use crate::error::Error;
use core::fmt;
use encoder_batches::{compute_results, rejected};
use prompts::SentenceTransformersConfig;
use simdformer::checkpoint::Checkpoint;
use simdformer::config::{Config, Side};
use simdformer::task_heads::SentenceHead;
use simdformer::{Cancel, Engine, OnDone, Product, ProductBuilder};
use simdformer_tokenize::{Direction, Encoded, Tokenizer};
use std::path::Path;
use std::sync::Arc;

/// How texts become vectors, beside what the directory defines.
#[derive(Clone, Debug, Default)]
pub struct EmbedOptions {
    /// The prompt before each text.
    pub prompt: Prompt,
    /// Keep only this many leading dimensions, and scale the rest to length 1. Only a model that was trained for it
    /// (Matryoshka) keeps its quality.
    pub dims: Option<usize>,
    /// Whether a text that is too long is cut, or is not run: [`NotRun::TooLong`]. `None` cuts what is longer than the
    /// directory declares, as sentence-transformers does, and does not run what is longer than the model reads.
    pub truncate: Option<bool>,
    /// The most tokens of a text, special ones included, instead of what the directory declares; never more than the
    /// model reads.
    pub max_tokens: Option<usize>,
}

/// Everything of an [`Embedder`] but the weights. It is small, so all errors of a directory's settings occur before
/// the weights are read.
#[derive(Debug)]
pub struct EmbedderSetup {
    tokenizer: Tokenizer,
    head: SentenceHead,
    prompt: String,
    /// Tokens of the prompt and of special tokens before it; 0 without a prompt.
    prompt_tokens: usize,
    /// The number of dimensions that are kept, and whether the rest is scaled to length 1.
    dims: Option<(usize, bool)>,
    positions: Option<usize>,
    /// Whether long texts are cut.
    cut: bool,
}

impl EmbedderSetup {
    /// Reads the settings of `directory`. `tokenizer` and `checkpoint` are those of the same directory.
    ///
    /// # Errors
    /// The tokenizer needs languages; a file of settings is invalid, or asks for something that is not supported; the
    /// directory does not have the prompt; the vectors have fewer dimensions than asked for.
    pub fn from_directory(
        directory: impl AsRef<Path>,
        tokenizer: Tokenizer,
        checkpoint: &Checkpoint<'_>,
        options: &EmbedOptions,
    ) -> Result<Self, Error> {
        let directory = directory.as_ref();
        let head = SentenceHead::open(directory, checkpoint.config().d_model)?;
        let config = SentenceTransformersConfig::from_directory(directory)?;
        let dims = match (options.dims, config.truncate_dim) {
            (Some(found), _) | (None, Some(found @ 0)) if !(1..=head.width()).contains(&found) => {
                let expected =
                    format!("from 1 to {} dimensions, as the vectors have", head.width());
                return Err(Error::invalid_option("dim", expected, found));
            }
            (Some(dims), _) => Some((dims, true)),
            // As sentence-transformers: no more than there are, and not scaled.
            (None, dims) => dims.map(|dims| (dims.min(head.width()), false)),
        };
        // A text is cut if the directory declares a length, and the model has that many positions.
        let positions = checkpoint.config().max_positions(Side::Encoder);
        let least = |a: Option<usize>| a.into_iter().chain(positions).min();
        let (most, cut) = match options.max_tokens.or(head.max_tokens()) {
            Some(wanted) => (least(Some(wanted)), positions.is_none_or(|most| wanted <= most)),
            None => (least(tokenizer.max_tokens()), false),
        };
        let mut tokenizer = tokenizer.with_max_tokens(most);
        if head.lower_case() {
            tokenizer = tokenizer.with_lower_case()?;
        }
        let prompt = config.prompt(&options.prompt)?;
        let prompt_tokens = prompt_tokens(&tokenizer, &prompt)?;
        let cut = options.truncate.unwrap_or(cut);
        Ok(Self { tokenizer, head, prompt, prompt_tokens, dims, positions, cut })
    }

    /// The number of dimensions of a vector.
    #[must_use]
    pub fn width(&self) -> usize {
        self.dims.map_or(self.head.width(), |(dims, _)| dims)
    }

    /// Whether vectors have length 1, so that their dot product is the cosine.
    #[must_use]
    pub fn normalizes(&self) -> bool {
        self.dims.map_or(self.head.normalizes(), |(dims, scaled)| {
            scaled || (dims == self.head.width() && self.head.normalizes())
        })
    }

    /// The modules after the transformer.
    #[must_use]
    pub fn head(&self) -> &SentenceHead {
        &self.head
    }

    /// The text before each text; empty for none.
    #[must_use]
    pub fn prompt(&self) -> &str {
        &self.prompt
    }

    /// The tokenizer, with the limit and the lowercase of the directory.
    #[must_use]
    pub fn tokenizer(&self) -> &Tokenizer {
        &self.tokenizer
    }

    /// Writes the vector of a text with these hidden states, `[tokens, d_model]`.
    fn vector(&self, hidden: &[f32], scratch: &mut [f32]) -> Result<Vec<f32>, Error> {
        let mut vector = vec![0.0; self.head.width()];
        self.head.apply_after_prompt(hidden, self.prompt_tokens, scratch, &mut vector)?;
        if let Some((dims, scaled)) = self.dims {
            match scaled {
                true => shorten(&mut vector, dims),
                false => vector.truncate(dims),
            }
        }
        Ok(vector)
    }

    /// Why a text is not run.
    fn rejected(&self, one: &Encoded) -> Option<NotRun> {
        let only_prompt = || {
            let tokens = self.prompt_tokens;
            let left_out = !self.head.includes_prompt() && tokens >= one.ids.len();
            left_out.then_some(NotRun::OnlyPrompt { tokens })
        };
        rejected(one, self.positions, self.cut).or_else(only_prompt)
    }
}

/// The tokens that a prompt takes at the start of a text: all of it alone, without the special token at its end.
fn prompt_tokens(tokenizer: &Tokenizer, prompt: &str) -> Result<usize, Error> {
    if prompt.is_empty() {
        return Ok(0);
    }
    let alone = tokenizer.encode(prompt, &Direction::default())?.ids;
    // Special tokens have no text.
    let special = alone.last().is_some_and(|&last| tokenizer.decode(&[last]).is_empty());
    Ok(alone.len() - usize::from(special))
}

/// Keeps the first `dims` numbers of a vector, and divides them by their Euclidean length, or by 1e-12 if that is smaller: what
/// [`EmbedOptions::dims`] does with each vector.
pub fn shorten(vector: &mut Vec<f32>, dims: usize) {
    vector.truncate(dims);
    let squares = vector.iter().map(|&x| f64::from(x) * f64::from(x));
    let length = squares.sum::<f64>().sqrt().max(1e-12);
    vector.iter_mut().for_each(|x| *x = (f64::from(*x) / length) as f32);
}

/// Computes a vector for each text from the hidden states of an encoder. A clone shares the weights, the
/// planned sessions and the settings of the directory.
#[derive(Clone)]
pub struct Embedder {
    setup: Arc<EmbedderSetup>,
    engine: Engine,
    on_done: OnDone,
}

impl Embedder {
    /// Reads a published directory, with default options.
    ///
    /// # Errors
    /// As [`EmbedderSetup::from_directory`]; the tokenizer or the weights cannot be read.
    pub fn open(directory: impl AsRef<Path>) -> Result<Self, Error> {
        Self::builder(directory).open()
    }

    /// How to open a directory with other options, weights, threads or memory.
    pub fn builder<'b>(directory: impl AsRef<Path>) -> ProductBuilder<'b, Self> {
        ProductBuilder::new(directory)
    }

    /// An embedder of a loaded model: an [`Engine`], a `Model`, or an `Arc` of one, of the directory of `setup`.
    #[must_use]
    pub fn new(engine: impl Into<Engine>, setup: EmbedderSetup) -> Self {
        Self { setup: Arc::new(setup), engine: engine.into(), on_done: OnDone::default() }
    }

    /// The engine in which the embedder runs.
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
    /// embedder can have a flag of their own.
    pub fn set_cancel(&mut self, cancel: Cancel) {
        self.engine.set_cancel(cancel);
    }

    /// Calls `on_done` during later calls, each time the model finishes a text, with the number of those that are finished
    /// since this call. They finish in any order, on any of the threads, and two calls can overlap. `on_done` starts no
    /// call of its own.
    pub fn set_on_done(&mut self, on_done: impl Fn(u64) + Send + Sync + 'static) {
        self.on_done = OnDone::new(on_done);
    }

    /// What the directory and the options define.
    #[must_use]
    pub fn setup(&self) -> &EmbedderSetup {
        &self.setup
    }

    /// The vector of each text, in order. A blank text has that of its special tokens.
    ///
    /// # Errors
    /// A text cannot be tokenized, or the model cannot run. A text that alone is not run is no error; see
    /// [`TextResult::result`].
    pub fn embed(&self, texts: &[impl AsRef<str>]) -> Result<Vec<TextResult<Vec<f32>>>, Error> {
        let setup = &self.setup;
        let encode = |text: &_| {
            let text = [setup.prompt.as_str(), AsRef::<str>::as_ref(text)].concat();
            Ok(setup.tokenizer.encode(&text, &Direction::default())?)
        };
        self.embed_encoded(texts.iter().map(encode))
    }

    /// The vector of each list of ids, in order, as if a text had been tokenized to them: with the special tokens that the
    /// tokenizer adds, and with the prompt, if there is one.
    ///
    /// # Errors
    /// The model cannot run; an id is outside of its vocabulary.
    pub fn embed_ids(
        &self,
        lists: &[impl AsRef<[u32]>],
    ) -> Result<Vec<TextResult<Vec<f32>>>, Error> {
        let most = self.setup.tokenizer.max_tokens();
        self.embed_encoded(lists.iter().map(|ids| Ok(Encoded::from_ids(ids.as_ref(), most))))
    }

    fn embed_encoded(
        &self,
        texts: impl Iterator<Item = Result<Encoded, Error>>,
    ) -> Result<Vec<TextResult<Vec<f32>>>, Error> {
        let setup = &self.setup;
        let texts = texts.map(|encoded| {
            let encoded = encoded?;
            let rejected = setup.rejected(&encoded);
            Ok((encoded, rejected))
        });
        compute_results(&self.engine, &self.on_done, texts, &|hidden| {
            let vector = setup.vector(hidden, &mut vec![0.0; setup.head.scratch_floats()])?;
            let finite = vector.iter().all(|x| x.is_finite());
            Ok(if finite { Ok(vector) } else { Err(NotRun::NotFinite) })
        })
    }
}

impl fmt::Debug for Embedder {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Embedder").field("setup", &self.setup).finish_non_exhaustive()
    }
}

impl Product for Embedder {
    type Options = EmbedOptions;
    type Setup = EmbedderSetup;
    type Error = Error;

    fn default_options(_: &Config) -> EmbedOptions {
        EmbedOptions::default()
    }

    fn read_setup(
        directory: &Path,
        checkpoint: &Checkpoint<'_>,
        options: EmbedOptions,
    ) -> Result<EmbedderSetup, Error> {
        let tokenizer = Tokenizer::from_dir(directory)?;
        // Does the model encode single texts?
        tokenizer.encode("", &Direction::default())?;
        EmbedderSetup::from_directory(directory, tokenizer, checkpoint, &options)
    }

    fn build(engine: Engine, setup: EmbedderSetup) -> Result<Self, Error> {
        Ok(Self::new(engine, setup))
    }
}
