//! Reading and writing through the caller's pointers: null is an invalid value; that any other
//! pointer is good for its type is the caller's side of the contract, as with the real library.

use std::ffi::{CStr, c_char, c_int};

use crate::result::{Error, INVALID_VALUE, Outcome};

/// Writes a value.
pub(crate) fn put<T>(to: *mut T, value: T) -> Outcome {
    if to.is_null() {
        return Err(INVALID_VALUE);
    }
    // SAFETY: not null, and the caller says that it points to room for a `T`; C gives no promise on
    // alignment inside byte buffers such as handles.
    unsafe { to.write_unaligned(value) };
    Ok(())
}

/// Writes a value unless the caller does not want it.
pub(crate) fn put_if<T>(to: *mut T, value: T) {
    if !to.is_null() {
        // SAFETY: not null, and the caller says that it points to room for a `T`.
        unsafe { to.write_unaligned(value) };
    }
}

/// Reads a value.
pub(crate) fn get<T: Copy>(from: *const T) -> Result<T, Error> {
    if from.is_null() {
        return Err(INVALID_VALUE);
    }
    // SAFETY: not null, and the caller says that it points to a `T`.
    Ok(unsafe { from.read_unaligned() })
}

/// Reads the value at a place of an array.
pub(crate) fn get_at<T: Copy>(from: *const T, at: usize) -> Result<T, Error> {
    if from.is_null() {
        return Err(INVALID_VALUE);
    }
    // SAFETY: not null, and the caller says that the array is at least that long.
    Ok(unsafe { from.add(at).read_unaligned() })
}

/// Reads an array; null is an empty one if it is to have no items.
pub(crate) fn get_list<T: Copy>(from: *const T, count: usize) -> Result<Vec<T>, Error> {
    if from.is_null() && count > 0 {
        return Err(INVALID_VALUE);
    }
    (0..count).map(|at| get_at(from, at)).collect()
}

/// Writes text and its final zero into room for `room` bytes, cut to what fits.
pub(crate) fn put_text(to: *mut c_char, room: c_int, text: &str) -> Outcome {
    let room = usize::try_from(room).unwrap_or(0);
    if to.is_null() || room == 0 {
        return Err(INVALID_VALUE);
    }
    let length = text.len().min(room - 1);
    // SAFETY: not null; the caller says that there is room for `room` bytes, which suffice.
    unsafe {
        std::ptr::copy_nonoverlapping(text.as_ptr(), to.cast::<u8>(), length);
        to.add(length).write(0);
    }
    Ok(())
}

/// Reads text; bytes that are no UTF-8 are replaced.
pub(crate) fn get_text(from: *const c_char) -> Result<String, Error> {
    if from.is_null() {
        return Err(INVALID_VALUE);
    }
    // SAFETY: not null, and the caller says that it points to text with a final zero.
    Ok(unsafe { CStr::from_ptr(from) }.to_string_lossy().into_owned())
}

/// Writes a list as the driver does: without room, only the count is told; with room for `*count`
/// items, as many as fit are written and the rest of the room is cleared.
pub(crate) fn put_list<T: Copy + Default>(to: *mut T, count: *mut usize, items: &[T]) -> Outcome {
    if to.is_null() {
        return put(count, items.len());
    }
    let room = get(count)?;
    for at in 0..room {
        let item = items.get(at).copied().unwrap_or_default();
        // SAFETY: not null, and the caller says that there is room for `*count` items.
        unsafe { to.add(at).write_unaligned(item) };
    }
    put(count, room.min(items.len()))
}
