//! The errors that tests expect.

use simdformer_kernels::{Error, Expected};

pub const fn size(
    property: &'static str,
    operand: &'static str,
    expected: Expected,
    found: usize,
) -> Error {
    Error::Size { property, operand, index: None, expected, found }
}

/// Of one of several: a row, a token, a sequence.
pub const fn item(
    property: &'static str,
    (operand, index): (&'static str, usize),
    expected: Expected,
    found: usize,
) -> Error {
    Error::Size { property, operand, index: Some(index), expected, found }
}

/// A slice that must have `expected` elements.
pub const fn len(operand: &'static str, expected: usize, found: usize) -> Error {
    size("length", operand, Expected::Exactly(expected), found)
}

/// A slice that must have `expected` elements or more.
pub const fn min_len(operand: &'static str, expected: usize, found: usize) -> Error {
    size("length", operand, Expected::AtLeast(expected), found)
}

/// A matrix whose rows must be contiguous.
pub const fn strided(operand: &'static str, stride: usize) -> Error {
    size("column stride", operand, Expected::Exactly(1), stride)
}

pub const fn shape(operand: &'static str, expected: [usize; 2], found: [usize; 2]) -> Error {
    Error::Shape { operand, expected, found }
}

pub const fn heads(operand: &'static str, expected: [usize; 3], found: [usize; 3]) -> Error {
    Error::HeadsShape { operand, expected, found }
}

pub const fn too_large(operand: &'static str) -> Error {
    Error::TooLarge { operand }
}
