//! The errors that tests expect.

use simdformer_kernels::{Error, Expected, ViewShape};

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

/// A dense matrix of so many elements, in a slice that is too short.
pub const fn short_matrix(shape: [usize; 2], expected: usize, found: usize) -> Error {
    let view = ViewShape::Matrix { shape, strides: [shape[1], 1] };
    Error::ShortView { view, expected, found }
}

pub const fn overlap(axes: &'static str, strides: [usize; 2]) -> Error {
    Error::Overlap { axes, strides }
}

/// Whether a call was refused because the slice of a view has `found` elements and not `expected`.
pub fn is_short_view(error: Option<Error>, expected: usize, found: usize) -> bool {
    matches!(error, Some(Error::ShortView { expected: e, found: f, .. }) if (e, f) == (expected, found))
}

/// Whether a call was refused because the size of a view overflows.
pub const fn is_large_view(error: Option<Error>) -> bool {
    matches!(error, Some(Error::ShortView { expected: usize::MAX, .. }))
}
