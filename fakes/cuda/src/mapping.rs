//! The system's side of memory: address space, files that processes share, and moving bytes. All that
//! follows an address lies here.

use std::ffi::c_void;
use std::fs::File;
use std::os::fd::{AsRawFd, FromRawFd};

const ANONYMOUS: i32 = libc::MAP_PRIVATE | libc::MAP_ANONYMOUS | libc::MAP_NORESERVE;
const READ_WRITE: i32 = libc::PROT_READ | libc::PROT_WRITE;

fn pointer(address: u64) -> *mut c_void {
    std::ptr::with_exposed_provenance_mut(address as usize)
}

fn size(bytes: u64) -> usize {
    usize::try_from(bytes).unwrap_or(usize::MAX)
}

/// Reserves address space that can be read and written and costs nothing until it is.
pub(crate) fn reserve(bytes: u64) -> Option<u64> {
    // SAFETY: a new mapping at an address of the kernel's choice touches nothing that exists.
    let at = unsafe { libc::mmap(pointer(0), size(bytes), READ_WRITE, ANONYMOUS, -1, 0) };
    if at == libc::MAP_FAILED {
        return None;
    }
    // SAFETY: the mapping was made above; it is only kept out of core dumps.
    unsafe { libc::madvise(at, size(bytes), libc::MADV_DONTDUMP) };
    Some(at.expose_provenance() as u64)
}

/// Lets the system have back what lies in reserved address space; it reads as zeros then.
pub(crate) fn forget(address: u64, bytes: u64) {
    // SAFETY: callers name whole pages of our own reservation in which nothing lives any more.
    unsafe { libc::madvise(pointer(address), size(bytes), libc::MADV_DONTNEED) };
}

/// Puts a part of a file in place of reserved address space.
pub(crate) fn map_file(address: u64, bytes: u64, file: &File, offset: u64) -> bool {
    let offset = libc::off_t::try_from(offset).unwrap_or(libc::off_t::MAX);
    let flags = libc::MAP_SHARED | libc::MAP_FIXED | libc::MAP_NORESERVE;
    let fd = file.as_raw_fd();
    // SAFETY: callers name whole pages of our own reservation; what lay there is theirs to replace.
    let at = unsafe { libc::mmap(pointer(address), size(bytes), READ_WRITE, flags, fd, offset) };
    at != libc::MAP_FAILED
}

/// Turns a mapped file back into reserved address space.
pub(crate) fn unmap_file(address: u64, bytes: u64) {
    let flags = ANONYMOUS | libc::MAP_FIXED;
    // SAFETY: callers name whole pages of our own reservation in which nothing lives any more.
    unsafe { libc::mmap(pointer(address), size(bytes), READ_WRITE, flags, -1, 0) };
}

/// A file in memory only.
pub(crate) fn memory_file(bytes: u64) -> Option<File> {
    // SAFETY: the name is a constant with a final zero.
    let fd = unsafe { libc::memfd_create(c"cuda".as_ptr(), libc::MFD_CLOEXEC) };
    // SAFETY: the descriptor is new and nobody else's.
    let file = (fd >= 0).then(|| unsafe { File::from_raw_fd(fd) })?;
    file.set_len(bytes).ok()?;
    Some(file)
}

/// The file behind a client's descriptor, which stays the client's.
pub(crate) fn duplicate(fd: i32) -> Option<File> {
    // SAFETY: duplicating a number that is no descriptor fails and does nothing.
    let fd = unsafe { libc::fcntl(fd, libc::F_DUPFD_CLOEXEC, 0) };
    // SAFETY: the descriptor is new and nobody else's.
    (fd >= 0).then(|| unsafe { File::from_raw_fd(fd) })
}

/// Copies bytes; the ranges may overlap.
pub(crate) fn copy(to: u64, from: u64, bytes: u64) {
    // SAFETY: device memory has been looked up; that host memory is good is the caller's contract.
    unsafe {
        std::ptr::copy(pointer(from).cast::<u8>(), pointer(to).cast::<u8>(), size(bytes));
    }
}

/// Fills memory with a value of 1, 2 or 4 bytes, `count` times.
pub(crate) fn fill(to: u64, value: u32, width: u32, count: u64) {
    let [first, second, ..] = value.to_le_bytes();
    // SAFETY: the range has been looked up and is written through raw pointers of no greater
    // alignment than the driver demands of its caller.
    unsafe {
        let count = size(count);
        match width {
            1 => pointer(to).cast::<u8>().write_bytes(first, count),
            2 => {
                let to = pointer(to).cast::<u16>();
                (0..count)
                    .for_each(|at| to.add(at).write_unaligned(u16::from_le_bytes([first, second])));
            }
            _ => {
                let to = pointer(to).cast::<u32>();
                (0..count).for_each(|at| to.add(at).write_unaligned(value));
            }
        }
    }
}

/// Bytes of a client's image or text.
pub(crate) fn bytes<'a>(address: u64, length: usize) -> &'a [u8] {
    // SAFETY: the caller says that the image is that long, by a header or a final zero, and that it
    // lives as long as the call.
    unsafe { std::slice::from_raw_parts(pointer(address).cast::<u8>().cast_const(), length) }
}
