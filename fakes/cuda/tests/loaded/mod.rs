//! The fake driver, loaded as programs load it.

#![allow(
    clippy::unwrap_used,
    clippy::print_stderr,
    unsafe_code,
    dead_code,
    reason = "a part of tests, of which each uses some"
)]

#[path = "../../../machine/tests/loaded/alone.rs"]
mod alone;

use std::ffi::{CString, c_void};
use std::path::{Path, PathBuf};
use std::time::Duration;

use fake_machine::{Machine, State};

/// A machine and a driver that shows it, not initialised.
pub(crate) struct Loaded {
    pub(crate) machine: Machine,
    handle: *mut c_void,
}

/// In the test's own process: the machine, made of these GPUs and changed, and its driver. Else runs
/// that process with these variables, fails if it fails, and returns nothing.
pub(crate) fn alone(
    test: &str,
    gpus: &str,
    variables: &[(&str, &str)],
    change: impl FnOnce(&mut State),
) -> Option<Loaded> {
    let machine = alone::alone(test, gpus, variables, change)?;
    Some(Loaded::open(machine, "cuda"))
}

/// The fake driver that lies in the target folder.
pub(crate) fn library() -> PathBuf {
    library_of("cuda")
}

/// The library of a part of it: `cuda` or `nvml`.
fn library_of(part: &str) -> PathBuf {
    let test = std::env::current_exe().unwrap();
    let folder = test.parent().unwrap().parent().unwrap();
    let path = folder.join(format!("libhotpot_fake_{part}.so"));
    assert!(path.exists(), "{}: build it first: cargo build -p fake-{part}", path.display());
    path
}

fn open(library: &Path) -> *mut c_void {
    let path = CString::new(library.to_str().unwrap()).unwrap();
    // SAFETY: the fake driver's initialisers do nothing.
    let handle = unsafe { libc::dlopen(path.as_ptr(), libc::RTLD_NOW) };
    assert!(!handle.is_null());
    handle
}

impl Loaded {
    /// A machine that the environment names too, and a part of the driver: `cuda` or `nvml`.
    pub(crate) fn open(machine: Machine, part: &str) -> Self {
        Self { machine, handle: open(&library_of(part)) }
    }

    /// The address of a symbol; null if there is none.
    pub(crate) fn symbol(&self, name: &str) -> *mut c_void {
        let name = CString::new(name).unwrap();
        // SAFETY: the library stays loaded.
        unsafe { libc::dlsym(self.handle, name.as_ptr()) }
    }

    /// A function of up to five arguments, each a number or a pointer.
    pub(crate) fn call(&self, name: &str, args: &[usize]) -> u32 {
        type Function = extern "C" fn(usize, usize, usize, usize, usize) -> u32;
        let symbol = self.symbol(name);
        assert!(!symbol.is_null(), "{name}");
        // SAFETY: the functions that tests call take numbers and pointers only; with the C calling
        // convention surplus arguments do no harm.
        let function = unsafe { std::mem::transmute::<*mut c_void, Function>(symbol) };
        let arg = |at: usize| args.get(at).copied().unwrap_or(0);
        function(arg(0), arg(1), arg(2), arg(3), arg(4))
    }

    /// As [`Loaded::call`], which must succeed and write a word to where its first argument points.
    pub(crate) fn get(&self, name: &str, args: &[usize]) -> usize {
        let mut word = 0_usize;
        let first = (&raw mut word).expose_provenance();
        let args: Vec<usize> = std::iter::once(first).chain(args.iter().copied()).collect();
        assert_eq!(self.call(name, &args), 0, "{name}");
        word
    }

    /// Initialises the driver and makes a GPU's primary context current.
    pub(crate) fn start(&self, device: usize) -> usize {
        assert_eq!(self.call("cuInit", &[0]), 0);
        let context = self.get("cuDevicePrimaryCtxRetain", &[device]);
        assert_eq!(self.call("cuCtxSetCurrent", &[context]), 0);
        context
    }

    /// Bytes in use on the current device.
    pub(crate) fn used(&self) -> usize {
        let (mut free, mut total) = (0_usize, 0_usize);
        let at = |word: &mut usize| (&raw mut *word).expose_provenance();
        assert_eq!(self.call("cuMemGetInfo_v2", &[at(&mut free), at(&mut total)]), 0);
        total - free
    }

    /// Changes the machine and waits until the driver knows.
    pub(crate) fn set(&self, change: impl FnOnce(&mut State)) {
        let edited = self.machine.edit(|state| {
            change(state);
            Ok(())
        });
        edited.unwrap();
        std::thread::sleep(Duration::from_millis(2));
    }

    /// The UUID that a function tells of a device, as hexadecimal digits.
    pub(crate) fn uuid(&self, name: &str, device: usize) -> String {
        let mut bytes = [0_u8; 16];
        assert_eq!(self.call(name, &[bytes.as_mut_ptr().expose_provenance(), device]), 0);
        bytes.iter().map(|byte| format!("{byte:02x}")).collect()
    }
}

/// The digits of a UUID with a prefix.
pub(crate) fn digits(uuid: &str) -> String {
    uuid.chars().skip_while(|c| *c != '-').filter(char::is_ascii_hexdigit).collect()
}
