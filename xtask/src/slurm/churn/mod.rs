//! `cargo xtask slurm-churn`: jobs of all kinds come and go on a real cluster, without hotpot and with it. Is a card
//! or a MIG instance ever given twice, or more of a card than there is: by what jobs note of themselves, by what
//! slurmctld says, and by what the simulated driver has booked for processes?
//!
//! `nodes` is the cluster, `jobs` what is submitted, `notes` what jobs write; `watch` looks on from outside, through
//! `scontrol` and `books`; `judge` says what is wrong.

mod books;
mod jobs;
mod judge;
mod nodes;
mod notes;
mod scontrol;
mod watch;

use std::fs;
use std::path::Path;
use std::sync::atomic::Ordering::Relaxed;
use std::time::{Duration, Instant};

use self::jobs::Submitter;
use self::judge::{moments_over, pairs_of_stays};
use self::nodes::SHARDS;
use self::notes::{Done, Notes};
use self::watch::{Seen, Shared};
use super::Bench;
use crate::Verdict;
use crate::gpu::table::Table;

/// How long jobs come, and how long with `--quick`.
const SPAN: (Duration, Duration) = (Duration::from_secs(300), Duration::from_secs(30));
/// In the suite.
const SLICE: Duration = Duration::from_secs(10);
const PAUSE: Duration = Duration::from_millis(600);
const JOBS_AT_ONCE: u32 = 6;
/// None are added while so many wait: there is enough to choose from, and Slurm's answers stay short.
const WAITING_MAX: usize = 60;
/// How long the last jobs may take.
const PATIENCE: Duration = Duration::from_secs(60);

const HEAD: [&str; 9] = [
    "",
    "jobs done",
    "whole / shards / MIG",
    "array tasks",
    "pairs by jobs' notes",
    "by scontrol",
    "by ledger",
    "moments over shards / caps / memory",
    "short of memory",
];
const SENT_BACK: &str = "sent back";

/// What was found with one cluster.
struct Found {
    done: Done,
    /// Pairs by jobs' notes, and moments with too many shards.
    noted: (usize, usize),
    seen: Seen,
}

/// * `quick` — half a minute instead of five.
pub(crate) fn run(quick: bool) -> Verdict {
    let span = if quick { SPAN.1 } else { SPAN.0 };
    let title = format!("{} s of jobs every 0.6 s on 2 nodes with 4 GPUs each", span.as_secs());
    let mut table = Table::new(&title, &[&HEAD[..], &[SENT_BACK]].concat());
    let alone = one(span, false)?;
    table.row(alone.row("Slurm alone"));
    let found = one(span, true)?;
    table.row(found.row("Slurm with hotpot"));
    println!("{}", table.text());
    for (name, found) in [("Slurm alone", &alone), ("Slurm with hotpot", &found)] {
        println!("{name}: {}", found.basis());
    }
    found.verdict()
}

/// A short one with hotpot alone, for the suite; says so where there can be no cluster.
pub(crate) fn slice() -> Verdict {
    if let Err(error) = slurm_lab::install(&nodes::options()) {
        println!("skipped: jobs of all kinds on Slurm: {error}");
        return Ok(());
    }
    let found = one(SLICE, true)?;
    println!("Slurm with hotpot: {}, {}", found.words(), found.basis());
    found.verdict()
}

fn one(span: Duration, with_hotpot: bool) -> Result<Found, String> {
    let bench = Bench::up("churn", nodes::options(), with_hotpot)?;
    nodes::divide(&bench)?;
    let log = bench.folder.join("log");
    let said = |error: std::io::Error| format!("{}: {error}", log.display());
    fs::write(&log, "").map_err(said)?;
    let client = bench.folder.join("client");
    copy_this_program(&client)?;
    let shared = Shared::default();
    let seen = std::thread::scope(|scope| {
        let watcher = scope.spawn(|| watch::watch(&bench, with_hotpot, &shared));
        let came = churn(&bench, Submitter::new(&bench, with_hotpot, client), span, &shared);
        shared.over.store(true, Relaxed);
        let seen = watcher.join().map_err(|_| "the watcher has panicked".to_owned())?;
        came.and(seen)
    })?;
    let notes = Notes::read(&fs::read_to_string(&log).map_err(said)?);
    let noted = (pairs_of_stays(&notes.stays).len(), moments_over(&notes.stays, SHARDS));
    Ok(Found { done: notes.done, noted, seen })
}

/// Copies the program that runs. By the kernel's link: cargo may have put another in its place since, and then its
/// path is gone.
fn copy_this_program(to: &Path) -> Verdict {
    fs::copy("/proc/self/exe", to).map(|_| ()).map_err(|error| format!("{}: {error}", to.display()))
}

/// Lets jobs come for a while, and waits until those that run have noted their end.
fn churn(bench: &Bench, mut jobs: Submitter, span: Duration, shared: &Shared) -> Verdict {
    let begun = Instant::now();
    while begun.elapsed() < span {
        for _ in 0..JOBS_AT_ONCE {
            if shared.waiting.load(Relaxed) < WAITING_MAX {
                jobs.submit()?;
            }
        }
        std::thread::sleep(PAUSE);
    }
    // What waits would only take longer.
    bench.run("scancel", &["--state=PENDING", "--me"])?;
    let begun = Instant::now();
    while begun.elapsed() < PATIENCE
        && !bench.run("squeue", &["-h", "-t", "RUNNING,COMPLETING"])?.trim().is_empty()
    {
        std::thread::sleep(Duration::from_millis(200));
    }
    Ok(())
}

impl Found {
    fn row(&self, name: &str) -> Vec<String> {
        let Done { all, whole, shards, instance, array, short } = self.done;
        let [over_shards, caps, memory] = self.over();
        vec![
            name.to_owned(),
            all.to_string(),
            format!("{whole} / {shards} / {instance}"),
            array.to_string(),
            self.noted.0.to_string(),
            self.seen.booked.len().to_string(),
            self.seen.used.len().to_string(),
            format!("{over_shards} / {caps} / {memory}"),
            short.to_string(),
            self.seen.sent_back.len().to_string(),
        ]
    }

    /// The row in words.
    fn words(&self) -> String {
        let cells = self.row("");
        let names = HEAD.iter().chain([&SENT_BACK]).zip(&cells).skip(1);
        names.map(|(name, cell)| format!("{name} {cell}")).collect::<Vec<_>>().join(", ")
    }

    /// What the verdict rests on.
    fn basis(&self) -> String {
        let [running, processes, grants] = self.seen.claims;
        format!(
            "{} looks saw devices of running jobs {running} times, of processes {processes}, of grants {grants}",
            self.seen.looks
        )
    }

    fn over(&self) -> [usize; 3] {
        let [shards, caps, memory] = self.seen.over;
        [shards + self.noted.1, caps, memory]
    }

    /// Whether nothing is wrong, and there was enough to tell.
    fn verdict(&self) -> Verdict {
        let Done { whole, shards, instance, array, short, .. } = self.done;
        let seen = &self.seen;
        let pairs = self.noted.0 + seen.booked.len() + seen.used.len() + seen.granted.len();
        let over: usize = self.over().iter().sum();
        if pairs + over + short > 0 {
            return Err(format!(
                "devices were given twice or cards over full: {pairs} pairs, {over} moments, {short} jobs short of \
                 memory\n{:?}\n{:?}\n{:?}",
                seen.booked, seen.used, seen.granted
            ));
        }
        if [whole, shards, instance, array].contains(&0) || seen.claims.contains(&0) {
            return Err(format!("too little was seen: {:?}, {}", self.done, self.basis()));
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use super::*;

    fn found() -> Found {
        let done = Done { all: 3, whole: 1, shards: 1, instance: 1, array: 1, short: 0 };
        let seen = Seen { looks: 1, claims: [1; 3], ..Seen::default() };
        Found { done, noted: (0, 0), seen }
    }

    #[test]
    fn any_pair_or_moment_fails_and_so_does_a_kind_of_job_that_never_ran() {
        assert!(found().verdict().is_ok());
        let pair = || BTreeSet::from([("n1/0".to_owned(), 1, 2)]);
        let spoils: [fn(&mut Found); 7] = [
            |it| it.noted.0 = 1,
            |it| it.noted.1 = 1,
            |it| it.seen.over[1] = 1,
            |it| it.done.short = 1,
            |it| it.done.instance = 0,
            |it| it.done.array = 0,
            |it| it.seen.claims[1] = 0,
        ];
        for spoil in spoils {
            let mut spoiled = found();
            spoil(&mut spoiled);
            assert!(spoiled.verdict().is_err(), "{}", spoiled.words());
        }
        let mut spoiled = found();
        spoiled.seen.used = pair();
        assert!(spoiled.verdict().is_err());
    }
}
