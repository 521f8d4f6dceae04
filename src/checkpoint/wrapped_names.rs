//! Names of tensors whose module was wrapped when the model was saved.

use super::directory::Tensors;
use crate::error::Error;
use crate::printable_text::sanitized;

/// Parts that wrappers of PyTorch add to the names of a state dict: `torch.compile`, `DataParallel` and
/// `DistributedDataParallel`, `FullyShardedDataParallel`, and the wrapper of recomputed activations. No family has a part
/// of this name.
const WRAPPERS: [&str; 4] =
    ["_orig_mod", "module", "_fsdp_wrapped_module", "_checkpoint_wrapped_module"];

/// The tensors under their names without wrappers, for example `model.shared.weight` for
/// `_orig_mod.module.model.shared.weight`, and `encoder.layers.0.fc1.bias` for `encoder._orig_mod.layers.0.fc1.bias`.
pub(super) fn unwrapped(tensors: Tensors) -> Result<Tensors, Error> {
    let is_wrapper = |part: &str| WRAPPERS.contains(&part);
    if !tensors.keys().any(|name| name.split('.').any(is_wrapper)) {
        return Ok(tensors);
    }
    let mut found = Tensors::new();
    for (name, tensor) in tensors {
        let parts: Vec<&str> = name.split('.').filter(|part| !is_wrapper(part)).collect();
        // A name of wrappers only is no tensor of a wrapped module.
        let inner = if parts.is_empty() { name } else { parts.join(".") };
        if let Some((_, other)) = found.get(&inner) {
            let (first, second) = (sanitized(&other.name, 400), sanitized(&tensor.1.name, 400));
            let found = format!(
                "{first} and {second}: wrappers of PyTorch add parts such as _orig_mod and module to names"
            );
            return Err(Error::corrupt(sanitized(&inner, 400), "one tensor of this name", found));
        }
        found.insert(inner, tensor);
    }
    Ok(found)
}
