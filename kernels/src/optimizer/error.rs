//! Why an update could not run.

use core::fmt;

/// Why an update could not run. Nothing was written.
#[derive(Clone, Copy, Debug, PartialEq)]
#[non_exhaustive]
pub enum OptimizerError {
    /// A slice has another length than the parameters.
    Length {
        /// Which slice.
        name: &'static str,
        /// Parameters.
        expected: usize,
        /// Its length.
        found: usize,
    },
    /// There is not enough scratch.
    Scratch {
        /// Numbers that are needed.
        expected: usize,
        /// Numbers given.
        found: usize,
    },
    /// A setting is out of its range.
    Setting {
        /// Which one.
        name: &'static str,
        /// What it should be.
        expected: &'static str,
        /// What it is.
        found: f64,
    },
    /// There is nothing to take the average of.
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

/// `found` if it is in range.
pub(super) fn setting(
    name: &'static str,
    found: f64,
    fits: bool,
    expected: &'static str,
) -> Result<(), OptimizerError> {
    if fits { Ok(()) } else { Err(OptimizerError::Setting { name, expected, found }) }
}

/// A slice as long as the parameters.
pub(super) const fn length(
    name: &'static str,
    expected: usize,
    found: usize,
) -> Result<(), OptimizerError> {
    if found == expected { Ok(()) } else { Err(OptimizerError::Length { name, expected, found }) }
}
