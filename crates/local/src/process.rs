//! Starting a task's process: in a group and, where there is one, a cgroup of its own, with its output
//! in files, and with the promise that it dies if hotpot is killed.

use std::collections::BTreeMap;
use std::ffi::{CString, OsStr, OsString};
use std::fs::{File, OpenOptions};
use std::io::{self, ErrorKind};
use std::os::fd::AsRawFd;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};

use nix::errno::Errno;
use nix::fcntl::{FcntlArg, OFlag, fcntl};
use nix::unistd::{AccessFlags, access};

use crate::vfork::{self, Child, Step};

/// Everything that a start needs.
#[derive(Clone, Debug)]
pub struct Start {
    /// Program and arguments.
    pub command: Vec<OsString>,
    /// All its variables.
    pub env: BTreeMap<OsString, OsString>,
    /// Working folder.
    pub folder: PathBuf,
    /// Standard output.
    pub output: PathBuf,
    /// Standard error; together with standard output if `None`.
    pub error: Option<PathBuf>,
    /// Standard input; nothing if `None`.
    pub input: Option<PathBuf>,
    /// Whether output is added to files that are there.
    pub append: bool,
}

/// Why a process was not started, with the way out.
#[derive(Debug, thiserror::Error)]
#[error("{what} {}: {error}", path.display())]
pub struct NotStarted {
    what: &'static str,
    path: PathBuf,
    error: io::Error,
}

impl NotStarted {
    /// Whether the machine is short of something, so that it may go well a little later.
    pub fn may_pass(&self) -> bool {
        let short = [Errno::EAGAIN, Errno::ENOMEM, Errno::EMFILE, Errno::ENFILE];
        let code = self.error.raw_os_error();
        code.is_some_and(|code| short.contains(&Errno::from_raw(code)))
    }
}

/// Starts the process and returns its number, which is also that of its group.
///
/// * `cgroup` — the open `cgroup.procs` file of the cgroup that it shall be in.
///
/// # Errors
/// A file that cannot be opened, or a program that cannot be executed.
pub fn start(start: &Start, cgroup: Option<&File>) -> Result<u32, NotStarted> {
    let [input, output, error] = streams(start)?;
    let program = program(start);
    let shown = Path::new(start.command.first().map_or(OsStr::new(""), OsString::as_os_str));
    let text = |bytes: &[u8]| {
        let cut =
            |_| failure("its name or arguments hold a NUL:", shown, ErrorKind::InvalidInput.into());
        CString::new(bytes).map_err(cut)
    };
    let words: Result<Vec<CString>, _> =
        start.command.iter().map(|word| text(word.as_bytes())).collect();
    let variable = |(name, value): (&OsString, &OsString)| {
        text(&[name.as_bytes(), b"=", value.as_bytes()].concat())
    };
    let env: Result<Vec<CString>, _> = start.env.iter().map(variable).collect();
    let child = Child {
        program: &text(program.as_os_str().as_bytes())?,
        words: &words?,
        env: &env?,
        folder: &text(start.folder.as_os_str().as_bytes())?,
        streams: [input.as_raw_fd(), output.as_raw_fd(), error.as_raw_fd()],
        cgroup: cgroup.map(AsRawFd::as_raw_fd),
    };
    vfork::start(&child).map_err(|(step, error)| match step {
        Step::Setup => failure("cannot start", shown, error),
        Step::Folder => failure("cannot change to its folder", &start.folder, error),
        Step::Execute if error.kind() == ErrorKind::NotFound && program.exists() => {
            failure("cannot find the interpreter in the first line of", shown, error)
        }
        Step::Execute => failure("cannot execute", shown, error),
    })
}

/// Standard input, output and error.
fn streams(start: &Start) -> Result<[File; 3], NotStarted> {
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
    let path = start.input.as_deref().unwrap_or(Path::new("/dev/null"));
    let input = at_once(OpenOptions::new().read(true), path)
        .map_err(|error| failure("cannot read its input from", path, error))?;
    Ok([input, output, error])
}

/// The program's file: as it is named, or the first of that name on the task's `PATH`.
fn program(start: &Start) -> PathBuf {
    let named = PathBuf::from(start.command.first().cloned().unwrap_or_default());
    if named.as_os_str().as_bytes().contains(&b'/') {
        return named;
    }
    let path = start.env.get(OsStr::new("PATH")).cloned().unwrap_or_default();
    let places = std::env::split_paths(&path).filter(|folder| folder.is_absolute());
    let is_program = |file: &PathBuf| file.is_file() && access(file, AccessFlags::X_OK).is_ok();
    places.map(|folder| folder.join(&named)).find(is_program).unwrap_or(named)
}

/// Opens a file without waiting for whoever is at the other end of a pipe; reads and writes wait as
/// usual.
fn at_once(options: &mut OpenOptions, path: &Path) -> io::Result<File> {
    let file = options.custom_flags(OFlag::O_NONBLOCK.bits()).open(path)?;
    let flags = OFlag::from_bits_retain(fcntl(&file, FcntlArg::F_GETFL)?);
    fcntl(&file, FcntlArg::F_SETFL(flags - OFlag::O_NONBLOCK))?;
    Ok(file)
}

fn failure(what: &'static str, path: &Path, error: io::Error) -> NotStarted {
    NotStarted { what, path: path.to_path_buf(), error }
}
