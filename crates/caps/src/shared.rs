//! Files that processes map and change together.
#![allow(unsafe_code, reason = "mapping a file, and seeing a page in it")]

use std::fs::{File, OpenOptions};
use std::io::{self, Read};
use std::ops::Deref;
use std::os::fd::AsRawFd;
use std::os::unix::fs::{OpenOptionsExt, PermissionsExt};
use std::path::Path;
use std::ptr::NonNull;

/// What may lie in a shared file.
///
/// # Safety
/// The type is `#[repr(C)]` and made of atomics only: any bytes are a valid value, and all of it may
/// change at any time. All bytes 0 is a page on which nothing has happened.
pub unsafe trait Page: Sync {
    /// Stands for the layout: a file of another one is not taken.
    const LAYOUT: u64;
}

/// Bytes before the page: the layout, padded so that the page begins on a cache line.
const HEAD: usize = 64;

/// A page in a mapped file. It stays until this is dropped, whatever becomes of the file's name.
#[derive(Debug)]
pub struct Mapped<T> {
    at: NonNull<T>,
}

// SAFETY: a page is made of atomics; the mapping belongs to nobody in particular.
unsafe impl<T: Page> Send for Mapped<T> {}
// SAFETY: as above.
unsafe impl<T: Page> Sync for Mapped<T> {}

impl<T: Page> Mapped<T> {
    /// Makes the file with a page on which nothing has happened, unless it is there; appears whole or
    /// not at all.
    ///
    /// * `mode` — rights of the file, whatever the umask: whoever is to map it must be able to write.
    ///
    /// # Errors
    /// The system's; `InvalidData` if the file is there and is none of this layout.
    pub fn make(path: &Path, mode: u32) -> io::Result<Self> {
        match Self::open(path) {
            Err(error) if error.kind() == io::ErrorKind::NotFound => {}
            other => return other,
        }
        let fresh = path.with_extension(format!("{}.{}.new", std::process::id(), unique()));
        let file = OpenOptions::new().write(true).create_new(true).mode(mode).open(&fresh)?;
        let made = Self::fill(&file, mode).and_then(|()| match std::fs::hard_link(&fresh, path) {
            // Somebody else was faster: his is as good.
            Err(error) if error.kind() == io::ErrorKind::AlreadyExists => Ok(()),
            other => other,
        });
        let removed = std::fs::remove_file(&fresh);
        made.and(removed)?;
        Self::open(path)
    }

    fn fill(file: &File, mode: u32) -> io::Result<()> {
        use std::os::unix::fs::FileExt;
        file.set_permissions(std::fs::Permissions::from_mode(mode))?;
        // With all of its space: a hole that cannot be filled later would kill who writes there (SIGBUS).
        let length = libc::off_t::try_from(HEAD + size_of::<T>()).unwrap_or(libc::off_t::MAX);
        // SAFETY: plain numbers.
        let code = unsafe { libc::posix_fallocate(file.as_raw_fd(), 0, length) };
        if code != 0 {
            return Err(io::Error::from_raw_os_error(code));
        }
        file.write_all_at(&layout::<T>(), 0)
    }

    /// Maps the page of a file that is there.
    ///
    /// # Errors
    /// The system's; `InvalidData` if it is none of this layout, or a link.
    pub fn open(path: &Path) -> io::Result<Self> {
        let file = options().write(true).open(path)?;
        check::<T>(&file)?;
        let length = HEAD + size_of::<T>();
        let (protection, fd) = (libc::PROT_READ | libc::PROT_WRITE, file.as_raw_fd());
        // SAFETY: a new mapping at an address of the system's choice, of a file that is long enough.
        let at = unsafe {
            libc::mmap(std::ptr::null_mut(), length, protection, libc::MAP_SHARED, fd, 0)
        };
        if at == libc::MAP_FAILED {
            return Err(io::Error::last_os_error());
        }
        // SAFETY: within the mapping, which is aligned beyond `HEAD`, and that as `T` is at least.
        let page = unsafe { at.cast::<u8>().add(HEAD).cast::<T>() };
        NonNull::new(page).map(|at| Self { at }).ok_or_else(|| invalid("mapped at address 0"))
    }
}

/// A copy of a file's page, read and not mapped: whoever may shorten the file could otherwise kill its
/// reader (SIGBUS).
///
/// # Errors
/// As [`Mapped::open`].
pub(crate) fn copy<T: Page>(path: &Path) -> io::Result<Box<T>> {
    let mut file = options().open(path)?;
    check::<T>(&file)?;
    let mut head = [0; HEAD];
    file.read_exact(&mut head)?;
    // SAFETY: all bytes 0 is a valid page.
    let mut page = unsafe { Box::<T>::new_zeroed().assume_init() };
    // SAFETY: the bytes of the page are ours alone, and any bytes are a valid page.
    let bytes =
        unsafe { std::slice::from_raw_parts_mut((&raw mut *page).cast::<u8>(), size_of::<T>()) };
    file.read_exact(bytes)?;
    Ok(page)
}

pub(crate) fn options() -> OpenOptions {
    let mut options = OpenOptions::new();
    options.read(true).custom_flags(libc::O_NOFOLLOW | libc::O_NONBLOCK | libc::O_CLOEXEC);
    options
}

fn check<T: Page>(file: &File) -> io::Result<()> {
    use std::os::unix::fs::FileExt;
    let about = file.metadata()?;
    if !about.is_file() || about.len() < (HEAD + size_of::<T>()) as u64 {
        return Err(invalid("it is no page of this kind"));
    }
    let mut found = [0; 16];
    file.read_exact_at(&mut found, 0)?;
    if found == layout::<T>() {
        Ok(())
    } else {
        Err(invalid("it was made by another version; remove it when nobody uses it any more"))
    }
}

/// What stands for a layout in a file: its number and its size.
fn layout<T: Page>() -> [u8; 16] {
    const { assert!(align_of::<T>() <= HEAD, "the page would not be aligned behind its head") };
    let mut bytes = [0; 16];
    let (number, size) = bytes.split_at_mut(8);
    number.copy_from_slice(&T::LAYOUT.to_ne_bytes());
    size.copy_from_slice(&(size_of::<T>() as u64).to_ne_bytes());
    bytes
}

fn invalid(why: &str) -> io::Error {
    io::Error::new(io::ErrorKind::InvalidData, why)
}

/// Tells temporary files of one process apart.
fn unique() -> u64 {
    use std::sync::atomic::{AtomicU64, Ordering};
    static COUNT: AtomicU64 = AtomicU64::new(0);
    COUNT.fetch_add(1, Ordering::Relaxed)
}

impl<T: Page> Deref for Mapped<T> {
    type Target = T;
    fn deref(&self) -> &T {
        // SAFETY: the mapping lives as long as this does, and any bytes are a valid page.
        unsafe { self.at.as_ref() }
    }
}

impl<T> Drop for Mapped<T> {
    fn drop(&mut self) {
        // SAFETY: the mapping that `open` made, which begins `HEAD` bytes before the page.
        unsafe {
            let begin = self.at.as_ptr().cast::<u8>().sub(HEAD);
            libc::munmap(begin.cast(), HEAD + size_of::<T>());
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::atomic::{AtomicU64, Ordering};

    #[repr(C)]
    #[derive(Debug)]
    struct Words([AtomicU64; 8]);
    // SAFETY: atomics only.
    unsafe impl Page for Words {
        const LAYOUT: u64 = 77;
    }

    fn place(name: &str) -> std::path::PathBuf {
        let path = std::env::temp_dir().join(format!("shared-{}-{name}", std::process::id()));
        let _ = std::fs::remove_file(&path);
        path
    }

    #[test]
    fn all_who_map_it_see_what_one_writes() {
        let path = place("seen");
        let one = Mapped::<Words>::make(&path, 0o600).unwrap();
        let other = Mapped::<Words>::make(&path, 0o600).unwrap();
        one.0[3].store(9, Ordering::SeqCst);
        assert_eq!(other.0[3].load(Ordering::SeqCst), 9);
        assert_eq!(copy::<Words>(&path).unwrap().0[3].load(Ordering::SeqCst), 9);
        std::fs::remove_file(&path).unwrap();
        assert_eq!(one.0[3].load(Ordering::SeqCst), 9, "the mapping outlives the name");
    }

    #[test]
    fn short_foreign_and_linked_files_are_refused() {
        let path = place("refused");
        std::fs::write(&path, [0; 20]).unwrap();
        assert_eq!(Mapped::<Words>::open(&path).unwrap_err().kind(), io::ErrorKind::InvalidData);
        std::fs::write(&path, [1; 4096]).unwrap();
        assert_eq!(
            Mapped::<Words>::make(&path, 0o600).unwrap_err().kind(),
            io::ErrorKind::InvalidData
        );
        let link = place("link");
        std::os::unix::fs::symlink(&path, &link).unwrap();
        assert!(Mapped::<Words>::open(&link).is_err() && copy::<Words>(&link).is_err());
    }
}
