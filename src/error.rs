//! The error of this crate: few kinds that a caller can act on, each with the operand, what was expected and what was
//! found.

use crate::memory::MemoryError;
use core::fmt;
use simdformer_kernels::{Error as KernelError, ISA_VARIABLE};
use std::borrow::Cow;
use std::io;

/// Why a call failed. Nothing has been written, unless the function documents something else.
///
/// Each text is one sentence: the operand, what was expected and what was found. The operand of an error in a file
/// begins with the path of the file (`"memory"` for bytes and tensors in memory). Long names from a file are shortened,
/// and their control characters are escaped.
///
/// ```
/// use simdformer::{Error, Model};
///
/// let error = Model::open("no/such/directory").unwrap_err();
/// assert!(matches!(&error, Error::NotFound { operand, .. } if **operand == *"no/such/directory"));
/// let text = "no/such/directory: expected a checkpoint directory, found no such directory";
/// assert_eq!(error.to_string(), text);
/// ```
#[derive(Debug)]
#[non_exhaustive]
pub enum Error {
    /// A file or a directory does not exist, or is of another kind, for example a file where a directory is needed.
    NotFound {
        /// Its path.
        operand: Box<str>,
        /// What should be there.
        expected: Box<str>,
        /// What is there.
        found: Box<str>,
    },
    /// A valid file, architecture, dtype or instruction set that this build or this machine does not support.
    Unsupported {
        /// The file, the tensor or the setting.
        operand: Box<str>,
        /// What is supported.
        expected: Box<str>,
        /// What was found, and how to get something supported.
        found: Box<str>,
    },
    /// A file is damaged, or contradicts its format, its configuration or another file.
    Corrupt {
        /// The file, and the tensor, the key or the line in it.
        operand: Box<str>,
        /// What the format, the configuration or the other file needs.
        expected: Box<str>,
        /// What was found.
        found: Box<str>,
    },
    /// A valid file or directory belongs to something else: weights that were packed for another model, other dtypes or
    /// another instruction set, or the checkpoints of another training run.
    Conflict {
        /// The file or the directory.
        operand: Box<str>,
        /// What this call needs.
        expected: Box<str>,
        /// What was found, and what can be done.
        found: Box<str>,
    },
    /// An option or a number of a configuration is outside its range.
    InvalidOption {
        /// Its name.
        operand: Box<str>,
        /// The valid values.
        expected: Box<str>,
        /// Its value.
        found: Box<str>,
    },
    /// An argument that does not fit the model or the other arguments, or a call at the wrong time.
    InvalidInput {
        /// Which sentence of a batch, from 0.
        index: Option<usize>,
        /// The argument.
        operand: Box<str>,
        /// What the call needs.
        expected: Box<str>,
        /// What was found.
        found: Box<str>,
    },
    /// A number is NaN or infinite (in an output bias: NaN or plus infinity).
    NotFinite {
        /// The tensor, with the path of its file.
        operand: Box<str>,
        /// Row-major index in the whole tensor, if it is known.
        index: Option<usize>,
        /// The number.
        found: f32,
    },
    /// The operating system cannot read or write a file, or the file became shorter during reading.
    Io {
        /// `"read"`, `"written"` or another participle.
        action: &'static str,
        /// The file or the directory.
        path: Box<str>,
        /// The error of the operating system.
        error: io::Error,
    },
    /// The system cannot allocate the memory.
    OutOfMemory {
        /// For what.
        operand: Cow<'static, str>,
        /// Bytes requested. `None`: more than the address space has.
        bytes: Option<usize>,
    },
    /// A callback or a flag of the caller ended the call.
    Cancelled {
        /// Bytes that were read, and the total number of bytes.
        progress: [u64; 2],
    },
    /// A function of the caller failed.
    Caller {
        /// What the function was to do.
        operand: Box<str>,
        /// Its error.
        error: Box<dyn core::error::Error + Send + Sync>,
    },
    /// A kernel rejected its operands: a bug in this crate.
    Kernel(KernelError),
}

/// An error is passed on by many calls, so it stays small.
const _: () = assert!(size_of::<Error>() <= 72);

/// Where an error is made, in an order that reads as its text does.
impl Error {
    pub(crate) fn not_found(
        operand: impl Into<Box<str>>,
        expected: impl Into<Box<str>>,
        found: impl Into<Box<str>>,
    ) -> Self {
        let (operand, expected, found) = (operand.into(), expected.into(), found.into());
        Self::NotFound { operand, expected, found }
    }

    pub(crate) fn unsupported(
        operand: impl Into<Box<str>>,
        expected: impl Into<Box<str>>,
        found: impl Into<Box<str>>,
    ) -> Self {
        let (operand, expected, found) = (operand.into(), expected.into(), found.into());
        Self::Unsupported { operand, expected, found }
    }

    pub(crate) fn corrupt(
        operand: impl Into<Box<str>>,
        expected: impl Into<Box<str>>,
        found: impl Into<Box<str>>,
    ) -> Self {
        let (operand, expected, found) = (operand.into(), expected.into(), found.into());
        Self::Corrupt { operand, expected, found }
    }

    pub(crate) fn conflict(
        operand: impl Into<Box<str>>,
        expected: impl Into<Box<str>>,
        found: impl Into<Box<str>>,
    ) -> Self {
        let (operand, expected, found) = (operand.into(), expected.into(), found.into());
        Self::Conflict { operand, expected, found }
    }

    pub(crate) fn invalid_option(
        operand: impl Into<Box<str>>,
        expected: impl Into<Box<str>>,
        found: impl Into<Box<str>>,
    ) -> Self {
        let (operand, expected, found) = (operand.into(), expected.into(), found.into());
        Self::InvalidOption { operand, expected, found }
    }

    pub(crate) fn invalid_input(
        operand: impl Into<Box<str>>,
        expected: impl Into<Box<str>>,
        found: impl Into<Box<str>>,
    ) -> Self {
        let (operand, expected, found) = (operand.into(), expected.into(), found.into());
        Self::InvalidInput { index: None, operand, expected, found }
    }

    /// As [`Error::invalid_input`], about the sentence `index` of a batch.
    #[cfg(feature = "train")]
    pub(crate) fn of_sentence(
        index: usize,
        operand: impl Into<Box<str>>,
        expected: impl Into<Box<str>>,
        found: impl Into<Box<str>>,
    ) -> Self {
        let (operand, expected, found) = (operand.into(), expected.into(), found.into());
        Self::InvalidInput { index: Some(index), operand, expected, found }
    }

    /// The number `found` at `index` of `operand` is not finite.
    pub(crate) fn not_finite(operand: impl Into<Box<str>>, index: usize, found: f32) -> Self {
        Self::NotFinite { operand: operand.into(), index: Some(index), found }
    }

    /// The operating system cannot read `path`.
    pub(crate) fn unreadable(path: impl Into<Box<str>>, error: io::Error) -> Self {
        Self::Io { action: "read", path: path.into(), error }
    }

    /// The operating system cannot write `path`.
    pub(crate) fn unwritable(path: impl Into<Box<str>>, error: io::Error) -> Self {
        Self::Io { action: "written", path: path.into(), error }
    }

    /// The memory for `operand` does not fit the address space.
    pub(crate) fn too_large(operand: impl Into<Cow<'static, str>>) -> Self {
        Self::OutOfMemory { operand: operand.into(), bytes: None }
    }

    /// The system does not give `bytes` bytes for `operand`.
    pub(crate) fn out_of_memory(operand: impl Into<Cow<'static, str>>, bytes: usize) -> Self {
        Self::OutOfMemory { operand: operand.into(), bytes: Some(bytes) }
    }

    /// The memory for `operand` cannot be planned or allocated.
    pub(crate) fn of_memory(operand: &'static str) -> impl Fn(MemoryError) -> Self {
        move |error| match error {
            MemoryError::TooLarge => Self::too_large(operand),
            MemoryError::OutOfMemory { bytes } => Self::out_of_memory(operand, bytes),
        }
    }

    /// The same error in the text of `file`, which is then the fault of the file.
    pub(crate) fn in_file(self, file: &str) -> Self {
        let inside = |operand: Box<str>| match &*operand {
            "" => file.into(),
            operand => format!("{file}: {operand}").into_boxed_str(),
        };
        match self {
            Self::Unsupported { operand, expected, found } => {
                Self::Unsupported { operand: inside(operand), expected, found }
            }
            Self::Corrupt { operand, expected, found }
            | Self::InvalidOption { operand, expected, found } => {
                Self::Corrupt { operand: inside(operand), expected, found }
            }
            other => other,
        }
    }
}

/// What text that is not UTF-8 is, for an error.
pub(crate) fn not_utf8(error: &core::str::Utf8Error) -> String {
    format!("other bytes from byte {} on", error.valid_up_to())
}

impl fmt::Display for Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::NotFound { operand, expected, found }
            | Self::Unsupported { operand, expected, found }
            | Self::Corrupt { operand, expected, found }
            | Self::Conflict { operand, expected, found }
            | Self::InvalidOption { operand, expected, found }
            | Self::InvalidInput { operand, expected, found, .. } => {
                if let Self::InvalidInput { index: Some(index), .. } = self {
                    write!(f, "sentence {index}: ")?;
                }
                if !operand.is_empty() {
                    write!(f, "{operand}: ")?;
                }
                write!(f, "expected {expected}, found {found}")
            }
            Self::NotFinite { operand, index, found } => {
                f.write_str(operand)?;
                index.map_or(Ok(()), |index| write!(f, ", element {index}"))?;
                write!(f, ": expected a finite number, found {found}")
            }
            Self::Io { action, path, error } => write!(f, "{path}: cannot be {action}: {error}"),
            Self::OutOfMemory { operand, bytes: Some(bytes) } => {
                write!(f, "{operand}: expected {bytes} bytes, which the system does not give")
            }
            Self::OutOfMemory { operand, bytes: None } => write!(
                f,
                "{operand}: expected a size that fits the address space, found one that overflows"
            ),
            Self::Cancelled { progress: [done, total] } => {
                write!(f, "loading was stopped after {done} of {total} bytes")
            }
            Self::Caller { operand, error } => write!(f, "{operand}: {error}"),
            Self::Kernel(error) => error.fmt(f),
        }
    }
}

impl core::error::Error for Error {
    /// The source of the cause; the text already contains the cause itself.
    fn source(&self) -> Option<&(dyn core::error::Error + 'static)> {
        match self {
            Self::Io { error, .. } => error.source(),
            Self::Caller { error, .. } => error.source(),
            _ => None,
        }
    }
}

impl From<MemoryError> for Error {
    fn from(error: MemoryError) -> Self {
        Self::of_memory("the planned memory")(error)
    }
}

/// An instruction set that this machine lacks is an error of [`ISA_VARIABLE`], a setting is one of options, sizes that
/// overflow are one of memory, and all others are bugs.
impl From<KernelError> for Error {
    fn from(error: KernelError) -> Self {
        match error {
            KernelError::TooLarge { operand } => Self::too_large(operand),
            KernelError::UnknownIsa { expected, found } => {
                Self::unsupported(ISA_VARIABLE, format!("one of {expected:?}"), found.to_string())
            }
            KernelError::MissingIsa { name, best } => Self::unsupported(
                ISA_VARIABLE,
                format!("an instruction set of this machine, whose best is {best}"),
                name,
            ),
            KernelError::Setting { name, expected, found } => {
                // An f32 setting is shown with the digits of an f32.
                let short = found as f32;
                let is_f32 = f64::from(short) == found;
                let found = if is_f32 { short.to_string() } else { found.to_string() };
                Self::invalid_option(name, expected, found)
            }
            error => Self::Kernel(error),
        }
    }
}

/// A list of names that may be long: the first ones, and how many more there are.
pub(crate) fn listed(names: &[String]) -> String {
    const SHOWN: usize = 20;
    let mut text = names[..names.len().min(SHOWN)].join(", ");
    if names.len() > SHOWN {
        text.push_str(&format!(" and {} more", names.len() - SHOWN));
    }
    text
}
