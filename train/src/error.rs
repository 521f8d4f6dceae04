//! Where the errors of this crate are made. They are those of `simdformer`, because a run reports what its trainer reports.

pub use simdformer::Error;

use simdformer::checkpoint::TensorId;
use std::io;
use std::path::Path;
use std::sync::Arc;

/// A file contradicts its format or another file.
pub(crate) fn corrupt(
    operand: impl Into<String>,
    expected: impl Into<String>,
    found: impl Into<String>,
) -> Error {
    let [operand, expected, found] = [operand.into(), expected.into(), found.into()];
    Error::Corrupt { operand: operand.into(), expected: expected.into(), found: found.into() }
}

/// A directory belongs to something else.
pub(crate) fn conflict(
    operand: impl Into<String>,
    expected: impl Into<String>,
    found: impl Into<String>,
) -> Error {
    let [operand, expected, found] = [operand.into(), expected.into(), found.into()];
    Error::Conflict { operand: operand.into(), expected: expected.into(), found: found.into() }
}

/// An option is outside of its range.
pub(crate) fn invalid_option(
    operand: &'static str,
    expected: &'static str,
    found: impl Into<String>,
) -> Error {
    let (operand, expected, found) = (operand.into(), expected.into(), found.into().into());
    Error::InvalidOption { index: None, operand, expected, found }
}

/// The error of reading `path`.
pub(crate) fn unreadable(path: &Path) -> impl FnOnce(io::Error) -> Error {
    of_system("read", path)
}

/// The error of writing `path`.
pub(crate) fn unwritable(path: &Path) -> impl FnOnce(io::Error) -> Error {
    of_system("written", path)
}

fn of_system(action: &'static str, path: &Path) -> impl FnOnce(io::Error) -> Error {
    let path = path.display().to_string().into();
    move |error| Error::Io { action, path, error: Arc::new(error) }
}

/// Saved numbers of another model: the tensor of `role` has another length or is missing.
pub(crate) fn wrong_state(role: TensorId, expected: usize, found: usize) -> Error {
    corrupt(format!("saved state of {role}"), format!("{expected} numbers"), found.to_string())
}

/// A corpus has no sentence for training; `too_long` sentences were left out.
pub(crate) fn no_sentences(file: &str, too_long: u64) -> Error {
    match too_long {
        0 => corrupt(file, "a sentence", "none"),
        _ => {
            let found = format!("none: all {too_long} are too long");
            corrupt(file, "a sentence to learn from", found)
        }
    }
}

/// A saved run used another value of `setting`, so it cannot be resumed with the same bits.
pub(crate) fn other_run(file: String, setting: &str, expected: &str, found: &str) -> Error {
    let expected = format!("the {setting} of the run that saved it, {expected}");
    conflict(file, expected, format!("another {setting}, {found}"))
}
