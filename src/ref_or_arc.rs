//! [`RefOrArc`]: a value that is borrowed, or shared.

use core::ops::Deref;
use std::sync::Arc;

/// A reference to a value, or an `Arc` of it: a model, or the options of a search.
///
/// Functions that keep the value accept both. With a reference, what they return borrows the value. With an `Arc` it
/// borrows nothing and can move to another thread. An example is at [`Session::new`](crate::Session::new).
#[derive(Debug)]
pub enum RefOrArc<'a, T> {
    /// Borrowed.
    Borrowed(&'a T),
    /// Shared.
    Shared(Arc<T>),
}

impl<T> Clone for RefOrArc<'_, T> {
    fn clone(&self) -> Self {
        match self {
            Self::Borrowed(value) => Self::Borrowed(value),
            Self::Shared(value) => Self::Shared(Arc::clone(value)),
        }
    }
}

impl<T> Deref for RefOrArc<'_, T> {
    type Target = T;

    fn deref(&self) -> &T {
        match self {
            Self::Borrowed(value) => value,
            Self::Shared(value) => value,
        }
    }
}

impl<'a, T> From<&'a T> for RefOrArc<'a, T> {
    fn from(value: &'a T) -> Self {
        Self::Borrowed(value)
    }
}

impl<T> From<Arc<T>> for RefOrArc<'_, T> {
    fn from(value: Arc<T>) -> Self {
        Self::Shared(value)
    }
}

impl<T> From<&Arc<T>> for RefOrArc<'_, T> {
    fn from(value: &Arc<T>) -> Self {
        Self::Shared(Arc::clone(value))
    }
}
