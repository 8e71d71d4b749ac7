//! The MPS control daemon: a socket in the pipe folder, commands in, answers out, until `quit`.

use std::fmt::Write as _;
use std::io::{BufRead, BufReader, Write};
use std::os::unix::net::{UnixListener, UnixStream};
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::{env, fs};

use fake_machine::{MACHINE_VARIABLE, Machine, Process};
use nix::sys::signal::{SigSet, Signal};

use crate::settings::{self, Settings};
use crate::{fault, mps};

/// The daemon's socket in the pipe folder.
pub const SOCKET: &str = "control";
/// The file with the daemon's process number in the pipe folder.
pub const PID_FILE: &str = "nvidia-cuda-mps-control.pid";

/// Device memory of a server without clients.
const SERVER_MIB: u64 = 30;

struct Daemon {
    third: bool,
    settings: Settings,
    servers: Vec<Child>,
}

/// Serves until it is told to quit.
///
/// # Errors
/// What keeps it from coming up.
pub fn serve(third: bool, apply: Option<&Path>) -> Result<(), String> {
    if fault("fail") {
        return Err("the fault `fail` was asked for".into());
    }
    if env::var_os("HOTPOT_FAKE_MPS_DETACHED").is_some() {
        nix::unistd::setsid().map_err(|error| error.to_string())?;
    }
    if fault("stubborn") {
        let mut signals = SigSet::empty();
        signals.add(Signal::SIGTERM);
        signals.thread_block().map_err(|error| error.to_string())?;
    }
    let settings = configuration(third, apply)?;
    let pipes = mps::pipe_folder();
    fs::create_dir_all(&pipes).map_err(|error| error.to_string())?;
    // A daemon that was killed leaves its socket; `detach` has seen that nobody answers there.
    let _left_over = fs::remove_file(pipes.join(SOCKET));
    let listener = UnixListener::bind(pipes.join(SOCKET)).map_err(|error| error.to_string())?;
    let pid = std::process::id().to_string();
    fs::write(pipes.join(PID_FILE), pid).map_err(|error| error.to_string())?;
    log("Start");
    let mut daemon = Daemon { third, settings, servers: Vec::new() };
    while let Ok((stream, _)) = listener.accept() {
        if daemon.attend(stream) {
            break;
        }
    }
    daemon.end();
    let _gone = (fs::remove_file(pipes.join(SOCKET)), fs::remove_file(pipes.join(PID_FILE)));
    log("Exit");
    Ok(())
}

/// Settings to begin with.
///
/// # Errors
/// What is wrong with the file.
pub fn configuration(third: bool, apply: Option<&Path>) -> Result<Settings, String> {
    let Some(file) = apply else { return Ok(Settings::default()) };
    if !third {
        return Err("-a needs protocol version 3".into());
    }
    let text = fs::read_to_string(file).map_err(|error| error.to_string())?;
    settings::read(&text).map_err(|why| format!("{}: {why}", file.display()))
}

fn log(line: &str) {
    let path = mps::log_folder().join("control.log");
    if let Ok(mut file) = fs::OpenOptions::new().create(true).append(true).open(path) {
        let _best_effort = writeln!(file, "Control {} {line}", std::process::id());
    }
}

/// Shows a server on the GPUs that the daemon serves, as a process with a context of its own.
fn list(pid: u32) -> Result<(), String> {
    let folder = env::var_os(MACHINE_VARIABLE).ok_or("listed: no simulated machine")?;
    let machine = Machine::open(folder).map_err(|error| error.to_string())?;
    let served = env::var("CUDA_VISIBLE_DEVICES").unwrap_or_default();
    let edited = machine.edit(|state| {
        let gpus = state.gpus.iter_mut();
        for gpu in gpus.filter(|gpu| served.is_empty() || served.contains(&gpu.uuid)) {
            gpu.add(Process::compute(pid, SERVER_MIB));
        }
        Ok(())
    });
    edited.map_err(|error| error.to_string())
}

impl Daemon {
    /// Answers one command; whether it was the last.
    fn attend(&mut self, mut stream: UnixStream) -> bool {
        let mut line = String::new();
        let read = stream.try_clone().map(|copy| BufReader::new(copy).read_line(&mut line));
        if !matches!(read, Ok(Ok(1..))) {
            return false; // Somebody looked whether it is there.
        }
        if fault("die") {
            std::process::abort();
        }
        let words: Vec<&str> = line.split_whitespace().collect();
        let quits = words.first() == Some(&"quit") && !fault("deaf") && !fault("stubborn");
        let answer = if self.third { self.third(&words) } else { self.second(&words) };
        let answer = answer.unwrap_or_else(|why| format!("!{why}\n"));
        let _gone = stream.write_all(answer.as_bytes());
        quits
    }

    fn second(&mut self, words: &[&str]) -> Result<String, String> {
        match *words {
            ["get_default_active_thread_percentage"] => {
                Ok(format!("{:.1}\n", self.settings.thread_percentage))
            }
            ["set_default_active_thread_percentage", percent] => {
                let percent = settings::percentage(percent).ok_or("Invalid percentage")?;
                self.settings.thread_percentage = percent;
                Ok(format!("{percent:.1}\n"))
            }
            ["get_default_device_pinned_mem_limit", device] => {
                let device = device.parse().map_err(|_| "Invalid device")?;
                let limit = self.settings.memory_limits.get(&device);
                Ok(format!("{}\n", limit.map_or("0", String::as_str)))
            }
            ["set_default_device_pinned_mem_limit", device, limit] => {
                let device = device.parse().map_err(|_| "Invalid device")?;
                if !settings::is_memory_limit(limit) {
                    return Err("Invalid memory limit".into());
                }
                self.settings.memory_limits.insert(device, limit.into());
                Ok(String::new())
            }
            ["get_server_list"] => Ok(self.server_list()),
            ["get_client_list", _] | ["quit", ..] => Ok(String::new()),
            ["start_server", "-uid", uid] => self.start_server(uid),
            _ => Err(format!("Unknown command: {}", words.join(" "))),
        }
    }

    fn third(&mut self, words: &[&str]) -> Result<String, String> {
        match *words {
            ["server", "list"] => {
                let named = self.settings.servers.iter().fold(String::new(), |mut text, name| {
                    let _ = writeln!(text, "{name}");
                    text
                });
                Ok(named + &self.server_list())
            }
            ["client", "list", "--all"] | ["quit"] => Ok(String::new()),
            ["server", "create", uid] => {
                let uid = uid.strip_prefix("--uid=").ok_or("server create needs --uid")?;
                self.start_server(uid)
            }
            _ => Err(format!("Unknown command: {}", words.join(" "))),
        }
    }

    fn server_list(&mut self) -> String {
        self.servers.retain_mut(|server| matches!(server.try_wait(), Ok(None)));
        let pids = self.servers.iter().map(Child::id);
        pids.fold(String::new(), |mut text, pid| {
            let _ = writeln!(text, "{pid}");
            text
        })
    }

    fn start_server(&mut self, uid: &str) -> Result<String, String> {
        uid.parse::<u32>().map_err(|_| format!("Invalid user id: {uid}"))?;
        let program = env::current_exe().map_err(|error| error.to_string())?;
        let program = program.with_file_name("nvidia-cuda-mps-server");
        let mut command = Command::new(program);
        command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null());
        let server = command.spawn().map_err(|error| error.to_string())?;
        let listed = if fault("listed") { list(server.id()) } else { Ok(()) };
        self.servers.push(server);
        listed.map(|()| String::new())
    }

    fn end(&mut self) {
        for server in &mut self.servers {
            let _gone = (server.kill(), server.wait());
        }
    }
}
