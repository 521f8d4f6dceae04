//! Errors of the optimizer.

use core::fmt;

/// Why an update cannot run. Nothing is written.
#[derive(Clone, Copy, Debug, PartialEq)]
#[non_exhaustive]
pub enum OptimizerError {
    /// A slice differs in length from the parameters.
    Length {
        /// Name of the slice.
        name: &'static str,
        /// Number of parameters.
        expected: usize,
        /// Length of the slice.
        found: usize,
    },
    /// The scratch is too short.
    Scratch {
        /// Numbers needed.
        expected: usize,
        /// Numbers given.
        found: usize,
    },
    /// A setting is not in its range.
    Setting {
        /// Name of the setting.
        name: &'static str,
        /// The valid range, as text.
        expected: &'static str,
        /// The value given.
        found: f64,
    },
    /// There is no vector to average.
    Nothing,
}

impl fmt::Display for OptimizerError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Length { name, expected, found } => {
                write!(f, "{name} should have {expected} elements, found {found}")
            }
            Self::Scratch { expected, found } => {
                write!(f, "the scratch should have {expected} numbers, found {found}")
            }
            Self::Setting { name, expected, found } => {
                write!(f, "{name} should be {expected}, found {found}")
            }
            Self::Nothing => f.write_str("an average is of one vector at least, found none"),
        }
    }
}

impl core::error::Error for OptimizerError {}

/// Returns an error unless the setting is in its range (`fits`).
pub(super) fn setting(
    name: &'static str,
    found: f64,
    fits: bool,
    expected: &'static str,
) -> Result<(), OptimizerError> {
    if fits { Ok(()) } else { Err(OptimizerError::Setting { name, expected, found }) }
}

/// Checks that a slice is as long as the parameters.
pub(super) const fn length(
    name: &'static str,
    expected: usize,
    found: usize,
) -> Result<(), OptimizerError> {
    if found == expected { Ok(()) } else { Err(OptimizerError::Length { name, expected, found }) }
}
