//! From files to named tensors: safetensors, files of `torch.save` or directories of CTranslate2, or tensors in the caller's
//! memory.
//!
//! A checkpoint is untrusted input: every length, offset, shape and name is checked when it is opened.
//! [`Checkpoint::open`] succeeds only if each tensor that the configuration needs exists with the right shape.
//! The weights are not read until [`TensorView::read_into`] reads them, a few rows at a time. A model can
//! therefore pack them without holding the whole checkpoint in memory.
//!
//! | source of the weights | function |
//! |---|---|
//! | a directory from `save_pretrained` | [`Checkpoint::open`] |
//! | one safetensors file in memory: embedded, decrypted, received | [`Checkpoint::from_bytes`] |
//! | a directory of CTranslate2 in an archive | [`Checkpoint::from_ctranslate2`] |
//! | named tensors of other code: `safetensors`, a memory map, another engine | [`Checkpoint::from_tensors`] |
//! | numbers without a name or a file | [`Model::from_fn`](crate::Model::from_fn) |
//!
//! The rest of the crate addresses tensors by [`TensorId`], whose page has the names of each tensor in the families.
//! [`TensorId::all`] and [`TensorId::names`] list them for a configuration.
//!
//! ```no_run
//! use simdformer::checkpoint::{Checkpoint, TensorId};
//!
//! let checkpoint = Checkpoint::open("opus-mt-fr-en")?;
//! let embedding = checkpoint.tensor(TensorId::SourceEmbedding)?;
//! let mut block = vec![0.0; 64 * embedding.row_len()];
//! embedding.rows(0..64)?.read_into(&mut block)?;
//! # Ok::<(), simdformer::Error>(())
//! ```

mod byte_source;
mod ctranslate2;
mod directory;
mod faults;
mod inventory;
mod lazy_tensor;
mod names;
mod safetensors_file;
pub(crate) mod save;
#[cfg(feature = "train")]
pub(crate) mod stored_tensor;
#[cfg(feature = "torch")]
mod torch_file;
mod unsupported_formats;
mod wrapped_names;

use core::fmt;
use std::borrow::Cow;
use std::collections::HashMap;
use std::path::Path;

use crate::config::{Config, MODEL_TYPE, TiedWeights};
use crate::error::Error;
use crate::network::visitor::{Tensor, each_tensor};
pub use crate::network::{Attention, FeedForward, LayerPart, ParamKind, Projection, TensorId};
use crate::printable_text::sanitized;
pub use byte_source::ReadAt;
use byte_source::Source;
pub(crate) use byte_source::read_json;
pub(crate) use directory::{HEADS, PackedFile, packed_name, read_layer, read_modules};
use directory::{
    MAX_CONFIG, Opened, Tensors, has_tensors, open_weights, reject_other_formats,
    set_generation_config, transformer_folder,
};
use faults::{nearest_names, no_such_tensor};
use lazy_tensor::Accept;
pub use lazy_tensor::TensorView;
pub(crate) use names::Location;
use safetensors_file::{Entry, Stored};
pub use save::safetensors_header;
pub use simdformer_kernels::Dtype;
use unsupported_formats::UnsupportedFormat;

/// What [`Checkpoint::open`] opens.
const DIRECTORY: &str = "a checkpoint directory";

/// Reads an architecture without weights: a `config.json`, and the `generation_config.json` beside it if there is one.
///
/// # Errors
/// [`NotFound`](Error::NotFound): there is no such file. [`Io`](Error::Io): it cannot be read. [`Corrupt`](Error::Corrupt) and
/// [`Unsupported`](Error::Unsupported), as of [`Checkpoint::open`].
///
/// ```
/// use simdformer::checkpoint::read_config;
/// # if !std::path::Path::new("models/fr-en").exists() { return Ok(()) } // not in the published package
///
/// assert_eq!(read_config("models/fr-en/config.json")?.d_model, 128);
/// # Ok::<(), simdformer::Error>(())
/// ```
pub fn read_config(file: impl AsRef<Path>) -> Result<Config, Error> {
    let file = file.as_ref();
    let Some(text) = read_json(file, MAX_CONFIG)? else {
        return Err(Error::not_found(
            file.display().to_string(),
            "a configuration",
            "no such file",
        ));
    };
    let mut config = Config::from_hugging_face(&text)
        .map_err(|error| error.in_file(&file.display().to_string()))?;
    set_generation_config(&mut config, &file.with_file_name("generation_config.json"))?;
    Ok(config)
}

/// An opened checkpoint: its configuration and the locations of its tensors.
///
/// Shapes and dtypes of all tensors that the configuration needs are checked when it is opened. Their numbers
/// are not read, except those of duplicate embedding matrices, which are compared to detect ties. Files stay
/// open. The lifetime `'c` is that of the caller's memory, `'static` for files.
pub struct Checkpoint<'c> {
    config: Config,
    /// The ties in the configuration, before the tensors were examined. They determine the tensor names to search.
    claimed: TiedWeights,
    sources: Vec<Source<'c>>,
    tensors: Tensors,
    /// Where each tensor of the network is; an absent bias has no entry.
    locations: HashMap<TensorId, Location>,
    /// The files of packed weights. If there are any, no tensor of the network has a location.
    packed: Vec<PackedFile>,
    /// Tensors of shards that their index does not list.
    unlisted: Vec<String>,
    /// A tensor that is used, and one with another name of the same matrix and other numbers.
    copies: Vec<[String; 2]>,
}

impl Checkpoint<'static> {
    /// Opens a directory from `save_pretrained`, or a directory from sentence-transformers whose `modules.json`
    /// names a folder of this kind. It contains `config.json`, optionally `generation_config.json`, and the
    /// weights: `model.safetensors`, or shards with `model.safetensors.index.json`, or exactly one other
    /// `*.safetensors`. If there is none of these, the cargo feature `torch` reads `pytorch_model.bin`, or shards with
    /// `pytorch_model.bin.index.json`, without executing anything. [`Checkpoint::files`] returns the files used.
    ///
    /// A directory without these whose `model.bin` is one of CTranslate2 has the tensors of
    /// [`Family::Plain`](crate::config::Family::Plain), with the architecture that this file states.
    ///
    /// A directory without these that has files of packed weights with the names of
    /// [`Model::packed_name`](crate::Model::packed_name), as
    /// `simdformer pack` writes it, is a checkpoint whose tensors cannot be read. [`Model::load`](crate::Model::load) reads it.
    ///
    /// # Errors
    /// [`NotFound`](Error::NotFound): the directory, a file, a shard or the index of shards does not exist, or is not a
    /// directory or a regular file. [`Io`](Error::Io): a file cannot be read. [`Unsupported`](Error::Unsupported): the
    /// architecture, or weights in another format, only as a variant, or in several files.
    /// [`Corrupt`](Error::Corrupt): the configuration or the index of shards is not UTF-8, too large or invalid. All
    /// errors of [`Checkpoint::from_bytes`].
    ///
    /// ```
    /// use simdformer::checkpoint::{Checkpoint, TensorId};
    /// # if !std::path::Path::new("models/fr-en").exists() { return Ok(()) } // not in the published package
    ///
    /// let checkpoint = Checkpoint::open("models/fr-en")?;
    /// assert_eq!(checkpoint.tensor(TensorId::SourceEmbedding)?.row_len(), checkpoint.config().d_model);
    /// assert!(checkpoint.unused().is_empty());
    /// # Ok::<(), simdformer::Error>(())
    /// ```
    pub fn open(directory: impl AsRef<Path>) -> Result<Self, Error> {
        let directory = directory.as_ref();
        let path = || directory.display().to_string();
        if !directory.exists() {
            return Err(Error::not_found(path(), DIRECTORY, "no such directory"));
        }
        if !directory.is_dir() {
            let name = directory.file_name().map(|name| name.to_string_lossy().into_owned());
            if let Some((_, found)) = UnsupportedFormat::among(name.as_slice()) {
                return Err(found.error(&path(), ""));
            }
            return Err(Error::not_found(path(), DIRECTORY, "something else"));
        }
        let inside = transformer_folder(directory)?;
        let directory = inside.as_deref().unwrap_or(directory);
        let in_file = |file: &Path, error: Error| error.in_file(&file.display().to_string());
        let adapter = directory.join("adapter_config.json");
        if adapter.exists() {
            return Err(UnsupportedFormat::Adapter.error(&adapter.display().to_string(), ""));
        }
        let file = directory.join("config.json");
        let text = read_json(&file, MAX_CONFIG)?;
        if ctranslate2::is_directory(directory, text.as_deref())? {
            let ctranslate2::Opened { config, source, tensors } =
                ctranslate2::open(directory, text.as_deref())?;
            return Self::checked(config, vec![source], tensors);
        }
        let Some(text) = text else {
            reject_other_formats(directory)?;
            let expected = "the architecture, which a checkpoint directory has there";
            return Err(Error::not_found(file.display().to_string(), expected, "no such file"));
        };
        let mut config = match Config::from_hugging_face(&text) {
            Ok(config) => config,
            Err(error) => {
                // Converters to other formats also write files of this name, without a `model_type`.
                if matches!(&error, Error::Corrupt { operand, .. } if **operand == *MODEL_TYPE) {
                    reject_other_formats(directory)?;
                }
                return Err(in_file(&file, error));
            }
        };
        set_generation_config(&mut config, &directory.join("generation_config.json"))?;
        if !has_tensors(directory) {
            let packed = directory::packed_files(directory);
            if !packed.is_empty() {
                let (sources, tensors) = directory::heads(directory)?;
                return Ok(Self { packed, ..Self::unchecked(config, sources, tensors) });
            }
        }
        let Opened { sources, tensors, unlisted } = open_weights(directory)?;
        Ok(Self { unlisted, ..Self::checked(config, sources, tensors)? })
    }
}

impl Checkpoint<'static> {
    /// Opens a directory of CTranslate2 whose files are not in a folder, but for example in an archive. `model` are the bytes
    /// of its `model.bin`. `read` reads another file whole by its name, `None` if there is no such file; it is asked for
    /// `config.json`, vocabularies and `generation_config.json`, which are read as [`open`](Checkpoint::open) does it.
    /// Errors name the files `place/NAME`.
    ///
    /// # Errors
    /// As [`open`](Checkpoint::open); what `model` and `read` return is [`Io`](Error::Io).
    ///
    /// ```no_run
    /// use simdformer::checkpoint::{Checkpoint, ReadAt};
    /// use std::io;
    ///
    /// struct Memory(Vec<u8>);
    ///
    /// impl ReadAt for Memory {
    ///     fn length(&self) -> u64 {
    ///         self.0.len() as u64
    ///     }
    ///
    ///     fn read_exact_at(&self, out: &mut [u8], offset: u64) -> io::Result<()> {
    ///         let begin = offset as usize;
    ///         let bytes = self.0.get(begin..begin.saturating_add(out.len()));
    ///         out.copy_from_slice(bytes.ok_or(io::ErrorKind::UnexpectedEof)?);
    ///         Ok(())
    ///     }
    /// }
    ///
    /// let model = Memory(std::fs::read("directory/model.bin")?);
    /// let read = |name: &str| match name {
    ///     "shared_vocabulary.json" => std::fs::read("directory/shared_vocabulary.json").map(Some),
    ///     _ => Ok(None),
    /// };
    /// let checkpoint = Checkpoint::from_ctranslate2("directory", model, &read)?;
    /// println!("{}", checkpoint.config().d_model);
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    pub fn from_ctranslate2(
        place: &str,
        model: impl ReadAt + 'static,
        read: &dyn Fn(&str) -> std::io::Result<Option<Vec<u8>>>,
    ) -> Result<Self, Error> {
        let ctranslate2::Opened { config, source, tensors } =
            ctranslate2::open_elsewhere(place, Box::new(model), read)?;
        Self::checked(config, vec![source], tensors)
    }
}

impl<'c> Checkpoint<'c> {
    /// A checkpoint from the bytes of one safetensors file (with the cargo feature `torch`, also of one file of
    /// `torch.save`): owned, borrowed, or embedded in the program.
    ///
    /// # Errors
    /// [`Corrupt`](Error::Corrupt): `config` is not valid; the bytes are not a safetensors file, or its header is
    /// inconsistent; a tensor is missing or has another shape than the configuration needs; there is an extra layer.
    /// [`Unsupported`](Error::Unsupported): a tensor has a dtype that is not read, or the bytes are in another format.
    ///
    /// ```
    /// use simdformer::Model;
    /// use simdformer::checkpoint::Checkpoint;
    /// use simdformer::config::Config;
    /// use simdformer::kernels::Isa;
    /// # if !std::path::Path::new("models/fr-en").exists() { return Ok(()) } // not in the published package
    /// // A program with an embedded model uses `include_bytes!` and `include_str!` here.
    /// let config = std::fs::read_to_string("models/fr-en/config.json")?;
    /// let weights = std::fs::read("models/fr-en/model.safetensors")?;
    ///
    /// let config = Config::from_hugging_face(&config)?;
    /// let checkpoint = Checkpoint::from_bytes(config, &weights)?;
    /// let model = Model::load(&checkpoint, Isa::best())?;
    /// drop(weights); // the model has packed its own copy
    /// assert_eq!(model.config().d_model, 128);
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    pub fn from_bytes(config: Config, bytes: impl Into<Cow<'c, [u8]>>) -> Result<Self, Error> {
        let source = Source::memory(bytes.into());
        let config = validated(config)?;
        let entries = read_header(&source)?;
        let tensors = entries.into_iter().map(|entry| (entry.name.clone(), (0, entry))).collect();
        Self::checked(config, vec![source], tensors)
    }

    /// A checkpoint from tensors in the caller's memory, under the names of [`TensorId::names`]. They are borrowed,
    /// and read a few rows at a time when a model is loaded: no second unpacked copy exists, and the model does not
    /// keep a reference to them.
    ///
    /// For each role, `find` is called with the names that `config` allows until it returns a tensor; `None` means
    /// that there is no tensor of this name. A tensor is its dtype, its dimensions, rows first, and its numbers in row-major
    /// order, little-endian as in a safetensors file, with any alignment. `find` is also called for one layer more than the configuration has,
    /// to detect a configuration with too few layers. Other tensors of the caller are not examined.
    ///
    /// # Errors
    /// [`Corrupt`](Error::Corrupt): `config` is not valid; a tensor is missing, has another shape than the configuration
    /// needs, another number of bytes than its shape and dtype need, or a shape that overflows; there is an extra layer;
    /// matrices that the configuration ties differ.
    ///
    /// With the `safetensors` crate, over any memory map:
    ///
    /// ```
    /// use safetensors::SafeTensors;
    /// use simdformer::Model;
    /// use simdformer::checkpoint::{Checkpoint, Dtype};
    /// use simdformer::config::Config;
    /// use simdformer::kernels::Isa;
    /// # if !std::path::Path::new("models/fr-en").exists() { return Ok(()) } // not in the published package
    ///
    /// let bytes = std::fs::read("models/fr-en/model.safetensors")?;
    /// let tensors = SafeTensors::deserialize(&bytes)?;
    /// let find = |name: &str| {
    ///     let tensor = tensors.tensor(name).ok()?;
    ///     let dtype = Dtype::from_name(&tensor.dtype().to_string())?;
    ///     Some((dtype, tensor.shape().to_vec(), tensor.data()))
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
        find: impl Fn(&str) -> Option<(Dtype, Vec<usize>, &'c [u8])>,
    ) -> Result<Self, Error> {
        let config = validated(config)?;
        let (mut sources, mut tensors) = (Vec::new(), Tensors::new());
        let mut take = |name: &str| -> Result<bool, Error> {
            if tensors.contains_key(name) {
                return Ok(true);
            }
            let Some((dtype, shape, data)) = find(name) else { return Ok(false) };
            let source = Source::memory(Cow::Borrowed(data));
            let dtype = Stored::from_name(&dtype.name().to_uppercase());
            let entry = safetensors_file::whole(&source, name, dtype, shape)?;
            tensors.insert(name.to_owned(), (sources.len(), entry));
            sources.push(source);
            Ok(true)
        };
        let mut beyond = Vec::new();
        // Stops at the first missing tensor, so a huge number of layers costs no time; `checked` reports it.
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
        Self::checked(config, sources, tensors)?.with_claimed_ties()
    }

    /// Checks that matrices which the configuration ties have the same numbers if both are there. In a file the numbers
    /// decide, because published files state ties that their tensors do not have.
    fn with_claimed_ties(self) -> Result<Self, Error> {
        let decides = self.config.family.ties_follow_from_tensors();
        let untied = self.untied().next();
        match untied {
            Some([first, second]) if !decides => {
                let expected = "the same numbers, because the configuration ties them";
                Err(Error::corrupt(format!("{first} and {second}"), expected, "different ones"))
            }
            _ => Ok(self),
        }
    }

    fn unchecked(config: Config, sources: Vec<Source<'c>>, tensors: Tensors) -> Self {
        let (claimed, locations) = (config.ties, HashMap::new());
        let (packed, unlisted, copies) = (Vec::new(), Vec::new(), Vec::new());
        Self { config, claimed, sources, tensors, locations, packed, unlisted, copies }
    }

    fn checked(config: Config, sources: Vec<Source<'c>>, tensors: Tensors) -> Result<Self, Error> {
        let tensors = wrapped_names::unwrapped(tensors)?;
        let mut checkpoint = Self::unchecked(config, sources, tensors);
        for name in checkpoint.tensors.keys() {
            let Some((side, layer)) = names::layer_of(name) else { continue };
            // The checkpoint of an encoder-only model may contain a decoder, which is ignored.
            let Some(stack) = checkpoint.config.stack(side) else { continue };
            if layer >= stack.layers {
                let (layers, side) = (stack.layers, side.name());
                let s = if layers == 1 { "" } else { "s" };
                let expected =
                    format!("a tensor of the {layers} {side} layer{s} of the configuration");
                let found = "one of a further layer";
                return Err(Error::corrupt(sanitized(name, 400), expected, found));
            }
        }
        // Stops at the first missing tensor, so a huge number of layers costs no time.
        let mut locations = HashMap::new();
        each_tensor(&checkpoint.config, |Tensor { role, shape }| {
            match checkpoint.find(role, shape)? {
                Some(location) => drop(locations.insert(role, location)),
                None if role.may_be_absent() => {}
                None => return Err(checkpoint.missing(role)),
            }
            Ok(())
        })?;
        checkpoint.locations = locations;
        let decodes = checkpoint.config.decoder.is_some();
        checkpoint.config.ties = TiedWeights {
            source_target: decodes
                && checkpoint.config.bins.is_none()
                && checkpoint.same(TensorId::SourceEmbedding, TensorId::TargetEmbedding)?,
            target_output: decodes
                && checkpoint.same(TensorId::TargetEmbedding, TensorId::Output)?,
        };
        checkpoint.copies = checkpoint.different_copies()?;
        Ok(checkpoint)
    }

    /// The architecture. Its [`TiedWeights`] follow from the tensors: matrices are tied if they are one tensor, or
    /// two tensors with the same numbers.
    pub fn config(&self) -> &Config {
        &self.config
    }

    /// The tensor of a role, in the shape of [`TensorId::shape`]; it may be a range of rows of a stored tensor.
    /// Reading it accepts only finite numbers; in an output bias also minus infinity, which bans a token.
    ///
    /// # Errors
    /// As [`Checkpoint::optional`], and [`Corrupt`](Error::Corrupt) for an absent [`TensorId::OutputBias`], the only
    /// tensor that may be absent. All others were checked when the checkpoint was opened.
    pub fn tensor(&self, role: TensorId) -> Result<TensorView<'_>, Error> {
        self.optional(role)?.ok_or_else(|| self.missing(role))
    }

    fn locate(&self, role: TensorId) -> Vec<Location> {
        names::locate(self.config.family, self.claimed, role)
    }

    fn missing(&self, role: TensorId) -> Error {
        let tried: Vec<String> = self.locate(role).into_iter().map(|at| at.name).collect();
        let names = self.tensors.keys().map(String::as_str);
        let nearest = tried.first().map(|wanted| names::nearest(wanted, names));
        let untied = match role {
            TensorId::SourceEmbedding => !self.claimed.source_target,
            TensorId::TargetEmbedding => !self.claimed.source_target && !self.claimed.target_output,
            TensorId::Output => !self.claimed.target_output,
            _ => false,
        };
        if tried.is_empty() {
            return Error::corrupt(
                format!("the tensor of {role}"),
                "a family whose checkpoints have one",
                "one whose checkpoints have none",
            );
        }
        let tied = if untied { ", which the configuration ties to no other matrix" } else { "" };
        let expected = format!("{}{tied}", tried.join(", "));
        let found = format!("none{}", nearest_names(&nearest.unwrap_or_default()));
        Error::corrupt(format!("the tensor of {role}"), expected, found)
    }

    /// As [`Checkpoint::tensor`], but `None` if there is no tensor for this role, which is only possible for
    /// [`TensorId::OutputBias`].
    ///
    /// # Errors
    /// [`InvalidInput`](Error::InvalidInput): a model of this configuration has no such part.
    /// [`Unsupported`](Error::Unsupported): the directory has packed weights, from which no tensor is read.
    pub fn optional(&self, role: TensorId) -> Result<Option<TensorView<'_>>, Error> {
        let Some(shape) = role.shape(&self.config) else {
            let expected = "a part of a model of this configuration";
            return Err(Error::invalid_input(
                role.to_string(),
                expected,
                "one that it does not have",
            ));
        };
        if let Some(PackedFile { name, .. }) = self.packed.first() {
            return Err(Error::unsupported(
                format!("{name}: {role}"),
                "a tensor",
                "weights packed for the products of a model, which cannot be read as a tensor; open the checkpoint \
                 that was packed",
            ));
        }
        let Some(location) = self.locations.get(&role) else { return Ok(None) };
        let mut view = self.named(&location.name)?;
        let rows = location.rows(shape[0]);
        let stored = location.stored_shape(shape);
        // A bias `[1, outputs]` is read as `[outputs]`.
        if view.shape != stored {
            view.stored_rows = stored[0];
        }
        view.shape = stored;
        view.strides = &view.strides[view.strides.len().saturating_sub(view.shape.len())..];
        view.accept =
            if role == TensorId::OutputBias { Accept::MinusInfinity } else { Accept::Finite };
        view.rows(rows).map(Some)
    }

    /// Finds the tensor of a role, which has `shape`, among the names of its family, and checks its dtype and its
    /// shape.
    fn find(&self, role: TensorId, shape: Vec<usize>) -> Result<Option<Location>, Error> {
        let mut locations = self.locate(role).into_iter();
        let Some(location) = locations.find(|at| self.tensors.contains_key(&at.name)) else {
            return Ok(None);
        };
        let found = self.named(&location.name)?.shape;
        let expected = location.stored_shape(shape);
        let flat = role == TensorId::OutputBias && found == [1, expected[0]];
        if found != expected && !flat {
            let expected = format!("shape {expected:?}");
            return Err(Error::corrupt(location.name, expected, format!("{found:?}")));
        }
        Ok(Some(location))
    }

    /// A tensor by its name in the file, whole and in its stored shape; reading it accepts any value.
    ///
    /// # Errors
    /// There is [no such tensor](Error::Corrupt), or its dtype is [not a float type](Error::Unsupported).
    pub fn named(&self, name: &str) -> Result<TensorView<'_>, Error> {
        let Some((name, (source, entry))) = self.tensors.get_key_value(name) else {
            let nearest = names::nearest(name, self.tensors.keys().map(String::as_str));
            return Err(no_such_tensor(name, &nearest));
        };
        entry.view(&self.sources[*source], name)
    }

    /// Whether the directory has packed weights instead of tensors. [`Checkpoint::tensor`] is then an error, and
    /// [`Model::load`](crate::Model::load) reads a file of packed weights.
    pub fn is_packed(&self) -> bool {
        !self.packed.is_empty()
    }

    /// The files of packed weights.
    pub(crate) fn packed(&self) -> &[PackedFile] {
        &self.packed
    }

    fn same(&self, a: TensorId, b: TensorId) -> Result<bool, Error> {
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

/// The tensors of a file in memory, whose format its first bytes tell.
fn read_header(source: &Source<'_>) -> Result<Vec<Entry>, Error> {
    #[cfg(feature = "torch")]
    if torch_file::is_torch_file(source)? {
        return torch_file::read_header(source);
    }
    safetensors_file::read_header(source)
}

fn validated(config: Config) -> Result<Config, Error> {
    match config.validate() {
        Ok(()) => Ok(config),
        Err(error) => Err(error.in_file("memory")),
    }
}
