//! A job of high priority gets its share at once from those that can go back into the queue: by real Slurm,
//! with simulated GPUs.
#![allow(clippy::unwrap_used, clippy::panic, clippy::print_stderr, reason = "tests")]

mod support;

use std::time::{Duration, Instant};

use slurm_lab::Options;
use support::site::Site;

/// What a job of high priority may wait. Slurm's main scheduler looks once a second.
const WAIT: Duration = Duration::from_secs(2);
/// How often it is tried: a machine that is busy with other things is no fault of ours.
const TRIES: usize = 5;
/// Shares that fill a card but for a little.
const SHARERS: usize = 4;

#[test]
fn a_job_of_high_priority_has_its_share_in_two_seconds_and_takes_no_more_than_it_needs() {
    let test =
        "a_job_of_high_priority_has_its_share_in_two_seconds_and_takes_no_more_than_it_needs";
    let options = Options { nodes: 1, gpus: 2, cpus: 64, preempt: true, ..Options::default() };
    let Some(site) = Site::up(test, options) else { return };
    let leave = site.flag("leave");
    let script = |name: &str| format!("@ alloc 256 touch {} wait {leave}", site.flag(name));
    let sharers: Vec<String> = (0..2 * SHARERS)
        .map(|at| site.submit(&["--gpu-mem=18G"], &script(&format!("up{at}"))))
        .collect();
    (0..2 * SHARERS).for_each(|at| site.until_raised(&format!("up{at}")));
    let mut best = Duration::MAX;
    let mut sent_back = 0;
    for turn in 0..TRIES {
        // Half a card, and as much as two of the sharers have.
        let (up, begun) = (format!("high{turn}"), Instant::now());
        let high = site.submit(&["--partition=online", "--gpu-mem=34G"], &script(&up));
        site.until_raised(&up);
        let took = begun.elapsed();
        best = best.min(took);
        let restarts = |job: &String| site.field(job, "Restarts").parse::<usize>().unwrap();
        let now: usize = sharers.iter().map(restarts).sum();
        eprintln!("a share by preemption: {} ms, {} sent back", took.as_millis(), now - sent_back);
        assert_eq!(now - sent_back, 2, "as many as are needed, not more");
        sent_back = now;
        let running = sharers.iter().filter(|job| site.field(job, "JobState") == "RUNNING").count();
        assert_eq!(running, sharers.len() - 2);
        assert!(site.out(&high).contains("alloc 256 0"), "{}", site.out(&high));
        site.does(&["scancel", &high]);
        // Those who made room come back as soon as Slurm lets them.
        let came_back = Instant::now();
        for job in &sharers {
            site.until_is(job, &["RUNNING"]);
        }
        eprintln!("all are back after {} ms more", came_back.elapsed().as_millis());
        if best <= WAIT {
            break;
        }
    }
    assert!(best <= WAIT, "{best:?}");
    site.raise("leave");
    for job in &sharers {
        let out = site.finish(job);
        assert!(!out.contains("alloc 256 2") && out.contains("alloc 256 0"), "{out}");
    }
}
