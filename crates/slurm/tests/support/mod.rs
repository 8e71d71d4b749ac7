//! What tests of arrays on real clusters share: a cluster with a working folder, the program, and what
//! became of an array.
#![allow(dead_code, reason = "each test program uses a part of it")]
#![allow(clippy::unwrap_used, clippy::panic, clippy::print_stderr, reason = "tests")]

pub(crate) mod site;

use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Output;
use std::sync::OnceLock;
use std::sync::atomic::{AtomicU32, Ordering::Relaxed};

use slurm::array::event::Event;
use slurm::array::folder::Folder;
use slurm::array::ledger::Ledger;
use slurm_lab::{Cluster, Options};

/// `hotpot`, built with all that a site has.
pub(crate) fn program() -> &'static Path {
    static PROGRAM: OnceLock<PathBuf> = OnceLock::new();
    PROGRAM.get_or_init(|| site::built().join("hotpot"))
}

/// A cluster and a folder to work in, both gone at the end.
pub(crate) struct Lab {
    pub(crate) cluster: Cluster,
    pub(crate) work: PathBuf,
}

impl Lab {
    /// One node of ten GPUs; `None`, said by the test's name, where real Slurm cannot be had.
    pub(crate) fn up(test: &str) -> Option<Self> {
        // A requeued job waits for as long as its credential holds, two minutes by default.
        let slurm_conf = "KillWait=4\nMinJobAge=300\n".to_string();
        let options = Options { nodes: 2, gpus: 10, cpus: 32, slurm_conf, ..Options::default() };
        if !slurm_lab::can_be_had(test, &options) {
            return None;
        }
        static LABS: AtomicU32 = AtomicU32::new(0);
        // A lab's path is short: sockets lie in it.
        let name = format!("hotpot-array-{}-{}", std::process::id(), LABS.fetch_add(1, Relaxed));
        let work = std::env::temp_dir().join(name);
        let _ = fs::remove_dir_all(&work);
        fs::create_dir_all(work.join("done")).unwrap();
        let cluster = Cluster::up(&work.join("lab"), &options).unwrap_or_else(|e| panic!("{e}"));
        Some(Self { cluster, work })
    }

    /// Runs hotpot in the working folder.
    pub(crate) fn hotpot(&self, words: &[&str]) -> Output {
        let mut command = self.cluster.command(program().to_str().unwrap());
        command.arg("slurm").args(words).current_dir(&self.work).output().unwrap()
    }

    /// Submits an array whose tasks do `body`.
    pub(crate) fn submit(&self, words: &[&str], body: &str) -> Array {
        fs::write(self.work.join("job.sh"), format!("#!/bin/bash\n{body}\n")).unwrap();
        self.answer(&[&["run"], words, &["--gres=gpu:1", "job.sh"]].concat())
    }

    /// The array that a call of hotpot has submitted.
    pub(crate) fn answer(&self, words: &[&str]) -> Array {
        let output = self.hotpot(words);
        let said = String::from_utf8_lossy(&output.stdout);
        let job = said.trim().strip_prefix("Submitted batch job ").map(str::to_string);
        let job = job.unwrap_or_else(|| panic!("{words:?}: {output:?}"));
        let folder = Folder::open(&self.work.join(".hotpot/arrays").join(&job)).unwrap();
        Array { job, folder }
    }

    /// Waits until all tasks of an array have ended and no pilot is left, and looks at its journal.
    pub(crate) fn until_over(&self, array: &Array) -> Ledger {
        let look = |_: &Cluster| array.ledger().is_over().then_some(());
        self.cluster
            .until("the array's end", look)
            .unwrap_or_else(|e| panic!("{e}\n{}", array.logs()));
        self.until_gone(array);
        array.ledger()
    }

    /// Waits until no pilot of an array is in the queue.
    pub(crate) fn until_gone(&self, array: &Array) {
        let look = |cluster: &Cluster| {
            let there = cluster.run(&["squeue", "-h", "-r", "-j", &array.job]);
            there.is_ok_and(|lines| lines.trim().is_empty()).then_some(())
        };
        self.cluster
            .until("the pilots' end", look)
            .unwrap_or_else(|e| panic!("{e}\n{}", array.logs()));
    }

    /// What tasks wrote into `done`, by name of the file.
    pub(crate) fn results(&self) -> BTreeMap<String, String> {
        let entries = fs::read_dir(self.work.join("done")).unwrap().flatten();
        let read = |entry: fs::DirEntry| {
            let text = fs::read_to_string(entry.path()).unwrap();
            (entry.file_name().into_string().unwrap(), text.trim().to_string())
        };
        entries.map(read).collect()
    }
}

impl Drop for Lab {
    fn drop(&mut self) {
        let _ = self.cluster.down();
        if !std::thread::panicking() {
            let _ = fs::remove_dir_all(&self.work);
        }
    }
}

/// A submitted array.
pub(crate) struct Array {
    pub(crate) job: String,
    pub(crate) folder: Folder,
}

impl Array {
    pub(crate) fn ledger(&self) -> Ledger {
        self.folder.look().unwrap().ledger().clone()
    }

    /// All events; each must fit to those before it.
    pub(crate) fn events(&self) -> Vec<Event> {
        let text = fs::read_to_string(self.folder.path().join("journal")).unwrap();
        let mut ledger = Ledger::new(&self.folder.spec.indices);
        let read = |line: &str| {
            let event = Event::parse(line).unwrap_or_else(|| panic!("{line}"));
            assert!(ledger.fold(&event), "{line}");
            event
        };
        text.lines().map(read).collect()
    }

    pub(crate) fn logs(&self) -> String {
        let entries = fs::read_dir(self.folder.path()).unwrap().flatten();
        let logs = entries.filter(|entry| entry.file_name().to_string_lossy().ends_with(".log"));
        logs.map(|entry| fs::read_to_string(entry.path()).unwrap_or_default()).collect()
    }

    /// Processes of pilots that say that they are there, by index of the pilot.
    pub(crate) fn pids(&self) -> BTreeMap<u32, u32> {
        let ledger = self.ledger();
        let there = ledger.pilots().iter().filter(|(_, pilot)| pilot.left_ms.is_none());
        there.map(|(id, pilot)| (id.element, pilot.pid)).collect()
    }

    /// No task was started again after it had ended, and how often each was started.
    pub(crate) fn starts(&self) -> BTreeMap<u32, u32> {
        let (mut starts, mut ended) = (BTreeMap::new(), BTreeMap::new());
        for event in self.events() {
            match event {
                Event::Claim { index, .. } => {
                    assert!(!ended.contains_key(&index), "task {index} had ended");
                    *starts.entry(index).or_insert(0) += 1;
                }
                Event::End { index, attempt, .. } => {
                    assert_eq!(ended.insert(index, attempt), None, "task {index} ended twice");
                }
                Event::Pilot { .. }
                | Event::Left { .. }
                | Event::Back { .. }
                | Event::Cleared { .. } => {}
            }
        }
        starts
    }
}
