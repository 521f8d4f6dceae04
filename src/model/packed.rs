//! Weights as they lie in memory, in a file: what was packed once is read back as fast as the disk gives it.
//!
//! A file begins with a line of fixed length that tells how long its header is; then the header, lines of text; then
//! the memory of the model, little-endian words. The header says for which instruction set and in which forms the weights
//! were packed, and repeats the table of parameters: a file is taken only if this crate, with the configuration at hand,
//! would lay out the same table. There is no checksum, as there is none in safetensors: reading one would take as
//! long as reading the file.

use super::error::ModelError;
use super::forms::WeightForm;
use super::packed_error::{MAGIC, PackedError};
use super::weights::{Chosen, Parameter, Weights};
use super::{Model, choice};
use crate::checkpoint::Role;
use crate::config::{Config, Ties};
use crate::memory::{bytes, bytes_mut};
use simdformer_kernels::Isa;
use std::collections::HashMap;
use std::fs::File;
use std::io::{self, Read, Write};
use std::path::{Path, PathBuf};

/// Digits of the header's length, and a line's end.
const DIGITS: usize = 8;

/// Bytes before the header.
const PREAMBLE: usize = MAGIC.len() + DIGITS + 1;

/// A table of a few hundred layers is a fraction of this.
const MAX_HEADER: usize = 1 << 24;

/// The header ends on a multiple of this.
const ALIGNED: usize = 64;

impl Model {
    /// Writes the packed weights to a file, beside its place and then renamed: what was there stays there until the
    /// whole is.
    ///
    /// The file is for this instruction set, this version of the crate and a [`Config`] that comes from elsewhere; it
    /// takes the place of the checkpoint's weights, whose `config.json` stays what it is.
    ///
    /// # Errors
    /// The file cannot be [written](PackedError::File).
    pub fn save_packed(&self, path: impl AsRef<Path>) -> Result<(), ModelError> {
        let path = path.as_ref();
        let mut beside = PathBuf::from(path).into_os_string();
        beside.push(".part");
        let written = self.write_packed(Path::new(&beside));
        let written = written.and_then(|()| std::fs::rename(&beside, path));
        written.map_err(|error| {
            // Whether it is there or not, the error is the one to be told.
            let _ = std::fs::remove_file(&beside);
            PackedError::File { file: path.display().to_string(), error }.into()
        })
    }

    fn write_packed(&self, path: &Path) -> io::Result<()> {
        let mut header = header(self.isa(), &self.weights, &self.config);
        let end = (PREAMBLE + header.len() + 1).next_multiple_of(ALIGNED);
        header.extend(core::iter::repeat_n(' ', end - 1 - PREAMBLE - header.len()));
        header.push('\n');
        let mut file = File::create(path)?;
        writeln!(file, "{MAGIC}{:0DIGITS$}", header.len())?;
        file.write_all(header.as_bytes())?;
        if cfg!(target_endian = "big") {
            for word in self.weights.memory() {
                file.write_all(&word.to_le_bytes())?;
            }
        } else {
            file.write_all(bytes(self.weights.memory()))?;
        }
        file.sync_all()
    }

    /// Reads back what [`Model::save_packed`] wrote, for a model of `config`: that of
    /// [`Checkpoint::config`](crate::checkpoint::Checkpoint::config), or of
    /// [`Config::from_hugging_face`](crate::config::Config::from_hugging_face) where the weights alone are left.
    ///
    /// # Errors
    /// The file [cannot be read](PackedError::File), is [none](PackedError::Foreign), is for [another instruction
    /// set](PackedError::Isa), of [another model](PackedError::Model) or [cut off](PackedError::Length); there is [no
    /// memory](ModelError::OutOfMemory); the environment names a set that is [not here](ModelError::Isa).
    ///
    /// ```
    /// use simdformer::{Forms, Model, WeightForm};
    /// # if !std::path::Path::new("models/fr-en").exists() { return Ok(()) } // not in the published package
    ///
    /// let model = Model::open_as("models/fr-en", &Forms::all(WeightForm::Int8))?;
    /// let file = std::env::temp_dir().join(format!("fr-en-{}.packed", std::process::id()));
    /// model.save_packed(&file)?;
    ///
    /// let again = Model::open_packed(model.config().clone(), &file)?;
    /// assert_eq!(again.bytes(), model.bytes());
    /// # std::fs::remove_file(&file)?;
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    pub fn open_packed(config: Config, path: impl AsRef<Path>) -> Result<Self, ModelError> {
        let path = path.as_ref();
        let name = || path.display().to_string();
        let unreadable = |error| PackedError::File { file: name(), error };
        let (here, why) = choice::choose()?;
        let (mut file, header, length) = open(path, &name)?;
        let mut lines = header.trim_end().lines();
        let differs = |expected: &str, found: &str| PackedError::Model {
            file: name(),
            expected: expected.to_owned(),
            found: found.to_owned(),
        };
        let mut field = |key: &str| {
            let line = lines.next().unwrap_or("");
            line.strip_prefix(key).map(str::trim).ok_or_else(|| differs(key, line))
        };
        let found = field("isa ")?;
        let isa = match Isa::from_name(found) {
            Ok(isa) if why != choice::Reason::Environment || isa == here => isa,
            _ => {
                let found = found.to_owned();
                return Err(PackedError::Isa { file: name(), found, expected: here }.into());
            }
        };
        let forms = field("forms")?.parse().map_err(ModelError::Forms)?;
        let mut config = config;
        config.ties = Ties {
            source_target: field("source_target ")? == "true",
            target_output: field("target_output ")? == "true",
        };
        config.validate().map_err(ModelError::Config)?;
        let stored = stored(&config, field("stored")?);
        let chosen = Chosen { forms, stored };
        let (mut weights, network) = Weights::empty(&config, isa, chosen)?;
        let expected = table(weights.parameters());
        let found: Vec<&str> = lines.collect();
        for index in 0..expected.len().max(found.len()) {
            let expected = expected.get(index).map_or("nothing", String::as_str);
            let found = found.get(index).copied().unwrap_or("nothing");
            if expected != found {
                return Err(differs(expected, found).into());
            }
        }
        let expected = (PREAMBLE + header.len() + weights.bytes()) as u64;
        if length != expected {
            return Err(PackedError::Length { file: name(), expected, found: length }.into());
        }
        file.read_exact(bytes_mut(weights.memory_mut())).map_err(unreadable)?;
        if cfg!(target_endian = "big") {
            for word in weights.memory_mut() {
                *word = f32::from_bits(word.to_bits().swap_bytes());
            }
        }
        Ok(Self { config, weights, network }.announced(why))
    }
}

/// A file of packed weights after its header, the header, and the bytes of the file.
fn open(path: &Path, name: &dyn Fn() -> String) -> Result<(File, String, u64), PackedError> {
    let unreadable = |error| PackedError::File { file: name(), error };
    // Opening a pipe would wait.
    let about = std::fs::metadata(path).map_err(unreadable)?;
    if !about.is_file() {
        return Err(unreadable(io::Error::other("not a file")));
    }
    let mut file = File::open(path).map_err(unreadable)?;
    let mut begins = Vec::new();
    Read::by_ref(&mut file).take(PREAMBLE as u64).read_to_end(&mut begins).map_err(unreadable)?;
    let begins = String::from_utf8_lossy(&begins);
    let digits = begins.strip_prefix(MAGIC).map(str::trim_end);
    let length = digits.and_then(|digits| digits.parse::<usize>().ok());
    let Some(length) = length.filter(|&length| length <= MAX_HEADER) else {
        return Err(PackedError::Foreign { file: name(), begins: begins.into_owned() });
    };
    let mut header = Vec::new();
    Read::by_ref(&mut file).take(length as u64).read_to_end(&mut header).map_err(unreadable)?;
    if header.len() < length {
        let expected = (PREAMBLE + length) as u64;
        return Err(PackedError::Length { file: name(), expected, found: about.len() });
    }
    let header = String::from_utf8(header).map_err(|error| PackedError::Foreign {
        file: name(),
        begins: String::from_utf8_lossy(error.as_bytes()).into_owned(),
    })?;
    Ok((file, header, about.len()))
}

/// All that has to be the same for the memory to be the same.
fn header(isa: Isa, weights: &Weights, config: &Config) -> String {
    let Chosen { forms, stored } = weights.chosen();
    let mut sixteen: Vec<String> =
        stored.iter().map(|(role, form)| format!(" {role}={form}")).collect();
    sixteen.sort();
    let Ties { source_target, target_output } = config.ties;
    let mut lines = vec![
        format!("isa {isa}"),
        format!("forms {forms}"),
        format!("source_target {source_target}"),
        format!("target_output {target_output}"),
        format!("stored{}", sixteen.concat()),
    ];
    lines.extend(table(weights.parameters()));
    lines.join("\n")
}

fn table(parameters: &[Parameter]) -> Vec<String> {
    parameters.iter().map(Parameter::to_string).collect()
}

/// The forms of a line of `role=form`; what is no role of `config` is left out, and shows in the table.
fn stored(config: &Config, line: &str) -> HashMap<Role, WeightForm> {
    let named: HashMap<&str, &str> =
        line.split_whitespace().filter_map(|part| part.split_once('=')).collect();
    let form = |role: &Role| named.get(role.to_string().as_str())?.parse().ok();
    Role::all(config).filter_map(|role| Some((role, form(&role)?))).collect()
}
