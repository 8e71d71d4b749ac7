//! `nvidia-cuda-mps-control` as a command: brings a daemon up, or carries commands to it.
//!
//! Behaviour: NVIDIA MPS guide, "Legacy MPS v2 Interface", "MPS v3 Interface" and "Common Tasks".

use std::io::{BufRead, Read, Write};
use std::os::unix::net::UnixStream;
use std::path::PathBuf;
use std::process::{Command, ExitCode, Stdio};
use std::time::{Duration, Instant};
use std::{env, io, thread};

use crate::{daemon, fault};

/// Folder of sockets and the pid file.
pub fn pipe_folder() -> PathBuf {
    env::var_os("CUDA_MPS_PIPE_DIRECTORY").map_or_else(|| "/tmp/nvidia-mps".into(), PathBuf::from)
}

/// Folder of log files.
pub fn log_folder() -> PathBuf {
    env::var_os("CUDA_MPS_LOG_DIRECTORY")
        .map_or_else(|| "/var/log/nvidia-mps".into(), PathBuf::from)
}

/// What the arguments ask for.
enum Asked {
    Daemon { third: bool, apply: Option<PathBuf> },
    Foreground { third: bool, apply: Option<PathBuf> },
    Commands,
    Command(String),
}

/// Runs the program.
#[expect(clippy::print_stderr, reason = "it is a program's main")]
pub fn main(arguments: &[String]) -> ExitCode {
    let done = match parse(arguments) {
        Ok(Asked::Daemon { third, apply }) => detach(third, apply),
        Ok(Asked::Foreground { third, apply }) => daemon::serve(third, apply.as_deref()),
        Ok(Asked::Commands) => commands(),
        Ok(Asked::Command(line)) => tell(&line),
        Err(why) => Err(why),
    };
    match done {
        Ok(()) => ExitCode::SUCCESS,
        Err(why) => {
            eprintln!("{why}");
            ExitCode::FAILURE
        }
    }
}

fn parse(arguments: &[String]) -> Result<Asked, String> {
    let (mut daemon, mut foreground, mut apply) = (false, false, None);
    let mut third = env::var("CUDA_MPS_PROTOCOL_VERSION").is_ok_and(|version| version == "3");
    let mut words = arguments.iter().map(String::as_str);
    while let Some(word) = words.next() {
        match word {
            "-d" | "--daemon" => daemon = true,
            "-f" | "--foreground" => foreground = true,
            "-q" | "--quit" => return Ok(Asked::Command("quit".into())),
            "-p" | "--protocol" => match words.next() {
                Some("3") => third = true,
                Some("2") => {}
                other => return Err(format!("Invalid protocol version: {other:?}")),
            },
            "-a" | "--apply" => apply = Some(words.next().ok_or("-a needs a file")?.into()),
            verb if !verb.starts_with('-') => {
                let rest: Vec<&str> = std::iter::once(verb).chain(words).collect();
                return Ok(Asked::Command(rest.join(" ")));
            }
            other => return Err(format!("Unknown option: {other}")),
        }
    }
    Ok(match (daemon, foreground) {
        (true, _) => Asked::Daemon { third, apply },
        (false, true) => Asked::Foreground { third, apply },
        (false, false) => Asked::Commands,
    })
}

/// Starts the daemon in the background and waits until it answers.
fn detach(third: bool, apply: Option<PathBuf>) -> Result<(), String> {
    if UnixStream::connect(pipe_folder().join(daemon::SOCKET)).is_ok() {
        return Err("An instance of this daemon is already running".into());
    }
    daemon::configuration(third, apply.as_deref())?;
    let program = env::current_exe().map_err(|error| error.to_string())?;
    let mut command = Command::new(program);
    command.arg("-f").args(["-p", if third { "3" } else { "2" }]);
    if let Some(file) = apply {
        command.arg("-a").arg(file);
    }
    command.env("HOTPOT_FAKE_MPS_DETACHED", "1");
    command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null());
    let mut child = command.spawn().map_err(|error| error.to_string())?;
    let begun = Instant::now();
    while begun.elapsed() < Duration::from_secs(10) {
        if UnixStream::connect(pipe_folder().join(daemon::SOCKET)).is_ok() {
            return Ok(());
        }
        if let Ok(Some(_)) = child.try_wait() {
            return Err("Failed to start the MPS control daemon".into());
        }
        thread::sleep(Duration::from_millis(5));
    }
    Err("The MPS control daemon does not answer".into())
}

/// The second interface: lines of standard input, one command each.
fn commands() -> Result<(), String> {
    for line in io::stdin().lock().lines() {
        let line = line.map_err(|error| error.to_string())?;
        if !line.trim().is_empty() {
            tell(line.trim())?;
        }
    }
    Ok(())
}

/// Carries one command to the daemon and prints its answer; an answer that begins with `!` is an
/// error.
fn tell(line: &str) -> Result<(), String> {
    let socket = pipe_folder().join(daemon::SOCKET);
    let mut stream = UnixStream::connect(socket)
        .map_err(|_| String::from("Cannot find MPS control daemon process"))?;
    let lost = |error: io::Error| format!("Lost the MPS control daemon: {error}");
    writeln!(stream, "{line}").map_err(lost)?;
    let mut answer = String::new();
    stream.read_to_string(&mut answer).map_err(lost)?;
    if let Some(why) = answer.strip_prefix('!') {
        if !fault("polite") {
            return Err(why.trim_end().into());
        }
        answer = why.into();
    }
    io::stdout().write_all(answer.as_bytes()).map_err(|error| error.to_string())
}
