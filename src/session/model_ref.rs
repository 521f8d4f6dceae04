//! A session's model: somebody else's, or shared.

use crate::model::Model;
use core::ops::Deref;
use std::sync::Arc;

/// A model by reference, or a share of it.
///
/// Whatever takes a model for a session takes either: with `&model` the session borrows it, with an
/// `Arc` it owns a share, borrows nothing and can move to another thread. An example is at
/// [`Session::new`](crate::Session::new).
#[derive(Clone, Debug)]
pub enum ModelRef<'a> {
    /// Somebody else's.
    Borrowed(&'a Model),
    /// Shared.
    Shared(Arc<Model>),
}

impl Deref for ModelRef<'_> {
    type Target = Model;

    fn deref(&self) -> &Model {
        match self {
            Self::Borrowed(model) => model,
            Self::Shared(model) => model,
        }
    }
}

impl<'a> From<&'a Model> for ModelRef<'a> {
    fn from(model: &'a Model) -> Self {
        Self::Borrowed(model)
    }
}

impl From<Arc<Model>> for ModelRef<'_> {
    fn from(model: Arc<Model>) -> Self {
        Self::Shared(model)
    }
}

impl From<&Arc<Model>> for ModelRef<'_> {
    fn from(model: &Arc<Model>) -> Self {
        Self::Shared(Arc::clone(model))
    }
}
