//! From files to named tensors: safetensors and `config.json`, or tensors that the caller holds.
//!
//! A checkpoint is hostile until shown otherwise: every length, offset, shape and name is checked when it is opened,
//! and [`Checkpoint::open`] succeeds only if each tensor that the configuration needs is there in the right shape. The
//! weights themselves stay where they are until [`TensorView::read_into`] takes them, some rows at a time, so a model
//! can pack them without ever holding the whole checkpoint.
//!
//! | the weights are | take |
//! |---|---|
//! | a directory as `save_pretrained` writes it | [`Checkpoint::open`] |
//! | one safetensors blob in memory: embedded, decrypted, received | [`Checkpoint::from_bytes`] |
//! | named tensors of somebody else: `safetensors`, a memory map, another engine | [`Checkpoint::from_tensors`] |
//! | numbers without a name or a file | [`Model::from_fn`](crate::Model::from_fn) |
//!
//! The rest of the crate asks by [`TensorId`]; each family's file here says how that family spells it. [`TensorId::all`] and
//! [`TensorId::names`] list every tensor of a configuration; their patterns, for `side` `encoder` or `decoder` and layer `N`:
//!
//! | | Hugging Face's families | `torch.nn.Transformer` | [`Family::Plain`](crate::config::Family::Plain) |
//! |---|---|---|---|
//! | embeddings | `model.side.embed_tokens.weight`, one for both `model.shared.weight` | `src_embed.weight`, `tgt_embed.weight` | `side.embedding.weight` |
//! | convolutions | `model.encoder.conv1.`, `model.encoder.conv2.` (Whisper) | | `encoder.convolutions.0.`, `encoder.convolutions.1.` |
//! | learned positions | `model.side.embed_positions.weight` | | `side.positions.weight` |
//! | in a layer | `model.side.layers.N.` | `side.layers.N.`, also after `transformer.` | `side.layers.N.` |
//! | its attention | `self_attn.`, `encoder_attn.` | `self_attn.`, `multihead_attn.` | `self_attention.`, `cross_attention.` |
//! | projections | `q_proj`, `k_proj`, `v_proj`, `out_proj` | `in_proj_weight`, `in_proj_bias`, `out_proj` | `query`, `key`, `value`, `output` |
//! | its feed-forward | `fc1`, `fc2` | `linear1`, `linear2` | `feed_forward.inner`, `feed_forward.outer` |
//! | its norms | `self_attn_layer_norm`, `encoder_attn_layer_norm`, `final_layer_norm` | `norm1`, `norm2`, `norm3` | `self_attention_norm`, `cross_attention_norm`, `feed_forward_norm` |
//! | other norms | `model.side.layernorm_embedding`, `model.side.layer_norm` | `side.norm` | `side.embedding_norm`, `side.final_norm` |
//! | output | `lm_head.weight`, `final_logits_bias` | `generator.weight`, `generator.bias` | `output.weight`, `output.bias` |
//!
//! The families of fairseq's line (Marian to PLBart) are in the first column; FSMT's output is
//! `model.decoder.output_projection.weight`, Whisper's `proj_out.weight`. Those with names of their own have a file each under `names/`: T5
//! (`side.block.N.layer.0.SelfAttention.q`), Seamless (`text_side.layers.N.`), and encoders alone, which may come after
//! the name of their family (`bert.encoder.layer.N.attention.self.query`).
//!
//! Linear maps, convolutions and norms end in `.weight` and `.bias`; a map is `[outputs, inputs]`, a convolution
//! `[outputs, inputs, 3]`.
//!
//! ```no_run
//! use simdformer::checkpoint::{Checkpoint, TensorId};
//!
//! let checkpoint = Checkpoint::open("opus-mt-fr-en")?;
//! let embedding = checkpoint.tensor(TensorId::SourceEmbedding)?;
//! let mut block = vec![0.0; 64 * embedding.row_len()];
//! embedding.rows(0..64)?.read_into(&mut block)?;
//! # Ok::<(), simdformer::checkpoint::CheckpointError>(())
//! ```

mod directory;
mod error;
mod file;
mod names;
#[cfg(feature = "train")]
pub(crate) mod raw_tensor;
mod safetensors_file;
mod shards;
mod tensor;
mod tensor_ref;
mod unsupported_formats;

use core::fmt;
use std::borrow::Cow;
use std::collections::{BTreeMap, HashSet};
use std::path::Path;

use crate::config::{Config, ConfigError, TiedWeights};
use crate::network::visitor::{Tensor, each_tensor};
pub use crate::network::{Attention, FeedForward, LayerPart, ParamKind, Projection, TensorId};
use crate::object::object;
use crate::sanitize::sanitized;
use directory::{only_foreign, open_weights};
pub use error::CheckpointError;
use file::{Source, read_json};
use names::Location;
use safetensors_file::Entry;
use shards::Tensors;
use tensor::Accept;
pub use tensor::{Dtype, TensorView};
pub use tensor_ref::TensorRef;
pub use unsupported_formats::UnsupportedFormat;

/// Largest `config.json` and `generation_config.json` that is read: that of a classifier of twenty thousand labels.
pub(crate) const MAX_CONFIG: u64 = 2 << 20;

/// Largest `modules.json` that is read; a real one has a hundredth of it.
const MAX_MODULES: u64 = 1 << 16;

/// An opened checkpoint: its configuration and where its tensors are.
///
/// Shapes and types of all tensors that the configuration needs have been checked. Their numbers have not been read, but
/// for embedding matrices that are there more than once: those are compared, to see whether they are tied. Files stay
/// open. It borrows for `'c` what it was made from, and nothing if that was files.
pub struct Checkpoint<'c> {
    config: Config,
    /// What the configuration says is tied, before the tensors were seen: under which names to look.
    claimed: TiedWeights,
    sources: Vec<Source<'c>>,
    tensors: Tensors,
}

impl Checkpoint<'static> {
    /// Opens a directory as `save_pretrained` writes it, or one of sentence-transformers whose `modules.json` says in which
    /// folder such a one is: `config.json`, optionally `generation_config.json`, and
    /// `model.safetensors`, or shards with `model.safetensors.index.json`, or the only other `*.safetensors` that is
    /// there; [`Checkpoint::files`] says which.
    ///
    /// # Errors
    /// The directory is not [there](CheckpointError::DirectoryMissing) or [not
    /// one](CheckpointError::NotADirectory); a file is [missing](CheckpointError::FileMissing), [not a
    /// file](CheckpointError::NotAFile), [unreadable](CheckpointError::Unreadable), not
    /// [text](CheckpointError::NotUtf8) or far [too large](CheckpointError::JsonTooLarge); the
    /// [configuration](CheckpointError::Config) or the index of shards ([`Index`](CheckpointError::Index),
    /// [`ShardOutsideDirectory`](CheckpointError::ShardOutsideDirectory),
    /// [`ShardsMissing`](CheckpointError::ShardsMissing), [`PlacedTwice`](CheckpointError::PlacedTwice),
    /// [`ShardLacksTensor`](CheckpointError::ShardLacksTensor)) is wrong; the weights are [those of another
    /// program](CheckpointError::ForeignWeights), [a variant](CheckpointError::OnlyVariant), shards [without their
    /// index](CheckpointError::ShardsWithoutIndex) or [several](CheckpointError::SeveralWeights); or any error of
    /// [`Checkpoint::from_bytes`].
    ///
    /// ```
    /// use simdformer::checkpoint::{Checkpoint, TensorId};
    /// # if !std::path::Path::new("models/fr-en").exists() { return Ok(()) } // not in the published package
    ///
    /// let checkpoint = Checkpoint::open("models/fr-en")?;
    /// assert_eq!(checkpoint.tensor(TensorId::SourceEmbedding)?.row_len(), checkpoint.config().d_model);
    /// assert!(checkpoint.unused().is_empty());
    /// # Ok::<(), simdformer::checkpoint::CheckpointError>(())
    /// ```
    pub fn open(directory: impl AsRef<Path>) -> Result<Self, CheckpointError> {
        let directory = directory.as_ref();
        let path = || directory.display().to_string();
        if !directory.exists() {
            return Err(CheckpointError::DirectoryMissing { path: path() });
        }
        if !directory.is_dir() {
            let name = directory.file_name().map(|name| name.to_string_lossy().into_owned());
            if let Some((_, found)) = UnsupportedFormat::among(name.as_slice()) {
                return Err(CheckpointError::ForeignWeights {
                    file: path(),
                    found,
                    says: String::new(),
                });
            }
            return Err(CheckpointError::NotADirectory { path: path() });
        }
        let inside = transformer_folder(directory)?;
        let directory = inside.as_deref().unwrap_or(directory);
        let in_file = |file: &Path, error| CheckpointError::Config {
            file: file.display().to_string(),
            error,
        };
        let adapter = directory.join("adapter_config.json");
        if adapter.exists() {
            let (file, found) = (adapter.display().to_string(), UnsupportedFormat::Adapter);
            return Err(CheckpointError::ForeignWeights { file, found, says: String::new() });
        }
        let file = directory.join("config.json");
        let Some(text) = read_json(&file, MAX_CONFIG)? else {
            only_foreign(directory)?;
            let hint = "a checkpoint directory has its architecture there";
            return Err(CheckpointError::FileMissing { file: file.display().to_string(), hint });
        };
        let mut config = match Config::from_hugging_face(&text) {
            Ok(config) => config,
            Err(error) => {
                // Converters write files of this name too, without a type.
                if error == (ConfigError::MissingKey { key: "model_type" }) {
                    only_foreign(directory)?;
                }
                return Err(in_file(&file, error));
            }
        };
        let file = directory.join("generation_config.json");
        if let Some(text) = read_json(&file, MAX_CONFIG)? {
            config.set_generation_config(&text).map_err(|error| in_file(&file, error))?;
        }
        let (sources, tensors) = open_weights(directory)?;
        Self::checked(config, sources, tensors)
    }
}

impl<'c> Checkpoint<'c> {
    /// A checkpoint from the bytes of one safetensors file: owned, borrowed, or embedded in the program.
    ///
    /// # Errors
    /// `config` is [not valid](CheckpointError::Config); the bytes are not a safetensors file
    /// ([`TooShort`](CheckpointError::TooShort), [`HeaderTooLarge`](CheckpointError::HeaderTooLarge),
    /// [`HeaderTruncated`](CheckpointError::HeaderTruncated), [`HeaderNotUtf8`](CheckpointError::HeaderNotUtf8),
    /// [`Header`](CheckpointError::Header)) or one that contradicts itself
    /// ([`DuplicateTensor`](CheckpointError::DuplicateTensor), [`OffsetsReversed`](CheckpointError::OffsetsReversed),
    /// [`BeyondEnd`](CheckpointError::BeyondEnd), [`ShapeOverflow`](CheckpointError::ShapeOverflow),
    /// [`SizeMismatch`](CheckpointError::SizeMismatch), [`Overlap`](CheckpointError::Overlap),
    /// [`Gap`](CheckpointError::Gap)); a tensor is [missing](CheckpointError::MissingTensor), of [another
    /// shape](CheckpointError::WrongShape) or [type](CheckpointError::WrongDtype) than the configuration needs; there is
    /// a [layer too many](CheckpointError::ExtraLayer).
    ///
    /// ```
    /// use simdformer::Model;
    /// use simdformer::checkpoint::Checkpoint;
    /// use simdformer::config::Config;
    /// use simdformer::kernels::Isa;
    /// # if !std::path::Path::new("models/fr-en").exists() { return Ok(()) } // not in the published package
    /// // A program that carries its model writes `include_bytes!` and `include_str!` here.
    /// let config = std::fs::read_to_string("models/fr-en/config.json")?;
    /// let weights = std::fs::read("models/fr-en/model.safetensors")?;
    ///
    /// let config = Config::from_hugging_face(&config)?;
    /// let checkpoint = Checkpoint::from_bytes(config, &weights)?;
    /// let model = Model::load(&checkpoint, Isa::best())?;
    /// drop(weights); // the model has packed what it needs
    /// assert_eq!(model.config().d_model, 128);
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    pub fn from_bytes(
        config: Config,
        bytes: impl Into<Cow<'c, [u8]>>,
    ) -> Result<Self, CheckpointError> {
        let source = Source::memory(bytes.into());
        let config = validated(config)?;
        let entries = safetensors_file::read_header(&source)?;
        let tensors = entries.into_iter().map(|entry| (entry.name.clone(), (0, entry))).collect();
        Self::checked(config, vec![source], tensors)
    }

    /// A checkpoint of tensors that the caller holds, under the names of [`TensorId::names`]. They are borrowed, and read a
    /// few rows at a time when a model is loaded: no second copy of them appears, and the model keeps none.
    ///
    /// For each role, `find` is asked for the names that `config` allows until one is there; `None` is a tensor that is
    /// not. It is also asked for one layer more than the configuration has, so that a model cut short is noticed. What
    /// else the caller holds stays unknown.
    ///
    /// # Errors
    /// `config` is [not valid](CheckpointError::Config); a tensor is [missing](CheckpointError::MissingTensor), has
    /// [another shape](CheckpointError::WrongShape) than the configuration says or [other
    /// bytes](CheckpointError::SizeMismatch) than its shape and type need, or a shape that
    /// [overflows](CheckpointError::ShapeOverflow); there is a [layer too many](CheckpointError::ExtraLayer).
    ///
    /// From the `safetensors` crate, over any memory map:
    ///
    /// ```
    /// use safetensors::SafeTensors;
    /// use simdformer::Model;
    /// use simdformer::checkpoint::{Checkpoint, Dtype, TensorRef};
    /// use simdformer::config::Config;
    /// use simdformer::kernels::Isa;
    /// # if !std::path::Path::new("models/fr-en").exists() { return Ok(()) } // not in the published package
    ///
    /// let bytes = std::fs::read("models/fr-en/model.safetensors")?;
    /// let tensors = SafeTensors::deserialize(&bytes)?;
    /// let find = |name: &str| {
    ///     let tensor = tensors.tensor(name).ok()?;
    ///     let dtype = Dtype::from_name(&tensor.dtype().to_string())?;
    ///     Some(TensorRef { dtype, shape: tensor.shape().to_vec(), data: tensor.data() })
    /// };
    ///
    /// let config = Config::from_hugging_face(&std::fs::read_to_string("models/fr-en/config.json")?)?;
    /// let checkpoint = Checkpoint::from_tensors(config, &find)?;
    /// let model = Model::load(&checkpoint, Isa::best())?;
    /// # assert_eq!(model.config().d_model, 128);
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    pub fn from_tensors(
        config: Config,
        find: &dyn Fn(&str) -> Option<TensorRef<'c>>,
    ) -> Result<Self, CheckpointError> {
        let config = validated(config)?;
        let (mut sources, mut tensors) = (Vec::new(), Tensors::new());
        let mut take = |name: &str| -> Result<bool, CheckpointError> {
            if tensors.contains_key(name) {
                return Ok(true);
            }
            let Some(tensor) = find(name) else { return Ok(false) };
            let (source, entry) = tensor.checked(name)?;
            tensors.insert(name.to_owned(), (sources.len(), entry));
            sources.push(source);
            Ok(true)
        };
        let mut beyond = Vec::new();
        // Ends at the first tensor that is not there, however many layers a configuration claims; `checked` says which.
        let walked = each_tensor(&config, |Tensor { role, .. }| {
            if let TensorId::Layer(side, layer, part) = role
                && config.stack(side).is_some_and(|stack| layer + 1 == stack.layers)
            {
                beyond.extend(TensorId::Layer(side, layer + 1, part).names(&config));
            }
            for name in role.names(&config) {
                if take(&name).map_err(Some)? {
                    return Ok(());
                }
            }
            if role.may_be_absent() { Ok(()) } else { Err(None) }
        });
        if let Err(Some(error)) = walked {
            return Err(error);
        }
        for name in beyond {
            take(&name)?;
        }
        Self::checked(config, sources, tensors)
    }

    fn checked(
        config: Config,
        sources: Vec<Source<'c>>,
        tensors: Tensors,
    ) -> Result<Self, CheckpointError> {
        let claimed = config.ties;
        let mut checkpoint = Self { config, claimed, sources, tensors };
        for name in checkpoint.tensors.keys() {
            let Some((side, layer)) = names::layer_of(name) else { continue };
            // Of a model that only encodes the decoder may be there, and is left alone.
            let Some(stack) = checkpoint.config.stack(side) else { continue };
            if layer >= stack.layers {
                let (layers, tensor) = (stack.layers, sanitized(name, 400));
                return Err(CheckpointError::ExtraLayer { side, layers, tensor });
            }
        }
        // Ends at the first tensor that is not there, however many layers a file claims.
        each_tensor(&checkpoint.config, |Tensor { role, .. }| {
            let found = checkpoint.optional(role)?;
            if found.is_none() && !role.may_be_absent() {
                return Err(checkpoint.missing(role));
            }
            Ok(())
        })?;
        let decodes = checkpoint.config.decoder.is_some();
        checkpoint.config.ties = TiedWeights {
            source_target: decodes
                && checkpoint.config.stem.is_none()
                && checkpoint.same(TensorId::SourceEmbedding, TensorId::TargetEmbedding)?,
            target_output: decodes
                && checkpoint.same(TensorId::TargetEmbedding, TensorId::Output)?,
        };
        Ok(checkpoint)
    }

    /// The architecture. Its [`TiedWeights`] are what the tensors show: matrices are tied if they are one tensor, or two that
    /// hold the same numbers.
    pub fn config(&self) -> &Config {
        &self.config
    }

    /// The tensor of a role, or the rows of one, in the shape of [`TensorId::shape`]. Reading it accepts finite numbers only;
    /// in an output bias also minus infinity, which bans a token.
    ///
    /// # Errors
    /// [`NoSuchRole`](CheckpointError::NoSuchRole), and [`MissingTensor`](CheckpointError::MissingTensor) for
    /// [`TensorId::OutputBias`], the one tensor that may be absent. All others were there in the right shape and type when
    /// the checkpoint was opened.
    pub fn tensor(&self, role: TensorId) -> Result<TensorView<'_>, CheckpointError> {
        self.optional(role)?.ok_or_else(|| self.missing(role))
    }

    fn locate(&self, role: TensorId) -> Vec<Location> {
        names::locate(self.config.family, self.claimed, role)
    }

    fn missing(&self, role: TensorId) -> CheckpointError {
        let tried: Vec<String> = self.locate(role).into_iter().map(|at| at.name).collect();
        let names = self.tensors.keys().map(String::as_str);
        let nearest = tried.first().map(|wanted| names::nearest(wanted, names));
        let untied = match role {
            TensorId::SourceEmbedding => !self.claimed.source_target,
            TensorId::TargetEmbedding => !self.claimed.source_target && !self.claimed.target_output,
            TensorId::Output => !self.claimed.target_output,
            _ => false,
        };
        CheckpointError::MissingTensor { role, tried, untied, nearest: nearest.unwrap_or_default() }
    }

    /// As [`Checkpoint::tensor`], `None` if no tensor has any of the names of this role: that is only so for
    /// [`TensorId::OutputBias`].
    ///
    /// # Errors
    /// [`NoSuchRole`](CheckpointError::NoSuchRole): a model of this configuration has no such part.
    pub fn optional(&self, role: TensorId) -> Result<Option<TensorView<'_>>, CheckpointError> {
        let Some(shape) = role.shape(&self.config) else {
            return Err(CheckpointError::NoSuchRole { role });
        };
        let locations = self.locate(role);
        let Some(location) = locations.iter().find(|at| self.tensors.contains_key(&at.name)) else {
            return Ok(None);
        };
        let mut view = self.named(&location.name)?;
        let expected = location.stored_shape(shape.clone());
        let flat = role == TensorId::OutputBias && view.shape == [1, expected[0]];
        if view.shape != expected && !flat {
            let (tensor, found) = (location.name.clone(), view.shape);
            return Err(CheckpointError::WrongShape { tensor, expected, found });
        }
        view.shape = expected;
        view.accept =
            if role == TensorId::OutputBias { Accept::MinusInfinity } else { Accept::Finite };
        view.rows(location.rows(shape[0])).map(Some)
    }

    /// A tensor by its name in the file, whole and as it is stored; reading it accepts any value.
    ///
    /// # Errors
    /// There is [no such tensor](CheckpointError::NoSuchTensor), or it is not of [floats](CheckpointError::WrongDtype).
    pub fn named(&self, name: &str) -> Result<TensorView<'_>, CheckpointError> {
        let Some((name, (source, entry))) = self.tensors.get_key_value(name) else {
            let nearest = names::nearest(name, self.tensors.keys().map(String::as_str));
            return Err(CheckpointError::NoSuchTensor { tensor: name.to_owned(), nearest });
        };
        let Some(dtype) = Dtype::from_stored(&entry.dtype) else {
            let found = entry.dtype.to_string();
            return Err(CheckpointError::WrongDtype { tensor: name.clone(), found });
        };
        Ok(TensorView {
            source: &self.sources[*source],
            name,
            dtype,
            shape: entry.shape.clone(),
            offset: entry.offset,
            skipped: 0,
            accept: Accept::Anything,
        })
    }

    /// The names of all tensors, sorted; of a checkpoint from [tensors that somebody holds](Self::from_tensors), of those
    /// that were asked for and there.
    pub fn names(&self) -> impl Iterator<Item = &str> {
        self.tensors.keys().map(String::as_str)
    }

    /// The names of tensors that no role uses, sorted; those that the family is known to write in vain are left out.
    pub fn unused(&self) -> Vec<&str> {
        let family = self.config.family;
        let used: HashSet<String> = TensorId::all(&self.config)
            .flat_map(|role| self.locate(role))
            .map(|location| location.name)
            .collect();
        self.names()
            .filter(|&name| !used.contains(name) && !names::ignorable(family, name))
            .collect()
    }

    /// The files that the weights are in, as they were opened, or `"memory"`.
    pub fn files(&self) -> impl Iterator<Item = &str> {
        self.sources.iter().map(Source::name)
    }

    /// Bytes of the files, or of the memory, that the weights are in.
    pub fn bytes(&self) -> u64 {
        self.sources.iter().map(Source::len).sum()
    }

    /// The types of all tensors as safetensors spells them, and how many tensors have each; sorted by name.
    pub fn dtypes(&self) -> Vec<(String, usize)> {
        let mut counts = BTreeMap::new();
        for (_, entry) in self.tensors.values() {
            *counts.entry(entry.dtype.to_string()).or_default() += 1;
        }
        counts.into_iter().collect()
    }

    fn same(&self, a: TensorId, b: TensorId) -> Result<bool, CheckpointError> {
        let (a, b) = (self.tensor(a)?, self.tensor(b)?);
        if a.name == b.name { Ok(a.shape == b.shape) } else { a.same_content(&b) }
    }
}

impl fmt::Debug for Checkpoint<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Checkpoint")
            .field("family", &self.config.family)
            .field("tensors", &self.tensors.len())
            .finish_non_exhaustive()
    }
}

object! {
    /// A line of the `modules.json` of a sentence-transformers directory.
    struct Module {
        path: String = "path",
        kind: String = "type",
    }
}

/// The folder in which a sentence-transformers directory keeps its transformer, where that is not the directory.
fn transformer_folder(directory: &Path) -> Result<Option<std::path::PathBuf>, CheckpointError> {
    if directory.join("config.json").exists() {
        return Ok(None);
    }
    let Some(text) = read_json(&directory.join("modules.json"), MAX_MODULES)? else {
        return Ok(None);
    };
    // What is wrong with it is for whoever wants its modules; here there is no config.json.
    let modules: Vec<Module> = serde_json::from_str(&text).unwrap_or_default();
    let found = modules.into_iter().find(|module| module.kind.ends_with(".Transformer"));
    let path = found.map(|module| module.path).filter(|path| shards::is_plain(path));
    Ok(path.map(|path| directory.join(path)))
}

/// The text of a file of JSON of at most `limit` bytes; `None` if there is no such file.
pub(crate) fn read_text(file: &Path, limit: u64) -> Result<Option<String>, CheckpointError> {
    read_json(file, limit)
}

/// Tensors in memory by name: shape and numbers.
pub(crate) type Numbers = BTreeMap<String, (Vec<usize>, Vec<f32>)>;

/// All tensors of a small safetensors file; their numbers are finite.
pub(crate) fn read_tensors(file: &Path) -> Result<Numbers, CheckpointError> {
    let source = Source::open(file)?;
    let mut tensors = BTreeMap::new();
    for entry in safetensors_file::read_header(&source)? {
        let Entry { name, dtype, shape, offset, .. } = entry;
        let Some(dtype) = Dtype::from_stored(&dtype) else {
            let (tensor, found) = (sanitized(&name, 400), dtype.to_string());
            return Err(CheckpointError::WrongDtype { tensor, found });
        };
        let view = TensorView {
            source: &source,
            name: &name,
            dtype,
            shape: shape.clone(),
            offset,
            skipped: 0,
            accept: Accept::Finite,
        };
        let numbers = view.to_vec()?;
        tensors.insert(name, (shape, numbers));
    }
    Ok(tensors)
}

fn validated(config: Config) -> Result<Config, CheckpointError> {
    match config.validate() {
        Ok(()) => Ok(config),
        Err(error) => Err(CheckpointError::Config { file: "memory".to_owned(), error }),
    }
}
