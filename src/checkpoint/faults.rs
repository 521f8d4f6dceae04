//! Errors that several readers of checkpoints report.

use super::byte_source::Source;
use crate::error::Error;

/// A header or an index has more tensors than any real one.
pub(super) fn too_many_tensors(file: impl Into<Box<str>>, limit: usize) -> Error {
    let expected = format!("at most {limit} tensors, as in every real one");
    Error::corrupt(file, expected, "more")
}

/// Two tensors have the same name.
pub(super) fn duplicate_tensor(source: &Source<'_>, tensor: &str) -> Error {
    let operand = format!("{}: {tensor}", source.name());
    Error::corrupt(operand, "to stand once in the header", "it twice")
}

/// Two tensors, or entries of an archive, share bytes.
pub(super) fn shared_bytes(source: &Source<'_>, first: &str, second: &str) -> Error {
    let operand = format!("{}: {first} and {second}", source.name());
    Error::corrupt(operand, "bytes of their own", "bytes that they share")
}

/// The error for a dtype that is not read.
pub(super) fn wrong_dtype(tensor: impl Into<Box<str>>, found: &str) -> Error {
    let quantized = found.starts_with("F8") || found.starts_with("F4");
    let advice = if found == "F64" {
        ", which would be rounded; save the model in float32"
    } else if quantized || ["I8", "U8", "I4", "U4"].contains(&found) {
        "; quantized weights need their scales, which are not read: take the model that they were made of"
    } else {
        ""
    };
    Error::unsupported(tensor, "F32, F16 or BF16", format!("{found}{advice}"))
}

/// A checkpoint has no tensor of this name.
pub(super) fn no_such_tensor(name: &str, nearest: &[String]) -> Error {
    let found = format!("no tensor {name}{}", nearest_names(nearest));
    Error::corrupt("the checkpoint", "a tensor of this name", found)
}

pub(super) fn nearest_names(names: &[String]) -> String {
    if names.is_empty() {
        return String::new();
    }
    format!("; the nearest names are {}", names.join(", "))
}

/// The file is invalid, or has something that a state dict does not need. `message` says what was expected and what
/// was found in the place of the fault.
#[cfg(feature = "torch")]
pub(super) fn wrong_state_dict(source: &Source<'_>, message: String) -> Error {
    let found = format!("a wrong one: {message}");
    Error::corrupt(source.name(), "a state dict of torch.save", found)
}
