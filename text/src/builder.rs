//! [`Builder`]: how a product opens the directory of a model.

use crate::error::Error;
use crate::packed;
use core::fmt;
use simdformer::checkpoint::Checkpoint;
use simdformer::config::Config;
use simdformer::{Engine, EngineBuilder, LoadOptions};
use std::path::{Path, PathBuf};

/// What a [`Builder`] opens: the translator, the batcher, the embedder, the reranker, the transcriber.
pub trait Product: Sized {
    /// What can be chosen beside the engine.
    type Options: 'static;
    /// What a directory and the options define beside the weights.
    type Setup;

    /// The options of a checkpoint.
    fn default_options(config: &Config) -> Self::Options;

    /// Reads everything but the weights, so that errors occur before gigabytes are read.
    ///
    /// # Errors
    /// A file of the directory cannot be read; the model does not do what the options ask for.
    fn read(
        directory: &Path,
        checkpoint: &Checkpoint<'_>,
        options: Self::Options,
    ) -> Result<Self::Setup, Error>;

    /// The product of the model of `engine`.
    ///
    /// # Errors
    /// The options do not fit the engine.
    fn build(engine: Engine, setup: Self::Setup) -> Result<Self, Error>;
}

type Change<'b, T> = Box<dyn FnOnce(T) -> T + 'b>;

/// How a product opens a directory: its options, the dtypes of the weights, and the threads and memory of its engine.
///
/// ```no_run
/// use simdformer::kernels::ThreadPool;
/// use simdformer::{Quantization, Threads, WeightDtypes};
/// use simdformer_text::translator::Translator;
/// use std::sync::Arc;
///
/// # fn main() -> Result<(), Box<dyn std::error::Error>> {
/// let threads = Threads::Shared(Arc::new(ThreadPool::new(4)?));
/// let translator = Translator::builder("nllb-200-distilled-600M")
///     .options(|options| options.target = Some("fra_Latn".to_owned()))
///     .load(WeightDtypes::all(Quantization::W8A8))
///     .engine(|engine| engine.threads(threads).slots(8))
///     .open()?;
/// println!("{}", translator.translate("How are you?")?);
/// # Ok(()) }
/// ```
#[must_use]
pub struct Builder<'b, X: Product> {
    directory: PathBuf,
    load: LoadOptions<'b>,
    options: Change<'b, X::Options>,
    engine: Change<'b, EngineBuilder>,
}

impl<'b, X: Product> Builder<'b, X> {
    pub(crate) fn new(directory: impl AsRef<Path>) -> Self {
        let (directory, load) = (directory.as_ref().to_owned(), LoadOptions::default());
        let (options, engine) = (Box::new(|same| same), Box::new(|same| same));
        Self { directory, load, options, engine }
    }

    /// Changes the options, which are first those of the checkpoint.
    pub fn options(self, change: impl FnOnce(&mut X::Options) + 'b) -> Self {
        let before = self.options;
        let options = Box::new(|options| {
            let mut options = before(options);
            change(&mut options);
            options
        });
        Self { options, ..self }
    }

    /// The instruction set, the dtypes of the weights, and the progress of loading; packed weights are mapped.
    pub fn load(self, load: impl Into<LoadOptions<'b>>) -> Self {
        Self { load: load.into(), ..self }
    }

    /// Changes the threads, slots, sessions and memory; without this call the calling thread computes, in as much memory as
    /// the calls need.
    pub fn engine(self, change: impl FnOnce(EngineBuilder) -> EngineBuilder + 'b) -> Self {
        let before = self.engine;
        Self { engine: Box::new(|builder| change(before(builder))), ..self }
    }

    /// Opens the directory. The weights are read last.
    ///
    /// # Errors
    /// A file cannot be read, or is invalid; the model does not do what the options ask for; there is no memory.
    pub fn open(self) -> Result<X, Error> {
        let checkpoint = Checkpoint::open(&self.directory)?;
        let options = (self.options)(X::default_options(checkpoint.config()));
        let setup = X::read(&self.directory, &checkpoint, options)?;
        let model = packed::load(&checkpoint, self.load)?;
        X::build((self.engine)(Engine::builder(model)).build()?, setup)
    }
}

impl<X: Product> fmt::Debug for Builder<'_, X> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Builder").field("directory", &self.directory).finish_non_exhaustive()
    }
}
