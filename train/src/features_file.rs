//! A file of features, for models whose encoder reads them instead of ids.

use crate::error::{Error, corrupt, unreadable};
use safetensors::{Dtype, SafeTensors};
use std::fs;
use std::path::Path;

/// Reads the tensors `features.{i}`, `[frames, bins]`, of a safetensors file, in order: the values of each, and its number
/// of bins.
pub(crate) fn read_features(file: &Path) -> Result<Vec<(Vec<f32>, usize)>, Error> {
    let bytes = fs::read(file).map_err(unreadable(file))?;
    let wrong = |what: &str, expected: &str, found: String| {
        corrupt(format!("{}{what}", file.display()), expected, found)
    };
    let tensors = SafeTensors::deserialize(&bytes)
        .map_err(|error| wrong("", "features", format!("something else: {error}")))?;
    let read = |index| {
        let name = format!("features.{index}");
        let place = format!(": {name}");
        let tensor = tensors
            .tensor(&name)
            .map_err(|_| wrong(&place, "a tensor for each line", "none".to_owned()))?;
        let (dtype, shape) = (tensor.dtype(), tensor.shape());
        let (Dtype::F32, &[_, bins]) = (dtype, shape) else {
            return Err(wrong(&place, "F32 [frames, bins]", format!("{dtype} {shape:?}")));
        };
        let numbers = tensor.data().as_chunks::<4>().0.iter();
        Ok((numbers.map(|&bytes| f32::from_le_bytes(bytes)).collect(), bins))
    };
    (0..tensors.len()).map(read).collect()
}
