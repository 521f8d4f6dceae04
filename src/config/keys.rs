//! The keys of a `config.json`: one list for each class of transformers, read and written by the same code.
//!
//! A list is a function over a [`Config`](super::Config) that has the defaults of its class, or that is written. It
//! calls [`Keys::field`] for each key. [`Keys`] then replaces the value by that of the file, or writes the value.

use super::arch::ACTIVATIONS;
use super::arch::SpecialTokens;
use super::json::{
    Fields, IS_ENCODER_DECODER, missing_key, not_encoder_decoder, unknown_activation, wrong,
};
use crate::error::Error;
use crate::search::{self, Settings, decimal};
use serde_json::{Map, Value};
use simdformer_kernels::Activation;

/// PyTorch's LayerNorm default, which the configurations of most families cannot change.
pub(super) const TORCH_EPS: f32 = 1e-5;

/// A pass over the keys of a `config.json`.
pub(super) struct Keys<'f> {
    /// The file to read; `None` in a pass that writes.
    fields: Option<&'f Fields>,
    /// The keys that the file lacks.
    pub(super) absent: Vec<(&'static str, String)>,
    /// The keys that were written.
    pub(super) written: Map<String, Value>,
}

/// A value of a key.
pub(super) trait Setting: Clone + PartialEq {
    /// The value of `key`; `self` is the value of a missing key.
    fn read_key(&self, fields: &Fields, key: &'static str) -> Result<Self, Error>;

    fn write(&self) -> Value;

    /// The value of a missing key for [`Config::defaults`](super::Config::defaults); `None` if a missing key means that there is no value.
    fn shown(&self) -> Option<String>;
}

impl<'f> Keys<'f> {
    pub(super) fn for_reading(fields: &'f Fields) -> Self {
        Self { fields: Some(fields), absent: Vec::new(), written: Map::new() }
    }

    pub(super) fn for_writing() -> Self {
        Self { fields: None, absent: Vec::new(), written: Map::new() }
    }

    /// Reads or writes `key`. The value of a missing key is recorded as a default.
    pub(super) fn field<T: Setting>(
        &mut self,
        key: &'static str,
        value: &mut T,
    ) -> Result<(), Error> {
        let Some(fields) = self.fields else {
            self.written.insert(key.to_owned(), value.write());
            return Ok(());
        };
        if fields.get(key).is_none() {
            self.absent.extend(value.shown().map(|value| (key, value)));
        }
        *value = value.read_key(fields, key)?;
        Ok(())
    }

    /// As [`Keys::field`], for a key whose absence, or `null`, means `default`: no default is recorded, and a value
    /// that equals it is not written.
    pub(super) fn optional<T: Setting>(
        &mut self,
        key: &'static str,
        value: &mut T,
        default: &T,
    ) -> Result<(), Error> {
        match self.fields {
            None if value == default => {}
            None => drop(self.written.insert(key.to_owned(), value.write())),
            Some(fields) if fields.present(key).is_none() => value.clone_from(default),
            Some(fields) => *value = default.read_key(fields, key)?,
        }
        Ok(())
    }

    /// Reads or writes a row of the table of search settings, as [`Keys::optional`] does.
    pub(super) fn setting(
        &mut self,
        setting: &search::Setting,
        settings: &mut Settings,
        default: &Settings,
    ) -> Result<(), Error> {
        let Some(key) = setting.key else { return Ok(()) };
        let Some(fields) = self.fields else {
            let value = setting.value(settings);
            if value != setting.value(default) {
                self.written.insert(key.to_owned(), value);
            }
            return Ok(());
        };
        let value = match fields.present(key) {
            Some(value) if value.as_f64().is_some_and(|x| setting.is_disabled_by(default, x)) => {
                Value::Null
            }
            Some(value) => value.clone(),
            None => setting.value(default),
        };
        setting.set_value(settings, &value).map_err(|(expected, found)| wrong(key, expected, found))
    }

    /// As [`Keys::field`]; a missing key is an error.
    pub(super) fn required<T: Setting>(
        &mut self,
        key: &'static str,
        value: &mut T,
    ) -> Result<(), Error> {
        match self.fields {
            Some(fields) if fields.get(key).is_none() => Err(missing_key(key)),
            _ => self.field(key, value),
        }
    }

    /// Reads a text and converts it, or writes the text of `value`; see [`Keys::field`].
    pub(super) fn text<T: PartialEq>(
        &mut self,
        key: &'static str,
        value: &mut T,
        name: impl Fn(&T) -> String,
        parse: impl Fn(&str) -> Result<T, Error>,
    ) -> Result<(), Error> {
        let mut text = name(value);
        self.field(key, &mut text)?;
        *value = parse(&text)?;
        Ok(())
    }

    /// Reads or writes one of `names`, each with its value; the first of several names of a value is written.
    pub(super) fn choice<T: Copy + PartialEq>(
        &mut self,
        key: &'static str,
        value: &mut T,
        names: &[(&'static str, T)],
        unknown: impl Fn(&str) -> Error,
    ) -> Result<(), Error> {
        let name = |value: &T| {
            let found = names.iter().find(|(_, named)| named == value);
            found.map_or("", |(name, _)| name).to_owned()
        };
        let parse = |text: &str| {
            let found = names.iter().find(|(name, _)| *name == text);
            found.map(|&(_, value)| value).ok_or_else(|| unknown(text))
        };
        self.text(key, value, name, parse)
    }

    pub(super) fn activation(
        &mut self,
        key: &'static str,
        value: &mut Activation,
    ) -> Result<(), Error> {
        self.choice(key, value, &ACTIVATIONS, unknown_activation(key))
    }

    /// The flag of an embedding scale: 1, or the square root of `d_model`.
    pub(super) fn scale(
        &mut self,
        key: &'static str,
        value: &mut f32,
        d_model: usize,
    ) -> Result<(), Error> {
        let mut scaled = *value != 1.0;
        self.field(key, &mut scaled)?;
        *value = scale(scaled, d_model);
        Ok(())
    }

    /// Writes a fixed value, or checks the value of the file with `check`.
    pub(super) fn fixed(
        &mut self,
        key: &'static str,
        value: Option<Value>,
        check: impl FnOnce(&Fields) -> Result<(), Error>,
    ) -> Result<(), Error> {
        match (self.fields, value) {
            (Some(fields), _) => check(fields)?,
            (None, Some(value)) => drop(self.written.insert(key.to_owned(), value)),
            (None, None) => {}
        }
        Ok(())
    }

    /// An encoder-decoder: `is_encoder_decoder` is not false.
    pub(super) fn encoder_decoder(&mut self) -> Result<(), Error> {
        const KEY: &str = IS_ENCODER_DECODER;
        self.fixed(KEY, Some(true.into()), |fields| match fields.flag(KEY, true)? {
            true => Ok(()),
            false => Err(not_encoder_decoder()),
        })
    }

    /// An error if the flag `key` requests an unsupported feature.
    pub(super) fn never(&mut self, key: &'static str, expected: &'static str) -> Result<(), Error> {
        self.fixed(key, None, |fields| match fields.flag_or_null(key, false)? {
            false => Ok(()),
            true => Err(Error::unsupported(key, expected, "true")),
        })
    }

    /// One id, a list of ids, or `null` for none.
    pub(super) fn ids(&mut self, key: &'static str, value: &mut Vec<u32>) -> Result<(), Error> {
        self.field(key, value)?;
        if let (&mut [id], Some(written)) = (&mut value[..], self.written.get_mut(key)) {
            *written = id.into();
        }
        Ok(())
    }

    /// The ids that a class never has by default.
    pub(super) fn forced_ids(&mut self, tokens: &mut SpecialTokens) -> Result<(), Error> {
        self.field("forced_bos_token_id", &mut tokens.forced_bos)?;
        self.ids("forced_eos_token_id", &mut tokens.forced_eos)
    }

    /// Whether this pass reads a file.
    pub(super) fn reads(&self) -> bool {
        self.fields.is_some()
    }
}

/// Implements [`Setting`]: how a value is read, how it is written, and how a default is shown.
macro_rules! setting {
    ($type:ty, |$value:ident, $fields:ident, $key:ident| $read:expr, $write:expr, $shown:expr) => {
        impl Setting for $type {
            fn read_key(&self, $fields: &Fields, $key: &'static str) -> Result<Self, Error> {
                let $value = self;
                let _ = $value;
                $read
            }

            fn write(&self) -> Value {
                let $value = self;
                $write
            }

            fn shown(&self) -> Option<String> {
                let $value = self;
                let _ = $value;
                $shown
            }
        }
    };
}
pub(super) use setting;

setting!(usize, |x, fields, key| fields.size(key, *x), (*x).into(), Some(x.to_string()));
setting!(bool, |x, fields, key| fields.flag(key, *x), (*x).into(), Some(x.to_string()));
setting!(f32, |x, fields, key| fields.number_or_null(key, *x), decimal(*x), Some(x.to_string()));
setting!(Option<usize>, |x, fields, key| fields.optional_size(key), (*x).into(), None);
setting!(Option<f32>, |x, fields, key| fields.optional_number(key), x.map(decimal).into(), None);
setting!(Option<u32>, |x, fields, key| fields.id(key, *x), (*x).into(), x.map(|id| id.to_string()));
setting!(
    Vec<u32>,
    |x, fields, key| fields.ids(key, x),
    x.clone().into(),
    x.first().map(u32::to_string)
);
setting!(
    String,
    |x, fields, key| Ok(fields.text(key)?.unwrap_or(x).to_owned()),
    x.clone().into(),
    Some(x.clone())
);
setting!(
    Option<String>,
    |x, fields, key| Ok(fields.text(key)?.map(str::to_owned)),
    x.clone().into(),
    None
);

/// The first position: the pad id plus one.
pub(super) fn after_pad(pad: Option<u32>) -> Result<usize, Error> {
    let expected = "a token id (positions are counted from it)";
    let pad = pad.ok_or_else(|| Error::corrupt("pad_token_id", expected, "null"))?;
    Ok(pad as usize + 1)
}

/// The square root is computed in double precision and rounded once, as in the libraries.
pub(super) fn scale(scaled: bool, d_model: usize) -> f32 {
    if scaled { (d_model as f64).sqrt() as f32 } else { 1.0 }
}
