//! The namespaces of a cluster: a network, processes and mounts of its own. When their first process ends, the kernel ends
//! whatever was started in them.

use std::os::unix::process::CommandExt;
use std::path::Path;
use std::process::{ChildStdin, Command, Stdio};
use std::time::{Duration, Instant};

use lab_base::process::Process;
use lab_base::{LabError, Place, at};

use crate::conf::API_ADDRESS;

/// How long namespaces may take to be there.
const PATIENCE: Duration = Duration::from_secs(20);
const POLL: Duration = Duration::from_millis(10);
/// Programs that only lead into namespaces.
const WRAPPERS: [&str; 2] = ["nsenter", "unshare"];
/// Said to the first process for it to live on when its owner ends.
pub(crate) const STAY: &[u8] = b"stay\n";

/// The first process of a cluster. It ends when its input does, which its owner holds; what is orphaned it takes in.
fn script() -> String {
    format!(
        "set -e\n\
         ip link set lo up\n\
         ip link add nodes type bridge\nip addr add {API_ADDRESS}/24 dev nodes\nip link set nodes up\n\
         ip route add default via {API_ADDRESS} dev nodes\n\
         echo 1 > /proc/sys/net/ipv4/ip_forward\n\
         : > \"$1\"\n\
         stay=\nwhile read -r word; do if [ \"$word\" = stay ]; then stay=1; fi; done\n\
         if [ -z \"$stay\" ]; then exit 0; fi\n\
         while :; do sleep 3600 & wait; done\n"
    )
}

/// Makes the namespaces; gives their first process and its input.
pub(crate) fn make(place: &Place) -> Result<(Process, ChildStdin), LabError> {
    place.write("etc/first.sh", &script(), true)?;
    let ready = place.path("run/first.ready");
    let log = place.path("log/first.log");
    let out = std::fs::File::create(&log).map_err(at(&log))?;
    let err = out.try_clone().map_err(at(&log))?;
    let mut command = Command::new("unshare");
    command.args([
        "--mount",
        "--pid",
        "--net",
        "--fork",
        "--kill-child",
        "--mount-proc",
        "--propagation",
        "private",
        "bash",
    ]);
    command.arg(place.path("etc/first.sh")).arg(&ready);
    let started = command.stdin(Stdio::piped()).stdout(out).stderr(err).process_group(0).spawn();
    let failed = |why: String| LabError::Failed { line: "unshare".into(), why };
    let mut child = started.map_err(|error| failed(error.to_string()))?;
    let input = child.stdin.take().ok_or_else(|| failed("it has no input".into()))?;
    let outer = Process::of(child.id()).ok_or_else(|| failed("it has vanished".into()))?;
    let first = wait_for(&failed, &log, || ready.exists().then(|| leaf(outer)).flatten())?;
    Ok((first, input))
}

/// A program in the cluster's network, and in all else where its caller is.
///
/// * `first` — the cluster's first process.
pub(crate) fn in_network(first: Process, program: impl AsRef<std::ffi::OsStr>) -> Command {
    let mut command = Command::new("nsenter");
    command.arg(format!("--target={}", first.pid())).args(["--net", "--"]).arg(program);
    command
}

/// A program in all namespaces of a process.
pub(crate) fn in_all(of: Process, program: impl AsRef<std::ffi::OsStr>) -> Command {
    let mut command = Command::new("nsenter");
    let target = format!("--target={}", of.pid());
    command.arg(target).args(["--mount", "--uts", "--net", "--pid", "--"]).arg(program);
    command
}

/// Starts a program that leads into namespaces, and gives the process that it leads to.
pub(crate) fn spawn(command: &mut Command, log: &Path) -> Result<Process, LabError> {
    let line = lab_base::process::line(command);
    let outer = Process::spawn(command, log)?;
    let failed = |why: String| LabError::Failed { line: line.clone(), why };
    wait_for(&failed, log, || {
        if outer.is_alive() {
            leaf(outer).map(Ok)
        } else {
            Some(Err(failed("it has ended".into())))
        }
    })?
}

/// The process behind those that lead into namespaces, once it is there.
fn leaf(process: Process) -> Option<Process> {
    let (child, stat) = process.children().into_iter().next()?;
    if WRAPPERS.contains(&stat.name.as_str()) { leaf(child) } else { Some(child) }
}

/// Looks again and again until there is something to see; what a program has said goes into the error.
pub(crate) fn wait_for<T>(
    failed: &impl Fn(String) -> LabError,
    log: &Path,
    mut look: impl FnMut() -> Option<T>,
) -> Result<T, LabError> {
    let end = Instant::now() + PATIENCE;
    loop {
        if let Some(found) = look() {
            return Ok(found);
        }
        if Instant::now() > end {
            let said = std::fs::read_to_string(log).unwrap_or_default();
            return Err(failed(format!("nothing after {} s\n{said}", PATIENCE.as_secs())));
        }
        std::thread::sleep(POLL);
    }
}
