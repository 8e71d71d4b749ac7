//! A place to run in: a state folder of its own, scripts, and a shared simulated machine if wanted.

use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use fake_machine::{GpuSpec, Machine};

use crate::support::{Done, PROGRAM, Place};

/// Longer than anything here takes on a busy machine.
const PATIENCE: Duration = Duration::from_secs(60);

pub(crate) struct Bench {
    pub(crate) place: Place,
}

impl Bench {
    pub(crate) fn new(name: &str) -> Self {
        Self { place: Place::new(&format!("run-{name}")) }
    }

    /// Writes an sbatch script: directives without `#SBATCH`, and the commands.
    pub(crate) fn script(&self, name: &str, directives: &str, commands: &str) {
        let directives: String =
            directives.lines().map(|line| format!("#SBATCH {}\n", line.trim())).collect();
        self.place.write(name, format!("#!/bin/bash\n{directives}{commands}\n"));
    }

    pub(crate) fn command(&self, arguments: &str) -> Command {
        let mut command = self.place.hotpot(arguments);
        command.env("HOTPOT_STATE_DIR", self.place.path("state"));
        command
    }

    pub(crate) fn run(&self, arguments: &str) -> Done {
        Done::of(self.command(arguments).output().expect("the program runs"))
    }

    /// Starts the program in the background; what it says goes to `said.txt`.
    pub(crate) fn start(&self, mut command: Command) -> Started {
        let said = std::fs::File::create(self.place.path("said.txt")).expect("a file");
        command.stdout(Stdio::null()).stderr(said);
        Started { child: command.spawn().expect("the program starts") }
    }

    pub(crate) fn said(&self) -> String {
        self.read("said.txt")
    }

    pub(crate) fn read(&self, name: &str) -> String {
        std::fs::read_to_string(self.place.path(name)).unwrap_or_default()
    }

    /// Waits until something is so.
    pub(crate) fn until(&self, what: &str, mut is: impl FnMut() -> bool) {
        let begun = Instant::now();
        while !is() {
            assert!(begun.elapsed() < PATIENCE, "never came: {what}\n{}", self.said());
            std::thread::sleep(Duration::from_millis(10));
        }
    }

    /// A simulated machine that several commands see: its folder, and the variables that show it.
    pub(crate) fn machine(&self, gpus: &str) -> Shown {
        let folder = self.place.path("machine");
        let specs = GpuSpec::list(gpus).expect("a spec");
        let machine = Machine::create(&folder, &specs).expect("a simulated machine");
        Shown { machine, folder, locks: self.place.path("") }
    }
}

/// A simulated machine and where it lies.
pub(crate) struct Shown {
    pub(crate) machine: Machine,
    folder: PathBuf,
    locks: PathBuf,
}

impl Shown {
    pub(crate) fn to<'a>(&self, command: &'a mut Command) -> &'a mut Command {
        command
            .env("HOTPOT_FAKE_MACHINE", &self.folder)
            .env("HOTPOT_NVML", library())
            .env("HOTPOT_LOCK_DIR", &self.locks)
    }
}

/// The simulated driver, beside the program.
pub(crate) fn library() -> PathBuf {
    let library = Path::new(PROGRAM).with_file_name("libhotpot_fake_nvml.so");
    assert!(library.exists(), "build it first: cargo build --workspace");
    library
}

/// A program in the background, killed if the test ends before it.
pub(crate) struct Started {
    pub(crate) child: Child,
}

impl Started {
    pub(crate) fn signal(&self, name: &str) {
        let pid = self.child.id().to_string();
        let done = Command::new("kill").args([format!("-{name}"), pid]).status();
        assert!(done.expect("kill runs").success());
    }

    /// Its exit code; below 0 if a signal ended it.
    pub(crate) fn wait(&mut self) -> i32 {
        let begun = Instant::now();
        loop {
            if let Some(status) = self.child.try_wait().expect("a child") {
                return status.code().unwrap_or(-1);
            }
            assert!(begun.elapsed() < PATIENCE, "it does not end");
            std::thread::sleep(Duration::from_millis(10));
        }
    }
}

impl Drop for Started {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// Processes with this word in their command line, the one that asks aside.
pub(crate) fn processes(word: &str) -> Vec<u32> {
    let entries = std::fs::read_dir("/proc").expect("proc").flatten();
    let pids = entries.filter_map(|entry| entry.file_name().to_str()?.parse::<u32>().ok());
    pids.filter(|pid| {
        let line = std::fs::read(format!("/proc/{pid}/cmdline")).unwrap_or_default();
        String::from_utf8_lossy(&line).contains(word)
    })
    .collect()
}

/// Whether cgroups (v2) can be made here, told without asking the program.
pub(crate) fn can_make_cgroups() -> bool {
    let own = std::fs::read_to_string("/proc/self/cgroup").unwrap_or_default();
    let Some(own) = own.lines().find_map(|line| line.strip_prefix("0::/")) else { return false };
    ["/sys/fs/cgroup", "/sys/fs/cgroup/unified"].iter().any(|mount| {
        let folder = Path::new(mount).join(own).join(format!("probe-{}", std::process::id()));
        let made = Path::new(mount).join("cgroup.controllers").exists()
            && std::fs::create_dir(&folder).is_ok();
        made && std::fs::remove_dir(&folder).is_ok()
    })
}
