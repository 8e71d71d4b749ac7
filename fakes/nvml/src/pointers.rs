//! Reading and writing through the caller's pointers: null is an invalid argument; that any other
//! pointer is good for its type is the caller's side of NVML's contract, as with the real library.

use std::ffi::{CStr, c_char, c_uint};

use fake_machine::Code;

/// Writes a value.
pub(crate) fn put<T>(to: *mut T, value: T) -> Result<(), Code> {
    if to.is_null() {
        return Err(Code::InvalidArgument);
    }
    // SAFETY: not null, and the caller says that it points to room for a `T`.
    unsafe { to.write(value) };
    Ok(())
}

/// Reads a value.
pub(crate) fn get<T: Copy>(from: *const T) -> Result<T, Code> {
    if from.is_null() {
        return Err(Code::InvalidArgument);
    }
    // SAFETY: not null, and the caller says that it points to a `T`.
    Ok(unsafe { from.read() })
}

/// Changes a value in place.
pub(crate) fn with<T>(
    at: *mut T,
    change: impl FnOnce(&mut T) -> Result<(), Code>,
) -> Result<(), Code> {
    // SAFETY: null is turned away; the caller says that it points to a `T` that nobody else uses.
    let value = unsafe { at.as_mut() }.ok_or(Code::InvalidArgument)?;
    change(value)
}

/// Writes text and its final zero into room for `length` bytes.
pub(crate) fn put_text(to: *mut c_char, length: c_uint, text: &str) -> Result<(), Code> {
    if to.is_null() {
        return Err(Code::InvalidArgument);
    }
    if text.len() + 1 > length as usize {
        return Err(Code::InsufficientSize);
    }
    // SAFETY: not null; the caller says that there is room for `length` bytes, which suffice.
    unsafe {
        std::ptr::copy_nonoverlapping(text.as_ptr(), to.cast::<u8>(), text.len());
        to.add(text.len()).write(0);
    }
    Ok(())
}

/// Reads text.
pub(crate) fn get_text(from: *const c_char) -> Result<String, Code> {
    if from.is_null() {
        return Err(Code::InvalidArgument);
    }
    // SAFETY: not null, and the caller says that it points to text with a final zero.
    let text = unsafe { CStr::from_ptr(from) };
    text.to_str().map(str::to_string).map_err(|_| Code::InvalidArgument)
}

/// A fixed array of characters.
pub(crate) fn chars<const N: usize>(text: &str) -> [c_char; N] {
    let mut array = [0; N];
    for (place, byte) in array.iter_mut().take(N.saturating_sub(1)).zip(text.bytes()) {
        *place = byte as c_char;
    }
    array
}

/// Writes a list into room for `*count` items, and how many they are. Too little room is told with
/// the count that is needed; room of 0 only asks for the count.
pub(crate) fn put_list<T>(to: *mut T, count: *mut c_uint, items: Vec<T>) -> Result<(), Code> {
    let room = get(count)?;
    let needed = c_uint::try_from(items.len()).map_err(|_| Code::Unknown)?;
    put(count, needed)?;
    if room < needed {
        return Err(Code::InsufficientSize);
    }
    put_all(to, items)
}

/// Writes a list whose room the caller has made large enough, and how many they are.
pub(crate) fn put_whole_list<T>(to: *mut T, count: *mut c_uint, items: Vec<T>) -> Result<(), Code> {
    put(count, c_uint::try_from(items.len()).map_err(|_| Code::Unknown)?)?;
    put_all(to, items)
}

/// Writes items one after the other.
pub(crate) fn put_all<T>(to: *mut T, items: Vec<T>) -> Result<(), Code> {
    if to.is_null() && !items.is_empty() {
        return Err(Code::InvalidArgument);
    }
    for (at, item) in items.into_iter().enumerate() {
        // SAFETY: not null, and the caller says that there is room for all items.
        unsafe { to.add(at).write(item) };
    }
    Ok(())
}

/// Checks the version that a caller wrote into a struct: the struct's size and its version number.
pub(crate) fn check_version<T>(found: c_uint, version: c_uint) -> Result<(), Code> {
    let size = c_uint::try_from(size_of::<T>()).unwrap_or(0);
    if found == size | version << 24 { Ok(()) } else { Err(Code::ArgumentVersionMismatch) }
}
