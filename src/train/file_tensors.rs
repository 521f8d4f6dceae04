//! The tensors of a checkpoint file of a trainer: their names, shapes and order, and what is written under each name.

use super::frozen::is_frozen;
use crate::checkpoint::save::{OutputTensor, output_tensors};
use crate::checkpoint::stored_tensor::locations;
use crate::checkpoint::{Checkpoint, Location, TensorId};
use crate::config::Config;
use std::collections::BTreeMap;

/// A tensor of the file into which the parameters of a [`Trainer`](super::Trainer) are written. The file is
/// [`safetensors_header`](crate::checkpoint::safetensors_header) of all of them, then their numbers in this order.
///
/// ```
/// use simdformer::checkpoint::safetensors_header;
/// use simdformer::config::{Config, Dimensions};
/// use simdformer::train::{FileTensor, Initial, TrainLimits, Trainer};
///
/// let small = Dimensions { d_model: 16, heads: 2, layers: 1, ffn_dim: 32, vocabulary: 20 };
/// let config = Config::transformer(small);
/// let trainer = Trainer::new(config.clone(), TrainLimits::new(64, 16), Initial::Glorot.weights(&config, 1))?;
/// let tensors = FileTensor::of_config(&config);
/// let mut file = safetensors_header(tensors.iter().map(|t| (&*t.name, &*t.dtype, &*t.shape, t.bytes)));
/// for role in tensors.iter().flat_map(|tensor| &tensor.roles) {
///     let numbers = trainer.parameter(*role).unwrap_or_default();
///     file.extend(numbers.iter().flat_map(|x| x.to_le_bytes()));
/// }
/// # let checkpoint = simdformer::checkpoint::Checkpoint::from_bytes(config.clone(), file)?;
/// # assert!(checkpoint.unused().is_empty());
/// # Ok::<(), simdformer::Error>(())
/// ```
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct FileTensor {
    /// The name in the file.
    pub name: String,
    /// In the spelling of safetensors: `"F32"`, except for a tensor that is copied.
    pub dtype: String,
    /// The shape in the file.
    pub shape: Vec<usize>,
    /// Bytes in the file.
    pub bytes: u64,
    /// The tensors of the network whose numbers follow each other under this name. Empty for a tensor that the network does
    /// not use: [`Checkpoint::read_bytes`] copies it.
    pub roles: Vec<TensorId>,
}

impl FileTensor {
    /// The tensors of a file like that of `checkpoint`: under the same names and in the same shapes, in f32. Tied matrices
    /// are there under each of their names, and a bias that the checkpoint lacks is added, because it is trained, too.
    pub fn of_checkpoint(checkpoint: &Checkpoint<'_>) -> Vec<Self> {
        let config = checkpoint.config();
        let mut roles: BTreeMap<String, Vec<Option<TensorId>>> = BTreeMap::new();
        let mut put = |role, Location { name, block: (block, blocks) }| {
            let of = roles.entry(name).or_insert_with(|| vec![None; blocks]);
            if let Some(place @ None) = of.get_mut(block) {
                *place = Some(role);
            }
        };
        // First the names that are read, then the other names of tied tensors.
        for role in TensorId::all(config) {
            checkpoint.locations(role).take(1).for_each(|at| put(role, at));
        }
        for role in TensorId::all(config) {
            let there = |at: &Location| checkpoint.stored(&at.name).is_some();
            locations(config, role).into_iter().filter(there).for_each(|at| put(role, at));
        }
        let mut tensors = Vec::new();
        for name in checkpoint.names() {
            let Some(stored) = checkpoint.stored(name) else { continue };
            let roles = roles.remove(name).and_then(|roles| roles.into_iter().collect());
            let mut tensor = Self {
                name: name.to_owned(),
                dtype: stored.dtype,
                shape: stored.shape,
                bytes: stored.bytes,
                roles: roles.unwrap_or_default(),
            };
            if !tensor.roles.is_empty() {
                tensor.make_f32();
            }
            tensors.push(tensor);
        }
        let absent = TensorId::all(config)
            .filter(|&role| role.may_be_absent() && !is_frozen(config, role))
            .filter(|&role| checkpoint.locations(role).next().is_none());
        for role in absent {
            let location = locations(config, role).into_iter().next();
            tensors.extend(location.map(|at| OutputTensor::new(config, role, at).into()));
        }
        sort(&mut tensors);
        tensors
    }

    /// The tensors of a file of `config`, under the preferred names of its family. Tied matrices are one tensor.
    pub fn of_config(config: &Config) -> Vec<Self> {
        let mut tensors = output_tensors(config).into_iter().map(Self::from).collect::<Vec<_>>();
        sort(&mut tensors);
        tensors
    }

    fn make_f32(&mut self) {
        self.dtype = "F32".to_owned();
        self.bytes = 4 * self.shape.iter().product::<usize>() as u64;
    }
}

/// A tensor that no file contains yet.
impl From<OutputTensor> for FileTensor {
    fn from(tensor: OutputTensor) -> Self {
        let bytes = tensor.bytes();
        let OutputTensor { name, shape, roles } = tensor;
        Self { name, dtype: "F32".to_owned(), shape, bytes, roles }
    }
}

/// Sorts tensors by element size, largest first, so that each tensor is aligned.
fn sort(tensors: &mut [FileTensor]) {
    let size = |tensor: &FileTensor| match tensor.shape.iter().product::<usize>() as u64 {
        0 => 1,
        numbers => tensor.bytes / numbers,
    };
    tensors.sort_by(|a, b| size(b).cmp(&size(a)).then_with(|| a.name.cmp(&b.name)));
}
