//! A model: configuration and weights, immutable, shared by any number of sessions.
//!
//! `weights/` gives every tensor of the network a range of memory and a dtype. `blocks/` computes with them;
//! each block is a few kernel calls. `encoder.rs` and `decoder.rs` are the two halves of figure 1 of the paper.
//! They are written once for sessions and trainers: `forward.rs` lists what differs, `session_forward.rs` is the pass of a
//! session. `load_options.rs` has the options of loading: the instruction set, the dtypes (`weight_dtypes.rs`), a
//! callback. `memory_requirements.rs` computes the memory of a model before loading, and `summary.rs` prints a summary.
//! `fingerprint.rs` computes the identity of a model.
//! `packed_file.rs` saves packed weights to a file, reads them back and uses them in place (`map_file.rs` maps a file,
//! `packed_header.rs` is the text at the beginning of a file). The stacks report each block to a `LayerObserver`; they do not depend on what the observer does.

pub(crate) mod blocks;
mod decoder;
mod encoder;
mod fingerprint;
pub(crate) mod forward;
mod load_options;
mod map_file;
mod memory_requirements;
mod packed_file;
mod packed_header;
pub(crate) mod pass_input;
pub(crate) mod positions;
pub(crate) mod session_forward;
mod summary;
mod weight_dtypes;
pub(crate) mod weights;

pub use fingerprint::BITS_VERSION;
pub use load_options::{IntoControlFlow, LoadOptions, Loading};
pub use memory_requirements::Requirements;
pub use weight_dtypes::{WeightDtype, WeightDtypes};
pub use weights::{Parameter, Storage};

use crate::checkpoint::save::save;
use crate::checkpoint::{Checkpoint, LayerPart, ParamKind, TensorId};
use crate::config::{Config, Side};
use crate::error::Error;
use blocks::ExecContext;
use core::fmt;
use load_options::Reason;
use simdformer_kernels::relative::RelativeBuckets;
use simdformer_kernels::{
    AttentionOptions, Dtype, Error as KernelError, Isa, Parallelism, Quantization,
};
use std::path::Path;
use std::sync::Mutex;
use weights::{Decoder, Encoder, Network, Table, Weights};

/// An encoder-decoder Transformer, or an encoder alone, with its weights, packed for one instruction set.
///
/// ```
/// use simdformer::Model;
/// # if !std::path::Path::new("models/fr-en").exists() { return Ok(()) } // not in the published package
///
/// let model = Model::open("models/fr-en")?;
/// println!("{model}"); // the architecture, and the bytes of its parts
/// assert_eq!(model.config().target_vocab, 2318);
/// # Ok::<(), simdformer::Error>(())
/// ```
pub struct Model {
    config: Config,
    weights: Weights,
    network: Network,
    /// The fingerprint of the weights: computed by the first call of [`Model::fingerprint`], or read from a file.
    digest: Mutex<Option<u128>>,
    notes: Vec<String>,
}

impl Model {
    /// Loads a Hugging Face checkpoint directory for the best instruction set of this machine, or for the one that
    /// the environment variable [`simdformer_kernels::ISA_VARIABLE`] names.
    ///
    /// # Errors
    /// The environment names an instruction set that is [not available](Error::Unsupported); all errors of
    /// [`Checkpoint::open`] and [`Model::load`].
    pub fn open(directory: impl AsRef<Path>) -> Result<Self, Error> {
        Self::open_with(directory, LoadOptions::default())
    }

    /// As [`Model::open`], with options: an instruction set, dtypes, a callback. int8, for example, reduces the memory
    /// to read to a quarter.
    ///
    /// # Errors
    /// As [`Model::open`].
    ///
    /// ```
    /// use simdformer::{Limits, Model, Quantization, Session, WeightDtypes};
    /// # if !std::path::Path::new("models/fr-en").exists() { return Ok(()) } // not in the published package
    ///
    /// let stored = Model::open("models/fr-en")?;
    /// let int8 = Model::open_with("models/fr-en", WeightDtypes::all(Quantization::W8A8))?;
    /// assert!(int8.bytes() < stored.bytes());
    /// // All other settings stay the same.
    /// let session = Session::new(&int8, Limits::new(4, 32, 32))?;
    /// # let _ = session;
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    pub fn open_with<'c>(
        directory: impl AsRef<Path>,
        options: impl Into<LoadOptions<'c>>,
    ) -> Result<Self, Error> {
        Self::load(&Checkpoint::open(directory)?, options)
    }

    /// The memory that a model of `checkpoint` needs with these options. Needs only the data that
    /// [`Checkpoint::open`] has read.
    ///
    /// # Errors
    /// The environment names an instruction set that is [not available](Error::Unsupported); the weights do [not
    /// fit](Error::OutOfMemory) in the address space; [dtypes](Error::InvalidOption) that the model cannot have.
    pub fn requirements<'c>(
        checkpoint: &Checkpoint<'_>,
        options: impl Into<LoadOptions<'c>>,
    ) -> Result<Requirements, Error> {
        let options = options.into();
        if checkpoint.is_packed() {
            let described = packed_header::describe_file(checkpoint, &options)?;
            return Ok(Requirements::of_packed(&described));
        }
        Requirements::for_checkpoint(
            checkpoint,
            load_options::select_isa(options.isa)?.0,
            &options.dtypes,
        )
    }

    /// Packs the weights of `checkpoint`. It reads a few rows at a time, so it never holds a whole tensor besides the
    /// packed weights. Unless the options say otherwise, matrices in f16 or bf16 keep their dtype; the products widen
    /// them exactly. All other weights become f32.
    ///
    /// If the directory of `checkpoint` has [packed weights](Checkpoint::is_packed), their file for the named instruction
    /// set, or for the best one of this machine, is read or [mapped](LoadOptions::map_packed), as by
    /// [`Model::open_packed_with`]. `on_progress` is then not called.
    ///
    /// # Errors
    /// A weight is [not finite](Error::NotFinite) or [cannot be read](Error::Io); the memory cannot be [allocated or
    /// addressed](Error::OutOfMemory); the model or a matrix cannot have these [dtypes](Error::InvalidOption); the
    /// callback [ended the load](Error::Cancelled); the environment names an instruction set that is [not
    /// available](Error::Unsupported).
    ///
    /// ```
    /// use simdformer::Model;
    /// use simdformer::checkpoint::Checkpoint;
    /// use simdformer::kernels::Isa;
    /// # if !std::path::Path::new("models/fr-en").exists() { return Ok(()) } // not in the published package
    ///
    /// let checkpoint = Checkpoint::open("models/fr-en")?;
    /// let model = Model::load(&checkpoint, Isa::SCALAR)?;
    /// assert_eq!(model.isa(), Isa::SCALAR);
    /// # Ok::<(), simdformer::Error>(())
    /// ```
    pub fn load<'c>(
        checkpoint: &Checkpoint<'_>,
        options: impl Into<LoadOptions<'c>>,
    ) -> Result<Self, Error> {
        let mut options = options.into();
        if checkpoint.is_packed() {
            let file = packed_header::select(checkpoint, options.isa)?;
            return Self::open_packed_with(checkpoint.config().clone(), &file.path, options);
        }
        let (isa, why) = load_options::select_isa(options.isa)?;
        let (weights, network) = Weights::load(checkpoint, isa, &mut options)?;
        let model = Self::from_parts(checkpoint.config().clone(), weights, network);
        Ok(Self { notes: checkpoint.notes(), ..model }.logged(why))
    }

    /// Creates a model whose weights `fill` writes: for example random weights, or those of a trainer, another
    /// engine or another file format. The instruction set is selected as in [`Model::open`].
    ///
    /// `fill(role, shape, out)` is called once for each tensor of the network, in the order of [`TensorId::all`].
    /// `shape` is that of [`TensorId::shape`]; a linear map is `[outputs, inputs]` as in PyTorch. `out` has the
    /// product of `shape` floats, row-major, and holds zeros, so a tensor that `fill` does not write is zero.
    /// `fill` is not called for a tensor that [`Config::ties`](crate::config::Config::ties) ties to another: not
    /// for [`TensorId::TargetEmbedding`] if it is the source embedding, and not for [`TensorId::Output`] if it is
    /// the target embedding.
    ///
    /// Embeddings, norms and biases are written directly to the memory of the model; a matrix goes through a buffer
    /// of its own size.
    ///
    /// # Errors
    /// `config` is [not valid](Error::InvalidOption); `fill` [fails](Error::Caller), and its error is the
    /// cause; it writes [NaN or infinity](Error::NotFinite) (minus infinity in [`TensorId::OutputBias`] is
    /// valid and bans a token); the memory cannot be [allocated or addressed](Error::OutOfMemory); the environment names
    /// an instruction set that is [not available](Error::Unsupported).
    ///
    /// ```
    /// use simdformer::Model;
    /// use simdformer::checkpoint::TensorId;
    /// use simdformer::config::{Config, Dimensions};
    ///
    /// let small = Dimensions { d_model: 64, heads: 4, layers: 2, ffn_dim: 256, vocabulary: 1000 };
    /// // Pseudo-random numbers; norms start as the identity.
    /// let mut seed = 1u32;
    /// let mut random = || {
    ///     seed = seed.wrapping_mul(1_664_525).wrapping_add(1_013_904_223);
    ///     (seed >> 8) as f32 / (1 << 24) as f32 - 0.5
    /// };
    /// let model = Model::from_fn(Config::transformer(small), |role, shape, out| {
    ///     match *shape {
    ///         [_] if role.to_string().ends_with("norm.weight") => out.fill(1.0),
    ///         [_, inputs] => out.fill_with(|| random() / (inputs as f32).sqrt()),
    ///         _ => {} // biases are zero
    ///     }
    ///     Ok(())
    /// })?;
    /// assert_eq!(model.config().encoder.layers, 2);
    /// // Both embeddings and the output share one matrix.
    /// assert!(model.parameters().any(|p| p.role() == TensorId::Output));
    /// # Ok::<(), simdformer::Error>(())
    /// ```
    pub fn from_fn<F>(config: Config, fill: F) -> Result<Self, Error>
    where
        F: FnMut(
            TensorId,
            &[usize],
            &mut [f32],
        ) -> Result<(), Box<dyn core::error::Error + Send + Sync>>,
    {
        Self::from_fn_with(config, LoadOptions::default(), fill)
    }

    /// As [`Model::from_fn`], with options: an instruction set, dtypes, a callback, which is called after each tensor.
    ///
    /// # Errors
    /// As [`Model::from_fn`]; the model or a matrix cannot have these [dtypes](Error::InvalidOption); the callback [ended
    /// the load](Error::Cancelled).
    pub fn from_fn_with<'c, F>(
        config: Config,
        options: impl Into<LoadOptions<'c>>,
        mut fill: F,
    ) -> Result<Self, Error>
    where
        F: FnMut(
            TensorId,
            &[usize],
            &mut [f32],
        ) -> Result<(), Box<dyn core::error::Error + Send + Sync>>,
    {
        config.validate()?;
        let mut options = options.into();
        let (isa, why) = load_options::select_isa(options.isa)?;
        let mut fill = |role, shape: &[usize], out: &mut [f32]| {
            fill(role, shape, out)
                .map_err(|error| Error::of_caller(format!("the weights of {role}"), error))
        };
        let (weights, network) = Weights::from_fn(&config, isa, &mut options, &mut fill)?;
        Ok(Self::from_parts(config, weights, network).logged(why))
    }

    /// Writes a checkpoint directory: `config.json` ([`Config::to_json`]) and `model.safetensors`, in f32 and with the
    /// tensor names of the family. [`Model::open`] loads the same numbers again, and a model with the same dtypes gives
    /// the same bits. Tied matrices are written once. Rows of a position table that the model does not use are zero.
    ///
    /// The directory is created. Each file is replaced as a whole, the weights last. Vocabularies and tokenizers are
    /// not part of a model.
    ///
    /// # Errors
    /// The `config.json` of the family [cannot say](Error::Unsupported) what this model is; a matrix is
    /// [quantized](Error::Unsupported); a file cannot be [written](Error::Io), or the directory has a `generation_config.json`,
    /// which would replace the settings of this model.
    ///
    /// ```
    /// use simdformer::Model;
    /// use simdformer::config::{Config, Dimensions};
    ///
    /// let small = Dimensions { d_model: 8, heads: 2, layers: 1, ffn_dim: 16, vocabulary: 30 };
    /// let model = Model::from_fn(Config::transformer(small), |_, _, out| {
    ///     out.fill(0.5);
    ///     Ok(())
    /// })?;
    /// let directory = std::env::temp_dir().join(format!("saved-{}", std::process::id()));
    /// model.save(&directory)?;
    /// assert_eq!(Model::open(&directory)?.config(), model.config());
    /// # std::fs::remove_dir_all(&directory)?;
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    pub fn save(&self, directory: impl AsRef<Path>) -> Result<(), Error> {
        save(directory.as_ref(), &self.config, |role, out| self.weights.unpack(role, out))
    }

    fn from_parts(config: Config, weights: Weights, network: Network) -> Self {
        Self { config, weights, network, digest: Mutex::new(None), notes: Vec::new() }
    }

    /// Sets the fingerprint of the weights, which a file contains.
    fn with_digest(self, digest: u128) -> Self {
        Self { digest: Mutex::new(Some(digest)), ..self }
    }

    /// Logs once what was loaded and for which instruction set, with the feature `log`.
    fn logged(self, why: Reason) -> Self {
        #[cfg(feature = "log")]
        {
            let (family, isa) = (self.config.family.model_type(), self.isa());
            log::info!("{family} model of {} bytes, packed for {isa}: {why}", self.bytes());
            if simdformer_kernels::OPTIMIZED == Some(false) {
                log::warn!(
                    "the kernels were compiled without optimization and are hundreds of times slower: set \
                     opt-level = 3 in [profile.dev.package.simdformer-kernels]"
                );
            }
        }
        #[cfg(not(feature = "log"))]
        let _ = why;
        self
    }

    /// The architecture, with the [`TiedWeights`](crate::config::TiedWeights) of [`Checkpoint::config`].
    pub fn config(&self) -> &Config {
        &self.config
    }

    /// The settings that the files of the checkpoint do not contain, with the values used for them: the defaults of
    /// transformers' configuration classes. Empty for a configuration from code. A program should print them,
    /// because a model with, for example, the wrong number of heads runs without an error and generates wrong text.
    ///
    /// ```
    /// use simdformer::config::Config;
    ///
    /// let config = Config::from_hugging_face(
    ///     r#"{"model_type": "marian", "vocab_size": 60, "pad_token_id": 59, "decoder_start_token_id": 59}"#,
    /// )?;
    /// let first = &config.defaults[0]; // `model.defaults()` after loading
    /// assert_eq!(*first, ("encoder_layers", "12".to_owned()));
    /// # Ok::<(), simdformer::Error>(())
    /// ```
    pub fn defaults(&self) -> &[(&'static str, String)] {
        &self.config.defaults
    }

    /// What the checkpoint has that this model does not use, or uses in another way than the configuration says: the
    /// [notes](Checkpoint::notes) of the checkpoint. A program should print them. Empty for packed weights and for
    /// weights from code.
    pub fn notes(&self) -> &[String] {
        &self.notes
    }

    /// The instruction set that the weights are packed for and that every kernel runs on.
    pub fn isa(&self) -> Isa {
        self.weights.isa()
    }

    /// Bytes of packed weights, the padding between them included.
    pub fn bytes(&self) -> usize {
        self.weights.bytes()
    }

    /// The identity of this model: models with the same fingerprint give the same bits for the same call, in any
    /// process, on any machine and instruction set, from a checkpoint or from packed weights.
    ///
    /// It is the XXH3 hash, with 128 bits, of [`BITS_VERSION`], of the configuration with its generation settings, of the table of
    /// tensors with their dtypes, of all weights as they are multiplied, so after their rounding to these dtypes, and of
    /// `attention=int8`. The instruction set is no part of it, because all of them give the same bits. Nor are a tokenizer, the options of a
    /// call, and the dtype of a session's KV cache: a program that stores results adds those that it sets.
    ///
    /// A checkpoint that differs in one bit has another fingerprint. The same checkpoint may get another fingerprint in
    /// another version of this crate.
    ///
    /// The first call reads all weights, 0.2 s for a Transformer-base in int8; later calls return the same value.
    /// A file of packed weights contains it ([`Model::save_packed`]), so models that were read from one know it. It
    /// identifies a model. It is no cryptographic hash and does not prove who wrote a file: a forged file may name any
    /// fingerprint.
    ///
    /// ```
    /// use simdformer::{Model, Quantization, WeightDtypes};
    /// # if !std::path::Path::new("models/fr-en").exists() { return Ok(()) } // not in the published package
    ///
    /// let model = Model::open("models/fr-en")?;
    /// let int8 = Model::open_with("models/fr-en", WeightDtypes::all(Quantization::W8A8))?;
    /// assert_ne!(model.fingerprint(), int8.fingerprint());
    /// assert_eq!(model.fingerprint(), Model::open("models/fr-en")?.fingerprint());
    /// println!("{:032x}", model.fingerprint());
    /// # Ok::<(), simdformer::Error>(())
    /// ```
    pub fn fingerprint(&self) -> u128 {
        fingerprint::of_model(&self.config, self.digest(), self.weights.attention_precision())
    }

    /// The fingerprint of the weights. Never waits for the lock: when the process forks, a thread of the parent may hold
    /// it.
    fn digest(&self) -> u128 {
        if let Ok(digest) = self.digest.try_lock()
            && let Some(digest) = *digest
        {
            return digest;
        }
        let computed = fingerprint::of_weights(&self.weights);
        if let Ok(mut digest) = self.digest.try_lock() {
            *digest = Some(computed);
        }
        computed
    }

    /// Whether the weights are in the caller's memory, for example in the map of a file that all processes of a machine
    /// share: [`Model::from_packed_bytes`].
    pub fn is_shared(&self) -> bool {
        self.weights.is_shared()
    }

    /// Every tensor of the network and its storage, in the order of use. A tensor with a second storage, for
    /// example a pruning table, appears a second time. The bytes of all entries add up to [`Model::bytes`].
    ///
    /// ```
    /// use simdformer::checkpoint::TensorId;
    /// use simdformer::{Model, Storage};
    /// # if !std::path::Path::new("models/fr-en").exists() { return Ok(()) } // not in the published package
    ///
    /// let model = Model::open("models/fr-en")?;
    /// for parameter in model.parameters() {
    ///     println!("{parameter}");
    /// }
    /// let first = model.parameters().next().expect("a parameter");
    /// let config = model.config();
    /// assert_eq!((first.role(), first.storage()), (TensorId::SourceEmbedding, Storage::Rows));
    /// assert_eq!(first.shape(), [config.source_vocab, config.d_model]);
    /// let all: usize = model.parameters().map(|parameter| parameter.bytes()).sum();
    /// assert_eq!(all, model.bytes());
    /// # Ok::<(), simdformer::Error>(())
    /// ```
    pub fn parameters(&self) -> impl ExactSizeIterator<Item = &Parameter> {
        self.weights.parameters().iter()
    }

    /// The dtype of the KV cache of sessions whose [`Limits::cache`](crate::Limits::cache) sets none: f16 if all
    /// attention matrices of the decoder are `int8`, otherwise f32. The error of rounding to eleven bits is small
    /// compared with activations that are quantized to eight bits, and a step reads half as much memory.
    ///
    /// ```
    /// use simdformer::config::{Config, Dimensions};
    /// use simdformer::{Dtype, Model, WeightDtypes};
    ///
    /// let small = Dimensions { d_model: 64, heads: 4, layers: 2, ffn_dim: 256, vocabulary: 1000 };
    /// let config = Config::transformer(small);
    /// let load = |dtypes: &str| -> Result<_, Box<dyn std::error::Error>> {
    ///     let dtypes: WeightDtypes = dtypes.parse()?;
    ///     Ok(Model::from_fn_with(config.clone(), dtypes, |_, _, _| Ok(()))?)
    /// };
    /// assert_eq!(load("int8")?.cache_storage(), Dtype::F16);
    /// assert_eq!(load("int8x16")?.cache_storage(), Dtype::F32);
    /// assert_eq!(load("int8,decoder.layers.1=f32")?.cache_storage(), Dtype::F32);
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    pub fn cache_storage(&self) -> Dtype {
        let attends = |role| {
            matches!(
                role,
                TensorId::Layer(Side::Decoder, _, LayerPart::Attention(_, _, ParamKind::Weight))
            )
        };
        let mut matrices =
            self.parameters().filter(|parameter| attends(parameter.role())).peekable();
        let any = matrices.peek().is_some();
        let int8 = Storage::Packed(Quantization::W8A8.into());
        if Dtype::F16.is_enabled() && any && matrices.all(|matrix| matrix.storage() == int8) {
            Dtype::F16
        } else {
            Dtype::F32
        }
    }

    /// Floats of the buffer for quantized activations, if the input of the matrix `role` has `rows(role)` rows.
    pub(crate) fn rounded(&self, rows: &dyn Fn(TensorId) -> usize) -> Result<usize, KernelError> {
        self.weights.rounded(rows)
    }

    pub(crate) fn encoder(&self) -> &Encoder {
        &self.network.encoder
    }

    /// `None` in an encoder-only model.
    pub(crate) fn decoder(&self) -> Option<&Decoder> {
        self.network.decoder.as_ref()
    }

    /// Writes the relative position biases of attention scores for sequences of up to `positions`: one table for
    /// the stack, or one for each layer.
    pub(crate) fn write_relative(
        &self,
        side: Side,
        buckets: RelativeBuckets,
        positions: usize,
        out: &mut [f32],
    ) -> Result<(), KernelError> {
        let Network { encoder, decoder } = &self.network;
        // A stack has either one shared table or one table per layer; `write_tables` takes both.
        match (side, decoder) {
            (Side::Encoder, _) => {
                let own = encoder.layers.iter().map(|l| &l.self_attention.relative_bias);
                self.write_tables(&encoder.relative_bias, own, buckets, positions, out)
            }
            (Side::Decoder, Some(decoder)) => {
                let own = decoder.layers.iter().map(|l| &l.self_attention.relative_bias);
                self.write_tables(&decoder.relative_bias, own, buckets, positions, out)
            }
            (Side::Decoder, None) => Ok(()),
        }
    }

    fn write_tables<'t>(
        &self,
        shared: &'t Option<Table>,
        own: impl Iterator<Item = &'t Option<Table>> + Clone,
        buckets: RelativeBuckets,
        positions: usize,
        out: &mut [f32],
    ) -> Result<(), KernelError> {
        let tables = core::iter::once(shared).chain(own).flatten();
        let len = out.len() / tables.clone().count().max(1);
        for (table, out) in tables.zip(out.chunks_mut(len.max(1))) {
            buckets.fill(self.weights.table(table)?, positions, out)?;
        }
        Ok(())
    }

    /// Replaces the weights: `rows_of` returns the numbers of each role, row-major as in a checkpoint. `scratch`
    /// has [`refresh_floats`](weights::refresh_floats) elements.
    #[cfg(feature = "train")]
    pub(crate) fn refresh<'r>(
        &mut self,
        rows_of: &(dyn Fn(TensorId) -> &'r [f32] + Sync),
        scratch: &mut [f32],
        parallelism: Parallelism<'_>,
    ) -> Result<(), Error> {
        self.digest = Mutex::new(None);
        self.weights.own()?;
        self.weights.refresh(rows_of, scratch, parallelism)
    }

    /// The attention options of a self-attention block of the encoder, without its bias.
    pub(crate) fn encoder_attention(&self) -> AttentionOptions<'static> {
        self.exec_context(Parallelism::Serial).encoder_attention()
    }

    /// The context in which blocks compute.
    pub(crate) fn exec_context<'a>(&'a self, parallelism: Parallelism<'a>) -> ExecContext<'a> {
        ExecContext { weights: &self.weights, config: &self.config, parallelism }
    }

    /// Writes the position embeddings of positions `0..tokens`, `[tokens, d_model]`. On the encoder side of a model
    /// with token types it writes them for each type, `[token_types, tokens, d_model]`.
    pub(crate) fn write_positions(
        &self,
        side: Side,
        tokens: usize,
        out: &mut [f32],
    ) -> Result<(), KernelError> {
        let run = self.exec_context(Parallelism::Serial);
        let Network { encoder, decoder } = &self.network;
        let (embedding, types) = match (side, decoder) {
            (Side::Encoder, _) => (&encoder.embedding, encoder.token_types.as_ref()),
            (Side::Decoder, Some(decoder)) => (&decoder.embedding, None),
            (Side::Decoder, None) => return Ok(()),
        };
        positions::write_positions(&run, embedding, types, tokens, out)
    }
}

impl fmt::Debug for Model {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Model")
            .field("family", &self.config.family)
            .field("d_model", &self.config.d_model)
            .field("isa", &self.isa())
            .field("bytes", &self.bytes())
            .finish_non_exhaustive()
    }
}
