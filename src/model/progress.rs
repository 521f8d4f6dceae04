//! How far a checkpoint has been read.

use core::ops::ControlFlow;

/// How far loading has come: what [`crate::Model::load_with`] tells its caller after every few rows.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Loading<'t> {
    /// The tensor of which some rows, or the last, have just been stored; as the checkpoint spells it.
    pub tensor: &'t str,
    /// Bytes of the checkpoint that have been read. They only grow.
    pub done: u64,
    /// Bytes that will have been read in the end. A tensor that is stored in two forms is read twice.
    pub total: u64,
}

/// What a callback returns: nothing, which goes on, or a [`ControlFlow`], whose `Break` says what is to stop.
pub trait IntoControlFlow<S> {
    /// Whether to go on.
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

/// The callback for progress, whatever it returns.
pub(crate) type OnLoading<'c> = dyn FnMut(Loading<'_>) -> ControlFlow<()> + 'c;
