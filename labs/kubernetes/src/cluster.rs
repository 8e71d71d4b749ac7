//! A cluster that runs: brought up, asked, disturbed, taken down.

use std::collections::BTreeMap;
use std::ffi::OsStr;
use std::fs::{self, File};
use std::io::Write;
use std::path::{Path, PathBuf};
use std::process::{ChildStdin, Command, Stdio};
use std::time::{Duration, Instant};

use fake_machine::layout;
use lab_base::process::{Process, done, tail};
use lab_base::{LabError, Place, at};
use nix::sys::signal::Signal;

use crate::cgroup;
use crate::conf;
use crate::daemon::Daemon;
use crate::down;
use crate::enter;
use crate::image::Image;
use crate::keys;
use crate::namespaces;
use crate::node;
use crate::options::Options;
use crate::programs::{self, Programs};

/// In a cluster's folder.
const FOLDERS: &[&str] = &["etc", "images", "keys", "log", "machines", "run", "state"];
/// Nothing is waited for longer.
const PATIENCE: Duration = Duration::from_secs(300);
const POLL: Duration = Duration::from_millis(50);

/// A cluster of this process. It goes down when this is dropped or its process ends, however that ends.
#[derive(Debug)]
pub struct Cluster {
    place: Place,
    options: Options,
    programs: Programs,
    first: Process,
    /// The first process lives as long as this.
    input: Option<ChildStdin>,
    nodes: BTreeMap<String, Process>,
    is_up: bool,
    _owner: File,
}

impl Cluster {
    /// Brings a cluster up in a folder, which is made, is empty, or has had a lab before; installs and builds what is
    /// missing. All nodes are ready when it returns.
    ///
    /// # Errors
    /// It cannot be had here, the folder is somebody else's or has a lab that [`Cluster::leave`] has left, or a
    /// daemon does not come up.
    pub fn up(folder: &Path, options: &Options) -> Result<Self, LabError> {
        options.check()?;
        programs::install()?;
        let programs = Programs::get()?;
        let place = Place::make(folder)?;
        let owner = place.occupy()?;
        if place.path("left").exists() && down::is_up(&place) {
            let why = "a lab is up there; take it down first".into();
            return Err(LabError::Folder { folder: folder.into(), why });
        }
        down::end(&place);
        place.clear(FOLDERS)?;
        place.write("run/cgroup", &cgroup::new_name(), false)?;
        keys::make(&place, options)?;
        let (first, input) = namespaces::make(&place)?;
        first.write(&place.path("run/first.process"))?;
        let (input, options) = (Some(input), options.clone());
        // From here on, what fails is taken down by the drop.
        let mut cluster = Self {
            place,
            options,
            programs,
            first,
            input,
            nodes: BTreeMap::new(),
            is_up: true,
            _owner: owner,
        };
        cluster.start_all()?;
        Ok(cluster)
    }

    /// The cluster's folder, absolute.
    pub fn folder(&self) -> &Path {
        self.place.root()
    }

    /// A program in the cluster's network, as an administrator; its input is empty. All else is as for its caller.
    pub fn command(&self, program: impl AsRef<OsStr>) -> Command {
        let mut command = namespaces::in_network(self.first, program);
        command.envs(enter::environment(&self.place, &self.programs)).stdin(Stdio::null());
        command
    }

    /// A program on a node: in its mounts, among its processes; its input is empty.
    ///
    /// # Errors
    /// There is no such node, or it is off.
    pub fn on_node(&self, node: &str, program: impl AsRef<OsStr>) -> Result<Command, LabError> {
        let mut command = namespaces::in_all(self.node(node)?, program);
        command.envs(enter::environment(&self.place, &self.programs)).stdin(Stdio::null());
        Ok(command)
    }

    /// Runs a program in the cluster's network to its end and returns what it printed.
    ///
    /// # Errors
    /// It failed; the error has all that it said. An empty line is an error too.
    pub fn run(&self, line: &[&str]) -> Result<String, LabError> {
        let (program, words) = line.split_first().unwrap_or((&"", &[]));
        done(self.command(program).args(words))
    }

    /// Runs `kubectl`.
    ///
    /// # Errors
    /// As [`Cluster::run`].
    pub fn kubectl(&self, words: &[&str]) -> Result<String, LabError> {
        self.run(&[&["kubectl"], words].concat())
    }

    /// Runs `kubectl` with a text as its input, as for `apply -f -`.
    ///
    /// # Errors
    /// As [`Cluster::run`].
    pub fn kubectl_with(&self, words: &[&str], text: &str) -> Result<String, LabError> {
        let path = self.place.path("run/input");
        fs::write(&path, text).map_err(at(&path))?;
        let input = File::open(&path).map_err(at(&path))?;
        done(self.command("kubectl").args(words).stdin(input))
    }

    /// Creates or changes what a manifest says.
    ///
    /// # Errors
    /// As [`Cluster::run`].
    pub fn apply(&self, manifest: &str) -> Result<String, LabError> {
        self.kubectl_with(&["apply", "-f", "-"], manifest)
    }

    /// Puts an image onto all nodes. Pods of it need `imagePullPolicy: Never` or `IfNotPresent`.
    ///
    /// # Errors
    /// A file cannot be read, or containerd does not take it.
    pub fn import(&self, image: &Image) -> Result<(), LabError> {
        let path = self.place.path("images/import.tar");
        image.write(&path)?;
        let words =
            ["--address=/run/containerd/containerd.sock", "--namespace=k8s.io", "images", "import"];
        for node in self.nodes.keys() {
            done(self.on_node(node, "ctr")?.args(words).arg(&path))?;
        }
        fs::remove_file(&path).map_err(at(&path))
    }

    /// A node's simulated GPUs, as `fake_machine::Machine::open` takes them.
    pub fn machine(&self, node: &str) -> PathBuf {
        self.place.path(&format!("machines/{node}/{}", layout::STATE))
    }

    /// Ends a daemon in good order (SIGTERM) and waits for its end.
    pub fn stop(&self, daemon: &Daemon) {
        self.end(daemon, Signal::SIGTERM);
    }

    /// Kills a daemon (SIGKILL) and waits for its end.
    pub fn kill(&self, daemon: &Daemon) {
        self.end(daemon, Signal::SIGKILL);
    }

    /// The process of a daemon, if it runs: to send it signals.
    pub fn process(&self, daemon: &Daemon) -> Option<u32> {
        Process::read(&daemon.record(&self.place))
            .filter(|process| process.is_alive())
            .map(Process::pid)
    }

    /// Starts a daemon; whether it answers is to be looked for.
    ///
    /// # Errors
    /// It cannot be started.
    pub fn start(&self, daemon: &Daemon) -> Result<(), LabError> {
        let of = daemon.node().map_or(Ok(self.first), |node| self.node(node))?;
        let mut command = namespaces::in_all(of, self.programs.path(daemon.program()));
        command
            .args(daemon.words(&self.place, &self.options))
            .envs(enter::environment(&self.place, &self.programs));
        namespaces::spawn(&mut command, &daemon.log(&self.place))?
            .write(&daemon.record(&self.place))
    }

    /// Switches a node off: all of its processes end, its mounts and its pods' cgroups are gone.
    ///
    /// # Errors
    /// There is no such node, or its cgroups cannot be made anew.
    pub fn power_off(&mut self, node: &str) -> Result<(), LabError> {
        self.node(node)?.end(Signal::SIGKILL);
        self.nodes.remove(node);
        for daemon in [Daemon::Containerd(node.into()), Daemon::Kubelet(node.into())] {
            self.kill(&daemon);
        }
        cgroup::renew(&cgroup::name_of(&self.place), node)
    }

    /// Switches a node on again.
    ///
    /// # Errors
    /// It does not come up.
    pub fn power_on(&mut self, node: &str) -> Result<(), LabError> {
        let process = node::start(&self.place, self.first, node)?;
        self.nodes.insert(node.to_owned(), process);
        self.start(&Daemon::Containerd(node.into()))?;
        self.start(&Daemon::Kubelet(node.into()))
    }

    /// Looks again and again until there is something to see, for up to 5 minutes.
    ///
    /// * `what` — is looked for, for the error.
    ///
    /// # Errors
    /// There never was; the error has the pods, the nodes and the ends of the logs.
    pub fn until<T>(
        &self,
        what: &str,
        mut look: impl FnMut(&Self) -> Option<T>,
    ) -> Result<T, LabError> {
        let end = Instant::now() + PATIENCE;
        loop {
            if let Some(seen) = look(self) {
                return Ok(seen);
            }
            if Instant::now() > end {
                let (what, shown) = (what.to_owned(), self.shown());
                return Err(LabError::Timeout { what, seconds: PATIENCE.as_secs(), shown });
            }
            std::thread::sleep(POLL);
        }
    }

    /// Lets the cluster run on when this process ends; [`down()`](crate::down()) takes it down.
    ///
    /// # Errors
    /// The folder cannot be written.
    pub fn leave(mut self) -> Result<(), LabError> {
        self.place.write("left", "", false)?;
        if let Some(mut input) = self.input.take() {
            let path = self.place.path("etc/first.sh");
            input.write_all(namespaces::STAY).map_err(at(&path))?;
        }
        self.is_up = false;
        Ok(())
    }

    /// Takes the cluster down. Its files stay.
    pub fn down(&mut self) {
        self.is_up = false;
        self.input = None;
        down::end(&self.place);
    }
}

impl Drop for Cluster {
    fn drop(&mut self) {
        if self.is_up {
            self.down();
        }
    }
}

/// Bringing up.
impl Cluster {
    fn start_all(&mut self) -> Result<(), LabError> {
        let cgroup = cgroup::name_of(&self.place);
        for (index, node) in self.options.all_nodes().iter().enumerate() {
            cgroup::make(&cgroup, node)?;
            node::make(&self.place, &self.options, &self.programs, (node, index), &cgroup)?;
            let process = node::start(&self.place, self.first, node)?;
            self.nodes.insert(node.clone(), process);
        }
        self.start(&Daemon::Etcd)?;
        self.start(&Daemon::ApiServer)?;
        for node in self.nodes.keys() {
            self.start(&Daemon::Containerd(node.clone()))?;
        }
        self.until("the API server", |cluster| {
            cluster.all_alive().and_then(|()| cluster.kubectl(&["get", "--raw=/readyz"])).ok()
        })?;
        let started = [Daemon::Etcd, Daemon::ApiServer];
        let rest = Daemon::all(&self.options).into_iter();
        for daemon in
            rest.filter(|it| !started.contains(it) && !matches!(it, Daemon::Containerd(_)))
        {
            self.start(&daemon)?;
        }
        self.import_pause()?;
        self.until("ready nodes", |cluster| {
            cluster.all_alive().ok()?;
            // Without it no pod is taken.
            cluster.kubectl(&["get", "serviceaccount", "default"]).ok()?;
            let words = ["get", "nodes", "-o", "jsonpath={range .items[*]}{.metadata.name} {.status.conditions[?(@.type==\"Ready\")].status}{\"\\n\"}{end}"];
            let states = cluster.kubectl(&words).ok()?;
            let is_ready = |node: &String| states.lines().any(|line| line == format!("{node} True"));
            cluster.nodes.keys().all(is_ready).then_some(())
        })
    }

    fn import_pause(&self) -> Result<(), LabError> {
        let image = Image::new(conf::PAUSE).busybox()?.entrypoint(&["/bin/sleep", "infinity"]);
        self.until("containerd", |cluster| cluster.import(&image).ok())
    }

    /// Nothing, or which daemon has died and what it said.
    fn all_alive(&self) -> Result<(), LabError> {
        let dead = down::started(&self.place).into_iter().find(|(_, process)| !process.is_alive());
        dead.map_or(Ok(()), |(daemon, _)| {
            let why = format!("it has ended\n{}", tail(&daemon.log(&self.place)));
            Err(LabError::Failed { line: daemon.to_string(), why })
        })
    }

    fn node(&self, name: &str) -> Result<Process, LabError> {
        let found = self.nodes.get(name).copied();
        found.ok_or_else(|| LabError::Options(format!("there is no node {name}, or it is off")))
    }

    fn end(&self, daemon: &Daemon, signal: Signal) {
        down::end_daemon(&self.place, daemon, signal);
    }

    /// The nodes, the pods, and the ends of all logs.
    fn shown(&self) -> String {
        let said =
            |words: &[&str]| self.kubectl(words).unwrap_or_else(|error| format!("{error}\n"));
        let mut text =
            said(&["get", "nodes,pods,resourceclaims", "-A", "-o", "wide", "--request-timeout=5s"]);
        text.push_str(&said(&[
            "get",
            "events",
            "-A",
            "--sort-by=.lastTimestamp",
            "--request-timeout=5s",
        ]));
        let entries = fs::read_dir(self.place.path("log")).into_iter().flatten().flatten();
        let mut logs: Vec<PathBuf> = entries.map(|entry| entry.path()).collect();
        logs.sort();
        for log in logs {
            let lines = tail(&log);
            if !lines.is_empty() {
                text.push_str(&format!("-- {}\n{lines}\n", log.display()));
            }
        }
        text
    }
}
