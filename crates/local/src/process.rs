//! Starting a task's process: in a group and, where there is one, a cgroup of its own, with its output
//! in files, and with the promise that it dies if hotpot is killed.
#![expect(unsafe_code, reason = "two system calls between fork and exec")]

use std::collections::BTreeMap;
use std::ffi::OsString;
use std::fs::{File, OpenOptions};
use std::io;
use std::os::fd::AsRawFd;
use std::os::unix::fs::OpenOptionsExt;
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use nix::errno::Errno;
use nix::fcntl::{FcntlArg, OFlag, fcntl};
use nix::sys::prctl;
use nix::sys::signal::{SigSet, SigmaskHow, Signal, sigprocmask};
use nix::unistd::{getpid, getppid};

/// Everything that a start needs.
#[derive(Clone, Debug)]
pub(crate) struct Start {
    /// Program and arguments.
    pub(crate) command: Vec<OsString>,
    /// All its variables.
    pub(crate) env: BTreeMap<OsString, OsString>,
    /// Working folder.
    pub(crate) folder: PathBuf,
    /// Standard output.
    pub(crate) output: PathBuf,
    /// Standard error; together with standard output if `None`.
    pub(crate) error: Option<PathBuf>,
    /// Standard input; nothing if `None`.
    pub(crate) input: Option<PathBuf>,
    /// Whether output is added to files that are there.
    pub(crate) append: bool,
}

/// Why a process was not started, with the way out.
#[derive(Debug, thiserror::Error)]
#[error("{what} {}: {error}", path.display())]
pub(crate) struct NotStarted {
    what: &'static str,
    path: PathBuf,
    error: io::Error,
}

impl NotStarted {
    /// Whether the machine is short of something, so that it may go well a little later.
    pub(crate) fn may_pass(&self) -> bool {
        let short = [Errno::EAGAIN, Errno::ENOMEM, Errno::EMFILE, Errno::ENFILE];
        let code = self.error.raw_os_error();
        code.is_some_and(|code| short.contains(&Errno::from_raw(code)))
    }
}

/// Starts the process and returns its number, which is also that of its group.
///
/// * `cgroup` — the open `cgroup.procs` (or `tasks`) file of the cgroup that it shall be in.
///
/// # Errors
/// A file that cannot be opened, or a program that cannot be executed.
pub(crate) fn start(start: &Start, cgroup: Option<&File>) -> Result<u32, NotStarted> {
    let open = |path: &Path| {
        let mut options = OpenOptions::new();
        options.create(true).append(start.append).write(true).truncate(!start.append);
        at_once(&mut options, path)
            .map_err(|error| failure("cannot write its output to", path, error))
    };
    let output = open(&start.output)?;
    let error = match &start.error {
        Some(path) if *path != start.output => open(path)?,
        _ => output.try_clone().map_err(|error| failure("cannot share", &start.output, error))?,
    };
    let input = match &start.input {
        Some(path) => {
            let file = at_once(OpenOptions::new().read(true), path);
            Stdio::from(file.map_err(|error| failure("cannot read its input from", path, error))?)
        }
        None => Stdio::null(),
    };
    let program = start.command.first().cloned().unwrap_or_default();
    let mut command = Command::new(&program);
    command.args(start.command.iter().skip(1)).env_clear().envs(&start.env);
    command.current_dir(&start.folder).process_group(0);
    command.stdin(input).stdout(output).stderr(error);
    let cgroup = cgroup.map(AsRawFd::as_raw_fd);
    let supervisor = getpid();
    let open_to_all = SigSet::empty();
    // SAFETY: between fork and exec only async-signal-safe calls are made: sigprocmask(2), prctl(2),
    // getppid(2) and write(2), on a descriptor that the caller keeps open; nothing is allocated or locked.
    unsafe {
        command.pre_exec(move || {
            // The supervisor blocks signals to read them from a descriptor; a task must get its own.
            sigprocmask(SigmaskHow::SIG_SETMASK, Some(&open_to_all), None)?;
            prctl::set_pdeathsig(Signal::SIGKILL)?;
            if getppid() != supervisor {
                // It died before the kernel was told.
                return Err(io::Error::from(Errno::ESRCH));
            }
            cgroup.map_or(Ok(()), join_cgroup)
        });
    }
    let child = command.spawn().map_err(|error| failed(start, &program, error))?;
    Ok(child.id())
}

/// Opens a file without waiting for whoever is at the other end of a pipe; reads and writes wait as
/// usual.
fn at_once(options: &mut OpenOptions, path: &Path) -> io::Result<File> {
    let file = options.custom_flags(OFlag::O_NONBLOCK.bits()).open(path)?;
    let flags = OFlag::from_bits_retain(fcntl(&file, FcntlArg::F_GETFL)?);
    fcntl(&file, FcntlArg::F_SETFL(flags - OFlag::O_NONBLOCK))?;
    Ok(file)
}

/// Moves the calling process into the cgroup; "0" is the writer itself (cgroups(7)).
fn join_cgroup(procs: i32) -> io::Result<()> {
    // SAFETY: the descriptor is open for the whole call, and the one byte outlives it.
    let written = unsafe { nix::libc::write(procs, c"0".as_ptr().cast(), 1) };
    if written == 1 { Ok(()) } else { Err(io::Error::last_os_error()) }
}

/// The kernel does not say whether program or folder is at fault.
fn failed(start: &Start, program: &OsString, error: io::Error) -> NotStarted {
    if !start.folder.is_dir() {
        return failure("cannot change to its folder", &start.folder, error);
    }
    failure("cannot execute", Path::new(program), error)
}

fn failure(what: &'static str, path: &Path, error: io::Error) -> NotStarted {
    NotStarted { what, path: path.to_path_buf(), error }
}
