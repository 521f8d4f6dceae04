//! Typed reading of one JSON object, and the errors that several files of configurations report. Each error contains the key,
//! the expected and the actual value.

use super::arch::Family;
use crate::error::Error;
use crate::printable_text::sanitized;
use serde_core::de::{DeserializeSeed, Deserializer, Error as _, MapAccess, Visitor};
use serde_json::Value;
use std::collections::BTreeMap;
use std::fmt;

/// Maximum number of values of a file. The labels of a large classifier are some tens of thousands.
const MAX_VALUES: usize = 1 << 16;

/// Maximum nesting depth of the parser.
const MAX_DEPTH: usize = 128;

/// Estimates the number of values in `json`, up to the maximum depth. An object counts for several values
/// because it needs more memory.
fn values(json: &str) -> usize {
    let (mut count, mut depth, mut text, mut escaped) = (0usize, 0usize, false, false);
    for byte in json.bytes() {
        match byte {
            _ if escaped => escaped = false,
            b'\\' if text => escaped = true,
            b'"' => text = !text,
            b',' if !text => count += 1,
            b'[' | b'{' if !text => {
                count += if byte == b'[' { 1 } else { 8 };
                depth += 1;
                if depth > MAX_DEPTH {
                    break;
                }
            }
            b']' | b'}' if !text => depth = depth.saturating_sub(1),
            _ => (),
        }
    }
    count
}

/// A JSON object whose keys are distinct.
#[derive(Debug, Default)]
pub(crate) struct Fields(BTreeMap<String, Value>);

/// Collects the object and records the first duplicate key.
struct Collect<'a> {
    repeated: &'a mut Option<String>,
}

impl<'de> Visitor<'de> for Collect<'_> {
    type Value = BTreeMap<String, Value>;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("an object")
    }

    fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<Self::Value, A::Error> {
        let mut fields = BTreeMap::new();
        while let Some((key, value)) = map.next_entry::<String, Value>()? {
            if fields.contains_key(&key) {
                *self.repeated = Some(key);
                return Err(A::Error::custom("a key stands twice"));
            }
            fields.insert(key, value);
        }
        Ok(fields)
    }
}

impl<'de> DeserializeSeed<'de> for Collect<'_> {
    type Value = BTreeMap<String, Value>;

    fn deserialize<D: Deserializer<'de>>(self, deserializer: D) -> Result<Self::Value, D::Error> {
        deserializer.deserialize_map(self)
    }
}

impl Fields {
    pub(crate) fn parse(json: &str) -> Result<Self, Error> {
        if values(json) > MAX_VALUES {
            let expected = format!("at most {MAX_VALUES} values, as in every real file");
            return Err(Error::corrupt("", expected, "more"));
        }
        let mut repeated = None;
        let mut parser = serde_json::Deserializer::from_str(json);
        let fields = Collect { repeated: &mut repeated }
            .deserialize(&mut parser)
            .and_then(|fields| parser.end().map(|()| fields));
        match (fields, repeated) {
            (_, Some(key)) => Err(Error::corrupt(short(&key), "the key once", "it twice")),
            (Ok(fields), None) => Ok(Self(fields)),
            (Err(error), None) => Err(match serde_json::from_str::<Value>(json) {
                Ok(value) if !value.is_object() => {
                    Error::corrupt("", "a JSON object", kind(&value))
                }
                _ => {
                    let (line, column) = (error.line(), error.column());
                    let message = bare_message(&error);
                    let found = format!("an error at line {line}, column {column}: {message}");
                    Error::corrupt("", "JSON", found)
                }
            }),
        }
    }

    pub(crate) fn get(&self, key: &str) -> Option<&Value> {
        self.0.get(key)
    }

    /// The value of `key` if it exists and is not `null`.
    pub(crate) fn present(&self, key: &str) -> Option<&Value> {
        self.get(key).filter(|value| !value.is_null())
    }

    pub(crate) fn size(&self, key: &'static str, default: usize) -> Result<usize, Error> {
        self.get(key).map_or(Ok(default), |value| size(key, value))
    }

    /// A missing key and `null` both give `None`.
    pub(crate) fn optional_size(&self, key: &'static str) -> Result<Option<usize>, Error> {
        self.present(key).map(|value| size(key, value)).transpose()
    }

    pub(crate) fn flag(&self, key: &'static str, default: bool) -> Result<bool, Error> {
        match self.get(key) {
            None => Ok(default),
            Some(&Value::Bool(flag)) => Ok(flag),
            Some(other) => Err(wrong(key, "true or false", other)),
        }
    }

    /// As [`Self::flag`], but `null` also gives the default.
    pub(crate) fn flag_or_null(&self, key: &'static str, default: bool) -> Result<bool, Error> {
        if self.present(key).is_none() { Ok(default) } else { self.flag(key, default) }
    }

    /// A missing key and `null` both give `None`.
    pub(crate) fn optional_number(&self, key: &'static str) -> Result<Option<f32>, Error> {
        self.present(key).map(|value| number(key, value)).transpose()
    }

    /// A missing key and `null` both give the default.
    pub(crate) fn number_or_null(&self, key: &'static str, default: f32) -> Result<f32, Error> {
        Ok(self.optional_number(key)?.unwrap_or(default))
    }

    pub(crate) fn text(&self, key: &'static str) -> Result<Option<&str>, Error> {
        match self.get(key) {
            None => Ok(None),
            Some(Value::String(text)) => Ok(Some(text)),
            Some(other) => Err(wrong(key, "a string", other)),
        }
    }

    /// A missing key and `null` both give `None`.
    pub(crate) fn optional_text(&self, key: &'static str) -> Result<Option<&str>, Error> {
        if self.present(key).is_none() { Ok(None) } else { self.text(key) }
    }

    /// `null` gives `None`; a missing key gives `default`.
    pub(crate) fn id(&self, key: &'static str, default: Option<u32>) -> Result<Option<u32>, Error> {
        match self.get(key) {
            None => Ok(default),
            Some(Value::Null) => Ok(None),
            Some(value) => token(key, "a token id or null", value).map(Some),
        }
    }

    /// One id, a list of ids, or `null` for none; a missing key gives `default`.
    pub(crate) fn ids(&self, key: &'static str, default: &[u32]) -> Result<Vec<u32>, Error> {
        const EXPECTED: &str = "a token id, a list of them or null";
        match self.get(key) {
            None => Ok(default.to_vec()),
            Some(Value::Null) => Ok(Vec::new()),
            Some(Value::Array(list)) => {
                list.iter().map(|value| token(key, EXPECTED, value)).collect()
            }
            Some(value) => token(key, EXPECTED, value).map(|id| vec![id]),
        }
    }

    /// A list; a missing key and `null` give an empty one.
    pub(crate) fn list(
        &self,
        key: &'static str,
        expected: &'static str,
    ) -> Result<&[Value], Error> {
        match self.present(key) {
            None => Ok(&[]),
            Some(Value::Array(list)) => Ok(list),
            Some(other) => Err(wrong(key, expected, other)),
        }
    }
}

fn size(key: &'static str, value: &Value) -> Result<usize, Error> {
    let size = value.as_u64().and_then(|n| usize::try_from(n).ok());
    size.ok_or_else(|| wrong(key, "an integer of 0 or more", value))
}

/// The value of the first of `keys` that the JSON object `json` has and that is not `null`: a number of at least 0 in the
/// range of f32.
#[cfg(feature = "train")]
pub(crate) fn first_size(json: &str, keys: &[&'static str]) -> Result<Option<f64>, Error> {
    let fields = Fields::parse(json)?;
    let Some((key, value)) = keys.iter().find_map(|&key| Some((key, fields.present(key)?))) else {
        return Ok(None);
    };
    let size = value.as_f64().filter(|&size| size >= 0.0 && (size as f32).is_finite());
    size.map(Some).ok_or_else(|| wrong(key, "a number of at least 0 in the range of f32", value))
}

pub(super) fn number(key: &'static str, value: &Value) -> Result<f32, Error> {
    let number = value.as_f64().map(|x| x as f32).filter(|x| x.is_finite());
    number.ok_or_else(|| wrong(key, "a number in the range of f32", value))
}

pub(super) fn token(
    key: &'static str,
    expected: &'static str,
    value: &Value,
) -> Result<u32, Error> {
    let id = value.as_u64().and_then(|n| u32::try_from(n).ok());
    id.ok_or_else(|| wrong(key, expected, value))
}

pub(super) fn wrong(key: &'static str, expected: &'static str, found: &Value) -> Error {
    Error::corrupt(key, expected, short(&found.to_string()))
}

/// Shortens a text for an error message and removes control characters.
pub(super) fn short(text: &str) -> String {
    sanitized(text, 40)
}

fn kind(value: &Value) -> &'static str {
    match value {
        Value::Null => "null",
        Value::Bool(_) => "a boolean",
        Value::Number(_) => "a number",
        Value::String(_) => "a string",
        Value::Array(_) => "a list",
        Value::Object(_) => "an object",
    }
}

/// The parser's message without the position that it appends, because the error has separate fields for it.
fn bare_message(error: &serde_json::Error) -> String {
    let text = error.to_string();
    match text.rfind(" at line ") {
        Some(end) => text[..end].to_owned(),
        None => text,
    }
}

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
