//! The error of this crate: few kinds that a caller can act on, each with the operand, what was expected and what was
//! found.

mod value;

pub use value::ErrorValue;

use crate::memory::MemoryError;
use core::fmt;
use simdformer_kernels::{Error as KernelError, ISA_VARIABLE};
use std::borrow::Cow;
use std::io;
use std::sync::Arc;

/// Why a call failed. Nothing has been written, unless the function documents something else.
///
/// Each text is one sentence: the operand, what was expected and what was found, after the source of a request if it is
/// about one ([`Error::index`]). The operand of an error in a file begins with the path of the file (`"memory"` for bytes
/// and tensors in memory). Long names from a file are shortened, and their control characters are escaped.
///
/// The errors of a running session or search are made and cloned without an allocation. Two errors are equal if they are of
/// the same kind and have the same text.
///
/// ```
/// use simdformer::{Error, Model};
///
/// let error = Model::open("no/such/directory").unwrap_err();
/// assert!(matches!(&error, Error::NotFound { operand, .. } if **operand == *"no/such/directory"));
/// let text = "no/such/directory: expected a checkpoint directory, found no such directory";
/// assert_eq!(error.to_string(), text);
/// ```
#[derive(Clone, Debug)]
#[non_exhaustive]
pub enum Error {
    /// A file or a directory does not exist, or is of another kind, for example a file where a directory is needed.
    NotFound {
        /// Its path.
        operand: Cow<'static, str>,
        /// What should be there.
        expected: Cow<'static, str>,
        /// What is there.
        found: Cow<'static, str>,
    },
    /// A valid file, architecture, dtype or instruction set that this build, this machine or this model does not support.
    Unsupported {
        /// The file, the tensor or the setting.
        operand: Cow<'static, str>,
        /// What is supported.
        expected: Cow<'static, str>,
        /// What was found, and how to get something supported.
        found: Cow<'static, str>,
    },
    /// A file is damaged, or contradicts its format, its configuration or another file.
    Corrupt {
        /// The file, and the tensor, the key or the line in it.
        operand: Cow<'static, str>,
        /// What the format, the configuration or the other file needs.
        expected: Cow<'static, str>,
        /// What was found.
        found: Cow<'static, str>,
    },
    /// A valid file or directory belongs to something else: weights that were packed for another model, other dtypes or
    /// another instruction set, or the checkpoints of another training run.
    Conflict {
        /// The file or the directory.
        operand: Cow<'static, str>,
        /// What this call needs.
        expected: Cow<'static, str>,
        /// What was found, and what can be done.
        found: Cow<'static, str>,
    },
    /// An option or a number of a configuration is outside its range, or contradicts another one.
    InvalidOption {
        /// The source whose own option it is.
        index: Option<usize>,
        /// Its name: a field of [`SearchOptions`](crate::search::SearchOptions), or a key of a configuration.
        operand: Cow<'static, str>,
        /// The valid values.
        expected: ErrorValue,
        /// Its value.
        found: ErrorValue,
    },
    /// An argument that does not fit the model or the other arguments, or a call at the wrong time.
    InvalidInput {
        /// The source, or the sentence of a batch.
        index: Option<usize>,
        /// The argument; empty if `expected` says it.
        operand: Cow<'static, str>,
        /// What the call needs.
        expected: ErrorValue,
        /// What was found.
        found: ErrorValue,
    },
    /// A number of a request or of a plan is beyond a limit of the plan, the model or the engine. A plan with a larger limit
    /// accepts the request.
    BeyondLimit {
        /// The source.
        index: Option<usize>,
        /// What is too large or too small: a field of [`Limits`](crate::Limits), an option of
        /// [`SearchOptions`](crate::search::SearchOptions), or another number.
        operand: &'static str,
        /// The limit that bounds it, and the value of that limit; `None` if the operand is the limit itself.
        limit: Option<(&'static str, usize)>,
        /// The valid numbers, and what sets the bound.
        expected: ErrorValue,
        /// The number.
        found: usize,
    },
    /// A token id is not in the vocabulary.
    Token {
        /// The source.
        index: Option<usize>,
        /// The setting or the argument that has the id.
        operand: &'static str,
        /// The position in it.
        position: Option<usize>,
        /// The size of the vocabulary; valid ids are smaller.
        vocabulary: usize,
        /// The id.
        found: u32,
    },
    /// The handle of a sentence or of a hypothesis was released, belongs to another session, is the default, or is not in
    /// the state that the call needs.
    InvalidHandle {
        /// `"sentence"` or `"hypothesis"`.
        operand: &'static str,
        /// What the call needs.
        expected: &'static str,
        /// Its slot.
        found: u32,
        /// The state of that slot.
        state: &'static str,
    },
    /// A number is NaN or infinite (in an output bias and in scores: NaN or plus infinity).
    NotFinite {
        /// The source.
        index: Option<usize>,
        /// The tensor, with the path of its file, or the scores of a target.
        operand: Cow<'static, str>,
        /// Row-major index in the whole tensor, if it is known; the position of the token to choose in a target.
        position: Option<usize>,
        /// The number; `None` for scores, which are NaN or plus infinity.
        found: Option<f32>,
    },
    /// The operating system cannot read or write a file, or the file became shorter during reading.
    Io {
        /// `"read"`, `"written"` or another participle.
        action: &'static str,
        /// The file or the directory.
        path: Arc<str>,
        /// The error of the operating system.
        error: Arc<io::Error>,
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
        /// Bytes that were read, and the total number of bytes; `None` if nothing was being read.
        progress: Option<[u64; 2]>,
    },
    /// The [`Engine`](crate::Engine) was [closed](crate::Engine::close) before the request was done.
    Closed,
    /// A function of the caller failed, for example a logits processor ([`Error::processor`]).
    Caller {
        /// The source.
        index: Option<usize>,
        /// What the function was to do.
        operand: Cow<'static, str>,
        /// Why it failed.
        reason: Cow<'static, str>,
        /// Its error, if it gave one.
        error: Option<CallerError>,
    },
    /// A kernel rejected its operands: a bug in this crate.
    Kernel(KernelError),
}

/// The error of a function of the caller, shared by the copies of an [`Error`].
type CallerError = Arc<dyn core::error::Error + Send + Sync>;

/// An error is passed on by many calls, so it stays small.
const _: () = assert!(size_of::<Error>() <= 112);

/// Functions that make the errors about files, which no running session makes.
macro_rules! errors_of_files {
    ($($name:ident: $kind:ident,)*) => {
        impl Error {
            $(pub(crate) fn $name(
                operand: impl Into<Box<str>>,
                expected: impl Into<Box<str>>,
                found: impl Into<Box<str>>,
            ) -> Self {
                let texts: [Box<str>; 3] = [operand.into(), expected.into(), found.into()];
                let [operand, expected, found] = texts.map(|text| String::from(text).into());
                Self::$kind { operand, expected, found }
            })*
        }
    };
}

errors_of_files! {
    not_found: NotFound,
    unsupported: Unsupported,
    corrupt: Corrupt,
    conflict: Conflict,
}

/// Where an error is made, in an order that reads as its text does.
impl Error {
    pub(crate) fn invalid_option(
        operand: impl Into<Cow<'static, str>>,
        expected: impl Into<ErrorValue>,
        found: impl Into<ErrorValue>,
    ) -> Self {
        let (operand, expected, found) = (operand.into(), expected.into(), found.into());
        Self::InvalidOption { index: None, operand, expected, found }
    }

    pub(crate) fn invalid_input(
        operand: impl Into<Cow<'static, str>>,
        expected: impl Into<ErrorValue>,
        found: impl Into<ErrorValue>,
    ) -> Self {
        let (operand, expected, found) = (operand.into(), expected.into(), found.into());
        Self::InvalidInput { index: None, operand, expected, found }
    }

    /// The number `found` of `operand`, which is a limit itself, is not as `expected`.
    pub(crate) const fn beyond_limit(
        operand: &'static str,
        expected: ErrorValue,
        found: usize,
    ) -> Self {
        Self::BeyondLimit { index: None, operand, limit: None, expected, found }
    }

    /// The id `found` at `position` of `operand` is not in the vocabulary.
    pub(crate) const fn token(
        operand: &'static str,
        position: Option<usize>,
        vocabulary: usize,
        found: u32,
    ) -> Self {
        Self::Token { index: None, operand, position, vocabulary, found }
    }

    /// The number `found` at `position` of `operand` is not finite.
    pub(crate) fn not_finite(
        operand: impl Into<Cow<'static, str>>,
        position: usize,
        found: f32,
    ) -> Self {
        let (operand, position, found) = (operand.into(), Some(position), Some(found));
        Self::NotFinite { index: None, operand, position, found }
    }

    /// The scores of the token at `position` of a target are NaN or plus infinity.
    pub(crate) const fn not_finite_scores(position: usize) -> Self {
        let operand = Cow::Borrowed("scores");
        Self::NotFinite { index: None, operand, position: Some(position), found: None }
    }

    /// A logits processor of the caller fails for this reason.
    ///
    /// ```
    /// let error = simdformer::Error::processor("the table is of another vocabulary");
    /// assert_eq!(error.to_string(), "logits processor: the table is of another vocabulary");
    /// ```
    pub fn processor(reason: impl Into<Cow<'static, str>>) -> Self {
        let operand = Cow::Borrowed("logits processor");
        Self::Caller { index: None, operand, reason: reason.into(), error: None }
    }

    /// The function of the caller that was to do `operand` failed with `error`.
    pub(crate) fn of_caller(
        operand: impl Into<Cow<'static, str>>,
        error: Box<dyn core::error::Error + Send + Sync>,
    ) -> Self {
        let (operand, reason) = (operand.into(), error.to_string().into());
        Self::Caller { index: None, operand, reason, error: Some(error.into()) }
    }

    /// The flag of a [`Cancel`](crate::Cancel) ended the call.
    pub const CANCELLED: Self = Self::Cancelled { progress: None };

    /// A call that needs a decoder, of a model that has none.
    pub const NO_DECODER: Self = Self::Unsupported {
        operand: Cow::Borrowed("the model"),
        expected: Cow::Borrowed("one with a decoder"),
        found: Cow::Borrowed("no decoder: call `encoder_output`, which gives hidden states"),
    };

    /// The operating system cannot read `path`.
    pub(crate) fn unreadable(path: impl Into<Box<str>>, error: io::Error) -> Self {
        Self::Io { action: "read", path: path.into().into(), error: error.into() }
    }

    /// The operating system cannot write `path`.
    pub(crate) fn unwritable(path: impl Into<Box<str>>, error: io::Error) -> Self {
        Self::Io { action: "written", path: path.into().into(), error: error.into() }
    }

    /// The memory for `operand` does not fit the address space.
    pub(crate) fn too_large(operand: impl Into<Cow<'static, str>>) -> Self {
        Self::OutOfMemory { operand: operand.into(), bytes: None }
    }

    /// The planned memory does not fit the address space.
    pub(crate) const PLAN_TOO_LARGE: Self =
        Self::OutOfMemory { operand: Cow::Borrowed(PLANNED), bytes: None };

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

    /// The source that the error is about: its index in the request, in the list or among the requests of a queue, from 0.
    /// `None` if the error is about the whole call.
    pub fn index(&self) -> Option<usize> {
        match *self {
            Self::InvalidOption { index, .. }
            | Self::InvalidInput { index, .. }
            | Self::BeyondLimit { index, .. }
            | Self::Token { index, .. }
            | Self::NotFinite { index, .. }
            | Self::Caller { index, .. } => index,
            _ => None,
        }
    }

    /// The same error about the source of this index. Kinds that are never about one source do not change.
    ///
    /// ```
    /// let error = simdformer::Error::processor("no dictionary").with_index(3);
    /// assert_eq!(error.index(), Some(3));
    /// assert_eq!(error.to_string(), "source 3: logits processor: no dictionary");
    /// ```
    #[must_use]
    pub fn with_index(mut self, source: usize) -> Self {
        if let Self::InvalidOption { index, .. }
        | Self::InvalidInput { index, .. }
        | Self::BeyondLimit { index, .. }
        | Self::Token { index, .. }
        | Self::NotFinite { index, .. }
        | Self::Caller { index, .. } = &mut self
        {
            *index = Some(source);
        }
        self
    }

    /// The same error in the text of `file`, which is then the fault of the file.
    pub(crate) fn in_file(self, file: &str) -> Self {
        let inside = |operand: Cow<'static, str>| match &*operand {
            "" => file.to_owned(),
            operand => format!("{file}: {operand}"),
        };
        match self {
            Self::Unsupported { operand, expected, found } => {
                Self::unsupported(inside(operand), expected, found)
            }
            Self::Corrupt { operand, expected, found } => {
                Self::corrupt(inside(operand), expected, found)
            }
            Self::InvalidOption { operand, expected, found, .. } => {
                Self::corrupt(inside(operand), expected.to_string(), found.to_string())
            }
            other => other,
        }
    }
}

/// The operand of errors of planned memory.
const PLANNED: &str = "the planned memory";

/// What text that is not UTF-8 is, for an error.
pub(crate) fn not_utf8(error: &core::str::Utf8Error) -> String {
    format!("other bytes from byte {} on", error.valid_up_to())
}

impl fmt::Display for Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if let Some(index) = self.index() {
            write!(f, "source {index}: ")?;
        }
        let mut sentence =
            |operand: &str, expected: &dyn fmt::Display, found: &dyn fmt::Display| {
                if !operand.is_empty() {
                    write!(f, "{operand}: ")?;
                }
                write!(f, "expected {expected}, found {found}")
            };
        match self {
            Self::NotFound { operand, expected, found }
            | Self::Unsupported { operand, expected, found }
            | Self::Corrupt { operand, expected, found }
            | Self::Conflict { operand, expected, found } => sentence(operand, expected, found),
            Self::InvalidOption { operand, expected, found, .. }
            | Self::InvalidInput { operand, expected, found, .. } => {
                sentence(operand, expected, found)
            }
            Self::BeyondLimit { operand, limit: None, expected, found, .. } => {
                write!(f, "the limit `{operand}`: expected {expected}, found {found}")
            }
            Self::BeyondLimit { operand, limit: Some((limit, value)), expected, found, .. } => {
                write!(f, "{operand}: expected {expected} with `{limit}` = {value}, found {found}")
            }
            Self::Token { operand, position, vocabulary, found, .. } => {
                f.write_str(operand)?;
                position.map_or(Ok(()), |position| write!(f, " {position}"))?;
                write!(
                    f,
                    ": expected a token id below {vocabulary}, the size of the vocabulary, found {found}"
                )
            }
            Self::InvalidHandle { operand, expected, found, state } => {
                write!(f, "{operand}: expected {expected}, found slot {found}, which {state}")
            }
            Self::NotFinite { operand, position, found: Some(found), .. } => {
                f.write_str(operand)?;
                position.map_or(Ok(()), |position| write!(f, ", element {position}"))?;
                write!(f, ": expected a finite number, found {found}")
            }
            Self::NotFinite { operand, position: Some(position), found: None, .. } => write!(
                f,
                "expected {operand} below +inf at position {position} of the target, found NaN or +inf"
            ),
            Self::NotFinite { operand, position: None, found: None, .. } => {
                write!(f, "{operand}: expected finite numbers, found NaN or an infinity")
            }
            Self::Io { action, path, error } => write!(f, "{path}: cannot be {action}: {error}"),
            Self::OutOfMemory { operand, bytes: Some(bytes) } => {
                write!(f, "{operand}: expected {bytes} bytes, which the system does not give")
            }
            Self::OutOfMemory { operand, bytes: None } => write!(
                f,
                "{operand}: expected a size that fits the address space, found one that overflows"
            ),
            Self::Cancelled { progress: Some([done, total]) } => {
                write!(f, "loading was stopped after {done} of {total} bytes")
            }
            Self::Cancelled { progress: None } => f.write_str("the call was cancelled"),
            Self::Closed => f.write_str("expected an open engine, found one that was closed"),
            Self::Caller { operand, reason, .. } => write!(f, "{operand}: {reason}"),
            Self::Kernel(error) => write!(f, "a kernel rejected its operands: {error}"),
        }
    }
}

impl core::error::Error for Error {
    /// The source of the cause; the text already contains the cause itself.
    fn source(&self) -> Option<&(dyn core::error::Error + 'static)> {
        match self {
            Self::Io { error, .. } => error.source(),
            Self::Caller { error, .. } => error.as_ref()?.source(),
            _ => None,
        }
    }
}

/// The kinds and the texts are compared.
impl PartialEq for Error {
    fn eq(&self, other: &Self) -> bool {
        let same_kind = core::mem::discriminant(self) == core::mem::discriminant(other);
        same_kind && self.to_string() == other.to_string()
    }
}

impl From<MemoryError> for Error {
    #[cold]
    fn from(error: MemoryError) -> Self {
        Self::of_memory(PLANNED)(error)
    }
}

/// An instruction set that this machine lacks is an error of [`ISA_VARIABLE`], a setting is one of options, sizes that
/// overflow are one of memory, and all others are bugs.
impl From<KernelError> for Error {
    #[cold]
    fn from(error: KernelError) -> Self {
        match error {
            KernelError::TooLarge { operand } => Self::too_large(operand),
            KernelError::ShortView { view, expected: usize::MAX, .. } => {
                Self::too_large(view.to_string())
            }
            KernelError::UnsupportedIsa { expected, best: None, found } => {
                Self::unsupported(ISA_VARIABLE, format!("one of {expected:?}"), found.to_string())
            }
            KernelError::UnsupportedIsa { best: Some(best), found, .. } => Self::unsupported(
                ISA_VARIABLE,
                format!("an instruction set of this machine, whose best is {best}"),
                found.as_str().to_owned(),
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

#[cfg(test)]
mod tests {
    use super::*;

    /// Kinds that may be about one source carry its index; equal errors have the same kind and the same text.
    #[test]
    fn errors_are_about_a_source() {
        let of_a_source = [
            Error::invalid_option("beams", ErrorValue::at_least(1), 0),
            Error::invalid_input("", "at least one token", "none"),
            Error::beyond_limit("sentences", ErrorValue::at_most(2), 3),
            Error::token("prefix", Some(1), 9, 9),
            Error::not_finite_scores(4),
            Error::processor("no dictionary"),
        ];
        for (number, error) in of_a_source.iter().enumerate() {
            let indexed = error.clone().with_index(8);
            assert_eq!((error.index(), indexed.index()), (None, Some(8)));
            assert_eq!(indexed.to_string(), format!("source 8: {error}"));
            assert_ne!(*error, indexed);
            let equal = of_a_source.iter().position(|other| other == error);
            assert_eq!(equal, Some(number));
        }
        assert_eq!(Error::CANCELLED.with_index(8).index(), None);
    }
}
