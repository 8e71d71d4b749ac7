//! Arrays on a real cluster while something goes wrong: each result is there once, and nothing that
//! ended is done again.
#![allow(clippy::unwrap_used, clippy::print_stderr, reason = "tests")]

mod support;

use std::collections::BTreeMap;
use std::fs;
use std::process::Command;
use std::time::SystemTime;

use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;
use slurm::array::ledger::{Ledger, Standing};
use slurm_lab::Daemon;
use support::{Array, Lab};

/// A task that takes a while and says which try of it came to the end.
const BODY: &str = "sleep 0.2; echo $HOTPOT_ATTEMPT >>done/$SLURM_ARRAY_TASK_ID; echo end";
/// A large array, all GPUs of the cluster at once.
const MANY: u32 = 1000;
const MANY_AT_ONCE: u32 = 20;

fn many() -> String {
    format!("--array=1-{MANY}%{MANY_AT_ONCE}")
}

/// Waits until some tasks have ended.
fn until_ended(lab: &Lab, array: &Array, count: usize) {
    let ended = |ledger: &Ledger| ledger.tasks().len() - ledger.waiting() - ledger.open().count();
    lab.cluster.until("some ends", |_| (ended(&array.ledger()) >= count).then_some(())).unwrap();
}

/// Until slurmctld has written down what it knows: if it is killed before, it ends jobs that it has just started,
/// and starts them again, or cannot.
fn until_saved(lab: &Lab, array: &Array) {
    let all_there = |_: &_| (array.pids().len() == MANY_AT_ONCE as usize).then_some(());
    lab.cluster.until("all pilots", all_there).unwrap();
    let begun = SystemTime::now();
    lab.cluster.run(&["scontrol", "update", &format!("jobid={}", array.job), "comment=x"]).unwrap();
    let state = lab.cluster.folder().join("state/job_state");
    let saved = || fs::metadata(&state).is_ok_and(|facts| facts.modified().unwrap() > begun);
    lab.cluster.until("a saved state", |_| saved().then_some(())).unwrap();
}

/// Every task ended well, each once; returns how often each was started.
fn look_whole(lab: &Lab, array: &Array, tasks: u32) -> BTreeMap<u32, u32> {
    let ledger = lab.until_over(array);
    let fine = ledger.pilots().keys().all(|id| ledger.is_fine(*id));
    assert!(fine && ledger.tasks().len() == tasks as usize, "{}", array.logs());
    let starts = array.starts();
    let results = lab.results();
    for index in 1..=tasks {
        let result = &results[&index.to_string()];
        // A task that is killed after its last word, before that is known, says it again.
        let said: Vec<u32> = result.lines().map(|line| line.parse().unwrap()).collect();
        assert_eq!(said.last(), Some(&starts[&index]), "task {index}: {said:?}");
        let output = lab.work.join(format!("slurm-{}_{index}.out", array.job));
        let text = fs::read_to_string(output).unwrap_or_default();
        assert!(text.trim() == "end", "task {index}: {text:?}");
    }
    starts
}

#[test]
fn the_others_do_what_a_killed_pilot_had() {
    let test = "the_others_do_what_a_killed_pilot_had";
    let Some(lab) = Lab::up(test) else { return };
    let array = lab.submit(&["--array=1-60%4"], BODY);
    until_ended(&lab, &array, 8);
    let pids = array.pids();
    let (element, pid) = pids.first_key_value().unwrap();
    kill(Pid::from_raw(*pid as i32), Signal::SIGKILL).unwrap();
    let starts = look_whole(&lab, &array, 60);
    let again = starts.values().filter(|count| **count > 1).count();
    assert!(again <= 1, "a pilot has one task at a time: {starts:?}");
    let ended = array
        .ledger()
        .pilots()
        .iter()
        .all(|(id, pilot)| (id.element == *element) == pilot.left_ms.is_none());
    assert!(ended, "all but the killed one said that they were leaving");
}

#[test]
fn slurms_daemons_may_be_killed_and_come_back() {
    let test = "slurms_daemons_may_be_killed_and_come_back";
    let Some(lab) = Lab::up(test) else { return };
    let array = lab.submit(&[&many()], BODY);
    until_ended(&lab, &array, 100);
    until_saved(&lab, &array);
    let daemons = [Daemon::Slurmctld, Daemon::Slurmd("n1".into()), Daemon::Slurmd("n2".into())];
    daemons.iter().for_each(|daemon| lab.cluster.kill(daemon));
    until_ended(&lab, &array, 500);
    daemons.iter().for_each(|daemon| lab.cluster.start(daemon).unwrap());
    let starts = look_whole(&lab, &array, MANY);
    assert!(starts.values().all(|count| *count == 1), "{starts:?}");
}

#[test]
fn a_requeued_pilot_goes_on_where_it_was() {
    let test = "a_requeued_pilot_goes_on_where_it_was";
    let Some(lab) = Lab::up(test) else { return };
    let array = lab.submit(&["--array=1-30%1"], BODY);
    until_ended(&lab, &array, 5);
    lab.cluster.run(&["scontrol", "requeue", &format!("{}_0", array.job)]).unwrap();
    let starts = look_whole(&lab, &array, 30);
    assert_eq!(starts.values().filter(|count| **count > 1).count(), 1, "{starts:?}");
    let pilots: Vec<_> = array.ledger().pilots().clone().into_iter().collect();
    let told: Vec<_> = pilots.iter().map(|(id, pilot)| (id.start, pilot.restarts)).collect();
    assert_eq!(told, [(1, 0), (2, 1)]);
}

#[test]
fn a_cancelled_array_can_be_resumed() {
    let test = "a_cancelled_array_can_be_resumed";
    let Some(lab) = Lab::up(test) else { return };
    let body = format!("{BODY}; test $SLURM_ARRAY_TASK_ID-$HOTPOT_ATTEMPT != 3-1");
    let mut array = lab.submit(&["--array=1-40%4"], &body);
    until_ended(&lab, &array, 8);
    let has_failed =
        |ledger: &Ledger| matches!(ledger.tasks()[&3].standing, Standing::Ended { .. });
    lab.cluster.until("task 3 fails", |_| has_failed(&array.ledger()).then_some(())).unwrap();
    let early = lab.hotpot(&["run", "--resume", &array.job]);
    assert_eq!(early.status.code(), Some(1), "its pilots still run: {early:?}");
    lab.cluster.run(&["scancel", &array.job]).unwrap();
    lab.until_gone(&array);
    let before = array.ledger();
    assert!(before.waiting() > 0 && before.open().count() == 0, "{}", array.logs());
    let resumed = lab.answer(&["run", "--resume", &array.job]);
    assert_eq!(resumed.folder.path(), array.folder.path());
    array.job = resumed.job;
    let ledger = lab.until_over(&array);
    let tried = |index: u32| ledger.tasks()[&index].attempts;
    assert!((1..=40).all(|index| tried(index) <= 2) && tried(3) == 1);
    array.starts();
    let shown = lab.hotpot(&["tasks", &array.job]);
    let said = String::from_utf8_lossy(&shown.stdout);
    assert!(said.contains("40 tasks: 39 done, 1 failed (3)"), "{said}");
    array.job = lab.answer(&["run", "--resume", &array.job, "--retry-failed"]).job;
    let ledger = lab.until_over(&array);
    assert_eq!(ledger.tasks()[&3].attempts, 2);
    assert!(ledger.pilots().keys().all(|id| ledger.is_fine(*id)));
    let nothing = lab.hotpot(&["run", "--resume", &array.job]);
    assert!(nothing.status.success(), "nothing is left: {nothing:?}");
}

/// A small file system of its own; unmounted at the end.
struct Disk<'a>(&'a std::path::Path);

impl<'a> Disk<'a> {
    fn mount(test: &str, place: &'a std::path::Path) -> Option<Self> {
        fs::create_dir(place).unwrap();
        let words = ["-t", "tmpfs", "-o", "size=1m", "tmpfs"];
        let done = Command::new("mount").args(words).arg(place).output();
        if done.is_ok_and(|done| done.status.success()) {
            return Some(Self(place));
        }
        eprintln!("skipped: {test}: mount is not allowed here");
        None
    }
}

impl Drop for Disk<'_> {
    fn drop(&mut self) {
        let _ = Command::new("umount").arg("-l").arg(self.0).output();
    }
}

#[test]
fn a_full_disk_stops_starts_and_nothing_is_forgotten() {
    let test = "a_full_disk_stops_starts_and_nothing_is_forgotten";
    let Some(lab) = Lab::up(test) else { return };
    let place = lab.work.join("disk");
    let Some(_disk) = Disk::mount(test, &place) else { return };
    let folder = format!("--folder={}", place.display());
    fs::write(lab.work.join("job.sh"), format!("#!/bin/bash\n{BODY}\n")).unwrap();
    let output = lab.hotpot(&["run", &folder, &many(), "--gres=gpu:1", "job.sh"]);
    let said = String::from_utf8_lossy(&output.stdout);
    let job = said.trim().strip_prefix("Submitted batch job ").unwrap().to_string();
    let open = slurm::array::folder::Folder::open(&place.join(&job)).unwrap();
    let array = Array { job, folder: open };
    until_ended(&lab, &array, 100);
    let filler = place.join("filler");
    let _ = Command::new("dd")
        .args(["if=/dev/zero", "bs=1k"])
        .arg(format!("of={}", filler.display()))
        .output();
    // The journal goes on to the end of its page, then nobody can write.
    let mut before = 0;
    lab.cluster
        .until("a standstill", |_| {
            std::thread::sleep(std::time::Duration::from_secs(1));
            let now = fs::metadata(array.folder.path().join("journal")).unwrap().len();
            (std::mem::replace(&mut before, now) == now).then_some(())
        })
        .unwrap();
    let results = lab.results().len();
    assert!(
        array.ledger().waiting() > 0 && results < MANY as usize,
        "it stands still in the middle"
    );
    fs::remove_file(filler).unwrap();
    let starts = look_whole(&lab, &array, MANY);
    assert!(starts.values().all(|count| *count == 1), "{starts:?}");
    let results = lab.results();
    assert!(
        results.len() == MANY as usize && results.values().all(|said| said == "1"),
        "{results:?}"
    );
    let told = lab.hotpot(&["tasks", place.join(&array.job).to_str().unwrap()]);
    let said = String::from_utf8_lossy(&told.stdout);
    assert!(
        told.status.success() && said.contains(&format!("{MANY} tasks: {MANY} done")),
        "{told:?}"
    );
    // The logs lie on that disk: what was said while it was full may be missing.
    let logs = array.logs();
    let clear =
        |line: &str| line.contains("(No space left on device") && line.ends_with("going on");
    assert!(logs.lines().any(clear), "{logs}");
}
