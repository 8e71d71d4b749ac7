//! Runs a command-line tool of the driver or of Slurm: found by a variable or in PATH, with a time limit,
//! its output kept. A tool that hangs is an error, never a hang.

use std::ffi::{OsStr, OsString};
use std::io::{self, Read, Write};
use std::os::fd::{AsFd, FromRawFd, OwnedFd};
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, ExitStatus, Stdio};
use std::sync::mpsc;
use std::time::{Duration, Instant};
use std::{env, thread};

use nix::poll::{PollFd, PollFlags, PollTimeout, poll};
use nix::sys::signal::{SigSet, SigmaskHow, sigprocmask};
use nix::unistd::AccessFlags;
use thiserror::Error;

use crate::{companion, on_node};

/// Time that a call may take unless said otherwise.
pub const LIMIT: Duration = Duration::from_secs(10);
/// Bytes of output that are kept unless said otherwise.
const OUTPUT_MAX: u64 = 64 << 10;
/// Bytes of one line that are kept: its rest is read and forgotten.
const LINE_MAX: usize = 1 << 20;
/// Letters of what a tool said that an error tells.
const SAID_MAX: usize = 2000;
/// How often a tool is looked at where the system cannot tell of its end.
const PAUSE: Duration = Duration::from_millis(5);
/// How long output may at least lag behind the end of the tool.
const LAG: Duration = Duration::from_millis(200);

/// A tool that was found, and how long it may take.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Tool {
    program: PathBuf,
    /// Words in front of a call's own.
    before: Vec<OsString>,
    limit: Duration,
    output_max: u64,
}

/// Why a call of a tool gave nothing.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
pub enum ToolError {
    /// It is not there.
    #[error("`{name}` is neither in PATH nor named by {variable}; install what it comes with")]
    Missing {
        /// Its name.
        name: String,
        /// The variable that may name it.
        variable: String,
    },
    /// It cannot be started.
    #[error("{program}: cannot be started: {why}")]
    Start {
        /// The program.
        program: String,
        /// What the system says.
        why: String,
    },
    /// It did not end in time and was killed, or what it printed did not come.
    #[error("`{call}` did not answer within {} s", limit.as_secs_f32())]
    Silent {
        /// The call.
        call: String,
        /// The time it had.
        limit: Duration,
    },
    /// It printed more than is kept.
    #[error("`{call}` printed more than {limit} bytes")]
    TooMuch {
        /// The call.
        call: String,
        /// So much is kept.
        limit: u64,
    },
    /// It says no.
    #[error("`{call}` failed ({status}): {said}")]
    Failed {
        /// The call.
        call: String,
        /// How it ended.
        status: String,
        /// What it printed, on one line.
        said: String,
    },
}

/// A caller that reads signals from a descriptor blocks them; its tools and their daemons must not
/// inherit that, or TERM would not reach them.
#[expect(unsafe_code, reason = "one system call between fork and exec")]
fn hear_signals(command: &mut Command) {
    let none_blocked = SigSet::empty();
    // SAFETY: sigprocmask(2) is async-signal-safe, and nothing is allocated or locked.
    unsafe {
        command
            .pre_exec(move || Ok(sigprocmask(SigmaskHow::SIG_SETMASK, Some(&none_blocked), None)?));
    }
}

impl Tool {
    /// Finds a tool: the program that `variable` names, else `name` in PATH or, for a caller in a container, on the node.
    ///
    /// # Errors
    /// [`ToolError::Missing`].
    pub fn find(name: &str, variable: &str) -> Result<Self, ToolError> {
        let named = env::var_os(variable).filter(|path| !path.is_empty()).map(PathBuf::from);
        let found = match (named, on_node::root()) {
            (Some(path), _) => Some(path).filter(|path| can_be_run(path)).map(Self::at),
            (None, Some(root)) => on_node::program(&root, name).map(Self::on_node),
            (None, None) => in_path(name, &env::var_os("PATH").unwrap_or_default()).map(Self::at),
        };
        let missing = || ToolError::Missing { name: name.into(), variable: variable.into() };
        found.ok_or_else(missing)
    }

    /// A tool of the node for a caller in a container, by way of this program.
    fn on_node(program: PathBuf) -> Self {
        let before = on_node::VERB.map(OsString::from).into_iter().chain([program.into()]);
        Self { before: before.collect(), ..Self::at(companion::OWN) }
    }

    /// The tool at a path, with [`LIMIT`].
    pub fn at(program: impl Into<PathBuf>) -> Self {
        let (before, limit, output_max) = (Vec::new(), LIMIT, OUTPUT_MAX);
        Self { program: program.into(), before, limit, output_max }
    }

    /// The same tool with another time that one call may take.
    #[must_use]
    pub fn within(self, limit: Duration) -> Self {
        Self { limit, ..self }
    }

    /// The same tool with another bound of what is kept of its output, in bytes. A tool may print more, and comes to its
    /// end: then its answer is an error.
    #[must_use]
    pub fn keeping(self, output_max: u64) -> Self {
        Self { output_max, ..self }
    }

    /// A command of this tool.
    pub fn command(&self) -> Command {
        let mut command = Command::new(&self.program);
        command.args(&self.before);
        command
    }

    /// Runs a command to its end, gives it `input`, and returns what it printed on standard output.
    ///
    /// # Errors
    /// That it cannot be started, that its status or output does not come within the limit, that it prints more than is
    /// kept, or that it fails.
    pub fn run(&self, mut command: Command, input: &str) -> Result<String, ToolError> {
        command.stdout(Stdio::piped());
        self.call(command, input, true)
    }

    /// Runs a command that leaves a daemon behind, which may keep the tool's output open.
    ///
    /// # Errors
    /// As [`Tool::run`].
    pub fn launch(&self, mut command: Command) -> Result<(), ToolError> {
        command.stdout(Stdio::null());
        self.call(command, "", false).map(drop)
    }

    fn call(
        &self,
        mut command: Command,
        input: &str,
        with_output: bool,
    ) -> Result<String, ToolError> {
        let (call, begun) = (described(&command, input), Instant::now());
        command.stdin(Stdio::piped()).stderr(Stdio::piped());
        let start = |error: io::Error| ToolError::Start {
            program: self.program.display().to_string(),
            why: error.to_string(),
        };
        hear_signals(&mut command);
        let mut child = command.spawn().map_err(start)?;
        let keep = self.output_max;
        let (out, err) = (collect(child.stdout.take(), keep), collect(child.stderr.take(), keep));
        if let Some(mut pipe) = child.stdin.take() {
            // A tool that has ended already says so by its status.
            let _ended = pipe.write_all(input.as_bytes());
        }
        let Some(status) = wait(&mut child, self.limit).map_err(start)? else {
            let _gone = (child.kill(), child.wait());
            return Err(ToolError::Silent { call, limit: self.limit });
        };
        let left = || self.limit.saturating_sub(begun.elapsed()).max(LAG);
        let out = if with_output { out.recv_timeout(left()).ok() } else { Some(Kept::default()) };
        if status.success() {
            // No answer is not an empty one: whoever asks decides by what is in it.
            let out = out.ok_or(ToolError::Silent { call: call.clone(), limit: self.limit })?;
            let too_much = ToolError::TooMuch { call, limit: self.output_max };
            return if out.is_all { Ok(out.text) } else { Err(too_much) };
        }
        let err = err.recv_timeout(LAG).unwrap_or_default();
        let said = one_line(&(err.text + "\n" + &out.unwrap_or_default().text));
        Err(ToolError::Failed { call, status: status.to_string(), said })
    }
}

/// Relative entries are left out: what runs must not depend on the folder that we are in.
fn in_path(name: &str, path: &OsStr) -> Option<PathBuf> {
    let folders = env::split_paths(path).filter(|folder| folder.is_absolute());
    folders.map(|folder| folder.join(name)).find(|program| can_be_run(program))
}

fn can_be_run(program: &Path) -> bool {
    program.is_file() && nix::unistd::access(program, AccessFlags::X_OK).is_ok()
}

/// The call as a reader would type it.
fn described(command: &Command, input: &str) -> String {
    let program = Path::new(command.get_program());
    let name = program.file_name().unwrap_or(command.get_program()).to_string_lossy();
    let arguments = command.get_args().map(|argument| argument.to_string_lossy());
    let words = std::iter::once(name).chain(arguments).collect::<Vec<_>>().join(" ");
    match input.trim() {
        "" => words,
        input => format!("echo {input} | {words}"),
    }
}

/// What came out of a pipe.
struct Kept {
    text: String,
    /// Whether no line had to be left out.
    is_all: bool,
}

impl Default for Kept {
    fn default() -> Self {
        Self { text: String::new(), is_all: true }
    }
}

/// Reads a pipe to its end on a thread of its own. So many bytes are kept, and [`LINE_MAX`] of a line.
fn collect(pipe: Option<impl Read + Send + 'static>, keep: u64) -> mpsc::Receiver<Kept> {
    let (sender, receiver) = mpsc::channel();
    thread::spawn(move || {
        let _nobody_waits = sender.send(pipe.map(|pipe| read(pipe, keep)).unwrap_or_default());
    });
    receiver
}

fn read(mut pipe: impl Read, keep: u64) -> Kept {
    // Less than a line may have: none that begins in it is cut off in it.
    let mut buffer = vec![0; 64 << 10];
    let (mut bytes, mut of_line, mut is_all) = (Vec::new(), 0, true);
    loop {
        let came = match pipe.read(&mut buffer) {
            Ok(0) => break,
            Ok(count) => &buffer[..count],
            Err(error) if error.kind() == io::ErrorKind::Interrupted => continue,
            Err(_) => break,
        };
        if is_all {
            let end = came.iter().position(|byte| *byte == b'\n').unwrap_or(came.len());
            let (line, rest) = came.split_at(end);
            bytes.extend_from_slice(&line[..line.len().min(LINE_MAX - of_line)]);
            bytes.extend_from_slice(rest);
            let last = rest.iter().rposition(|byte| *byte == b'\n');
            of_line =
                last.map_or((of_line + line.len()).min(LINE_MAX), |last| rest.len() - last - 1);
            is_all = bytes.len() as u64 <= keep;
        }
    }
    let text = String::from_utf8(bytes);
    let text = text.unwrap_or_else(|bad| String::from_utf8_lossy(bad.as_bytes()).into_owned());
    Kept { text, is_all }
}

/// The status of a child that ends within `limit`.
fn wait(child: &mut Child, limit: Duration) -> io::Result<Option<ExitStatus>> {
    let (begun, handle) = (Instant::now(), process_handle(child));
    loop {
        if let Some(status) = child.try_wait()? {
            return Ok(Some(status));
        }
        let left = limit.saturating_sub(begun.elapsed());
        if left.is_zero() {
            return Ok(None);
        }
        match &handle {
            Some(handle) => until_ended(handle, left),
            None => thread::sleep(PAUSE),
        }
    }
}

/// A descriptor that can be read once the child has ended (pidfd_open(2)); none before Linux 5.3.
#[expect(unsafe_code, reason = "a system call that nix has not")]
fn process_handle(child: &Child) -> Option<OwnedFd> {
    // SAFETY: the call takes two numbers; what it returns is a descriptor of ours alone, or -1.
    unsafe {
        let opened = nix::libc::syscall(nix::libc::SYS_pidfd_open, child.id(), 0);
        let descriptor = i32::try_from(opened).ok().filter(|descriptor| *descriptor >= 0)?;
        Some(OwnedFd::from_raw_fd(descriptor))
    }
}

fn until_ended(handle: &OwnedFd, at_most: Duration) {
    // Rounded up: a wait of less than 1 ms would be none.
    let ms = at_most.as_millis().saturating_add(1).min(60_000);
    let timeout = PollTimeout::try_from(ms).unwrap_or(PollTimeout::ZERO);
    let _whoever_woke_us = poll(&mut [PollFd::new(handle.as_fd(), PollFlags::POLLIN)], timeout);
}

fn one_line(text: &str) -> String {
    let lines = text.lines().map(str::trim).filter(|line| !line.is_empty());
    let line: String = lines.collect::<Vec<_>>().join("; ").chars().take(SAID_MAX).collect();
    if line.is_empty() { "it printed nothing".into() } else { line }
}

#[cfg(test)]
mod tests;
