//! The simulated MPS daemon beside a simulated machine: servers that the driver lists, refusals that
//! look like success.

use std::path::{Path, PathBuf};
use std::process::{Command, Output};
use std::time::{Duration, Instant};

use fake_machine::{GpuSpec, MACHINE_VARIABLE, Machine};

/// A machine of two GPUs, and a daemon for the first; ended when dropped.
struct Served {
    folder: PathBuf,
    machine: Machine,
}

impl Served {
    fn new(name: &str, faults: &str) -> Self {
        let folder = std::env::temp_dir().join(format!("mps-{}-{name}", std::process::id()));
        let gpus = GpuSpec::list("a100-80gb:2").expect("a model");
        let machine = Machine::create(folder.join("machine"), &gpus).expect("a folder");
        std::fs::create_dir_all(folder.join("log")).expect("a folder");
        let served = Self { folder, machine };
        let mut start = served.control(faults);
        let done = start.arg("-d").status().expect("the program");
        assert!(done.success());
        served
    }

    fn control(&self, faults: &str) -> Command {
        let mut command = Command::new(env!("CARGO_BIN_EXE_nvidia-cuda-mps-control"));
        command.env("CUDA_MPS_PIPE_DIRECTORY", self.folder.join("pipe"));
        command.env("CUDA_MPS_LOG_DIRECTORY", self.folder.join("log"));
        command.env("CUDA_VISIBLE_DEVICES", &self.machine.read().gpus[0].uuid);
        command.env(MACHINE_VARIABLE, self.machine.folder()).env("HOTPOT_FAKE_MPS", faults);
        command
    }

    fn ask(&self, faults: &str, line: &str) -> Output {
        self.control(faults).args(line.split(' ')).output().expect("the program")
    }

    /// Processes of each GPU, once there are as many on the first as expected.
    fn listed(&self, expected: usize) -> [usize; 2] {
        let begun = Instant::now();
        loop {
            let state = self.machine.read();
            let shown = [0, 1].map(|gpu: usize| state.gpus[gpu].shown().count());
            if shown[0] == expected || begun.elapsed() > Duration::from_secs(5) {
                return shown;
            }
            std::thread::sleep(Duration::from_millis(2));
        }
    }
}

impl Drop for Served {
    fn drop(&mut self) {
        let _gone = self.control("").arg("quit").status();
        let _gone = std::fs::remove_dir_all(Path::new(&self.folder));
    }
}

#[test]
fn a_server_is_listed_on_the_gpu_that_is_served_until_it_ends() {
    let served = Served::new("listed", "listed");
    assert_eq!(served.listed(0), [0, 0]);
    assert!(served.ask("", "start_server -uid 0").status.success());
    assert_eq!(served.listed(1), [1, 0]);
    assert!(served.ask("", "quit").status.success());
    assert_eq!(served.listed(0), [0, 0]);
}

#[test]
fn without_the_wish_no_server_is_listed() {
    let served = Served::new("unlisted", "");
    assert!(served.ask("", "start_server -uid 0").status.success());
    assert_eq!(served.listed(0), [0, 0]);
}

#[test]
fn a_polite_refusal_looks_like_an_answer() {
    let served = Served::new("polite", "");
    let line = "set_default_active_thread_percentage 200";
    let plain = served.ask("", line);
    assert!(!plain.status.success() && plain.stdout.is_empty());
    let polite = served.ask("polite", line);
    assert!(polite.status.success());
    assert_eq!(String::from_utf8_lossy(&polite.stdout), "Invalid percentage\n");
}
