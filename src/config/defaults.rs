//! What a file left open, and what was taken for it.

use core::fmt;

/// A key that a `config.json` does not have, and the value that was taken for it: that of transformers' own
/// configuration class.
///
/// Older versions of `save_pretrained` leave out whatever equals the default, so an absent key is no mistake. A file that
/// was written by hand may lack one by accident, and 16 heads where a model has 4 give fluent nonsense: so whoever loads
/// a model can print what was assumed. See [`Config::defaults`](super::Config::defaults).
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Defaulted {
    /// The key as `config.json` or `generation_config.json` spells it.
    pub key: &'static str,
    /// The value that was taken, as JSON would have it but for the quotes of a text.
    pub value: String,
}

impl fmt::Display for Defaulted {
    /// `key = value`.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} = {}", self.key, self.value)
    }
}
