//! A tokenizer that is borrowed or shared.

use crate::Tokenizer;
use std::ops::Deref;
use std::sync::Arc;

/// A reference to a tokenizer, or an `Arc` of it, as `ModelRef` is one to a model.
#[derive(Clone, Debug)]
pub enum TokenizerRef<'a> {
    /// Borrowed.
    Borrowed(&'a Tokenizer),
    /// Shared.
    Shared(Arc<Tokenizer>),
}

impl Deref for TokenizerRef<'_> {
    type Target = Tokenizer;

    fn deref(&self) -> &Tokenizer {
        match self {
            Self::Borrowed(tokenizer) => tokenizer,
            Self::Shared(tokenizer) => tokenizer,
        }
    }
}

impl<'a> From<&'a Tokenizer> for TokenizerRef<'a> {
    fn from(tokenizer: &'a Tokenizer) -> Self {
        Self::Borrowed(tokenizer)
    }
}

impl From<Arc<Tokenizer>> for TokenizerRef<'_> {
    fn from(tokenizer: Arc<Tokenizer>) -> Self {
        Self::Shared(tokenizer)
    }
}
