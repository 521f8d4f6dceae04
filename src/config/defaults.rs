//! Defaults used for settings that a file does not contain.

use core::fmt;

/// A key that a `config.json` does not contain, and the default used for it: that of transformers'
/// configuration class.
///
/// Older versions of `save_pretrained` omit values that equal the default, so a missing key is not an error.
/// But a hand-written file may lack one by accident, and 16 heads instead of a model's 4 generate fluent but
/// wrong text. A program can therefore print the defaults used. See
/// [`Config::defaults`](super::Config::defaults).
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Defaulted {
    /// The key in the spelling of `config.json` or `generation_config.json`.
    pub key: &'static str,
    /// The default as JSON, but a string without quotes.
    pub value: String,
}

impl fmt::Display for Defaulted {
    /// `key = value`.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} = {}", self.key, self.value)
    }
}
