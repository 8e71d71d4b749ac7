//! MPS: processes on one GPU at once, each under a thread percentage and a memory limit. One control
//! daemon per GPU, in a folder of its own; started, watched, adopted after a crash of ours, ended.
//!
//! The control daemon starts `nvidia-cuda-mps-server` when the first client comes. Nothing here
//! daemonises by itself: `-d` does. What runs in a folder is known by the daemon's pid file
//! (`nvidia-cuda-mps-control.pid`), by the program's name and by the pipe folder in its environment,
//! so that nothing has to be remembered over a crash and no number of a stranger is ever signalled.

mod configuration;
mod error;
mod process;

use std::collections::BTreeSet;
use std::ffi::OsString;
use std::os::unix::fs::{DirBuilderExt, PermissionsExt};
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Duration;
use std::{fs, io};

pub use configuration::{Caps, Interface};
pub use error::MpsError;
pub use process::ForeignDaemons;
use process::Process;

use crate::backend::Enforcement;
use crate::tool::{Tool, ToolError};

/// Name of the tool, and the variable that may name another.
const TOOL: (&str, &str) = ("nvidia-cuda-mps-control", "HOTPOT_MPS_CONTROL");
/// The daemon's pid file in the pipe folder.
const PID_FILE: &str = "nvidia-cuda-mps-control.pid";
/// Marks hotpot's own daemons in their environment.
const MARK: &str = "HOTPOT_MPS";
/// Longest path of the pipe folder: addresses of UNIX sockets have 108 bytes, and the daemon puts
/// names such as `control_privileged` behind it.
const PIPES_MAX: usize = 80;
/// Time that a daemon has for each step of its end.
const GRACE: Duration = Duration::from_secs(3);
/// First compute capability with per-client limits (Volta).
const VOLTA: (u32, u32) = (7, 0);

/// The control program of this machine.
#[derive(Clone, Debug)]
pub struct Mps {
    tool: Tool,
}

/// The control daemon of one GPU. Dropping this does not end it: it outlives us on purpose.
#[derive(Clone, Debug)]
pub struct Daemon {
    tool: Tool,
    folder: PathBuf,
    interface: Interface,
    process: Process,
}

impl Mps {
    /// Finds the control program.
    ///
    /// # Errors
    /// [`ToolError::Missing`].
    pub fn find() -> Result<Self, ToolError> {
        Tool::find(TOOL.0, TOOL.1).map(Self::with)
    }

    /// Uses this control program.
    pub fn with(tool: Tool) -> Self {
        Self { tool }
    }

    /// What holds caps of MPS on a GPU. Cooperative: a client's caps are in its environment.
    ///
    /// * `gpu` — its UUID.
    /// * `others` — found once for all GPUs.
    pub fn probe(
        gpu: &str,
        compute_capability: (u32, u32),
        others: &ForeignDaemons,
    ) -> Enforcement {
        if compute_capability < VOLTA {
            let (major, minor) = compute_capability;
            let why = "has compute capability";
            return Enforcement::Absent(format!("mps: the GPU {why} {major}.{minor}, below 7.0"));
        }
        match Self::find().map_err(MpsError::from).and_then(|_| refuse_foreign(gpu, others)) {
            Ok(()) => Enforcement::Cooperative,
            Err(error) => Enforcement::Absent(format!("mps: {error}")),
        }
    }

    /// Starts the daemon of one GPU.
    ///
    /// * `gpu` — its UUID; the daemon sees no other.
    /// * `folder` — its own folder, made if missing; keep it short.
    /// * `caps` — bounds for all clients; [`Daemon::variables`] gives tighter ones to one client.
    ///
    /// Servers that a killed daemon has left in the folder are ended: they keep the GPU from the new
    /// one's, and no new client can reach them.
    ///
    /// # Errors
    /// [`MpsError::Runs`] if a daemon lives in the folder, [`MpsError::Foreign`] if one that is not
    /// ours serves the GPU; else why it does not come up. Nothing is left running then.
    pub fn start(
        &self,
        gpu: &str,
        folder: &Path,
        interface: Interface,
        caps: Caps,
    ) -> Result<Daemon, MpsError> {
        if pipes(folder).as_os_str().len() > PIPES_MAX {
            return Err(MpsError::LongPath { path: pipes(folder) });
        }
        if let Some(process) = running(folder) {
            return Err(MpsError::Runs { pid: process.pid, folder: folder.into() });
        }
        refuse_foreign(gpu, &ForeignDaemons::find())?;
        end_all(&pipes(folder))?;
        for path in [folder.to_path_buf(), pipes(folder), logs(folder)] {
            make(&path).map_err(|source| MpsError::Folder { path, source })?;
        }
        self.bring_up(gpu, folder, interface, caps).inspect_err(|_| {
            // The error tells more than a second one would.
            let _best_effort = end_all(&pipes(folder));
        })
    }

    fn bring_up(
        &self,
        gpu: &str,
        folder: &Path,
        interface: Interface,
        caps: Caps,
    ) -> Result<Daemon, MpsError> {
        let mut command = command(&self.tool, folder, interface);
        command.arg("-d").env("CUDA_VISIBLE_DEVICES", gpu);
        if interface == Interface::V3 {
            let file = folder.join("mps.toml");
            let write = fs::write(&file, caps.file(gpu));
            write.map_err(|source| MpsError::Folder { path: file.clone(), source })?;
            command.args(["-p", "3"]).arg("-a").arg(file);
        }
        self.tool.launch(command)?;
        let process = running(folder).ok_or_else(|| gone(folder))?;
        let daemon = self.daemon(folder, interface, process);
        if interface == Interface::V2 {
            for asked in caps.commands() {
                let said = daemon.tell(&asked)?;
                // It answers with the value or not at all; a refusal does not show in the status.
                if said.trim().starts_with(|letter: char| !letter.is_ascii_digit()) {
                    return Err(MpsError::Odd { asked, said: said.trim().into() });
                }
            }
        }
        daemon.health()?;
        Ok(daemon)
    }

    /// Takes over the daemon that runs in a folder, such as after a crash of ours.
    ///
    /// # Errors
    /// That one runs but is not well; [`Mps::clear`] ends it. `None` says that none runs.
    pub fn adopt(&self, folder: &Path, interface: Interface) -> Result<Option<Daemon>, MpsError> {
        let Some(process) = running(folder) else { return Ok(None) };
        let daemon = self.daemon(folder, interface, process);
        daemon.health()?;
        Ok(Some(daemon))
    }

    /// Ends whatever of MPS runs in a folder, well or not, and removes the folder.
    ///
    /// # Errors
    /// [`MpsError::Immortal`] for what does not end, [`MpsError::Folder`] for what cannot be removed.
    pub fn clear(folder: &Path) -> Result<(), MpsError> {
        end_all(&pipes(folder))?;
        match fs::remove_dir_all(folder) {
            Err(source) if source.kind() != io::ErrorKind::NotFound => {
                Err(MpsError::Folder { path: folder.into(), source })
            }
            _ => Ok(()),
        }
    }

    fn daemon(&self, folder: &Path, interface: Interface, process: Process) -> Daemon {
        Daemon { tool: self.tool.clone(), folder: folder.into(), interface, process }
    }
}

/// Time that a daemon has to say that it is well.
const HEALTH_LIMIT: Duration = Duration::from_secs(2);

impl Daemon {
    /// Its process number.
    pub fn pid(&self) -> u32 {
        self.process.pid
    }

    /// Whether its process is there, well or not.
    pub fn lives(&self) -> bool {
        self.process.lives()
    }

    /// Whether it lives and answers. One that was killed is started anew by the caller.
    ///
    /// # Errors
    /// What is wrong with it.
    pub fn health(&self) -> Result<(), MpsError> {
        if !self.lives() {
            return Err(gone(&self.folder));
        }
        // Whoever asks has other things to do than to wait for a daemon that hangs.
        let hurried = Self { tool: self.tool.clone().within(HEALTH_LIMIT), ..self.clone() };
        if self.interface == Interface::V3 {
            return hurried.servers().map(|_| ());
        }
        let asked = "get_default_active_thread_percentage";
        let said = hurried.tell(asked)?;
        match said.trim().parse::<f64>() {
            Ok(percent) if percent > 0.0 && percent <= 100.0 => Ok(()),
            _ => Err(MpsError::Odd { asked: asked.into(), said: said.trim().into() }),
        }
    }

    /// Its servers: process numbers (v2), or lines as it prints them (v3).
    ///
    /// # Errors
    /// That it does not answer.
    pub fn servers(&self) -> Result<Vec<String>, MpsError> {
        let said = match self.interface {
            Interface::V2 => self.tell("get_server_list")?,
            Interface::V3 => self.verb(&["server", "list"])?,
        };
        Ok(said.lines().map(|line| line.trim().into()).collect())
    }

    /// Variables that make a process its client, under these caps.
    pub fn variables(&self, caps: Caps) -> Vec<(String, String)> {
        variables(&self.folder, caps)
    }

    /// Ends it and its servers, by asking, then TERM, then KILL, and removes its folder.
    ///
    /// # Errors
    /// As [`Mps::clear`].
    pub fn stop(self) -> Result<(), MpsError> {
        // One that does not listen is ended below.
        let _asked = match self.interface {
            Interface::V2 => self.tell("quit"),
            Interface::V3 => self.verb(&["-q"]),
        };
        self.process.ends_within(GRACE);
        Mps::clear(&self.folder)
    }

    fn tell(&self, line: &str) -> Result<String, MpsError> {
        let command = command(&self.tool, &self.folder, self.interface);
        Ok(self.tool.run(command, &format!("{line}\n"))?)
    }

    fn verb(&self, words: &[&str]) -> Result<String, MpsError> {
        let mut command = command(&self.tool, &self.folder, self.interface);
        command.args(words);
        Ok(self.tool.run(command, "")?)
    }
}

/// Variables that make a process a client of the daemon in a folder, under these caps; asks nobody.
pub fn variables(folder: &Path, caps: Caps) -> Vec<(String, String)> {
    let text = |path: PathBuf| path.to_string_lossy().into_owned();
    let mut variables = vec![
        ("CUDA_MPS_PIPE_DIRECTORY".into(), text(pipes(folder))),
        ("CUDA_MPS_LOG_DIRECTORY".into(), text(logs(folder))),
    ];
    variables.extend(caps.variables());
    variables
}

/// UUIDs of the GPUs that some MPS daemon serves, whoever started it. Daemons of other users are seen
/// by root only.
pub fn served_gpus() -> BTreeSet<String> {
    let named = process::all().filter_map(|process| process.variable("CUDA_VISIBLE_DEVICES"));
    let split = |names: OsString| -> Vec<String> {
        names.to_string_lossy().split(',').map(|name| name.trim().into()).collect()
    };
    named.flat_map(split).filter(|name| name.starts_with("GPU-")).collect()
}

fn pipes(folder: &Path) -> PathBuf {
    folder.join("pipe")
}

fn logs(folder: &Path) -> PathBuf {
    folder.join("log")
}

fn gone(folder: &Path) -> MpsError {
    MpsError::Gone { folder: folder.into(), log: logs(folder).join("control.log") }
}

fn refuse_foreign(gpu: &str, others: &ForeignDaemons) -> Result<(), MpsError> {
    others
        .of(gpu)
        .map_or(Ok(()), |found| Err(MpsError::Foreign { pid: found.pid, gpu: gpu.into() }))
}

/// The control program, looking at one folder. Nothing of MPS comes from our own environment, where
/// caps would hold for the daemon and all of its clients.
fn command(tool: &Tool, folder: &Path, interface: Interface) -> Command {
    let mut command = tool.command();
    let inherited = std::env::vars_os().map(|(name, _)| name);
    for name in inherited.filter(|name| name.as_encoded_bytes().starts_with(b"CUDA_MPS_")) {
        command.env_remove(name);
    }
    command.env(MARK, "1");
    command.env("CUDA_MPS_PIPE_DIRECTORY", pipes(folder));
    command.env("CUDA_MPS_LOG_DIRECTORY", logs(folder));
    let version = if interface == Interface::V3 { "3" } else { "2" };
    command.env("CUDA_MPS_PROTOCOL_VERSION", version);
    command
}

/// Makes a folder: for everybody's clients if we are root, else for ours alone.
fn make(path: &Path) -> io::Result<()> {
    let mode = if nix::unistd::geteuid().is_root() { 0o755 } else { 0o700 };
    fs::DirBuilder::new().recursive(true).mode(mode).create(path)?;
    fs::set_permissions(path, fs::Permissions::from_mode(mode))
}

/// The daemon that the pid file of a folder names, if it is really that.
fn running(folder: &Path) -> Option<Process> {
    let text = fs::read_to_string(pipes(folder).join(PID_FILE)).ok()?;
    let process = Process::now(text.trim().parse().ok()?)?;
    process::is_mps(process, &pipes(folder)).then_some(process)
}

fn end_all(pipes: &Path) -> Result<(), MpsError> {
    for process in process::of_folder(pipes) {
        if !process.end(GRACE) {
            return Err(MpsError::Immortal { pid: process.pid });
        }
    }
    Ok(())
}
