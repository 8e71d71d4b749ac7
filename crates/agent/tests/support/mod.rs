//! A simulated machine, and an agent on it in a process of its own.
#![allow(dead_code, reason = "each test program uses a part of it")]
#![allow(clippy::unwrap_used, clippy::print_stderr, reason = "tests")]

use std::fs;
use std::io::{BufRead, BufReader, Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, ExitStatus, Stdio};
use std::time::{Duration, Instant};

use agent::{MetricNames, Options};
use fake_machine::{GpuSpec, Machine, State};

/// The stand-in for the driver, built beside the tests.
pub(crate) fn library() -> PathBuf {
    let program = std::env::current_exe().unwrap();
    let library = program.parent().unwrap().parent().unwrap().join("libhotpot_fake_nvml.so");
    assert!(library.exists(), "{library:?} is missing; run: cargo build -p fake-nvml");
    library
}

/// A machine on disk, and a state folder beside it.
pub(crate) struct Lab {
    pub(crate) folder: PathBuf,
    pub(crate) machine: Machine,
}

impl Lab {
    pub(crate) fn new(name: &str, gpus: &str) -> Self {
        let folder = std::env::temp_dir().join(format!("agent-{}-{name}", std::process::id()));
        let _ = fs::remove_dir_all(&folder);
        let specs: Vec<GpuSpec> = gpus.split(',').map(|gpu| gpu.parse().unwrap()).collect();
        let machine = Machine::create(folder.join("machine"), &specs).unwrap();
        Self { folder, machine }
    }

    /// Changes the machine, and waits until every process sees it.
    pub(crate) fn edit(&self, change: impl FnOnce(&mut State) -> Result<(), fake_machine::Code>) {
        self.machine.edit(change).unwrap();
        std::thread::sleep(Duration::from_millis(5));
    }

    pub(crate) fn state(&self) -> PathBuf {
        self.folder.join("state")
    }

    /// This test program again, to run the test `entry` on this machine.
    pub(crate) fn command(&self, entry: &str) -> Command {
        let mut command = Command::new(std::env::current_exe().unwrap());
        command.args(["--ignored", "--exact", "--nocapture", entry]);
        command.env("HOTPOT_NVML", library());
        command.env("HOTPOT_FAKE_MACHINE", self.machine.folder());
        command.env("HOTPOT_STATE_DIR", self.state());
        command
    }

    /// Starts an agent that cannot serve: how it ends, and what it says.
    pub(crate) fn refusal(&self, variable: (&str, &str)) -> (Option<i32>, String) {
        let mut command = self.command("agent_process");
        command.env(variable.0, variable.1).stdout(Stdio::null()).stderr(Stdio::piped());
        let mut child = command.spawn().unwrap();
        let status = ended(&mut child);
        let mut said = String::new();
        child.stderr.take().unwrap().read_to_string(&mut said).unwrap();
        (status.code(), said)
    }

    /// Starts an agent and waits until it listens.
    pub(crate) fn agent(&self, variables: &[(&str, &str)]) -> Agent {
        let mut command = self.command("agent_process");
        command.envs(variables.iter().copied());
        Agent::start(command)
    }
}

impl Drop for Lab {
    fn drop(&mut self) {
        let _ = fs::remove_dir_all(&self.folder);
    }
}

/// What [`Lab::agent`] runs in a process of its own; nothing without a machine to run on.
pub(crate) fn run_agent() {
    let variable = |name: &str| std::env::var(name).ok();
    let Some(state) = variable("HOTPOT_STATE_DIR") else { return };
    let options = Options {
        listen: variable("LISTEN").unwrap_or("127.0.0.1:0".into()).parse().unwrap(),
        names: MetricNames::Both,
        token_file: variable("TOKEN_FILE").map(Into::into),
        interval: Duration::from_millis(variable("INTERVAL").map_or(0, |ms| ms.parse().unwrap())),
        state: state.into(),
        library: None,
        occupancy: None,
        notice: |text| eprintln!("{text}"),
    };
    if let Err(error) = agent::serve(&options) {
        eprintln!("{error}");
        std::process::exit(7);
    }
}

/// A child that only waits; ended when dropped.
pub(crate) struct Sleeper(Child);

impl Sleeper {
    pub(crate) fn new() -> Self {
        Self(Command::new("sleep").arg("600").spawn().unwrap())
    }

    pub(crate) fn pid(&self) -> u32 {
        self.0.id()
    }
}

impl Drop for Sleeper {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
        // That a process has ended may be seen 1 ms late.
        std::thread::sleep(Duration::from_millis(5));
    }
}

/// A running agent; killed when dropped.
pub(crate) struct Agent {
    child: Child,
    pub(crate) address: SocketAddr,
    log: BufReader<std::process::ChildStderr>,
}

impl Agent {
    pub(crate) fn start(mut command: Command) -> Self {
        let mut child =
            command.stdout(Stdio::null()).stderr(Stdio::piped()).spawn().expect("starts");
        let mut log = BufReader::new(child.stderr.take().unwrap());
        let line = next_line(&mut log);
        let address = line.strip_prefix("metrics at http://").unwrap_or_else(|| panic!("{line}"));
        let address = address.trim_end_matches("/metrics").parse().unwrap();
        Self { child, address, log }
    }

    pub(crate) fn pid(&self) -> u32 {
        self.child.id()
    }

    /// The next line of its log.
    pub(crate) fn said(&mut self) -> String {
        next_line(&mut self.log)
    }

    pub(crate) fn get(&self, path: &str, headers: &str) -> (u16, String) {
        get(self.address, path, headers)
    }

    pub(crate) fn metrics(&self) -> String {
        let (status, text) = self.get("/metrics", "");
        assert_eq!(status, 200, "{text}");
        text
    }

    /// Sends a signal and waits for the end; all that it still says.
    pub(crate) fn end(mut self, signal: nix::sys::signal::Signal) -> (ExitStatus, String) {
        let pid = nix::unistd::Pid::from_raw(i32::try_from(self.pid()).unwrap());
        nix::sys::signal::kill(pid, signal).unwrap();
        let status = ended(&mut self.child);
        let mut rest = String::new();
        self.log.read_to_string(&mut rest).unwrap();
        (status, rest)
    }
}

/// Waits for a process to end; one that does not is killed, and the test fails.
fn ended(child: &mut Child) -> ExitStatus {
    let deadline = Instant::now() + Duration::from_secs(10);
    loop {
        if let Some(status) = child.try_wait().unwrap() {
            return status;
        }
        if Instant::now() > deadline {
            let _ = child.kill();
            panic!("the agent does not end");
        }
        std::thread::sleep(Duration::from_millis(10));
    }
}

impl Drop for Agent {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

fn next_line(log: &mut impl BufRead) -> String {
    let mut line = String::new();
    log.read_line(&mut line).unwrap();
    line.trim_end().to_string()
}

/// Status and body of a GET.
pub(crate) fn get(address: SocketAddr, path: &str, headers: &str) -> (u16, String) {
    let text = exchange(
        address,
        &format!("GET {path} HTTP/1.1\r\nHost: x\r\nConnection: close\r\n{headers}\r\n"),
    );
    let status = text.split(' ').nth(1).and_then(|code| code.parse().ok());
    let body = text.split_once("\r\n\r\n").map_or("", |(_, body)| body);
    (status.unwrap_or_else(|| panic!("no answer: {text:?}")), body.to_string())
}

/// Sends bytes and reads until the other side closes.
pub(crate) fn exchange(address: SocketAddr, request: &str) -> String {
    let mut stream = TcpStream::connect(address).unwrap();
    stream.set_read_timeout(Some(Duration::from_secs(20))).unwrap();
    // Who turns us away may have closed already.
    let _ = stream.write_all(request.as_bytes());
    let mut bytes = Vec::new();
    let _ = stream.read_to_end(&mut bytes);
    String::from_utf8(bytes).unwrap()
}

/// A file of the repository.
pub(crate) fn shipped(path: &str) -> String {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("../..");
    fs::read_to_string(root.join(path)).unwrap()
}

/// The value of the one line that begins with a name and holds all the words.
pub(crate) fn value(text: &str, name: &str, words: &[&str]) -> Option<f64> {
    let ours = |line: &&str| {
        let named = line.strip_prefix(name).is_some_and(|rest| rest.starts_with(['{', ' ']));
        named && words.iter().all(|word| line.contains(word))
    };
    let lines: Vec<&str> = text.lines().filter(ours).collect();
    assert!(lines.len() <= 1, "more than one: {lines:?}");
    lines.first().map(|line| line.rsplit_once(' ').unwrap().1.parse().unwrap())
}
