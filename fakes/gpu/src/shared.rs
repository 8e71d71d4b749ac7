//! The shared file in memory: its mapping, its two locks, and the clock. All that is unsafe is here.
#![allow(
    unsafe_code,
    reason = "mapping a file, mutexes that processes share, and a clock that the library lacks"
)]

use std::cell::UnsafeCell;
use std::fs::{self, File, OpenOptions, Permissions};
use std::io::{Error, ErrorKind, Result};
use std::marker::PhantomData;
use std::ops::{Deref, DerefMut};
use std::os::fd::AsRawFd;
use std::os::unix::fs::PermissionsExt;
use std::path::Path;
use std::ptr::NonNull;
use std::sync::atomic::{AtomicU32, AtomicU64, Ordering};

use crate::books::Books;
use crate::works::Works;

/// Name of the file in the machine's folder.
const FILE: &str = "gpus";
/// First bytes of the file.
const MAGIC: u64 = u64::from_le_bytes(*b"fakegpus");
/// Layout of the file; to be raised with each change of it.
const VERSION: u64 = 1;

/// Two parts that are locked apart from each other. A file of zeros is one in which nothing has
/// happened, but for the head and the mutexes.
#[repr(C)]
pub(crate) struct Shared {
    magic: AtomicU64,
    version: AtomicU64,
    size: AtomicU64,
    /// When the machine was made that this belongs to, in ms since 1970.
    pub(crate) created_ms: AtomicU64,
    /// The virtual time plus 1 in ns; 0 while the real clock counts.
    pub(crate) virtual_ns: AtomicU64,
    pub(crate) books: Lock<Books>,
    pub(crate) works: Lock<Works>,
}

/// What can be set right after its writer died in the middle of a change.
///
/// # Safety
/// Any bytes must be a value of the type: it consists of plain numbers, atomics among them.
pub(crate) unsafe trait Repair {
    /// Makes everything that follows from other parts anew.
    fn repair(&mut self);
}

// SAFETY: numbers only.
unsafe impl Repair for Books {
    fn repair(&mut self) {
        self.recount();
    }
}

// SAFETY: numbers only.
unsafe impl Repair for Works {
    fn repair(&mut self) {
        self.relink();
    }
}

/// A value that one thread of one process has at a time. Whoever dies with it leaves it to the next,
/// who repairs it.
#[repr(C)]
pub(crate) struct Lock<T> {
    mutex: UnsafeCell<libc::pthread_mutex_t>,
    /// Not 0: a holder died or panicked, and the value was not repaired yet.
    torn: AtomicU32,
    value: UnsafeCell<T>,
}

// SAFETY: the value is reached only by who holds the mutex.
unsafe impl<T: Send> Sync for Lock<T> {}

impl<T: Repair> Lock<T> {
    /// Makes the mutex; to be called once, before anybody else sees the file.
    fn start(&self) -> Result<()> {
        let mut attributes = std::mem::MaybeUninit::uninit();
        // SAFETY: the attributes are made before they are used, and the mutex is in memory of ours.
        let done = unsafe {
            let made = attributes.as_mut_ptr();
            [
                libc::pthread_mutexattr_init(made),
                libc::pthread_mutexattr_setpshared(made, libc::PTHREAD_PROCESS_SHARED),
                libc::pthread_mutexattr_setrobust(made, libc::PTHREAD_MUTEX_ROBUST),
                libc::pthread_mutex_init(self.mutex.get(), made),
            ]
        };
        match done.into_iter().find(|code| *code != 0) {
            None => Ok(()),
            Some(code) => Err(Error::from_raw_os_error(code)),
        }
    }

    /// Waits until nobody else has the value.
    ///
    /// # Panics
    /// If the file's mutex is none.
    pub(crate) fn lock(&self) -> Guard<'_, T> {
        // SAFETY: the mutex was made before the file got its name.
        match unsafe { libc::pthread_mutex_lock(self.mutex.get()) } {
            0 => {}
            libc::EOWNERDEAD => {
                self.torn.store(1, Ordering::SeqCst);
                // SAFETY: this thread holds it.
                unsafe { libc::pthread_mutex_consistent(self.mutex.get()) };
            }
            code => panic!("the lock of the simulated GPUs is broken: error {code}"),
        }
        let mut guard = Guard { lock: self, of_this_thread: PhantomData };
        if self.torn.load(Ordering::SeqCst) != 0 {
            guard.repair();
            self.torn.store(0, Ordering::SeqCst);
        }
        guard
    }
}

/// The value, as long as this lives.
pub(crate) struct Guard<'a, T> {
    lock: &'a Lock<T>,
    /// A mutex is let go by the thread that took it.
    of_this_thread: PhantomData<*const ()>,
}

impl<T> Deref for Guard<'_, T> {
    type Target = T;

    fn deref(&self) -> &T {
        // SAFETY: whoever has a guard holds the mutex.
        unsafe { &*self.lock.value.get() }
    }
}

impl<T> DerefMut for Guard<'_, T> {
    fn deref_mut(&mut self) -> &mut T {
        // SAFETY: whoever has a guard holds the mutex, and there is one guard.
        unsafe { &mut *self.lock.value.get() }
    }
}

impl<T> Drop for Guard<'_, T> {
    fn drop(&mut self) {
        if std::thread::panicking() {
            self.lock.torn.store(1, Ordering::SeqCst);
        }
        // SAFETY: this thread holds it.
        unsafe { libc::pthread_mutex_unlock(self.lock.mutex.get()) };
    }
}

/// Memory that is shared with others or kept from children; given back in the end.
pub(crate) struct Mapping<T> {
    at: NonNull<T>,
}

// SAFETY: what is mapped may be used by many threads, and a mapping belongs to no thread.
unsafe impl<T: Sync> Send for Mapping<T> {}
// SAFETY: as above.
unsafe impl<T: Sync> Sync for Mapping<T> {}

impl<T> Mapping<T> {
    fn new(flags: i32, fd: i32) -> Result<Self> {
        let access = libc::PROT_READ | libc::PROT_WRITE;
        // SAFETY: a new mapping where the kernel likes.
        let at = unsafe { libc::mmap(std::ptr::null_mut(), size_of::<T>(), access, flags, fd, 0) };
        if at == libc::MAP_FAILED {
            return Err(Error::last_os_error());
        }
        NonNull::new(at.cast()).map(|at| Self { at }).ok_or_else(Error::last_os_error)
    }
}

impl<T> Deref for Mapping<T> {
    type Target = T;

    fn deref(&self) -> &T {
        // SAFETY: mapped as long as this lives, and only made for types of plain numbers.
        unsafe { self.at.as_ref() }
    }
}

impl<T> Drop for Mapping<T> {
    fn drop(&mut self) {
        // SAFETY: it was mapped with that size, and nobody borrows it any more.
        unsafe { libc::munmap(self.at.as_ptr().cast(), size_of::<T>()) };
    }
}

/// What one process remembers of itself. The kernel makes it zeros in a child, so that a child does
/// not take itself for its parent.
#[repr(C)]
pub(crate) struct Myself {
    /// The pid; 0 if it is to be asked for.
    pub(crate) pid: AtomicU32,
    /// When the process started.
    pub(crate) start: AtomicU64,
}

/// An empty memory of oneself.
pub(crate) fn myself() -> Result<Mapping<Myself>> {
    let mapping = Mapping::<Myself>::new(libc::MAP_PRIVATE | libc::MAP_ANONYMOUS, -1)?;
    // SAFETY: the range is the mapping; the call is for private memory without a file.
    let done = unsafe {
        libc::madvise(mapping.at.as_ptr().cast(), size_of::<Myself>(), libc::MADV_WIPEONFORK)
    };
    if done == 0 { Ok(mapping) } else { Err(Error::last_os_error()) }
}

/// The file of a machine that was made at `created_ms`; one that is of another machine, of another
/// version or half made is replaced.
pub(crate) fn open(folder: &Path, created_ms: u64) -> Result<Mapping<Shared>> {
    if let Some(found) = open_existing(folder, created_ms)? {
        return Ok(found);
    }
    let lock = File::create(folder.join("gpus.lock"))?;
    lock.lock()?;
    // Another process may have made it while this one waited.
    match open_existing(folder, created_ms)? {
        Some(found) => Ok(found),
        None => make(folder, created_ms),
    }
}

/// The same, if there is one; nothing is made or replaced.
pub(crate) fn open_existing(folder: &Path, created_ms: u64) -> Result<Option<Mapping<Shared>>> {
    let file = match OpenOptions::new().read(true).write(true).open(folder.join(FILE)) {
        Ok(file) => file,
        Err(error) if error.kind() == ErrorKind::NotFound => return Ok(None),
        Err(error) => return Err(error),
    };
    if file.metadata()?.len() != size_of::<Shared>() as u64 {
        return Ok(None);
    }
    let found = Mapping::<Shared>::new(libc::MAP_SHARED, file.as_raw_fd())?;
    let is = |number: &AtomicU64, expected| number.load(Ordering::Acquire) == expected;
    let good = is(&found.magic, MAGIC)
        && is(&found.version, VERSION)
        && is(&found.size, size_of::<Shared>() as u64)
        && is(&found.created_ms, created_ms);
    Ok(good.then_some(found))
}

/// Makes the file. It gets its name when it is whole.
fn make(folder: &Path, created_ms: u64) -> Result<Mapping<Shared>> {
    let temporary = folder.join("gpus.new");
    let mut options = OpenOptions::new();
    let file = options.read(true).write(true).create(true).truncate(true).open(&temporary)?;
    file.set_len(size_of::<Shared>() as u64)?;
    // Whoever may make files in the machine's folder may use its GPUs.
    let mode = fs::metadata(folder)?.permissions().mode() & 0o666;
    file.set_permissions(Permissions::from_mode(mode | 0o600))?;
    let made = Mapping::<Shared>::new(libc::MAP_SHARED, file.as_raw_fd())?;
    made.books.start()?;
    made.works.start()?;
    made.version.store(VERSION, Ordering::Relaxed);
    made.size.store(size_of::<Shared>() as u64, Ordering::Relaxed);
    made.created_ms.store(created_ms, Ordering::Relaxed);
    made.magic.store(MAGIC, Ordering::Release);
    fs::rename(&temporary, folder.join(FILE))?;
    Ok(made)
}

/// The monotonic clock, which all processes share, in ns.
pub(crate) fn clock_ns() -> u64 {
    let mut time = libc::timespec { tv_sec: 0, tv_nsec: 0 };
    // SAFETY: the pointer is good for the call.
    unsafe { libc::clock_gettime(libc::CLOCK_MONOTONIC, &raw mut time) };
    let part = |number: i64| u64::try_from(number).unwrap_or(0);
    part(time.tv_sec) * 1_000_000_000 + part(time.tv_nsec)
}
