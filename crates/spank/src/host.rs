//! What we call of Slurm. The program that has loaded us has these functions; they are looked up by name, so
//! that the file needs no library of Slurm's and can be mapped anywhere.

use std::ffi::{CStr, CString, c_char, c_int, c_void};
use std::ptr::NonNull;

/// Slurm's `spank_t`: of a job or task, valid during one call.
pub(crate) type Handle = *mut c_void;

/// `S_JOB_ID` and `S_JOB_STEPID` of `enum spank_item` in `spank.h`: both are `uint32_t`.
const JOB_ID: c_int = 2;
const STEP_ID: c_int = 3;

/// `MAX_ARG_STRLEN` of Linux: no variable of a process is longer.
const VARIABLE_MAX: usize = 128 * 1024;

/// Where a plugin's code runs; `enum spank_context` of `spank.h`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Context {
    /// `srun`.
    Srun,
    /// `sbatch` or `salloc`.
    Allocator,
    /// `slurmstepd`: on the node, around a task.
    Node,
    /// slurmd, prolog and epilog, or one that came later.
    Other,
}

/// The address of one of Slurm's functions.
pub(crate) fn symbol(name: &CStr) -> Option<NonNull<c_void>> {
    // SAFETY: the name ends with a zero byte; the call has no other condition.
    NonNull::new(unsafe { libc::dlsym(libc::RTLD_DEFAULT, name.as_ptr()) })
}

/// Where we are.
pub(crate) fn context() -> Context {
    let Some(address) = symbol(c"spank_context") else { return Context::Other };
    // SAFETY: `spank_context` of `spank.h` takes nothing and returns an enum.
    let ask: extern "C" fn() -> c_int = unsafe { std::mem::transmute(address) };
    match ask() {
        1 => Context::Srun,
        2 => Context::Node,
        3 => Context::Allocator,
        _ => Context::Other,
    }
}

/// Tells the user, or on a node the task's error output, what is wrong.
pub(crate) fn error(text: &str) {
    let Some(address) = symbol(c"slurm_error") else { return };
    // SAFETY: `slurm_error` takes a format and what it says.
    let say: unsafe extern "C" fn(*const c_char, ...) = unsafe { std::mem::transmute(address) };
    let text = zero_ended(text);
    // SAFETY: the format wants one string, which outlives the call.
    unsafe { say(c"%s".as_ptr(), text.as_ptr()) };
}

/// A job, step or task while Slurm calls us for it.
#[derive(Clone, Copy)]
pub(crate) struct Call(pub(crate) Handle);

impl Call {
    /// The number of the job; that of an array's element is its own.
    pub(crate) fn job(self) -> Option<u32> {
        self.item(JOB_ID)
    }

    /// The number of the step.
    pub(crate) fn step(self) -> Option<u32> {
        self.item(STEP_ID)
    }

    fn item(self, item: c_int) -> Option<u32> {
        let address = symbol(c"spank_get_item")?;
        // SAFETY: `spank_get_item` takes the handle, the item and where its value goes.
        let get: unsafe extern "C" fn(Handle, c_int, ...) -> c_int =
            unsafe { std::mem::transmute(address) };
        let mut value = 0_u32;
        // SAFETY: both items that are asked for are `uint32_t`; the handle is Slurm's.
        let code = unsafe { get(self.0, item, &raw mut value) };
        (code == 0).then_some(value)
    }

    /// A variable of the job's environment; `None` if it is not there.
    pub(crate) fn variable(self, name: &str) -> Option<String> {
        let address = symbol(c"spank_getenv")?;
        // SAFETY: `spank_getenv` takes the handle, a name, a place and its size.
        let get: unsafe extern "C" fn(Handle, *const c_char, *mut c_char, c_int) -> c_int =
            unsafe { std::mem::transmute(address) };
        let (name, mut room) = (zero_ended(name), vec![0_u8; VARIABLE_MAX]);
        let size = c_int::try_from(room.len()).ok()?;
        // SAFETY: the place has `size` bytes; Slurm ends what it writes with a zero byte.
        let code = unsafe { get(self.0, name.as_ptr(), room.as_mut_ptr().cast(), size) };
        let value = CStr::from_bytes_until_nul(&room).ok()?;
        (code == 0).then(|| value.to_string_lossy().into_owned())
    }

    /// Sets a variable of the task, over one that is there.
    ///
    /// # Errors
    /// Slurm's code.
    pub(crate) fn set(self, name: &str, value: &str) -> Result<(), c_int> {
        let address = symbol(c"spank_setenv").ok_or(-1)?;
        // SAFETY: `spank_setenv` takes the handle, a name, a value and whether to overwrite.
        let set: unsafe extern "C" fn(Handle, *const c_char, *const c_char, c_int) -> c_int =
            unsafe { std::mem::transmute(address) };
        let (name, value) = (zero_ended(name), zero_ended(value));
        // SAFETY: both strings end with a zero byte and outlive the call, which copies them.
        match unsafe { set(self.0, name.as_ptr(), value.as_ptr(), 1) } {
            0 => Ok(()),
            code => Err(code),
        }
    }
}

/// A string for C, up to its first zero byte.
fn zero_ended(text: &str) -> CString {
    let head = text.split('\0').next().unwrap_or_default();
    CString::new(head).unwrap_or_default()
}
