//! Errors that several files of configurations report.

use super::arch::Family;
use super::json::short;
use crate::error::Error;

/// The key that names the family.
pub(crate) const MODEL_TYPE: &str = "model_type";

pub(super) const IS_ENCODER_DECODER: &str = "is_encoder_decoder";

/// The error for a model that is no encoder-decoder.
pub(super) fn not_encoder_decoder() -> Error {
    let expected = "true, because only encoder-decoder models are supported";
    Error::unsupported(IS_ENCODER_DECODER, expected, "false")
}

/// A required key is missing.
pub(super) fn missing_key(key: &str) -> Error {
    Error::corrupt(key, "a value", "none: the key is missing")
}

/// The error for an unknown name: `expected` lists the known ones.
pub(super) fn unknown_name(key: &str, expected: &str) -> impl Fn(&str) -> Error {
    move |found| Error::unsupported(key, expected, format!("\"{}\"", short(found)))
}

/// The error for an unknown activation.
pub(super) fn unknown_activation(key: &str) -> impl Fn(&str) -> Error {
    unknown_name(key, "one of relu, gelu, gelu_new, gelu_pytorch_tanh, silu, swish, linear")
}

/// The error for an unknown position encoding.
pub(super) fn unknown_positions() -> impl Fn(&str) -> Error {
    unknown_name("positions", "\"interleaved\" or \"half_split\"")
}

/// Checkpoints of the family have no tensor, or its `config.json` no key, for this part.
pub(super) fn not_in_family(family: Family, part: &str) -> Error {
    let name = family.model_type();
    let expected = "a family that has it, as Family::Plain, which has names for all parts of weights of your own";
    Error::unsupported(part, expected, format!("{name}: no {name} checkpoint has it"))
}

/// Checks that every id is below `vocabulary`.
pub(super) fn ids_inside(what: &'static str, ids: &[u32], vocabulary: usize) -> Result<(), Error> {
    match ids.iter().find(|&&id| id as usize >= vocabulary) {
        Some(id) => {
            let expected = format!("an id below the target vocabulary of {vocabulary}");
            Err(Error::invalid_option(what, expected, id.to_string()))
        }
        None => Ok(()),
    }
}
