//! Packed weights in a file. A model is packed once. It is read back at the speed of the disk, or mapped, so that all
//! processes of a machine share one copy.
//!
//! A file of format 5 contains:
//!
//! 1. a line of fixed length: the format number, the length of the header in bytes, and the checksum of the
//!    header;
//! 2. the header, lines of text: the checksum of the weights, their digest for the fingerprint, the instruction set and
//!    the dtypes for which they were packed, and the table of parameters. A file is accepted only if this crate
//!    computes the same table for the given configuration;
//! 3. from a multiple of 64 bytes on, the memory of the model, in little-endian words.
//!
//! A reader verifies the weights piece by piece while each piece is still in the cache after the copy by the
//! operating system. The verification takes less time than the copy.

use super::Model;
use super::load_options::{LoadOptions, Reason};
use super::map_file::map_file;
use super::packed_header::{Described, FileName, Header, damaged, open_file};
use super::weights::{FiniteCheck, NotFinite, Parameter, Weights};
use crate::checkpoint::packed_name;
use crate::config::Config;
use crate::error::Error;
use crate::memory::{SharedBytes, bytes, bytes_mut};
use simdformer_atomic_file as atomic_file;
use simdformer_kernels::Isa;
use std::io::{self, Read, Write};
use std::path::Path;
use xxhash_rust::xxh3::Xxh3;

/// Words that are read and verified at a time: 256 KiB, which stays in the cache of a core between the two.
const PIECE: usize = 1 << 16;

impl Model {
    /// Writes the packed weights to a file. A process that opens `path` at any time finds the old file or the
    /// complete new one: the weights are written to a temporary file in the same directory, flushed to the disk and
    /// renamed. Several processes may save to one path; the last one wins. A killed process leaves a file
    /// `.simdformer-*.part` there, which may be deleted.
    ///
    /// The file is for this instruction set and this version of the crate, and does not contain the [`Config`]. It
    /// replaces the weights of the checkpoint; `config.json` is still needed.
    ///
    /// # Errors
    /// The file cannot be [written](Error::Io); a weight is [not finite](Error::NotFinite), for example after training that diverged: [`Model::open_packed`] would reject such a file.
    pub fn save_packed(&self, path: impl AsRef<Path>) -> Result<(), Error> {
        let path = path.as_ref();
        let name = || path.display().to_string();
        let mut inspection =
            Inspection::for_weights(self.weights.parameters(), self.weights.bytes());
        // This closure never fails; `inspection` reports a bad number after the last piece.
        let _ = each_piece(self.weights.memory(), |piece, bytes| {
            inspection.piece(piece, bytes);
            Ok(())
        });
        let (checksum, not_finite) = inspection.finish();
        finite(not_finite, &self.weights, &name)?;
        let header = Header::bytes(&self.config, &self.weights, checksum, self.digest());
        atomic_file::replace(path, |file| {
            file.write_all(&header)?;
            let memory = self.weights.memory();
            if cfg!(target_endian = "big") {
                return each_piece(memory, |_, bytes| file.write_all(bytes));
            }
            // In one call: some systems then cache the file in huge pages, and a map has fewer address translations.
            file.write_all(bytes(memory))
        })
        .map_err(|error| Error::unwritable(name(), error))
    }

    /// The name of the file of packed weights for an instruction set in a directory with packed weights, for example
    /// `model.avx512.packed`. Such a directory has one file for each of several sets, and `config.json`.
    /// [`Checkpoint::open`](crate::checkpoint::Checkpoint::open) and [`Model::open`] take it like the directory of a checkpoint.
    pub fn packed_name(isa: Isa) -> String {
        packed_name(isa.name())
    }

    /// Reads a file of [`Model::save_packed`] for a model of `config`: that of
    /// [`Checkpoint::config`](crate::checkpoint::Checkpoint::config), or of
    /// [`Config::from_hugging_face`](crate::config::Config::from_hugging_face) if the checkpoint's weights are not
    /// available. The weights are copied to memory of the model and verified.
    ///
    /// Checksums detect files that were damaged or truncated by accident. They are no signature: a file from an
    /// untrusted writer can contain other weights, but none that [`Model::load`] would reject as not finite.
    ///
    /// # Errors
    /// [`Io`](Error::Io): the file cannot be read. [`Unsupported`](Error::Unsupported): it is not a packed file or of
    /// another format version, or the environment names an instruction set that is not available.
    /// [`Conflict`](Error::Conflict): it is for another instruction set or of another model. [`Corrupt`](Error::Corrupt):
    /// it is truncated or damaged. [`NotFinite`](Error::NotFinite): a weight is NaN or infinite.
    /// [`OutOfMemory`](Error::OutOfMemory): the memory cannot be allocated.
    ///
    /// ```
    /// use simdformer::{Model, Quantization, WeightDtypes};
    /// # if !std::path::Path::new("models/fr-en").exists() { return Ok(()) } // not in the published package
    ///
    /// let model = Model::open_with("models/fr-en", WeightDtypes::all(Quantization::W8A8))?;
    /// let file = std::env::temp_dir().join(format!("fr-en-{}.packed", std::process::id()));
    /// model.save_packed(&file)?;
    ///
    /// let again = Model::open_packed(model.config().clone(), &file)?;
    /// assert_eq!(again.fingerprint(), model.fingerprint());
    /// # std::fs::remove_file(&file)?;
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    pub fn open_packed(config: Config, path: impl AsRef<Path>) -> Result<Self, Error> {
        Self::open_packed_with(config, path, LoadOptions::default())
    }

    /// As [`Model::open_packed`], with options: an instruction set and dtypes that the file must have, and whether
    /// the file is [mapped](LoadOptions::map_packed), so that its weights are used in place.
    ///
    /// # Errors
    /// As [`Model::open_packed`]; the file has [other dtypes](Error::Conflict) than the options name.
    pub fn open_packed_with<'c>(
        config: Config,
        path: impl AsRef<Path>,
        options: impl Into<LoadOptions<'c>>,
    ) -> Result<Self, Error> {
        let (path, options) = (path.as_ref(), options.into());
        let name = || path.display().to_string();
        let unreadable = |error| Error::unreadable(name(), error);
        let (mut file, length) = open_file(path).map_err(unreadable)?;
        if options.map_packed {
            return Self::shared(config, map_file(&file).map_err(unreadable)?, &options, &name);
        }
        let header = Header::read_from(&mut file, length, &name)?;
        let (described, why) = header.described(config, length, &options, &name)?;
        Self::copied(described, &mut file, why, &name)
    }

    /// A model whose weights are in `bytes`, the content of a file of [`Model::save_packed`]: the map of a file, or
    /// packed weights that the program contains or receives. The model owns a share of `bytes`, reads the weights
    /// in place and never writes to them. So it opens in about a millisecond whatever its size, and processes that map
    /// one file share one copy. Bytes that do not begin at a multiple of 64 (a map does), or any bytes on a big-endian
    /// machine, are copied and verified; [`Model::is_shared`] tells.
    ///
    /// The header, its checksum and the length are always verified, the weights only with
    /// [`LoadOptions::verify_packed`]. `bytes` must stay the same. If its owner returns others later, calls fail or give
    /// wrong results; no call reads outside of them.
    ///
    /// # Errors
    /// As [`Model::open_packed_with`]; the name of the file is `memory`.
    ///
    /// ```
    /// use simdformer::config::{Config, Dimensions};
    /// use simdformer::{LoadOptions, Model};
    /// use std::sync::Arc;
    ///
    /// let small = Dimensions { d_model: 64, heads: 4, layers: 2, ffn_dim: 256, vocabulary: 1000 };
    /// let model = Model::from_fn(Config::transformer(small), |_, _, out| Ok(out.fill(0.5)))?;
    /// let file = std::env::temp_dir().join(format!("bytes-{}.packed", std::process::id()));
    /// model.save_packed(&file)?;
    ///
    /// let bytes = Arc::new(std::fs::read(&file)?); // or the map of a file
    /// let options = LoadOptions { verify_packed: true, ..LoadOptions::default() };
    /// let again = Model::from_packed_bytes(model.config().clone(), bytes, options)?;
    /// assert_eq!(again.fingerprint(), model.fingerprint());
    /// # std::fs::remove_file(&file)?;
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    pub fn from_packed_bytes<'c>(
        config: Config,
        bytes: SharedBytes,
        options: impl Into<LoadOptions<'c>>,
    ) -> Result<Self, Error> {
        Self::shared(config, bytes, &options.into(), &|| "memory".to_owned())
    }

    /// Uses the weights in `bytes`, or copies them if they are not aligned.
    fn shared(
        config: Config,
        bytes: SharedBytes,
        options: &LoadOptions<'_>,
        name: FileName<'_>,
    ) -> Result<Self, Error> {
        let owner = bytes.clone();
        let content = (*owner).as_ref();
        let length = content.len() as u64;
        let mut rest = content;
        let header = Header::read_from(&mut rest, length, name)?;
        let (described, why) = header.described(config, length, options, name)?;
        if cfg!(target_endian = "big") {
            return Self::copied(described, &mut rest, why, name);
        }
        let Described { config, placed, checksum, digest, begin } = described;
        let (weights, network) = match placed.share(bytes, begin) {
            Ok(shared) => shared,
            Err(placed) => {
                let placed = *placed;
                let described = Described { config, placed, checksum, digest, begin };
                return Self::copied(described, &mut rest, why, name);
            }
        };
        if options.verify_packed {
            let mut inspection = Inspection::for_weights(weights.parameters(), weights.bytes());
            // This closure never fails.
            let _ = each_piece(weights.memory(), |piece, bytes| {
                inspection.piece(piece, bytes);
                Ok(())
            });
            let not_finite = inspection.expect(checksum, name)?;
            finite(not_finite, &weights, name)?;
        }
        Ok(Self::from_parts(config, weights, network).with_digest(digest).logged(why))
    }

    /// Reads the weights from the rest of `file` and verifies them.
    fn copied(
        described: Described,
        file: &mut impl Read,
        why: Reason,
        name: FileName<'_>,
    ) -> Result<Self, Error> {
        let Described { config, placed, checksum, digest, .. } = described;
        let (mut weights, network) = placed.allocate()?;
        let not_finite = read_weights(file, &mut weights, checksum, name)?;
        finite(not_finite, &weights, name)?;
        Ok(Self::from_parts(config, weights, network).with_digest(digest).logged(why))
    }
}

/// An error for the first number that is not finite.
fn finite(
    not_finite: Option<NotFinite>,
    weights: &Weights,
    name: FileName<'_>,
) -> Result<(), Error> {
    match not_finite.or_else(|| weights.bad_scale()) {
        Some(NotFinite { role, found }) => {
            let operand = format!("{}: a weight of {role}", name()).into();
            Err(Error::NotFinite { index: None, operand, position: None, found: Some(found) })
        }
        None => Ok(()),
    }
}

/// The checks of the weights of a file, computed while they are in the cache.
struct Inspection<'p> {
    checksum: Xxh3,
    finite: FiniteCheck<'p>,
    not_finite: Option<NotFinite>,
}

impl<'p> Inspection<'p> {
    /// Creates the checks for `bytes` bytes of weights.
    fn for_weights(parameters: &'p [Parameter], bytes: usize) -> Self {
        let finite = FiniteCheck::new(parameters, bytes / size_of::<f32>());
        Self { checksum: Xxh3::new(), finite, not_finite: None }
    }

    /// Adds the next words, and their bytes in the file.
    fn piece(&mut self, piece: &[f32], bytes: &[u8]) {
        self.checksum.update(bytes);
        let found = self.finite.piece(piece);
        self.not_finite = self.not_finite.take().or(found);
    }

    fn finish(self) -> (u64, Option<NotFinite>) {
        (self.checksum.digest(), self.not_finite)
    }

    /// The first number that is not finite. An error if the checksum is another one.
    fn expect(self, expected: u64, name: FileName<'_>) -> Result<Option<NotFinite>, Error> {
        match self.finish() {
            (found, not_finite) if found == expected => Ok(not_finite),
            (found, _) => Err(damaged(name, WEIGHTS, expected, found)),
        }
    }
}

/// Calls `each` for one piece of words after the other, with their bytes in the file.
fn each_piece(
    memory: &[f32],
    mut each: impl FnMut(&[f32], &[u8]) -> io::Result<()>,
) -> io::Result<()> {
    let mut swapped = Vec::new();
    for piece in memory.chunks(PIECE) {
        if cfg!(target_endian = "big") {
            swapped.clear();
            swapped.extend(piece.iter().flat_map(|word| word.to_le_bytes()));
            each(piece, &swapped)?;
        } else {
            each(piece, bytes(piece))?;
        }
    }
    Ok(())
}

/// Fills the memory of `weights` with the rest of `file`. Verifies the checksum, then returns the first number
/// that is not finite.
fn read_weights(
    file: &mut impl Read,
    weights: &mut Weights,
    expected: u64,
    name: FileName<'_>,
) -> Result<Option<NotFinite>, Error> {
    let bytes = weights.bytes();
    let (parameters, memory) = weights.parts_mut();
    let mut inspection = Inspection::for_weights(parameters, bytes);
    for piece in memory.chunks_mut(PIECE) {
        file.read_exact(bytes_mut(piece)).map_err(|error| Error::unreadable(name(), error))?;
        if cfg!(target_endian = "big") {
            let stored: Vec<u8> = bytes_mut(piece).to_vec();
            for word in &mut *piece {
                *word = f32::from_bits(word.to_bits().swap_bytes());
            }
            inspection.piece(piece, &stored);
        } else {
            inspection.piece(piece, crate::memory::bytes(piece));
        }
    }
    inspection.expect(expected, name)
}

/// Name of this part of a file, for errors.
const WEIGHTS: &str = "weights";
