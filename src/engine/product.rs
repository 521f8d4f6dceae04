//! [`Product`] and [`ProductBuilder`]: how the directory of a model is opened by what is built on an engine.

use super::builder::EngineBuilder;
use super::engine::Engine;
use crate::checkpoint::Checkpoint;
use crate::config::Config;
use crate::error::Error;
use crate::model::{LoadOptions, Model};
use core::fmt;
use std::path::{Path, PathBuf};

/// What a [`ProductBuilder`] opens: an [`Engine`] with what else a directory defines, for example a tokenizer. The
/// translator, batcher, embedder and reranker of `simdformer-text` and the transcriber of `simdformer-speech` are products.
///
/// ```
/// use simdformer::checkpoint::Checkpoint;
/// use simdformer::config::Config;
/// use simdformer::{Engine, Error, Product, ProductBuilder, Quantization, WeightDtypes};
/// use std::path::Path;
///
/// /// Translates ids, after a prefix.
/// struct Translator {
///     engine: Engine,
///     prefix: Vec<u32>,
/// }
///
/// impl Product for Translator {
///     type Options = Vec<u32>;
///     type Setup = Vec<u32>;
///     type Error = Error;
///
///     fn default_options(_: &Config) -> Vec<u32> {
///         Vec::new()
///     }
///
///     // Here files beside the weights are read, and the options are checked.
///     fn read_setup(_: &Path, _: &Checkpoint<'_>, prefix: Vec<u32>) -> Result<Vec<u32>, Error> {
///         Ok(prefix)
///     }
///
///     fn build(engine: Engine, prefix: Vec<u32>) -> Result<Self, Error> {
///         Ok(Self { engine, prefix })
///     }
/// }
///
/// # if !Path::new("models/fr-en").exists() { return Ok(()) } // not in the published package
/// let translator: Translator = ProductBuilder::new("models/fr-en")
///     .options(|prefix: &mut Vec<u32>| prefix.push(6))
///     .load(WeightDtypes::all(Quantization::W8A8))
///     .engine(|engine| engine.slots(8))
///     .open()?;
/// let source = [&translator.prefix[..], &[11, 0]].concat();
/// assert!(translator.engine.generate(&[source])?[0].is_ok());
/// # Ok::<(), Error>(())
/// ```
pub trait Product: Sized {
    /// What can be chosen beside the engine.
    type Options: 'static;
    /// What a directory and the options define beside the weights.
    type Setup;
    /// Why it cannot be opened.
    type Error: From<Error>;

    /// Opens the model at a path. A product may open more than [`Checkpoint::open`].
    ///
    /// # Errors
    /// A file cannot be read, or is invalid.
    fn checkpoint(path: &Path) -> Result<Checkpoint<'static>, Self::Error> {
        Ok(Checkpoint::open(path)?)
    }

    /// The options of a checkpoint.
    fn default_options(config: &Config) -> Self::Options;

    /// Reads everything but the weights, so that errors occur before gigabytes are read.
    ///
    /// # Errors
    /// A file of the directory cannot be read; the model does not do what the options ask for.
    fn read_setup(
        directory: &Path,
        checkpoint: &Checkpoint<'_>,
        options: Self::Options,
    ) -> Result<Self::Setup, Self::Error>;

    /// The product of the model of `engine`.
    ///
    /// # Errors
    /// The options do not fit the engine.
    fn build(engine: Engine, setup: Self::Setup) -> Result<Self, Self::Error>;
}

type Change<'b, T> = Box<dyn FnOnce(T) -> T + 'b>;

/// How a product opens a directory: its options, the dtypes of the weights, and the threads and memory of its engine.
#[must_use]
pub struct ProductBuilder<'b, X: Product> {
    directory: PathBuf,
    load: LoadOptions<'b>,
    options: Change<'b, X::Options>,
    engine: Change<'b, EngineBuilder>,
}

impl<'b, X: Product> ProductBuilder<'b, X> {
    /// Opens `directory`, with the options of its checkpoint until they are changed.
    pub fn new(directory: impl AsRef<Path>) -> Self {
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

    /// The instruction set, the dtypes of the weights, and the progress of loading. Packed weights are
    /// [mapped](LoadOptions::map_packed), whatever `load` says.
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
    pub fn open(self) -> Result<X, X::Error> {
        let checkpoint = X::checkpoint(&self.directory)?;
        let options = (self.options)(X::default_options(checkpoint.config()));
        let setup = X::read_setup(&self.directory, &checkpoint, options)?;
        let load = LoadOptions { map_packed: true, ..self.load };
        let model = Model::load(&checkpoint, load)?;
        X::build((self.engine)(Engine::builder(model)).build()?, setup)
    }
}

impl<X: Product> fmt::Debug for ProductBuilder<'_, X> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("ProductBuilder").field("directory", &self.directory).finish_non_exhaustive()
    }
}
