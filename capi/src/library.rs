//! Versions, errors, and the instruction sets of this machine.

use crate::errors::{CODES, Failure, SF_OK, enter, last_error};
use crate::pointers::write_text;
use core::ffi::{CStr, c_char};
use simdformer::kernels::{ISA_NAMES, Isa};

/// The version of the interface: it grows when a function, a struct or a constant changes in a way that breaks programs.
/// New functions, constants, and fields at the end of structs do not change it.
pub const SF_ABI_VERSION: u32 = 1;

/// The [`SF_ABI_VERSION`] of the library that runs. A program compares it with that of its header:
/// `if (sf_abi_version() != SF_ABI_VERSION) ...`.
#[unsafe(no_mangle)]
pub extern "C" fn sf_abi_version() -> u32 {
    SF_ABI_VERSION
}

/// The version of the library, for example "0.1.0". The text belongs to the library.
#[unsafe(no_mangle)]
pub extern "C" fn sf_version_string() -> *const c_char {
    const VERSION: &str = concat!(env!("CARGO_PKG_VERSION"), "\0");
    VERSION.as_ptr().cast()
}

/// The name of an error code, for example "out of memory"; "other" for an unknown one. The text belongs to the library.
#[unsafe(no_mangle)]
pub extern "C" fn sf_error_name(code: i32) -> *const c_char {
    let known = CODES.iter().find(|known| known.0 == code);
    known.map_or(c"other", |known| known.1).as_ptr()
}

/// Copies the text of the last error of the calling thread into `buffer` of `len` bytes, with a terminating zero: one
/// sentence with the operand, what was expected and what was found. Longer text is cut off at the end of a character, in any
/// case after 511 bytes. Returns the length of the text without the zero, also if `buffer` is null; 0 if no call of this
/// thread has failed. A call that succeeds does not change the text.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn sf_last_error(buffer: *mut c_char, len: usize) -> usize {
    // SAFETY: the contract of the interface.
    last_error(|text, _| unsafe { write_text(text, buffer, len) })
}

/// The index of the source that the last error of the calling thread is about, or -1 if it is about the whole call.
#[unsafe(no_mangle)]
pub extern "C" fn sf_last_error_source() -> i64 {
    last_error(|_, source| source)
}

/// The best instruction set of this machine, or the one that the environment variable `SIMDFORMER_ISA` names. Reading the
/// variable may allocate: a program that calls kernels often passes them the result of `sf_isa_default`.
pub const SF_ISA_DEFAULT: i32 = 0;
/// Plain code, on every machine.
pub const SF_ISA_SCALAR: i32 = 1;
/// AVX2 and FMA, x86-64.
pub const SF_ISA_AVX2: i32 = 2;
/// AVX-512, x86-64.
pub const SF_ISA_AVX512: i32 = 3;
/// NEON, AArch64.
pub const SF_ISA_NEON: i32 = 4;

/// The instruction set of a constant.
pub(crate) fn isa_of(isa: i32) -> Result<Isa, Failure> {
    if isa == SF_ISA_DEFAULT {
        return Ok(Isa::detect()?);
    }
    let name = usize::try_from(isa).ok().and_then(|isa| ISA_NAMES.get(isa - 1));
    match name {
        Some(name) => Ok(Isa::from_name(name)?),
        None => Err(Failure::argument("isa", "a constant SF_ISA", "another number")),
    }
}

/// The constant of an instruction set.
pub(crate) fn constant_of(isa: Isa) -> i32 {
    ISA_NAMES.iter().position(|name| *name == isa.name()).map_or(0, |at| at as i32 + 1)
}

/// Whether this machine has an instruction set, 1 or 0. The calling thread's last error says why not.
#[unsafe(no_mangle)]
pub extern "C" fn sf_isa_is_available(isa: i32) -> i32 {
    (enter(|| isa_of(isa).map(drop)) == SF_OK).into()
}

/// The constant of the instruction set that `SF_ISA_DEFAULT` stands for; a negative error code if the environment variable
/// `SIMDFORMER_ISA` names none of this machine.
#[unsafe(no_mangle)]
pub extern "C" fn sf_isa_default() -> i32 {
    let mut found = 0;
    let code = enter(|| {
        found = constant_of(isa_of(SF_ISA_DEFAULT)?);
        Ok(())
    });
    if code == SF_OK { found } else { -code }
}

/// The name of an instruction set, as `SIMDFORMER_ISA` takes it; null for a number that is no constant. The text belongs to
/// the library.
#[unsafe(no_mangle)]
pub extern "C" fn sf_isa_name(isa: i32) -> *const c_char {
    const NAMES: [&CStr; 5] = [c"default", c"scalar", c"avx2", c"avx512", c"neon"];
    let name = usize::try_from(isa).ok().and_then(|isa| NAMES.get(isa));
    name.map_or(core::ptr::null(), |name| name.as_ptr())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn constants_are_the_names_in_their_order() {
        let constants = [SF_ISA_SCALAR, SF_ISA_AVX2, SF_ISA_AVX512, SF_ISA_NEON];
        for (constant, expected) in constants.into_iter().zip(ISA_NAMES) {
            // SAFETY: a name is text.
            let name = unsafe { CStr::from_ptr(sf_isa_name(constant)) };
            assert_eq!(name.to_str(), Ok(expected));
        }
        for isa in Isa::available() {
            assert!(isa_of(constant_of(isa)).is_ok_and(|found| found == isa));
        }
        for wrong in [-1, i32::MIN, 5, i32::MAX] {
            assert!(isa_of(wrong).is_err() && sf_isa_name(wrong).is_null(), "{wrong}");
        }
    }
}
