//! Reads a file of features.

use safetensors::SafeTensors;
use safetensors::tensor::Dtype;
use std::path::Path;

/// Reads the tensors `features.{i}`, `[frames, bins]`, of a safetensors file, in order. Returns for each its values
/// and the number of bins. If `lines` is given, the number of tensors must equal it.
pub(crate) fn read_features(
    path: &Path,
    lines: Option<usize>,
) -> Result<Vec<(Vec<f32>, usize)>, String> {
    let wrong = |what: String| format!("{}: {what}", path.display());
    let file = std::fs::read(path).map_err(|error| wrong(error.to_string()))?;
    let tensors = SafeTensors::deserialize(&file).map_err(|error| wrong(error.to_string()))?;
    let found = tensors.len();
    if let Some(lines) = lines
        && found != lines
    {
        return Err(wrong(format!("expected a tensor for each of {lines} lines, found {found}")));
    }
    let one = |index| {
        let name = format!("features.{index}");
        let tensor = tensors.tensor(&name).map_err(|_| wrong(format!("{name} is missing")))?;
        let (dtype, shape) = (tensor.dtype(), tensor.shape());
        let (Dtype::F32, &[_, bins]) = (dtype, shape) else {
            let expected = "expected F32 [frames, bins]";
            return Err(wrong(format!("{name}: {expected}, found {dtype} {shape:?}")));
        };
        let numbers =
            tensor.data().as_chunks::<4>().0.iter().map(|&bytes| f32::from_le_bytes(bytes));
        Ok((numbers.collect(), bins))
    };
    (0..found).map(one).collect()
}
