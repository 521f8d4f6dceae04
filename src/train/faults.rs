//! Errors that several files of training report.

use crate::error::Error;

/// The model has no decoder, so the caller computes the loss: [`Trainer::accumulate_with`](super::Trainer::accumulate_with).
pub(super) fn no_decoder() -> Error {
    let expected = "one with a decoder; one without a decoder learns from a loss of the caller's";
    Error::invalid_input("the model", expected, "no decoder")
}
