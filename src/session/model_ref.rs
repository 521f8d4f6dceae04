//! The model of a session: borrowed or shared.

use crate::model::Model;
use core::ops::Deref;
use std::sync::Arc;

/// A reference to a model, or an `Arc` of it.
///
/// Functions that create a session accept both. With `&model` the session borrows the model. With an `Arc` it borrows
/// nothing and can move to another thread. An example is at [`Session::new`](crate::Session::new).
#[derive(Clone, Debug)]
pub enum ModelRef<'a> {
    /// Borrowed.
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
