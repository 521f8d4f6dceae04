//! The error of every kernel.

use crate::dtype::Dtype;
use core::fmt;

/// Why a call was rejected. Nothing has been written, unless the function documents something else.
///
/// All functions of this crate return this type, so a layer of several kernels needs no conversion:
///
/// ```
/// use simdformer_kernels::norm::{LayerNorm, Norm, NormInput, norm};
/// use simdformer_kernels::{
///     Epilogue, Error, Exec, Isa, Matrix, MatrixMut, PackedMatrix, Parallelism, gemm,
/// };
///
/// fn project_and_norm(
///     x: Matrix<'_>, w: &PackedMatrix<'_>, layer: LayerNorm<'_>, h: &mut [f32], y: MatrixMut<'_>,
/// ) -> Result<(), Error> {
///     let (rows, columns, serial) = (x.rows(), w.columns(), Parallelism::Serial);
///     gemm(x, w, &Epilogue::default(), MatrixMut::new(h, rows, columns)?, serial)?;
///     let input = NormInput::Matrix(Matrix::new(h, rows, columns)?);
///     norm(Exec::serial(w.isa()), Norm::Layer(layer), input, y)
/// }
///
/// let (weight, mut h, mut y) = ([1.0; 6], [0.0; 3], [0.0; 3]); // The weight is [in 2, out 3].
/// let mut buffer = [0.0; 2 * 64];
/// let w = PackedMatrix::pack(Isa::best(), Matrix::new(&weight, 2, 3)?, &mut buffer)?;
/// let layer = LayerNorm { weight: &[1.0; 2], bias: None, eps: 1e-5 };
/// let y = MatrixMut::new(&mut y, 1, 3)?;
/// let x = Matrix::new(&[1.0, 2.0], 1, 2)?;
/// let error = project_and_norm(x, &w, layer, &mut h, y).unwrap_err();
/// assert_eq!(error.to_string(), "length of weight: expected 3, found 2");
/// # Ok::<(), Error>(())
/// ```
#[derive(Clone, Copy, Debug, PartialEq)]
#[non_exhaustive]
pub enum Error {
    /// A matrix has another shape `[rows, columns]` than the other operands need.
    Shape {
        /// Name of the operand.
        operand: &'static str,
        /// Rows and columns that the other operands need.
        expected: [usize; 2],
        /// Rows and columns of the operand.
        found: [usize; 2],
    },
    /// A tensor has another shape `[tokens, heads, head_dim]` than the other operands need.
    HeadsShape {
        /// Name of the operand.
        operand: &'static str,
        /// Tokens, heads and head size that the other operands need.
        expected: [usize; 3],
        /// Tokens, heads and head size of the operand.
        found: [usize; 3],
    },
    /// A number of an operand does not fit: a length, a stride, a number of rows, or an id or a position in it.
    Size {
        /// The property: `"length"`, `"columns"`, `"id"`.
        property: &'static str,
        /// Name of the operand.
        operand: &'static str,
        /// Which of several: the row, the token or the sequence.
        index: Option<usize>,
        /// What the call needs.
        expected: Expected,
        /// The number found.
        found: usize,
    },
    /// An option or a parameter is outside its range.
    Setting {
        /// Name of the option.
        name: &'static str,
        /// The valid range.
        expected: &'static str,
        /// The value found.
        found: f64,
    },
    /// The slice of a view is shorter than its shape and its strides need.
    ShortView {
        /// The view that was to be made.
        view: ViewShape,
        /// Elements that the slice must have; `usize::MAX` if the shape times the strides overflows.
        expected: usize,
        /// Elements of the slice.
        found: usize,
    },
    /// Two elements of a writable view would be the same memory.
    Overlap {
        /// The two axes: `"row and column"` or `"token and head"`.
        axes: &'static str,
        /// The stride along each axis.
        strides: [usize; 2],
    },
    /// A finite value would round to infinity in a 16-bit dtype.
    ValueTooLarge {
        /// The dtype.
        dtype: Dtype,
        /// Row and column of the value in the packed matrix.
        at: [usize; 2],
        /// The value.
        found: f32,
    },
    /// The operand cannot have this dtype, or this build has no kernels for the operation.
    Unsupported {
        /// Name of the operand.
        operand: &'static str,
        /// The dtypes that it can have, or the feature of this crate that adds the kernels, `f16` or `int8`.
        expected: &'static str,
        /// What was found.
        found: &'static str,
    },
    /// The size of an operand overflows.
    TooLarge {
        /// Name of the operand.
        operand: &'static str,
    },
    /// No instruction set has this name, or this CPU or its operating system lacks it.
    UnsupportedIsa {
        /// The valid names.
        expected: &'static [&'static str],
        /// The best set of this machine, if it lacks the set; `None` if no set has the name.
        best: Option<&'static str>,
        /// The name, cut to [`FoundName::LEN`] bytes.
        found: FoundName,
    },
}

/// The shape and the strides of a view that could not be made, in [`Error::ShortView`]: with several
/// operands they say which one it is. A size that overflows is `usize::MAX`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum ViewShape {
    /// A [`Matrix`](crate::Matrix), a [`MatrixMut`](crate::MatrixMut), or a [`PackSource`](crate::PackSource).
    Matrix {
        /// Rows and columns.
        shape: [usize; 2],
        /// Elements from one row to the next, and from one column to the next.
        strides: [usize; 2],
    },
    /// A [`Heads`](crate::Heads), a [`HeadsMut`](crate::HeadsMut), or parts of a fused tensor.
    Heads {
        /// Tokens, heads and head size.
        shape: [usize; 3],
        /// Elements from one token to the next, and from one head to the next.
        strides: [usize; 2],
    },
}

impl fmt::Display for ViewShape {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let [first, second] = match self {
            Self::Matrix { shape, strides } => {
                write!(f, "a matrix {shape:?}")?;
                strides
            }
            Self::Heads { shape, strides } => {
                write!(f, "heads {shape:?}")?;
                strides
            }
        };
        write!(f, " with strides {first} and {second}")
    }
}

/// A condition on a number, in [`Error::Size`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Expected {
    /// This number.
    Exactly(usize),
    /// This number or more.
    AtLeast(usize),
    /// This number or less.
    AtMost(usize),
    /// A smaller number: an index of so many.
    Below(usize),
    /// A multiple of this number.
    MultipleOf(usize),
}

impl Expected {
    fn accepts(self, found: usize) -> bool {
        match self {
            Self::Exactly(n) => found == n,
            Self::AtLeast(n) => found >= n,
            Self::AtMost(n) => found <= n,
            Self::Below(n) => found < n,
            Self::MultipleOf(n) => n > 0 && found.is_multiple_of(n),
        }
    }
}

impl Error {
    /// `Err` unless `property` of `operand` is as expected.
    #[inline]
    pub(crate) fn check_size(
        property: &'static str,
        operand: &'static str,
        expected: Expected,
        found: usize,
    ) -> Result<(), Self> {
        Self::check_item(property, operand, None, expected, found)
    }

    /// [`Error::check_size`] for an item of an operand.
    #[inline]
    pub(crate) fn check_item(
        property: &'static str,
        operand: &'static str,
        index: Option<usize>,
        expected: Expected,
        found: usize,
    ) -> Result<(), Self> {
        if expected.accepts(found) {
            Ok(())
        } else {
            Err(Self::Size { property, operand, index, expected, found })
        }
    }

    /// `Err` unless `count` items from `first` on end at or before `limit`. The item with this end is `index` of
    /// `operand`.
    #[inline]
    pub(crate) fn check_end(
        property: &'static str,
        operand: &'static str,
        index: Option<usize>,
        (first, count): (usize, usize),
        limit: usize,
    ) -> Result<(), Self> {
        // An end that overflows is not at or before a limit of `usize::MAX` either.
        match first.checked_add(count) {
            Some(end) if end <= limit => Ok(()),
            end => Err(Self::Size {
                property,
                operand,
                index,
                expected: Expected::AtMost(limit),
                found: end.unwrap_or(usize::MAX),
            }),
        }
    }

    /// `Err` unless a slice has `expected` elements.
    #[inline]
    pub(crate) fn check_len<T>(
        operand: &'static str,
        expected: usize,
        found: &[T],
    ) -> Result<(), Self> {
        Self::check_size("length", operand, Expected::Exactly(expected), found.len())
    }

    /// `Err` unless a slice has at least `expected` elements.
    #[inline]
    pub(crate) fn check_min_len<T>(
        operand: &'static str,
        expected: usize,
        found: &[T],
    ) -> Result<(), Self> {
        Self::check_size("length", operand, Expected::AtLeast(expected), found.len())
    }

    /// This build has no kernels for bf16 and f16.
    pub(crate) const NO_F16: Self = Self::no_feature("the feature `f16`");
    /// This build has no kernels for int8.
    pub(crate) const NO_INT8: Self = Self::no_feature("the feature `int8`");

    const fn no_feature(expected: &'static str) -> Self {
        Self::Unsupported { operand: "the build of simdformer-kernels", expected, found: "none" }
    }

    /// `Err` unless a slice has the `expected` elements of `view`, or more; `None` if their number overflows.
    #[inline]
    pub(crate) fn check_view<T>(
        view: ViewShape,
        expected: Option<usize>,
        found: &[T],
    ) -> Result<(), Self> {
        let (expected, found) = (expected.unwrap_or(usize::MAX), found.len());
        if found >= expected { Ok(()) } else { Err(Self::ShortView { view, expected, found }) }
    }

    /// `Err` for the first of `found` that is not below `limit`.
    pub(crate) fn check_indices(
        property: &'static str,
        operand: &'static str,
        limit: usize,
        found: &[u32],
    ) -> Result<(), Self> {
        let outside = |&(_, &index): &(usize, &u32)| index as usize >= limit;
        found.iter().enumerate().find(outside).map_or(Ok(()), |(at, &found)| {
            let found = found as usize;
            Self::check_item(property, operand, Some(at), Expected::Below(limit), found)
        })
    }

    /// `Err` unless `fits`.
    #[inline]
    pub(crate) fn check_setting(
        name: &'static str,
        found: f64,
        fits: bool,
        expected: &'static str,
    ) -> Result<(), Self> {
        if fits { Ok(()) } else { Err(Self::Setting { name, expected, found }) }
    }
}

impl fmt::Display for Expected {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Exactly(n) => write!(f, "{n}"),
            Self::AtLeast(n) => write!(f, "at least {n}"),
            Self::AtMost(n) => write!(f, "at most {n}"),
            Self::Below(n) => write!(f, "less than {n}"),
            Self::MultipleOf(n) => write!(f, "a multiple of {n}"),
        }
    }
}

impl fmt::Display for Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match *self {
            Self::Shape { operand, expected: [rows, columns], found } => {
                write!(f, "shape of {operand}: expected {:?}, found {found:?}", [rows, columns])?;
                if found != [columns, rows] {
                    return Ok(());
                }
                f.write_str("; the axes are swapped: call `transposed()` on its matrix")
            }
            Self::HeadsShape { operand, expected, found } => {
                write!(f, "shape of {operand}: expected {expected:?}, found {found:?}")
            }
            Self::Size { property, operand, index, expected, found } => {
                write!(f, "{property} of {operand}")?;
                index.map_or(Ok(()), |index| write!(f, " {index}"))?;
                write!(f, ": expected {expected}, found {found}")
            }
            Self::Setting { name, expected, found } => {
                write!(f, "{name}: expected {expected}, found ")?;
                // An f32 setting is shown with the digits of an f32.
                let short = found as f32;
                if f64::from(short) == found { write!(f, "{short}") } else { write!(f, "{found}") }
            }
            Self::ShortView { view, expected: usize::MAX, .. } => {
                write!(f, "the size of {view} overflows")
            }
            Self::ShortView { view, expected, found } => {
                write!(f, "slice of {view}: expected at least {expected} elements, found {found}")
            }
            Self::Overlap { axes, strides: [first, second] } => write!(
                f,
                "{axes} strides of a writable view: expected distinct elements, found {first} and {second}"
            ),
            Self::ValueTooLarge { dtype, at: [row, column], found } => write!(
                f,
                "row {row}, column {column} of the weight: expected at most {:e} for {dtype:?}, found {found:e}",
                dtype.largest()
            ),
            Self::Unsupported { operand, expected, found } => {
                write!(f, "{operand}: expected {expected}, found {found}")
            }
            Self::TooLarge { operand } => write!(f, "the size of {operand} overflows"),
            Self::UnsupportedIsa { expected, best: None, found } => {
                write!(f, "unknown instruction set {found}: expected one of {expected:?}")
            }
            Self::UnsupportedIsa { best: Some(best), found, .. } => {
                let name = found.as_str();
                write!(f, "this machine has no {name}: its best instruction set is {best}")
            }
        }
    }
}

impl core::error::Error for Error {}

/// The first [`FoundName::LEN`] bytes of an unknown name, stored without an allocator.
#[derive(Clone, Copy, PartialEq, Eq)]
pub struct FoundName {
    bytes: [u8; Self::LEN],
    len: u8,
    whole: bool,
}

impl FoundName {
    /// The largest number of bytes stored.
    pub const LEN: usize = 30;

    pub(crate) fn from_name(name: &str) -> Self {
        let mut len = name.len().min(Self::LEN);
        while !name.is_char_boundary(len) {
            len -= 1;
        }
        let mut bytes = [0; Self::LEN];
        bytes[..len].copy_from_slice(&name.as_bytes()[..len]);
        Self { bytes, len: len as u8, whole: len == name.len() }
    }

    /// The name, or its beginning.
    pub fn as_str(&self) -> &str {
        // The name is cut at a character boundary.
        core::str::from_utf8(&self.bytes[..usize::from(self.len)]).unwrap_or_default()
    }
}

/// In quotes, followed by dots if the name was cut.
impl fmt::Display for FoundName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:?}{}", self.as_str(), if self.whole { "" } else { "..." })
    }
}

impl fmt::Debug for FoundName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}
