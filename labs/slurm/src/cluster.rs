//! A cluster that runs: brought up, asked, disturbed, taken down.

use std::fs::{self, File};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use nix::sys::signal::Signal;

use lab_base::process::{Process, done, tail};
use lab_base::{Claim, LabError, Place, at};

use crate::accounting;
use crate::cgroup;
use crate::conf;
use crate::daemon::{self, Daemon};
use crate::down;
use crate::node;
use crate::options::Options;
use crate::packages;
use crate::ports::Ports;

/// In a cluster's folder.
const FOLDERS: &[&str] = &["bin", "etc", "log", "machines", "rest", "run", "spool", "state"];
/// Nothing is waited for longer.
const PATIENCE: Duration = Duration::from_secs(60);
const POLL: Duration = Duration::from_millis(20);
/// How long a cluster with cgroups waits for another one to go.
const TURN: Duration = Duration::from_secs(540);

/// A cluster of this process. It goes down when this is dropped; one that outlives its process, because that
/// was killed, goes down when the next comes up in its folder.
#[derive(Debug)]
pub struct Cluster {
    place: Place,
    options: Options,
    ports: Ports,
    is_up: bool,
    _owner: File,
    _cgroups: Option<Claim>,
}

impl Cluster {
    /// Brings a cluster up in a folder, which is made, is empty, or has had a lab before; installs what is
    /// missing. All nodes are idle when it returns.
    ///
    /// # Errors
    /// It cannot be had here, the folder is somebody else's or has a lab that [`Cluster::leave`] has left,
    /// or a daemon does not come up.
    pub fn up(folder: &Path, options: &Options) -> Result<Self, LabError> {
        options.check()?;
        packages::install(options)?;
        let place = Place::make(folder)?;
        let owner = place.occupy()?;
        let alive = down::started(&place).values().any(|process| process.is_alive());
        if alive && place.path("left").exists() {
            let why = "a lab is up there; take it down first".into();
            return Err(LabError::Folder { folder: folder.into(), why });
        }
        down::end(&place)?;
        place.clear(FOLDERS)?;
        let cgroups = options.cgroup.then(|| turn(options)).transpose()?;
        let ports = Ports::find(options.nodes)?;
        let options = options.clone();
        // From here on, what fails is taken down by the drop.
        let cluster = Self { place, options, ports, is_up: true, _owner: owner, _cgroups: cgroups };
        cluster.configure()?;
        cluster.start_all()?;
        Ok(cluster)
    }

    /// The cluster's folder, absolute.
    pub fn folder(&self) -> &Path {
        self.place.root()
    }

    /// The folder of `slurm.conf`.
    pub fn etc(&self) -> PathBuf {
        self.place.path("etc")
    }

    /// The variables by which Slurm's commands find the cluster.
    pub fn environment(&self) -> Vec<(String, String)> {
        let path = |name: &str| self.place.path(name).display().to_string();
        let mut variables = vec![("SLURM_CONF", path("etc/slurm.conf")), ("SLURM_LAB", path(""))];
        if self.options.rest {
            let url = format!("http://127.0.0.1:{}", self.ports.slurmrestd());
            variables.push(("SLURM_LAB_REST_URL", url));
            variables.push(("SLURM_LAB_REST_SOCKET", path("rest/slurmrestd.sock")));
        }
        variables.into_iter().map(|(name, value)| (name.to_string(), value)).collect()
    }

    /// A program that finds the cluster; its input is empty.
    pub fn command(&self, program: &str) -> Command {
        let mut command = Command::new(program);
        command.envs(self.environment()).stdin(Stdio::null());
        command
    }

    /// Runs a program to its end and returns what it printed.
    ///
    /// # Errors
    /// It failed; the error has all that it said. An empty line is an error too.
    pub fn run(&self, line: &[&str]) -> Result<String, LabError> {
        let (program, words) = line.split_first().unwrap_or((&"", &[]));
        done(self.command(program).args(words))
    }

    /// The folder of a node's own things: `machine`, the simulated GPUs as `fake_machine::Machine::open`
    /// takes them; `lib` and `bin`, the simulated driver; `dev`, device files; `env` for a shell to source.
    pub fn machine(&self, node: &str) -> PathBuf {
        self.place.path(&node::folder(node))
    }

    /// Ends a daemon in good order (SIGTERM) and waits for its end.
    pub fn stop(&self, daemon: &Daemon) {
        down::end_daemon(&self.place, daemon, Signal::SIGTERM);
    }

    /// Kills a daemon (SIGKILL) and waits for its end.
    pub fn kill(&self, daemon: &Daemon) {
        down::end_daemon(&self.place, daemon, Signal::SIGKILL);
    }

    /// Starts a daemon and waits until it answers; a slurmd is not waited for.
    ///
    /// # Errors
    /// It cannot be started, ends at once, or does not answer.
    pub fn start(&self, daemon: &Daemon) -> Result<(), LabError> {
        let mut command = daemon.command(&self.options, &self.place, &self.ports)?;
        let process = Process::spawn(&mut command, &self.place.path(&daemon.output()))?;
        process.write(&self.place.path(&daemon.record()))?;
        self.wait(&daemon.to_string(), |cluster| {
            if !process.is_alive() {
                return Some(Err(cluster.died(daemon)));
            }
            daemon.is_ready(&cluster.place).then_some(Ok(()))
        })?
    }

    /// Looks again and again until there is something to see, for up to 60 s. A look that hangs is not
    /// interrupted: `srun` may, so submit with `sbatch` and look for what the job has done.
    ///
    /// * `what` — is looked for, for the error.
    ///
    /// # Errors
    /// There never was; the error has the queue, the nodes and the ends of the logs.
    pub fn until<T>(
        &self,
        what: &str,
        look: impl FnMut(&Self) -> Option<T>,
    ) -> Result<T, LabError> {
        self.wait(what, look)
    }

    /// Lets the cluster run on when this process ends; [`down()`](crate::down()) takes it down.
    ///
    /// # Errors
    /// The folder cannot be written.
    pub fn leave(mut self) -> Result<(), LabError> {
        self.place.write("left", "", false)?;
        self.is_up = false;
        Ok(())
    }

    /// Takes the cluster down. Its files stay.
    ///
    /// # Errors
    /// Something cannot be ended.
    pub fn down(&mut self) -> Result<(), LabError> {
        self.is_up = false;
        down::end(&self.place)
    }
}

impl Drop for Cluster {
    fn drop(&mut self) {
        if self.is_up {
            let _ = self.down();
        }
    }
}

/// Bringing up.
impl Cluster {
    fn configure(&self) -> Result<(), LabError> {
        let (options, place) = (&self.options, &self.place);
        let host = short_host_name();
        place.write_key("etc/munge.key")?;
        place.write_key("etc/jwt.key")?;
        place.write("etc/slurm.conf", &conf::slurm(options, place, &self.ports, &host), false)?;
        place.write("bin/task-prolog", &node::task_prolog(place), true)?;
        let mut gres = "# Made for all nodes.\n".to_string();
        for (index, name) in options.all_nodes().iter().enumerate() {
            node::make(place, options, name, index)?;
            let devices = self.machine(name).join("dev").display().to_string();
            let lines = conf::gres(options, name, &devices);
            if options.dynamic_nodes().contains(name) {
                self.configure_dynamic(name, &lines)?;
            } else {
                gres.push_str(&lines);
            }
        }
        place.write("etc/gres.conf", &gres, false)?;
        if options.cgroup {
            place.write("etc/cgroup.conf", conf::CGROUP, false)?;
        }
        if options.accounting {
            accounting::write_conf(place, &conf::slurmdbd(options, place, &self.ports))?;
        }
        for (name, text) in &options.files {
            place.write(&format!("etc/{name}"), text, text.starts_with("#!"))?;
        }
        let line = |(name, value)| format!("export {name}={value}\n");
        place.write("env", &self.environment().into_iter().map(line).collect::<String>(), false)
    }

    /// A dynamic node has a folder of configuration to itself, so that its `gres.conf` can change alone.
    fn configure_dynamic(&self, node: &str, gres: &str) -> Result<(), LabError> {
        let (options, place) = (&self.options, &self.place);
        let folder = place.folder(&format!("etc/{node}"))?;
        let files = options.files.iter().map(|(name, _)| name.as_str());
        for name in files.chain(options.cgroup.then_some("cgroup.conf")) {
            let path = folder.join(name);
            std::os::unix::fs::symlink(format!("../{name}"), &path).map_err(at(&path))?;
        }
        let shared = conf::path(place);
        let own = format!("include {}\nCommunicationParameters=NoInAddrAny\n", shared.display());
        place.write(&format!("etc/{node}/slurm.conf"), &own, false)?;
        place.write(&format!("etc/{node}/gres.conf"), gres, false)?;
        place.write(&format!("etc/{node}/gres"), &options.node_gres(), false)?;
        let number: usize = node.trim_start_matches('d').parse().unwrap_or_default();
        let address = format!("127.0.0.{}", 1 + number);
        let text = daemon::script_text(options, place, node, &address);
        place.write(&daemon::script(node), &text, true)
    }

    fn start_all(&self) -> Result<(), LabError> {
        self.start(&Daemon::Munged)?;
        if self.options.accounting {
            accounting::make_database(&self.place)?;
            self.start(&Daemon::Mariadbd)?;
            self.start(&Daemon::Slurmdbd)?;
            accounting::enter(&self.options, &self.place)?;
        }
        self.start(&Daemon::Slurmctld)?;
        let nodes = self.options.all_nodes();
        for node in &nodes {
            self.start(&Daemon::Slurmd(node.clone()))?;
        }
        if self.options.rest {
            self.start(&Daemon::Slurmrestd)?;
        }
        self.wait("idle nodes", |cluster| {
            let dead = down::started(&cluster.place).into_iter().find(|it| !it.1.is_alive());
            if let Some((daemon, _)) = dead {
                return Some(Err(cluster.died(&daemon)));
            }
            let words = ["sinfo", "--noheader", "--Node", "--partition=batch", "--format=%N %T"];
            let states = cluster.run(&words).unwrap_or_default();
            let is_idle = |node: &String| states.lines().any(|it| it == format!("{node} idle"));
            nodes.iter().all(is_idle).then_some(Ok(()))
        })?
    }
}

/// Waiting, and telling what there is to see.
impl Cluster {
    fn wait<T>(&self, what: &str, mut look: impl FnMut(&Self) -> Option<T>) -> Result<T, LabError> {
        let end = Instant::now() + PATIENCE;
        loop {
            if let Some(seen) = look(self) {
                return Ok(seen);
            }
            if Instant::now() > end {
                let (what, shown) = (what.to_string(), self.shown());
                return Err(LabError::Timeout { what, seconds: PATIENCE.as_secs(), shown });
            }
            std::thread::sleep(POLL);
        }
    }

    /// The queue, the nodes, and the ends of all logs.
    fn shown(&self) -> String {
        let said = |line: &[&str]| self.run(line).unwrap_or_else(|error| format!("{error}\n"));
        let mut text = said(&["squeue", "--all"]) + &said(&["sinfo", "--Node", "--long"]);
        let entries = fs::read_dir(self.place.path("log")).into_iter().flatten().flatten();
        let mut logs: Vec<PathBuf> = entries.map(|entry| entry.path()).collect();
        // What a daemon prints is in its log too, if it has one.
        logs.retain(|it| {
            it.extension().is_some_and(|it| it == "log") || !it.with_extension("log").exists()
        });
        logs.sort();
        for log in logs {
            let lines = tail(&log);
            if !lines.is_empty() {
                text.push_str(&format!("-- {}\n{lines}\n", log.display()));
            }
        }
        text
    }

    fn died(&self, daemon: &Daemon) -> LabError {
        let logs =
            [self.place.path(&format!("log/{daemon}.log")), self.place.path(&daemon.output())];
        let why = format!("it has ended\n{}\n{}", tail(&logs[0]), tail(&logs[1]));
        LabError::Failed { line: daemon.to_string(), why }
    }
}

/// This host's name without its domain, as Slurm's daemons compare it.
fn short_host_name() -> String {
    let name = nix::unistd::gethostname().unwrap_or_default();
    let name = name.to_string_lossy();
    name.split('.').next().unwrap_or_default().to_string()
}

/// Waits until no other cluster has cgroups, and removes those that killed ones have left.
fn turn(options: &Options) -> Result<Claim, LabError> {
    cgroup::check()?;
    let claim = Claim::wait("cgroups", TURN)?;
    let nodes = options.all_nodes();
    cgroup::remove(&nodes);
    match cgroup::of(&nodes).first() {
        None => Ok(claim),
        Some(path) => {
            let why = "processes of another lab are in it".into();
            Err(LabError::Folder { folder: path.clone(), why })
        }
    }
}
