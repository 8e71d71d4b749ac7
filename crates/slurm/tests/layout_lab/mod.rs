//! What tests of changes of layout share: a cluster whose nodes can be changed, jobs, and what became of them.
#![allow(dead_code, reason = "each test program uses a part of it")]
#![allow(clippy::unwrap_used, clippy::panic, clippy::print_stderr, reason = "tests")]

use std::collections::BTreeMap;
use std::fs;
use std::ops::Range;
use std::path::{Path, PathBuf};
use std::process::{Command, Output};
use std::sync::atomic::{AtomicU32, Ordering::Relaxed};

use slurm_lab::{Cluster, Options};

use crate::support::program;

/// Cards of a node.
const CARDS: u32 = 2;

/// A cluster and a folder to work in, both gone at the end.
pub(crate) struct Lab {
    pub(crate) cluster: Cluster,
    pub(crate) work: PathBuf,
}

impl Lab {
    /// Nodes of two cards; `None`, said by the test's name, where real Slurm cannot be had.
    pub(crate) fn up(test: &str, nodes: u32, dynamic: u32) -> Option<Self> {
        Self::up_as(test, nodes, dynamic, false)
    }

    /// * `with_hotpot` — with its plugin, rules, Prolog and Epilog.
    pub(crate) fn up_as(test: &str, nodes: u32, dynamic: u32, with_hotpot: bool) -> Option<Self> {
        static LABS: AtomicU32 = AtomicU32::new(0);
        let number = LABS.fetch_add(1, Relaxed);
        // A lab's path is short: sockets lie in it.
        let work = std::env::temp_dir().join(format!("layout-{}-{number}", std::process::id()));
        let _ = fs::remove_dir_all(&work);
        fs::create_dir_all(work.join("done")).unwrap();
        let folder = work.join("lab");
        let options = Options { nodes, dynamic, gpus: CARDS, ..Options::default() };
        let built = program().parent().unwrap();
        let options = if with_hotpot { hotpots(options, &folder, built) } else { options };
        let options = options.with_layouts(&folder, built);
        if !slurm_lab::can_be_had(test, &options) {
            return None;
        }
        let cluster = Cluster::up(&folder, &options).unwrap_or_else(|error| panic!("{error}"));
        if with_hotpot {
            cluster.tell_hotpot(built).unwrap();
        }
        let names = (1..=nodes).map(|it| format!("n{it}"));
        for node in names.chain((1..=dynamic).map(|it| format!("d{it}"))) {
            cluster.name_instances(&node, CARDS).unwrap();
        }
        Some(Self { cluster, work })
    }

    /// `hotpot slurm layout` with words, as it would be called on slurmctld's host.
    pub(crate) fn command(&self, words: &[&str]) -> Command {
        let mut command = self.cluster.command(program().to_str().unwrap());
        command.env("HOTPOT_STATE_DIR", self.work.join("state"));
        command.args(["slurm", "layout"]).args(words).current_dir(&self.work);
        command
    }

    /// Runs it to its end.
    pub(crate) fn layout(&self, words: &[&str]) -> Output {
        self.command(words).output().unwrap()
    }

    /// Runs it; it must be fine.
    pub(crate) fn fine(&self, words: &[&str]) -> String {
        let output = self.layout(words);
        assert!(output.status.success(), "{words:?}: {}", said(&output));
        said(&output)
    }

    /// Submits a script; its number.
    pub(crate) fn submit(&self, words: &[&str], script: &str) -> String {
        let wrap = format!("--wrap={script}");
        let line = [&["sbatch", "--parsable", "--mem=16", "--output=/dev/null"], words, &[&wrap]];
        self.cluster.run(&line.concat()).unwrap().trim().to_owned()
    }

    /// Fills a node's devices of a type with a job each: they get these devices, one each.
    pub(crate) fn fills(&self, node: &str, kind: &str, devices: Range<u32>) {
        let hold = self.work.join("hold");
        fs::write(&hold, "").unwrap();
        let (list, gres) = (format!("--nodelist={node}"), format!("--gres=gpu:{kind}:1"));
        let file = |device: u32| self.work.join(format!("done/{node}-{kind}-{device}"));
        let jobs: Vec<String> = devices
            .clone()
            .map(|device| {
                let _ = fs::remove_file(file(device));
                let (file, hold) = (file(device).display().to_string(), hold.display());
                let script = format!(
                    "echo $SLURMD_NODENAME $CUDA_VISIBLE_DEVICES >{file}; \
                     while [ -e {hold} ]; do sleep 0.1; done"
                );
                self.submit(&[&list, &gres], &script)
            })
            .collect();
        let told = |device| fs::read_to_string(file(device)).ok().filter(|it| it.ends_with('\n'));
        let all = |_: &Cluster| devices.clone().map(told).collect::<Option<Vec<String>>>();
        let mut seen = self.cluster.until("jobs on all devices", all).unwrap();
        seen.sort_by_key(|text| (text.len(), text.clone()));
        let expected: Vec<String> = devices.clone().map(|it| format!("{node} {it}\n")).collect();
        assert_eq!(seen, expected);
        fs::remove_file(&hold).unwrap();
        // The next change need not wait for them.
        let over = |_: &Cluster| {
            let states = self.states();
            jobs.iter().all(|job| states[job] == "COMPLETED").then_some(())
        };
        self.cluster.until("their end", over).unwrap();
    }

    /// State and `Gres=` of a node, once it is there.
    pub(crate) fn node(&self, node: &str) -> (String, String) {
        let field = |line: &str, name: &str| {
            let found = line.split_whitespace().find_map(|word| word.strip_prefix(name));
            found.unwrap_or_default().to_owned()
        };
        let line = self.cluster.run(&["scontrol", "show", "node", "-o", node]).unwrap_or_default();
        (field(&line, "State="), field(&line, "Gres="))
    }

    /// Waits until a node is idle, and gives its `Gres=`.
    pub(crate) fn idle(&self, node: &str) -> String {
        self.cluster
            .until("an idle node", |_| {
                let (state, gres) = self.node(node);
                (state.trim_end_matches("+DYNAMIC_NORM") == "IDLE").then_some(gres)
            })
            .unwrap()
    }

    /// Jobs by number and the state in which they ended or are.
    pub(crate) fn states(&self) -> BTreeMap<String, String> {
        let text = self.cluster.run(&["scontrol", "show", "job", "-o"]).unwrap_or_default();
        let word = |line: &str, name: &str| {
            line.split_whitespace().find_map(|word| word.strip_prefix(name)).map(str::to_owned)
        };
        let one = |line: &str| Some((word(line, "JobId=")?, word(line, "JobState=")?));
        text.lines().filter_map(one).collect()
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

/// The same with hotpot on it.
fn hotpots(options: Options, folder: &Path, built: &Path) -> Options {
    let build = ["build", "-q", "-p", "spank", "-p", "limiter"];
    assert!(Command::new(env!("CARGO")).args(build).status().unwrap().success());
    let deploy = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../deploy/slurm");
    options.with_hotpot(folder, built, &deploy).unwrap()
}

/// All that a program printed.
pub(crate) fn said(output: &Output) -> String {
    let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
    text(&output.stdout) + &text(&output.stderr)
}
