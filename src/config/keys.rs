//! The architecture keys of a `config.json`, and the defaults for missing keys.

use super::json::{Fields, short};
use super::{Activation, ConfigError, Defaulted, activation_from_name};
use core::fmt::Display;

/// PyTorch's LayerNorm default, which the configurations of most families cannot change.
pub(super) const TORCH_EPS: f32 = 1e-5;

/// The architecture keys, and the list of missing ones.
pub(super) struct Keys<'f> {
    pub(super) fields: &'f Fields,
    pub(super) absent: Vec<Defaulted>,
}

impl Keys<'_> {
    /// Records `value` as the default used for `key` if the key is missing.
    pub(super) fn taken(&mut self, key: &'static str, value: impl Display) {
        if self.fields.get(key).is_none() {
            self.absent.push(Defaulted { key, value: value.to_string() });
        }
    }

    pub(super) fn size(&mut self, key: &'static str, default: usize) -> Result<usize, ConfigError> {
        self.taken(key, default);
        self.fields.size(key, default)
    }

    pub(super) fn flag(&mut self, key: &'static str, default: bool) -> Result<bool, ConfigError> {
        self.taken(key, default);
        self.fields.flag(key, default)
    }

    pub(super) fn number(&mut self, key: &'static str, default: f32) -> Result<f32, ConfigError> {
        self.taken(key, default);
        self.fields.number_or_null(key, default)
    }

    pub(super) fn text(
        &mut self,
        key: &'static str,
        default: &'static str,
    ) -> Result<&str, ConfigError> {
        self.taken(key, default);
        Ok(self.fields.text(key)?.unwrap_or(default))
    }

    /// A default of `None` is not recorded.
    pub(super) fn id(
        &mut self,
        key: &'static str,
        default: Option<u32>,
    ) -> Result<Option<u32>, ConfigError> {
        default.into_iter().for_each(|id| self.taken(key, id));
        self.fields.id(key, default)
    }

    /// `default` has at most one id; an empty default is not recorded.
    pub(super) fn ids(
        &mut self,
        key: &'static str,
        default: &[u32],
    ) -> Result<Vec<u32>, ConfigError> {
        default.iter().for_each(|id| self.taken(key, id));
        self.fields.ids(key, default)
    }

    /// Returns an error if the flag `key` requests an unsupported feature.
    pub(super) fn never(
        &self,
        key: &'static str,
        expected: &'static str,
    ) -> Result<(), ConfigError> {
        match self.fields.flag_or_null(key, false)? {
            false => Ok(()),
            true => Err(ConfigError::WrongType { key, expected, found: "true".to_owned() }),
        }
    }

    /// The first position: the pad id plus one.
    pub(super) fn after_pad(&self, pad: Option<u32>) -> Result<usize, ConfigError> {
        let pad = pad.ok_or_else(|| ConfigError::WrongType {
            key: "pad_token_id",
            expected: "a token id (positions are counted from it)",
            found: "null".to_owned(),
        })?;
        Ok(pad as usize + 1)
    }

    pub(super) fn activation(
        &mut self,
        key: &'static str,
        default: &'static str,
    ) -> Result<Activation, ConfigError> {
        let name = self.text(key, default)?;
        activation_from_name(name)
            .ok_or_else(|| ConfigError::UnknownActivation { found: short(name) })
    }
}

/// The square root is computed in double precision and rounded once, as in the libraries.
pub(super) fn scale(scaled: bool, d_model: usize) -> f32 {
    if scaled { (d_model as f64).sqrt() as f32 } else { 1.0 }
}
