//! However a job ends, its node has nothing of it afterwards: by real Slurm, with simulated GPUs.
#![allow(clippy::unwrap_used, clippy::panic, reason = "tests")]

mod support;

use std::fs;

use fake_machine::{Effect, Fault};
use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;
use slurm_lab::{Daemon, Options};
use support::site::Site;

/// One node with so many cards.
fn cards(gpus: u32) -> Options {
    Options { nodes: 1, gpus, cpus: 64, ..Options::default() }
}

impl Site {
    /// A job that takes memory of its share, and stays until its flag, named after it, is raised.
    fn holder(&self, name: &str, words: &[&str], then: &str) -> String {
        let up = self.flag(&format!("{name}.up"));
        let script = format!("@ alloc 256 touch {up} wait {}; {then}", self.flag(name));
        self.submit(&[words, &["--job-name", name]].concat(), &script)
    }

    /// Waits until such jobs have their memory.
    fn until_up(&self, jobs: &[(&str, &String)]) {
        for (name, job) in jobs {
            self.until_raised(&format!("{name}.up"));
            assert!(!self.held("n1", job).is_empty(), "job {job} holds nothing");
        }
    }

    /// Processes of a job's slurmsteps.
    fn steps(&self, job: &str) -> Vec<Pid> {
        let place = self.work.display().to_string();
        let is_step = |pid: &i32| {
            told_of(*pid, "cmdline").starts_with(&format!("slurmstepd: [{job}."))
                && told_of(*pid, "environ").contains(&place)
        };
        processes().filter(is_step).map(Pid::from_raw).collect()
    }

    fn kill_steps(&self, job: &str) {
        let steps = self.steps(job);
        assert!(!steps.is_empty(), "job {job} has no slurmstepd");
        steps.into_iter().for_each(|pid| kill(pid, Signal::SIGKILL).unwrap());
    }

    /// Nobody holds a card of the node, none is in another mode than at first, no MPS daemon runs.
    fn is_as_at_first(&self, first: &fake_machine::State) -> bool {
        let now = self.machine("n1").read();
        let mut pairs = now.gpus.iter().zip(&first.gpus);
        let same = pairs
            .all(|(now, first)| now.compute_mode == first.compute_mode && now.mig == first.mig);
        let place = self.cluster.machine("n1").display().to_string();
        let is_mps = |pid: &i32| {
            told_of(*pid, "cmdline").contains("nvidia-cuda-mps")
                && told_of(*pid, "environ").contains(&place)
        };
        same && self.journal("n1").holds().unwrap().is_empty()
            && !processes().any(|pid| is_mps(&pid))
    }

    fn until_as_at_first(&self, first: &fake_machine::State) {
        self.until("the node to be as at first", |_| self.is_as_at_first(first).then_some(()));
    }
}

fn processes() -> impl Iterator<Item = i32> {
    let names = fs::read_dir("/proc").unwrap().flatten();
    names.filter_map(|entry| entry.file_name().to_str()?.parse().ok())
}

/// What the kernel tells of a process; empty if it is gone.
fn told_of(pid: i32, file: &str) -> String {
    let bytes = fs::read(format!("/proc/{pid}/{file}")).unwrap_or_default();
    String::from_utf8_lossy(&bytes).replace('\0', " ")
}

/// A small share, and others that leave no room for it on their card: a card is shared in one way at a time.
const CAPPED: [&str; 2] = ["--gpu-mem=2G", "--no-requeue"];
const SLICED: [&str; 2] = ["--gpu-mem=78G", "--gpu-share=timeslice"];
const MPS: [&str; 3] = ["--gpu-mem=78G", "--gpu-share=mps", "--no-requeue"];

#[test]
fn nothing_is_left_of_a_job_however_it_ends() {
    let test = "nothing_is_left_of_a_job_however_it_ends";
    let Some(site) = Site::up(test, cards(4)) else { return };
    let first = site.machine("n1").read();
    let ends = site.holder("ends", &CAPPED, "true");
    let fails = site.holder("fails", &CAPPED, "exit 3");
    let cancelled = site.holder("cancelled", &CAPPED, "true");
    let killed = site.holder("killed", &CAPPED, "true");
    let whole = site.holder("whole", &["--gres=gpu:1"], "true");
    let sliced = site.holder("sliced", &SLICED, "true");
    let mps = site.holder("mps", &MPS, "true");
    site.until_up(&[
        ("ends", &ends),
        ("fails", &fails),
        ("cancelled", &cancelled),
        ("killed", &killed),
    ]);
    site.until_up(&[("whole", &whole), ("sliced", &sliced), ("mps", &mps)]);
    assert!(!site.is_as_at_first(&first), "nothing has been changed");
    ["ends", "fails", "whole", "mps"].iter().for_each(|name| site.raise(name));
    site.does(&["scancel", &cancelled, &sliced]);
    site.does(&["scancel", "--signal=KILL", "--full", &killed]);
    for job in [ends, fails, cancelled, killed, whole, sliced, mps] {
        site.until_undone("n1", &job);
    }
    site.until_as_at_first(&first);
}

#[test]
fn nothing_is_left_where_daemons_were_killed() {
    let test = "nothing_is_left_where_daemons_were_killed";
    // Slurm takes a batch job for lost that a node does not name so long after its start.
    let slurm_conf = "BatchStartTimeout=1\nMessageTimeout=5\n".into();
    let Some(site) = Site::up(test, Options { slurm_conf, ..cards(2) }) else { return };
    let first = site.machine("n1").read();
    let stays = site.holder("stays", &CAPPED, "true");
    let over = site.holder("over", &CAPPED, "true");
    let stepless = site.holder("stepless", &CAPPED, "true");
    let mps = site.holder("mps", &MPS, "true");
    site.until_up(&[("stays", &stays), ("over", &over), ("stepless", &stepless), ("mps", &mps)]);
    // One job ends while nobody is there to see it, two have lost the process that would tell.
    site.restart_slurmd("n1", || {
        site.kill_steps(&stepless);
        site.kill_steps(&mps);
        site.raise("over");
    });
    site.until_undone("n1", &over);
    site.until("Slurm to miss two jobs", |_| {
        // The node names its jobs when it is told to read its configuration, and some minutes later by itself.
        site.does(&["scontrol", "reconfigure"]);
        std::thread::sleep(std::time::Duration::from_millis(500));
        let gone = [&stepless, &mps].iter().all(|job| site.field(job, "JobState") != "RUNNING");
        gone.then_some(())
    });
    [&stepless, &mps].iter().for_each(|job| site.until_undone("n1", job));
    assert_eq!(site.field(&stays, "JobState"), "RUNNING");
    assert!(!site.held("n1", &stays).is_empty(), "who runs on keeps its share");
    site.raise("stays");
    site.until_undone("n1", &stays);
    site.until_as_at_first(&first);
}

#[test]
fn what_no_epilog_took_back_is_tidied() {
    let test = "what_no_epilog_took_back_is_tidied";
    let Some(site) = Site::up(test, cards(2)) else { return };
    let first = site.machine("n1").read();
    let lost = site.holder("lost", &CAPPED, "true");
    let mps = site.holder("mps", &MPS, "true");
    site.until_up(&[("lost", &lost), ("mps", &mps)]);
    // The node is given up while its slurmd is away: Slurm asks nobody to end these jobs there.
    site.cluster.kill(&Daemon::Slurmd("n1".into()));
    site.kill_steps(&lost);
    site.kill_steps(&mps);
    let tidy = || {
        let done = site.script("hotpot-tidy", "n1", None);
        assert!(done.status.success(), "{done:?}");
    };
    tidy();
    for job in [&lost, &mps] {
        assert!(!site.held("n1", job).is_empty(), "for Slurm it runs");
    }
    site.does(&["scontrol", "update", "nodename=n1", "state=down", "reason=test"]);
    for job in [&lost, &mps] {
        assert_eq!(site.until_is(job, &["NODE_FAIL"]), "NODE_FAIL");
        assert!(!site.held("n1", job).is_empty());
    }
    tidy();
    for job in [&lost, &mps] {
        assert_eq!(site.left("n1", job), Vec::<String>::new());
    }
    site.until_as_at_first(&first);
}

#[test]
fn a_job_that_goes_back_into_the_queue_holds_nothing_meanwhile() {
    let test = "a_job_that_goes_back_into_the_queue_holds_nothing_meanwhile";
    let Some(site) = Site::up(test, cards(1)) else { return };
    let first = site.machine("n1").read();
    let job = site.holder("again", &["--gpu-mem=2G"], "true");
    site.until_up(&[("again", &job)]);
    site.does(&["scontrol", "requeue", &job]);
    site.until_undone("n1", &job);
    site.until_as_at_first(&first);
    assert_eq!(site.until_is(&job, &["PENDING"]), "PENDING");
    // It comes back, holds its share as before, and is over.
    site.raise("again");
    site.until_is(&job, &["COMPLETED"]);
    assert_eq!(site.out(&job).matches("alloc 256 0").count(), 2, "{}", site.out(&job));
    site.until_undone("n1", &job);
    site.until_as_at_first(&first);
}

#[test]
fn what_a_killed_prolog_had_begun_is_put_back() {
    let test = "what_a_killed_prolog_had_begun_is_put_back";
    let Some(site) = Site::up(test, cards(1)) else { return };
    let first = site.machine("n1").read();
    // The process that is about to change the card's mode dies, whoever it is.
    let call = "nvmlDeviceSetComputeMode".to_owned();
    let dies = vec![Fault { call, nth: 1, effect: Effect::Kill }];
    let faults = |faults: Vec<Fault>| {
        let edited = site.machine("n1").edit(|state| {
            state.faults = faults;
            Ok(())
        });
        edited.unwrap();
    };
    faults(dies);
    let job = site.submit(&MPS[..2], "echo it ran");
    // Slurm takes a node out of use whose Prolog fails, and the job waits.
    site.until("a node that is taken out", |_| {
        let state = site.does(&["sinfo", "-hN", "-o", "%T", "-p", "batch"]);
        state.contains("drain").then_some(())
    });
    site.until_is(&job, &["PENDING"]);
    assert_eq!(site.out(&job), "");
    faults(Vec::new());
    let tidied = site.script("hotpot-tidy", "n1", None);
    assert!(tidied.status.success(), "{tidied:?}");
    site.until_undone("n1", &job);
    site.until_as_at_first(&first);
    site.does(&["scontrol", "update", "nodename=n1", "state=resume"]);
    site.does(&["scontrol", "release", &job]);
    site.until_is(&job, &["COMPLETED"]);
    assert_eq!(site.out(&job), "it ran\n");
}
