//! A new process without a copy of this one: what it does until it executes its program is done in our
//! memory while we stand still, as posix_spawn(3) does it, so that a start costs the same however
//! large we are. Between clone and exec only system calls are made, and nothing is allocated, locked
//! or freed.
#![expect(unsafe_code, reason = "clone(2) and the system calls of the child")]

use std::ffi::{CStr, CString, c_char, c_int, c_void};
use std::io;
use std::os::fd::RawFd;
use std::ptr;

use nix::libc;

/// Bytes of the child's stack; it needs a few hundred.
const STACK_BYTES: usize = 64 * 1024;
/// What a child that could not execute its program exits with; nobody gets to see it.
const FAILED: c_int = 127;

/// Everything that the child needs, ready to be handed to system calls.
#[derive(Debug)]
pub(crate) struct Child<'a> {
    pub(crate) program: &'a CStr,
    pub(crate) words: &'a [CString],
    pub(crate) env: &'a [CString],
    pub(crate) folder: &'a CStr,
    /// Standard input, output and error; open in this process until the call returns.
    pub(crate) streams: [RawFd; 3],
    /// The open `cgroup.procs` of the cgroup that it shall be in.
    pub(crate) cgroup: Option<RawFd>,
}

/// What the child could not do.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Step {
    /// Making the process, or what belongs to every one.
    Setup,
    /// Changing to its folder.
    Folder,
    /// Executing the program.
    Execute,
}

/// What the child reads, and the one thing that it writes.
struct Shared<'a> {
    child: &'a Child<'a>,
    words: Vec<*const c_char>,
    env: Vec<*const c_char>,
    parent: libc::pid_t,
    failed: Option<(Step, c_int)>,
}

/// Starts the process, in a group of its own, with no signal blocked and none ignored that we ignore
/// for ourselves; it is killed if this thread ends. Returns when it executes its program.
///
/// # Errors
/// What could not be done; then there is no process.
pub(crate) fn start(child: &Child<'_>) -> Result<u32, (Step, io::Error)> {
    let mut stack: Vec<u128> = Vec::with_capacity(STACK_BYTES / size_of::<u128>());
    let mut shared = Shared {
        child,
        words: pointers(child.words),
        env: pointers(child.env),
        parent: std::process::id() as libc::pid_t,
        failed: None,
    };
    let flags = libc::CLONE_VM | libc::CLONE_VFORK | libc::SIGCHLD;
    // SAFETY: the stack grows down from one past the end of an allocation of its own, which is aligned
    // to 16 bytes and lives, as does `shared`, until the call returns: with CLONE_VFORK that is when
    // the child has executed or exited. Nobody else touches `shared` in between.
    let pid = unsafe {
        let top = stack.as_mut_ptr().add(stack.capacity());
        libc::clone(run, top.cast(), flags, ptr::from_mut(&mut shared).cast())
    };
    let Ok(number) = u32::try_from(pid) else {
        return Err((Step::Setup, io::Error::last_os_error()));
    };
    // SAFETY: the child wrote it, if at all, before this thread went on; the compiler must not assume
    // that nobody did.
    let failed = unsafe { ptr::read_volatile(&raw const shared.failed) };
    let Some((step, code)) = failed else { return Ok(number) };
    // SAFETY: waits for the child that has just been made and has exited.
    unsafe { libc::waitpid(pid, ptr::null_mut(), 0) };
    Err((step, io::Error::from_raw_os_error(code)))
}

fn pointers(strings: &[CString]) -> Vec<*const c_char> {
    strings.iter().map(|text| text.as_ptr()).chain([ptr::null()]).collect()
}

/// A journal that would grow past the limit of file sizes is an error like a full disk, not our end.
pub(crate) fn outlive_file_size_limits() {
    // SAFETY: ignoring a signal installs no handler.
    unsafe { libc::signal(libc::SIGXFSZ, libc::SIG_IGN) };
}

/// What the child does.
extern "C" fn run(shared: *mut c_void) -> c_int {
    // SAFETY: `start` passes a `Shared` that outlives this function and that nobody else uses.
    let shared = unsafe { &mut *shared.cast::<Shared<'_>>() };
    let step = match prepare(shared) {
        Err(step) => step,
        Ok(()) => {
            let program = shared.child.program.as_ptr();
            // SAFETY: strings and lists end with a null and live in the parent.
            unsafe { libc::execve(program, shared.words.as_ptr(), shared.env.as_ptr()) };
            Step::Execute
        }
    };
    // SAFETY: reads this thread's errno.
    shared.failed = Some((step, unsafe { *libc::__errno_location() }));
    // SAFETY: ends the child without running anything of the parent's.
    unsafe { libc::_exit(FAILED) }
}

fn prepare(shared: &Shared<'_>) -> Result<(), Step> {
    let child = shared.child;
    let check = |code: c_int, step| if code < 0 { Err(step) } else { Ok(()) };
    // SAFETY: system calls on our own numbers and strings; the mask is initialised by sigemptyset.
    unsafe {
        let mut nothing = std::mem::zeroed::<libc::sigset_t>();
        check(libc::sigemptyset(&raw mut nothing), Step::Setup)?;
        check(
            libc::sigprocmask(libc::SIG_SETMASK, &raw const nothing, ptr::null_mut()),
            Step::Setup,
        )?;
        // Rust's runtime ignores it; a program that inherited that would not end with its reader.
        libc::signal(libc::SIGPIPE, libc::SIG_DFL);
        libc::signal(libc::SIGXFSZ, libc::SIG_DFL);
        check(libc::setpgid(0, 0), Step::Setup)?;
        check(libc::prctl(libc::PR_SET_PDEATHSIG, libc::SIGKILL), Step::Setup)?;
        if libc::getppid() != shared.parent {
            // It died before the kernel was told; nobody is left to hear of this.
            libc::_exit(FAILED);
        }
        if let Some(procs) = child.cgroup {
            // "0" is the writer itself (cgroups(7)).
            check(libc::write(procs, c"0".as_ptr().cast(), 1) as c_int, Step::Setup)?;
        }
        for (at, stream) in child.streams.iter().enumerate() {
            check(libc::dup2(*stream, at as c_int), Step::Setup)?;
        }
        check(libc::chdir(child.folder.as_ptr()), Step::Folder)
    }
}
