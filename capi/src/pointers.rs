//! References and slices of the caller's pointers, and structs that begin with their size.
//!
//! The functions check what can be checked; the rest is the contract of the interface (see the page of the crate), which is
//! the contract of every unsafe function here.

use crate::errors::{Failure, SF_ERROR_STRUCT_SIZE, Value};
use core::ffi::{CStr, c_char};
use core::mem::{MaybeUninit, align_of, size_of};
use core::ptr;

/// The longest struct that a later version may have. A larger number was not initialized.
const LARGEST_STRUCT: usize = 4096;

/// Checks that a pointer to `len` elements can be valid.
fn check<T>(operand: &'static str, pointer: *const T, len: usize) -> Result<(), Failure> {
    let bytes = len.checked_mul(size_of::<T>()).filter(|&bytes| bytes <= isize::MAX as usize);
    let end = bytes.and_then(|bytes| pointer.addr().checked_add(bytes));
    if pointer.is_null() {
        Err(Failure::argument(operand, "a pointer", "null"))
    } else if !pointer.is_aligned() {
        let expected = Value::Text(match align_of::<T>() {
            4 => "an address that is a multiple of 4",
            8 => "an address that is a multiple of 8",
            _ => "an aligned address",
        });
        Err(Failure::argument(operand, expected, pointer.addr()))
    } else if end.is_none() {
        Err(Failure::argument(operand, "a number of elements that memory can have", len))
    } else {
        Ok(())
    }
}

/// What the caller's pointer points to.
pub(crate) unsafe fn reference<'a, T>(
    operand: &'static str,
    pointer: *const T,
) -> Result<&'a T, Failure> {
    check(operand, pointer, 1)?;
    // SAFETY: not null and aligned; the caller's contract.
    Ok(unsafe { &*pointer })
}

/// What the caller's pointer points to, which only this call uses.
pub(crate) unsafe fn reference_mut<'a, T>(
    operand: &'static str,
    pointer: *mut T,
) -> Result<&'a mut T, Failure> {
    check(operand, pointer, 1)?;
    // SAFETY: not null and aligned; the caller's contract.
    Ok(unsafe { &mut *pointer })
}

/// `None` if the pointer is null.
pub(crate) unsafe fn optional<'a, T>(
    operand: &'static str,
    pointer: *const T,
) -> Result<Option<&'a T>, Failure> {
    if pointer.is_null() {
        return Ok(None);
    }
    // SAFETY: the caller's contract.
    unsafe { reference(operand, pointer) }.map(Some)
}

/// `len` elements. The pointer may be null if there are none.
pub(crate) unsafe fn slice<'a, T>(
    operand: &'static str,
    pointer: *const T,
    len: usize,
) -> Result<&'a [T], Failure> {
    if len == 0 {
        return Ok(&[]);
    }
    check(operand, pointer, len)?;
    // SAFETY: not null, aligned, and the bytes are inside the address space; the caller's contract.
    Ok(unsafe { core::slice::from_raw_parts(pointer, len) })
}

/// `len` elements to write. The pointer may be null if there are none.
pub(crate) unsafe fn slice_mut<'a, T>(
    operand: &'static str,
    pointer: *mut T,
    len: usize,
) -> Result<&'a mut [T], Failure> {
    if len == 0 {
        return Ok(&mut []);
    }
    check(operand, pointer, len)?;
    // SAFETY: not null, aligned, and the bytes are inside the address space; the caller's contract.
    Ok(unsafe { core::slice::from_raw_parts_mut(pointer, len) })
}

/// The place of a result, which is written without being read.
pub(crate) unsafe fn out<'a, T>(
    operand: &'static str,
    pointer: *mut T,
) -> Result<&'a mut MaybeUninit<T>, Failure> {
    check(operand, pointer, 1)?;
    // SAFETY: not null and aligned; the caller's contract. `MaybeUninit` asks for no value.
    Ok(unsafe { &mut *pointer.cast() })
}

/// Text that ends with a zero.
pub(crate) unsafe fn text<'a>(
    operand: &'static str,
    pointer: *const c_char,
) -> Result<&'a str, Failure> {
    if pointer.is_null() {
        return Err(Failure::argument(operand, "a pointer", "null"));
    }
    // SAFETY: not null; the caller's contract.
    let text = unsafe { CStr::from_ptr(pointer) };
    text.to_str().map_err(|_| Failure::argument(operand, "UTF-8", "other bytes"))
}

/// `None` if the pointer is null.
pub(crate) unsafe fn optional_text<'a>(
    operand: &'static str,
    pointer: *const c_char,
) -> Result<Option<&'a str>, Failure> {
    if pointer.is_null() {
        return Ok(None);
    }
    // SAFETY: the caller's contract.
    unsafe { text(operand, pointer) }.map(Some)
}

/// Text of `len` bytes, which need not end with a zero.
pub(crate) unsafe fn text_of<'a>(
    operand: &'static str,
    pointer: *const c_char,
    len: usize,
) -> Result<&'a str, Failure> {
    // SAFETY: the caller's contract.
    let bytes = unsafe { slice(operand, pointer.cast::<u8>(), len) }?;
    core::str::from_utf8(bytes).map_err(|_| Failure::argument(operand, "UTF-8", "other bytes"))
}

/// Copies `text` with a terminating zero into the caller's buffer of `len` bytes, cut off at the end of a character if it is
/// longer. Returns the length of the whole text.
pub(crate) unsafe fn write_text(text: &[u8], buffer: *mut c_char, len: usize) -> usize {
    if !buffer.is_null() && len > 0 {
        let mut take = text.len().min(len - 1);
        // A byte that continues a character.
        while take < text.len() && text[take] & 0xc0 == 0x80 {
            take -= 1;
        }
        // SAFETY: the buffer has `len` bytes by the caller's contract, and `take` is less.
        unsafe {
            ptr::copy_nonoverlapping(text.as_ptr(), buffer.cast(), take);
            buffer.add(take).write(0);
        }
    }
    text.len()
}

/// Copies `text` into the caller's buffer, and writes its length.
pub(crate) unsafe fn write_whole(
    text: &str,
    buffer: *mut c_char,
    len: usize,
    text_len: *mut usize,
) -> Result<(), Failure> {
    // SAFETY: the caller's contract.
    let whole = unsafe { write_text(text.as_bytes(), buffer, len) };
    if !text_len.is_null() {
        // SAFETY: the caller's contract.
        unsafe { out("text_len", text_len) }?.write(whole);
    }
    Ok(())
}

/// Lists of ids that lie end to end: list `i` is `ids[offsets[i]..offsets[i + 1]]`.
pub(crate) unsafe fn lists<'a>(
    ids: *const u32,
    offsets: *const usize,
    count: usize,
) -> Result<impl ExactSizeIterator<Item = &'a [u32]>, Failure> {
    let mut all: &[u32] = &[];
    let mut places: &[usize] = &[];
    if count > 0 {
        let length = count.checked_add(1).ok_or_else(|| {
            Failure::argument("offsets", "a number of lists that memory can have", count)
        })?;
        // SAFETY: the caller's contract.
        places = unsafe { slice("offsets", offsets, length) }?;
        if let Some(at) = places.windows(2).position(|pair| pair[0] > pair[1]) {
            let expected = Value::AtLeast(places[at]);
            return Err(Failure::argument("offsets", expected, places[at + 1]));
        }
        // SAFETY: the caller's contract: the ids reach to the last offset.
        all = unsafe { slice("ids", ids, places[count]) }?;
    }
    Ok((0..count).map(move |list| &all[places[list]..places[list + 1]]))
}

/// Drops the box behind the caller's pointer, and sets the pointer to null.
pub(crate) unsafe fn close_box<T>(
    operand: &'static str,
    pointer: *mut *mut T,
) -> Result<(), Failure> {
    // SAFETY: the caller's contract.
    let pointer = unsafe { reference_mut(operand, pointer) }?;
    let boxed = core::mem::replace(pointer, core::ptr::null_mut());
    if !boxed.is_null() {
        // SAFETY: it came from `Box::into_raw`, and is closed once, by the caller's contract.
        drop(unsafe { Box::from_raw(boxed) });
    }
    Ok(())
}

/// A struct of the interface that begins with its size in bytes.
///
/// # Safety
/// It is `repr(C)`, its first field is a `usize`, and zeros are a value of it.
pub(crate) unsafe trait SizedStruct: Copy {
    /// The name in C.
    const NAME: &'static str;
    /// Its size in the first version of the interface.
    const FIRST_SIZE: usize;
}

/// Implements [`SizedStruct`], with the last field of the first version.
macro_rules! sized_struct {
    ($($name:ident: $last:ident as $type:ty;)*) => {$(
        // SAFETY: `repr(C)`; the first field is `struct_size`; all fields are numbers, pointers or optional functions.
        unsafe impl $crate::pointers::SizedStruct for $name {
            const NAME: &'static str = stringify!($name);
            const FIRST_SIZE: usize =
                core::mem::offset_of!($name, $last) + core::mem::size_of::<$type>();
        }
    )*};
}
pub(crate) use sized_struct;

/// The size that the caller wrote into a struct.
unsafe fn struct_size<T: SizedStruct>(pointer: *const T) -> Result<usize, Failure> {
    check(T::NAME, pointer, 1)?;
    // SAFETY: not null and aligned; the struct begins with its size.
    let size = unsafe { pointer.cast::<usize>().read() };
    let wrong = |expected| Err(Failure::own(SF_ERROR_STRUCT_SIZE, T::NAME, expected, size));
    if size < T::FIRST_SIZE {
        wrong(Value::AtLeast(T::FIRST_SIZE))
    } else if size > LARGEST_STRUCT {
        wrong(Value::AtMost(LARGEST_STRUCT))
    } else {
        Ok(size)
    }
}

/// The caller's struct. Fields that it lacks are zeros, and fields that this version lacks must be.
pub(crate) unsafe fn read_struct<T: SizedStruct>(pointer: *const T) -> Result<T, Failure> {
    // SAFETY: the caller's contract.
    let size = unsafe { struct_size(pointer) }?;
    let known = size.min(size_of::<T>());
    // SAFETY: the struct has `size` bytes.
    let unknown =
        unsafe { core::slice::from_raw_parts(pointer.cast::<u8>().add(known), size - known) };
    if unknown.iter().any(|&byte| byte != 0) {
        let expected = "zeros in the fields that this version of the library does not know";
        return Err(Failure::own(SF_ERROR_STRUCT_SIZE, T::NAME, expected, "others"));
    }
    let mut value = MaybeUninit::<T>::zeroed();
    // SAFETY: both have `known` bytes; zeros are a value of the type.
    unsafe {
        ptr::copy_nonoverlapping(pointer.cast::<u8>(), value.as_mut_ptr().cast(), known);
        Ok(value.assume_init())
    }
}

/// As [`read_struct`]; `None` if the pointer is null.
pub(crate) unsafe fn optional_struct<T: SizedStruct>(
    pointer: *const T,
) -> Result<Option<T>, Failure> {
    if pointer.is_null() {
        return Ok(None);
    }
    // SAFETY: the caller's contract.
    unsafe { read_struct(pointer) }.map(Some)
}

/// The elements of an array of `count` structs, each of the size of the first.
pub(crate) unsafe fn structs<T: SizedStruct>(
    operand: &'static str,
    first: *const T,
    count: usize,
) -> Result<impl ExactSizeIterator<Item = Result<T, Failure>>, Failure> {
    let mut size = size_of::<T>();
    if count > 0 {
        check(operand, first, count)?;
        // SAFETY: the caller's contract.
        size = unsafe { struct_size(first) }?;
        let all = size.checked_mul(count).filter(|&bytes| bytes <= isize::MAX as usize);
        if !size.is_multiple_of(align_of::<T>()) || all.is_none() {
            let expected = "the size of a struct in an array";
            return Err(Failure::own(SF_ERROR_STRUCT_SIZE, T::NAME, expected, size));
        }
    }
    Ok((0..count).map(move |index| {
        // SAFETY: the array has `count` structs of `size` bytes, by the caller's contract, and each begins with its size.
        let (place, found) = unsafe {
            let place = first.byte_add(index * size);
            (place, place.cast::<usize>().read())
        };
        if found != size {
            let expected = Value::Exactly(size);
            return Err(Failure::own(SF_ERROR_STRUCT_SIZE, T::NAME, expected, found));
        }
        // SAFETY: as above.
        unsafe { read_struct(place) }
    }))
}

/// Writes as much of `value` as the caller's struct has place for. The size does not change.
pub(crate) unsafe fn write_struct<T: SizedStruct>(
    pointer: *mut T,
    value: T,
) -> Result<(), Failure> {
    // SAFETY: the caller's contract.
    let size = unsafe { struct_size(pointer.cast_const()) }?;
    let start = size_of::<usize>();
    let known = size.min(size_of::<T>()) - start;
    // SAFETY: both have `start + known` bytes.
    unsafe {
        let from = ptr::from_ref(&value).cast::<u8>().add(start);
        ptr::copy_nonoverlapping(from, pointer.cast::<u8>().add(start), known);
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[derive(Clone, Copy, Debug, PartialEq)]
    #[repr(C)]
    struct Later {
        struct_size: usize,
        first: u64,
        second: u64,
    }
    sized_struct! { Later: first as u64; }

    #[test]
    fn a_struct_of_an_older_or_a_newer_header_is_read() {
        let full = Later { struct_size: 24, first: 1, second: 2 };
        // SAFETY: all pointers are to arrays that are as long as their first number says.
        unsafe {
            assert!(read_struct(&raw const full).is_ok_and(|read| read == full));
            let old = [16_u64, 1, 77];
            let read = read_struct(old.as_ptr().cast::<Later>());
            assert!(read.is_ok_and(|read| read == Later { struct_size: 16, first: 1, second: 0 }));
            let mut newer = [32_u64, 1, 2, 0];
            assert!(read_struct(newer.as_ptr().cast::<Later>()).is_ok());
            newer[3] = 9;
            for wrong in [newer, [15, 1, 2, 0], [0, 1, 2, 0], [u64::MAX, 1, 2, 0]] {
                let code = read_struct(wrong.as_ptr().cast::<Later>()).err().map(|e| e.report());
                assert_eq!(code, Some(SF_ERROR_STRUCT_SIZE), "{wrong:?}");
            }
            let mut place = [16_u64, 0, 77];
            write_struct(place.as_mut_ptr().cast::<Later>(), full).unwrap_or_else(|_| panic!());
            assert_eq!(place, [16, 1, 77]);
            let array = [16_u64, 1, 16, 2, 24, 3];
            let read = structs("array", array.as_ptr().cast::<Later>(), 3);
            let read: Vec<_> = read.unwrap_or_else(|_| panic!()).map(|one| one.is_ok()).collect();
            assert_eq!(read, [true, true, false]);
        }
    }

    #[test]
    fn lengths_that_memory_cannot_have_are_errors() {
        let one = [0_u32; 1];
        for len in [usize::MAX, usize::MAX / 4, isize::MAX as usize / 4 + 1, usize::MAX - 1] {
            // SAFETY: the length is refused.
            assert!(unsafe { slice("ids", one.as_ptr(), len) }.is_err(), "{len}");
        }
        // SAFETY: null and misaligned pointers are refused; no element is read.
        unsafe {
            assert!(slice::<u32>("ids", ptr::null(), 0).is_ok());
            assert!(slice::<u32>("ids", ptr::null(), 1).is_err());
            assert!(slice("ids", one.as_ptr().byte_add(1), 1).is_err());
        }
    }
}
