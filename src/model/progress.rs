//! Progress of reading a checkpoint.

use core::ops::ControlFlow;

/// Progress of loading, which [`crate::Model::load_with`] reports after every few rows.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Loading<'t> {
    /// The tensor whose rows were just stored, by its name in the checkpoint.
    pub tensor: &'t str,
    /// Bytes of the checkpoint that have been read. Never decreases.
    pub done: u64,
    /// Total bytes to read. A tensor that is stored twice is read twice.
    pub total: u64,
}

/// The result of a callback: `()` to continue, or a [`ControlFlow`], whose `Break` stops the operation.
pub trait IntoControlFlow<S> {
    /// Whether to continue.
    fn answer(self) -> ControlFlow<S>;
}

impl<S> IntoControlFlow<S> for () {
    fn answer(self) -> ControlFlow<S> {
        ControlFlow::Continue(())
    }
}

impl<S> IntoControlFlow<S> for ControlFlow<S> {
    fn answer(self) -> ControlFlow<S> {
        self
    }
}

/// The progress callback with a uniform result.
pub(crate) type OnLoading<'c> = dyn FnMut(Loading<'_>) -> ControlFlow<()> + 'c;
