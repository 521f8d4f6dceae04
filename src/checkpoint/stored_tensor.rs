//! Tensors as stored in a file, for code that writes another file of the same tensors.

use super::faults::no_such_tensor;
use super::lazy_tensor::Strided;
use super::safetensors_file::Entry;
use super::{Checkpoint, Location, names};
use crate::config::Config;
use crate::error::Error;
use crate::network::TensorId;

/// The header entry of a tensor.
#[derive(Clone, Debug)]
pub(crate) struct Stored {
    /// In safetensors spelling.
    pub(crate) dtype: String,
    pub(crate) shape: Vec<usize>,
    pub(crate) bytes: u64,
}

/// The possible locations of `role` in a file of `config`, the preferred one first.
pub(crate) fn locations(config: &Config, role: TensorId) -> Vec<Location> {
    names::locate(config.family, config.ties, role)
}

impl Checkpoint<'_> {
    /// The possible locations of `role` that exist in this file.
    pub(crate) fn locations(&self, role: TensorId) -> impl Iterator<Item = Location> {
        self.locate(role).into_iter().filter(|at| self.tensors.contains_key(&at.name))
    }

    /// The header entry of a tensor of [`Checkpoint::names`].
    pub(crate) fn stored(&self, name: &str) -> Option<Stored> {
        let (_, entry) = self.tensors.get(name)?;
        let (dtype, shape) = (entry.dtype.to_string(), entry.shape.clone());
        Some(Stored { dtype, shape, bytes: entry.bytes })
    }

    /// Fills `out` with the bytes of the tensor `name` in row-major order and in its stored dtype, starting at byte `offset`,
    /// which begins an element.
    ///
    /// # Errors
    /// There is no such tensor, or it has fewer bytes; the file cannot be read.
    pub fn read_bytes(&self, name: &str, offset: u64, out: &mut [u8]) -> Result<(), Error> {
        let found =
            self.tensors.get(name).filter(|(_, entry)| offset + out.len() as u64 <= entry.bytes);
        let Some((source, entry)) = found else {
            return Err(no_such_tensor(name, &[]));
        };
        let source = &self.sources[*source];
        match entry.dtype.bits {
            Some(bits) if !entry.strides.is_empty() => {
                let size = bits / 8;
                let Entry { offset: begin, shape, strides, .. } = entry;
                Strided { source, offset: *begin, size, shape, strides }
                    .read_elements(offset as usize / size, out)
            }
            _ => source.read_at(entry.offset + offset, out),
        }
    }
}
