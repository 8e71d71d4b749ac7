//! Whole runs: a stream of requests against a fleet, and what share of it was taken.

use std::collections::BTreeMap;

use super::requests::{Mix, Request, Stream, geometry, gpu_slices};
use super::rules::Rule;

/// What became of a stream.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Outcome {
    /// Requests accepted, in percent of those made.
    pub(crate) accepted: f64,
    /// Compute and memory slices held, in percent of the fleet's.
    pub(crate) held: f64,
}

/// How much is asked for, in percent of the fleet's slices.
#[derive(Clone, Copy)]
pub(crate) enum Load {
    /// Nothing leaves; ends when so much has been asked for in all.
    Fill(u64),
    /// Instances leave at random times; so much would be held if all were accepted.
    Steady(u64),
}

pub(crate) fn run(rule: Rule, mix: &Mix, load: Load, gpus: u64, seed: u64) -> Outcome {
    match load {
        Load::Fill(percent) => fill(rule, mix, percent, gpus, seed),
        Load::Steady(percent) => steady(rule, mix, percent, gpus, seed),
    }
}

fn fill(rule: Rule, mix: &Mix, percent: u64, gpus: u64, seed: u64) -> Outcome {
    let geometry = geometry();
    let capacity = gpus * gpu_slices(&geometry);
    let mut stream = Stream::new(&geometry, mix, seed);
    let mut requests = Vec::new();
    let mut asked = 0;
    while asked * 100 < capacity * percent {
        let request = stream.next();
        asked += request.slices;
        requests.push(request);
    }
    let (accepted, held) = take(rule, &requests, gpus);
    Outcome {
        accepted: percent_of(accepted, requests.len() as u64),
        held: percent_of(held, capacity),
    }
}

/// Offers each request in turn; requests and slices that were accepted.
pub(crate) fn take(rule: Rule, requests: &[Request], gpus: u64) -> (u64, u64) {
    let mut fleet = rule.fleet(gpus);
    let mut sums = (0, 0);
    for (id, request) in (0..).zip(requests) {
        if fleet.start(id, request.profile) {
            sums.0 += 1;
            sums.1 += request.slices;
        }
    }
    sums
}

/// Three mean stays to reach the steady state, four to count.
fn steady(rule: Rule, mix: &Mix, percent: u64, gpus: u64, seed: u64) -> Outcome {
    let geometry = geometry();
    let mut stream = Stream::new(&geometry, mix, seed);
    let stay_mean = stream.leaving(&geometry, gpus, percent);
    let mut fleet = rule.fleet(gpus);
    let mut leaving: BTreeMap<(u64, u64), Request> = BTreeMap::new();
    let (mut held, mut held_sum, mut accepted) = (0, 0, 0);
    for id in 0..7 * stay_mean {
        while let Some(next) = leaving.first_entry().filter(|next| next.key().0 <= id) {
            fleet.stop(next.key().1);
            held -= next.remove().slices;
        }
        let request = stream.next();
        let fits = fleet.start(id, request.profile);
        if fits {
            leaving.insert((id + request.stays, id), request);
            held += request.slices;
        }
        if id >= 3 * stay_mean {
            held_sum += held;
            accepted += u64::from(fits);
        }
    }
    Outcome {
        accepted: percent_of(accepted, 4 * stay_mean),
        held: percent_of(held_sum, 4 * stay_mean * gpus * gpu_slices(&geometry)),
    }
}

fn percent_of(part: u64, whole: u64) -> f64 {
    part as f64 * 100.0 / whole as f64
}
