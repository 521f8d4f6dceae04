//! Errors that several files of training report.

use crate::error::Error;
use crate::network::TensorId;
use std::io;
use std::path::Path;

/// The error of reading `path`.
pub(super) fn unreadable(path: &Path) -> impl FnOnce(io::Error) -> Error {
    move |error| Error::unreadable(path.display().to_string(), error)
}

/// The error of writing `path`.
pub(super) fn unwritable(path: &Path) -> impl FnOnce(io::Error) -> Error {
    move |error| Error::unwritable(path.display().to_string(), error)
}

/// The model has no decoder, so the caller computes the loss: [`Trainer::accumulate_with`](super::Trainer::accumulate_with).
pub(super) fn no_decoder() -> Error {
    let expected = "one with a decoder; one without a decoder learns from a loss of the caller's";
    Error::invalid_input("the model", expected, "no decoder")
}

/// Saved state of another model: the tensor of `role` has another length or is missing.
pub(super) fn wrong_state(role: TensorId, expected: usize, found: usize) -> Error {
    let operand = format!("saved state of {role}");
    Error::corrupt(operand, format!("{expected} numbers"), found.to_string())
}

/// A corpus has no sentence for training; `too_long` sentences were left out.
pub(super) fn no_sentences(file: &str, too_long: u64) -> Error {
    match too_long {
        0 => Error::corrupt(file, "a sentence", "none"),
        _ => {
            let found = format!("none: all {too_long} are too long");
            Error::corrupt(file, "a sentence to learn from", found)
        }
    }
}

/// A saved run used another value of `setting`, so it cannot be resumed with the same bits.
pub(super) fn other_run(file: String, setting: &str, expected: &str, found: &str) -> Error {
    let expected = format!("the {setting} of the run that saved it, {expected}");
    Error::conflict(file, expected, format!("another {setting}, {found}"))
}
