//! Error codes, the text of the last error, and where a panic becomes a code.

use core::any::Any;
use core::ffi::CStr;
use core::fmt::{self, Write};
use core::panic::AssertUnwindSafe;
use simdformer::{Error, KernelError};
use std::cell::RefCell;
use std::panic::catch_unwind;

/// No error.
pub const SF_OK: i32 = 0;
/// A file or a directory does not exist, or is of another kind.
pub const SF_ERROR_NOT_FOUND: i32 = 1;
/// A valid file, architecture, dtype or instruction set that this build, this machine or this model does not support.
pub const SF_ERROR_UNSUPPORTED: i32 = 2;
/// A file or bytes are damaged, or contradict their format, their configuration or another file.
pub const SF_ERROR_CORRUPT: i32 = 3;
/// A valid file belongs to something else: weights that were packed for another model or another instruction set.
pub const SF_ERROR_CONFLICT: i32 = 4;
/// An option is outside its range, is unknown, or contradicts another one.
pub const SF_ERROR_INVALID_OPTION: i32 = 5;
/// An argument does not fit the model or the other arguments, or a call comes at the wrong time.
pub const SF_ERROR_INVALID_INPUT: i32 = 6;
/// A number is beyond a limit of the plan, the model or the engine.
pub const SF_ERROR_BEYOND_LIMIT: i32 = 7;
/// A token id is not in the vocabulary.
pub const SF_ERROR_TOKEN: i32 = 8;
/// The handle of a sentence or of a hypothesis was released, belongs to another session, or is zero.
pub const SF_ERROR_INVALID_HANDLE: i32 = 9;
/// A number is NaN or infinite.
pub const SF_ERROR_NOT_FINITE: i32 = 10;
/// The operating system cannot read or write a file.
pub const SF_ERROR_IO: i32 = 11;
/// The system cannot allocate the memory.
pub const SF_ERROR_OUT_OF_MEMORY: i32 = 12;
/// A callback or an `sf_cancel` ended the call.
pub const SF_ERROR_CANCELLED: i32 = 13;
/// The engine was closed before the request was done.
pub const SF_ERROR_CLOSED: i32 = 14;
/// A function of the caller failed.
pub const SF_ERROR_CALLER: i32 = 15;
/// A kernel refuses its operands.
pub const SF_ERROR_KERNEL: i32 = 16;
/// A pointer is null or misaligned, text is not UTF-8, or a size overflows.
pub const SF_ERROR_ARGUMENT: i32 = 32;
/// `struct_size` is smaller than the first version of the struct, or fields that this library does not know are set.
pub const SF_ERROR_STRUCT_SIZE: i32 = 33;
/// The caller's memory is too small.
pub const SF_ERROR_MEMORY_SIZE: i32 = 34;
/// Another call runs on the same session: of another thread, or the call whose callback this is.
pub const SF_ERROR_BUSY: i32 = 35;
/// A panic in the library: a bug, please report it. The session of the call can be used again after
/// `sf_session_clear`.
pub const SF_ERROR_PANIC: i32 = 36;
/// A call panicked on this session, and `sf_session_clear` was not called since then.
pub const SF_ERROR_UNUSABLE: i32 = 37;
/// An error of a later version of the library, which this header does not name.
pub const SF_ERROR_OTHER: i32 = 38;

/// All codes with their names.
pub(crate) const CODES: &[(i32, &CStr)] = &[
    (SF_OK, c"ok"),
    (SF_ERROR_NOT_FOUND, c"not found"),
    (SF_ERROR_UNSUPPORTED, c"unsupported"),
    (SF_ERROR_CORRUPT, c"corrupt"),
    (SF_ERROR_CONFLICT, c"conflict"),
    (SF_ERROR_INVALID_OPTION, c"invalid option"),
    (SF_ERROR_INVALID_INPUT, c"invalid input"),
    (SF_ERROR_BEYOND_LIMIT, c"beyond a limit"),
    (SF_ERROR_TOKEN, c"token"),
    (SF_ERROR_INVALID_HANDLE, c"invalid handle"),
    (SF_ERROR_NOT_FINITE, c"not finite"),
    (SF_ERROR_IO, c"input or output"),
    (SF_ERROR_OUT_OF_MEMORY, c"out of memory"),
    (SF_ERROR_CANCELLED, c"cancelled"),
    (SF_ERROR_CLOSED, c"closed"),
    (SF_ERROR_CALLER, c"caller"),
    (SF_ERROR_KERNEL, c"kernel"),
    (SF_ERROR_ARGUMENT, c"argument"),
    (SF_ERROR_STRUCT_SIZE, c"struct size"),
    (SF_ERROR_MEMORY_SIZE, c"memory size"),
    (SF_ERROR_BUSY, c"busy"),
    (SF_ERROR_PANIC, c"panic"),
    (SF_ERROR_UNUSABLE, c"unusable"),
    (SF_ERROR_OTHER, c"other"),
];

/// Why a call failed.
pub(crate) enum Failure {
    /// Of the core.
    Core(Error),
    /// A kernel refuses the operands of the caller.
    Kernel(KernelError),
    /// Of this crate: the code, the argument, what was expected and what was found.
    Own(i32, &'static str, Value, Value),
}

/// A part of the text of a [`Failure`], without an allocation.
pub(crate) enum Value {
    Text(&'static str),
    Number(usize),
    AtLeast(usize),
    AtMost(usize),
    Exactly(usize),
    Below(usize),
    Planned(usize),
    Slot(u32),
}

impl From<Error> for Failure {
    fn from(error: Error) -> Self {
        Self::Core(error)
    }
}

impl From<KernelError> for Failure {
    fn from(error: KernelError) -> Self {
        Self::Kernel(error)
    }
}

impl From<&'static str> for Value {
    fn from(text: &'static str) -> Self {
        Self::Text(text)
    }
}

impl From<usize> for Value {
    fn from(number: usize) -> Self {
        Self::Number(number)
    }
}

impl fmt::Display for Value {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Text(text) => f.write_str(text),
            Self::Number(number) | Self::Exactly(number) => write!(f, "{number}"),
            Self::AtLeast(number) => write!(f, "at least {number}"),
            Self::AtMost(number) => write!(f, "at most {number}"),
            Self::Below(number) => write!(f, "a number below {number}"),
            Self::Planned(number) => {
                write!(f, "at most {number}, with which the session was planned")
            }
            Self::Slot(slot) => write!(f, "slot {slot}, which is free or has another by now"),
        }
    }
}

impl fmt::Display for Failure {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Core(error) => error.fmt(f),
            Self::Kernel(error) => error.fmt(f),
            Self::Own(_, operand, expected, found) => {
                write!(f, "{operand}: expected {expected}, found {found}")
            }
        }
    }
}

impl Failure {
    /// An error of this crate.
    pub(crate) fn own(
        code: i32,
        operand: &'static str,
        expected: impl Into<Value>,
        found: impl Into<Value>,
    ) -> Self {
        Self::Own(code, operand, expected.into(), found.into())
    }

    /// A pointer or a size that cannot be.
    pub(crate) fn argument(
        operand: &'static str,
        expected: impl Into<Value>,
        found: impl Into<Value>,
    ) -> Self {
        Self::own(SF_ERROR_ARGUMENT, operand, expected, found)
    }

    /// More of `limit` than a session was planned for.
    pub(crate) fn beyond_limit(limit: &'static str, most: usize, found: usize) -> Self {
        Self::own(SF_ERROR_BEYOND_LIMIT, limit, Value::Planned(most), found)
    }

    fn code(&self) -> i32 {
        match self {
            Self::Core(error) => code_of(error),
            Self::Kernel(_) => SF_ERROR_KERNEL,
            Self::Own(code, ..) => *code,
        }
    }

    /// Makes it the last error of this thread. Returns its code.
    pub(crate) fn report(&self) -> i32 {
        let source = match self {
            Self::Core(error) => error.index(),
            _ => None,
        };
        record(source, format_args!("{self}"));
        self.code()
    }
}

/// Makes an error of one source the last one of this thread.
pub(crate) fn record_error(error: &Error) {
    record(error.index(), format_args!("{error}"));
}

/// The code of an error of the core: one for each kind.
pub(crate) fn code_of(error: &Error) -> i32 {
    match error {
        Error::NotFound { .. } => SF_ERROR_NOT_FOUND,
        Error::Unsupported { .. } => SF_ERROR_UNSUPPORTED,
        Error::Corrupt { .. } => SF_ERROR_CORRUPT,
        Error::Conflict { .. } => SF_ERROR_CONFLICT,
        Error::InvalidOption { .. } => SF_ERROR_INVALID_OPTION,
        Error::InvalidInput { .. } => SF_ERROR_INVALID_INPUT,
        Error::BeyondLimit { .. } => SF_ERROR_BEYOND_LIMIT,
        Error::Token { .. } => SF_ERROR_TOKEN,
        Error::InvalidHandle { .. } => SF_ERROR_INVALID_HANDLE,
        Error::NotFinite { .. } => SF_ERROR_NOT_FINITE,
        Error::Io { .. } => SF_ERROR_IO,
        Error::OutOfMemory { .. } => SF_ERROR_OUT_OF_MEMORY,
        Error::Cancelled { .. } => SF_ERROR_CANCELLED,
        Error::Closed => SF_ERROR_CLOSED,
        Error::Caller { .. } => SF_ERROR_CALLER,
        Error::Kernel(_) => SF_ERROR_KERNEL,
        _ => SF_ERROR_OTHER,
    }
}

/// The size of the text of an error, with its terminating zero.
const TEXT: usize = 512;

/// The last error of a thread.
struct LastError {
    text: [u8; TEXT],
    len: usize,
    /// The source that it is about, or -1.
    source: i64,
}

thread_local! {
    // Constant, and without a destructor: nothing is allocated when it is first used.
    static LAST: RefCell<LastError> =
        const { RefCell::new(LastError { text: [0; TEXT], len: 0, source: -1 }) };
}

impl Write for LastError {
    /// Drops what does not fit, at the end of a character.
    fn write_str(&mut self, text: &str) -> fmt::Result {
        let free = TEXT - 1 - self.len;
        let mut take = text.len().min(free);
        while !text.is_char_boundary(take) {
            take -= 1;
        }
        self.text[self.len..self.len + take].copy_from_slice(&text.as_bytes()[..take]);
        self.len += take;
        // What follows dropped text is dropped, too.
        if take < text.len() { Err(fmt::Error) } else { Ok(()) }
    }
}

fn record(source: Option<usize>, text: fmt::Arguments<'_>) {
    LAST.with(|last| {
        // A signal handler that interrupts this function on this thread leaves the text that is being written.
        let Ok(mut last) = last.try_borrow_mut() else { return };
        last.len = 0;
        last.source = source.and_then(|source| i64::try_from(source).ok()).unwrap_or(-1);
        // An error means that the text was cut off.
        let _ = last.write_fmt(text);
        let end = last.len;
        last.text[end] = 0;
    });
}

/// Calls `read` with the bytes of the last error and with the source that it is about.
pub(crate) fn last_error<R>(read: impl FnOnce(&[u8], i64) -> R) -> R {
    LAST.with(|last| match last.try_borrow() {
        Ok(last) => read(&last.text[..last.len], last.source),
        // In a signal handler, while the text is being written.
        Err(_) => read(&[], -1),
    })
}

/// Every function of this interface runs in it: an error becomes its code and the last error of this thread, and a panic
/// becomes [`SF_ERROR_PANIC`].
pub(crate) fn enter(run: impl FnOnce() -> Result<(), Failure>) -> i32 {
    match catch_unwind(AssertUnwindSafe(run)) {
        Ok(Ok(())) => SF_OK,
        Ok(Err(failure)) => failure.report(),
        Err(panic) => report_panic(panic),
    }
}

fn report_panic(panic: Box<dyn Any + Send>) -> i32 {
    let text = match (panic.downcast_ref::<&str>(), panic.downcast_ref::<String>()) {
        (Some(text), _) => text,
        (None, Some(text)) => text.as_str(),
        (None, None) => "no text",
    };
    record(None, format_args!("a panic, which is a bug of the library: {text}"));
    SF_ERROR_PANIC
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn text_is_cut_off_at_the_end_of_a_character() {
        for prefix in 0..4 {
            let text = format!("{}{}", "x".repeat(prefix), "é".repeat(400));
            record(None, format_args!("{text}{}", "never"));
            last_error(|found, _| {
                let found = core::str::from_utf8(found).expect("UTF-8");
                assert!(text.starts_with(found) && found.len() >= TEXT - 2, "{}", found.len());
            });
        }
    }

    #[test]
    fn codes_are_different_and_have_names() {
        for (i, (code, name)) in CODES.iter().enumerate() {
            assert!(CODES[..i].iter().all(|other| other.0 < *code), "{name:?}");
            assert!(!name.is_empty());
        }
    }

    #[test]
    fn a_panic_is_a_code_with_its_text() {
        let code = enter(|| panic!("{} and {}", 1, 2));
        assert_eq!(code, SF_ERROR_PANIC);
        last_error(|text, source| {
            let text = core::str::from_utf8(text).expect("UTF-8");
            assert_eq!((text, source), ("a panic, which is a bug of the library: 1 and 2", -1));
        });
        assert_eq!(enter(|| std::panic::panic_any(3)), SF_ERROR_PANIC);
    }
}
