//! Errors that several parts of a search make.

use crate::error::{Error, ErrorValue};

/// The option `setting` is `found`, and the limit of this name and value allows at most `most`.
pub(super) fn beyond(
    setting: &'static str,
    limit: (&'static str, usize),
    most: usize,
    found: usize,
) -> Error {
    let (limit, expected) = (Some(limit), ErrorValue::at_most(most));
    Error::BeyondLimit { index: None, operand: setting, limit, expected, found }
}

/// The slice of this name has another length.
pub(super) fn wrong_length(slice: &'static str, expected: usize, found: usize) -> Error {
    Error::invalid_input(slice, ErrorValue::new(&"length {}", [expected, 0]), found)
}

/// The memory of this name has fewer words of 4 bytes.
pub(super) fn too_few_words(operand: &'static str, expected: usize, found: usize) -> Error {
    Error::invalid_input(operand, ErrorValue::new(&"{} words", [expected, 0]), found)
}

/// The sentence in slot `found` is not as `expected`.
pub(super) const fn wrong_state(expected: &'static str, found: u32) -> Error {
    Error::InvalidHandle { operand: "sentence", expected, found, state: "is not" }
}
