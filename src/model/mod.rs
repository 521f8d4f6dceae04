//! A model: configuration and weights, immutable, shared by any number of sessions.
//!
//! `weights/` gives every tensor of the network a place and a form; `blocks/` computes with them, each
//! block a few kernel calls; `encoder.rs` and `decoder.rs` are the two halves of figure 1 of the paper.
//! They tell a `Tap` what they have done, and know nothing of who looks.

pub(crate) mod blocks;
mod decoder;
mod encoder;
mod error;
pub(crate) mod pass;
mod positions;
pub(crate) mod tap;
pub(crate) mod weights;

pub use error::ModelError;
pub use weights::{Form, Parameter};

use crate::checkpoint::Checkpoint;
use crate::config::{Config, Side};
use crate::error::KernelError;
use blocks::Run;
use core::fmt;
use simdformer_kernels::{Isa, Parallelism};
use std::path::Path;
use weights::{Decoder, Encoder, Network, Weights};

/// An encoder-decoder Transformer with its weights, packed for one instruction set.
///
/// ```no_run
/// use simdformer::Model;
///
/// let model = Model::open("path/to/checkpoint")?;
/// println!("{} MB", model.bytes() >> 20);
/// # Ok::<(), simdformer::ModelError>(())
/// ```
pub struct Model {
    config: Config,
    weights: Weights,
    network: Network,
}

impl Model {
    /// Loads a Hugging Face checkpoint directory for the best instruction set of this machine, or the
    /// one that the environment variable [`simdformer_kernels::ISA_VARIABLE`] names.
    ///
    /// # Errors
    /// See [`ModelError`].
    pub fn open(directory: impl AsRef<Path>) -> Result<Self, ModelError> {
        let isa = Isa::from_environment().map_err(ModelError::Isa)?.unwrap_or_else(Isa::best);
        Self::load(&Checkpoint::open(directory)?, isa)
    }

    /// Packs the weights of `checkpoint` for `isa`. Reads a few rows at a time: beside the packed
    /// weights it holds no tensor.
    ///
    /// # Errors
    /// See [`ModelError`].
    pub fn load(checkpoint: &Checkpoint, isa: Isa) -> Result<Self, ModelError> {
        let config = checkpoint.config().clone();
        let (weights, network) = Weights::load(checkpoint, &config, isa)?;
        Ok(Self { config, weights, network })
    }

    /// The architecture.
    pub fn config(&self) -> &Config {
        &self.config
    }

    /// The instruction set that the weights are packed for and that every kernel runs on.
    pub fn isa(&self) -> Isa {
        self.weights.isa()
    }

    /// Bytes of packed weights.
    pub fn bytes(&self) -> usize {
        self.weights.bytes()
    }

    /// Every tensor of the network in the form in which it is stored, in the order of use. One that is
    /// stored in a second form comes a second time; their bytes add up to [`Model::bytes`].
    ///
    /// ```
    /// use simdformer::checkpoint::Role;
    /// use simdformer::{Form, Model};
    ///
    /// let model = Model::open("models/fr-en")?;
    /// for parameter in model.parameters() {
    ///     println!("{parameter}");
    /// }
    /// let first = model.parameters().next().expect("a parameter");
    /// let config = model.config();
    /// assert_eq!((first.role(), first.form()), (Role::SourceEmbedding, Form::Rows));
    /// assert_eq!(first.shape(), [config.source_vocab, config.d_model]);
    /// let all: usize = model.parameters().map(|parameter| parameter.bytes()).sum();
    /// assert_eq!(all, model.bytes());
    /// # Ok::<(), simdformer::ModelError>(())
    /// ```
    pub fn parameters(&self) -> impl ExactSizeIterator<Item = &Parameter> {
        self.weights.parameters().iter()
    }

    pub(crate) fn encoder(&self) -> &Encoder {
        &self.network.encoder
    }

    pub(crate) fn decoder(&self) -> &Decoder {
        &self.network.decoder
    }

    /// What blocks need to compute.
    pub(crate) fn run<'a>(&'a self, parallelism: Parallelism<'a>) -> Run<'a> {
        Run { weights: &self.weights, config: &self.config, parallelism }
    }

    /// Writes what is added to the embedding at positions `0..tokens`, `[tokens, d_model]`.
    pub(crate) fn write_positions(
        &self,
        side: Side,
        tokens: usize,
        out: &mut [f32],
    ) -> Result<(), KernelError> {
        let embedding = match side {
            Side::Encoder => &self.network.encoder.embedding,
            Side::Decoder => &self.network.decoder.embedding,
        };
        positions::write_positions(&self.run(Parallelism::Serial), embedding, tokens, out)
    }
}

impl fmt::Debug for Model {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Model")
            .field("config", &self.config)
            .field("isa", &self.isa())
            .field("bytes", &self.bytes())
            .finish_non_exhaustive()
    }
}
