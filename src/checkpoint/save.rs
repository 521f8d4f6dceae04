//! Writes a checkpoint: the tensors of a configuration in one safetensors file of f32, beside its `config.json`.

use super::names::{self, Location};
use crate::config::{Config, Family};
use crate::error::Error;
use crate::network::TensorId;
use simdformer_atomic_file as atomic_file;
use simdformer_kernels::Dtype;
use std::io::{self, Write};
use std::path::Path;

/// A tensor of a checkpoint that is written.
pub(crate) struct OutputTensor {
    pub(crate) name: String,
    pub(crate) shape: Vec<usize>,
    /// The tensors of the network that are the blocks of its rows, in order.
    pub(crate) roles: Vec<TensorId>,
}

impl OutputTensor {
    /// The tensor at `location`, whose first block is `role`.
    pub(crate) fn new(config: &Config, role: TensorId, location: Location) -> Self {
        let mut shape = role.shape(config).unwrap_or_default();
        let is_buffer = role == TensorId::OutputBias
            && !matches!(config.family, Family::NnTransformer | Family::Plain);
        if is_buffer {
            // The shape that transformers uses.
            shape.insert(0, 1);
        } else {
            shape = location.stored_shape(shape);
        }
        Self { name: location.name, shape, roles: vec![role] }
    }

    /// Size in bytes, in f32.
    pub(crate) fn bytes(&self) -> u64 {
        (self.shape.iter().product::<usize>() * Dtype::F32.size()) as u64
    }
}

/// The tensors of a checkpoint of `config`, under the preferred names of the family. Tied matrices are one tensor.
pub(crate) fn output_tensors(config: &Config) -> Vec<OutputTensor> {
    let mut tensors: Vec<OutputTensor> = Vec::new();
    for role in TensorId::all(config) {
        let mut locations = names::locate(config.family, config.ties, role);
        // The shared name of tied matrices first, if there is one.
        locations.sort_by_key(|location| !location.name.ends_with("shared.weight"));
        let known = locations
            .iter()
            .find_map(|at| Some((at, tensors.iter().position(|tensor| tensor.name == at.name)?)));
        match known {
            Some((Location { block: (_, 1), .. }, _)) => {}
            Some((_, index)) => tensors[index].roles.push(role),
            None => {
                let location = locations.into_iter().next();
                tensors.extend(location.map(|at| OutputTensor::new(config, role, at)));
            }
        }
    }
    tensors
}

/// The first bytes of a safetensors file of these tensors, up to the first tensor: each with its name, its dtype in the
/// spelling of the format (`"F32"`), its shape and its bytes. The tensors follow in the same order, little-endian.
///
/// ```
/// use simdformer::checkpoint::safetensors_header;
///
/// let numbers = [1.5f32, -2.0];
/// let mut file = safetensors_header([("scale", "F32", &[2][..], 8)].into_iter());
/// file.extend(numbers.iter().flat_map(|x| x.to_le_bytes()));
/// assert_eq!(safetensors::SafeTensors::deserialize(&file)?.tensor("scale")?.shape(), [2]);
/// # Ok::<(), safetensors::SafeTensorError>(())
/// ```
pub fn safetensors_header<'t>(
    tensors: impl Iterator<Item = (&'t str, &'t str, &'t [usize], u64)>,
) -> Vec<u8> {
    let mut text = r#"{"__metadata__":{"format":"pt"}"#.to_owned();
    let mut start = 0;
    for (name, dtype, shape, bytes) in tensors {
        let end = start + bytes;
        let name = serde_json::Value::from(name);
        let of = serde_json::json!({"dtype": dtype, "shape": shape, "data_offsets": [start, end]});
        text += &format!(",{name}:{of}");
        start = end;
    }
    text.push('}');
    while !text.len().is_multiple_of(8) {
        text.push(' ');
    }
    [&(text.len() as u64).to_le_bytes(), text.as_bytes()].concat()
}

/// Creates `directory` and writes `config.json` and `model.safetensors` there, each atomically and the weights last.
/// `read` writes the numbers of a tensor of the network, row-major, to its second argument.
pub(crate) fn save<E: From<Error>>(
    directory: &Path,
    config: &Config,
    mut read: impl FnMut(TensorId, &mut Vec<f32>) -> Result<(), E>,
) -> Result<(), E> {
    let in_file = |name: &str| directory.join(name).display().to_string();
    let unwritable = |name: &str, error| -> E { Error::unwritable(in_file(name), error).into() };
    let text =
        config.to_json().map_err(|error| -> E { error.in_file(&in_file("config.json")).into() })?;
    const GENERATION: &str = "generation_config.json";
    if directory.join(GENERATION).exists() {
        // It would replace the generation settings of `config.json`.
        return Err(unwritable(GENERATION, io::ErrorKind::AlreadyExists.into()));
    }
    std::fs::create_dir_all(directory).map_err(|error| unwritable("", error))?;
    let tensors = output_tensors(config);
    let mut first_error = None;
    let write = |name: &str, fill: &mut dyn FnMut(&mut dyn Write) -> io::Result<()>| {
        let written = atomic_file::replace(directory.join(name), |file| fill(file));
        written.map_err(|error| unwritable(name, error))
    };
    write("config.json", &mut |file| file.write_all(text.as_bytes()))?;
    let written = write("model.safetensors", &mut |file| {
        file.write_all(&safetensors_header(tensors.iter().map(|tensor| {
            (tensor.name.as_str(), "F32", tensor.shape.as_slice(), tensor.bytes())
        })))?;
        let mut numbers = Vec::new();
        for &role in tensors.iter().flat_map(|tensor| &tensor.roles) {
            numbers.clear();
            if let Err(error) = read(role, &mut numbers) {
                first_error = Some(error);
                return Err(io::ErrorKind::InvalidData.into());
            }
            numbers.iter().try_for_each(|x| file.write_all(&x.to_le_bytes()))?;
        }
        Ok(())
    });
    first_error.map_or(written, Err)
}
